//! Machine-readable reasons, one module for each place where they appear.

/// Reasons of conditions and of `status.waitingOn[]`.
pub mod reason {
    /// Ready of a pool: the last pass succeeded.
    pub const RECONCILED: &str = "Reconciled";
    /// AgentMachineDemandFound: AgentMachines were read and counted.
    pub const OBSERVED: &str = "Observed";
    /// InfraEnvAvailable: it offers a discovery ISO.
    pub const AVAILABLE: &str = "Available";
    /// CapacitySatisfied: no AgentMachine waits for a host.
    pub const SATISFIED: &str = "Satisfied";
    /// VsphereReady: no error is known.
    pub const READY: &str = "Ready";
    /// ISOReady: the ISO is in place.
    pub const ISO_READY: &str = "ISOReady";
    /// Ready of a VsphereAgent: its VM exists.
    pub const VM_CREATED: &str = "VMCreated";

    /// CapacitySatisfied: this number of hosts is missing and being created.
    pub const DEMAND_DEFICIT: &str = "DemandDeficit";
    /// The InfraEnv does not exist.
    pub const INFRA_ENV_NOT_FOUND: &str = "InfraEnvNotFound";
    /// The InfraEnv has no ISO URL yet.
    pub const ISO_URL_PENDING: &str = "ISOURLPending";
    /// `spec.clusterRef` of the InfraEnv is set. Its hosts are bound from the start, so no NodePool could have them.
    pub const LATE_BINDING_UNAVAILABLE: &str = "LateBindingUnavailable";
    /// The InfraEnv approves its Agents automatically, and some NodePool's selector requires no label. So nothing
    /// prevents that an Agent is chosen while its Machine is being deleted.
    pub const AUTO_APPROVE_DEFEATS_FENCE: &str = "AutoApproveDefeatsFence";
    /// Condition `ImageCreated` of the InfraEnv is False.
    pub const IMAGE_NOT_CREATED: &str = "ImageNotCreated";
    /// The ISO has another version than `spec.osImageVersion` of the InfraEnv.
    pub const ISO_STALE: &str = "ISOStale";
    /// The ISO on the datastore belongs to another InfraEnv than the pool's present one. No new VM uses it.
    pub const ISO_SOURCE_CHANGED: &str = "ISOSourceChanged";
    /// More than one Agent matches one VM. None of them is approved.
    pub const RIVAL_AGENTS: &str = "RivalAgents";
    /// An Agent matches a VM except for its MAC addresses, for example because the VM's network card was replaced.
    pub const MAC_DIFFERS: &str = "MacDiffers";
    /// An Agent matches a VM only in part. It is not approved. While it is bound, the VM is not deleted.
    pub const AGENT_UNPROVEN: &str = "AgentUnproven";
    /// The ISO is being downloaded and uploaded.
    pub const ISO_UPLOADING: &str = "ISOUploading";
    /// An AgentMachine waits but has no conditions: provider and CRD have different generations.
    pub const CONDITIONS_MISSING: &str = "ConditionsMissing";
    /// The provider's finalizer is missing: the provider does not accept the AgentMachine's owner.
    pub const PROVIDER_NOT_ACCEPTING: &str = "ProviderNotAccepting";
    /// An error prevents the provider from looking for an Agent, so the operator sees no demand.
    pub const AGENT_SEARCH_FAILED: &str = "AgentSearchFailed";
    /// The AgentMachine's owner Machine does not exist yet.
    pub const MACHINE_PENDING: &str = "MachinePending";
    /// Something changed recently. The operator waits a moment for other controllers before it acts.
    pub const DEBOUNCING: &str = "Debouncing";
    /// The NodePool, the control plane or the InfraEnv is in a namespace that does not admit pools from the pool's
    /// namespace. The message names the namespace and the missing annotation.
    pub const NAMESPACE_NOT_ALLOWED: &str = "NamespaceNotAllowed";
    /// The Agent of a VM of this pool serves an AgentMachine of another control plane. Its own AgentMachine gets
    /// another VM.
    pub const AGENT_ELSEWHERE: &str = "AgentElsewhere";
    /// The VsphereAgent's AgentMachine belongs to a NodePool that its pool no longer serves.
    pub const NODE_POOL_MOVED: &str = "NodePoolMoved";
    /// A VsphereAgent of another pool is for this AgentMachine. This pool creates a VM when that VsphereAgent is gone.
    pub const HOST_OF_ANOTHER_POOL: &str = "HostOfAnotherPool";
    /// Two pools claim the same AgentMachine. Neither acts.
    pub const POOL_CONFLICT: &str = "PoolConflict";
    /// No labels can match the AgentMachine's selector.
    pub const SELECTOR_UNSATISFIABLE: &str = "SelectorUnsatisfiable";
    /// A VM with that name exists and is not ours.
    pub const NAME_CONFLICT: &str = "NameConflict";
    /// The VsphereAgent's pool does not exist (any more).
    pub const POOL_NOT_FOUND: &str = "PoolNotFound";
    /// vCenter shows no configuration of a VM that may be ours: its datastore or host is unreachable.
    pub const VM_INACCESSIBLE: &str = "VMInaccessible";
    /// The VM's folder was deleted in vCenter.
    pub const VM_FOLDER_DELETED: &str = "VMFolderDeleted";
    /// The VM is suspended: its host has served, or vCenter does not power it off.
    pub const VM_SUSPENDED: &str = "VMSuspended";
    /// More than one VM has our mark, and none is the recorded one.
    pub const AMBIGUOUS_VM: &str = "AmbiguousVM";
    /// A field of the spec cannot be used. The message names it.
    pub const INVALID_SPEC: &str = "InvalidSpec";
    /// A vSphere object in the spec does not exist or is not visible to this user. The message names field and value.
    pub const VSPHERE_OBJECT_NOT_FOUND: &str = "VsphereObjectNotFound";
    /// The credentials Secret does not exist or does not have a required key. The message names it.
    pub const SECRET_NOT_FOUND: &str = "SecretNotFound";
    /// The credentials Secret is in a namespace that this pool may not use.
    pub const SECRET_NAMESPACE_REFUSED: &str = "SecretNamespaceRefused";
    /// vCenter refused user or password, or a value in the Secret cannot be used. The message names the key.
    pub const INVALID_CREDENTIALS: &str = "InvalidCredentials";
    /// The user does not have a required privilege. The message names privilege and object. The word is vCenter's own.
    pub const NO_PERMISSION: &str = "NoPermission";
    /// vCenter does not answer.
    pub const VCENTER_UNREACHABLE: &str = "VCenterUnreachable";
    /// vCenter's certificate is not trusted, and nothing was sent. The message says how to trust it.
    pub const UNTRUSTED_CERTIFICATE: &str = "UntrustedCertificate";
    /// Two logins of that user were refused recently, so none is tried for now. The message says when the next one is.
    pub const LOGIN_LIMITED: &str = "LoginLimited";
    /// The Secret names a server to which the operator does not connect. The message says why.
    pub const VCENTER_NOT_ALLOWED: &str = "VCenterNotAllowed";
    /// vCenter has too little room or capacity.
    pub const INSUFFICIENT_RESOURCES: &str = "InsufficientResources";
    /// A datastore is full.
    pub const NO_DISK_SPACE: &str = "NoDiskSpace";
    /// The highest number of VMs in a row was replaced. A person decides.
    pub const REPLACEMENTS_EXHAUSTED: &str = "ReplacementsExhausted";
    /// The CD-ROM drive of an installed host could not be emptied.
    pub const EJECT_FAILED: &str = "EjectFailed";
    /// ISOEjected: an ejection that the predecessor began is finished.
    pub const EJECTED: &str = "Ejected";
    /// A task on the VM does not end. It is our task, or another one that blocks ours. The message says where to look.
    pub const VM_BUSY: &str = "VMBusy";
    /// A VM was given up recently. The next one waits a while.
    pub const REPLACEMENT_RESTING: &str = "ReplacementResting";
    /// A tag could not be attached. The VM stays.
    pub const TAGGING_FAILED: &str = "TaggingFailed";
    /// The assisted service does not hear from the guest any more, and its Agent serves no Machine.
    pub const AGENT_DISCONNECTED: &str = "AgentDisconnected";
    /// Validations of an Agent without a Machine fail, so that it cannot be claimed. The message names them.
    pub const AGENT_VALIDATIONS_FAILING: &str = "AgentValidationsFailing";
    /// A reserved Agent is in a state that does not end by itself.
    pub const AGENT_STUCK: &str = "AgentStuck";
    /// The VM's Agent was registered and is gone.
    pub const AGENT_MISSING: &str = "AgentMissing";
    /// A person requested another VM, but the Agent of this one serves a Machine, or did.
    pub const REPLACE_REFUSED: &str = "ReplaceRefused";
    /// The Agent is bound to a Machine that still exists.
    pub const AGENT_BOUND: &str = "AgentBound";
    /// VsphereAgents still exist.
    pub const CHILDREN_REMAIN: &str = "ChildrenRemain";
    /// It could not be proven that the Machine is gone.
    pub const MACHINE_STATE_UNKNOWN: &str = "MachineStateUnknown";
    /// The Machine is gone, and its Agent was not seen unbound. The VM may be a node of another hub.
    pub const MACHINE_VANISHED_PAUSED: &str = "MachineVanishedPaused";
    /// `cleanupPolicy: Retain` keeps the VM.
    pub const RETAINED: &str = "Retained";
    /// There is no proof that the VM is ours. It is not changed.
    pub const OWNERSHIP_UNPROVEN: &str = "OwnershipUnproven";
    /// The recorded identity of the VM cannot be read. Nothing is done, so that no second VM is created.
    pub const RECORD_UNREADABLE: &str = "RecordUnreadable";
    /// `approve: false`: a person has to approve the Agent.
    pub const APPROVAL_REQUIRED: &str = "ApprovalRequired";
    /// The cluster's identity differs from the recorded one.
    pub const CLUSTER_ID_CHANGED: &str = "ClusterIDChanged";
    /// vCenter's answer cannot be read, or has no end.
    pub const VCENTER_REPLY_UNUSABLE: &str = "VCenterReplyUnusable";
    /// A broken invariant, or an answer of the API server that cannot be read.
    pub const INTERNAL_ERROR: &str = "InternalError";
}

/// Reasons of `status.vm.reason` and `status.ownedVMs[].reason`.
pub mod vm_reason {
    /// The VM was requested.
    pub const CREATE_REQUESTED: &str = "CreateRequested";
    /// The VM is not complete yet.
    pub const VM_CREATE_PENDING: &str = "VMCreatePending";
    /// The VM runs. Its Agent has not registered.
    pub const AGENT_NOT_DISCOVERED: &str = "AgentNotDiscovered";
    /// The Agent did not register in time.
    pub const AGENT_DISCOVERY_EXPIRED: &str = "AgentDiscoveryExpired";
    /// An Agent was recorded and is gone.
    pub const AGENT_MISSING: &str = "AgentMissing";
    /// The Agent has registered.
    pub const AGENT_AVAILABLE: &str = "AgentAvailable";
    /// The Agent has labels, role, hostname and approval.
    pub const AGENT_PREPARED: &str = "AgentPrepared";
    /// The Agent serves a Machine.
    pub const AGENT_BOUND: &str = "AgentBound";
    /// The Agent's Machine has freed it.
    pub const AGENT_RELEASED: &str = "AgentReleased";
    /// The Machine has a deletionTimestamp.
    pub const MACHINE_DELETING: &str = "MachineDeleting";
    /// The Machine is gone.
    pub const MACHINE_DELETED: &str = "MachineDeleted";
    /// The VM existed before, and no person has requested that the operator takes it over. It is not changed.
    pub const VM_ADOPTED: &str = "VMAdopted";
}

/// Types of `status.plannedActions[]`.
pub mod action {
    /// A host is missing and will be created.
    pub const DEMAND_DEFICIT: &str = "DemandDeficit";
    /// A VM will be destroyed.
    pub const DELETE_VM: &str = "DeleteVM";
    /// An Agent will be deleted.
    pub const DELETE_AGENT: &str = "DeleteAgent";
    /// An Agent will be prepared or fenced.
    pub const PATCH_AGENT: &str = "PatchAgent";
    /// There is nothing to do.
    pub const NOOP: &str = "Noop";
}

/// Reasons of Events. [`event::ALL`] lists exactly those that are ever sent.
pub mod event {
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
    /// A VM was given up because its Agent did not register in time.
    pub const VM_GIVEN_UP: &str = "VMGivenUp";
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
    /// Another process holds the predecessor's Lease, so the operator does not act.
    pub const PREDECESSOR_ACTS: &str = "PredecessorActs";

    /// All reasons.
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
