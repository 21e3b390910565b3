package front

import "maps"

// boxed is a string in an any-typed slot.
func boxed(s string) obj { return obj{"_typeName": "string", "_value": s} }

func option(key, value string) obj {
	return obj{"_typeName": "OptionValue", "key": key, "value": boxed(value)}
}

func add(device obj, more ...obj) obj {
	out := obj{"_typeName": "VirtualDeviceConfigSpec", "operation": "add", "device": device}
	for _, m := range more {
		maps.Copy(out, m)
	}
	return out
}

func scsi() obj {
	return obj{"_typeName": "ParaVirtualSCSIController", "key": -101, "busNumber": 0, "sharedBus": "noSharing"}
}

func disk(datastore string, gb int) obj {
	return obj{
		"_typeName": "VirtualDisk", "key": -102, "controllerKey": -101, "unitNumber": 0, "capacityInKB": gb << 20,
		"backing": obj{
			"_typeName": "VirtualDiskFlatVer2BackingInfo", "fileName": "[" + datastore + "]",
			"diskMode": "persistent", "thinProvisioned": true,
		},
	}
}

func nic(backing obj, more ...obj) obj {
	out := obj{
		"_typeName": "VirtualVmxnet3", "key": -103, "backing": backing,
		"connectable": obj{"_typeName": "VirtualDeviceConnectInfo", "startConnected": true, "allowGuestControl": true, "connected": true},
	}
	for _, m := range more {
		maps.Copy(out, m)
	}
	return out
}

func standardNet(name string) obj {
	return obj{"_typeName": "VirtualEthernetCardNetworkBackingInfo", "deviceName": name}
}

func ahci() obj { return obj{"_typeName": "VirtualAHCIController", "key": -104, "busNumber": 0} }

func cdrom(iso string) obj {
	return obj{
		"_typeName": "VirtualCdrom", "key": -105, "controllerKey": -104, "unitNumber": 0,
		"connectable": obj{"_typeName": "VirtualDeviceConnectInfo", "startConnected": true, "allowGuestControl": true, "connected": true},
		"backing":     obj{"_typeName": "VirtualCdromIsoBackingInfo", "fileName": iso},
	}
}

const testISO = "[iso-datastore] iso/discovery.iso"

// machine is the configuration of a worker: disk, network card, CD-ROM.
func machine(name, datastore string, more ...obj) obj {
	out := obj{
		"_typeName": "VirtualMachineConfigSpec", "name": name, "guestId": "rhel9_64Guest", "firmware": "efi",
		"numCPUs": 4, "memoryMB": 16384, "annotation": "owned by a test",
		"files":       obj{"_typeName": "VirtualMachineFileInfo", "vmPathName": "[" + datastore + "] " + name + "/" + name + ".vmx"},
		"extraConfig": []obj{option("disk.EnableUUID", "TRUE"), option("guestinfo.owner", "test/"+name)},
		"deviceChange": []obj{
			add(scsi()), add(disk(datastore, 120), obj{"fileOperation": "create"}), add(nic(standardNet("VM Network"))),
			add(ahci()), add(cdrom(testISO)),
		},
	}
	for _, m := range more {
		maps.Copy(out, m)
	}
	return out
}

// create creates a VM in the default folder and pool.
func (l *lab) create(name, datastore string, more ...obj) answer {
	l.t.Helper()
	return l.createIn("/dc1/vm", machine(name, datastore, more...))
}

func (l *lab) createIn(folder string, config obj) answer {
	l.t.Helper()
	return l.call(l.find(folder), "CreateVM_Task", obj{"config": config, "pool": moref(l.find("/dc1/host/cluster/Resources"))})
}

// made creates a VM and returns its reference.
func (l *lab) made(name, datastore string, more ...obj) ref {
	l.t.Helper()
	r := l.done(l.create(name, datastore, more...)).(obj)
	return ref{Type: r["type"].(string), Value: r["value"].(string)}
}
