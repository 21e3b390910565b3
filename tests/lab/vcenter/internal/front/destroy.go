package front

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

func (c *call) destroy() (json.RawMessage, types.BaseMethodFault) {
	switch c.this.Type {
	case "VirtualMachine":
	case "Folder":
		return c.destroyFolder()
	default:
		return c.simulated()
	}
	vm := c.this
	return declared(c.start(op{
		name: "destroy", entity: vm, delay: delayDestroy, exclusive: true,
		check: func() types.BaseMethodFault { return c.f.world.inState(vm, off, off) },
		run:   func() (any, types.BaseMethodFault) { return nil, c.f.destroyVM(vm) },
	}))
}

// destroyVM removes a VM and its files. Files that are not the VM's own stay,
// and then its directory stays too. The simulator's own destroy returns before
// the files are gone, and deletes everything it finds.
func (f *Front) destroyVM(r ref) types.BaseMethodFault {
	w := f.world
	if fault := w.inState(r, off, off); fault != nil {
		return fault
	}
	vm, fault := w.vm(r)
	if fault != nil {
		return fault
	}
	dc, _ := w.datacenterOf(r)
	home, fault := w.resolve(&dc, vm.Config.Files.VmPathName)
	if fault != nil {
		return fault
	}
	disks := w.disksOf(vm, dc)
	if _, fault := w.call(r, "UnregisterVM", &types.UnregisterVM{This: r}); fault != nil {
		return fault
	}
	f.tags.forget(r)
	for _, d := range disks {
		d.remove()
		if dir := filepath.Dir(d.at.file); dir != d.at.ds.Summary.Url {
			_ = os.Remove(dir) // only when it is empty
		}
	}
	return removeHome(home)
}

type ownDisk struct {
	key   int32
	at    location
	bytes int64
}

// remove deletes the disk's files and frees its space.
func (d ownDisk) remove() {
	d.at.ds.Summary.FreeSpace += d.bytes
	d.at.ds.Info.GetDatastoreInfo().FreeSpace = d.at.ds.Summary.FreeSpace
	removeFiles(d.at.file, strings.TrimSuffix(d.at.file, ".vmdk")+"-flat.vmdk")
}

func (w *world) disksOf(vm *simulator.VirtualMachine, dc ref) []ownDisk {
	var out []ownDisk
	for _, d := range object.VirtualDeviceList(vm.Config.Hardware.Device).SelectByType((*types.VirtualDisk)(nil)) {
		b, ok := d.GetVirtualDevice().Backing.(types.BaseVirtualDeviceFileBackingInfo)
		if !ok {
			continue
		}
		if at, fault := w.resolve(&dc, b.GetVirtualDeviceFileBackingInfo().FileName); fault == nil {
			out = append(out, ownDisk{d.GetVirtualDevice().Key, at, diskBytes(d.(*types.VirtualDisk))})
		}
	}
	return out
}

func removeFiles(files ...string) {
	for _, file := range files {
		_ = os.Remove(file)
	}
}

// removeHome deletes the VM's files next to its configuration file. It also
// deletes the directory if nothing else is in it.
func removeHome(vmx location) types.BaseMethodFault {
	dir := filepath.Dir(vmx.file)
	if dir == filepath.Clean(vmx.ds.Summary.Url) {
		removeFiles(vmx.file)
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		if os.IsNotExist(err) {
			return nil
		}
		return fileFault(err, vmx)
	}
	for _, e := range entries {
		switch path.Ext(e.Name()) {
		case ".vmx", ".nvram", ".vmsd", ".vmxf", ".vswp", ".log":
			removeFiles(filepath.Join(dir, e.Name()))
		}
	}
	_ = os.Remove(dir) // only when it is empty
	return nil
}
