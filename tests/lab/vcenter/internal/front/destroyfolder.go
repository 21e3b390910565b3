package front

import (
	"encoding/json"
	"slices"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// destroyFolder destroys a VM folder with its content.
func (c *call) destroyFolder() (json.RawMessage, types.BaseMethodFault) {
	folder := c.this
	w := c.f.world
	var below bool
	w.lock(func() { below = w.under(folder, w.sites.vmFolder) })
	if !below {
		return nil, &types.NotSupported{}
	}
	return declared(c.start(op{
		name: "destroy", entity: folder, delay: delayDestroy,
		check: func() types.BaseMethodFault { return w.allOff(folder) },
		run: func() (any, types.BaseMethodFault) {
			if fault := w.allOff(folder); fault != nil {
				return nil, fault
			}
			return nil, c.f.emptyFolder(folder)
		},
	}))
}

// allOff requires that every VM below a folder is powered off.
func (w *world) allOff(folder ref) types.BaseMethodFault {
	if w.reg.Get(folder) == nil {
		return &types.ManagedObjectNotFound{Obj: folder}
	}
	for _, e := range w.reg.All("VirtualMachine") {
		vm := e.(*simulator.VirtualMachine)
		if w.under(vm.Self, folder) && vm.Runtime.PowerState != off {
			return &types.InvalidPowerState{RequestedState: off, ExistingState: vm.Runtime.PowerState}
		}
	}
	return nil
}

func (f *Front) emptyFolder(folder ref) types.BaseMethodFault {
	for _, child := range slices.Clone(children(f.world, folder)) {
		var fault types.BaseMethodFault
		if child.Type == "VirtualMachine" {
			fault = f.destroyVM(child)
		} else {
			fault = f.emptyFolder(child)
		}
		if fault != nil {
			return fault
		}
	}
	_, fault := f.world.run(folder, "Destroy_Task", &types.Destroy_Task{This: folder})
	return fault
}
