package front

import (
	"slices"
	"sync"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// Privileges that several places require.
const (
	viewPrivilege     = "System.View"
	propertyPrivilege = "System.Read"
	filePrivilege     = "Datastore.FileManagement"
	browsePrivilege   = "Datastore.Browse"
	tagPrivilege      = "InventoryService.Tagging.AttachTag"
)

// denial removes one privilege: on the objects with one name and below them, or
// everywhere if the name is empty.
type denial struct {
	Privilege  string `json:"privilege"`
	ObjectName string `json:"objectName"`
}

type permissions struct {
	mu   sync.Mutex
	deny []denial
}

func (p *permissions) set(deny []denial) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deny = slices.Clone(deny)
}

func (p *permissions) of(privilege string) []denial {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []denial
	for _, d := range p.deny {
		if d.Privilege == privilege {
			out = append(out, d)
		}
	}
	return out
}

// denied is the NoPermission fault for the use of a privilege on an object, nil
// if it is allowed. The caller holds the lock of the world.
func (f *Front) denied(privilege string, r ref) types.BaseMethodFault {
	for _, d := range f.permissions.of(privilege) {
		if d.ObjectName == "" || f.world.within(r, d.ObjectName) {
			object := r
			return &types.NoPermission{Object: &object, PrivilegeId: privilege}
		}
	}
	return nil
}

// within reports whether an object or one above it has this name.
func (w *world) within(r ref, name string) bool {
	for {
		e, ok := w.reg.Get(r).(mo.Entity)
		if !ok {
			return false
		}
		if sameName(entityName(e), name) {
			return true
		}
		if e.Entity().Parent == nil {
			return false
		}
		r = *e.Entity().Parent
	}
}
