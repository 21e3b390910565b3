//! Removes from watched objects what no decision reads. An Agent can have annotations of 60 kB and more.

use agent_forge_actors::domain::names::ObjectKey;
use agent_forge_crds::{
    external::agent::{
        AGENT_MACHINE_REF_NAMESPACE_ANNOTATION, Agent, SKIP_SPOKE_CLEANUP_ANNOTATION,
    },
    names::{CLEANUP_VM_ANNOTATION, RESERVED_FOR_ANNOTATION},
};
use kube::ResourceExt;

/// Drops managed fields.
pub fn managed_fields<K: ResourceExt>(object: &mut K) {
    object.managed_fields_mut().clear();
}

/// Annotations of an Agent that decisions read.
const READ: [&str; 4] = [
    AGENT_MACHINE_REF_NAMESPACE_ANNOTATION,
    CLEANUP_VM_ANNOTATION,
    RESERVED_FOR_ANNOTATION,
    SKIP_SPOKE_CLEANUP_ANNOTATION,
];

/// Drops an Agent's managed fields, and all annotations that no decision reads.
pub fn agent(agent: &mut Agent) {
    managed_fields(agent);
    agent
        .annotations_mut()
        .retain(|k, _| READ.contains(&k.as_str()));
}

/// Key of an object.
pub fn key<K: ResourceExt>(object: &K) -> ObjectKey {
    ObjectKey::of(object)
}
