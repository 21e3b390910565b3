package front

import (
	"reflect"

	"github.com/vmware/govmomi/vim25/types"
)

func systemError(reason string) types.BaseMethodFault {
	return &types.SystemError{Reason: reason}
}

func invalidRequest(message string) types.BaseMethodFault {
	return withMessage(&types.InvalidRequest{}, "vmodl.fault.InvalidRequest", message)
}

func invalidArgument(property string) types.BaseMethodFault {
	return &types.InvalidArgument{InvalidProperty: property}
}

func notAuthenticated(object ref, privilege string) types.BaseMethodFault {
	return &types.NotAuthenticated{NoPermission: types.NoPermission{Object: &object, PrivilegeId: privilege}}
}

// withMessage adds a readable text to a fault.
func withMessage(fault types.BaseMethodFault, key, message string) types.BaseMethodFault {
	m := fault.GetMethodFault()
	m.FaultMessage = append(m.FaultMessage, types.LocalizableMessage{Key: key, Message: message})
	return fault
}

// faultName is the name of a fault in the protocol.
func faultName(fault types.BaseMethodFault) string {
	return reflect.TypeOf(fault).Elem().Name()
}
