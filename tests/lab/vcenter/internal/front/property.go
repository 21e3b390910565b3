package front

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/vmware/govmomi/vim25/mo"
)

// errUnknownProperty means that the schema has no such property.
type errUnknownProperty struct{ path string }

func (e errUnknownProperty) Error() string { return "unknown property " + e.path }

// property reads a property path such as runtime.powerState or
// config.hardware.device[4000] of a managed object. It returns nil for a
// property that is not set.
func property(obj reflect.Value, path string) (any, error) {
	if path == "" {
		return nil, errUnknownProperty{path}
	}
	v := obj
	for _, segment := range strings.Split(path, ".") {
		name, key, keyed := strings.Cut(strings.TrimSuffix(segment, "]"), "[")
		v = indirect(v)
		if !v.IsValid() {
			return nil, nil
		}
		if v.Kind() != reflect.Struct {
			return nil, errUnknownProperty{path}
		}
		field, ok := memberNamed(v, name)
		if !ok {
			return nil, errUnknownProperty{path}
		}
		v = field
		if keyed {
			if v, ok = element(v, key); !ok {
				return nil, nil
			}
		}
	}
	if unset(v) {
		return nil, nil
	}
	return v.Interface(), nil
}

// propertyExists reports whether a type has a property path, according to its
// declared types. Members of subtypes count as known.
func propertyExists(t reflect.Type, path string) bool {
	for _, segment := range strings.Split(path, ".") {
		name, _, keyed := strings.Cut(segment, "[")
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() == reflect.Interface {
			return true
		}
		if t.Kind() != reflect.Struct {
			return false
		}
		f, ok := fieldNamed(t, name)
		if !ok {
			return false
		}
		t = f.Type
		if keyed && t.Kind() == reflect.Slice {
			t = t.Elem()
		}
	}
	return true
}

func indirect(v reflect.Value) reflect.Value {
	for v.IsValid() && (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) {
		v = v.Elem()
	}
	return v
}

func unset(v reflect.Value) bool {
	if !v.IsValid() {
		return true
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v.IsNil()
	case reflect.String:
		return v.Len() == 0
	}
	return false
}

func memberNamed(v reflect.Value, name string) (reflect.Value, bool) {
	f, ok := fieldNamed(v.Type(), name)
	if !ok {
		return reflect.Value{}, false
	}
	return v.FieldByIndex(f.Index), true
}

// members of the schema's types by name; reflection over them is slow.
var memberCache sync.Map // reflect.Type -> map[string]reflect.StructField

func membersOf(t reflect.Type) map[string]reflect.StructField {
	if cached, ok := memberCache.Load(t); ok {
		return cached.(map[string]reflect.StructField)
	}
	members := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.Anonymous && tag != "" && tag != "-" && tag != "self" {
			members[tag] = f
		}
	}
	memberCache.Store(t, members)
	return members
}

func fieldNamed(t reflect.Type, name string) (reflect.StructField, bool) {
	f, ok := membersOf(t)[name]
	return f, ok
}

// element returns the member of an array by its key: 4000 or "name".
func element(v reflect.Value, key string) (reflect.Value, bool) {
	if v.Kind() != reflect.Slice {
		return reflect.Value{}, false
	}
	if text, err := strconv.Unquote(key); err == nil {
		key = text
	}
	for i := range v.Len() {
		item := indirect(v.Index(i))
		if item.Kind() != reflect.Struct {
			return reflect.Value{}, false
		}
		k := item.FieldByName("Key")
		if k.IsValid() && fmt.Sprint(k.Interface()) == key {
			return item, true
		}
	}
	return reflect.Value{}, false
}

// allProperties lists the top-level properties of a managed object type.
func allProperties(t reflect.Type) []string {
	return slices.Sorted(maps.Keys(membersOf(t)))
}

// managedType is the type of a managed object by its name in the schema. It is
// nil if only the name is known.
func managedType(name string) (reflect.Type, bool) {
	switch name {
	case "Task":
		return reflect.TypeFor[mo.Task](), true
	case "ListView":
		return reflect.TypeFor[mo.ListView](), true
	case "ContainerView":
		return reflect.TypeFor[mo.ContainerView](), true
	}
	if !mo.IsManagedObjectType(name) {
		return nil, false
	}
	o, ok := mo.Value(ref{Type: name, Value: name})
	if !ok {
		return nil, true
	}
	t := reflect.TypeOf(o)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t, true
}

// isA reports whether a managed object of type t, with the name name, is of the
// type want or derives from it.
func isA(name string, t reflect.Type, want string) bool {
	if name == want || t.Name() == want {
		return true
	}
	f, ok := t.FieldByName(want)
	return ok && f.Anonymous
}
