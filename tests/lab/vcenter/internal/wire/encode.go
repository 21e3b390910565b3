package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// Any encodes v for an any-typed slot of the protocol. Primitives, enums and
// arrays are boxed as {"_typeName":..,"_value":..}. Data objects have their own
// "_typeName" first.
func Any(v any) (json.RawMessage, error) {
	rv := reflect.ValueOf(v)
	for rv.IsValid() && (rv.Kind() == reflect.Pointer || rv.Kind() == reflect.Interface) {
		if rv.IsNil() {
			return nil, nil
		}
		rv = rv.Elem()
	}
	if !rv.IsValid() {
		return nil, nil
	}
	if rv.Kind() == reflect.Slice && rv.Type() != reflect.TypeFor[[]byte]() {
		return anyArray(rv)
	}
	return encode(rv)
}

// Declared encodes v for a slot with a declared type, where nothing is boxed: a
// string is a JSON string, an array a JSON array. It returns nil for an unset
// value, which the protocol answers with "204 No Content".
func Declared(v any) (json.RawMessage, error) {
	rv := reflect.ValueOf(v)
	for rv.IsValid() && (rv.Kind() == reflect.Pointer || rv.Kind() == reflect.Interface) {
		if rv.IsNil() {
			return nil, nil
		}
		rv = rv.Elem()
	}
	if !rv.IsValid() {
		return nil, nil
	}
	if rv.Kind() == reflect.Slice && rv.Len() == 0 {
		return json.RawMessage("[]"), nil
	}
	raw, err := encode(rv)
	if err != nil || (rv.Kind() == reflect.Struct && rv.Type() != reflect.TypeFor[time.Time]()) {
		return raw, err
	}
	var box struct {
		Value json.RawMessage `json:"_value"`
	}
	if err := json.Unmarshal(raw, &box); err != nil {
		return nil, err
	}
	return box.Value, nil
}

// anyArray boxes a slice under the protocol's "ArrayOf" name.
func anyArray(rv reflect.Value) (json.RawMessage, error) {
	value := json.RawMessage("[]")
	if rv.Len() > 0 {
		var err error
		if value, err = Declared(rv.Interface()); err != nil {
			return nil, err
		}
	}
	return json.Marshal(struct {
		TypeName string          `json:"_typeName"`
		Value    json.RawMessage `json:"_value"`
	}{"ArrayOf" + elementName(rv.Type().Elem()), value})
}

func elementName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[types.AnyType]():
		return "AnyType"
	case reflect.TypeFor[time.Time]():
		return "DateTime"
	}
	if t.PkgPath() == "" {
		name := types.VmomiTypeName(t)
		return strings.ToUpper(name[:1]) + name[1:]
	}
	if t.Kind() == reflect.Interface {
		return strings.TrimPrefix(t.Name(), "Base")
	}
	return t.Name()
}

func encode(rv reflect.Value) (json.RawMessage, error) {
	var buf bytes.Buffer
	if err := types.NewJSONEncoder(&buf).Encode(rv.Interface()); err != nil {
		return nil, fmt.Errorf("encode %s: %w", rv.Type(), err)
	}
	return flatten(bytes.TrimSpace(buf.Bytes()))
}
