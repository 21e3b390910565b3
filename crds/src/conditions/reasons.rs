//! Machine-readable reasons, one module per place where they appear.

/// Reasons of conditions and of `status.waitingOn[]`.
pub mod reason {
    /// Ready of a pool: the last pass went through.
    pub const RECONCILED: &str = "Reconciled";
    /// AgentMachineDemandFound: AgentMachines were read and counted.
    pub const OBSERVED: &str = "Observed";
    /// InfraEnvAvailable: it offers a discovery ISO.
    pub const AVAILABLE: &str = "Available";
    /// CapacitySatisfied: nothing waits for a host.
    pub const SATISFIED: &str = "Satisfied";
    /// VsphereReady: no error is known.
    pub const READY: &str = "Ready";
    /// ISOReady: the ISO is in place.
    pub const ISO_READY: &str = "ISOReady";
    /// Ready of a VsphereAgent: its VM exists.
    pub const VM_CREATED: &str = "VMCreated";

    /// CapacitySatisfied: this many hosts are missing and being made.
    pub const DEMAND_DEFICIT: &str = "DemandDeficit";
    /// The InfraEnv does not exist.
    pub const INFRA_ENV_NOT_FOUND: &str = "InfraEnvNotFound";
    /// The InfraEnv has no ISO URL yet.
    pub const ISO_URL_PENDING: &str = "ISOURLPending";
    /// `spec.clusterRef` of the InfraEnv is set: its hosts are bound from the start, and no NodePool could have them.
    pub const LATE_BINDING_UNAVAILABLE: &str = "LateBindingUnavailable";
    /// The InfraEnv approves its Agents by itself, and somebody's selector asks for no label: nothing keeps an Agent from
    /// being chosen while its Machine goes.
    pub const AUTO_APPROVE_DEFEATS_FENCE: &str = "AutoApproveDefeatsFence";
    /// Condition `ImageCreated` of the InfraEnv is False.
    pub const IMAGE_NOT_CREATED: &str = "ImageNotCreated";
    /// The ISO is of another version than `spec.osImageVersion` of the InfraEnv asks for.
    pub const ISO_STALE: &str = "ISOStale";
    /// The ISO on the datastore is of another InfraEnv than the pool's is now; no new VM is made of it.
    pub const ISO_SOURCE_CHANGED: &str = "ISOSourceChanged";
    /// More than one Agent matches one VM; none of them is approved.
    pub const RIVAL_AGENTS: &str = "RivalAgents";
    /// An Agent matches a VM but for its MAC addresses, as after somebody replaced the VM's network card.
    pub const MAC_DIFFERS: &str = "MacDiffers";
    /// An Agent matches a VM only in part: it is not approved, and what it serves is nobody's to take away.
    pub const AGENT_UNPROVEN: &str = "AgentUnproven";
    /// The ISO is being fetched and uploaded.
    pub const ISO_UPLOADING: &str = "ISOUploading";
    /// An AgentMachine waits but carries no conditions: provider and CRD are of different
    /// generations (`upstream-contract.md` §0.13).
    pub const CONDITIONS_MISSING: &str = "ConditionsMissing";
    /// The provider's finalizer is missing: it does not accept the AgentMachine's owner
    /// (`upstream-contract.md` §0.14).
    pub const PROVIDER_NOT_ACCEPTING: &str = "ProviderNotAccepting";
    /// An error keeps the provider from looking for an Agent, so nobody asks us for one (`upstream-contract.md` §1.3).
    pub const AGENT_SEARCH_FAILED: &str = "AgentSearchFailed";
    /// The AgentMachine's owner Machine is not there yet.
    pub const MACHINE_PENDING: &str = "MachinePending";
    /// Recently changed; a moment is left to others before acting.
    pub const DEBOUNCING: &str = "Debouncing";
    /// The NodePool, the control plane or the InfraEnv lies in a namespace that admits no pools from the pool's own; the
    /// message names the namespace and the annotation that it lacks.
    pub const NAMESPACE_NOT_ALLOWED: &str = "NamespaceNotAllowed";
    /// The Agent of a VM of this pool serves an AgentMachine of another control plane; its own AgentMachine gets another VM.
    pub const AGENT_ELSEWHERE: &str = "AgentElsewhere";
    /// The VsphereAgent's AgentMachine belongs to a NodePool that its pool does not serve any more.
    pub const NODE_POOL_MOVED: &str = "NodePoolMoved";
    /// A VsphereAgent of another pool is for this AgentMachine; this pool makes a VM once that is gone.
    pub const HOST_OF_ANOTHER_POOL: &str = "HostOfAnotherPool";
    /// Two pools claim the same AgentMachine; neither acts.
    pub const POOL_CONFLICT: &str = "PoolConflict";
    /// The AgentMachine's selector cannot be met by labels.
    pub const SELECTOR_UNSATISFIABLE: &str = "SelectorUnsatisfiable";
    /// A VM of that name exists and is not ours.
    pub const NAME_CONFLICT: &str = "NameConflict";
    /// The VsphereAgent's pool does not exist (any more).
    pub const POOL_NOT_FOUND: &str = "PoolNotFound";
    /// vCenter shows no configuration of a VM that may be ours: its datastore or host is away.
    pub const VM_INACCESSIBLE: &str = "VMInaccessible";
    /// The VM's folder was deleted in vCenter.
    pub const VM_FOLDER_DELETED: &str = "VMFolderDeleted";
    /// The VM is suspended: that of a host that serves, or one that vCenter does not switch off.
    pub const VM_SUSPENDED: &str = "VMSuspended";
    /// More than one VM carries our marker and none is the recorded one.
    pub const AMBIGUOUS_VM: &str = "AmbiguousVM";
    /// A field of the spec cannot be used; the message names it.
    pub const INVALID_SPEC: &str = "InvalidSpec";
    /// A vSphere object named in the spec does not exist, or not for this user; the message names field and value.
    pub const VSPHERE_OBJECT_NOT_FOUND: &str = "VsphereObjectNotFound";
    /// The credentials Secret does not exist or lacks a key; the message names it.
    pub const SECRET_NOT_FOUND: &str = "SecretNotFound";
    /// The credentials Secret lies in a namespace that this pool may not use.
    pub const SECRET_NAMESPACE_REFUSED: &str = "SecretNamespaceRefused";
    /// vCenter refused user or password, or a value in the Secret cannot be used; the message names its key.
    pub const INVALID_CREDENTIALS: &str = "InvalidCredentials";
    /// The user lacks a privilege; the message names privilege and object. vCenter's own word.
    pub const NO_PERMISSION: &str = "NoPermission";
    /// vCenter does not answer.
    pub const VCENTER_UNREACHABLE: &str = "VCenterUnreachable";
    /// vCenter's certificate is not trusted, and nothing was sent; the message says how to trust it.
    pub const UNTRUSTED_CERTIFICATE: &str = "UntrustedCertificate";
    /// Two logins of that user were refused lately, so none is tried for now; the message says when the next one is.
    pub const LOGIN_LIMITED: &str = "LoginLimited";
    /// The Secret names a server that the operator does not connect to; the message says why.
    pub const VCENTER_NOT_ALLOWED: &str = "VCenterNotAllowed";
    /// vCenter has too little room or capacity.
    pub const INSUFFICIENT_RESOURCES: &str = "InsufficientResources";
    /// A datastore is full.
    pub const NO_DISK_SPACE: &str = "NoDiskSpace";
    /// As many VMs were replaced in a row as ever are; a person decides.
    pub const REPLACEMENTS_EXHAUSTED: &str = "ReplacementsExhausted";
    /// The CD-ROM drive of an installed host could not be emptied.
    pub const EJECT_FAILED: &str = "EjectFailed";
    /// ISOEjected: an ejection that the predecessor began is finished.
    pub const EJECTED: &str = "Ejected";
    /// A task on the VM does not end, ours or another that keeps ours away; the message says where to look.
    pub const VM_BUSY: &str = "VMBusy";
    /// A VM was given up lately; the next one waits a while.
    pub const REPLACEMENT_RESTING: &str = "ReplacementResting";
    /// A tag could not be attached; the VM stays.
    pub const TAGGING_FAILED: &str = "TaggingFailed";
    /// The service does not hear from the guest any more, and its Agent serves nobody.
    pub const AGENT_DISCONNECTED: &str = "AgentDisconnected";
    /// Validations of an Agent that serves nobody fail, so that nobody can claim it; the message names them.
    pub const AGENT_VALIDATIONS_FAILING: &str = "AgentValidationsFailing";
    /// A reserved Agent is in a state that does not end by itself.
    pub const AGENT_STUCK: &str = "AgentStuck";
    /// The VM's Agent was registered and is gone.
    pub const AGENT_MISSING: &str = "AgentMissing";
    /// A person asked for another VM, and the Agent of this one serves a Machine, or did.
    pub const REPLACE_REFUSED: &str = "ReplaceRefused";
    /// The Agent is bound to a Machine that still exists.
    pub const AGENT_BOUND: &str = "AgentBound";
    /// Children still exist.
    pub const CHILDREN_REMAIN: &str = "ChildrenRemain";
    /// It could not be proven that the Machine is gone.
    pub const MACHINE_STATE_UNKNOWN: &str = "MachineStateUnknown";
    /// The Machine went, and its Agent was not unbound: the VM may be a node of another hub.
    pub const MACHINE_VANISHED_PAUSED: &str = "MachineVanishedPaused";
    /// `cleanupPolicy: Retain` keeps the VM.
    pub const RETAINED: &str = "Retained";
    /// No proof that the VM is ours; it is left alone.
    pub const OWNERSHIP_UNPROVEN: &str = "OwnershipUnproven";
    /// The recorded identity of the VM cannot be read; nothing is done, so that nothing is made twice.
    pub const RECORD_UNREADABLE: &str = "RecordUnreadable";
    /// `approve: false`: a person has to approve the Agent.
    pub const APPROVAL_REQUIRED: &str = "ApprovalRequired";
    /// The cluster's identity differs from the recorded one.
    pub const CLUSTER_ID_CHANGED: &str = "ClusterIDChanged";
    /// vCenter's answer cannot be read, or has no end.
    pub const VCENTER_REPLY_UNUSABLE: &str = "VCenterReplyUnusable";
    /// A broken invariant or an answer of the API server's that cannot be read.
    pub const INTERNAL_ERROR: &str = "InternalError";
}

/// Reasons of `status.vm.reason` and `status.ownedVMs[].reason`.
pub mod vm_reason {
    /// The VM has been asked for.
    pub const CREATE_REQUESTED: &str = "CreateRequested";
    /// The VM is not complete yet.
    pub const VM_CREATE_PENDING: &str = "VMCreatePending";
    /// The VM runs; its Agent has not registered.
    pub const AGENT_NOT_DISCOVERED: &str = "AgentNotDiscovered";
    /// The Agent did not register in time.
    pub const AGENT_DISCOVERY_EXPIRED: &str = "AgentDiscoveryExpired";
    /// An Agent was recorded and is gone.
    pub const AGENT_MISSING: &str = "AgentMissing";
    /// The Agent has registered.
    pub const AGENT_AVAILABLE: &str = "AgentAvailable";
    /// The Agent carries labels, role, hostname and approval.
    pub const AGENT_PREPARED: &str = "AgentPrepared";
    /// The Agent serves a Machine.
    pub const AGENT_BOUND: &str = "AgentBound";
    /// The Agent was set free by its Machine.
    pub const AGENT_RELEASED: &str = "AgentReleased";
    /// The Machine has a deletionTimestamp.
    pub const MACHINE_DELETING: &str = "MachineDeleting";
    /// The Machine is gone.
    pub const MACHINE_DELETED: &str = "MachineDeleted";
    /// The VM existed before, and no person has asked for it to be taken over: it is left alone.
    pub const VM_ADOPTED: &str = "VMAdopted";
}

/// Types of `status.plannedActions[]`.
pub mod action {
    /// A host is missing and will be made.
    pub const DEMAND_DEFICIT: &str = "DemandDeficit";
    /// A VM will be destroyed.
    pub const DELETE_VM: &str = "DeleteVM";
    /// An Agent will be deleted.
    pub const DELETE_AGENT: &str = "DeleteAgent";
    /// An Agent will be prepared or fenced.
    pub const PATCH_AGENT: &str = "PatchAgent";
    /// Nothing is to do.
    pub const NOOP: &str = "Noop";
}

/// Reasons of Events. All that are ever sent, and only those, stand in [`event::ALL`].
pub mod event {
    /// Planned actions were carried out.
    pub const PLAN_APPLIED: &str = "PlanApplied";
    /// A planned action failed.
    pub const APPLY_PLAN_FAILED: &str = "ApplyPlanFailed";
    /// A new ISO lies on the datastore, uploaded for this pool.
    pub const ISO_UPLOADED: &str = "ISOUploaded";
    /// The ISO was already there, or was uploaded for another pool.
    pub const ISO_REUSED: &str = "ISOReused";
    /// An old ISO could not be removed.
    pub const ISO_PRUNE_FAILED: &str = "ISOPruneFailed";
    /// An Agent was deleted.
    pub const AGENT_DELETED: &str = "AgentDeleted";
    /// Deleting an Agent has to wait.
    pub const AGENT_DELETE_DEFERRED: &str = "AgentDeleteDeferred";
    /// The InfraEnv is missing or has no ISO.
    pub const INFRA_ENV_UNAVAILABLE: &str = "InfraEnvUnavailable";
    /// A VM was given up because its Agent did not register in time.
    pub const VM_GIVEN_UP: &str = "VMGivenUp";
    /// A VM carries our marker, and no VsphereAgent is for it.
    pub const ORPHAN_VM: &str = "OrphanVM";
    /// Such a VM, which was never switched on, was destroyed.
    pub const ORPHAN_VM_DESTROYED: &str = "OrphanVMDestroyed";
    /// A VsphereAgent names a pool that does not exist.
    pub const POOL_NOT_FOUND: &str = "PoolNotFound";
    /// An AgentMachine waits, and why.
    pub const WAITING_FOR_HOST: &str = "WaitingForHost";
    /// The host of a VM does not get on, or is not there any more, and why.
    pub const HOST_TROUBLE: &str = "HostTrouble";
    /// vCenter refuses or fails what a VM needs, and does not stop.
    pub const VSPHERE_TROUBLE: &str = "VsphereTrouble";
    /// The predecessor's Lease is held by somebody else, so that the operator does not act.
    pub const PREDECESSOR_ACTS: &str = "PredecessorActs";

    /// Every one.
    pub const ALL: [&str; 16] = [
        PLAN_APPLIED,
        APPLY_PLAN_FAILED,
        ISO_UPLOADED,
        ISO_REUSED,
        ISO_PRUNE_FAILED,
        AGENT_DELETED,
        AGENT_DELETE_DEFERRED,
        INFRA_ENV_UNAVAILABLE,
        VM_GIVEN_UP,
        ORPHAN_VM,
        ORPHAN_VM_DESTROYED,
        POOL_NOT_FOUND,
        WAITING_FOR_HOST,
        HOST_TROUBLE,
        VSPHERE_TROUBLE,
        PREDECESSOR_ACTS,
    ];
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::event;

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
            assert!(event::ALL.contains(&reason), "{reason}");
        }
    }

    #[test]
    fn every_event_reason_stands_in_the_list_once() {
        let (_, source) = include_str!("reasons.rs")
            .split_once("pub mod event {")
            .unwrap_or_default();
        let (source, _) = source.split_once("pub const ALL").unwrap_or_default();
        let constants = source.matches("pub const ").count();
        let listed: BTreeSet<&str> = event::ALL.into();
        assert_eq!((listed.len(), event::ALL.len()), (constants, constants));
    }
}
