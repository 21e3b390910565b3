package wire

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

func TestEncoding(t *testing.T) {
	vm := types.ManagedObjectReference{Type: "VirtualMachine", Value: "vm-1"}
	at := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	name := "x"
	for _, c := range []struct {
		value         any
		any, declared string
	}{
		{"x", `{"_typeName":"string","_value":"x"}`, `"x"`},
		{&name, `{"_typeName":"string","_value":"x"}`, `"x"`},
		{int64(5), `{"_typeName":"long","_value":5}`, `5`},
		{true, `{"_typeName":"boolean","_value":true}`, `true`},
		{at, `{"_typeName":"dateTime","_value":"2026-01-02T03:04:05.0000006Z"}`, `"2026-01-02T03:04:05.0000006Z"`},
		{
			types.VirtualMachinePowerStatePoweredOn,
			`{"_typeName":"VirtualMachinePowerState","_value":"poweredOn"}`, `"poweredOn"`,
		},
		{vm, `{"_typeName":"ManagedObjectReference","type":"VirtualMachine","value":"vm-1"}`, ""},
		{[]string{"a"}, `{"_typeName":"ArrayOfString","_value":["a"]}`, `["a"]`},
		{[]int32{1}, `{"_typeName":"ArrayOfInt","_value":[1]}`, `[1]`},
		{
			[]types.ManagedObjectReference{vm},
			`{"_typeName":"ArrayOfManagedObjectReference","_value":[{"_typeName":"ManagedObjectReference","type":"VirtualMachine","value":"vm-1"}]}`,
			`[{"_typeName":"ManagedObjectReference","type":"VirtualMachine","value":"vm-1"}]`,
		},
		{
			[]types.BaseVirtualDevice{&types.VirtualCdrom{}},
			`{"_typeName":"ArrayOfVirtualDevice","_value":[{"_typeName":"VirtualCdrom","key":0}]}`,
			`[{"_typeName":"VirtualCdrom","key":0}]`,
		},
		{[]string(nil), `{"_typeName":"ArrayOfString","_value":[]}`, `[]`},
		{
			&types.LocalizedMethodFault{Fault: &types.NoPermission{PrivilegeId: "p"}, LocalizedMessage: "m"},
			`{"_typeName":"NoPermission","privilegeId":"p"}`, "",
		},
		{
			types.TaskInfo{Key: "k", Error: &types.LocalizedMethodFault{Fault: &types.SystemError{Reason: "r"}}}.Error,
			`{"_typeName":"SystemError","reason":"r"}`, "",
		},
	} {
		raw, err := Any(c.value)
		if err != nil || string(raw) != c.any {
			t.Errorf("any %v: %s %v, want %s", c.value, raw, err, c.any)
		}
		if c.declared == "" {
			c.declared = c.any
		}
		raw, err = Declared(c.value)
		if err != nil || string(raw) != c.declared {
			t.Errorf("declared %v: %s %v, want %s", c.value, raw, err, c.declared)
		}
	}
	for _, unset := range []any{nil, (*string)(nil), (*types.VirtualMachineConfigInfo)(nil)} {
		if raw, err := Declared(unset); raw != nil || err != nil {
			t.Errorf("unset: %s %v", raw, err)
		}
	}
}

func TestNestedFaultsAreFlat(t *testing.T) {
	raw, err := Any(types.TaskInfo{Key: "k", Error: &types.LocalizedMethodFault{Fault: &types.FileNotFound{FileFault: types.FileFault{File: "f"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), `"error":{"_typeName":"FileNotFound","file":"f"}`) || !strings.HasPrefix(string(raw), `{"_typeName":"TaskInfo"`) {
		t.Errorf("%s", raw)
	}
}

func TestReleasesOfFields(t *testing.T) {
	body := []byte(`{"spec":{"_typeName":"VirtualMachineConfigSpec","tagSpecs":[]}}`)
	if _, err := Request("ReconfigVM_Task", body, "9.1.0.0"); err != nil {
		t.Errorf("9.1: %v", err)
	}
	if _, err := Request("ReconfigVM_Task", body, "8.0.3.0"); err == nil || !strings.Contains(err.Error(), "spec.tagSpecs") {
		t.Errorf("8.0.3: %v", err)
	}
	for _, method := range []string{"Nope", "VirtualMachineConfigSpec", "ReconfigVMRequestType"} {
		if _, err := Request(method, nil, "9.1.0.0"); !errors.Is(err, ErrUnknownMethod) {
			t.Errorf("%s: %v", method, err)
		}
	}
}

func TestFaults(t *testing.T) {
	fault, err := Fault([]byte(`{"_typeName":"NoPermission","privilegeId":"p"}`))
	if p, ok := fault.(*types.NoPermission); err != nil || !ok || p.PrivilegeId != "p" {
		t.Errorf("%#v %v", fault, err)
	}
	for _, bad := range []string{`{}`, `"x"`, `{"_typeName":"Nope"}`, `{"_typeName":"OptionValue"}`, `{`} {
		if fault, err := Fault([]byte(bad)); err == nil {
			t.Errorf("%s: %#v", bad, fault)
		}
	}
}
