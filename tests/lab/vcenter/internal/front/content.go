package front

import (
	"encoding/json"
	"reflect"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"agent-forge.containeroo.ch/lab/vcenter/internal/wire"
)

// The property collector's replies, with values that are already encoded.

type refJSON struct {
	TypeName string `json:"_typeName"`
	Type     string `json:"type"`
	Value    string `json:"value"`
}

func refOf(r ref) refJSON { return refJSON{"ManagedObjectReference", r.Type, r.Value} }

type dynamicProperty struct {
	TypeName string          `json:"_typeName"`
	Name     string          `json:"name"`
	Val      json.RawMessage `json:"val"`
}

type missingProperty struct {
	TypeName string          `json:"_typeName"`
	Path     string          `json:"path"`
	Fault    json.RawMessage `json:"fault"`
}

type objectContent struct {
	TypeName   string            `json:"_typeName"`
	Obj        refJSON           `json:"obj"`
	PropSet    []dynamicProperty `json:"propSet,omitempty"`
	MissingSet []missingProperty `json:"missingSet,omitempty"`
}

// read encodes the properties of one selected object. The caller holds the lock
// of the world.
func (f *Front) read(s *session, sel selected) (objectContent, types.BaseMethodFault) {
	out := objectContent{TypeName: "ObjectContent", Obj: refOf(sel.ref)}
	obj, ok := f.object(s, sel.ref)
	if !ok {
		return out, &types.ManagedObjectNotFound{Obj: sel.ref}
	}
	seen := map[string]bool{}
	for _, path := range sel.paths {
		if seen[path] {
			continue
		}
		seen[path] = true
		if fault := f.denied(propertyPrivilege, sel.ref); fault != nil {
			raw, err := wire.Any(fault)
			if err != nil {
				return out, systemError(err.Error())
			}
			out.MissingSet = append(out.MissingSet, missingProperty{"MissingProperty", path, raw})
			continue
		}
		raw, fault := f.readProperty(sel.ref, obj, path)
		if fault != nil {
			return out, fault
		}
		if raw != nil {
			out.PropSet = append(out.PropSet, dynamicProperty{"DynamicProperty", path, raw})
		}
	}
	return out, nil
}

func (f *Front) readProperty(r ref, obj reflect.Value, path string) (json.RawMessage, types.BaseMethodFault) {
	if f.world.hides(r, path) {
		return nil, nil
	}
	if vm, ok := f.world.reg.Get(r).(*simulator.VirtualMachine); ok && path == "datastore" {
		return wireAny(f.world.datastoresOf(vm))
	}
	v, err := property(obj, path)
	if err != nil {
		return nil, &types.InvalidProperty{Name: path}
	}
	return wireAny(v)
}

func wireAny(v any) (json.RawMessage, types.BaseMethodFault) {
	raw, err := wire.Any(v)
	if err != nil {
		return nil, systemError(err.Error())
	}
	return raw, nil
}

// datastoresOf are the datastores that a VM uses: those of its files, which the
// simulator knows, and those of the images in its drives.
func (w *world) datastoresOf(vm *simulator.VirtualMachine) []ref {
	stores := slices.Clone(vm.Datastore)
	dc, _ := w.datacenterOf(vm.Self)
	for _, d := range object.VirtualDeviceList(vm.Config.Hardware.Device).SelectByType((*types.VirtualCdrom)(nil)) {
		iso, ok := d.GetVirtualDevice().Backing.(*types.VirtualCdromIsoBackingInfo)
		if !ok {
			continue
		}
		at, fault := w.resolve(&dc, iso.FileName)
		if fault == nil && !slices.Contains(stores, at.ds.Self) {
			stores = append(stores, at.ds.Self)
		}
	}
	return stores
}
