//! Removes from watched objects what no decision reads. Each object may have 256 KiB of annotations.
//!
//! Of Machines, of what can pause, and of Namespaces a few facts are kept ([`machines`](super::machines),
//! [`pausables`](super::pausables), [`NamespaceGrant`](super::view::NamespaceGrant)). The types of the other kinds have only
//! the fields that are read, so here it is about metadata, and about the conditions of Agents. No write sends these objects
//! back: all patches name single keys.

use agent_forge_actors::domain::names::ObjectKey;
use agent_forge_crds::{
    external::{
        agent::{
            AGENT_MACHINE_REF_NAMESPACE_ANNOTATION, Agent, BOUND, CONNECTED,
            INHERITED_NODE_LABELS_ANNOTATION, INSTALLED, INVENTORY_ANNOTATION,
            SKIP_SPOKE_CLEANUP_ANNOTATION, SPEC_SYNCED, VALIDATED,
        },
        agent_machine::{NODE_POOL_ANNOTATION, PAUSED_ANNOTATION},
        byoh::K8S_VERSION_ANNOTATION,
    },
    names::GROUP,
};
use kube::ResourceExt;

/// Annotations of other services that decisions read.
const READ: [&str; 7] = [
    AGENT_MACHINE_REF_NAMESPACE_ANNOTATION,
    INHERITED_NODE_LABELS_ANNOTATION,
    INVENTORY_ANNOTATION,
    K8S_VERSION_ANNOTATION,
    NODE_POOL_ANNOTATION,
    PAUSED_ANNOTATION,
    SKIP_SPOKE_CLEANUP_ANNOTATION,
];

/// Conditions of Agents that decisions read. The sentence of one counts only while it is False.
const CONDITIONS: [&str; 5] = [BOUND, CONNECTED, INSTALLED, SPEC_SYNCED, VALIDATED];

/// Whether decisions read the annotation: it is one of [`READ`], or of our own domain or one below it, as vetoes are. Any
/// other one may hold whatever its author needed.
#[must_use]
pub fn is_read(annotation: &str) -> bool {
    let domain = annotation.split_once('/').map(|(domain, _)| domain);
    let above = domain.and_then(|domain| domain.strip_suffix(GROUP));
    above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
        || READ.contains(&annotation)
}

/// Drops managed fields, and all annotations that no decision reads.
pub fn metadata<K: ResourceExt>(object: &mut K) {
    object.managed_fields_mut().clear();
    object.annotations_mut().retain(|key, _| is_read(key));
}

/// As [`metadata`]. Of the inventory in an Agent's annotation its time is left, and of its conditions what is read.
pub fn agent(agent: &mut Agent) {
    agent.trim_inventory();
    if let Some(status) = &mut agent.status {
        let conditions = &mut status.conditions;
        conditions.retain(|c| CONDITIONS.contains(&c.type_.as_str()));
        for condition in conditions.iter_mut().filter(|c| !c.is_false()) {
            condition.message = None;
        }
    }
    metadata(agent);
    // A copy has no spare capacity where something was dropped.
    *agent = agent.clone();
}

/// Key of an object.
pub fn key<K: ResourceExt>(object: &K) -> ObjectKey {
    ObjectKey::of(object)
}

#[cfg(test)]
mod tests {
    use agent_forge_crds::{
        VsphereAgent, VsphereAgentPool,
        external::{ForeignCondition, agent_machine::AgentMachine, infra_env::InfraEnv},
        names,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

    use super::*;

    /// Largest size of all annotations of an object.
    const MOST: usize = 256 << 10;

    /// The annotations that code reads, by the constants through which it does.
    fn read() -> Vec<String> {
        let ours = [
            names::ADOPT_ANNOTATION,
            names::AGENT_MACHINE_UID_ANNOTATION,
            names::ALLOW_POOLS_FROM_ANNOTATION,
            names::APPLIED_ANNOTATION,
            names::CLEANUP_VM_ANNOTATION,
            names::FORCE_DELETE_ANNOTATION,
            names::FORCE_ISO_REFRESH_ANNOTATION,
            names::MACHINE_NAME_ANNOTATION,
            names::MACHINE_UID_ANNOTATION,
            names::OFFERED_TO_ANNOTATION,
            names::PAUSED_ANNOTATION,
            names::RECYCLE_ANNOTATION,
            names::REPLACE_ANNOTATION,
            names::SKIP_DELETE_ANNOTATION,
            names::TAKEN_FROM_ANNOTATION,
            names::VM_NAME_ANNOTATION,
        ];
        let vetoes = [names::DELETE_CHECK_PREFIX, names::POWER_ON_CHECK_PREFIX];
        let vetoes = vetoes.map(|prefix| format!("{prefix}backup"));
        let all = ours.iter().chain(&READ).map(|key| (*key).to_owned());
        all.chain(vetoes).collect()
    }

    /// Puts what is read and what is not on an object, trims it, and compares.
    fn keeps_what_is_read<K: ResourceExt>(mut object: K, trim: impl Fn(&mut K)) {
        for key in read() {
            // Valid for an inventory as well.
            let value = r#"{"timestamp":1}"#.to_owned();
            object.annotations_mut().insert(key, value);
        }
        let whole = object.annotations().clone();
        for foreign in [
            "kubectl.kubernetes.io/last-applied-configuration",
            "evilagent-forge.containeroo.ch/x",
            "agent-forge.containeroo.ch.evil.example/x",
            "agent-forge.containeroo.ch",
            "cluster.x-k8s.io/cloned-from-name",
            "of-others",
        ] {
            let value = "x".repeat(MOST);
            object.annotations_mut().insert(foreign.to_owned(), value);
        }
        let field = ManagedFieldsEntry {
            manager: Some("x".repeat(MOST)),
            ..ManagedFieldsEntry::default()
        };
        object.managed_fields_mut().push(field);
        trim(&mut object);
        assert_eq!(*object.annotations(), whole);
        assert!(object.managed_fields().is_empty());
    }

    #[test]
    fn each_kind_keeps_the_annotations_that_are_read_and_no_others() {
        keeps_what_is_read(VsphereAgentPool::default(), metadata);
        keeps_what_is_read(VsphereAgent::default(), metadata);
        keeps_what_is_read(AgentMachine::default(), metadata);
        keeps_what_is_read(InfraEnv::default(), metadata);
        keeps_what_is_read(Agent::default(), agent);
    }

    #[test]
    fn of_the_conditions_those_that_are_read_are_kept() {
        let condition = |type_: &str, status: &str| ForeignCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some("Why".to_owned()),
            message: Some("a sentence".to_owned()),
            ..ForeignCondition::default()
        };
        let mut object = Agent::default();
        let conditions = &mut object.status.get_or_insert_default().conditions;
        for type_ in [
            BOUND, "BMHReady", VALIDATED, "Cleanup", INSTALLED, CONNECTED,
        ] {
            conditions.push(condition(type_, "True"));
        }
        conditions.push(condition(SPEC_SYNCED, "False"));
        agent(&mut object);
        let kept = object.status.expect("a status").conditions;
        let types: Vec<&str> = kept.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(types, [BOUND, VALIDATED, INSTALLED, CONNECTED, SPEC_SYNCED]);
        for c in kept {
            assert_eq!(c.message.is_some(), c.is_false(), "{}", c.type_);
            assert!(c.reason.is_some());
        }
    }

    #[test]
    fn of_the_inventory_only_its_time_is_kept() {
        for (text, kept) in [
            (
                r#"{"disks":[],"timestamp":1795745032}"#,
                r#"{"timestamp":1795745032}"#,
            ),
            (r#"{"disks":[]}"#, ""),
            ("no JSON", ""),
            ("", ""),
        ] {
            let mut object = Agent::default();
            let annotations = object.annotations_mut();
            annotations.insert(INVENTORY_ANNOTATION.to_owned(), text.to_owned());
            annotations.insert("of-others".to_owned(), "x".repeat(60_000));
            let time = object.inventory_time();
            agent(&mut object);
            assert_eq!(object.annotations()[INVENTORY_ANNOTATION], kept, "{text}");
            assert_eq!(object.annotations().len(), 1);
            assert_eq!(object.inventory_time(), time, "{text}");
        }
        let mut object = Agent::default();
        agent(&mut object);
        assert!(object.annotations().is_empty(), "none is made");
    }
}
