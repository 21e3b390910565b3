package front

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

func (c *call) findByInventoryPath() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.FindByInventoryPath)
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	at := c.f.world.model.ServiceContent.RootFolder
	for _, name := range strings.FieldsFunc(req.InventoryPath, func(r rune) bool { return r == '/' }) {
		next, ok := c.f.world.child(at, name)
		if !ok || c.f.denied(viewPrivilege, next) != nil {
			return nil, nil
		}
		at = next
	}
	return declared(at)
}

func (c *call) findChild() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.FindChild)
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	found, ok := c.f.world.child(req.Entity, req.Name)
	if !ok || c.f.denied(viewPrivilege, found) != nil {
		return nil, nil
	}
	return declared(found)
}

// child finds a child by name. Names contain the escapes %25, %2f and %5c
// unchanged. Upper and lower case are equal.
func (w *world) child(of ref, name string) (ref, bool) {
	for _, r := range children(w, of) {
		if e, ok := w.reg.Get(r).(mo.Entity); ok && sameName(entityName(e), name) {
			return r, true
		}
	}
	return ref{}, false
}

var escapes = strings.NewReplacer("%2F", "%2f", "%5C", "%5c")

func sameName(a, b string) bool {
	return escapes.Replace(a) == escapes.Replace(b)
}

// escapeName escapes characters that an inventory name may not contain. A '%'
// that begins an escape is not changed.
func escapeName(name string) string {
	var out strings.Builder
	for i := range len(name) {
		rest := strings.ToLower(name[i:])
		switch {
		case name[i] == '/':
			out.WriteString("%2f")
		case name[i] == '\\':
			out.WriteString("%5c")
		case name[i] == '%' && !strings.HasPrefix(rest, "%25") && !strings.HasPrefix(rest, "%2f") && !strings.HasPrefix(rest, "%5c"):
			out.WriteString("%25")
		default:
			out.WriteByte(name[i])
		}
	}
	return out.String()
}

func (c *call) findAllByUUID() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.FindAllByUuid)
	found, fault := c.byUUID(req.Datacenter, req.Uuid, req.VmSearch, req.InstanceUuid)
	if fault != nil {
		return nil, fault
	}
	return declared(found)
}

func (c *call) findByUUID() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.FindByUuid)
	found, fault := c.byUUID(req.Datacenter, req.Uuid, req.VmSearch, req.InstanceUuid)
	if fault != nil || len(found) == 0 {
		return nil, fault
	}
	return declared(found[0])
}

// byUUID finds VMs or hosts. A datacenter limits the search.
func (c *call) byUUID(dc *ref, uuid string, vms bool, instance *bool) ([]ref, types.BaseMethodFault) {
	w := c.f.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if dc != nil && dc.Type != "Datacenter" {
		return nil, invalidArgument("datacenter")
	}
	found := []ref{}
	kind := "HostSystem"
	if vms {
		kind = "VirtualMachine"
	}
	for _, e := range w.reg.All(kind) {
		has := ""
		switch o := e.(type) {
		case *simulator.VirtualMachine:
			has = o.Config.Uuid
			if instance != nil && *instance {
				has = o.Config.InstanceUuid
			}
		case *simulator.HostSystem:
			has = o.Summary.Hardware.Uuid
		}
		if !strings.EqualFold(has, uuid) {
			continue
		}
		r := e.Reference()
		if w.hidden[r] {
			continue
		}
		if in, ok := w.datacenterOf(r); dc != nil && (!ok || in != *dc) {
			continue
		}
		if c.f.denied(viewPrivilege, r) == nil {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b ref) int { return strings.Compare(a.Value, b.Value) })
	return found, nil
}

func (c *call) createFolder() (json.RawMessage, types.BaseMethodFault) {
	req := c.req.(*types.CreateFolder)
	c.f.world.mu.Lock()
	defer c.f.world.mu.Unlock()
	if req.Name == "" || len(req.Name) > 80 {
		return nil, &types.InvalidName{Name: req.Name}
	}
	req.Name = escapeName(req.Name)
	if taken, ok := c.f.world.child(c.this, req.Name); ok {
		return nil, &types.DuplicateName{Name: req.Name, Object: taken}
	}
	made, fault := c.f.world.call(c.this, c.method, &types.CreateFolder{This: c.this, Name: unescapeName(req.Name)})
	if fault != nil {
		return nil, fault
	}
	c.f.world.sweep()
	return declared(made)
}

// unescapeName reverses escapeName, for the simulator, which escapes itself.
func unescapeName(name string) string {
	return strings.NewReplacer("%2f", "/", "%2F", "/", "%5c", `\`, "%5C", `\`, "%25", "%").Replace(name)
}
