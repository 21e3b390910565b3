package wire

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// checker compares a JSON tree with the schema in the simulator's types. A
// member without omitempty is required. An interface is polymorphic and needs
// "_typeName". An any-typed slot needs a box.
type checker struct{ release string }

func (c checker) members(obj map[string]any, t reflect.Type, at string, root bool) error {
	fields := fieldsOf(t)
	known := make(map[string]field, len(fields))
	for _, f := range fields {
		if !newer(f.since, c.release) {
			known[f.name] = f
		}
	}
	for _, name := range slices.Sorted(maps.Keys(obj)) {
		if name == typeName {
			continue
		}
		v := obj[name]
		f, ok := known[name]
		if !ok {
			return fmt.Errorf("%s: unknown field of %s in release %s", join(at, name), t.Name(), c.release)
		}
		if err := c.value(v, f.typ, join(at, name)); err != nil {
			return err
		}
	}
	for _, f := range fields {
		if _, ok := obj[f.name]; !ok && f.required && !newer(f.since, c.release) {
			return fmt.Errorf("%s: required field of %s is missing", join(at, f.name), t.Name())
		}
	}
	if !root {
		if _, ok := obj[typeName]; !ok {
			return fmt.Errorf("%s: %q is missing in a %s", at, typeName, t.Name())
		}
	}
	return nil
}

func (c checker) value(v any, t reflect.Type, at string) error {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if v == nil {
		return fmt.Errorf("%s: null is not allowed, leave the field out", at)
	}
	switch t {
	case reflect.TypeFor[types.AnyType]():
		return c.boxed(v, at)
	case reflect.TypeFor[time.Time]():
		return dateTime(v, at)
	}
	switch t.Kind() {
	case reflect.Interface:
		return c.polymorphic(v, t, at)
	case reflect.Struct:
		return c.object(v, t, at)
	case reflect.Slice:
		return c.array(v, t, at)
	default:
		return primitive(v, t, at)
	}
}

func (c checker) object(v any, t reflect.Type, at string) error {
	obj, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: want a %s object, got %s", at, t.Name(), kindOf(v))
	}
	if name, ok := obj[typeName]; ok && name != t.Name() {
		return fmt.Errorf("%s: want %q %q, got %v", at, typeName, t.Name(), name)
	}
	return c.members(obj, t, at, false)
}

func (c checker) polymorphic(v any, iface reflect.Type, at string) error {
	base := strings.TrimPrefix(iface.Name(), "Base")
	obj, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: want a %s object, got %s", at, base, kindOf(v))
	}
	name, ok := obj[typeName].(string)
	if !ok {
		return fmt.Errorf("%s: %q is missing in a %s", at, typeName, base)
	}
	t, ok := types.TypeFunc()(name)
	if !ok || t.Kind() != reflect.Struct || !reflect.PointerTo(t).Implements(iface) {
		return fmt.Errorf("%s: %q is not a %s", at, name, base)
	}
	return c.members(obj, t, at, false)
}

func (c checker) array(v any, t reflect.Type, at string) error {
	if t.Elem().Kind() == reflect.Uint8 {
		text, ok := v.(string)
		if !ok {
			return fmt.Errorf("%s: want a base64 string, got %s", at, kindOf(v))
		}
		if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			return fmt.Errorf("%s: not base64: %w", at, err)
		}
		return nil
	}
	list, ok := v.([]any)
	if !ok {
		return fmt.Errorf("%s: want an array, got %s", at, kindOf(v))
	}
	for i, e := range list {
		if err := c.value(e, t.Elem(), fmt.Sprintf("%s[%d]", at, i)); err != nil {
			return err
		}
	}
	return nil
}

func primitive(v any, t reflect.Type, at string) error {
	switch t.Kind() {
	case reflect.String:
		text, ok := v.(string)
		if !ok {
			return fmt.Errorf("%s: want a string, got %s", at, kindOf(v))
		}
		if allowed := enumValues(t); allowed != nil && !slices.Contains(allowed, text) {
			return fmt.Errorf("%s: %q is not a value of %s", at, text, t.Name())
		}
		return nil
	case reflect.Bool:
		if _, ok := v.(bool); !ok {
			return fmt.Errorf("%s: want true or false, got %s", at, kindOf(v))
		}
		return nil
	}
	number, ok := v.(json.Number)
	if !ok {
		return fmt.Errorf("%s: want a number, got %s", at, kindOf(v))
	}
	var err error
	switch t.Kind() {
	case reflect.Float32, reflect.Float64:
		_, err = number.Float64()
	default:
		_, err = strconv.ParseInt(number.String(), 10, t.Bits())
	}
	if err != nil {
		return fmt.Errorf("%s: %s is not a %d bit %s", at, number, t.Bits(), t.Kind())
	}
	return nil
}

func enumValues(t reflect.Type) []string {
	if e, ok := reflect.Zero(t).Interface().(interface{ Strings() []string }); ok {
		return e.Strings()
	}
	return nil
}

func dateTime(v any, at string) error {
	text, ok := v.(string)
	if !ok {
		return fmt.Errorf("%s: want an RFC 3339 time, got %s", at, kindOf(v))
	}
	if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
		return fmt.Errorf("%s: %q is not an RFC 3339 time", at, text)
	}
	return nil
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case json.Number:
		return "a number"
	case []any:
		return "an array"
	default:
		return "an object"
	}
}
