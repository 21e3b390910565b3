package front

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func (l *lab) addRule(r obj) {
	l.t.Helper()
	l.admin("POST", "faults", r, nil)
}

func TestRules(t *testing.T) {
	l := loggedIn(t)
	folder, pool := l.find("/dc1/vm"), l.find("/dc1/host/cluster/Resources")
	body := func(name string) obj { return obj{"config": machine(name, "ds-0"), "pool": moref(pool)} }
	noPermission := obj{"_typeName": "NoPermission", "privilegeId": "VirtualMachine.Inventory.Create", "object": moref(folder)}

	l.addRule(obj{"method": "CreateVM_Task", "at": "call", "fault": noPermission, "count": 1, "skip": 1})
	l.done(l.call(folder, "CreateVM_Task", body("node-0")))
	f := l.fault(folder, "CreateVM_Task", body("node-1"), "NoPermission")
	if f["privilegeId"] != "VirtualMachine.Inventory.Create" || f["object"].(obj)["value"] != folder.Value {
		t.Errorf("fault: %v", f)
	}
	l.done(l.call(folder, "CreateVM_Task", body("node-1")))

	l.addRule(obj{"method": "CreateVM_Task", "at": "task", "fault": obj{"_typeName": "InsufficientResourcesFault"}, "count": 1, "vmName": "node-3"})
	l.done(l.call(folder, "CreateVM_Task", body("node-2")))
	l.failed(l.call(folder, "CreateVM_Task", body("node-3")), "InsufficientResourcesFault")

	l.addRule(obj{"method": "CreateVM_Task", "at": "lostReply", "count": 1})
	if _, err := l.send("POST", l.path(folder, "CreateVM_Task"), body("node-4"), nil); err == nil {
		t.Error("the reply is not lost")
	}
	l.untilInventory(func(v inventoryView) bool {
		for _, vm := range v.VMs {
			if vm.Name == "node-4" {
				return true
			}
		}
		return false
	})

	l.addRule(obj{"method": "GET name", "at": "http", "status": 502, "count": 1})
	if a := l.get(folder, "name"); a.status != 502 || strings.HasPrefix(string(a.body), "{") {
		t.Errorf("http: %d %s", a.status, a.body)
	}
	if a := l.get(folder, "name"); a.status != 200 {
		t.Errorf("after the rule: %d", a.status)
	}
	var rules []rule
	l.admin("GET", "faults", nil, &rules)
	if len(rules) != 4 || rules[0].Hits != 1 || rules[0].Seen != 2 {
		t.Errorf("rules: %+v", rules)
	}
	for _, bad := range []obj{
		{"method": "CreateVM_Task", "at": "later"},
		{"method": "CreateVM_Task", "at": "call"},
		{"method": "CreateVM_Task", "at": "call", "fault": obj{"_typeName": "NoSuchFault"}},
		{"method": "CreateVM_Task", "at": "call", "fault": obj{"_typeName": "OptionValue", "key": "a"}},
		{"method": "GET name", "at": "task", "fault": obj{"_typeName": "SystemError"}},
		{"method": "CreateVM_Task", "at": "http", "status": 200},
		{"at": "hang"}, {"method": "CreateVM_Task", "at": "hang", "cuont": 1},
	} {
		if a := l.http("POST", "/_admin/faults", bad); a.status != 400 {
			t.Errorf("%v: accepted: %d", bad, a.status)
		}
	}
}

// untilInventory follows the inventory by long poll.
func (l *lab) untilInventory(done func(inventoryView) bool) {
	l.t.Helper()
	v := l.inventory()
	for range 100 {
		if done(v) {
			return
		}
		l.admin("GET", fmt.Sprintf("inventory?waitVersion=%d&timeoutMs=10000", v.Version), nil, &v)
	}
	l.t.Fatal("the inventory does not come to that")
}

func TestHangingCallsAreReleased(t *testing.T) {
	l := loggedIn(t)
	folder := l.find("/dc1/vm")
	requests := map[string]func() (answer, error){
		"GET name": func() (answer, error) { return l.send("GET", l.path(folder, "name"), nil, nil) },
		"FindAllByUuid": func() (answer, error) {
			return l.send("POST", l.path(searchIndex, "FindAllByUuid"), obj{"uuid": "x", "vmSearch": true}, nil)
		},
		"GET /folder": func() (answer, error) {
			return l.send("GET", "/folder/x?dcPath=dc1&dsName=ds-0", nil, cookie(l.session))
		},
		"POST /api/vcenter/system?action=hello": func() (answer, error) {
			return l.send("POST", "/api/vcenter/system?action=hello", obj{"api_releases": []string{"8.0.3.0"}}, nil)
		},
	}
	var wg sync.WaitGroup
	for name, request := range requests {
		l.addRule(obj{"method": name, "at": "hang"})
		wg.Go(func() {
			a, err := request()
			if err != nil || a.status != http.StatusServiceUnavailable {
				t.Errorf("%s: %v %d", name, err, a.status)
			}
		})
	}
	for hanging := 0; hanging < len(requests); {
		var rules []rule
		l.admin("GET", "faults", nil, &rules)
		hanging = 0
		for _, r := range rules {
			hanging += r.Hits
		}
	}
	l.admin("DELETE", "faults", nil, nil)
	wg.Wait()
}

func TestOutages(t *testing.T) {
	l := loggedIn(t)
	folder := l.find("/dc1/vm")
	l.admin("POST", "outage", obj{"mode": "refuse", "seconds": 60}, nil)
	if _, err := l.send("GET", l.path(folder, "name"), nil, nil); err == nil {
		t.Error("refuse: answered")
	}
	l.admin("POST", "outage", obj{"mode": "unavailable", "seconds": 60}, nil)
	if a := l.get(folder, "name"); a.status != 503 || string(a.body) != "no healthy upstream" {
		t.Errorf("unavailable: %d %s", a.status, a.body)
	}
	l.admin("POST", "outage", obj{"mode": "hang", "seconds": 3}, nil)
	begin := time.Now()
	if a := l.get(folder, "name"); a.status != 503 || time.Since(begin) < 500*time.Millisecond {
		t.Errorf("hang: %d after %s", a.status, time.Since(begin))
	}
	if a := l.get(folder, "name"); a.status != 200 {
		t.Errorf("after the outage: %d", a.status)
	}
	if a := l.http("POST", "/_admin/outage", obj{"mode": "gone", "seconds": 1}); a.status != 400 {
		t.Errorf("unknown mode: %d", a.status)
	}
}

func TestForeignMachines(t *testing.T) {
	l := loggedIn(t)
	before := l.inventory().Version
	var made struct{ Moref string }
	l.admin("POST", "vms", obj{
		"name": "foreign", "folder": "/dc1/vm/demo/deep", "uuid": "4213d1e0-0000-4222-8333-444455556666",
		"extraConfig": obj{"guestinfo.owner": "someone"}, "powerOn": true,
	}, &made)
	v := l.vm("foreign")
	if v.Path != "/dc1/vm/demo/deep/foreign" || v.Power != "poweredOn" || v.Moref != made.Moref || v.ExtraConfig["guestinfo.owner"] != "someone" {
		t.Errorf("foreign: %+v", v)
	}
	if now := l.inventory(); now.Version <= before || !contains(now.Folders, "/dc1/vm/demo/deep") {
		t.Errorf("version %d after %d, folders %v", now.Version, before, now.Folders)
	}
	var copied struct{ Moref string }
	l.admin("POST", "vms/"+made.Moref+"/clone", obj{"name": "copy"}, &copied)
	c := l.vm("copy")
	if c.UUID != v.UUID || c.InstanceUUID == v.InstanceUUID || c.ExtraConfig["guestinfo.owner"] != "someone" || c.Nics[0].MAC == v.Nics[0].MAC || len(c.Disks) != 1 {
		t.Errorf("clone: %+v", c)
	}
	both := must(decodeList(l.call(searchIndex, "FindAllByUuid", obj{"uuid": strings.ToUpper(v.UUID), "vmSearch": true})))
	if len(both) != 2 {
		t.Errorf("both have the uuid: %v", both)
	}
	worker := l.made("node-1", "ds-0")
	l.admin("POST", "vms/"+worker.Value+"/boot-from-cd", obj{}, nil)
	if w := l.vm("node-1"); strings.Join(w.BootOrder, ",") != "cdrom" {
		t.Errorf("boots from its CD-ROM: %v", w.BootOrder)
	}
	l.admin("POST", "vms/"+worker.Value+"/boot-from-disk", obj{}, nil)
	l.admin("POST", "vms/"+worker.Value+"/eject", obj{}, nil)
	if w := l.vm("node-1"); w.Cdroms[0].Path != "" || w.BootOrder[0] != fmt.Sprintf("disk:%d", w.Disks[0].Key) {
		t.Errorf("worker: %+v", w)
	}
	l.admin("POST", "vms/"+worker.Value+"/clone", obj{}, nil)
	if w := l.vm("node-1-clone"); len(w.Cdroms) != 1 || len(w.Disks) != 1 || len(w.Nics) != 1 || w.Disks[0].Controller != "ParaVirtualSCSIController" {
		t.Errorf("clone of a worker: %+v", w)
	}
	l.admin("POST", "vms/"+made.Moref+"/power-off", obj{}, nil)
	for _, moref := range []string{made.Moref, copied.Moref} {
		l.admin("POST", "vms/"+moref+"/destroy", obj{}, nil)
	}
	if a := l.http("POST", "/_admin/vms/"+made.Moref+"/power-on", obj{}); a.status != 404 {
		t.Errorf("gone: %d", a.status)
	}
}

func contains(list []string, want string) bool {
	return strings.Contains("\n"+strings.Join(list, "\n")+"\n", "\n"+want+"\n")
}

func TestLongPoll(t *testing.T) {
	l := loggedIn(t)
	v := l.inventory()
	begin := time.Now()
	var same inventoryView
	l.admin("GET", fmt.Sprintf("inventory?waitVersion=%d&timeoutMs=100", v.Version), nil, &same)
	if same.Version != v.Version || time.Since(begin) < 100*time.Millisecond {
		t.Errorf("nothing new: version %d after %s", same.Version, time.Since(begin))
	}
	ended := make(chan inventoryView, 1)
	go func() {
		var next inventoryView
		l.admin("GET", fmt.Sprintf("inventory?waitVersion=%d&timeoutMs=30000", v.Version), nil, &next)
		ended <- next
	}()
	l.admin("POST", "vms", obj{"name": "foreign"}, nil)
	if next := <-ended; next.Version <= v.Version || len(next.VMs) != 1 {
		t.Errorf("after a VM: %+v", next)
	}
}

func TestPermissions(t *testing.T) {
	l := loggedIn(t)
	folder := l.refOf(l.call(l.find("/dc1/vm"), "CreateFolder", obj{"name": "demo"}))
	pool := l.find("/dc1/host/cluster/Resources")
	vm := l.made("node-1", "ds-0")
	l.uploadISO()
	dc := moref(l.find("/dc1"))
	browser := l.refOf(l.get(l.find("/dc1/datastore/iso-datastore"), "browser"))
	create := obj{"config": machine("node-2", "ds-0"), "pool": moref(pool)}
	for _, c := range []struct {
		privilege, object string
		on                ref
		method            string
		body              obj
	}{
		{"VirtualMachine.Inventory.Create", "demo", folder, "CreateVM_Task", create},
		{"VirtualMachine.Config.AddNewDisk", "demo", folder, "CreateVM_Task", create},
		{"VirtualMachine.Config.AdvancedConfig", "", folder, "CreateVM_Task", create},
		{"Resource.AssignVMToPool", "Resources", folder, "CreateVM_Task", create},
		{"Network.Assign", "VM Network", folder, "CreateVM_Task", create},
		{"Datastore.AllocateSpace", "workload-datastore-cluster", folder, "CreateVM_Task", create},
		{"Folder.Create", "demo", folder, "CreateFolder", obj{"name": "x"}},
		{"VirtualMachine.Interact.PowerOn", "node-1", vm, "PowerOnVM_Task", obj{}},
		{"VirtualMachine.Interact.PowerOff", "dc1", vm, "PowerOffVM_Task", obj{}},
		{"VirtualMachine.Config.Settings", "node-1", vm, "ReconfigVM_Task", respec(obj{"bootOptions": obj{"_typeName": "VirtualMachineBootOptions"}})},
		{"VirtualMachine.Inventory.Delete", "node-1", vm, "Destroy_Task", obj{}},
		{"Datastore.FileManagement", "iso-datastore", fileManager, "DeleteDatastoreFile_Task", obj{"name": testISO, "datacenter": dc}},
		{"Datastore.FileManagement", "iso-datastore", fileManager, "MakeDirectory", obj{"name": "[iso-datastore] x", "datacenter": dc}},
		{"Datastore.Browse", "iso-datastore", browser, "SearchDatastore_Task", obj{"datastorePath": "[iso-datastore]"}},
	} {
		l.admin("POST", "permissions", obj{"deny": []obj{{"privilege": c.privilege, "objectName": c.object}}}, nil)
		if f := l.fault(c.on, c.method, c.body, "NoPermission"); f["privilegeId"] != c.privilege {
			t.Errorf("%s: %v", c.privilege, f)
		}
	}
	if a := upload(l, "iso/y.iso", "x"); a.status != 201 {
		t.Errorf("upload with the browse privilege denied: %d", a.status)
	}
	l.admin("POST", "permissions", obj{"deny": []obj{{"privilege": "Datastore.FileManagement"}}}, nil)
	if a := upload(l, "iso/z.iso", "x"); a.status != 403 {
		t.Errorf("upload: %d", a.status)
	}
	l.admin("POST", "permissions", obj{"deny": []obj{{"privilege": "System.View", "objectName": "demo"}}}, nil)
	if a := l.call(searchIndex, "FindByInventoryPath", obj{"inventoryPath": "/dc1/vm/demo"}); a.status != 204 {
		t.Errorf("invisible: %d %s", a.status, a.body)
	}
	l.admin("POST", "permissions", obj{"deny": []obj{}}, nil)
	l.done(l.call(folder, "CreateVM_Task", create))
}
