package front

import (
	"net/http"
	"strings"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"agent-forge.containeroo.ch/lab/vcenter/internal/wire"
)

// adminCreateVM creates a VM that no client asked for, at once.
func (f *Front) adminCreateVM(w http.ResponseWriter, r *http.Request) {
	var n struct {
		Name        string            `json:"name"`
		Folder      string            `json:"folder"`
		Datastore   string            `json:"datastore"`
		UUID        string            `json:"uuid"`
		ExtraConfig map[string]string `json:"extraConfig"`
		PowerOn     bool              `json:"powerOn"`
		ISO         string            `json:"iso"`
	}
	if !readAdmin(w, r, &n) {
		return
	}
	if n.Datastore == "" {
		n.Datastore = isoDatastore
	}
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	folder, fault := f.ensureFolder(n.Folder)
	if fault != nil {
		adminFault(w, fault)
		return
	}
	spec := foreignSpec(n.Name, n.Datastore, n.UUID)
	for k, v := range n.ExtraConfig {
		spec.ExtraConfig = append(spec.ExtraConfig, &types.OptionValue{Key: k, Value: v})
	}
	if n.ISO != "" {
		spec.DeviceChange = append(spec.DeviceChange, drive(n.ISO)...)
	}
	pool := f.world.sites.rootPool
	if fault := configArguments(spec); fault != nil {
		adminFault(w, fault)
		return
	}
	spec.Name = escapeName(spec.Name)
	host := f.world.hostsOf(pool)[0]
	vm, fault := f.create(folder, spec, pool, &host)
	if fault == nil && n.PowerOn {
		fault = f.switchOn(vm.(ref))
	}
	f.world.sweep()
	if fault != nil {
		adminFault(w, fault)
		return
	}
	writeValue(w, http.StatusOK, map[string]string{"moref": vm.(ref).Value})
}

func adminFault(w http.ResponseWriter, fault types.BaseMethodFault) {
	text := faultName(fault)
	if raw, err := wire.Any(fault); err == nil {
		text += " " + string(raw)
	}
	adminError(w, http.StatusConflict, text)
}

// ensureFolder finds or creates a folder by its path, from the root or below
// the VM folder. The caller holds the lock of the world.
func (f *Front) ensureFolder(path string) (ref, types.BaseMethodFault) {
	w := f.world
	at := w.sites.vmFolder
	path = strings.TrimPrefix(strings.Trim(path, "/"), strings.Trim(w.inventoryPath(at), "/"))
	for _, name := range strings.FieldsFunc(path, func(c rune) bool { return c == '/' }) {
		next, ok := w.child(at, name)
		if !ok {
			made, fault := w.call(at, "CreateFolder", &types.CreateFolder{This: at, Name: unescapeName(name)})
			if fault != nil {
				return ref{}, fault
			}
			next = made.(ref)
		}
		at = next
	}
	return at, nil
}

func foreignSpec(name, datastore, id string) *types.VirtualMachineConfigSpec {
	unit := int32(0)
	add := func(d types.BaseVirtualDevice, file types.VirtualDeviceConfigSpecFileOperation) types.BaseVirtualDeviceConfigSpec {
		return &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, FileOperation: file, Device: d}
	}
	return &types.VirtualMachineConfigSpec{
		Name: name, GuestId: string(types.VirtualMachineGuestOsIdentifierRhel9_64Guest), Uuid: id, NumCPUs: 2, MemoryMB: 4096,
		Files: &types.VirtualMachineFileInfo{VmPathName: "[" + datastore + "]"},
		DeviceChange: []types.BaseVirtualDeviceConfigSpec{
			add(&types.ParaVirtualSCSIController{VirtualSCSIController: types.VirtualSCSIController{
				SharedBus:         types.VirtualSCSISharingNoSharing,
				VirtualController: types.VirtualController{VirtualDevice: types.VirtualDevice{Key: -1}},
			}}, ""),
			add(&types.VirtualDisk{CapacityInKB: 16 << 20, VirtualDevice: types.VirtualDevice{
				Key: -2, ControllerKey: -1, UnitNumber: &unit,
				Backing: &types.VirtualDiskFlatVer2BackingInfo{
					DiskMode: string(types.VirtualDiskModePersistent), ThinProvisioned: types.NewBool(true),
					VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: "[" + datastore + "]"},
				},
			}}, types.VirtualDeviceConfigSpecFileOperationCreate),
			add(&types.VirtualVmxnet3{VirtualVmxnet: types.VirtualVmxnet{VirtualEthernetCard: types.VirtualEthernetCard{
				VirtualDevice: types.VirtualDevice{Key: -3, Backing: &types.VirtualEthernetCardNetworkBackingInfo{
					VirtualDeviceDeviceBackingInfo: types.VirtualDeviceDeviceBackingInfo{DeviceName: "VM Network"},
				}},
			}}}, ""),
		},
	}
}

// drive is a CD-ROM drive with this file.
func drive(iso string) []types.BaseVirtualDeviceConfigSpec {
	unit := int32(0)
	add := func(d types.BaseVirtualDevice) types.BaseVirtualDeviceConfigSpec {
		return &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: d}
	}
	return []types.BaseVirtualDeviceConfigSpec{
		add(&types.VirtualAHCIController{VirtualSATAController: types.VirtualSATAController{
			VirtualController: types.VirtualController{VirtualDevice: types.VirtualDevice{Key: -4}},
		}}),
		add(&types.VirtualCdrom{VirtualDevice: types.VirtualDevice{
			Key: -5, ControllerKey: -4, UnitNumber: &unit,
			Backing: &types.VirtualCdromIsoBackingInfo{
				VirtualDeviceFileBackingInfo: types.VirtualDeviceFileBackingInfo{FileName: iso},
			},
			Connectable: &types.VirtualDeviceConnectInfo{StartConnected: true, AllowGuestControl: true, Connected: true},
		}}),
	}
}

// adminVM does to a VM what another person could do.
func (f *Front) adminVM(w http.ResponseWriter, r *http.Request) {
	var n struct {
		Name  string `json:"name"`
		Key   string `json:"key"`
		Value string `json:"value"`
		CPUs  int32  `json:"cpus"`

		Network string `json:"network"`
		Version string `json:"version"`
	}
	if !readAdmin(w, r, &n) {
		return
	}
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	vm, fault := f.world.vm(ref{Type: "VirtualMachine", Value: r.PathValue("moref")})
	if fault != nil {
		adminError(w, http.StatusNotFound, "no such VM")
		return
	}
	moref := vm.Self.Value
	switch r.PathValue("action") {
	case "power-on":
		fault = f.switchOn(vm.Self)
	case "power-off":
		fault = f.switchOff(vm.Self)
	case "destroy":
		fault = f.destroyVM(vm.Self)
	case "suspend":
		fault = suspend(vm)
	case "hide", "show":
		f.hide(vm, r.PathValue("action") == "hide")
	case "eject":
		eject(vm)
	case "lock-tray":
		f.lockTray(vm.Self)
	case "boot-from-disk":
		bootFromDisk(vm)
	case "boot-from-cd":
		bootFromCD(vm)
	case "set-option":
		setOption(vm, n.Key, n.Value)
	case "set-notes":
		vm.Config.Annotation = n.Value
		changed(vm)
	case "set-cpus":
		vm.Config.Hardware.NumCPU = n.CPUs
		changed(vm)
	case "set-hardware-version":
		vm.Config.Version = n.Version
		changed(vm)
	case "take-snapshot":
		vm.RootSnapshot = []ref{{Type: "VirtualMachineSnapshot", Value: "snapshot-" + vm.Self.Value}}
		changed(vm)
	case "drop-snapshots":
		vm.RootSnapshot = nil
		changed(vm)
	case "set-network":
		if !f.setNetwork(vm, n.Network) {
			adminError(w, http.StatusBadRequest, "no such network, or no network card")
			return
		}
	case "unplug-nic", "plug-nic":
		plugNIC(vm, r.PathValue("action") == "plug-nic")
	case "clone":
		var made any
		if made, fault = f.clone(vm, n.Name); fault == nil {
			moref = made.(ref).Value
		}
	default:
		adminError(w, http.StatusNotFound, "unknown action: use power-on, power-off, suspend, destroy, clone, eject, lock-tray, boot-from-disk, boot-from-cd, set-option, set-notes, set-cpus, set-hardware-version, take-snapshot, drop-snapshots, set-network, unplug-nic, plug-nic, hide or show")
		return
	}
	f.world.sweep()
	if fault != nil {
		adminFault(w, fault)
		return
	}
	writeValue(w, http.StatusOK, map[string]string{"moref": moref})
}

// suspend suspends a running VM.
func suspend(vm *simulator.VirtualMachine) types.BaseMethodFault {
	if now := vm.Runtime.PowerState; now != on {
		return &types.InvalidPowerState{RequestedState: suspended, ExistingState: now}
	}
	vm.Runtime.PowerState, vm.Summary.Runtime.PowerState = suspended, suspended
	return nil
}

// hide makes a VM's files unreachable, or reachable again. While they are
// unreachable, no configuration of the VM is shown.
func (f *Front) hide(vm *simulator.VirtualMachine, hidden bool) {
	state := types.VirtualMachineConnectionStateConnected
	delete(f.world.hidden, vm.Self)
	if hidden {
		f.world.hidden[vm.Self] = true
		state = types.VirtualMachineConnectionStateInaccessible
	}
	vm.Runtime.ConnectionState, vm.Summary.Runtime.ConnectionState = state, state
}

// adminDeleteFolder deletes a VM folder with its content, also running VMs.
func (f *Front) adminDeleteFolder(w http.ResponseWriter, r *http.Request) {
	var n struct {
		Folder string `json:"folder"`
	}
	if !readAdmin(w, r, &n) {
		return
	}
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	folder, ok := f.world.child(f.world.sites.vmFolder, n.Folder)
	if !ok || folder.Type != "Folder" {
		adminError(w, http.StatusNotFound, "no such folder")
		return
	}
	for _, e := range f.world.reg.All("VirtualMachine") {
		vm := e.(*simulator.VirtualMachine)
		if !f.world.under(vm.Self, folder) || vm.Runtime.PowerState == off {
			continue
		}
		if fault := f.switchOff(vm.Self); fault != nil {
			adminFault(w, fault)
			return
		}
	}
	fault := f.emptyFolder(folder)
	f.world.sweep()
	if fault != nil {
		adminFault(w, fault)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// eject removes the medium from every CD-ROM drive.
func eject(vm *simulator.VirtualMachine) {
	for _, d := range object.VirtualDeviceList(vm.Config.Hardware.Device).SelectByType((*types.VirtualCdrom)(nil)) {
		dev := d.GetVirtualDevice()
		dev.Backing = &types.VirtualCdromRemotePassthroughBackingInfo{
			VirtualDeviceRemoteDeviceBackingInfo: types.VirtualDeviceRemoteDeviceBackingInfo{UseAutoDetect: types.NewBool(false)},
		}
		dev.Connectable = &types.VirtualDeviceConnectInfo{AllowGuestControl: true}
	}
	changed(vm)
}

// cards are the network cards of a VM.
func cards(vm *simulator.VirtualMachine) []*types.VirtualEthernetCard {
	var out []*types.VirtualEthernetCard
	for _, d := range vm.Config.Hardware.Device {
		if card, ok := d.(types.BaseVirtualEthernetCard); ok {
			out = append(out, card.GetVirtualEthernetCard())
		}
	}
	return out
}

// setNetwork connects the first network card of a VM to a network of its
// datacenter: one of a standard switch, or a distributed port group.
func (f *Front) setNetwork(vm *simulator.VirtualMachine, name string) bool {
	dc, _ := f.world.datacenterOf(vm.Self)
	all := cards(vm)
	if len(all) == 0 {
		return false
	}
	if network, found := f.world.networkNamed(dc, name); found {
		all[0].Backing = &types.VirtualEthernetCardNetworkBackingInfo{
			VirtualDeviceDeviceBackingInfo: types.VirtualDeviceDeviceBackingInfo{DeviceName: name},
			Network:                        &network,
		}
		changed(vm)
		return true
	}
	for _, e := range f.world.reg.All("DistributedVirtualPortgroup") {
		pg := e.(*simulator.DistributedVirtualPortgroup)
		if pg.Name != name {
			continue
		}
		all[0].Backing = &types.VirtualEthernetCardDistributedVirtualPortBackingInfo{
			Port: types.DistributedVirtualSwitchPortConnection{PortgroupKey: pg.Key},
		}
		changed(vm)
		return true
	}
	return false
}

// plugNIC connects the network cards of a VM, or disconnects them, now and at
// power-on.
func plugNIC(vm *simulator.VirtualMachine, in bool) {
	for _, card := range cards(vm) {
		card.Connectable = &types.VirtualDeviceConnectInfo{StartConnected: in, AllowGuestControl: true, Connected: in}
	}
	changed(vm)
}

// setOption sets a value of the extra configuration. An empty value removes it.
func setOption(vm *simulator.VirtualMachine, key, value string) {
	var options []types.BaseOptionValue
	for _, o := range vm.Config.ExtraConfig {
		if o.GetOptionValue().Key != key {
			options = append(options, o)
		}
	}
	if value != "" {
		options = append(options, &types.OptionValue{Key: key, Value: value})
	}
	vm.Config.ExtraConfig = options
	changed(vm)
}

// changed gives the configuration another version, as each change in vCenter does.
func changed(vm *simulator.VirtualMachine) {
	vm.Config.ChangeVersion = time.Now().UTC().Format(time.RFC3339Nano)
}

// bootFromDisk puts the disks first in the boot order, then the CD-ROM.
func bootFromDisk(vm *simulator.VirtualMachine) {
	var order []types.BaseVirtualMachineBootOptionsBootableDevice
	devices := object.VirtualDeviceList(vm.Config.Hardware.Device)
	for _, d := range devices.SelectByType((*types.VirtualDisk)(nil)) {
		order = append(order, &types.VirtualMachineBootOptionsBootableDiskDevice{DeviceKey: d.GetVirtualDevice().Key})
	}
	order = append(order, &types.VirtualMachineBootOptionsBootableCdromDevice{})
	vm.Config.BootOptions = &types.VirtualMachineBootOptions{BootOrder: order}
}

// bootFromCD puts the CD-ROM alone in the boot order. The firmware tries the disks after it.
func bootFromCD(vm *simulator.VirtualMachine) {
	vm.Config.BootOptions = &types.VirtualMachineBootOptions{
		BootOrder: []types.BaseVirtualMachineBootOptionsBootableDevice{&types.VirtualMachineBootOptionsBootableCdromDevice{}},
	}
	changed(vm)
}
