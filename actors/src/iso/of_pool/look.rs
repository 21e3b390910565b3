//! How soon it is looked whether the ISO's file is still there: somebody may delete it by hand, and VMs are made from where the
//! record says that it lies. Pure.

use std::time::Duration;

use agent_forge_crds::agent::VsphereAgent;

use crate::{domain::managed_vm::ManagedVm, runtime::backoff};

/// A create has failed over a file, which may be this one: it is looked at unless that was done so lately.
const MISSED: Duration = Duration::from_secs(20);
/// VMs are being made from it; vCenter may make one without a word, with an empty drive.
const NEEDED: Duration = backoff::RESYNC;

/// Reasons for which a VsphereAgent waits whose create failed over a file.
const OVER_A_FILE: [&str; 2] = ["FileNotFound", "FileLocked"];

/// How long ago the last look may be, by what the pool's VsphereAgents are about; `None`: no VM is being made.
#[must_use]
pub fn within(children: &[ManagedVm]) -> Option<Duration> {
    let making = children.iter().filter(|c| is_made_by_us(&c.object));
    let soon = |child: &ManagedVm| {
        if misses_a_file(&child.object) {
            MISSED
        } else {
            NEEDED
        }
    };
    making.map(soon).min()
}

/// Its VM is in the making, and not one that the predecessor recorded and whose proof is still to come: we never make that.
fn is_made_by_us(child: &VsphereAgent) -> bool {
    let vm = child.status.as_ref().and_then(|s| s.vm.as_ref());
    is_in_the_making(child) && vm.is_some_and(|vm| vm.attempt.is_some())
}

/// Its VM's identity is on record and no VM yet: it may be about to get an ISO into its drive.
#[must_use]
pub fn is_in_the_making(child: &VsphereAgent) -> bool {
    let vm = child.status.as_ref().and_then(|s| s.vm.as_ref());
    vm.is_some_and(|vm| vm.bios_uuid.is_some() && vm.moref.is_none())
}

fn misses_a_file(child: &VsphereAgent) -> bool {
    let mut waits = child.status.iter().flat_map(|s| &s.waiting_on);
    waits.any(|w| OVER_A_FILE.contains(&w.reason.as_str()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use agent_forge_crds::WaitingOn;

    use super::*;
    use crate::testing::{child, child_with_vm, intent, with};

    fn making(waits: &str) -> ManagedVm {
        let made = with(child("a"), |c| {
            let vm = intent(c, 1);
            let status = c.status.get_or_insert_default();
            status.vm = Some(vm);
            status.waiting_on = vec![WaitingOn {
                reason: waits.to_owned(),
                ..WaitingOn::default()
            }];
        });
        ManagedVm::read(Arc::new(made))
    }

    #[test]
    fn a_file_is_needed_while_vms_are_made_and_at_once_where_one_is_missed() {
        let theirs = with(making("NoDiskSpace").object.as_ref().clone(), |c| {
            let vm = c.status.as_mut().and_then(|s| s.vm.as_mut());
            vm.expect("recorded").attempt = None;
        });
        let idle = || [child("b"), child_with_vm("c")].map(|c| ManagedVm::read(Arc::new(c)));
        let with_idle = |all: Vec<ManagedVm>| idle().into_iter().chain(all).collect::<Vec<_>>();
        let (full, missed) = (|| making("NoDiskSpace"), || making("FileNotFound"));
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
                vec![making("FileLocked")],
                Some(MISSED),
            ),
        ] {
            assert_eq!(within(&children), wanted, "{what}");
        }
    }
}
