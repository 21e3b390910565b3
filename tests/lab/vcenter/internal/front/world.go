package front

import (
	"fmt"
	"log"
	"maps"
	"reflect"
	"strings"
	"sync"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	// Must be initialised before the simulator.
	_ "agent-forge.containeroo.ch/lab/vcenter/internal/nolock"
)

type ref = types.ManagedObjectReference

// world is the simulator's inventory behind one lock. Code that reads or
// changes an object holds mu. Code that holds mu waits only for the simulator.
type world struct {
	mu    sync.Mutex
	model *simulator.Model
	reg   *simulator.Registry
	ctx   simulator.Context
	guard *taskGuard
	sites sites
	dir   *tempDir

	// all changes with anything that a property filter can see, inventory only
	// with what the admin endpoint shows.
	all       *signal
	inventory *signal
	// touched is the count of all at which an object last changed. Everything else
	// changed at swept.
	touched map[ref]uint64
	swept   uint64

	// hidden are VMs whose configuration is not shown.
	hidden map[ref]bool
}

// hides reports whether a property of a VM is not shown: all of config while
// its files cannot be read.
func (w *world) hides(r ref, path string) bool {
	return w.hidden[r] && (path == "config" || strings.HasPrefix(path, "config."))
}

func newWorld(cfg Config) (*world, error) {
	model := simulator.VPX()
	model.Service = simulator.New(simulator.NewServiceInstance(simulator.NewContext(), model.ServiceContent, model.RootFolder))
	w := &world{
		model:     model,
		reg:       model.Map(),
		ctx:       *model.Service.Context,
		guard:     newTaskGuard(),
		all:       newSignal(),
		inventory: newSignal(),
		touched:   map[ref]uint64{},
		hidden:    map[ref]bool{},
	}
	// The simulator's own list of recent tasks would show tasks that exist only
	// for the front.
	w.reg.RemoveHandler(w.reg.Get(*model.ServiceContent.TaskManager).(simulator.RegisterObject))
	w.reg.AddHandler(w.guard)
	dir, err := newTempDir()
	if err != nil {
		return nil, err
	}
	w.dir = dir
	if err := w.build(cfg); err != nil {
		w.remove()
		return nil, fmt.Errorf("inventory: %w", err)
	}
	return w, nil
}

// remove deletes the files of all datastores.
func (w *world) remove() {
	w.dir.remove()
}

// lock runs f with the lock of the world.
func (w *world) lock(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// touch records a change of single objects that no other object shows.
func (w *world) touch(refs ...ref) {
	n := w.all.bump()
	for _, r := range refs {
		w.touched[r] = n
	}
}

// sweep records that the simulator changed the inventory.
func (w *world) sweep() {
	w.refreshPods()
	w.swept = w.all.bump()
	w.inventory.bump()
}

// changedAt is the count at which r last changed. Tasks belong to the front,
// which records their changes.
func (w *world) changedAt(r ref) uint64 {
	if r.Type == "Task" {
		return w.touched[r]
	}
	return max(w.touched[r], w.swept)
}

// forget removes an object of the front from the inventory.
func (w *world) forget(r ref) {
	w.reg.Remove(&w.ctx, r)
	w.touched[r] = w.all.bump()
	maps.DeleteFunc(w.touched, func(old ref, n uint64) bool {
		return n+10_000 < w.touched[r] && w.reg.Get(old) == nil
	})
}

// call runs one method of the simulator's object this. A panic in it becomes a
// SystemError.
func (w *world) call(this ref, method string, req any) (result any, fault types.BaseMethodFault) {
	defer func() {
		if p := recover(); p != nil {
			log.Printf("simulator: %s.%s: %v", this, method, p)
			result, fault = nil, systemError(fmt.Sprintf("%s: %v", method, p))
		}
	}()
	obj := w.reg.Get(this)
	if obj == nil {
		return nil, &types.ManagedObjectNotFound{Obj: this}
	}
	name := method
	if short, ok := strings.CutSuffix(name, "_Task"); ok {
		name = short + "Task"
	}
	m := reflect.ValueOf(obj).MethodByName(strings.ToUpper(name[:1]) + name[1:])
	if !m.IsValid() {
		return nil, &types.MethodNotFound{Receiver: this, Method: method}
	}
	ctx := w.ctx
	args := []reflect.Value{reflect.ValueOf(req)}
	if m.Type().NumIn() == 2 {
		args = []reflect.Value{reflect.ValueOf(&ctx), args[0]}
	}
	reply, ok := m.Call(args)[0].Interface().(soap.HasFault)
	if !ok {
		return nil, systemError(method + ": unexpected reply")
	}
	if f := reply.Fault(); f != nil {
		fault, ok := f.Detail.Fault.(types.BaseMethodFault)
		if !ok {
			return nil, systemError(f.String)
		}
		return nil, fault
	}
	body := reflect.ValueOf(reply).Elem().FieldByName("Res")
	if value := body.Elem().FieldByName("Returnval"); value.IsValid() {
		return value.Interface(), nil
	}
	return nil, nil
}

// run runs one task method of the simulator to its end.
func (w *world) run(this ref, method string, req any) (any, types.BaseMethodFault) {
	started, fault := w.call(this, method, req)
	if fault != nil {
		w.guard.settle()
		return nil, fault
	}
	info := w.guard.wait(started.(ref))
	for _, task := range w.guard.settle() {
		w.reg.Remove(&w.ctx, task)
	}
	if info.Error != nil {
		return nil, info.Error.Fault
	}
	return info.Result, nil
}

// name is the inventory name of r; empty if it has none.
func (w *world) name(r ref) string {
	if e, ok := w.reg.Get(r).(mo.Entity); ok {
		return entityName(e)
	}
	return ""
}

func entityName(e mo.Entity) string {
	switch o := e.(type) {
	case *mo.Network:
		return o.Name
	case *simulator.DistributedVirtualPortgroup:
		return o.Name
	case *simulator.DistributedVirtualSwitch:
		return o.Name
	}
	return e.Entity().Name
}
