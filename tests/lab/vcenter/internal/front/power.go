package front

import (
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

func (c *call) powerOn() (json.RawMessage, types.BaseMethodFault) {
	vm := c.this
	return declared(c.start(op{
		name: "powerOn", entity: vm, delay: delayPowerOn, exclusive: true,
		check: func() types.BaseMethodFault { return c.f.canPowerOn(vm, false) },
		run:   func() (any, types.BaseMethodFault) { return nil, c.f.switchOn(vm) },
	}))
}

func (c *call) powerOff() (json.RawMessage, types.BaseMethodFault) {
	vm := c.this
	return declared(c.start(op{
		name: "powerOff", entity: vm, delay: delayPowerOff, exclusive: true,
		check: func() types.BaseMethodFault { return c.f.world.inState(vm, off, on, suspended) },
		run:   func() (any, types.BaseMethodFault) { return nil, c.f.switchOff(vm) },
	}))
}

func (c *call) reset() (json.RawMessage, types.BaseMethodFault) {
	vm := c.this
	return declared(c.start(op{
		name: "reset", entity: vm, delay: delayPowerOn, exclusive: true,
		check: func() types.BaseMethodFault { return c.f.world.inState(vm, on, on) },
		run: func() (any, types.BaseMethodFault) {
			if fault := c.f.switchOff(vm); fault != nil {
				return nil, fault
			}
			return nil, c.f.switchOn(vm)
		},
	}))
}

// vm finds a VM. It may have been destroyed since the call arrived.
func (w *world) vm(r ref) (*simulator.VirtualMachine, types.BaseMethodFault) {
	vm, ok := w.reg.Get(r).(*simulator.VirtualMachine)
	if !ok {
		return nil, &types.ManagedObjectNotFound{Obj: r}
	}
	return vm, nil
}

const (
	on        = types.VirtualMachinePowerStatePoweredOn
	off       = types.VirtualMachinePowerStatePoweredOff
	suspended = types.VirtualMachinePowerStateSuspended
)

// inState requires that a VM is in one of the states in which an operation may
// start. requested is the state after the operation.
func (w *world) inState(r ref, requested types.VirtualMachinePowerState, from ...types.VirtualMachinePowerState) types.BaseMethodFault {
	vm, fault := w.vm(r)
	if fault != nil {
		return fault
	}
	if w.hidden[r] {
		return &types.InvalidState{}
	}
	if now := vm.Runtime.PowerState; !slices.Contains(from, now) {
		return &types.InvalidPowerState{RequestedState: requested, ExistingState: now}
	}
	return nil
}

// canPowerOn checks the state, and that a host has all that the VM needs. With
// move, DRS moves the VM to such a host.
func (f *Front) canPowerOn(r ref, move bool) types.BaseMethodFault {
	w := f.world
	if fault := w.inState(r, on, off, suspended); fault != nil {
		return fault
	}
	vm, fault := w.vm(r)
	if fault != nil {
		return fault
	}
	needs := w.needsOfVM(vm)
	fault = w.sees(*vm.Runtime.Host, needs, false)
	if fault == nil || vm.ResourcePool == nil || !w.hasDRS(*vm.ResourcePool) {
		return fault
	}
	host, none := w.chooseHost(*vm.ResourcePool, nil, needs)
	if none != nil {
		return fault
	}
	if move {
		w.moveTo(vm, host)
	}
	return nil
}

func (w *world) moveTo(vm *simulator.VirtualMachine, host ref) {
	if old, ok := w.reg.Get(*vm.Runtime.Host).(*simulator.HostSystem); ok {
		simulator.RemoveReference(&old.Vm, vm.Self)
	}
	h := w.reg.Get(host).(*simulator.HostSystem)
	h.Vm = append(h.Vm, vm.Self)
	vm.Runtime.Host, vm.Summary.Runtime.Host = &host, &host
}

func (f *Front) switchOn(r ref) types.BaseMethodFault {
	w := f.world
	if fault := f.canPowerOn(r, true); fault != nil {
		return fault
	}
	vm, fault := w.vm(r)
	if fault != nil {
		return fault
	}
	if _, fault := w.run(r, "PowerOnVM_Task", &types.PowerOnVM_Task{This: r}); fault != nil {
		return fault
	}
	now := time.Now().UTC()
	vm.Runtime.BootTime, vm.Summary.Runtime.BootTime = &now, &now
	w.disconnectMissing(vm)
	vm.Guest.GuestState = string(types.VirtualMachineGuestStateRunning)
	return nil
}

// disconnectMissing leaves a CD-ROM disconnected if its image is missing.
func (w *world) disconnectMissing(vm *simulator.VirtualMachine) {
	dc, _ := w.datacenterOf(vm.Self)
	for _, d := range object.VirtualDeviceList(vm.Config.Hardware.Device).SelectByType((*types.VirtualCdrom)(nil)) {
		dev := d.GetVirtualDevice()
		iso, ok := dev.Backing.(*types.VirtualCdromIsoBackingInfo)
		if !ok || dev.Connectable == nil {
			continue
		}
		at, fault := w.resolve(&dc, iso.FileName)
		if fault == nil {
			if _, err := os.Stat(at.file); err == nil {
				continue
			}
		}
		dev.Connectable.Connected = false
	}
}

func (f *Front) switchOff(r ref) types.BaseMethodFault {
	w := f.world
	if fault := w.inState(r, off, on, suspended); fault != nil {
		return fault
	}
	vm, fault := w.vm(r)
	if fault != nil {
		return fault
	}
	if _, fault := w.run(r, "PowerOffVM_Task", &types.PowerOffVM_Task{This: r}); fault != nil {
		return fault
	}
	vm.Runtime.BootTime, vm.Summary.Runtime.BootTime = nil, nil
	vm.Guest.GuestState = string(types.VirtualMachineGuestStateNotRunning)
	return nil
}
