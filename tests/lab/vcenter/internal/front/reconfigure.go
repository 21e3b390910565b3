package front

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

func (c *call) reconfigVM() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.ReconfigVM_Task)
	if fault := settingArguments(&req.Spec); fault != nil {
		return nil, fault
	}
	vm := c.this
	var refused types.BaseMethodFault
	return declared(c.start(op{
		name: "reconfigure", entity: vm, delay: delayReconfigure, exclusive: true,
		before: func(ctx context.Context) { refused = c.f.askTray(ctx, vm, req.Spec.DeviceChange) },
		check: func() types.BaseMethodFault {
			if refused != nil {
				return refused
			}
			return c.f.canReconfigure(vm, &req.Spec)
		},
		run: func() (any, types.BaseMethodFault) { return nil, c.f.reconfigure(vm, &req.Spec) },
	}))
}

func (f *Front) canReconfigure(r ref, spec *types.VirtualMachineConfigSpec) types.BaseMethodFault {
	w := f.world
	vm, fault := w.vm(r)
	if fault != nil {
		return fault
	}
	if spec.ChangeVersion != "" && spec.ChangeVersion != vm.Config.ChangeVersion {
		return &types.ConcurrentAccess{}
	}
	if spec.Name != "" && !sameName(escapeName(spec.Name), vm.Name) {
		if taken, ok := w.child(*vm.Parent, escapeName(spec.Name)); ok {
			return &types.DuplicateName{Name: spec.Name, Object: taken}
		}
	}
	if fault := poweredOnChange(vm, spec); fault != nil {
		return fault
	}
	dc, _ := w.datacenterOf(r)
	have := object.VirtualDeviceList(vm.Config.Hardware.Device)
	if fault := w.checkDevices(dc, have, spec.DeviceChange); fault != nil {
		return fault
	}
	if fault := checkBootOrder(spec.BootOptions, have, spec.DeviceChange); fault != nil {
		return fault
	}
	return w.visible(vm, dc, spec.DeviceChange)
}

// poweredOnChange refuses changes that are not possible in a running VM.
func poweredOnChange(vm *simulator.VirtualMachine, spec *types.VirtualMachineConfigSpec) types.BaseMethodFault {
	if vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn {
		return nil
	}
	on := &types.InvalidPowerState{
		RequestedState: types.VirtualMachinePowerStatePoweredOff,
		ExistingState:  vm.Runtime.PowerState,
	}
	cpuHot, memHot := vm.Config.CpuHotAddEnabled, vm.Config.MemoryHotAddEnabled
	switch {
	case spec.NumCPUs != 0 && spec.NumCPUs != vm.Config.Hardware.NumCPU && (cpuHot == nil || !*cpuHot),
		spec.MemoryMB != 0 && spec.MemoryMB != int64(vm.Config.Hardware.MemoryMB) && (memHot == nil || !*memHot),
		spec.Firmware != "" && spec.Firmware != vm.Config.Firmware,
		spec.Uuid != "" && spec.Uuid != vm.Config.Uuid:
		return on
	}
	for _, change := range spec.DeviceChange {
		d := change.GetVirtualDeviceConfigSpec()
		ide := []int32{200, 201}
		if _, ok := d.Device.(*types.VirtualCdrom); ok && d.Operation != types.VirtualDeviceConfigSpecOperationEdit &&
			slices.Contains(ide, d.Device.GetVirtualDevice().ControllerKey) {
			return on
		}
	}
	return nil
}

// visible refuses a file that the host of a running VM cannot reach.
func (w *world) visible(vm *simulator.VirtualMachine, dc ref, changes []types.BaseVirtualDeviceConfigSpec) types.BaseMethodFault {
	if vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn {
		return nil
	}
	for _, change := range changes {
		spec := change.GetVirtualDeviceConfigSpec()
		if spec.Operation == types.VirtualDeviceConfigSpecOperationRemove {
			continue
		}
		if fault := w.sees(*vm.Runtime.Host, w.needsOfDevice(dc, spec.Device), false); fault != nil {
			return fault
		}
	}
	return nil
}

func (f *Front) reconfigure(r ref, spec *types.VirtualMachineConfigSpec) types.BaseMethodFault {
	if fault := f.canReconfigure(r, spec); fault != nil {
		return fault
	}
	vm, fault := f.world.vm(r)
	if fault != nil {
		return fault
	}
	spec.Name = escapeName(spec.Name)
	keepIdentity(vm, spec)
	gone := f.world.takeDisks(vm, spec.DeviceChange)
	for _, change := range spec.DeviceChange {
		f.complete(change.GetVirtualDeviceConfigSpec())
	}
	if _, fault = f.world.run(r, "ReconfigVM_Task", &types.ReconfigVM_Task{This: r, Spec: *spec}); fault != nil {
		return f.world.datastorePaths(fault)
	}
	for _, d := range gone {
		d.remove()
	}
	slices.SortStableFunc(vm.Config.Hardware.Device, func(a, b types.BaseVirtualDevice) int {
		return int(a.GetVirtualDevice().Key) - int(b.GetVirtualDevice().Key)
	})
	return nil
}

// keepIdentity removes deletions of missing keys from the spec. The simulator
// would add these keys with an empty value.
func keepIdentity(vm *simulator.VirtualMachine, spec *types.VirtualMachineConfigSpec) {
	spec.ExtraConfig = slices.DeleteFunc(spec.ExtraConfig, func(o types.BaseOptionValue) bool {
		v := o.GetOptionValue()
		return v.Value == "" && !slices.ContainsFunc(vm.Config.ExtraConfig, func(have types.BaseOptionValue) bool {
			return have.GetOptionValue().Key == v.Key
		})
	})
}

// takeDisks changes the removal of a disk with its file into one without, and
// returns the disks whose files must be deleted.
func (w *world) takeDisks(vm *simulator.VirtualMachine, changes []types.BaseVirtualDeviceConfigSpec) []ownDisk {
	dc, _ := w.datacenterOf(vm.Self)
	var gone []ownDisk
	for _, change := range changes {
		spec := change.GetVirtualDeviceConfigSpec()
		disk, ok := spec.Device.(*types.VirtualDisk)
		if !ok || spec.FileOperation != types.VirtualDeviceConfigSpecFileOperationDestroy {
			continue
		}
		spec.FileOperation = ""
		for _, d := range w.disksOf(vm, dc) {
			if d.key == disk.Key {
				gone = append(gone, d)
			}
		}
	}
	return gone
}
