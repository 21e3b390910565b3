package front

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// defaultControllers are the keys of the controllers that every VM has: IDE 0
// and 1, PCI, PS2, SIO.
var defaultControllers = []int32{200, 201, 100, 300, 400}

const maxDeviceKey = 1 << 30

func invalidDevice(index int, property string) types.BaseMethodFault {
	return &types.InvalidDeviceSpec{
		InvalidVmConfig: types.InvalidVmConfig{Property: "virtualDeviceSpec." + property},
		DeviceIndex:     int32(index),
	}
}

// checkDevices finds the first impossible device change. have are the devices
// of an existing VM.
func (w *world) checkDevices(dc ref, have object.VirtualDeviceList, changes []types.BaseVirtualDeviceConfigSpec) types.BaseMethodFault {
	controllers := slices.Clone(defaultControllers)
	for _, d := range have {
		if _, ok := d.(types.BaseVirtualController); ok {
			controllers = append(controllers, d.GetVirtualDevice().Key)
		}
	}
	fresh := map[int32]bool{}
	for i, change := range changes {
		spec := change.GetVirtualDeviceConfigSpec()
		d := spec.Device.GetVirtualDevice()
		_, isController := spec.Device.(types.BaseVirtualController)
		switch spec.Operation {
		case types.VirtualDeviceConfigSpecOperationAdd:
			if d.Key != 0 && fresh[d.Key] || d.Key > maxDeviceKey || d.Key < -maxDeviceKey {
				return invalidDevice(i, "device.key")
			}
			fresh[d.Key] = true
			if isController {
				controllers = append(controllers, d.Key)
			}
		case types.VirtualDeviceConfigSpecOperationEdit, types.VirtualDeviceConfigSpecOperationRemove:
			old := have.FindByKey(d.Key)
			if old == nil {
				return invalidDevice(i, "device.key")
			}
			if fmt.Sprintf("%T", old) != fmt.Sprintf("%T", spec.Device) {
				return invalidDevice(i, "device")
			}
			if spec.Operation == types.VirtualDeviceConfigSpecOperationRemove {
				continue
			}
		default:
			return invalidDevice(i, "operation")
		}
		if fault := w.checkDevice(dc, i, spec, controllers); fault != nil {
			return fault
		}
	}
	return nil
}

func (w *world) checkDevice(dc ref, i int, spec *types.VirtualDeviceConfigSpec, controllers []int32) types.BaseMethodFault {
	d := spec.Device.GetVirtualDevice()
	switch dev := spec.Device.(type) {
	case *types.VirtualDisk:
		if d.ControllerKey == 0 || !slices.Contains(controllers, d.ControllerKey) {
			return invalidDevice(i, "device.controllerKey")
		}
		if d.UnitNumber == nil || *d.UnitNumber == 7 || *d.UnitNumber < 0 {
			return invalidDevice(i, "device.unitNumber")
		}
		return w.checkDisk(dc, i, spec, dev)
	case *types.VirtualCdrom:
		if !slices.Contains(controllers, d.ControllerKey) {
			return invalidDevice(i, "device.controllerKey")
		}
		return w.checkCdrom(dc, i, d)
	case types.BaseVirtualEthernetCard:
		return w.checkNIC(dc, i, dev.GetVirtualEthernetCard())
	}
	return nil
}

func (w *world) checkDisk(dc ref, i int, spec *types.VirtualDeviceConfigSpec, disk *types.VirtualDisk) types.BaseMethodFault {
	if spec.Operation == types.VirtualDeviceConfigSpecOperationAdd && disk.CapacityInKB <= 0 && disk.CapacityInBytes <= 0 {
		return invalidDevice(i, "device.capacityInKB")
	}
	backing, ok := disk.Backing.(types.BaseVirtualDeviceFileBackingInfo)
	if !ok {
		return invalidDevice(i, "device.backing")
	}
	if flat, ok := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok {
		switch types.VirtualDiskMode(flat.DiskMode) {
		case types.VirtualDiskModePersistent, types.VirtualDiskModeIndependent_persistent, types.VirtualDiskModeIndependent_nonpersistent:
		default:
			return invalidDevice(i, "device.backing.diskMode")
		}
	}
	if name := backing.GetVirtualDeviceFileBackingInfo().FileName; name != "" {
		if _, fault := w.resolve(&dc, name); fault != nil {
			return fault
		}
	}
	return nil
}

func (w *world) checkCdrom(dc ref, i int, d *types.VirtualDevice) types.BaseMethodFault {
	switch b := d.Backing.(type) {
	case *types.VirtualCdromIsoBackingInfo:
		_, fault := w.resolve(&dc, b.FileName)
		return fault
	case *types.VirtualCdromRemotePassthroughBackingInfo, *types.VirtualCdromRemoteAtapiBackingInfo,
		*types.VirtualCdromAtapiBackingInfo, *types.VirtualCdromPassthroughBackingInfo:
		return nil
	}
	return invalidDevice(i, "device.backing")
}

func (w *world) checkNIC(dc ref, i int, card *types.VirtualEthernetCard) types.BaseMethodFault {
	if fault := checkMAC(i, card); fault != nil {
		return fault
	}
	switch b := card.Backing.(type) {
	case *types.VirtualEthernetCardNetworkBackingInfo:
		if _, ok := w.networkNamed(dc, b.DeviceName); !ok {
			return invalidDevice(i, "device.backing.deviceName")
		}
	case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
		if !w.hasPortgroup(b.Port.PortgroupKey, b.Port.SwitchUuid) {
			return invalidDevice(i, "device.backing.port")
		}
	default:
		return invalidDevice(i, "device.backing")
	}
	return nil
}

func checkMAC(i int, card *types.VirtualEthernetCard) types.BaseMethodFault {
	kinds := []string{"", "manual", "generated", "assigned"}
	if !slices.Contains(kinds, strings.ToLower(card.AddressType)) {
		return invalidDevice(i, "device.addressType")
	}
	if card.MacAddress == "" {
		return nil
	}
	mac, err := net.ParseMAC(card.MacAddress)
	if err != nil || len(mac) != 6 || mac[0]&1 == 1 {
		return invalidDevice(i, "device.macAddress")
	}
	// The upper part of VMware's own range belongs to vCenter.
	if strings.EqualFold(card.AddressType, "manual") && strings.HasPrefix(mac.String(), "00:50:56") && mac[3] > 0x3f {
		return invalidDevice(i, "device.macAddress")
	}
	return nil
}

// complete gives a new device what vCenter chooses: a card its address, a disk
// its identity. The simulator would derive the latter from the name of the
// file, which a later disk may have again.
func (f *Front) complete(spec *types.VirtualDeviceConfigSpec) {
	f.assignMAC(spec)
	disk, ok := spec.Device.(*types.VirtualDisk)
	if !ok || spec.FileOperation != types.VirtualDeviceConfigSpecFileOperationCreate {
		return
	}
	if flat, ok := disk.Backing.(*types.VirtualDiskFlatVer2BackingInfo); ok && flat.Uuid == "" {
		flat.Uuid = uuid.NewString()
	}
}

// assignMAC gives a new card its address, unless the client has set one.
func (f *Front) assignMAC(spec *types.VirtualDeviceConfigSpec) {
	card, ok := spec.Device.(types.BaseVirtualEthernetCard)
	if !ok || spec.Operation != types.VirtualDeviceConfigSpecOperationAdd {
		return
	}
	c := card.GetVirtualEthernetCard()
	if strings.EqualFold(c.AddressType, "manual") && c.MacAddress != "" {
		return
	}
	f.nextMAC++
	c.AddressType = string(types.VirtualEthernetCardMacTypeAssigned)
	c.MacAddress = fmt.Sprintf("00:50:56:%02x:%02x:%02x", 0x80+f.nextMAC>>16&0x3f, f.nextMAC>>8&0xff, f.nextMAC&0xff)
}

// networkNamed finds a standard network of a datacenter.
func (w *world) networkNamed(dc ref, name string) (ref, bool) {
	d, ok := w.reg.Get(dc).(*simulator.Datacenter)
	if !ok {
		return ref{}, false
	}
	for _, r := range d.Network {
		if n, ok := w.reg.Get(r).(*mo.Network); ok && n.Name == name {
			return r, true
		}
	}
	return ref{}, false
}

func (w *world) hasPortgroup(key, switchUUID string) bool {
	for _, e := range w.reg.All("DistributedVirtualPortgroup") {
		pg := e.(*simulator.DistributedVirtualPortgroup)
		if pg.Key != key || pg.Config.DistributedVirtualSwitch == nil {
			continue
		}
		dvs, ok := w.reg.Get(*pg.Config.DistributedVirtualSwitch).(*simulator.DistributedVirtualSwitch)
		return ok && dvs.Uuid == switchUUID
	}
	return false
}
