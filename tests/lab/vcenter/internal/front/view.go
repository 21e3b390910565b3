package front

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

type listView struct{ mo.ListView }

type containerView struct {
	mo.ContainerView
	at uint64
}

// newRef creates the reference of a session's object in vCenter's format.
func (s *session) newRef(kind string) ref {
	return ref{Type: kind, Value: fmt.Sprintf("session[%s]%s", s.id, uuid.NewString())}
}

func (c *call) createListView() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.CreateListView)
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	for _, r := range req.Obj {
		if !c.f.exists(c.s, r) {
			return nil, &types.ManagedObjectNotFound{Obj: r}
		}
	}
	v := &listView{}
	v.Self = c.s.newRef("ListView")
	v.View = slices.Clone(req.Obj)
	c.s.objects[v.Self] = v
	return declared(v.Self)
}

func (c *call) modifyListView() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.ModifyListView)
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	v, ok := c.s.objects[c.this].(*listView)
	if !ok {
		return nil, &types.ManagedObjectNotFound{Obj: c.this}
	}
	v.View = slices.DeleteFunc(v.View, func(r ref) bool { return slices.Contains(req.Remove, r) })
	unresolved := c.add(v, req.Add)
	c.f.world.touch(v.Self)
	return declared(unresolved)
}

func (c *call) resetListView() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.ResetListView)
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	v, ok := c.s.objects[c.this].(*listView)
	if !ok {
		return nil, &types.ManagedObjectNotFound{Obj: c.this}
	}
	v.View = nil
	unresolved := c.add(v, req.Obj)
	c.f.world.touch(v.Self)
	return declared(unresolved)
}

// add puts the existing objects into the view and returns the others.
func (c *call) add(v *listView, refs []ref) []ref {
	unresolved := []ref{}
	for _, r := range refs {
		switch {
		case !c.f.exists(c.s, r):
			unresolved = append(unresolved, r)
		case !slices.Contains(v.View, r):
			v.View = append(v.View, r)
		}
	}
	return unresolved
}

func (c *call) createContainerView() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.CreateContainerView)
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	for _, t := range req.Type {
		if _, ok := managedType(t); !ok {
			return nil, &types.InvalidType{Argument: t}
		}
	}
	switch req.Container.Type {
	case "Folder", "Datacenter", "ComputeResource", "ClusterComputeResource", "ResourcePool", "HostSystem", "StoragePod", "VirtualApp":
	default:
		return nil, invalidArgument("container")
	}
	v := &containerView{}
	v.Self = c.s.newRef("ContainerView")
	v.Container, v.Type, v.Recursive = req.Container, req.Type, req.Recursive
	c.s.objects[v.Self] = v
	return declared(v.Self)
}

func (c *call) destroyView() (json.RawMessage, types.BaseMethodFault) {
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	if c.s.objects[c.this] == nil {
		return nil, &types.ManagedObjectNotFound{Obj: c.this}
	}
	delete(c.s.objects, c.this)
	c.f.world.touch(c.this)
	return nil, nil
}

// refresh recomputes the content of the container, once per change of the
// world.
func (v *containerView) refresh(w *world) {
	if v.at == w.swept {
		return
	}
	v.at = w.swept
	v.View = nil
	v.walk(w, v.Container, map[ref]bool{v.Container: true})
}

func (v *containerView) walk(w *world, from ref, seen map[ref]bool) {
	for _, child := range children(w, from) {
		if seen[child] {
			continue
		}
		seen[child] = true
		obj := w.reg.Get(child)
		if obj == nil {
			continue
		}
		t := managedObject(obj).Type()
		if len(v.Type) == 0 || slices.ContainsFunc(v.Type, func(want string) bool { return isA(child.Type, t, want) }) {
			v.View = append(v.View, child)
		}
		if v.Recursive {
			v.walk(w, child, seen)
		}
	}
}

// children are the inventory children of an object.
func children(w *world, r ref) []ref {
	switch e := w.reg.Get(r).(type) {
	case *simulator.Datacenter:
		return []ref{e.VmFolder, e.HostFolder, e.DatastoreFolder, e.NetworkFolder}
	case *simulator.Folder:
		return e.ChildEntity
	case *simulator.StoragePod:
		return e.ChildEntity
	case *mo.ComputeResource:
		return append(slices.Clone(e.Host), *e.ResourcePool)
	case *simulator.ClusterComputeResource:
		return append(slices.Clone(e.Host), *e.ResourcePool)
	case *simulator.ResourcePool:
		return append(slices.Clone(e.ResourcePool.ResourcePool), e.Vm...)
	case *simulator.HostSystem:
		return e.Vm
	}
	return nil
}
