package front

import (
	"net/http"
	"strings"
	"testing"
)

func TestAnonymousReads(t *testing.T) {
	l := newLab(t)
	content := l.get(serviceInstance, "content")
	if content.status != 200 || content.object(t)["propertyCollector"].(obj)["value"] != "propertyCollector" {
		t.Errorf("content: %d %s", content.status, content.body)
	}
	if a := l.get(sessionManager, "currentSession"); a.status != 204 {
		t.Errorf("currentSession without a session: %d %s", a.status, a.body)
	}
	for _, a := range []answer{
		l.get(sessionManager, "sessionList"),
		l.get(ref{Type: "Folder", Value: "group-d1"}, "name"),
		l.http("POST", l.path(propertyCollector, "RetrievePropertiesEx"), obj{}),
		l.http("POST", l.path(searchIndex, "FindByInventoryPath"), obj{"inventoryPath": "/dc1"}),
	} {
		if f := a.object(t); a.status != 500 || f["_typeName"] != "NotAuthenticated" || f["privilegeId"] != "System.View" {
			t.Errorf("want NotAuthenticated: %d %s", a.status, a.body)
		}
	}
}

func TestLogin(t *testing.T) {
	l := newLab(t)
	l.fault(sessionManager, "Login", obj{"userName": testUser, "password": "wrong"}, "InvalidLogin")
	l.fault(sessionManager, "Login", obj{"userName": strings.ToUpper(testUser), "password": testPassword}, "InvalidLogin")
	l.login()
	current := l.get(sessionManager, "currentSession").object(t)
	if current["key"] != l.session || current["userName"] != testUser {
		t.Errorf("currentSession: %v", current)
	}
	l.fault(sessionManager, "Login", obj{"userName": testUser, "password": testPassword}, "InvalidLogin")

	var calls callView
	l.admin("GET", "calls", nil, &calls)
	if calls.Logins["vim"] != 1 || calls.Logins["rest"] != 0 || calls.Logins["refused"] != 3 || calls.ByMethod["Login"] != 4 || calls.ByMethod["GET currentSession"] != 1 {
		t.Errorf("calls: %+v", calls)
	}
	l.admin("DELETE", "calls", nil, nil)
	l.admin("POST", "password", obj{"password": "new"}, nil)
	l.get(sessionManager, "currentSession") // sessions survive a changed password
	l.call(sessionManager, "Logout", nil)
	l.session = ""
	l.fault(sessionManager, "Login", obj{"userName": testUser, "password": testPassword}, "InvalidLogin")
	l.call(sessionManager, "Login", obj{"userName": testUser, "password": "new"})
	l.admin("GET", "calls", nil, &calls)
	if calls.Total != 4 {
		t.Errorf("calls after reset: %+v", calls)
	}
}

func TestKilledSessionTakesItsObjectsAlong(t *testing.T) {
	l := loggedIn(t)
	view := l.refOf(l.call(viewManager, "CreateListView", obj{"obj": []obj{}}))
	pc := l.refOf(l.call(propertyCollector, "CreatePropertyCollector", nil))
	l.call(pc, "CreateFilter", obj{"spec": taskFilter(view), "partialUpdates": false})
	first := l.call(pc, "WaitForUpdatesEx", obj{"version": "", "options": waitOptions(0)}).object(t)
	ended := make(chan answer, 1)
	go func() {
		a, _ := l.send("POST", l.path(pc, "WaitForUpdatesEx"), obj{"version": first["version"], "options": waitOptions(30)}, nil)
		ended <- a
	}()
	l.untilWaiting(pc)
	l.admin("POST", "sessions/kill", obj{}, nil)
	if a := <-ended; a.object(t)["_typeName"] != "RequestCanceled" {
		t.Errorf("the wait ends with %s", a.body)
	}
	l.fault(view, "ModifyListView", obj{}, "NotAuthenticated")
	l.session = ""
	l.login()
	l.fault(view, "ModifyListView", obj{}, "ManagedObjectNotFound")
	l.fault(pc, "WaitForUpdatesEx", obj{"version": ""}, "ManagedObjectNotFound")
}

func TestReleases(t *testing.T) {
	for _, c := range []struct{ served, asked, want string }{
		{"8.0.3.0", "9.1.0.0 8.0.3.0 8.0.1.0", "8.0.3.0"},
		{"8.0.2.0", "9.1.0.0 8.0.3.0 8.0.2.0", "8.0.2.0"},
		{"9.1.0.0", "8.0.1.0 9.1.0.0", "8.0.1.0"},
		{"8.0.2.0", "9.1.0.0", ""},
	} {
		l := newLab(t, func(cfg *Config) { cfg.APIRelease = c.served })
		a := l.http("POST", "/api/vcenter/system?action=hello", obj{"api_releases": strings.Fields(c.asked)})
		if a.status != 200 || a.object(t)["api_release"] != c.want {
			t.Errorf("%s asked %s: %d %s", c.served, c.asked, a.status, a.body)
		}
	}
	l := newLab(t, func(cfg *Config) { cfg.APIRelease = "8.0.1.0" })
	if a := l.http("POST", "/api/vcenter/system?action=hello", obj{"api_releases": []string{"8.0.1.0"}}); a.status != 404 {
		t.Errorf("hello on 8.0U1: %d", a.status)
	}
	l.login()
	l.release = "8.0.2.0"
	if a := l.get(serviceInstance, "content"); a.status != 404 {
		t.Errorf("release beyond the served one: %d", a.status)
	}
	if a := l.http("POST", "/api/vcenter/system?action=hello", obj{"api_releases": []string{}}); a.status != http.StatusNotFound {
		t.Errorf("hello: %d", a.status)
	}
}
