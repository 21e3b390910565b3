//! What a VM says in vCenter of whom it may serve, and what its record knows of that.

use std::sync::Arc;

use agent_forge_crds::{
    agent::{DiskStatus, VmStatus, VsphereAgent},
    pool::ReleasedDisk,
};

use super::*;
use crate::{
    pool::act,
    testing::{self, agent_machine, buffered, child_with_vm, machine, with},
};

fn mark(machine: &str) -> MayServe {
    MayServe {
        life: 1,
        machine: Some(machine.to_owned()),
    }
}

fn vm_of(child: &mut VsphereAgent) -> &mut VmStatus {
    let status = child.status.as_mut().expect("a status");
    status.vm.as_mut().expect("a VM")
}

fn read(child: &VsphereAgent) -> ManagedVm {
    ManagedVm::read(Arc::new(child.clone()))
}

/// The pool gives the VM of `a` to AgentMachine `b`.
fn reassigned() -> VsphereAgent {
    with(child_with_vm("a"), |c| {
        let patch = act::reassignment(&read(c), &agent_machine("b"), Some(&machine("b")));
        testing::patch(c, &patch);
    })
}

/// The mark of the AgentMachine before is explained, but it is not that of the present one: its Agent is not prepared yet.
#[test]
fn a_vm_is_marked_only_for_the_agent_machine_that_is_to_have_it() {
    let mut child = child_with_vm("a");
    assert!(read(&child).is_marked(), "from birth");
    child = reassigned();
    let before = read(&child);
    assert!(!before.is_marked());
    assert!(!before.forgets(&mark("am-a")) && !before.is_outdated());
    vm_of(&mut child).may_serve = Some(mark("am-b").to_string());
    assert!(read(&child).is_marked());
    // Of another life.
    vm_of(&mut child).generation = Some(2);
    assert!(!read(&child).is_marked());
}

/// A record of the predecessor has the name alone until the uid is found.
#[test]
fn a_mark_with_the_name_of_the_agent_machine_counts_as_well() {
    let named = with(child_with_vm("a"), |c| {
        vm_of(c).may_serve = Some(mark("a").to_string());
    });
    assert!(read(&named).is_marked());
}

/// A host of the buffer whose Agent was bound in its first life. A record from before a later binding has seen another one bound.
#[test]
fn a_binding_is_explained_only_by_the_record_that_has_its_mark() {
    let bound = mark(MayServe::BOUND);
    let served = with(buffered("a"), |c| vm_of(c).served = Some(true));
    assert!(read(&served).forgets(&bound));
    let first = with(served.clone(), |c| {
        vm_of(c).may_serve = Some(mark("am-a").to_string());
    });
    assert!(read(&first).forgets(&bound));
    let recorded = with(served, |c| vm_of(c).may_serve = Some(bound.to_string()));
    let recorded = read(&recorded);
    assert!(!recorded.forgets(&bound) && !recorded.is_outdated());
    let never = with(buffered("a"), |c| {
        vm_of(c).may_serve = Some(bound.to_string());
    });
    assert!(read(&never).forgets(&bound), "nothing was ever bound");
}

/// What an older release made ready does not say what became of its disk.
#[test]
fn a_disk_has_old_data_unless_it_is_known_to_be_new() {
    let first = buffered("a");
    let second = |handling: Option<ReleasedDisk>| {
        with(first.clone(), |c| {
            vm_of(c).generation = Some(2);
            vm_of(c).disk = handling.map(|handling| DiskStatus {
                generation: 2,
                handling: Some(handling),
                data_of: None,
            });
        })
    };
    for (child, expected) in [
        (first.clone(), false),
        (second(Some(ReleasedDisk::Replace)), false),
        (second(Some(ReleasedDisk::Keep)), true),
        (second(None), true),
    ] {
        assert_eq!(read(&child).has_old_data(), expected);
    }
}
