package front

import (
	"strings"
	"testing"
)

// A body that does not fit the schema is refused, and the error names the
// field. So a client's wrong name is noticed.
func TestStrictBodies(t *testing.T) {
	l := loggedIn(t)
	pool := `"pool":{"_typeName":"ManagedObjectReference","type":"ResourcePool","value":"x"}`
	config := func(inner string) string {
		return `{` + pool + `,"config":{"_typeName":"VirtualMachineConfigSpec",` + inner + `}}`
	}
	device := func(inner string) string {
		return config(`"deviceChange":[{"_typeName":"VirtualDeviceConfigSpec","operation":"add","device":{` + inner + `}}]`)
	}
	for _, c := range []struct{ why, method, body, field string }{
		{"not JSON", "CreateVM_Task", `{`, "body"},
		{"not an object", "CreateVM_Task", `[]`, "body"},
		{"two objects", "CreateVM_Task", `{}{}`, "body"},
		{"foreign root type", "CreateVM_Task", `{"_typeName":"PowerOnVMRequestType"}`, "_typeName"},
		{"missing parameter", "CreateVM_Task", `{` + pool + `}`, "config"},
		{"unknown parameter", "CreateVM_Task", `{"hots":null,` + pool + `}`, "hots"},
		{"unknown field", "CreateVM_Task", config(`"numCPU":4`), "config.numCPU"},
		{"field of a later release", "CreateVM_Task", config(`"tagSpecs":[]`), "config.tagSpecs"},
		{"number as a string", "CreateVM_Task", config(`"numCPUs":"4"`), "config.numCPUs"},
		{"fraction", "CreateVM_Task", config(`"numCPUs":1.5`), "config.numCPUs"},
		{"too large a number", "CreateVM_Task", config(`"numCPUs":4294967296`), "config.numCPUs"},
		{"string as a number", "CreateVM_Task", config(`"name":4`), "config.name"},
		{"boolean as a string", "CreateVM_Task", config(`"cpuHotAddEnabled":"true"`), "config.cpuHotAddEnabled"},
		{"null", "CreateVM_Task", config(`"annotation":null`), "config.annotation"},
		{"no type name", "CreateVM_Task", config(`"files":{"vmPathName":"[a]"}`), "config.files"},
		{"object for an array", "CreateVM_Task", config(`"extraConfig":{}`), "config.extraConfig"},
		{"unboxed any", "CreateVM_Task", config(`"extraConfig":[{"_typeName":"OptionValue","key":"a","value":"TRUE"}]`), "config.extraConfig[0].value"},
		{"half a box", "CreateVM_Task", config(`"extraConfig":[{"_typeName":"OptionValue","key":"a","value":{"_typeName":"string"}}]`), "config.extraConfig[0].value"},
		{"box with a wrong value", "CreateVM_Task", config(`"extraConfig":[{"_typeName":"OptionValue","key":"a","value":{"_typeName":"int","_value":"4"}}]`), "config.extraConfig[0].value._value"},
		{"unknown box", "CreateVM_Task", config(`"extraConfig":[{"_typeName":"OptionValue","key":"a","value":{"_typeName":"text","_value":"4"}}]`), "config.extraConfig[0].value"},
		{"unknown device", "CreateVM_Task", device(`"_typeName":"VirtualCdRom","key":-1`), "config.deviceChange[0].device"},
		{"other kind of object", "CreateVM_Task", device(`"_typeName":"OptionValue","key":"a"`), "config.deviceChange[0].device"},
		{"unknown enum value", "CreateVM_Task", device(`"_typeName":"ParaVirtualSCSIController","key":-1,"busNumber":0,"sharedBus":"none"`), "config.deviceChange[0].device.sharedBus"},
		{"missing field", "CreateVM_Task", device(`"_typeName":"ParaVirtualSCSIController","key":-1,"busNumber":0`), "config.deviceChange[0].device.sharedBus"},
		{"reference of another type name", "CreateVM_Task", `{"config":{"_typeName":"VirtualMachineConfigSpec"},"pool":{"_typeName":"MoRef","type":"ResourcePool","value":"x"}}`, "pool"},
		{"options are required", "RetrievePropertiesEx", `{"specSet":[]}`, "options"},
	} {
		on := map[string]ref{"CreateVM_Task": l.find("/dc1/vm"), "RetrievePropertiesEx": propertyCollector}[c.method]
		a := l.http("POST", l.path(on, c.method), c.body)
		if a.status != 500 {
			t.Errorf("%s: accepted: %d %s", c.why, a.status, a.body)
			continue
		}
		f := a.object(t)
		if f["_typeName"] != "InvalidRequest" || !strings.Contains(string(a.body), c.field) {
			t.Errorf("%s: %s does not name %s", c.why, a.body, c.field)
		}
	}
	l.fault(l.find("/dc1/vm"), "CreateVm_Task", obj{}, "MethodNotFound")
	l.fault(l.find("/dc1/vm"), "PowerOnVM_Task", obj{}, "MethodNotFound")
}

// Bodies of vendor bindings must be accepted: the root's type name, a type name
// that is not first, and the schema's names of primitives.
func TestAcceptedBodies(t *testing.T) {
	l := loggedIn(t)
	body := `{"pool":{"value":"` + l.find("/dc1/host/cluster/Resources").Value + `","type":"ResourcePool","_typeName":"ManagedObjectReference"},
		"config":{"name":"node-1","files":{"vmPathName":"[ds-0]","_typeName":"VirtualMachineFileInfo"},
		"extraConfig":[{"key":"a","value":{"_value":"x","_typeName":"string"},"_typeName":"OptionValue"},
			{"_typeName":"OptionValue","key":"b","value":{"_typeName":"anyURI","_value":"http://x"}},
			{"_typeName":"OptionValue","key":"c","value":{"_typeName":"long","_value":5000000000}}],
		"_typeName":"VirtualMachineConfigSpec"},"_typeName":"CreateVMRequestType"}`
	l.done(l.http("POST", l.path(l.find("/dc1/vm"), "CreateVM_Task"), body))
	v := l.vm("node-1")
	if v.ExtraConfig["a"] != "x" || v.ExtraConfig["b"] != "http://x" || v.ExtraConfig["c"] != "5000000000" {
		t.Errorf("extraConfig: %v", v.ExtraConfig)
	}
	vm := vmRef(v.Moref)
	if a := l.http("POST", l.path(vm, "PowerOnVM_Task"), ""); a.status != 200 {
		t.Errorf("empty body: %d %s", a.status, a.body)
	}
}
