package front

import (
	"testing"
)

func TestHiddenVM(t *testing.T) {
	l := loggedIn(t)
	id := "423e36c8-723d-2b24-8590-0eb1d9180aa2"
	var made struct{ Moref string }
	l.admin("POST", "vms", obj{"name": "away", "uuid": id, "powerOn": true}, &made)
	vm := ref{Type: "VirtualMachine", Value: made.Moref}
	find := func() string {
		return string(l.call(ref{Type: "SearchIndex", Value: "SearchIndex"}, "FindAllByUuid", obj{"uuid": id, "vmSearch": true}).body)
	}
	shown := find()
	l.admin("POST", "vms/"+made.Moref+"/hide", nil, nil)
	if a := l.get(vm, "config"); len(a.body) > 0 && string(a.body) != "null" {
		t.Errorf("config of a hidden VM: %s", a.body)
	}
	if hidden := find(); hidden == shown {
		t.Errorf("a search finds a hidden VM: %s", hidden)
	}
	l.admin("POST", "vms/"+made.Moref+"/show", nil, nil)
	if again := find(); again != shown {
		t.Errorf("shown again: %s instead of %s", again, shown)
	}
	l.admin("POST", "vms/"+made.Moref+"/suspend", nil, nil)
	l.done(l.call(vm, "PowerOffVM_Task", obj{}))
}

func TestDeletedFolder(t *testing.T) {
	l := loggedIn(t)
	l.admin("POST", "vms", obj{"name": "in-it", "folder": "gone", "powerOn": true}, nil)
	folder := l.find("/dc1/vm/gone")
	l.admin("POST", "folders/delete", obj{"folder": "gone"}, nil)
	if a := l.get(folder, "name"); a.status != 500 {
		t.Errorf("a deleted folder: %d %s", a.status, a.body)
	}
}
