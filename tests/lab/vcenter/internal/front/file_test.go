package front

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

func (l *lab) file(method, path, body string, header map[string][]string) answer {
	l.t.Helper()
	a, err := l.send(method, "/folder/"+path, body, header)
	if err != nil {
		l.t.Fatal(err)
	}
	return a
}

func TestFolder(t *testing.T) {
	l := loggedIn(t)
	where := "?dcPath=dc1&dsName=iso-datastore"
	session := cookie(l.session)
	basic := map[string][]string{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(testUser+":"+testPassword))}}
	wrong := map[string][]string{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(testUser+":no"))}}
	for _, c := range []struct {
		method, path, body string
		header             map[string][]string
		status             int
	}{
		{"PUT", "x.iso" + where, "one", nil, 401},
		{"PUT", "x.iso" + where, "one", wrong, 401},
		{"PUT", "x.iso" + where, "one", cookie("stale"), 401},
		{"PUT", "iso/x.iso" + where, "one", session, 404},
		{"PUT", "x.iso?dcPath=dc1&dsName=nowhere", "one", session, 404},
		{"PUT", "x.iso?dcPath=nowhere&dsName=iso-datastore", "one", session, 404},
		{"GET", "x.iso" + where, "", session, 404},
		{"PUT", "x.iso" + where, "one", session, 201},
		{"PUT", "x.iso" + where, "second", basic, 200},
		{"GET", "x.iso" + where, "", session, 200},
		{"HEAD", "x.iso" + where, "", session, 200},
		{"POST", "x.iso" + where, "", session, 405},
		{"DELETE", "x.iso" + where, "", session, 204},
		{"DELETE", "x.iso" + where, "", session, 404},
	} {
		a := l.file(c.method, c.path, c.body, c.header)
		if a.status != c.status {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, a.status, c.status, a.body)
		}
		if c.method == "GET" && a.status == 200 && string(a.body) != "second" {
			t.Errorf("content: %q", a.body)
		}
		if c.method == "HEAD" && a.header.Get("Content-Length") != "6" {
			t.Errorf("HEAD: %v", a.header)
		}
	}
}

func TestFolderBasicOnly(t *testing.T) {
	l := loggedIn(t, func(c *Config) { c.FolderBasicOnly = true })
	const at = "x.iso?dcPath=dc1&dsName=iso-datastore"
	basic := func(password string) map[string][]string {
		pair := base64.StdEncoding.EncodeToString([]byte(testUser + ":" + password))
		return map[string][]string{"Authorization": {"Basic " + pair}}
	}
	for _, c := range []struct {
		header map[string][]string
		status int
	}{{cookie(l.session), 401}, {basic("no"), 401}, {basic(testPassword), 201}} {
		if a := l.file("PUT", at, "one", c.header); a.status != c.status {
			t.Errorf("%v: %d, want %d: %s", c.header, a.status, c.status, a.body)
		}
	}
	if refused := l.f.calls.view().Logins["refused"]; refused != 1 {
		t.Errorf("%d passwords refused, want 1: a session is none", refused)
	}
}

func TestShortUploadLeavesAPart(t *testing.T) {
	l := loggedIn(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(l.server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "PUT /folder/x.iso?dcPath=dc1&dsName=iso-datastore HTTP/1.1\r\nHost: vcenter\r\nCookie: %s=%s\r\nContent-Length: 100\r\n\r\nhalf", soapCookie, l.session)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, " 400 ") {
		t.Errorf("answer: %q %v", line, err)
	}
	if files := l.inventory().Files; len(files) != 1 || files[0].Size != 4 {
		t.Errorf("files: %+v", files)
	}
}

func TestFileManager(t *testing.T) {
	l := loggedIn(t)
	dc := moref(l.find("/dc1"))
	browser := l.refOf(l.get(l.find("/dc1/datastore/iso-datastore"), "browser"))
	search := func(path string, more obj) answer {
		body := obj{"datastorePath": path}
		for k, v := range more {
			body[k] = v
		}
		return l.call(browser, "SearchDatastore_Task", body)
	}
	fault := l.failed(search("[iso-datastore] iso", nil), "FileNotFound")
	if fault["file"] != "[iso-datastore] iso" {
		t.Errorf("fault: %v", fault)
	}
	mkdir := func(name string, parents bool) obj {
		return obj{"name": name, "datacenter": dc, "createParentDirectories": parents}
	}
	l.fault(fileManager, "MakeDirectory", mkdir("[iso-datastore] iso/deep", false), "FileNotFound")
	l.call(fileManager, "MakeDirectory", mkdir("[iso-datastore] iso", true))
	l.fault(fileManager, "MakeDirectory", mkdir("[iso-datastore] iso", true), "FileAlreadyExists")
	l.fault(fileManager, "MakeDirectory", obj{"name": "[iso-datastore] x"}, "InvalidArgument")
	upload(l, "iso/x.iso.part", "four")
	move := func(from, to string) answer {
		return l.call(fileManager, "MoveDatastoreFile_Task", obj{
			"sourceName": from, "sourceDatacenter": dc, "destinationName": to, "destinationDatacenter": dc, "force": false,
		})
	}
	l.done(move("[iso-datastore] iso/x.iso.part", "[iso-datastore] iso/x.iso"))
	l.done(move("[iso-datastore] iso/x.iso", "[iso-datastore] iso/x.iso"))
	l.failed(move("[iso-datastore] iso/x.iso.part", "[iso-datastore] iso/x.iso"), "FileNotFound")
	upload(l, "iso/y.iso.part", "other")
	fault = l.failed(move("[iso-datastore] iso/y.iso.part", "[iso-datastore] iso/x.iso"), "FileAlreadyExists")
	if fault["file"] != "[iso-datastore] iso/x.iso" {
		t.Errorf("fault: %v", fault)
	}
	details := obj{"_typeName": "FileQueryFlags", "fileType": true, "fileSize": true, "modification": true, "fileOwner": false}
	found := l.done(search("[iso-datastore] iso", obj{"searchSpec": obj{
		"_typeName": "HostDatastoreBrowserSearchSpec", "matchPattern": []string{"x.iso"}, "details": details,
	}})).(obj)
	files := found["file"].([]any)
	if found["_typeName"] != "HostDatastoreBrowserSearchResults" || len(files) != 1 ||
		files[0].(obj)["_typeName"] != "IsoImageFileInfo" || files[0].(obj)["fileSize"] != 4.0 {
		t.Errorf("found: %v", found)
	}
	if all := l.done(search("[iso-datastore] iso", nil)).(obj)["file"].([]any); len(all) != 2 {
		t.Errorf("no pattern matches all: %v", all)
	}
	none := l.done(search("[iso-datastore] iso", obj{"searchSpec": obj{
		"_typeName": "HostDatastoreBrowserSearchSpec", "matchPattern": []string{"none"},
	}})).(obj)
	if list, ok := none["file"].([]any); ok && len(list) > 0 {
		t.Errorf("a missing file is an empty list: %v", none)
	}
	remove := func(name string) answer {
		return l.call(fileManager, "DeleteDatastoreFile_Task", obj{"name": name, "datacenter": dc})
	}
	l.done(remove("[iso-datastore] iso/y.iso.part"))
	l.failed(remove("[iso-datastore] iso/y.iso.part"), "FileNotFound")
	l.failed(remove("[iso-datastore]"), "InvalidDatastorePath")
}

func TestMountedImageIsLocked(t *testing.T) {
	l := loggedIn(t, func(c *Config) { c.Delays = Delays{delayFile: 100 * time.Millisecond} })
	l.uploadISO()
	vm := l.made("node-1", "ds-0")
	l.done(l.call(vm, "PowerOnVM_Task", nil))
	dc := moref(l.find("/dc1"))
	remove := obj{"name": testISO, "datacenter": dc}
	fault := l.failed(l.call(fileManager, "DeleteDatastoreFile_Task", remove), "FileLocked")
	if fault["file"] != testISO {
		t.Errorf("fault: %v", fault)
	}
	l.failed(l.call(fileManager, "DeleteDatastoreFile_Task", obj{"name": "[iso-datastore] iso", "datacenter": dc}), "FileLocked")
	if a := l.file("DELETE", "iso/discovery.iso?dcPath=dc1&dsName=iso-datastore", "", cookie(l.session)); a.status != 500 {
		t.Errorf("DELETE: %d", a.status)
	}
	if a := upload(l, "iso/discovery.iso", "new"); a.status != 500 {
		t.Errorf("PUT: %d", a.status)
	}
	l.done(l.call(vm, "PowerOffVM_Task", nil))
	l.done(l.call(fileManager, "DeleteDatastoreFile_Task", remove))
}
