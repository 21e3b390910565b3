package front

import (
	"path"
	"reflect"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// object finds the object of r: first among the session's own objects, then in
// the inventory. The result is the managed object of the schema. The caller
// holds the lock of the world.
func (f *Front) object(s *session, r ref) (reflect.Value, bool) {
	if s != nil {
		switch o := s.objects[r].(type) {
		case *listView:
			return reflect.ValueOf(&o.ListView).Elem(), true
		case *containerView:
			o.refresh(f.world)
			return reflect.ValueOf(&o.ContainerView).Elem(), true
		case *collector:
			return reflect.ValueOf(&o.PropertyCollector).Elem(), true
		case *filter:
			return reflect.ValueOf(&o.PropertyFilter).Elem(), true
		}
	}
	obj := f.world.reg.Get(r)
	if obj == nil {
		return reflect.Value{}, false
	}
	if r.Type == "SessionManager" {
		return reflect.ValueOf(f.sessionManager(s, r)).Elem(), true
	}
	return managedObject(obj), true
}

func (f *Front) exists(s *session, r ref) bool {
	if s != nil && s.objects[r] != nil {
		return true
	}
	return f.world.reg.Get(r) != nil
}

// sessionManager is the session manager as s sees it.
func (f *Front) sessionManager(s *session, r ref) *mo.SessionManager {
	m := &mo.SessionManager{Self: r, DefaultLocale: "en", SupportedLocaleList: []string{"en"}, MessageLocaleList: []string{"en"}}
	if s != nil {
		u := userSession(s)
		m.CurrentSession = &u
		m.SessionList = []types.UserSession{u}
	}
	return m
}

func userSession(s *session) types.UserSession {
	return types.UserSession{
		Key: s.id, UserName: s.user, FullName: s.user, LoginTime: s.login, LastActiveTime: s.login,
		Locale: "en", MessageLocale: "en", UserAgent: s.agent, IpAddress: "127.0.0.1",
	}
}

// managedObject returns the schema's type in the simulator's wrappers, which is
// their first field.
func managedObject(obj mo.Reference) reflect.Value {
	v := reflect.ValueOf(obj).Elem()
	for path.Base(v.Type().PkgPath()) != "mo" {
		v = v.Field(0)
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
	}
	return v
}
