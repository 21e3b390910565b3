package front

import (
	"bytes"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// clone copies a VM with its BIOS uuid and extraConfig, as a careless copy
// does. The instance uuid and the MAC addresses are new.
func (f *Front) clone(vm *simulator.VirtualMachine, name string) (any, types.BaseMethodFault) {
	if name == "" {
		name = vm.Name + "-clone"
	}
	dc, _ := f.world.datacenterOf(vm.Self)
	home, fault := f.world.resolve(&dc, vm.Config.Files.VmPathName)
	if fault != nil {
		return nil, fault
	}
	spec := &types.VirtualMachineConfigSpec{
		Name: escapeName(name), GuestId: vm.Config.GuestId, Uuid: vm.Config.Uuid, Firmware: vm.Config.Firmware,
		Annotation: vm.Config.Annotation, NumCPUs: vm.Config.Hardware.NumCPU, MemoryMB: int64(vm.Config.Hardware.MemoryMB),
		Files:       &types.VirtualMachineFileInfo{VmPathName: "[" + home.ds.Name + "]"},
		ExtraConfig: slices.Clone(vm.Config.ExtraConfig),
	}
	for _, d := range object.VirtualDeviceList(vm.Config.Hardware.Device) {
		change, fault := cloneDevice(d, home.ds.Name)
		if fault != nil {
			return nil, fault
		}
		if change != nil {
			spec.DeviceChange = append(spec.DeviceChange, change)
		}
	}
	return f.create(*vm.Parent, spec, *vm.ResourcePool, vm.Runtime.Host)
}

// cloneDevice returns the change that adds a copy of a device. It returns nil
// for a device that every VM has.
func cloneDevice(d types.BaseVirtualDevice, datastore string) (types.BaseVirtualDeviceConfigSpec, types.BaseMethodFault) {
	switch d.(type) {
	case *types.VirtualDisk, *types.VirtualCdrom, types.BaseVirtualEthernetCard, types.BaseVirtualSCSIController, types.BaseVirtualSATAController:
	default:
		return nil, nil
	}
	var buf bytes.Buffer
	if err := types.NewJSONEncoder(&buf).Encode(&types.VirtualDeviceConfigSpec{Device: d}); err != nil {
		return nil, systemError(err.Error())
	}
	spec := &types.VirtualDeviceConfigSpec{}
	if err := types.NewJSONDecoder(&buf).Decode(spec); err != nil {
		return nil, systemError(err.Error())
	}
	spec.Operation = types.VirtualDeviceConfigSpecOperationAdd
	copied := spec.Device.GetVirtualDevice()
	if !slices.Contains(defaultControllers, copied.ControllerKey) {
		copied.ControllerKey = -copied.ControllerKey
	}
	copied.Key = -copied.Key
	copied.DeviceInfo = nil
	switch dev := spec.Device.(type) {
	case *types.VirtualDisk:
		spec.FileOperation = types.VirtualDeviceConfigSpecFileOperationCreate
		if flat, ok := dev.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok {
			flat.FileName, flat.Uuid, flat.Datastore = "["+datastore+"]", "", nil
		}
	case types.BaseVirtualEthernetCard:
		card := dev.GetVirtualEthernetCard()
		card.AddressType, card.MacAddress = string(types.VirtualEthernetCardMacTypeAssigned), ""
	case types.BaseVirtualController:
		dev.GetVirtualController().Device = nil
	}
	return spec, nil
}
