//! How soon to check that the ISO's file is still there. A person may delete it, and VMs are made from the place in the
//! record. Pure.

use std::time::Duration;

use agent_forge_crds::{agent::VsphereAgent, conditions::Policy};

use crate::{domain::managed_vm::ManagedVm, runtime::backoff};

/// A create has failed because of a file, which may be this one: it is looked at unless the last look is newer than
/// this.
const MISSED: Duration = Duration::from_secs(20);
/// VMs are being made from it. If the file is missing, vCenter may make a VM with an empty drive and report no error.
const NEEDED: Duration = backoff::RESYNC;

/// The longest allowed time since the last look, by the state of the pool's VsphereAgents. `None`: no VM is being made.
#[must_use]
pub fn within(children: &[ManagedVm]) -> Option<Duration> {
    let making = children.iter().filter(|c| is_made_by_us(&c.object));
    let soon = |child: &ManagedVm| {
        let misses_a_file = child.obstacle().is_some_and(|o| o.has(Policy::File));
        if misses_a_file { MISSED } else { NEEDED }
    };
    making.map(soon).min()
}

/// Its VM is in the making. A record of the predecessor whose proof is still missing does not count: the operator never
/// makes that VM.
fn is_made_by_us(child: &VsphereAgent) -> bool {
    let vm = child.status.as_ref().and_then(|s| s.vm.as_ref());
    is_in_the_making(child) && vm.is_some_and(|vm| vm.attempt.is_some())
}

/// The record has the identity of its VM and no VM yet: the VM may be about to get an ISO into its drive.
#[must_use]
pub fn is_in_the_making(child: &VsphereAgent) -> bool {
    let vm = child.status.as_ref().and_then(|s| s.vm.as_ref());
    vm.is_some_and(|vm| vm.bios_uuid.is_some() && vm.moref.is_none())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent_forge_crds::conditions::Reason;

    use super::*;
    use crate::testing::{child, child_with_vm, intent, obstruct, with};

    fn making(waits: Reason) -> ManagedVm {
        let made = with(child("a"), |c| {
            let vm = intent(c, 1);
            c.status.get_or_insert_default().vm = Some(vm);
            obstruct(c, Some(waits));
        });
        ManagedVm::read(Arc::new(made))
    }

    #[test]
    fn a_file_is_needed_while_vms_are_made_and_at_once_where_one_is_missed() {
        let theirs = with(making(Reason::NoDiskSpace).object.as_ref().clone(), |c| {
            let vm = c.status.as_mut().and_then(|s| s.vm.as_mut());
            vm.expect("recorded").attempt = None;
        });
        let idle = || [child("b"), child_with_vm("c")].map(|c| ManagedVm::read(Arc::new(c)));
        let with_idle = |all: Vec<ManagedVm>| idle().into_iter().chain(all).collect::<Vec<_>>();
        let (full, missed) = (
            || making(Reason::NoDiskSpace),
            || making(Reason::FileNotFound),
        );
        for (what, children, wanted) in [
            ("no VsphereAgents", vec![], None),
            ("none whose VM is being made", with_idle(vec![]), None),
            (
                "one of the predecessor's",
                vec![ManagedVm::read(Arc::new(theirs))],
                None,
            ),
            ("one", with_idle(vec![full()]), Some(NEEDED)),
            (
                "one that misses a file",
                vec![full(), missed()],
                Some(MISSED),
            ),
            (
                "or may not read it",
                vec![making(Reason::FileLocked)],
                Some(MISSED),
            ),
        ] {
            assert_eq!(within(&children), wanted, "{what}");
        }
    }
}
