//! Proves that a VM is the one that a record of the predecessor names. Pure.

use agent_forge_crds::agent::VmStatus;

use super::notes::Notes;
use crate::{
    domain::{marker::Marker, names::MoRef},
    ports::vcenter::VmObservation,
};

/// Whether a record of the predecessor is true. Such a record has a BIOS uuid and no marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The record is true of this VM.
    Proven(Box<VmObservation>),
    /// No VM has that uuid.
    Absent,
    /// A VM has the uuid, and nothing proves that it is the recorded VM.
    None(String),
}

/// What the predecessor recorded of its VM.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// Name of the VM.
    pub name: &'a str,
    /// The pool's folder.
    pub folder: &'a MoRef,
    /// The mark that it is to get.
    pub marker: &'a Marker,
    /// `status.vm.ownerUID`: the owner that its notes name.
    pub owner: Option<&'a str>,
}

/// Proves the VM of a predecessor's record. There must be exactly one VM with the recorded uuid, and its notes must
/// name this VsphereAgent. If the predecessor had not written notes yet, and recorded none, the VM must have the
/// recorded name in the pool's folder. A VM that carries another object's mark or notes is never accepted.
#[must_use]
pub fn prove(found: Vec<VmObservation>, claim: &Claim<'_>) -> Proof {
    let told = |vm: &VmObservation| format!("{} ({})", vm.name, vm.moref.id);
    let fits = |vm: &VmObservation| {
        let unclaimed = vm.marker.as_ref();
        let unclaimed = unclaimed.is_none_or(|m| m.same_owner(claim.marker));
        let is_there = vm.name == claim.name && vm.folder.as_ref() == Some(claim.folder);
        let noted = match Notes::read(&vm.annotation) {
            Notes::OfAgent(uid) => uid == claim.marker.uid,
            // A person may have changed the notes since. A record of release 1.1.0 says that the notes were written.
            Notes::Empty | Notes::Other => claim.owner.is_none() && is_there,
        };
        unclaimed && noted
    };
    match found.as_slice() {
        [] => Proof::Absent,
        [one] if fits(one) && one.shows_config() => Proof::Proven(Box::new(one.clone())),
        several => Proof::None(several.iter().map(told).collect::<Vec<_>>().join(", ")),
    }
}

/// Why the VM of a record can never be proven: the predecessor made it and did not record its uuid. `None` if it can be.
#[must_use]
pub fn impossible(vm: &VmStatus) -> Option<String> {
    let is_incomplete = vm.bios_uuid.is_none() && vm.attempt.is_none() && vm.owner_uid.is_some();
    is_incomplete.then(|| {
        format!(
            "the predecessor made VM {} and did not record its uuid: nothing is made beside it and nothing is removed; \
             write its BIOS UUID to status.vm.biosUUID, or remove the VM by hand and delete the VsphereAgent with the \
             annotation agent-forge.containeroo.ch/force-delete=true",
            vm.name
        )
    })
}
