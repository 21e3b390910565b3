package front

import (
	"context"
	"encoding/json"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

func (c *call) createVM() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.CreateVM_Task)
	w := c.f.world
	var fault types.BaseMethodFault
	w.lock(func() { fault = c.f.createArguments(c.this, &req.Config, req.Pool, req.Host) })
	if fault != nil {
		return nil, fault
	}
	return declared(c.startCreate(c.this, &req.Config, req.Pool, req.Host))
}

// createArguments are the checks that refuse the call itself.
func (f *Front) createArguments(folder ref, spec *types.VirtualMachineConfigSpec, pool ref, host *ref) types.BaseMethodFault {
	parent, ok := f.world.reg.Get(folder).(*simulator.Folder)
	if !ok || !slices.Contains(parent.ChildType, "VirtualMachine") {
		return &types.NotSupported{}
	}
	if pool.Type != "ResourcePool" {
		return invalidArgument("pool")
	}
	members := f.world.hostsOf(pool)
	if host == nil && !f.world.hasDRS(pool) && len(members) > 1 {
		return invalidArgument("host")
	}
	if host != nil && !slices.Contains(members, *host) {
		return invalidArgument("host")
	}
	return configArguments(spec)
}

func (c *call) startCreate(folder ref, spec *types.VirtualMachineConfigSpec, pool ref, host *ref) ref {
	f := c.f
	spec.Name = escapeName(spec.Name)
	var release func()
	return c.start(op{
		name: "createVm", entity: folder, delay: delayCreate, cancelable: true,
		before: func(ctx context.Context) { release = f.reserveName(ctx, folder, spec.Name) },
		check: func() types.BaseMethodFault {
			_, fault := f.planCreate(folder, spec, pool, host)
			return fault
		},
		run: func() (any, types.BaseMethodFault) { return f.create(folder, spec, pool, host) },
		after: func() {
			if release != nil {
				release()
			}
		},
	})
}

// reserveName waits until no other task creates a VM with this name in this
// folder.
func (f *Front) reserveName(ctx context.Context, folder ref, name string) func() {
	key := folder.Value + "/" + name
	for {
		f.world.mu.Lock()
		busy := f.names[key]
		if busy == nil {
			mine := make(chan struct{})
			f.names[key] = mine
			f.world.mu.Unlock()
			return func() {
				f.world.lock(func() { delete(f.names, key) })
				close(mine)
			}
		}
		f.world.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil
		}
	}
}

// planCreate decides where a new VM is placed, or why it cannot be placed.
func (f *Front) planCreate(folder ref, spec *types.VirtualMachineConfigSpec, pool ref, host *ref) (ref, types.BaseMethodFault) {
	w := f.world
	if w.reg.Get(folder) == nil {
		return ref{}, &types.ManagedObjectNotFound{Obj: folder}
	}
	if taken, ok := w.child(folder, spec.Name); ok {
		return ref{}, &types.DuplicateName{Name: spec.Name, Object: taken}
	}
	dc, _ := w.datacenterOf(folder)
	if spec.Files == nil || spec.Files.VmPathName == "" {
		return ref{}, &types.InvalidVmConfig{Property: "configSpec.files.vmPathName"}
	}
	home, fault := w.resolve(&dc, spec.Files.VmPathName)
	if fault != nil {
		return ref{}, fault
	}
	if path.Ext(home.path.Path) == ".vmx" {
		if fault := w.freePath(home); fault != nil {
			return ref{}, fault
		}
	}
	if fault := w.checkDevices(dc, nil, spec.DeviceChange); fault != nil {
		return ref{}, fault
	}
	if fault := checkBootOrder(spec.BootOptions, nil, spec.DeviceChange); fault != nil {
		return ref{}, fault
	}
	if fault := w.checkSpace(home.ds, dc, spec.DeviceChange); fault != nil {
		return ref{}, fault
	}
	return w.chooseHost(pool, host, w.needsOf(dc, home.ds, spec.DeviceChange))
}

// freePath refuses a configuration file that exists, or that a VM uses.
func (w *world) freePath(at location) types.BaseMethodFault {
	for _, e := range w.reg.All("VirtualMachine") {
		if vm := e.(*simulator.VirtualMachine); vm.Config.Files.VmPathName == at.path.String() {
			return &types.AlreadyExists{Name: at.path.String()}
		}
	}
	if _, err := os.Stat(at.file); err == nil {
		return &types.FileAlreadyExists{FileFault: types.FileFault{File: at.path.String()}}
	}
	return nil
}

// create creates the VM. If it fails, it removes its files from the datastore.
func (f *Front) create(folder ref, spec *types.VirtualMachineConfigSpec, pool ref, host *ref) (any, types.BaseMethodFault) {
	w := f.world
	where, fault := f.planCreate(folder, spec, pool, host)
	if fault != nil {
		return nil, fault
	}
	if spec.Version == "" {
		// The default of vSphere 7.0 U2. The simulator's own is of vSphere 6.5.
		spec.Version = "vmx-19"
	}
	dc, _ := w.datacenterOf(folder)
	home, _ := w.resolve(&dc, spec.Files.VmPathName)
	dir := home.file
	if path.Ext(dir) == ".vmx" {
		dir = path.Dir(dir)
	} else {
		dir = path.Join(dir, strings.ReplaceAll(spec.Name, "%", "_"))
	}
	_, statErr := os.Stat(dir)
	if fault := makeParents(dir, home.ds.Summary.Url); fault != nil {
		return nil, fault
	}
	name := spec.Name
	f.prepareSpec(spec)
	result, fault := w.run(folder, "CreateVM_Task", &types.CreateVM_Task{This: folder, Config: *spec, Pool: pool, Host: &where})
	if fault != nil {
		if os.IsNotExist(statErr) {
			_ = os.RemoveAll(dir)
		}
		return nil, w.datastorePaths(fault)
	}
	vm := w.reg.Get(result.(ref)).(*simulator.VirtualMachine)
	vm.Name, vm.Config.Name, vm.Summary.Config.Name = name, name, name
	vm.Config.ExtraConfig = slices.DeleteFunc(vm.Config.ExtraConfig, func(o types.BaseOptionValue) bool {
		return o.GetOptionValue().Key == "govcsim"
	})
	return result, nil
}

// makeParents creates the directories above a VM's own.
func makeParents(dir, root string) types.BaseMethodFault {
	if !strings.HasPrefix(dir, root) {
		return systemError("path leaves the datastore")
	}
	if err := os.MkdirAll(path.Dir(dir), 0o700); err != nil {
		return &types.CannotCreateFile{FileFault: types.FileFault{File: path.Base(dir)}}
	}
	return nil
}

// prepareSpec sets the values that vCenter chooses for a client.
func (f *Front) prepareSpec(spec *types.VirtualMachineConfigSpec) {
	spec.ExtraConfig = slices.DeleteFunc(spec.ExtraConfig, func(o types.BaseOptionValue) bool {
		return o.GetOptionValue().Value == ""
	})
	if spec.InstanceUuid != "" && f.instanceTaken(spec.InstanceUuid) {
		spec.InstanceUuid = uuid.NewString()
	}
	// The simulator duplicates the devices if it has to escape the name.
	spec.Name = strings.ReplaceAll(spec.Name, "%", "_")
	for _, change := range spec.DeviceChange {
		f.complete(change.GetVirtualDeviceConfigSpec())
	}
}

func (f *Front) instanceTaken(id string) bool {
	for _, e := range f.world.reg.All("VirtualMachine") {
		if strings.EqualFold(e.(*simulator.VirtualMachine).Config.InstanceUuid, id) {
			return true
		}
	}
	return false
}
