package front

import (
	"context"
	"encoding/json"
	"reflect"

	"github.com/vmware/govmomi/vim25/types"

	"agent-forge.containeroo.ch/lab/vcenter/internal/wire"
)

// call is one method call of the VI/JSON API.
type call struct {
	f       *Front
	s       *session // nil when anonymous
	ctx     context.Context
	agent   string
	release string
	this    ref
	method  string
	req     any
	// taskFault is the fault with which the started task must end.
	taskFault types.BaseMethodFault
	// opened is the session that a login opened.
	opened *session
}

func (c *call) user() string {
	if c.s == nil {
		return ""
	}
	return c.s.user
}

// method is a method that the front serves itself, on objects of one type.
type method struct {
	on    string // "" for any
	serve func(*call) (json.RawMessage, types.BaseMethodFault)
}

// methods are those that the front serves itself. The simulator serves the
// others.
var methods = map[string]method{
	"Login":                              {"SessionManager", (*call).login},
	"Logout":                             {"SessionManager", (*call).logout},
	"RetrieveServiceContent":             {"ServiceInstance", (*call).serviceContent},
	"CreateListView":                     {"ViewManager", (*call).createListView},
	"CreateContainerView":                {"ViewManager", (*call).createContainerView},
	"ModifyListView":                     {"ListView", (*call).modifyListView},
	"ResetListView":                      {"ListView", (*call).resetListView},
	"Rename_Task":                        {"", (*call).rename},
	"DestroyView":                        {"", (*call).destroyView},
	"Destroy_Task":                       {"", (*call).destroy},
	"RetrievePropertiesEx":               {"PropertyCollector", (*call).retrievePropertiesEx},
	"ContinueRetrievePropertiesEx":       {"PropertyCollector", (*call).continueRetrievePropertiesEx},
	"CancelRetrievePropertiesEx":         {"PropertyCollector", (*call).cancelRetrievePropertiesEx},
	"CreatePropertyCollector":            {"PropertyCollector", (*call).createPropertyCollector},
	"DestroyPropertyCollector":           {"PropertyCollector", (*call).destroyPropertyCollector},
	"CreateFilter":                       {"PropertyCollector", (*call).createFilter},
	"WaitForUpdatesEx":                   {"PropertyCollector", (*call).waitForUpdatesEx},
	"CancelWaitForUpdates":               {"PropertyCollector", (*call).cancelWaitForUpdates},
	"DestroyPropertyFilter":              {"PropertyFilter", (*call).destroyPropertyFilter},
	"HasUserPrivilegeOnEntities":         {"AuthorizationManager", (*call).hasUserPrivilege},
	"CancelTask":                         {"Task", (*call).cancelTask},
	"FindByInventoryPath":                {"SearchIndex", (*call).findByInventoryPath},
	"FindChild":                          {"SearchIndex", (*call).findChild},
	"FindAllByUuid":                      {"SearchIndex", (*call).findAllByUUID},
	"FindByUuid":                         {"SearchIndex", (*call).findByUUID},
	"CreateFolder":                       {"Folder", (*call).createFolder},
	"CreateVM_Task":                      {"Folder", (*call).createVM},
	"ReconfigVM_Task":                    {"VirtualMachine", (*call).reconfigVM},
	"AnswerVM":                           {"VirtualMachine", (*call).answerVM},
	"PowerOnVM_Task":                     {"VirtualMachine", (*call).powerOn},
	"PowerOffVM_Task":                    {"VirtualMachine", (*call).powerOff},
	"ResetVM_Task":                       {"VirtualMachine", (*call).reset},
	"MakeDirectory":                      {"FileManager", (*call).makeDirectory},
	"MoveDatastoreFile_Task":             {"FileManager", (*call).moveFile},
	"DeleteDatastoreFile_Task":           {"FileManager", (*call).deleteFile},
	"SearchDatastore_Task":               {"HostDatastoreBrowser", (*call).searchDatastore},
	"SearchDatastoreSubFolders_Task":     {"HostDatastoreBrowser", (*call).searchSubFolders},
	"RecommendDatastores":                {"StorageResourceManager", (*call).recommendDatastores},
	"ApplyStorageDrsRecommendation_Task": {"StorageResourceManager", (*call).applyRecommendation},
}

// anonymous methods need no session.
var anonymous = map[string]bool{"Login": true, "RetrieveServiceContent": true}

// unresolved methods accept references to objects that need not exist.
var unresolved = map[string]bool{
	"RetrievePropertiesEx": true, "CreateFilter": true,
	"CreateListView": true, "ModifyListView": true, "ResetListView": true,
}

// declared encodes a method's result.
func declared(v any) (json.RawMessage, types.BaseMethodFault) {
	raw, err := wire.Declared(v)
	if err != nil {
		return nil, systemError(err.Error())
	}
	return raw, nil
}

// refsExist finds the first reference in the request to something that does not
// exist. The caller holds the lock of the world.
func (c *call) refsExist(v reflect.Value) types.BaseMethodFault {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return c.refsExist(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			if fault := c.refsExist(v.Index(i)); fault != nil {
				return fault
			}
		}
	case reflect.Struct:
		if r, ok := v.Interface().(ref); ok {
			if !c.f.exists(c.s, r) {
				return &types.ManagedObjectNotFound{Obj: r}
			}
			return nil
		}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() || f.Name == "This" {
				continue
			}
			if fault := c.refsExist(v.Field(i)); fault != nil {
				return fault
			}
		}
	}
	return nil
}
