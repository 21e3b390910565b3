package front

import (
	"bytes"
	"testing"
)

func TestScreen(t *testing.T) {
	l := loggedIn(t)
	var made struct {
		Moref string `json:"moref"`
	}
	l.admin("POST", "vms", map[string]any{"name": "seen", "powerOn": true}, &made)
	look := func(header map[string][]string) answer {
		t.Helper()
		a, err := l.send("GET", "/screen?id="+made.Moref, nil, header)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := look(nil); a.status != 401 {
		t.Errorf("without a session: %d", a.status)
	}
	a := look(cookie(l.session))
	if a.status != 200 || !bytes.HasPrefix(a.body, []byte("\x89PNG")) {
		t.Errorf("%d: %q", a.status, a.body)
	}
	l.admin("POST", "permissions", map[string]any{"deny": []map[string]string{{"privilege": screenPrivilege, "objectName": "seen"}}}, nil)
	if a := look(cookie(l.session)); a.status != 403 {
		t.Errorf("without the privilege: %d", a.status)
	}
	l.admin("POST", "permissions", map[string]any{"deny": []any{}}, nil)
	l.admin("POST", "vms/"+made.Moref+"/power-off", map[string]any{}, nil)
	if a := look(cookie(l.session)); a.status != 404 {
		t.Errorf("of a VM that is off: %d", a.status)
	}
}
