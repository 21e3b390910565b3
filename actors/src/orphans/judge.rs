//! Compares marked VMs with VsphereAgents: which VM has no record, and which recorded VM is missing. Pure.
//!
//! A marker names cluster, VsphereAgent (uid) and attempt. A VM with the mark of another cluster is ignored: two hubs may
//! share a vCenter.

use std::collections::{BTreeSet, HashMap, HashSet};

use agent_forge_crds::{
    agent::{VmStatus, VsphereAgent},
    pool::VsphereAgentPool,
};
use kube::ResourceExt;

use crate::{
    domain::{holds::VmMarks, identity::BiosUuid, names::MoRef, owner::restored_from, template},
    lifecycle::{self, End, OrphanVm, Policy, Unneeded},
    ports::vcenter::{MarkedVm, PowerState, VmObservation},
};

/// Why a marked VM has no owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No VsphereAgent has the marker's uid.
    NoRecord,
    /// Its VsphereAgent is at a later attempt: a create took effect late.
    Superseded,
    /// Its VsphereAgent is at an earlier attempt: the record is older than the VM (a hub restored from a backup).
    Ahead,
    /// Its VsphereAgent's VM is another one: a user cloned it.
    Copy,
}

impl Why {
    /// In words.
    #[must_use]
    pub const fn explain(self) -> &'static str {
        match self {
            Self::NoRecord => "no VsphereAgent has the uid in its mark",
            Self::Superseded => "its VsphereAgent has gone on to a later attempt",
            Self::Ahead => {
                "its VsphereAgent's record is older than the VM; was the hub restored from a backup?"
            }
            Self::Copy => "it is a copy of the VM of its VsphereAgent",
        }
    }
}

/// A marked VM without an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The VM.
    pub vm: MarkedVm,
    /// Why it has no owner.
    pub why: Why,
}

impl Orphan {
    /// It was never powered on: the operator sets the boot order before that.
    #[must_use]
    pub fn never_ran(&self) -> bool {
        never_ran(&self.vm)
    }
}

/// As [`Orphan::never_ran`].
#[must_use]
pub fn never_ran(vm: &MarkedVm) -> bool {
    vm.power == PowerState::Off && !vm.has_boot_order
}

fn recorded(child: &VsphereAgent) -> Option<&VmStatus> {
    child.status.as_ref()?.vm.as_ref()
}

/// The uids by which marks name the VsphereAgent: its own, and that of before its hub was restored.
fn uids(child: &VsphereAgent) -> impl Iterator<Item = &str> {
    let before = restored_from(child).map(|(uid, _)| uid);
    child.metadata.uid.as_deref().into_iter().chain(before)
}

/// The VMs without an owner.
#[must_use]
pub fn orphans<'a>(
    vms: &[MarkedVm],
    children: impl IntoIterator<Item = &'a VsphereAgent>,
    cluster_id: &str,
) -> Vec<Orphan> {
    let there: HashSet<&str> = vms.iter().map(|vm| vm.moref.id.as_str()).collect();
    let uids = |child: &'a VsphereAgent| uids(child).map(move |uid| (uid, child));
    let children: HashMap<&str, &VsphereAgent> = children.into_iter().flat_map(uids).collect();
    let mut found = Vec::new();
    for vm in vms.iter().filter(|vm| vm.marker.cluster_id == cluster_id) {
        let child = children.get(vm.marker.uid.as_str());
        let why = match child {
            None => Why::NoRecord,
            Some(child) => {
                let record = recorded(child);
                let attempt = record
                    .and_then(|r| r.attempt)
                    .and_then(|a| u32::try_from(a).ok())
                    .unwrap_or(0);
                let moref = record.and_then(|r| r.moref.as_deref());
                match attempt.cmp(&vm.marker.attempt) {
                    std::cmp::Ordering::Greater => Why::Superseded,
                    std::cmp::Ordering::Less => Why::Ahead,
                    std::cmp::Ordering::Equal => match moref {
                        Some(other) if other != vm.moref.id && there.contains(other) => Why::Copy,
                        _ => continue,
                    },
                }
            }
        };
        found.push(Orphan {
            vm: vm.clone(),
            why,
        });
    }
    found
}

/// References of recorded VMs that the list does not show, or does not show as recorded: running, with the marks of an
/// administrator, and with the recorded processors and memory. `children`: as they were before the list was read.
#[must_use]
pub fn missing_in_scan<'a>(
    server: &str,
    vms: &[MarkedVm],
    children: impl IntoIterator<Item = &'a VsphereAgent>,
) -> BTreeSet<String> {
    let on = vms.iter().filter(|vm| vm.power == PowerState::On);
    let on: HashMap<&str, &MarkedVm> = on.map(|vm| (vm.moref.id.as_str(), vm)).collect();
    let as_recorded = |vm: &VmStatus, moref: &str| {
        on.get(moref).is_some_and(|shown| {
            shown.marks == VmMarks::recorded(vm)
                && !template::is_news(vm, shown.num_cpus, shown.memory_mib)
        })
    };
    children
        .into_iter()
        .filter_map(recorded)
        // A VM of the predecessor has no mark before it is taken over.
        .filter(|vm| vm.attempt.is_some() && vm.server.as_deref() == Some(server))
        .filter(|vm| vm.power_state.as_deref() == Some(PowerState::On.as_str()))
        .filter_map(|vm| Some((vm, vm.moref.clone()?)))
        .filter(|(vm, moref)| !as_recorded(vm, moref))
        .map(|(_, moref)| moref)
        .collect()
}

/// Whether an orphan is removed without asking a user. All pools that could have made it must agree. Live proof is still
/// needed.
#[must_use]
pub fn may_go<'a>(
    orphan: &Orphan,
    known: &BTreeSet<MoRef>,
    pools: impl IntoIterator<Item = &'a VsphereAgentPool>,
) -> bool {
    let vm = Unneeded::Orphan(OrphanVm {
        is_ownerless: matches!(orphan.why, Why::NoRecord | Why::Superseded),
        never_ran: orphan.never_ran(),
        is_confirmed: known.contains(&orphan.vm.moref),
    });
    let removes = |pool: &VsphereAgentPool| {
        let policy = Policy::of(
            orphan.vm.marks.skip_delete,
            Some(pool.spec.cleanup_policy()),
        );
        lifecycle::end(vm, policy) == End::Remove
    };
    let mut home = pools
        .into_iter()
        .filter(|p| p.namespace().as_deref() == Some(&orphan.vm.marker.namespace))
        .peekable();
    home.peek().is_some() && home.all(removes)
}

/// Whether a new look shows the VM as the scan found it, and our own create made it. A VM of the predecessor also has our
/// marker after a takeover, and may run without a boot order. But its BIOS uuid does not follow from the marker.
#[must_use]
pub fn is_unchanged_and_ours(orphan: &Orphan, shown: &VmObservation) -> bool {
    let marker = &orphan.vm.marker;
    let made = BiosUuid::derive(&marker.cluster_id, &marker.uid, marker.attempt);
    shown.marker.as_ref() == Some(marker)
        && shown.power == orphan.vm.power
        && shown.boot_order.is_empty()
        && shown.bios_uuid == Some(made)
        // An administrator of vCenter keeps it, or pauses the work on it.
        && shown.marks == VmMarks::default()
}

/// Live proof: the VsphereAgent that the API server has now under that name is not this VM's owner.
#[must_use]
pub fn is_nobodys(orphan: &Orphan, live: Option<&VsphereAgent>) -> bool {
    let Some(live) = live.filter(|c| uids(c).any(|uid| uid == orphan.vm.marker.uid)) else {
        return orphan.why == Why::NoRecord;
    };
    let record = recorded(live);
    let later = record
        .and_then(|r| r.attempt)
        .and_then(|a| u32::try_from(a).ok())
        .is_some_and(|a| a > orphan.vm.marker.attempt);
    let its_own = record.and_then(|r| r.moref.as_deref()) == Some(&orphan.vm.moref.id);
    orphan.why == Why::Superseded && later && !its_own
}

#[cfg(test)]
mod tests;
