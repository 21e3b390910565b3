//! Reasons of Events. [`ALL`] lists exactly those that are ever sent.

/// Planned actions were carried out.
pub const PLAN_APPLIED: &str = "PlanApplied";
/// A planned action failed.
pub const APPLY_PLAN_FAILED: &str = "ApplyPlanFailed";
/// A new ISO is on the datastore. It was uploaded for this pool.
pub const ISO_UPLOADED: &str = "ISOUploaded";
/// The ISO was already there, or was uploaded for another pool.
pub const ISO_REUSED: &str = "ISOReused";
/// An old ISO could not be removed.
pub const ISO_PRUNE_FAILED: &str = "ISOPruneFailed";
/// An Agent was deleted.
pub const AGENT_DELETED: &str = "AgentDeleted";
/// The deletion of an Agent has to wait.
pub const AGENT_DELETE_DEFERRED: &str = "AgentDeleteDeferred";
/// The InfraEnv is missing or has no ISO.
pub const INFRA_ENV_UNAVAILABLE: &str = "InfraEnvUnavailable";
/// A VM was given up before it served. The note says why.
pub const VM_GIVEN_UP: &str = "VMGivenUp";
/// A VM whose Machine is gone begins another life.
pub const VM_RECYCLED: &str = "VMRecycled";
/// A host of the pool went to another pool of its group. The note says to which.
pub const HOST_LENT: &str = "HostLent";
/// The pool has got the host of another pool of its group. The note says from which.
pub const HOST_BORROWED: &str = "HostBorrowed";
/// A VM has our mark, but no VsphereAgent records it.
pub const ORPHAN_VM: &str = "OrphanVM";
/// Such a VM was destroyed. It was never powered on.
pub const ORPHAN_VM_DESTROYED: &str = "OrphanVMDestroyed";
/// A VsphereAgent names a pool that does not exist.
pub const POOL_NOT_FOUND: &str = "PoolNotFound";
/// An AgentMachine waits. The note says why.
pub const WAITING_FOR_HOST: &str = "WaitingForHost";
/// The host of a VM makes no progress or is gone. The note says why.
pub const HOST_TROUBLE: &str = "HostTrouble";
/// vCenter keeps refusing or failing an operation that a VM needs.
pub const VSPHERE_TROUBLE: &str = "VsphereTrouble";
/// Somebody has changed the hardware of a VM in vCenter. The note names each field.
pub const HARDWARE_DRIFT: &str = "HardwareDrift";
/// A VM that somebody had switched off was switched on (`spec.power: EnsureOn`).
pub const VM_SWITCHED_ON: &str = "VMSwitchedOn";
/// A VM whose guest booted the discovery ISO instead of its disk was reset.
pub const VM_RESET: &str = "VMReset";
/// Another process holds the predecessor's Lease, so the operator does not act.
pub const PREDECESSOR_ACTS: &str = "PredecessorActs";

/// All reasons.
pub const ALL: [&str; 22] = [
    PLAN_APPLIED,
    APPLY_PLAN_FAILED,
    ISO_UPLOADED,
    ISO_REUSED,
    ISO_PRUNE_FAILED,
    AGENT_DELETED,
    AGENT_DELETE_DEFERRED,
    INFRA_ENV_UNAVAILABLE,
    VM_GIVEN_UP,
    VM_RECYCLED,
    HOST_LENT,
    HOST_BORROWED,
    ORPHAN_VM,
    ORPHAN_VM_DESTROYED,
    POOL_NOT_FOUND,
    WAITING_FOR_HOST,
    HOST_TROUBLE,
    VSPHERE_TROUBLE,
    HARDWARE_DRIFT,
    VM_SWITCHED_ON,
    VM_RESET,
    PREDECESSOR_ACTS,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_predecessors_event_reasons_are_all_kept() {
        for reason in [
            "PlanApplied",
            "ApplyPlanFailed",
            "ISOUploaded",
            "ISOReused",
            "ISOPruneFailed",
            "AgentDeleted",
            "AgentDeleteDeferred",
            "InfraEnvUnavailable",
            "PoolNotFound",
        ] {
            assert!(ALL.contains(&reason), "{reason}");
        }
    }

    #[test]
    fn every_event_reason_stands_in_the_list_once() {
        let source = include_str!("event.rs").split("pub const ALL").next();
        let source = source.unwrap_or_default();
        let constants = source.matches("pub const ").count();
        let listed: BTreeSet<&str> = ALL.into();
        assert_eq!((listed.len(), ALL.len()), (constants, constants));
    }
}
