//! Names in objects of live clusters: group, finalizers, labels, annotations.
//!
//! They are a contract with stored objects and with the predecessor's users. If one changes, the operator no longer
//! finds the objects that have the old name.

/// API group of both kinds.
pub const GROUP: &str = "agent-forge.containeroo.ch";
/// Version of both kinds.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of both kinds.
pub const API_VERSION: &str = "agent-forge.containeroo.ch/v1alpha1";
/// Second version of both kinds. Its schema is that of [`VERSION`], which is the one that is stored and that the operator
/// uses, so that the predecessor reads every object.
pub const NEXT_VERSION: &str = "v1beta1";

/// Finalizer on a `VsphereAgentPool`. It stays until no VsphereAgent is left.
pub const POOL_FINALIZER: &str = "agent-forge.containeroo.ch/vsphere-agent-pool";
/// Finalizer on a `VsphereAgent`. It stays until its VM is proven absent.
pub const AGENT_FINALIZER: &str = "agent-forge.containeroo.ch/vsphere-agent";
/// Finalizer on an `AgentForgeInstallerConfig`. It stays while a ByoHost names its Secret.
pub const INSTALLER_FINALIZER: &str = "agent-forge.containeroo.ch/installer-config";
/// Start of the finalizer on a credentials Secret. The uid of the pool that needs the Secret follows.
pub const CREDENTIALS_FINALIZER_PREFIX: &str = "agent-forge.containeroo.ch/pool-";

/// Label with the name of the pool, on a `VsphereAgent`.
pub const POOL_LABEL: &str = "agent-forge.containeroo.ch/vsphere-agent-pool";
/// Label on a `VsphereAgent` with the reason of its creation: [`CREATED_FOR_AGENT_MACHINE`], [`CREATED_FOR_BUFFER`] or
/// [`CREATED_FOR_ADOPTED`].
pub const CREATED_FOR_LABEL: &str = "agent-forge.containeroo.ch/created-for";
/// Value of [`CREATED_FOR_LABEL`]: created for a waiting AgentMachine.
pub const CREATED_FOR_AGENT_MACHINE: &str = "agent-machine";
/// Value of [`CREATED_FOR_LABEL`]: created for the buffer of its pool. It keeps this value when an AgentMachine gets it.
pub const CREATED_FOR_BUFFER: &str = "buffer";
/// Value of [`CREATED_FOR_LABEL`]: recorded for an existing VM.
pub const CREATED_FOR_ADOPTED: &str = "adopted";
/// Selection pin: its value is an AgentMachine's name. It is in that AgentMachine's
/// `spec.agentLabelSelector.matchLabels`, and a label on the Agent (and `VsphereAgent`) for it.
pub const AGENT_MACHINE_LABEL: &str = "agent-forge.containeroo.ch/agent-machine";
/// Label that distinguishes pools with the same selection. Its value is the NodePool's name.
pub const NODE_POOL_LABEL: &str = "agent-forge.containeroo.ch/nodepool";
/// Role of the NodePool, on Agents. It is a convention of this operator, not of HyperShift.
pub const NODE_POOL_ROLE_LABEL: &str = "hypershift.openshift.io/nodepool-role";

/// Annotation on a `VsphereAgent`: name of its VM.
pub const VM_NAME_ANNOTATION: &str = "agent-forge.containeroo.ch/vm-name";
/// Annotation on an Agent: the predecessor has decided to delete the VM with that name. It sets `spec.approved=false`
/// at the same time.
pub const CLEANUP_VM_ANNOTATION: &str = "agent-forge.containeroo.ch/cleanup-vm";
/// Annotation on an Agent: the Node labels and the class of OSAC that the operator set on it, as JSON. What it does not list is of
/// other people, and stays.
pub const APPLIED_ANNOTATION: &str = "agent-forge.containeroo.ch/applied";
/// Annotation on a `VsphereAgentPool`: a new value requests one more check of the ISO's bytes.
pub const FORCE_ISO_REFRESH_ANNOTATION: &str = "agent-forge.containeroo.ch/force-iso-refresh";

/// Annotation on a `VsphereAgent`: uid of its AgentMachine. It is a copy of `spec.goal`, as are the two of its Machine. The
/// predecessor stores only the name.
pub const AGENT_MACHINE_UID_ANNOTATION: &str = "agent-forge.containeroo.ch/agent-machine-uid";
/// Annotation of a VsphereAgent, written by releases without goals: its Machine is proven gone, and its VM is to begin that life, as `<attempt>/<life>`.
pub const RECYCLE_ANNOTATION: &str = "agent-forge.containeroo.ch/recycle";
/// Annotation of a VsphereAgent: the pool, as `<namespace>/<name>`, that a person gives the host to as soon as it is free.
pub const MOVE_TO_ANNOTATION: &str = "agent-forge.containeroo.ch/move-to";
/// Annotation of a VsphereAgent: until when [`MOVE_TO_ANNOTATION`] counts. RFC 3339.
pub const MOVE_UNTIL_ANNOTATION: &str = "agent-forge.containeroo.ch/move-until";
/// Annotation of a NodePool: uids of the Machines for which `agent-forge move` has lowered its replicas, separated by commas.
pub const MOVED_MACHINES_ANNOTATION: &str = "agent-forge.containeroo.ch/moved-machines";
/// Annotation of a VsphereAgent, written by releases without goals: the AgentMachines that its VM was for before in that life, as
/// `<attempt>/<life>/<uid>[,<uid>...]`. So what the VM says in vCenter of them is explained.
pub const OFFERED_TO_ANNOTATION: &str = "agent-forge.containeroo.ch/offered-to";
/// Annotation on a `VsphereAgent`: the VsphereAgent whose VM it takes over, as `<namespace>/<name>/<uid>/<attempt>`.
pub const TAKEN_FROM_ANNOTATION: &str = "agent-forge.containeroo.ch/taken-from";
/// Annotation on a `VsphereAgent`: name of the Machine that owns that AgentMachine.
pub const MACHINE_NAME_ANNOTATION: &str = "agent-forge.containeroo.ch/machine-name";
/// Annotation on a `VsphereAgent`: uid of that Machine.
pub const MACHINE_UID_ANNOTATION: &str = "agent-forge.containeroo.ch/machine-uid";
/// Annotation on a `VsphereAgent`, set by a person: the attempt (`status.vm.attempt`) whose VM must be replaced. The
/// state of its guest and the number of earlier replacements do not matter. Refused if its Agent serves a Machine, or
/// did. It counts for the life of the VM in which it was set.
pub const REPLACE_ANNOTATION: &str = "agent-forge.containeroo.ch/replace";
/// Annotation on a `VsphereAgent` for a VM that the operator did not make, set by a person. It has the label `created-for: adopted`, or
/// the predecessor's `source: DiscoveredAgent`. `"true"` lets the operator adopt the VM once its Agent and a mark in vCenter prove
/// it, and keep it when its Machine goes. With `"own"` the VM then ends as any other of its pool.
pub const ADOPT_ANNOTATION: &str = "agent-forge.containeroo.ch/adopt";
/// Annotation on a `VsphereAgent` of a restored hub, set by a person: the uid that it had before, and the attempt whose VM has that uid
/// in its mark, as `<uid>/<attempt>`. That VM is its own.
pub const RESTORED_FROM_ANNOTATION: &str = "agent-forge.containeroo.ch/restored-from";
/// Annotation on a `VsphereAgent`, set by a person: with `"true"` its deletion does not ask about Agent, Machine, node or
/// lost record. Without the deletion it has no effect.
pub const FORCE_DELETE_ANNOTATION: &str = "agent-forge.containeroo.ch/force-delete";
/// Annotation on a Namespace or a Secret: the namespaces whose pools may use it, separated by commas; `*` means all.
/// Objects in a pool's own namespace need no annotation.
pub const ALLOW_POOLS_FROM_ANNOTATION: &str = "agent-forge.containeroo.ch/allow-pools-from";
/// Annotation on a `VsphereAgentPool` or a `VsphereAgent`, set by a person: with `"true"` the operator changes nothing of it.
/// On a pool it also covers the ISO and all VMs of the pool.
pub const PAUSED_ANNOTATION: &str = "agent-forge.containeroo.ch/paused";
/// Annotation on a `VsphereAgent`, set by a person: with `"true"` its VM and its Agent stay when the VsphereAgent is deleted.
pub const SKIP_DELETE_ANNOTATION: &str = "agent-forge.containeroo.ch/skip-delete";
/// Start of an annotation on a `VsphereAgent`, or on a pool for all its VMs. The name of a holder follows, and the value is a
/// reason. While one stands, the VM is not removed.
pub const DELETE_CHECK_PREFIX: &str = "delete.check.agent-forge.containeroo.ch/";
/// As [`DELETE_CHECK_PREFIX`]: while one stands, the VM is not switched on.
pub const POWER_ON_CHECK_PREFIX: &str = "poweron.check.agent-forge.containeroo.ch/";
/// Annotation on an `AgentForgeInstallerConfig`, set by a person: the ByoHosts that are lost, as `<namespace>/<name>`, with commas
/// between. The end of the config waits for these hosts no longer.
pub const LOST_HOST_ANNOTATION: &str = "agent-forge.containeroo.ch/lost-host";
