package front

import (
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// need is a datastore that a VM's host must have, and the file on it.
type need struct {
	datastore ref
	file      string
	// soft needs matter only if another host fulfils them: a CD-ROM that is not
	// connected at power-on.
	soft bool
}

// needsOf lists what a VM with these new devices needs.
func (w *world) needsOf(dc ref, home *simulator.Datastore, changes []types.BaseVirtualDeviceConfigSpec) []need {
	needs := []need{{datastore: home.Self, file: "[" + home.Name + "]"}}
	for _, change := range changes {
		if spec := change.GetVirtualDeviceConfigSpec(); spec.Operation != types.VirtualDeviceConfigSpecOperationRemove {
			needs = append(needs, w.needsOfDevice(dc, spec.Device)...)
		}
	}
	return needs
}

func (w *world) needsOfDevice(dc ref, dev types.BaseVirtualDevice) []need {
	d := dev.GetVirtualDevice()
	file := ""
	soft := false
	switch b := d.Backing.(type) {
	case *types.VirtualCdromIsoBackingInfo:
		file = b.FileName
		soft = d.Connectable != nil && !d.Connectable.StartConnected
	case types.BaseVirtualDeviceFileBackingInfo:
		file = b.GetVirtualDeviceFileBackingInfo().FileName
	}
	if file == "" {
		return nil
	}
	at, fault := w.resolve(&dc, file)
	if fault != nil {
		return nil
	}
	return []need{{datastore: at.ds.Self, file: file, soft: soft}}
}

// hostsOf are the hosts under a resource pool.
func (w *world) hostsOf(pool ref) []ref {
	switch c := w.computeOf(pool).(type) {
	case *mo.ComputeResource:
		return c.Host
	case *simulator.ClusterComputeResource:
		return c.Host
	}
	return nil
}

func (w *world) computeOf(r ref) mo.Entity {
	for {
		e, ok := w.reg.Get(r).(mo.Entity)
		if !ok {
			return nil
		}
		switch e.(type) {
		case *mo.ComputeResource, *simulator.ClusterComputeResource:
			return e
		}
		if e.Entity().Parent == nil {
			return nil
		}
		r = *e.Entity().Parent
	}
}

func (w *world) hasDRS(pool ref) bool {
	c, ok := w.computeOf(pool).(*simulator.ClusterComputeResource)
	if !ok {
		return false
	}
	config, ok := c.ConfigurationEx.(*types.ClusterConfigInfoEx)
	return ok && config.DrsConfig.Enabled != nil && *config.DrsConfig.Enabled
}

// chooseHost takes the given host, or the least used one that has everything.
func (w *world) chooseHost(pool ref, host *ref, needs []need) (ref, types.BaseMethodFault) {
	if host != nil {
		return *host, w.sees(*host, needs, false)
	}
	var best *simulator.HostSystem
	var reason types.BaseMethodFault
	for _, strict := range []bool{true, false} {
		for _, r := range w.hostsOf(pool) {
			h := w.reg.Get(r).(*simulator.HostSystem)
			if fault := w.sees(r, needs, strict); fault != nil {
				reason = fault
				continue
			}
			if h.Runtime.InMaintenanceMode || best != nil && len(best.Vm) <= len(h.Vm) {
				continue
			}
			best = h
		}
		if best != nil {
			return best.Self, nil
		}
	}
	if reason == nil {
		reason = &types.NoCompatibleHost{}
	}
	return ref{}, reason
}

// sees reports whether a host mounts all datastores. With strict, the soft
// needs count too.
func (w *world) sees(host ref, needs []need, strict bool) types.BaseMethodFault {
	h, ok := w.reg.Get(host).(*simulator.HostSystem)
	if !ok {
		return &types.ManagedObjectNotFound{Obj: host}
	}
	for _, n := range needs {
		if slices.Contains(h.Datastore, n.datastore) || n.soft && !strict {
			continue
		}
		return &types.CannotAccessFile{FileFault: types.FileFault{File: n.file}}
	}
	return nil
}

// checkSpace refuses fully allocated disks if the datastore has not enough
// space.
func (w *world) checkSpace(home *simulator.Datastore, dc ref, changes []types.BaseVirtualDeviceConfigSpec) types.BaseMethodFault {
	wanted := map[*simulator.Datastore]int64{}
	for _, change := range changes {
		spec := change.GetVirtualDeviceConfigSpec()
		disk, ok := spec.Device.(*types.VirtualDisk)
		if !ok || spec.Operation != types.VirtualDeviceConfigSpecOperationAdd {
			continue
		}
		ds := home
		if b, ok := disk.Backing.(types.BaseVirtualDeviceFileBackingInfo); ok {
			if at, fault := w.resolve(&dc, b.GetVirtualDeviceFileBackingInfo().FileName); fault == nil {
				ds = at.ds
			}
		}
		wanted[ds] += diskBytes(disk)
	}
	for ds, n := range wanted {
		if n > ds.Summary.FreeSpace {
			return &types.NoDiskSpace{FileFault: types.FileFault{File: "[" + ds.Name + "]"}, Datastore: ds.Name}
		}
	}
	return nil
}

func diskBytes(d *types.VirtualDisk) int64 {
	return max(d.CapacityInBytes, d.CapacityInKB*1024)
}

// needsOfVM lists what an existing VM needs to run.
func (w *world) needsOfVM(vm *simulator.VirtualMachine) []need {
	dc, _ := w.datacenterOf(vm.Self)
	var needs []need
	if at, fault := w.resolve(&dc, vm.Config.Files.VmPathName); fault == nil {
		needs = append(needs, need{datastore: at.ds.Self, file: vm.Config.Files.VmPathName})
	}
	for _, d := range object.VirtualDeviceList(vm.Config.Hardware.Device) {
		needs = append(needs, w.needsOfDevice(dc, d)...)
	}
	return needs
}
