package front

import "testing"

func TestRename(t *testing.T) {
	l := loggedIn(t)
	vm := l.made("node-1", "ds-0")
	l.made("node-2", "ds-0")
	l.failed(l.call(vm, "Rename_Task", obj{"newName": "node-2"}), "DuplicateName")
	l.done(l.call(vm, "Rename_Task", obj{"newName": "node-1"}))
	l.done(l.call(vm, "Rename_Task", obj{"newName": "node-3"}))
	if v := l.vm("node-3"); v.Moref != vm.Value {
		t.Errorf("renamed: %+v", v)
	}
}
