package front

import (
	"fmt"
	"strings"
	"testing"
)

func upload(l *lab, path, content string) answer {
	l.t.Helper()
	a, err := l.send("PUT", "/folder/"+path+"?dcPath=dc1&dsName=iso-datastore", content, cookie(l.session))
	if err != nil {
		l.t.Fatal(err)
	}
	return a
}

func cookie(session string) map[string][]string {
	return map[string][]string{"Cookie": {soapCookie + "=" + session}}
}

func (l *lab) uploadISO() {
	l.t.Helper()
	l.call(fileManager, "MakeDirectory", obj{
		"name": "[iso-datastore] iso", "datacenter": moref(l.find("/dc1")), "createParentDirectories": true,
	})
	if a := upload(l, "iso/discovery.iso", strings.Repeat("x", 4096)); a.status != 201 {
		l.t.Fatalf("upload: %d %s", a.status, a.body)
	}
}

func TestLifeOfAMachine(t *testing.T) {
	l := loggedIn(t)
	l.uploadISO()
	uuid := "4213d1e0-1111-5222-8333-444455556666"
	l.call(l.find("/dc1/vm"), "CreateFolder", obj{"name": "demo"})
	config := machine("node-1", "ds-0", obj{"uuid": uuid})
	r := l.done(l.createIn("/dc1/vm/demo", config)).(obj)
	vm := vmRef(r["value"].(string))

	found := l.call(searchIndex, "FindAllByUuid", obj{"uuid": uuid, "vmSearch": true, "datacenter": moref(l.find("/dc1"))})
	if want := fmt.Sprintf(`"value":"%s"`, vm.Value); !strings.Contains(string(found.body), want) {
		t.Errorf("FindAllByUuid: %s", found.body)
	}
	v := l.vm("node-1")
	if v.Path != "/dc1/vm/demo/node-1" || v.UUID != uuid || v.Power != "poweredOff" || v.NumCPU != 4 || v.MemoryMB != 16384 ||
		v.Firmware != "efi" || v.VMPathName != "[ds-0] node-1/node-1.vmx" || v.ExtraConfig["guestinfo.owner"] != "test/node-1" {
		t.Errorf("inventory: %+v", v)
	}
	if len(v.Disks) != 1 || v.Disks[0].GB != 120 || !v.Disks[0].Thin || v.Disks[0].Controller != "ParaVirtualSCSIController" {
		t.Errorf("disks: %+v", v.Disks)
	}
	if len(v.Nics) != 1 || v.Nics[0].Network != "VM Network" || !strings.HasPrefix(v.Nics[0].MAC, "00:50:56:") {
		t.Errorf("nics: %+v", v.Nics)
	}
	if len(v.Cdroms) != 1 || v.Cdroms[0].Path != testISO || v.Cdroms[0].Connected || !v.Cdroms[0].StartConnected {
		t.Errorf("cdroms: %+v", v.Cdroms)
	}
	if _, ok := v.ExtraConfig["govcsim"]; ok {
		t.Error("extraConfig shows the simulator")
	}

	l.done(l.call(vm, "ReconfigVM_Task", obj{"spec": obj{"_typeName": "VirtualMachineConfigSpec", "bootOptions": bootOptions(v.Disks[0].Key)}}))
	l.done(l.call(vm, "PowerOnVM_Task", nil))
	v = l.vm("node-1")
	if v.Power != "poweredOn" || v.PoweredOnAt == nil || !v.Cdroms[0].Connected || strings.Join(v.BootOrder, ",") != fmt.Sprintf("disk:%d,cdrom", v.Disks[0].Key) {
		t.Errorf("after power-on: %+v", v)
	}
	l.failed(l.call(vm, "PowerOnVM_Task", nil), "InvalidPowerState")
	l.failed(l.call(vm, "Destroy_Task", nil), "InvalidPowerState")
	l.done(l.call(vm, "ResetVM_Task", nil))
	if again := l.vm("node-1"); again.PoweredOnAt.Equal(*v.PoweredOnAt) {
		t.Error("a reset is a new boot")
	}
	l.done(l.call(vm, "PowerOffVM_Task", nil))
	if v = l.vm("node-1"); v.PoweredOnAt != nil || v.Cdroms[0].Connected {
		t.Errorf("after power-off: %+v", v)
	}
	l.done(l.call(vm, "Destroy_Task", nil))
	l.fault(vm, "PowerOnVM_Task", obj{}, "ManagedObjectNotFound")
	inv := l.inventory()
	if len(inv.VMs) != 0 || len(inv.Files) != 1 {
		t.Errorf("left behind: %+v %+v", inv.VMs, inv.Files)
	}
	if found := l.call(searchIndex, "FindAllByUuid", obj{"uuid": uuid, "vmSearch": true}); string(found.body) != "[]" {
		t.Errorf("FindAllByUuid: %s", found.body)
	}
	l.call(sessionManager, "Logout", nil)
	l.fault(searchIndex, "FindByInventoryPath", obj{"inventoryPath": "/dc1"}, "NotAuthenticated")
}

func bootOptions(diskKey int32) obj {
	return obj{"_typeName": "VirtualMachineBootOptions", "bootOrder": []obj{
		{"_typeName": "VirtualMachineBootOptionsBootableDiskDevice", "deviceKey": diskKey},
		{"_typeName": "VirtualMachineBootOptionsBootableCdromDevice"},
	}}
}
