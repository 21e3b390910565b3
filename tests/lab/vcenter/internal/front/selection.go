package front

import (
	"reflect"

	"github.com/vmware/govmomi/vim25/types"
)

// selected is an object that a filter spec selects, with the paths to read.
type selected struct {
	ref     ref
	paths   []string
	missing bool
}

// selection resolves a filter spec to the objects that it selects now, in
// order. The caller holds the lock of the world.
func (f *Front) selection(s *session, spec *types.PropertyFilterSpec) ([]selected, types.BaseMethodFault) {
	w := walker{f: f, s: s, spec: spec, seen: map[ref]bool{}, named: map[string]*types.TraversalSpec{}}
	if fault := w.checkTypes(); fault != nil {
		return nil, fault
	}
	for _, o := range spec.ObjectSet {
		v, ok := f.object(s, o.Obj)
		if !ok {
			if spec.ReportMissingObjectsInResults != nil && *spec.ReportMissingObjectsInResults {
				w.out = append(w.out, selected{ref: o.Obj, missing: true})
				continue
			}
			return nil, &types.ManagedObjectNotFound{Obj: o.Obj}
		}
		if o.Skip == nil || !*o.Skip {
			w.add(o.Obj, v)
		}
		if fault := w.follow(o.Obj, v, o.SelectSet, 0); fault != nil {
			return nil, fault
		}
	}
	return w.out, nil
}

type walker struct {
	f     *Front
	s     *session
	spec  *types.PropertyFilterSpec
	seen  map[ref]bool
	named map[string]*types.TraversalSpec
	out   []selected
}

// checkTypes refuses unknown types and properties before anything is read.
func (w *walker) checkTypes() types.BaseMethodFault {
	for _, p := range w.spec.PropSet {
		t, ok := managedType(p.Type)
		if !ok {
			return &types.InvalidType{Argument: p.Type}
		}
		for _, path := range p.PathSet {
			if t != nil && !propertyExists(t, path) {
				return &types.InvalidProperty{Name: path}
			}
		}
	}
	return nil
}

func (w *walker) add(r ref, v reflect.Value) {
	if w.seen[r] {
		return
	}
	w.seen[r] = true
	var paths []string
	match := false
	for _, p := range w.spec.PropSet {
		if !isA(r.Type, v.Type(), p.Type) {
			continue
		}
		match = true
		if p.All != nil && *p.All {
			paths = append(paths, allProperties(v.Type())...)
			continue
		}
		paths = append(paths, p.PathSet...)
	}
	if match {
		w.out = append(w.out, selected{ref: r, paths: paths})
	}
}

// maxDepth limits traversal specs that name each other in a circle.
const maxDepth = 32

func (w *walker) follow(from ref, v reflect.Value, set []types.BaseSelectionSpec, depth int) types.BaseMethodFault {
	for _, sel := range set {
		if t, ok := sel.(*types.TraversalSpec); ok && t.Name != "" {
			w.named[t.Name] = t
		}
	}
	if depth > maxDepth {
		return nil
	}
	for _, sel := range set {
		t, ok := sel.(*types.TraversalSpec)
		if !ok {
			if t = w.named[sel.GetSelectionSpec().Name]; t == nil {
				return invalidArgument("selectSet.name")
			}
		}
		if _, known := managedType(t.Type); !known {
			return &types.InvalidType{Argument: t.Type}
		}
		if !isA(from.Type, v.Type(), t.Type) {
			continue
		}
		val, err := property(v, t.Path)
		if err != nil {
			return &types.InvalidProperty{Name: t.Path}
		}
		for _, r := range references(val) {
			child, ok := w.f.object(w.s, r)
			if !ok {
				continue
			}
			if t.Skip == nil || !*t.Skip {
				w.add(r, child)
			}
			if fault := w.follow(r, child, t.SelectSet, depth+1); fault != nil {
				return fault
			}
		}
	}
	return nil
}

func references(v any) []ref {
	switch r := v.(type) {
	case ref:
		return []ref{r}
	case *ref:
		return []ref{*r}
	case []ref:
		return r
	}
	return nil
}
