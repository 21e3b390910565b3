package front

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

func (c *call) makeDirectory() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.MakeDirectory)
	w := c.f.world
	w.mu.Lock()
	defer w.mu.Unlock()
	at, fault := w.resolve(req.Datacenter, req.Name)
	if fault != nil {
		return nil, fault
	}
	if _, err := os.Stat(at.file); err == nil {
		return nil, &types.FileAlreadyExists{FileFault: types.FileFault{File: at.path.String()}}
	}
	mkdir := os.Mkdir
	if req.CreateParentDirectories != nil && *req.CreateParentDirectories {
		mkdir = os.MkdirAll
	}
	if err := mkdir(at.file, 0o700); err != nil {
		return nil, fileFault(err, at)
	}
	w.inventory.bump()
	return nil, nil
}

func (c *call) moveFile() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.MoveDatastoreFile_Task)
	destination := req.DestinationDatacenter
	if destination == nil {
		destination = req.SourceDatacenter
	}
	force := req.Force != nil && *req.Force
	w := c.f.world
	return declared(c.start(op{
		name: "moveDatastoreFile", entity: c.this, delay: delayFile, cancelable: true,
		run: func() (any, types.BaseMethodFault) {
			from, fault := w.resolve(req.SourceDatacenter, req.SourceName)
			if fault != nil {
				return nil, fault
			}
			to, fault := w.resolve(destination, req.DestinationName)
			if fault != nil {
				return nil, fault
			}
			return nil, w.move(from, to, force)
		},
	}))
}

func (w *world) move(from, to location, force bool) types.BaseMethodFault {
	if _, err := os.Lstat(from.file); err != nil {
		return fileFault(err, from)
	}
	if from.file == to.file {
		return nil
	}
	if fault := w.locked(from); fault != nil {
		return fault
	}
	if _, err := os.Lstat(to.file); err == nil {
		if !force {
			return &types.FileAlreadyExists{FileFault: types.FileFault{File: to.path.String()}}
		}
		if fault := w.locked(to); fault != nil {
			return fault
		}
		if err := os.RemoveAll(to.file); err != nil {
			return fileFault(err, to)
		}
	}
	if err := os.Rename(from.file, to.file); err != nil {
		return fileFault(err, to)
	}
	return nil
}

func (c *call) deleteFile() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.DeleteDatastoreFile_Task)
	w := c.f.world
	return declared(c.start(op{
		name: "deleteDatastoreFile", entity: c.this, delay: delayFile, cancelable: true,
		run: func() (any, types.BaseMethodFault) {
			at, fault := w.resolve(req.Datacenter, req.Name)
			if fault != nil {
				return nil, fault
			}
			return nil, w.deletePath(at)
		},
	}))
}

func (w *world) deletePath(at location) types.BaseMethodFault {
	if at.path.Path == "" {
		return &types.InvalidDatastorePath{DatastorePath: at.path.String()}
	}
	if _, err := os.Lstat(at.file); err != nil {
		return fileFault(err, at)
	}
	if fault := w.locked(at); fault != nil {
		return fault
	}
	if err := os.RemoveAll(at.file); err != nil {
		return &types.CannotDeleteFile{FileFault: types.FileFault{File: at.path.String()}}
	}
	return nil
}

// locked refuses a file that a running VM has open, or a directory with one:
// its disks and its connected CD-ROM images.
func (w *world) locked(at location) types.BaseMethodFault {
	for _, e := range w.reg.All("VirtualMachine") {
		vm := e.(*simulator.VirtualMachine)
		if vm.Runtime.PowerState != on {
			continue
		}
		dc, _ := w.datacenterOf(vm.Self)
		for _, d := range object.VirtualDeviceList(vm.Config.Hardware.Device) {
			dev := d.GetVirtualDevice()
			b, ok := dev.Backing.(types.BaseVirtualDeviceFileBackingInfo)
			if !ok || dev.Connectable != nil && !dev.Connectable.Connected {
				continue
			}
			open, fault := w.resolve(&dc, b.GetVirtualDeviceFileBackingInfo().FileName)
			if fault == nil && (open.file == at.file || strings.HasPrefix(open.file, at.file+string(filepath.Separator))) {
				return &types.FileLocked{FileFault: types.FileFault{File: at.path.String()}}
			}
		}
	}
	return nil
}

// fileFault is the fault for an error of the file system.
func fileFault(err error, at location) types.BaseMethodFault {
	file := types.FileFault{File: at.path.String()}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &types.FileNotFound{FileFault: file}
	case errors.Is(err, fs.ErrExist):
		return &types.FileAlreadyExists{FileFault: file}
	case errors.Is(err, syscall.ENOSPC):
		return &types.NoDiskSpace{FileFault: file, Datastore: at.ds.Name}
	}
	return &types.CannotAccessFile{FileFault: file}
}
