//! Removes from watched objects what no decision reads. An Agent can have annotations of 60 kB and more.

use agent_forge_actors::domain::names::ObjectKey;
use agent_forge_crds::{
    external::agent::{
        AGENT_MACHINE_REF_NAMESPACE_ANNOTATION, Agent, INVENTORY_ANNOTATION,
        SKIP_SPOKE_CLEANUP_ANNOTATION,
    },
    names::{CLEANUP_VM_ANNOTATION, RESERVED_FOR_ANNOTATION},
};
use kube::ResourceExt;

/// Drops managed fields.
pub fn managed_fields<K: ResourceExt>(object: &mut K) {
    object.managed_fields_mut().clear();
}

/// Annotations of an Agent that decisions read.
const READ: [&str; 5] = [
    AGENT_MACHINE_REF_NAMESPACE_ANNOTATION,
    CLEANUP_VM_ANNOTATION,
    INVENTORY_ANNOTATION,
    RESERVED_FOR_ANNOTATION,
    SKIP_SPOKE_CLEANUP_ANNOTATION,
];

/// Drops an Agent's managed fields, and all annotations that no decision reads. Of the inventory its time is left.
pub fn agent(agent: &mut Agent) {
    managed_fields(agent);
    agent.trim_inventory();
    agent
        .annotations_mut()
        .retain(|k, _| READ.contains(&k.as_str()));
}

/// Key of an object.
pub fn key<K: ResourceExt>(object: &K) -> ObjectKey {
    ObjectKey::of(object)
}

#[cfg(test)]
mod tests {
    use super::*;

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
