package front

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"
)

// watcher follows tasks by one WaitForUpdatesEx loop, as the operator does.
type watcher struct {
	l         *lab
	view      ref
	collector ref
	mu        sync.Mutex
	waiting   map[string]chan obj
	stopped   chan struct{}
}

func watch(l *lab) *watcher {
	w := &watcher{l: l, waiting: map[string]chan obj{}, stopped: make(chan struct{})}
	w.view = l.refOf(l.call(viewManager, "CreateListView", obj{"obj": []obj{}}))
	w.collector = l.refOf(l.call(propertyCollector, "CreatePropertyCollector", nil))
	l.call(w.collector, "CreateFilter", obj{"spec": taskFilter(w.view), "partialUpdates": false})
	go w.loop()
	return w
}

func taskFilter(view ref) obj {
	return obj{
		"_typeName": "PropertyFilterSpec",
		"propSet": []obj{{
			"_typeName": "PropertySpec", "type": "Task",
			"pathSet": []string{"info.state", "info.error", "info.result", "info.progress"},
		}},
		"objectSet": []obj{{
			"_typeName": "ObjectSpec", "obj": moref(view), "skip": true,
			"selectSet": []obj{{"_typeName": "TraversalSpec", "name": "view", "type": "ListView", "path": "view", "skip": false}},
		}},
	}
}

func (w *watcher) loop() {
	defer close(w.stopped)
	version := ""
	for {
		a, err := w.l.send("POST", w.l.path(w.collector, "WaitForUpdatesEx"), obj{
			"version": version, "options": obj{"_typeName": "WaitOptions", "maxWaitSeconds": 30},
		}, nil)
		if err != nil || a.status == 500 {
			return
		}
		if a.status == 204 {
			continue
		}
		set := a.object(w.l.t)
		version = set["version"].(string)
		filters, _ := set["filterSet"].([]any)
		for _, f := range filters {
			objects, _ := f.(obj)["objectSet"].([]any)
			for _, o := range objects {
				w.see(o.(obj))
			}
		}
	}
}

func (w *watcher) see(update obj) {
	id := update["obj"].(obj)["value"].(string)
	seen := obj{}
	changes, _ := update["changeSet"].([]any)
	for _, c := range changes {
		seen[c.(obj)["name"].(string)] = c.(obj)["val"]
	}
	state, _ := seen["info.state"].(obj)
	if state == nil || state["_value"] != "success" && state["_value"] != "error" {
		return
	}
	w.channel(id) <- seen
}

func (w *watcher) channel(id string) chan obj {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting[id] == nil {
		w.waiting[id] = make(chan obj, 1)
	}
	return w.waiting[id]
}

// wait adds the task to the view and waits for its end.
func (w *watcher) wait(a answer) (obj, error) {
	task := w.l.refOf(a)
	added := w.l.call(w.view, "ModifyListView", obj{"add": []obj{moref(task)}})
	if string(added.body) != "[]" {
		return nil, fmt.Errorf("unresolved: %s", added.body)
	}
	select {
	case seen := <-w.channel(task.Value):
		w.l.call(w.view, "ModifyListView", obj{"remove": []obj{moref(task)}})
		if state := seen["info.state"].(obj); state["_value"] != "success" {
			return nil, fmt.Errorf("%s: %v", task.Value, seen["info.error"])
		}
		return seen, nil
	case <-time.After(patience):
		return nil, fmt.Errorf("%s does not end", task.Value)
	}
}

// 48 machines are created and destroyed at the same time, beside a reader of
// the inventory. Tasks of one kind overlap. One after the other they would take
// twice the time limit. One life is a small part of the limit, so that a slow
// machine has time.
func TestManyMachinesAtOnce(t *testing.T) {
	const machines = 48
	delay := time.Second
	l := loggedIn(t, func(c *Config) {
		c.Delays = Delays{delayCreate: delay, delayPowerOn: delay, delayPowerOff: delay, delayDestroy: delay}
	})
	l.client.Transport.(interface{ CloseIdleConnections() }).CloseIdleConnections()
	l.uploadISO()
	before := runtime.NumGoroutine()
	w := watch(l)
	pool, folder := l.find("/dc1/host/cluster/Resources"), l.find("/dc1/vm")
	begin := time.Now()
	var wg sync.WaitGroup
	errs := make(chan error, machines)
	for i := range machines {
		wg.Go(func() { errs <- l.life(w, folder, pool, i) })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	took := time.Since(begin)
	t.Logf("%d lives of 4 tasks of %s each: %s", machines, delay, took)
	if took > machines*4*delay/2 {
		t.Errorf("lives take %s: tasks do not overlap", took)
	}
	if inv := l.inventory(); len(inv.VMs) != 0 || len(inv.Files) != 1 {
		t.Errorf("left: %d VMs, files %+v", len(inv.VMs), inv.Files)
	}
	l.call(sessionManager, "Logout", nil)
	<-w.stopped
	l.client.CloseIdleConnections()
	settle(t, before+2)
}

// life is one machine from create to destroy.
func (l *lab) life(w *watcher, folder, pool ref, i int) error {
	name := fmt.Sprintf("node-%d", i)
	seen, err := w.wait(l.call(folder, "CreateVM_Task", obj{"config": machine(name, fmt.Sprintf("ds-%d", i%3)), "pool": moref(pool)}))
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	vm := vmRef(seen["info.result"].(obj)["value"].(string))
	steps := []struct {
		method string
		body   obj
	}{
		{"ReconfigVM_Task", obj{"spec": obj{"_typeName": "VirtualMachineConfigSpec", "annotation": "again"}}},
		{"PowerOnVM_Task", obj{}}, {"PowerOffVM_Task", obj{}}, {"Destroy_Task", obj{}},
	}
	for _, s := range steps {
		if _, err := w.wait(l.call(vm, s.method, s.body)); err != nil {
			return fmt.Errorf("%s %s: %w", s.method, name, err)
		}
		l.http("GET", "/_admin/inventory?files=false", nil)
	}
	return nil
}

// settle waits until no more than the given number of goroutines are left.
func settle(t *testing.T, limit int) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for runtime.NumGoroutine() > limit {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, want at most %d\n%s", runtime.NumGoroutine(), limit, buf[:runtime.Stack(buf, true)])
		}
		<-time.After(10 * time.Millisecond)
	}
}
