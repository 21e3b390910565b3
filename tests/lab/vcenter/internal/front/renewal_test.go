package front

import (
	"slices"
	"testing"
)

// renewal is the change that makes a VM ready for another life: image in the
// drive, a new disk in the place of the old one.
func (l *lab) renewal(vm ref) obj {
	l.t.Helper()
	config := l.get(vm, "config").object(l.t)
	cd := l.cdromOf(vm)
	cd["backing"] = obj{"_typeName": "VirtualCdromIsoBackingInfo", "fileName": testISO}
	cd["connectable"] = obj{"_typeName": "VirtualDeviceConnectInfo", "startConnected": true, "allowGuestControl": true, "connected": true}
	changes := []obj{{"_typeName": "VirtualDeviceConfigSpec", "operation": "edit", "device": cd}}
	fresh := disk("ds-0", 80)
	for _, d := range config["hardware"].(obj)["device"].([]any) {
		if old := d.(obj); old["_typeName"] == "VirtualDisk" {
			changes = append(changes, obj{"_typeName": "VirtualDeviceConfigSpec", "operation": "remove", "fileOperation": "destroy", "device": old})
			fresh["key"], fresh["controllerKey"], fresh["unitNumber"] = -102, old["controllerKey"], old["unitNumber"]
			fresh["backing"].(obj)["fileName"] = ""
		}
	}
	changes = append(changes, add(fresh, obj{"fileOperation": "create"}))
	return respec(obj{
		"changeVersion": config["changeVersion"],
		"extraConfig":   []obj{option("agent-forge.generation", "2")},
		"deviceChange":  changes,
	})
}

func TestRenewal(t *testing.T) {
	l := loggedIn(t)
	l.uploadISO()
	vm := l.made("node-1", "ds-0")
	before := l.vm("node-1")
	l.done(l.call(vm, "ReconfigVM_Task", respec(obj{"bootOptions": bootOptions(before.Disks[0].Key)})))
	l.done(l.call(vm, "PowerOnVM_Task", nil))
	l.done(l.call(vm, "PowerOffVM_Task", nil))
	order := l.vm("node-1").BootOrder
	if len(order) == 0 {
		t.Error("no boot order")
	}
	stale := l.renewal(vm)
	free := l.freeSpace("ds-0")
	seen := []string{before.Disks[0].UUID}
	for range 3 {
		old := l.vm("node-1").Disks[0]
		l.done(l.call(vm, "ReconfigVM_Task", l.renewal(vm)))
		v := l.vm("node-1")
		if len(v.Disks) != 1 || v.Disks[0].GB != 80 || v.Disks[0].Key != old.Key || v.Disks[0].File == old.File {
			t.Errorf("disks: %+v, before %+v", v.Disks, old)
		}
		if slices.Contains(seen, v.Disks[0].UUID) {
			t.Errorf("the new disk is an old one: %+v", v.Disks)
		}
		seen = append(seen, v.Disks[0].UUID)
		if !slices.Equal(v.BootOrder, order) {
			t.Errorf("boot order: %v, before %v", v.BootOrder, order)
		}
		if v.Cdroms[0].Path != testISO || !v.Cdroms[0].StartConnected || v.ExtraConfig["agent-forge.generation"] != "2" {
			t.Errorf("after: %+v", v)
		}
		for _, f := range l.inventory().Files {
			if "[ds-0] "+f.Path == old.File {
				t.Errorf("the old disk is left: %+v", f)
			}
		}
	}
	if got := l.freeSpace("ds-0") - free; got != 40<<30 {
		t.Errorf("space: %f", got)
	}
	l.failed(l.call(vm, "ReconfigVM_Task", stale), "ConcurrentAccess")
	if v := l.vm("node-1"); v.Disks[0].UUID != seen[3] {
		t.Errorf("a refused renewal replaces nothing: %+v", v.Disks)
	}
	l.done(l.call(vm, "PowerOnVM_Task", nil))
	if v := l.vm("node-1"); !v.Cdroms[0].Connected {
		t.Errorf("the image is not connected: %+v", v.Cdroms)
	}
	l.done(l.call(vm, "PowerOffVM_Task", nil))
	l.done(l.call(vm, "Destroy_Task", nil))
	for _, f := range l.inventory().Files {
		if f.Datastore == "ds-0" {
			t.Errorf("left: %+v", f)
		}
	}
}

func TestRenewalNeedsPrivileges(t *testing.T) {
	l := loggedIn(t)
	l.uploadISO()
	vm := l.made("node-1", "ds-0")
	for _, c := range []struct{ privilege, object string }{
		{"VirtualMachine.Config.RemoveDisk", "node-1"},
		{"VirtualMachine.Config.AddNewDisk", "node-1"},
		{"VirtualMachine.Config.EditDevice", "node-1"},
		{"VirtualMachine.Config.AdvancedConfig", "node-1"},
		{"VirtualMachine.Interact.SetCDMedia", "node-1"},
		{"VirtualMachine.Interact.DeviceConnection", "node-1"},
		{"Datastore.AllocateSpace", "ds-0"},
	} {
		l.admin("POST", "permissions", obj{"deny": []obj{{"privilege": c.privilege, "objectName": c.object}}}, nil)
		if f := l.fault(vm, "ReconfigVM_Task", l.renewal(vm), "NoPermission"); f["privilegeId"] != c.privilege {
			t.Errorf("%s: %v", c.privilege, f)
		}
	}
	l.admin("POST", "permissions", obj{"deny": []obj{}}, nil)
	l.done(l.call(vm, "ReconfigVM_Task", l.renewal(vm)))
}
