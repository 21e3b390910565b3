package front

import (
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// configArguments are the checks of a new VM's own settings.
func configArguments(spec *types.VirtualMachineConfigSpec) types.BaseMethodFault {
	if spec.Name == "" {
		return &types.InvalidVmConfig{Property: "configSpec.name"}
	}
	if len(spec.Name) > 80 {
		return &types.InvalidName{Name: spec.Name}
	}
	return settingArguments(spec)
}

// settingArguments are the checks for new and existing VMs.
func settingArguments(spec *types.VirtualMachineConfigSpec) types.BaseMethodFault {
	if spec.GuestId != "" && !slices.Contains(simulator.GuestID, types.VirtualMachineGuestOsIdentifier(spec.GuestId)) {
		return invalidArgument("configSpec.guestId")
	}
	switch spec.Firmware {
	case "", string(types.GuestOsDescriptorFirmwareTypeBios), string(types.GuestOsDescriptorFirmwareTypeEfi):
	default:
		return invalidArgument("configSpec.firmware")
	}
	for property, id := range map[string]string{"configSpec.uuid": spec.Uuid, "configSpec.instanceUuid": spec.InstanceUuid} {
		if _, err := uuid.Parse(id); id != "" && err != nil {
			return invalidArgument(property)
		}
	}
	if spec.MemoryMB < 0 || spec.MemoryMB%4 != 0 {
		return invalidArgument("configSpec.memoryMB")
	}
	if spec.NumCPUs < 0 {
		return invalidArgument("configSpec.numCPUs")
	}
	if n := spec.NumCoresPerSocket; n != nil && (*n < 0 || *n > 0 && spec.NumCPUs > 0 && spec.NumCPUs%*n != 0) {
		return invalidArgument("configSpec.numCoresPerSocket")
	}
	for _, o := range spec.ExtraConfig {
		key := o.GetOptionValue().Key
		// These keys have a special meaning in the simulator.
		if key == "" || strings.HasPrefix(key, "RUN.") || strings.HasPrefix(key, "SET.") {
			return invalidArgument("configSpec.extraConfig.key")
		}
	}
	return nil
}
