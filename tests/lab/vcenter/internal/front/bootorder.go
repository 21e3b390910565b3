package front

import (
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"
)

// checkBootOrder refuses devices that the VM does not have. A new VM has no
// real keys yet, so a boot order with keys needs a later reconfiguration.
func checkBootOrder(o *types.VirtualMachineBootOptions, have object.VirtualDeviceList, changes []types.BaseVirtualDeviceConfigSpec) types.BaseMethodFault {
	if o == nil {
		return nil
	}
	removed := map[int32]bool{}
	cdroms := len(have.SelectByType((*types.VirtualCdrom)(nil)))
	for _, change := range changes {
		spec := change.GetVirtualDeviceConfigSpec()
		_, isCdrom := spec.Device.(*types.VirtualCdrom)
		switch spec.Operation {
		case types.VirtualDeviceConfigSpecOperationRemove:
			removed[spec.Device.GetVirtualDevice().Key] = true
			if isCdrom {
				cdroms--
			}
		case types.VirtualDeviceConfigSpecOperationAdd:
			if isCdrom {
				cdroms++
			}
		}
	}
	bad := &types.InvalidVmConfig{Property: "configSpec.bootOptions.bootOrder"}
	for _, b := range o.BootOrder {
		switch dev := b.(type) {
		case *types.VirtualMachineBootOptionsBootableDiskDevice:
			if _, ok := have.FindByKey(dev.DeviceKey).(*types.VirtualDisk); !ok || removed[dev.DeviceKey] {
				return bad
			}
		case *types.VirtualMachineBootOptionsBootableEthernetDevice:
			if _, ok := have.FindByKey(dev.DeviceKey).(types.BaseVirtualEthernetCard); !ok || removed[dev.DeviceKey] {
				return bad
			}
		case *types.VirtualMachineBootOptionsBootableCdromDevice:
			if cdroms == 0 {
				return bad
			}
		}
	}
	return nil
}
