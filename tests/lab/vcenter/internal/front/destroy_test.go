package front

import "testing"

func TestFolderGoesWithItsMachines(t *testing.T) {
	l := loggedIn(t)
	folder := l.refOf(l.call(l.find("/dc1/vm"), "CreateFolder", obj{"name": "demo"}))
	l.call(folder, "CreateFolder", obj{"name": "deep"})
	l.done(l.createIn("/dc1/vm/demo", machine("node-1", "ds-0")))
	l.done(l.createIn("/dc1/vm/demo/deep", machine("node-2", "ds-0")))
	deep := vmRef(l.vm("node-2").Moref)
	l.done(l.call(deep, "PowerOnVM_Task", nil))
	l.failed(l.call(folder, "Destroy_Task", nil), "InvalidPowerState")
	if inv := l.inventory(); len(inv.VMs) != 2 {
		t.Errorf("a refused destroy takes nothing: %+v", inv.VMs)
	}
	l.done(l.call(deep, "PowerOffVM_Task", nil))
	l.done(l.call(folder, "Destroy_Task", nil))
	if inv := l.inventory(); len(inv.VMs) != 0 || len(inv.Files) != 0 || len(inv.Folders) != 1 {
		t.Errorf("left: %+v", inv)
	}
	l.fault(l.find("/dc1/vm"), "Destroy_Task", obj{}, "NotSupported")
}

func TestDiskGoesWithItsFile(t *testing.T) {
	l := loggedIn(t)
	vm := l.made("node-1", "ds-0")
	free := l.freeSpace("ds-0")
	config := l.get(vm, "config").object(t)
	for _, d := range config["hardware"].(obj)["device"].([]any) {
		if d.(obj)["_typeName"] == "VirtualDisk" {
			l.done(l.call(vm, "ReconfigVM_Task", respec(obj{"deviceChange": []obj{
				{"_typeName": "VirtualDeviceConfigSpec", "operation": "remove", "fileOperation": "destroy", "device": d},
			}})))
		}
	}
	if v := l.vm("node-1"); len(v.Disks) != 0 {
		t.Errorf("disks: %+v", v.Disks)
	}
	for _, f := range l.inventory().Files {
		if f.Path == "node-1/node-1.vmdk" {
			t.Errorf("left: %+v", f)
		}
	}
	if got := l.freeSpace("ds-0") - free; got != 120<<30 {
		t.Errorf("space that came back: %f", got)
	}
}

func (l *lab) freeSpace(datastore string) float64 {
	l.t.Helper()
	ds := l.find("/dc1/datastore/workload-datastore-cluster/" + datastore)
	return l.get(ds, "summary").object(l.t)["freeSpace"].(float64)
}
