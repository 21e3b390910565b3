package front

import (
	"encoding/json"
	"slices"

	"github.com/vmware/govmomi/vim25/types"

	"agent-forge.containeroo.ch/lab/vcenter/internal/wire"
)

// maxUpdates is the number of objects that vCenter puts into one reply.
const maxUpdates = 100

type updateSet struct {
	TypeName  string         `json:"_typeName"`
	Version   string         `json:"version"`
	FilterSet []filterUpdate `json:"filterSet,omitempty"`
	Truncated bool           `json:"truncated,omitempty"`
}

type filterUpdate struct {
	TypeName   string          `json:"_typeName"`
	Filter     refJSON         `json:"filter"`
	ObjectSet  []objectUpdate  `json:"objectSet,omitempty"`
	MissingSet []missingObject `json:"missingSet,omitempty"`
}

type objectUpdate struct {
	TypeName  string           `json:"_typeName"`
	Kind      string           `json:"kind"`
	Obj       refJSON          `json:"obj"`
	ChangeSet []propertyChange `json:"changeSet,omitempty"`
}

type propertyChange struct {
	TypeName string          `json:"_typeName"`
	Name     string          `json:"name"`
	Op       string          `json:"op"`
	Val      json.RawMessage `json:"val,omitempty"`
}

type missingObject struct {
	TypeName string          `json:"_typeName"`
	Obj      refJSON         `json:"obj"`
	Fault    json.RawMessage `json:"fault"`
}

// updates compares the filter's objects with the last states that the client
// got, for at most room objects. It records the new states. The caller holds
// the lock of the world.
func (fl *filter) updates(f *Front, s *session, room int) (out filterUpdate, truncated bool, fault types.BaseMethodFault) {
	out = filterUpdate{TypeName: "PropertyFilterUpdate", Filter: refOf(fl.Self)}
	chosen, fault := f.selection(s, &fl.Spec)
	if fault != nil {
		// An object of the spec itself is gone: nothing is selected any more.
		chosen = nil
	}
	current := make(map[ref]bool, len(chosen))
	for _, sel := range chosen {
		current[sel.ref] = true
		if sel.missing {
			fl.noteMissing(sel.ref, &out)
			continue
		}
		if len(out.ObjectSet) >= room {
			truncated = true
			continue
		}
		update, fault := fl.compare(f, s, sel)
		if fault != nil {
			return out, false, fault
		}
		if update != nil {
			out.ObjectSet = append(out.ObjectSet, *update)
		}
	}
	for r, t := range fl.told {
		if current[r] {
			continue
		}
		if len(out.ObjectSet) >= room {
			truncated = true
			continue
		}
		delete(fl.told, r)
		if !t.missing {
			out.ObjectSet = append(out.ObjectSet, objectUpdate{TypeName: "ObjectUpdate", Kind: "leave", Obj: refOf(r)})
		}
	}
	return out, truncated, nil
}

func (fl *filter) noteMissing(r ref, out *filterUpdate) {
	if t := fl.told[r]; t != nil && t.missing {
		return
	}
	fl.told[r] = &told{missing: true}
	raw, err := wire.Any(&types.ManagedObjectNotFound{Obj: r})
	if err == nil {
		out.MissingSet = append(out.MissingSet, missingObject{"MissingObject", refOf(r), raw})
	}
}

// compare returns the change of one object, nil if there is none.
func (fl *filter) compare(f *Front, s *session, sel selected) (*objectUpdate, types.BaseMethodFault) {
	at := f.world.changedAt(sel.ref)
	known := fl.told[sel.ref]
	if known != nil && !known.missing && at <= known.at {
		return nil, nil
	}
	obj, ok := f.object(s, sel.ref)
	if !ok {
		return nil, nil
	}
	update := &objectUpdate{TypeName: "ObjectUpdate", Kind: "modify", Obj: refOf(sel.ref)}
	if known == nil || known.missing {
		known = &told{values: map[string]string{}}
		fl.told[sel.ref] = known
		update.Kind = "enter"
	}
	known.at = at
	slices.Sort(sel.paths)
	for _, path := range slices.Compact(sel.paths) {
		raw, fault := f.readProperty(sel.ref, obj, path)
		if fault != nil {
			return nil, fault
		}
		if known.values[path] == string(raw) {
			continue
		}
		known.values[path] = string(raw)
		update.ChangeSet = append(update.ChangeSet, propertyChange{"PropertyChange", path, "assign", raw})
	}
	if update.Kind == "modify" && len(update.ChangeSet) == 0 {
		return nil, nil
	}
	return update, nil
}
