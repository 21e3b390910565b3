package front

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

const (
	testUser     = "operator@vsphere.local"
	testPassword = "correct horse"
)

// patience only catches a hang. A shared machine may be many times slower than
// a good one, and pause for seconds.
const patience = 5 * time.Minute

type obj = map[string]any

// lab is a front on a loopback port and a client of it.
type lab struct {
	t       testing.TB
	f       *Front
	server  *httptest.Server
	client  *http.Client
	session string
	release string
}

func newLab(t testing.TB, change ...func(*Config)) *lab {
	t.Helper()
	cfg := Config{
		Username: testUser, Password: testPassword, Hosts: 3, PodDatastores: 3, APIRelease: "8.0.3.0", Delays: Delays{},
	}
	for _, c := range change {
		c(&cfg)
	}
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(f)
	l := &lab{t: t, f: f, server: server, client: server.Client(), release: cfg.APIRelease}
	t.Cleanup(func() {
		f.outage.end()
		f.rules.clear()
		l.client.CloseIdleConnections()
		server.Close()
		f.Close()
	})
	return l
}

func loggedIn(t testing.TB, change ...func(*Config)) *lab {
	l := newLab(t, change...)
	l.login()
	return l
}

type answer struct {
	status int
	body   []byte
	header http.Header
}

func (a answer) object(t testing.TB) obj {
	t.Helper()
	var out obj
	if err := json.Unmarshal(a.body, &out); err != nil {
		t.Fatalf("status %d, not an object: %q", a.status, a.body)
	}
	return out
}

// send returns an error only if the connection gives no answer.
func (l *lab) send(method, path string, body any, header http.Header) (answer, error) {
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	case []byte:
		reader = bytes.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return answer{}, err
		}
		reader = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, l.server.URL+path, reader)
	if err != nil {
		return answer{}, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if l.session != "" && req.Header.Get(sessionHeader) == "" {
		req.Header.Set(sessionHeader, l.session)
	}
	res, err := l.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, raw, res.Header}, err
}

func (l *lab) http(method, path string, body any) answer {
	l.t.Helper()
	a, err := l.send(method, path, body, nil)
	if err != nil {
		l.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (l *lab) path(on ref, member string) string {
	return fmt.Sprintf("/sdk/vim25/%s/%s/%s/%s", l.release, on.Type, url.PathEscape(on.Value), member)
}

// call requires that a method succeeds.
func (l *lab) call(on ref, method string, body any) answer {
	l.t.Helper()
	if body == nil {
		body = obj{}
	}
	a := l.http("POST", l.path(on, method), body)
	if a.status != 200 && a.status != 204 {
		l.t.Fatalf("%s: status %d: %s", method, a.status, a.body)
	}
	return a
}

// fault requires that a method fails, and returns the fault.
func (l *lab) fault(on ref, method string, body any, want string) obj {
	l.t.Helper()
	a := l.http("POST", l.path(on, method), body)
	if a.status != 500 {
		l.t.Fatalf("%s: status %d, want fault %s: %s", method, a.status, want, a.body)
	}
	f := a.object(l.t)
	if f["_typeName"] != want {
		l.t.Fatalf("%s: got %s, want fault %s", method, a.body, want)
	}
	return f
}

func (l *lab) get(on ref, property string) answer {
	l.t.Helper()
	return l.http("GET", l.path(on, property), nil)
}

func (l *lab) refOf(a answer) ref {
	l.t.Helper()
	o := a.object(l.t)
	if o["_typeName"] != "ManagedObjectReference" {
		l.t.Fatalf("not a reference: %s", a.body)
	}
	return ref{Type: o["type"].(string), Value: o["value"].(string)}
}

func moref(r ref) obj {
	return obj{"_typeName": "ManagedObjectReference", "type": r.Type, "value": r.Value}
}

var (
	serviceInstance   = ref{Type: "ServiceInstance", Value: "ServiceInstance"}
	sessionManager    = ref{Type: "SessionManager", Value: "SessionManager"}
	searchIndex       = ref{Type: "SearchIndex", Value: "SearchIndex"}
	propertyCollector = ref{Type: "PropertyCollector", Value: "propertyCollector"}
	viewManager       = ref{Type: "ViewManager", Value: "ViewManager"}
	fileManager       = ref{Type: "FileManager", Value: "FileManager"}
	storageManager    = ref{Type: "StorageResourceManager", Value: "StorageResourceManager"}
)

func (l *lab) login() {
	l.t.Helper()
	a := l.call(sessionManager, "Login", obj{"userName": testUser, "password": testPassword})
	l.session = a.header.Get(sessionHeader)
	if l.session == "" {
		l.t.Fatal("no session header")
	}
}

func (l *lab) find(path string) ref {
	l.t.Helper()
	return l.refOf(l.call(searchIndex, "FindByInventoryPath", obj{"inventoryPath": path}))
}

// task polls a task to its end and returns its info.
func (l *lab) task(a answer) obj {
	l.t.Helper()
	task := l.refOf(a)
	deadline := time.Now().Add(patience)
	for {
		info := l.get(task, "info").object(l.t)
		switch info["state"] {
		case "success", "error":
			return info
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("task does not end: %v", info)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// done requires that a task succeeds, and returns its result.
func (l *lab) done(a answer) any {
	l.t.Helper()
	info := l.task(a)
	if info["state"] != "success" {
		l.t.Fatalf("task failed: %v", info)
	}
	return info["result"]
}

// failed requires that a task ends with a fault, and returns the fault.
func (l *lab) failed(a answer, want string) obj {
	l.t.Helper()
	info := l.task(a)
	fault, ok := info["error"].(obj)
	if !ok || fault["_typeName"] != want {
		l.t.Fatalf("task: got %v, want fault %s", info, want)
	}
	return fault
}

func (l *lab) admin(method, path string, body any, into any) {
	l.t.Helper()
	a := l.http(method, "/_admin/"+path, body)
	if a.status != 200 && a.status != 204 {
		l.t.Fatalf("admin %s: status %d: %s", path, a.status, a.body)
	}
	if into != nil {
		if err := json.Unmarshal(a.body, into); err != nil {
			l.t.Fatal(err)
		}
	}
}

func (l *lab) inventory() inventoryView {
	l.t.Helper()
	var v inventoryView
	l.admin("GET", "inventory", nil, &v)
	return v
}

func (l *lab) vm(name string) vmView {
	l.t.Helper()
	for _, vm := range l.inventory().VMs {
		if vm.Name == name {
			return vm
		}
	}
	l.t.Fatalf("no VM %s", name)
	return vmView{}
}

func vmRef(moref string) ref { return ref{Type: "VirtualMachine", Value: moref} }
