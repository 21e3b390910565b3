package front

import (
	"github.com/vmware/govmomi/vim25/types"
)

// onThis are the privileges that a method requires on its object.
var onThis = map[string]string{
	"CreateVM_Task":   "VirtualMachine.Inventory.Create",
	"CreateFolder":    "Folder.Create",
	"AnswerVM":        "VirtualMachine.Interact.AnswerQuestion",
	"PowerOnVM_Task":  "VirtualMachine.Interact.PowerOn",
	"PowerOffVM_Task": "VirtualMachine.Interact.PowerOff",
	"ResetVM_Task":    "VirtualMachine.Interact.Reset",
	"Destroy_Task":    "VirtualMachine.Inventory.Delete",
	"UnregisterVM":    "VirtualMachine.Inventory.Unregister",
}

// permitted checks the privileges that a call needs. The caller holds the lock
// of the world.
func (c *call) permitted() types.BaseMethodFault {
	if privilege, ok := onThis[c.method]; ok {
		if fault := c.f.denied(privilege, c.this); fault != nil {
			return fault
		}
	}
	w := c.f.world
	switch req := c.req.(type) {
	case *types.CreateVM_Task:
		if fault := c.f.denied("Resource.AssignVMToPool", req.Pool); fault != nil {
			return fault
		}
		return c.configPermitted(w.sites.datacenter, c.this, &req.Config)
	case *types.ReconfigVM_Task:
		return c.configPermitted(w.sites.datacenter, c.this, &req.Spec)
	case *types.SearchDatastore_Task:
		return c.filePermitted(browsePrivilege, req.DatastorePath)
	case *types.SearchDatastoreSubFolders_Task:
		return c.filePermitted(browsePrivilege, req.DatastorePath)
	case *types.MakeDirectory:
		return c.filePermitted(filePrivilege, req.Name)
	case *types.MoveDatastoreFile_Task:
		if fault := c.filePermitted(filePrivilege, req.SourceName); fault != nil {
			return fault
		}
		return c.filePermitted(filePrivilege, req.DestinationName)
	case *types.DeleteDatastoreFile_Task:
		return c.filePermitted(filePrivilege, req.Name)
	case *types.ApplyStorageDrsRecommendation_Task:
		return c.f.denied("Resource.ApplyRecommendation", w.sites.pod)
	}
	return nil
}

func (c *call) filePermitted(privilege, name string) types.BaseMethodFault {
	at, fault := c.f.world.resolve(&c.f.world.sites.datacenter, name)
	if fault != nil {
		return nil // the call itself reports what is wrong with the path
	}
	return c.f.denied(privilege, at.ds.Self)
}

// configPermitted checks everything that a configuration touches: settings on
// the VM or on the folder of a new one, datastores, networks.
func (c *call) configPermitted(dc, on ref, spec *types.VirtualMachineConfigSpec) types.BaseMethodFault {
	need := []string{}
	add := func(used bool, privilege string) {
		if used {
			need = append(need, privilege)
		}
	}
	edit := c.method == "ReconfigVM_Task"
	add(len(spec.ExtraConfig) > 0, "VirtualMachine.Config.AdvancedConfig")
	add(edit && spec.BootOptions != nil, "VirtualMachine.Config.Settings")
	add(edit && spec.Annotation != "", "VirtualMachine.Config.Annotation")
	add(edit && spec.NumCPUs != 0, "VirtualMachine.Config.CPUCount")
	add(edit && spec.MemoryMB != 0, "VirtualMachine.Config.Memory")
	add(edit && spec.Name != "", "VirtualMachine.Config.Rename")
	add(spec.ManagedBy != nil, "VirtualMachine.Config.ManagedBy")
	for _, change := range spec.DeviceChange {
		d := change.GetVirtualDeviceConfigSpec()
		fresh := d.Operation == types.VirtualDeviceConfigSpecOperationAdd
		switch dev := d.Device.(type) {
		case *types.VirtualDisk:
			add(fresh, "VirtualMachine.Config.AddNewDisk")
			add(d.Operation == types.VirtualDeviceConfigSpecOperationRemove, "VirtualMachine.Config.RemoveDisk")
			if b, ok := dev.Backing.(types.BaseVirtualDeviceFileBackingInfo); ok && fresh {
				name := b.GetVirtualDeviceFileBackingInfo().FileName
				if vm, fault := c.f.world.vm(on); name == "" && edit && fault == nil {
					name = vm.Config.Files.VmPathName // the file comes beside the VM's own
				}
				if fault := c.allocatable(dc, name); fault != nil {
					return fault
				}
			}
		case types.BaseVirtualEthernetCard:
			add(fresh, "VirtualMachine.Config.AddRemoveDevice")
			if fault := c.attachable(dc, dev.GetVirtualEthernetCard().Backing); fault != nil {
				return fault
			}
		case *types.VirtualCdrom:
			add(fresh, "VirtualMachine.Config.AddRemoveDevice")
			add(!fresh, "VirtualMachine.Config.EditDevice")
			add(!fresh, "VirtualMachine.Interact.SetCDMedia")
			add(!fresh, "VirtualMachine.Interact.DeviceConnection")
		}
	}
	if spec.Files != nil && !edit {
		if fault := c.allocatable(dc, spec.Files.VmPathName); fault != nil {
			return fault
		}
	}
	for _, privilege := range need {
		if fault := c.f.denied(privilege, on); fault != nil {
			return fault
		}
	}
	return nil
}

func (c *call) allocatable(dc ref, name string) types.BaseMethodFault {
	at, fault := c.f.world.resolve(&dc, name)
	if fault != nil {
		return nil
	}
	return c.f.denied("Datastore.AllocateSpace", at.ds.Self)
}

func (c *call) attachable(dc ref, backing types.BaseVirtualDeviceBackingInfo) types.BaseMethodFault {
	switch b := backing.(type) {
	case *types.VirtualEthernetCardNetworkBackingInfo:
		if net, ok := c.f.world.networkNamed(dc, b.DeviceName); ok {
			return c.f.denied("Network.Assign", net)
		}
	case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
		return c.f.denied("Network.Assign", ref{Type: "DistributedVirtualPortgroup", Value: b.Port.PortgroupKey})
	}
	return nil
}
