//! What the status of a VsphereAgent says of its VM. Pure.

use agent_forge_crds::{
    agent::{Failure, VmStatus, VsphereAgent},
    names::{ADOPT_ANNOTATION, CREATED_FOR_ADOPTED, CREATED_FOR_LABEL},
    pool::SOURCE_DISCOVERED_AGENT,
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt;

use super::{
    goal::Recorded,
    identity::{BiosUuid, BootSource, MacAddress, VmIdentity},
    names::ObjectKey,
};

/// The identity of a VM by its record, for the comparison with Agents.
#[must_use]
pub fn identity(vm: &VmStatus) -> Option<VmIdentity> {
    let bios_uuid = BiosUuid::parse(vm.bios_uuid.as_deref()?)?;
    let macs = vm.mac_addresses.iter();
    Some(VmIdentity {
        bios_uuid,
        macs: macs.filter_map(|m| MacAddress::parse(m)).collect(),
        infra_env: vm.infra_env_ref.as_ref().and_then(BootSource::read),
        first_powered_on: vm.first_powered_on.as_ref().map(|t| t.0),
    })
}

/// The namespace of its AgentMachine and Machine, as it was recorded. The place of an earlier AgentMachine does not apply to the
/// one that the VM was assigned to later.
pub(super) fn control_plane(
    vm: &VmStatus,
    agent_machine: Option<&Recorded>,
    machine: Option<&Recorded>,
) -> Option<String> {
    let still = |r: &&ObjectReference, now: Option<&Recorded>| {
        let uid = now.and_then(|now| now.uid.as_ref());
        let recorded = r.uid.as_ref().filter(|r| !r.is_empty());
        uid.is_none() || recorded.is_none() || recorded == uid
    };
    let of = |r: Option<&ObjectReference>, now| r.filter(|r| still(r, now))?.namespace.clone();
    of(vm.agent_machine_ref.as_ref(), agent_machine)
        .or_else(|| of(vm.machine_ref.as_ref(), machine))
        .filter(|n| !n.is_empty())
}

/// That identity does not follow from the uid of the object.
pub(super) fn is_reborn(object: &VsphereAgent, identity: Option<&VmIdentity>) -> bool {
    let Some((status, recorded)) = object.status.as_ref().zip(identity) else {
        return false;
    };
    let cluster_id = status.cluster_id.as_deref().unwrap_or_default();
    let attempt = status.vm.as_ref().and_then(|vm| vm.attempt);
    let attempt = attempt.and_then(|a| u32::try_from(a).ok());
    let uid = object.uid().unwrap_or_default();
    attempt.map(|a| BiosUuid::derive(cluster_id, &uid, a)) != Some(recorded.bios_uuid)
}

/// Whether the recorded VM is the one that was given up.
#[must_use]
pub fn is_given_up(vm: &VmStatus, failure: Option<&Failure>) -> bool {
    vm.bios_uuid.is_some()
        && vm.attempt.is_some()
        && failure.is_some_and(|f| f.attempt == vm.attempt)
}

/// How a VM came to the operator, and what that lets it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Custody {
    /// The operator, or the predecessor, made it.
    Made,
    /// Neither made it, and nobody asked to adopt it.
    LeftAlone,
    /// A person asks to adopt it, and it has no mark of ours yet.
    Asked,
    /// It was adopted, and is kept when its Machine goes.
    Retained,
    /// It was adopted, and a person said that it ends as any other VM of its pool.
    Owned,
}

/// How the VM of that VsphereAgent came to the operator.
pub(super) fn custody(object: &VsphereAgent) -> Custody {
    let vm = object.status.as_ref().and_then(|s| s.vm.as_ref());
    let source = vm.and_then(|vm| vm.source.as_deref());
    let label = object.labels().get(CREATED_FOR_LABEL).map(String::as_str);
    let asked = object
        .annotations()
        .get(ADOPT_ANNOTATION)
        .map(String::as_str);
    // Any sign is enough: a record that loses its status must not become that of a VM that the operator made.
    let by_others = label == Some(CREATED_FOR_ADOPTED) || asked.is_some();
    if source != Some(SOURCE_DISCOVERED_AGENT) && !by_others {
        return Custody::Made;
    }
    // An attempt is recorded after the mark is written.
    let marked = vm.is_some_and(|vm| vm.attempt.is_some());
    match asked {
        Some("true" | "own") if !marked => Custody::Asked,
        Some("true") => Custody::Retained,
        Some("own") => Custody::Owned,
        _ => Custody::LeftAlone,
    }
}

/// Where an Agent of that VM was last seen.
pub(super) fn agent(vm: &VmStatus) -> Option<ObjectKey> {
    let seen = vm.agent_ref.as_ref()?;
    let (namespace, name) = (seen.namespace.clone()?, seen.name.clone()?);
    let known = !namespace.is_empty() && !name.is_empty();
    known.then(|| ObjectKey::new(namespace, name))
}
