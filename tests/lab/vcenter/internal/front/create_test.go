package front

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSecondOfANameWaits(t *testing.T) {
	l := loggedIn(t, func(c *Config) { c.Delays = Delays{delayCreate: 200 * time.Millisecond} })
	first, second := l.create("node-1", "ds-0"), l.create("node-1", "ds-1")
	// Two tasks may begin in any order.
	if l.task(first)["state"] == "error" {
		first, second = second, first
	}
	fault := l.failed(second, "DuplicateName")
	made := l.done(first).(obj)
	if fault["name"] != "node-1" || fault["object"].(obj)["value"] != made["value"] {
		t.Errorf("fault: %v, made %v", fault, made)
	}
	// The same name is allowed in another folder.
	l.call(l.find("/dc1/vm"), "CreateFolder", obj{"name": "other"})
	l.done(l.createIn("/dc1/vm/other", machine("node-1", "ds-1")))
	l.fault(l.find("/dc1/vm"), "CreateFolder", obj{"name": "other"}, "DuplicateName")
}

func TestCreateRefuses(t *testing.T) {
	l := loggedIn(t)
	devices := func(d ...obj) obj { return obj{"deviceChange": d} }
	dvpg := func(key, uuid string) obj {
		return nic(obj{"_typeName": "VirtualEthernetCardDistributedVirtualPortBackingInfo", "port": obj{
			"_typeName": "DistributedVirtualSwitchPortConnection", "switchUuid": uuid, "portgroupKey": key,
		}})
	}
	unit7 := disk("ds-0", 1)
	unit7["unitNumber"] = 7
	lost := disk("ds-0", 1)
	lost["controllerKey"] = -7
	inTask := []struct {
		why   string
		more  obj
		fault string
		field string
	}{
		{"unknown datastore", obj{"files": obj{"_typeName": "VirtualMachineFileInfo", "vmPathName": "[nowhere] a/a.vmx"}}, "InvalidDatastore", "nowhere"},
		{"no path", obj{"files": obj{"_typeName": "VirtualMachineFileInfo", "vmPathName": "ds-0/a.vmx"}}, "InvalidDatastorePath", "ds-0/a.vmx"},
		{"path leaves the datastore", obj{"files": obj{"_typeName": "VirtualMachineFileInfo", "vmPathName": "[ds-0] ../a/a.vmx"}}, "InvalidDatastorePath", ".."},
		{"unknown network", devices(add(nic(standardNet("nowhere")))), "InvalidDeviceSpec", "deviceName"},
		{"unknown portgroup", devices(add(dvpg("dvportgroup-999", "50 2b"))), "InvalidDeviceSpec", "port"},
		{"unknown switch", devices(add(dvpg(l.portgroup().Value, "50 2b"))), "InvalidDeviceSpec", "port"},
		{"MAC of vCenter's range", devices(add(nic(standardNet("VM Network"), obj{"addressType": "Manual", "macAddress": "00:50:56:40:00:01"}))), "InvalidDeviceSpec", "macAddress"},
		{"unit 7", devices(add(scsi()), add(unit7, obj{"fileOperation": "create"})), "InvalidDeviceSpec", "unitNumber"},
		{"no controller", devices(add(lost, obj{"fileOperation": "create"})), "InvalidDeviceSpec", "controllerKey"},
		{"ISO on an unknown datastore", devices(add(ahci()), add(cdrom("[nowhere] x.iso"))), "InvalidDatastore", "nowhere"},
		{"ISO where no host mounts it", devices(add(ahci()), add(cdrom("[unmounted-iso] x.iso"))), "CannotAccessFile", "[unmounted-iso] x.iso"},
		{"boot order with keys", obj{"bootOptions": bootOptions(2000)}, "InvalidVmConfig", "bootOrder"},
		{"too large", devices(add(scsi()), add(disk("ds-0", 4096), obj{"fileOperation": "create"})), "NoDiskSpace", "ds-0"},
	}
	for _, c := range inTask {
		fault := l.failed(l.create("node-1", "ds-0", c.more), c.fault)
		if !strings.Contains(fmt.Sprint(fault), c.field) {
			t.Errorf("%s: %v does not name %s", c.why, fault, c.field)
		}
	}
	onCall := []struct {
		why   string
		more  obj
		fault string
		field string
	}{
		{"no name", obj{"name": ""}, "InvalidVmConfig", "name"},
		{"unknown guest", obj{"guestId": "rhel99"}, "InvalidArgument", "guestId"},
		{"unknown firmware", obj{"firmware": "uefi"}, "InvalidArgument", "firmware"},
		{"no uuid", obj{"uuid": "4213"}, "InvalidArgument", "uuid"},
		{"odd memory", obj{"memoryMB": 1023}, "InvalidArgument", "memoryMB"},
		{"odd cores", obj{"numCPUs": 4, "numCoresPerSocket": 3}, "InvalidArgument", "numCoresPerSocket"},
		{"simulator key", obj{"extraConfig": []obj{option("RUN.container", "x")}}, "InvalidArgument", "extraConfig"},
	}
	folder, pool := l.find("/dc1/vm"), l.find("/dc1/host/cluster/Resources")
	for _, c := range onCall {
		fault := l.fault(folder, "CreateVM_Task", obj{"config": machine("node-1", "ds-0", c.more), "pool": moref(pool)}, c.fault)
		if !strings.Contains(fmt.Sprint(fault), c.field) {
			t.Errorf("%s: %v does not name %s", c.why, fault, c.field)
		}
	}
	for _, c := range []struct {
		pool  ref
		fault string
	}{
		{ref{Type: "ResourcePool", Value: "resgroup-999"}, "ManagedObjectNotFound"}, {folder, "InvalidArgument"},
	} {
		l.fault(folder, "CreateVM_Task", obj{"config": machine("node-1", "ds-0"), "pool": moref(c.pool)}, c.fault)
	}
	l.fault(l.find("/dc1/network"), "CreateVM_Task", obj{"config": machine("node-1", "ds-0"), "pool": moref(pool)}, "NotSupported")
	if inv := l.inventory(); len(inv.VMs) != 0 || len(inv.Files) != 0 {
		t.Errorf("left: %+v %+v", inv.VMs, inv.Files)
	}
}

// portgroup is the reference of the distributed portgroup.
func (l *lab) portgroup() ref { return l.find("/dc1/network/dvpg-0") }

func TestDistributedPortgroup(t *testing.T) {
	l := loggedIn(t)
	pg := l.portgroup()
	key := l.get(pg, "key")
	dvs := l.get(pg, "config").object(t)["distributedVirtualSwitch"].(obj)
	uuid := l.get(ref{Type: dvs["type"].(string), Value: dvs["value"].(string)}, "uuid")
	card := nic(obj{"_typeName": "VirtualEthernetCardDistributedVirtualPortBackingInfo", "port": obj{
		"_typeName": "DistributedVirtualSwitchPortConnection", "switchUuid": unquote(uuid), "portgroupKey": unquote(key),
	}}, obj{"addressType": "Manual", "macAddress": "00:50:56:01:02:03"})
	l.made("node-1", "ds-0", obj{"deviceChange": []obj{add(card)}})
	v := l.vm("node-1")
	if len(v.Nics) != 1 || v.Nics[0].Network != "dvpg-0" || v.Nics[0].MAC != "00:50:56:01:02:03" {
		t.Errorf("nics: %+v", v.Nics)
	}
}

func unquote(a answer) string { return strings.Trim(string(a.body), `"`) }

func TestExplicitPath(t *testing.T) {
	l := loggedIn(t)
	l.made("node-1", "ds-0")
	l.call(l.find("/dc1/vm"), "CreateFolder", obj{"name": "other"})
	fault := l.failed(l.createIn("/dc1/vm/other", machine("node-1", "ds-0")), "AlreadyExists")
	if fault["name"] != "[ds-0] node-1/node-1.vmx" {
		t.Errorf("fault: %v", fault)
	}
	l.call(vmRef(l.vm("node-1").Moref), "UnregisterVM", nil)
	fault = l.failed(l.create("node-1", "ds-0"), "FileAlreadyExists")
	if fault["file"] != "[ds-0] node-1/node-1.vmx" {
		t.Errorf("fault: %v", fault)
	}
	l.made("node-2", "ds-0", obj{"files": obj{"_typeName": "VirtualMachineFileInfo", "vmPathName": "[ds-0] deep/down/node-2/node-2.vmx"}})
	l.made("a/b%c", "ds-0", obj{"files": obj{"_typeName": "VirtualMachineFileInfo", "vmPathName": "[ds-0]"}})
	if v := l.vm("a%2fb%25c"); len(v.Disks) != 1 {
		t.Errorf("escaped name: %+v", v)
	}
	l.find("/dc1/vm/a%2Fb%25c")
}

func TestHostIsChosenForTheImage(t *testing.T) {
	l := loggedIn(t)
	for i := range 4 {
		name := fmt.Sprintf("node-%d", i)
		l.made(name, "ds-0", obj{"deviceChange": []obj{add(ahci()), add(cdrom("[local-only] x.iso"))}})
		if v := l.vm(name); v.Host != "host-0" {
			t.Errorf("%s is on %s, which does not see the image", name, v.Host)
		}
	}
	var hosts []string
	for i := range 4 {
		name := fmt.Sprintf("other-%d", i)
		l.made(name, "ds-1")
		hosts = append(hosts, l.vm(name).Host)
	}
	if !slices.Contains(hosts, "host-1") || !slices.Contains(hosts, "host-2") || slices.Contains(hosts, "host-0") {
		t.Errorf("the least used hosts take the others: %v", hosts)
	}
}

func TestClusterWithoutDRS(t *testing.T) {
	l := loggedIn(t, func(c *Config) { c.NoDRS = true })
	folder, pool := l.find("/dc1/vm"), l.find("/dc1/host/cluster/Resources")
	config := machine("node-1", "ds-0", obj{"deviceChange": []obj{add(ahci()), add(cdrom("[local-only] x.iso"))}})
	fault := l.fault(folder, "CreateVM_Task", obj{"config": config, "pool": moref(pool)}, "InvalidArgument")
	if fault["invalidProperty"] != "host" {
		t.Errorf("fault: %v", fault)
	}
	on := func(host ref) obj { return obj{"config": config, "pool": moref(pool), "host": moref(host)} }
	l.fault(folder, "CreateVM_Task", on(l.find("/dc1/host/outside-host/outside-host")), "InvalidArgument")
	l.failed(l.call(folder, "CreateVM_Task", on(l.find("/dc1/host/cluster/host-1"))), "CannotAccessFile")
	l.done(l.call(folder, "CreateVM_Task", on(l.find("/dc1/host/cluster/host-0"))))
	drs := l.get(l.find("/dc1/host/cluster"), "configurationEx").object(t)["drsConfig"].(obj)
	if drs["enabled"] != false {
		t.Errorf("drsConfig: %v", drs)
	}
}

func TestPowerOnNeedsTheImage(t *testing.T) {
	l := loggedIn(t, func(c *Config) { c.NoDRS = true })
	folder, pool := l.find("/dc1/vm"), l.find("/dc1/host/cluster/Resources")
	config := machine("node-1", "ds-0")
	vm := vmRef(l.done(l.call(folder, "CreateVM_Task", obj{
		"config": config, "pool": moref(pool), "host": moref(l.find("/dc1/host/cluster/host-1")),
	})).(obj)["value"].(string))
	// The image is missing: the VM runs without it.
	l.done(l.call(vm, "PowerOnVM_Task", nil))
	if v := l.vm("node-1"); v.Cdroms[0].Connected {
		t.Errorf("a missing image is connected: %+v", v.Cdroms)
	}
	l.done(l.call(vm, "PowerOffVM_Task", nil))
	// Its datastore does not exist on the host: the VM does not run.
	edit := l.cdromOf(vm)
	edit["backing"] = obj{"_typeName": "VirtualCdromIsoBackingInfo", "fileName": "[local-only] x.iso"}
	l.done(l.call(vm, "ReconfigVM_Task", editing(edit)))
	fault := l.failed(l.call(vm, "PowerOnVM_Task", nil), "CannotAccessFile")
	if fault["file"] != "[local-only] x.iso" {
		t.Errorf("fault: %v", fault)
	}
}

// cdromOf reads the CD-ROM as a client does that edits it.
func (l *lab) cdromOf(vm ref) obj {
	l.t.Helper()
	config := l.get(vm, "config").object(l.t)
	for _, d := range config["hardware"].(obj)["device"].([]any) {
		if d.(obj)["_typeName"] == "VirtualCdrom" {
			return d.(obj)
		}
	}
	l.t.Fatal("no CD-ROM")
	return nil
}

func editing(device obj) obj {
	return obj{"spec": obj{"_typeName": "VirtualMachineConfigSpec", "deviceChange": []obj{
		{"_typeName": "VirtualDeviceConfigSpec", "operation": "edit", "device": device},
	}}}
}
