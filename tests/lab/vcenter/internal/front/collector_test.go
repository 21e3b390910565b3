package front

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

func waitOptions(seconds int) obj {
	return obj{"_typeName": "WaitOptions", "maxWaitSeconds": seconds}
}

// untilWaiting returns when a wait of the collector is under way.
func (l *lab) untilWaiting(pc ref) {
	l.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		waiting := false
		l.f.world.lock(func() {
			for _, s := range l.f.sessions.live {
				if c, ok := s.objects[pc].(*collector); ok && c.cancel != nil {
					waiting = true
				}
			}
		})
		if waiting {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatal("no wait begins")
		}
		runtime.Gosched()
	}
}

// tasksOf creates a collector with a list view of tasks.
func tasksOf(l *lab) (view, pc ref) {
	view = l.refOf(l.call(viewManager, "CreateListView", obj{"obj": []obj{}}))
	pc = l.refOf(l.call(propertyCollector, "CreatePropertyCollector", nil))
	l.call(pc, "CreateFilter", obj{"spec": taskFilter(view), "partialUpdates": false})
	return view, pc
}

func TestLostReplyIsRepeated(t *testing.T) {
	l := loggedIn(t)
	view, pc := tasksOf(l)
	wait := func(version any, seconds int) answer {
		return l.call(pc, "WaitForUpdatesEx", obj{"version": version, "options": waitOptions(seconds)})
	}
	v0 := wait("", 0).object(t)["version"]
	if a := wait(v0, 0); a.status != 204 {
		t.Fatalf("nothing new: %d %s", a.status, a.body)
	}
	task := l.refOf(l.create("node-1", "nowhere"))
	l.call(view, "ModifyListView", obj{"add": []obj{moref(task)}})
	var last answer
	version := v0
	for !strings.Contains(string(last.body), "InvalidDatastore") {
		l.admin("POST", "faults", obj{"method": "WaitForUpdatesEx", "at": "lostReply", "count": 1}, nil)
		if _, err := l.send("POST", l.path(pc, "WaitForUpdatesEx"), obj{"version": version, "options": waitOptions(30)}, nil); err == nil {
			t.Fatal("the reply was not lost")
		}
		last = wait(version, 30)
		if again := wait(version, 30); string(again.body) != string(last.body) {
			t.Fatalf("repeated otherwise:\n%s\n%s", last.body, again.body)
		}
		version = last.object(t)["version"]
	}
	fault := changes(t, last)["info.error"].(obj)
	if fault["_typeName"] != "InvalidDatastore" || fault["name"] != "nowhere" {
		t.Errorf("fault is not flat: %v", fault)
	}
	l.fault(pc, "WaitForUpdatesEx", obj{"version": "99"}, "InvalidCollectorVersion")
	if full := wait("", 0); !strings.Contains(string(full.body), task.Value) {
		t.Errorf("a fresh start shows all: %s", full.body)
	}
}

// changes are the values of the only object in an update set.
func changes(t *testing.T, a answer) obj {
	t.Helper()
	out := obj{}
	filter := a.object(t)["filterSet"].([]any)[0].(obj)
	for _, c := range filter["objectSet"].([]any)[0].(obj)["changeSet"].([]any) {
		out[c.(obj)["name"].(string)] = c.(obj)["val"]
	}
	return out
}

func TestWaitEnds(t *testing.T) {
	l := loggedIn(t)
	_, pc := tasksOf(l)
	version := l.call(pc, "WaitForUpdatesEx", obj{"version": "", "options": waitOptions(0)}).object(t)["version"]
	begin := func(ctx context.Context) <-chan string {
		ended := make(chan string, 1)
		go func() {
			body, _ := json.Marshal(obj{"version": version, "options": waitOptions(60)})
			req, _ := http.NewRequestWithContext(ctx, "POST", l.server.URL+l.path(pc, "WaitForUpdatesEx"), strings.NewReader(string(body)))
			req.Header.Set(sessionHeader, l.session)
			res, err := l.client.Do(req)
			if err != nil {
				ended <- "dropped"
				return
			}
			defer func() { _ = res.Body.Close() }()
			var out obj
			_ = json.NewDecoder(res.Body).Decode(&out)
			ended <- fmt.Sprint(out["_typeName"])
		}()
		l.untilWaiting(pc)
		return ended
	}
	background := context.Background()

	ended := begin(background)
	l.call(pc, "CancelWaitForUpdates", nil)
	if got := <-ended; got != "RequestCanceled" {
		t.Errorf("after CancelWaitForUpdates: %s", got)
	}
	// The client disconnects: the wait ends.
	before := runtime.NumGoroutine()
	ctx, leave := context.WithCancel(background)
	ended = begin(ctx)
	leave()
	<-ended
	settle(t, before)
	// An outage ends the wait.
	ended = begin(background)
	l.admin("POST", "outage", obj{"mode": "refuse", "seconds": 60}, nil)
	if got := <-ended; got != "dropped" {
		t.Errorf("in an outage: %s", got)
	}
	l.admin("POST", "outage", obj{"mode": "refuse", "seconds": 0}, nil)
	// The collector is destroyed.
	ended = begin(background)
	l.call(pc, "DestroyPropertyCollector", nil)
	if got := <-ended; got != "RequestCanceled" {
		t.Errorf("after DestroyPropertyCollector: %s", got)
	}
}

func TestExpiredTaskIsUnresolved(t *testing.T) {
	l := loggedIn(t)
	view, pc := tasksOf(l)
	task := l.refOf(l.create("node-1", "nowhere"))
	l.failed(answer{status: 200, body: must(json.Marshal(moref(task)))}, "InvalidDatastore")
	l.call(view, "ModifyListView", obj{"add": []obj{moref(task)}})
	version := l.call(pc, "WaitForUpdatesEx", obj{"version": "", "options": waitOptions(0)}).object(t)["version"]
	l.admin("POST", "tasks/expire", obj{}, nil)
	gone := l.call(pc, "WaitForUpdatesEx", obj{"version": version, "options": waitOptions(5)})
	if !strings.Contains(string(gone.body), `"kind":"leave"`) {
		t.Errorf("an expired task leaves: %s", gone.body)
	}
	l.fault(task, "CancelTask", obj{}, "ManagedObjectNotFound")
	l.call(view, "ModifyListView", obj{"remove": []obj{moref(task)}})
	unresolved := l.call(view, "ModifyListView", obj{"add": []obj{moref(task)}})
	if !strings.Contains(string(unresolved.body), task.Value) {
		t.Errorf("unresolved: %s", unresolved.body)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestRetrieveProperties(t *testing.T) {
	l := loggedIn(t)
	for i := range 7 {
		l.made(fmt.Sprintf("node-%d", i), "ds-0")
	}
	view := l.refOf(l.call(viewManager, "CreateContainerView", obj{
		"container": moref(l.find("/dc1/vm")), "type": []string{"VirtualMachine"}, "recursive": true,
	}))
	spec := func(paths ...string) obj {
		return obj{
			"_typeName": "PropertyFilterSpec", "reportMissingObjectsInResults": true,
			"propSet": []obj{{"_typeName": "PropertySpec", "type": "VirtualMachine", "pathSet": paths}},
			"objectSet": []obj{{
				"_typeName": "ObjectSpec", "obj": moref(view), "skip": true,
				"selectSet": []obj{{"_typeName": "TraversalSpec", "name": "v", "type": "ContainerView", "path": "view", "skip": false}},
			}},
		}
	}
	ask := func(s obj, page int) obj {
		return obj{"specSet": []obj{s}, "options": obj{"_typeName": "RetrieveOptions", "maxObjects": page}}
	}
	a := l.call(propertyCollector, "RetrievePropertiesEx", ask(spec("name", "runtime.powerState", "config.hardware.device", "config.extraConfig[\"guestinfo.owner\"]"), 3)).object(t)
	seen := map[string]bool{}
	for pages := 1; ; pages++ {
		for _, o := range a["objects"].([]any) {
			for _, p := range o.(obj)["propSet"].([]any) {
				if p.(obj)["name"] == "name" {
					seen[p.(obj)["val"].(obj)["_value"].(string)] = true
				}
			}
		}
		token, more := a["token"]
		if !more {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		a = l.call(propertyCollector, "ContinueRetrievePropertiesEx", obj{"token": token}).object(t)
	}
	if len(seen) != 7 {
		t.Errorf("names: %v", seen)
	}
	body := string(l.call(propertyCollector, "RetrievePropertiesEx", ask(spec("runtime.powerState", "config.hardware.device", "config.uuid"), 1)).body)
	for _, want := range []string{
		`"val":{"_typeName":"VirtualMachinePowerState","_value":"poweredOff"}`,
		`"val":{"_typeName":"ArrayOfVirtualDevice","_value":[{"_typeName":`,
		`"val":{"_typeName":"string","_value":"`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is not in %s", want, body)
		}
	}
	l.fault(propertyCollector, "RetrievePropertiesEx", ask(spec("config.uid"), 0), "InvalidProperty")
	bad := spec("name")
	bad["propSet"] = []obj{{"_typeName": "PropertySpec", "type": "VirtualMachines", "pathSet": []string{"name"}}}
	l.fault(propertyCollector, "RetrievePropertiesEx", ask(bad, 0), "InvalidType")
	gone := spec("name")
	gone["objectSet"] = []obj{{"_typeName": "ObjectSpec", "obj": moref(vmRef("vm-999"))}}
	if a := l.call(propertyCollector, "RetrievePropertiesEx", ask(gone, 0)); a.status != 204 {
		t.Errorf("left out: %d %s", a.status, a.body)
	}
	delete(gone, "reportMissingObjectsInResults")
	l.fault(propertyCollector, "RetrievePropertiesEx", ask(gone, 0), "ManagedObjectNotFound")
}

func TestUpdatesComeInPagesOfHundred(t *testing.T) {
	l := loggedIn(t)
	view, pc := tasksOf(l)
	var tasks []obj
	for i := range 130 {
		tasks = append(tasks, moref(l.refOf(l.create(fmt.Sprintf("node-%d", i), "nowhere"))))
	}
	l.call(view, "ModifyListView", obj{"add": tasks})
	first := l.call(pc, "WaitForUpdatesEx", obj{"version": "", "options": waitOptions(5)}).object(t)
	if first["truncated"] != true || len(first["filterSet"].([]any)[0].(obj)["objectSet"].([]any)) != 100 {
		t.Errorf("first page: truncated %v", first["truncated"])
	}
	second := l.call(pc, "WaitForUpdatesEx", obj{"version": first["version"], "options": waitOptions(5)}).object(t)
	if second["truncated"] == true {
		t.Error("second page is truncated too")
	}
}
