//! Hosts that a release before 1.0 was moving to another pool when it ended.
//!
//! Such a release made a second VsphereAgent, recorded the VM there, and changed the VM's mark. Now the VsphereAgent itself moves. What
//! such a release began is ended as far as the mark goes: see [`crate::domain::reassign`].

use std::sync::Arc;

use agent_forge_crds::agent::VsphereAgent;

use crate::{
    domain::{
        index_keys::{IndexKey, IndexKeys},
        managed_vm::ManagedVm,
        reassign::Taking,
    },
    ports::cluster::View,
};

/// The VsphereAgent that has the VM of `child` on record to take it over, or has it by now. A record that came back from a backup has
/// another uid, and the same name and VM.
#[must_use]
pub fn taker(view: &dyn View, child: &ManagedVm) -> Option<ManagedVm> {
    let vm = child.identity.as_ref()?.bios_uuid;
    let attempt = child.vm()?.attempt.and_then(|a| u32::try_from(a).ok())?;
    let asking = view.children_asking(&IndexKeys::from([IndexKey::machine(vm)]));
    let takes = |c: &Arc<VsphereAgent>| {
        let vm = c.status.as_ref().and_then(|s| s.vm.as_ref());
        vm.is_some_and(|vm| vm.taken_from.is_some())
    };
    let mut all = asking.into_iter().filter(takes).map(ManagedVm::read);
    all.find(|other| {
        let source = other.taken_from.as_ref();
        let named = source.is_some_and(|s| s.key == child.key && s.attempt == attempt);
        let same = other.identity.as_ref().is_some_and(|i| i.bios_uuid == vm);
        named && same && matches!(other.taking(), Taking::Recorded | Taking::Done)
    })
}
