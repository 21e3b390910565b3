// Package wire is the JSON protocol's encoding: strict decoding of what a
// client sends, and encoding of the simulator's values as a vCenter does.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
)

const (
	typeName = "_typeName"
	boxValue = "_value"
)

// ErrUnknownMethod means that no request type with this name exists.
var ErrUnknownMethod = errors.New("unknown method")

// Request decodes the body of a call of method into a new request object of the
// simulator's types. release is the release in the URL: fields of later
// releases are unknown. Every difference from the schema is an error that names
// the field.
func Request(method string, body []byte, release string) (any, error) {
	t, ok := types.TypeFunc()(method)
	if !ok || t.Kind() != reflect.Struct || strings.HasSuffix(method, "RequestType") {
		return nil, fmt.Errorf("%w %q", ErrUnknownMethod, method)
	}
	if _, ok := t.FieldByName("This"); !ok {
		return nil, fmt.Errorf("%w %q", ErrUnknownMethod, method)
	}
	if len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}")
	}
	tree, err := parse(body)
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	root, ok := tree.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("body: want an object, got %s", kindOf(tree))
	}
	if err := rootTypeName(root, method); err != nil {
		return nil, err
	}
	c := checker{release: release}
	if err := c.members(root, t, "", true); err != nil {
		return nil, err
	}
	// The decoder does not know the name of the root object.
	delete(root, typeName)
	clean, err := json.Marshal(root)
	if err != nil {
		return nil, err
	}
	req := reflect.New(t)
	if err := types.NewJSONDecoder(bytes.NewReader(clean)).Decode(req.Interface()); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	return req.Interface(), nil
}

// Fault decodes a fault object. Missing members are allowed: a test names only
// those that it needs.
func Fault(raw []byte) (types.BaseMethodFault, error) {
	var slot struct {
		Value types.AnyType `json:"v"`
	}
	body := append(append([]byte(`{"v":`), raw...), '}')
	if err := types.NewJSONDecoder(bytes.NewReader(body)).Decode(&slot); err != nil {
		return nil, fmt.Errorf("fault: %w", err)
	}
	if fault, ok := slot.Value.(types.BaseMethodFault); ok {
		return fault, nil
	}
	if slot.Value != nil && reflect.TypeOf(slot.Value).Kind() == reflect.Struct {
		p := reflect.New(reflect.TypeOf(slot.Value))
		p.Elem().Set(reflect.ValueOf(slot.Value))
		if fault, ok := p.Interface().(types.BaseMethodFault); ok {
			return fault, nil
		}
	}
	return nil, fmt.Errorf("fault: %T is not a fault", slot.Value)
}

// rootTypeName accepts the names with which the vendor's bindings send the
// parameters of a method.
func rootTypeName(root map[string]any, method string) error {
	name, ok := root[typeName]
	if !ok {
		return nil
	}
	short := strings.TrimSuffix(method, "_Task")
	switch name {
	case method, method + "RequestType", short, short + "RequestType":
		return nil
	}
	return fmt.Errorf("body._typeName: want %q, got %v", short+"RequestType", name)
}

func parse(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the object")
	}
	return tree, nil
}
