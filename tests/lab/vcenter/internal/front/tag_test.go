package front

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"testing"
)

func decodeList(a answer) ([]obj, error) {
	var out []obj
	err := json.Unmarshal(a.body, &out)
	return out, err
}

// rest makes a request to the Automation API.
func (l *lab) rest(method, path string, body any, want int) answer {
	l.t.Helper()
	a := l.http(method, "/api/"+path, body)
	if a.status != want {
		l.t.Fatalf("%s %s: %d, want %d: %s", method, path, a.status, want, a.body)
	}
	return a
}

func (l *lab) restLogin() {
	l.t.Helper()
	header := map[string][]string{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(testUser+":"+testPassword))}}
	a, err := l.send("POST", "/api/session", nil, header)
	if err != nil || a.status != 201 {
		l.t.Fatalf("session: %v %d %s", err, a.status, a.body)
	}
	l.session = unquote(a)
}

func TestTags(t *testing.T) {
	l := loggedIn(t)
	vm := l.made("node-1", "ds-0")
	vim := l.session
	known := l.inventory().Tags
	if len(known) != 2 || known[0].Name != "worker" || known[1].Name != "on-demand" || known[0].Category != "agent-forge" {
		t.Fatalf("tags: %+v", known)
	}
	attach := func(id string) string {
		return "cis/tagging/tag-association/" + url.PathEscape(id) + "?action=attach"
	}
	object := obj{"object_id": obj{"type": "VirtualMachine", "id": vm.Value}}
	// Another API needs another session.
	if a := l.rest("POST", attach(known[0].ID), object, 401).object(t); a["error_type"] != "UNAUTHENTICATED" {
		t.Errorf("error: %v", a)
	}
	wrong := map[string][]string{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(testUser+":no"))}}
	if a, _ := l.send("POST", "/api/session", nil, wrong); a.status != 401 {
		t.Errorf("wrong password: %d", a.status)
	}
	l.restLogin()
	l.rest("POST", attach(known[0].ID), object, 204)
	l.rest("POST", attach(known[0].ID), object, 204)
	if v := l.vm("node-1"); !slices.Equal(v.Tags, []string{known[0].ID}) {
		t.Errorf("tags: %v", v.Tags)
	}
	var ids []string
	a := l.rest("POST", "cis/tagging/tag-association?action=list-attached-tags", object, 200)
	if err := json.Unmarshal(a.body, &ids); err != nil || !slices.Equal(ids, []string{known[0].ID}) {
		t.Errorf("attached: %s", a.body)
	}
	if a := l.rest("POST", attach("urn:none"), object, 404).object(t); a["error_type"] != "NOT_FOUND" {
		t.Errorf("error: %v", a)
	}
	l.rest("POST", attach(known[0].ID), obj{"object_id": obj{"type": "VirtualMachine", "id": "vm-999"}}, 404)
	l.rest("POST", attach(known[0].ID), obj{"objectId": 1}, 400)

	category := obj{"name": "own", "description": "", "cardinality": "SINGLE", "associable_types": []string{"VirtualMachine"}}
	made := unquote(l.rest("POST", "cis/tagging/category", category, 201))
	if a := l.rest("POST", "cis/tagging/category", category, 400).object(t); a["error_type"] != "ALREADY_EXISTS" {
		t.Errorf("error: %v", a)
	}
	var own []string
	for i := range 2 {
		own = append(own, unquote(l.rest("POST", "cis/tagging/tag", obj{"name": fmt.Sprint("t", i), "description": "", "category_id": made}, 201)))
	}
	batch := l.rest("POST", "cis/tagging/tag-association?action=attach-multiple-tags-to-object", obj{
		"object_id": object["object_id"], "tag_ids": own,
	}, 200).object(t)
	if batch["success"] != false || len(batch["error_messages"].([]any)) != 1 {
		t.Errorf("a second tag of a SINGLE category: %v", batch)
	}
	onTags := must(decodeList(l.rest("POST", "cis/tagging/tag-association?action=list-attached-objects-on-tags", obj{"tag_ids": own[:1]}, 200)))
	if len(onTags) != 1 || len(onTags[0]["object_ids"].([]any)) != 1 {
		t.Errorf("objects: %v", onTags)
	}
	l.rest("POST", "cis/tagging/tag-association/"+url.PathEscape(known[0].ID)+"?action=detach", object, 204)
	if got := l.rest("GET", "cis/tagging/tag/"+url.PathEscape(own[0]), nil, 200).object(t); got["name"] != "t0" || got["category_id"] != made {
		t.Errorf("tag: %v", got)
	}
	l.rest("DELETE", "cis/tagging/tag/"+url.PathEscape(own[0]), nil, 204)
	l.admin("POST", "permissions", obj{"deny": []obj{{"privilege": tagPrivilege, "objectName": "node-1"}}}, nil)
	if a := l.rest("POST", attach(known[1].ID), object, 403).object(t); a["error_type"] != "UNAUTHORIZED" {
		t.Errorf("error: %v", a)
	}
	l.admin("POST", "faults", obj{"method": "POST /api/cis/tagging/tag-association/{tag_id}?action=attach", "at": "http", "status": 503, "count": 1}, nil)
	l.rest("POST", attach(known[0].ID), object, 503)
	l.rest("DELETE", "session", nil, 204)
	l.rest("GET", "session", nil, 401)
	l.session = vim
	l.done(l.call(vm, "Destroy_Task", nil))
	var calls callView
	l.admin("GET", "calls", nil, &calls)
	if calls.Logins["rest"] != 1 || calls.ByMethod["POST /api/session"] != 2 {
		t.Errorf("calls: %+v", calls)
	}
}
