package front

import (
	"testing"
	"time"
)

func respec(more obj) obj {
	more["_typeName"] = "VirtualMachineConfigSpec"
	return obj{"spec": more}
}

func TestReconfigure(t *testing.T) {
	l := loggedIn(t)
	l.uploadISO()
	vm := l.made("node-1", "ds-0")
	v := l.vm("node-1")
	for _, bad := range []int32{v.Disks[0].Key + 1, v.Cdroms[0].Key, 2000} {
		fault := l.failed(l.call(vm, "ReconfigVM_Task", respec(obj{"bootOptions": bootOptions(bad)})), "InvalidVmConfig")
		if fault["property"] != "configSpec.bootOptions.bootOrder" {
			t.Errorf("fault: %v", fault)
		}
	}
	if after := l.vm("node-1"); len(after.BootOrder) != 0 {
		t.Errorf("a refused boot order is set: %v", after.BootOrder)
	}
	version := l.get(vm, "config").object(t)["changeVersion"]
	l.done(l.call(vm, "ReconfigVM_Task", respec(obj{"annotation": "one", "changeVersion": version})))
	l.failed(l.call(vm, "ReconfigVM_Task", respec(obj{"annotation": "two", "changeVersion": version})), "ConcurrentAccess")
	if after := l.vm("node-1"); after.Annotation != "one" {
		t.Errorf("annotation: %q", after.Annotation)
	}
	l.done(l.call(vm, "ReconfigVM_Task", respec(obj{"extraConfig": []obj{
		option("guestinfo.owner", ""), option("guestinfo.new", "x"), option("guestinfo.none", ""),
	}})))
	after := l.vm("node-1").ExtraConfig
	if _, kept := after["guestinfo.owner"]; kept || after["guestinfo.new"] != "x" || len(after) != 2 {
		t.Errorf("extraConfig: %v", after)
	}
	// Eject, and put the image back.
	cd := l.cdromOf(vm)
	backing := cd["backing"]
	cd["backing"] = obj{"_typeName": "VirtualCdromRemotePassthroughBackingInfo", "deviceName": "", "exclusive": false, "useAutoDetect": false}
	cd["connectable"] = obj{"_typeName": "VirtualDeviceConnectInfo", "startConnected": false, "allowGuestControl": false, "connected": false}
	l.done(l.call(vm, "ReconfigVM_Task", editing(cd)))
	if after := l.vm("node-1").Cdroms; after[0].Path != "" || after[0].StartConnected {
		t.Errorf("after eject: %+v", after)
	}
	cd = l.cdromOf(vm)
	cd["backing"] = backing
	cd["connectable"] = obj{"_typeName": "VirtualDeviceConnectInfo", "startConnected": true, "allowGuestControl": true, "connected": true}
	l.done(l.call(vm, "ReconfigVM_Task", editing(cd)))
	if after := l.vm("node-1").Cdroms; after[0].Path != testISO || !after[0].StartConnected {
		t.Errorf("after insert: %+v", after)
	}
	cd["key"] = 9999
	l.failed(l.call(vm, "ReconfigVM_Task", editing(cd)), "InvalidDeviceSpec")
	l.made("node-2", "ds-0")
	l.failed(l.call(vm, "ReconfigVM_Task", respec(obj{"name": "node-2"})), "DuplicateName")
	l.done(l.call(vm, "PowerOnVM_Task", nil))
	l.failed(l.call(vm, "ReconfigVM_Task", respec(obj{"numCPUs": 8})), "InvalidPowerState")
}

func TestBusyMachine(t *testing.T) {
	// Long enough for the next call to come in time on a slow machine.
	const lasting = 3 * time.Second
	l := loggedIn(t, func(c *Config) { c.Delays = Delays{delayPowerOn: lasting} })
	vm := l.made("node-1", "ds-0")
	begin := time.Now()
	first := l.call(vm, "PowerOnVM_Task", nil)
	fault := l.failed(l.call(vm, "ReconfigVM_Task", respec(obj{"annotation": "x"})), "TaskInProgress")
	if fault["task"].(obj)["value"] != l.refOf(first).Value {
		t.Errorf("fault: %v", fault)
	}
	l.done(first)
	if took := time.Since(begin); took < lasting {
		t.Errorf("power-on took %s", took)
	}
	l.done(l.call(vm, "PowerOffVM_Task", nil))
}

func TestCancelTask(t *testing.T) {
	l := loggedIn(t, func(c *Config) { c.Delays = Delays{delayCreate: time.Minute, delayPowerOn: 3 * time.Second} })
	create := l.create("node-1", "ds-0")
	l.call(l.refOf(create), "CancelTask", nil)
	l.failed(create, "RequestCanceled")
	l.fault(l.refOf(create), "CancelTask", obj{}, "InvalidState")
	if inv := l.inventory(); len(inv.VMs) != 0 {
		t.Errorf("VMs: %+v", inv.VMs)
	}
	l.admin("POST", "delays", obj{"create": "0s"}, nil)
	vm := l.made("node-1", "ds-0")
	power := l.call(vm, "PowerOnVM_Task", nil)
	l.fault(l.refOf(power), "CancelTask", obj{}, "NotSupported")
	l.done(power)
}

func TestForeignFilesStay(t *testing.T) {
	l := loggedIn(t)
	vm := l.made("node-1", "iso-datastore")
	if a := upload(l, "node-1/notes.txt", "keep me"); a.status != 201 {
		t.Fatalf("upload: %d", a.status)
	}
	free := l.get(l.find("/dc1/datastore/iso-datastore"), "summary").object(t)["freeSpace"].(float64)
	l.done(l.call(vm, "Destroy_Task", nil))
	files := l.inventory().Files
	if len(files) != 1 || files[0].Path != "node-1/notes.txt" {
		t.Errorf("files: %+v", files)
	}
	if now := l.get(l.find("/dc1/datastore/iso-datastore"), "summary").object(t)["freeSpace"].(float64); now-free != 120<<30 {
		t.Errorf("the disk's space comes back: %f", now-free)
	}
	l.made("node-1", "iso-datastore") // into the directory that stayed
}
