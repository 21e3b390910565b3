package wire

import (
	"fmt"
	"reflect"

	"github.com/vmware/govmomi/vim25/types"
)

// primitives are the names with which an any-typed slot boxes primitive values.
var primitives = map[string]reflect.Type{
	"boolean":      reflect.TypeFor[bool](),
	"byte":         reflect.TypeFor[int8](),
	"short":        reflect.TypeFor[int16](),
	"int":          reflect.TypeFor[int32](),
	"long":         reflect.TypeFor[int64](),
	"float":        reflect.TypeFor[float32](),
	"double":       reflect.TypeFor[float64](),
	"string":       reflect.TypeFor[string](),
	"anyURI":       reflect.TypeFor[string](),
	"TypeName":     reflect.TypeFor[string](),
	"PropertyPath": reflect.TypeFor[string](),
	"MethodName":   reflect.TypeFor[string](),
}

// boxed checks the value of an any-typed slot. The simulator's decoder knows
// fewer primitive names than the schema. The others are replaced by the names
// it knows.
func (c checker) boxed(v any, at string) error {
	obj, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: an any slot needs {%q, %q}, got %s", at, typeName, boxValue, kindOf(v))
	}
	name, ok := obj[typeName].(string)
	if !ok {
		return fmt.Errorf("%s: %q is missing in an any slot", at, typeName)
	}
	inner, has := obj[boxValue]
	if t, ok := primitives[name]; ok {
		if err := onlyBox(obj, has, at); err != nil {
			return err
		}
		if t.Kind() == reflect.String {
			obj[typeName] = "string"
		}
		return primitive(inner, t, join(at, boxValue))
	}
	switch name {
	case "dateTime":
		if err := onlyBox(obj, has, at); err != nil {
			return err
		}
		return dateTime(inner, join(at, boxValue))
	case "binary", "base64Binary":
		if err := onlyBox(obj, has, at); err != nil {
			return err
		}
		obj[typeName] = "binary"
		return c.array(inner, reflect.TypeFor[[]byte](), join(at, boxValue))
	}
	t, ok := types.TypeFunc()(name)
	if !ok {
		return fmt.Errorf("%s: unknown %q %q", at, typeName, name)
	}
	if t.Kind() != reflect.Struct {
		if err := onlyBox(obj, has, at); err != nil {
			return err
		}
		return c.value(inner, t, join(at, boxValue))
	}
	return c.members(obj, t, at, false)
}

func onlyBox(obj map[string]any, has bool, at string) error {
	if !has {
		return fmt.Errorf("%s: %q is missing in an any slot", at, boxValue)
	}
	if len(obj) != 2 {
		return fmt.Errorf("%s: a boxed value has %q and %q only", at, typeName, boxValue)
	}
	return nil
}
