package front

import "testing"

func TestAdminReadsFiles(t *testing.T) {
	l := loggedIn(t)
	l.uploadISO()
	before := l.inventory().Version
	browser := l.refOf(l.get(l.find("/dc1/datastore/iso-datastore"), "browser"))
	l.done(l.call(browser, "SearchDatastore_Task", obj{"datastorePath": "[iso-datastore] iso"}))
	if now := l.inventory().Version; now != before {
		t.Errorf("a search is no change: version %d after %d", now, before)
	}
	path := "/_admin/datastores/iso-datastore/files/iso/discovery.iso"
	a, err := l.send("GET", path, nil, map[string][]string{"Range": {"bytes=0-9"}})
	if err != nil || a.status != 206 || len(a.body) != 10 {
		t.Errorf("range: %v %d %d bytes", err, a.status, len(a.body))
	}
	if a := l.http("GET", "/_admin/datastores/iso-datastore/files/none.iso", nil); a.status != 404 {
		t.Errorf("missing: %d", a.status)
	}
	if a := l.http("GET", "/_admin/datastores/nowhere/files/x", nil); a.status != 404 {
		t.Errorf("unknown datastore: %d", a.status)
	}
}
