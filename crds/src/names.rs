//! Names that objects in live clusters carry: group, finalizers, labels, annotations.
//!
//! They are a contract with stored objects and with the predecessor's users (design
//! `predecessor.md` §1); changing one orphans what carries it.

/// API group of both kinds.
pub const GROUP: &str = "agent-forge.containeroo.ch";
/// Version of both kinds.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of both kinds.
pub const API_VERSION: &str = "agent-forge.containeroo.ch/v1alpha1";

/// Finalizer on a `VsphereAgentPool`: stays until no child is left.
pub const POOL_FINALIZER: &str = "agent-forge.containeroo.ch/vsphere-agent-pool";
/// Finalizer on a `VsphereAgent`: stays until its VM is proven absent.
pub const AGENT_FINALIZER: &str = "agent-forge.containeroo.ch/vsphere-agent";
/// Start of the finalizer on a credentials Secret; the uid of the pool that needs it follows.
pub const CREDENTIALS_FINALIZER_PREFIX: &str = "agent-forge.containeroo.ch/pool-";

/// Label with the name of the pool, on a `VsphereAgent` and on an Agent prepared for it.
pub const POOL_LABEL: &str = "agent-forge.containeroo.ch/vsphere-agent-pool";
/// Label on a `VsphereAgent`: why it exists, [`CREATED_FOR_AGENT_MACHINE`] or [`CREATED_FOR_ADOPTED`].
pub const CREATED_FOR_LABEL: &str = "agent-forge.containeroo.ch/created-for";
/// Value of [`CREATED_FOR_LABEL`]: made for a waiting AgentMachine.
pub const CREATED_FOR_AGENT_MACHINE: &str = "agent-machine";
/// Value of [`CREATED_FOR_LABEL`]: recorded for a VM that was already there.
pub const CREATED_FOR_ADOPTED: &str = "adopted";
/// Selection pin: its value is an AgentMachine's name. It stands in that AgentMachine's
/// `spec.agentLabelSelector.matchLabels` and as a label on the Agent (and `VsphereAgent`) meant for it.
pub const AGENT_MACHINE_LABEL: &str = "agent-forge.containeroo.ch/agent-machine";
/// Label that tells pools of one selection apart; its value is the NodePool's name.
pub const NODE_POOL_LABEL: &str = "agent-forge.containeroo.ch/nodepool";
/// Role of the NodePool, on Agents. A convention of this operator, not of HyperShift
/// (`upstream-contract.md` §6.3).
pub const NODE_POOL_ROLE_LABEL: &str = "hypershift.openshift.io/nodepool-role";

/// Annotation on a `VsphereAgent`: name of its VM.
pub const VM_NAME_ANNOTATION: &str = "agent-forge.containeroo.ch/vm-name";
/// Annotation on an Agent, written by the predecessor beside `spec.approved=false` when it has decided to delete the VM of that name.
pub const CLEANUP_VM_ANNOTATION: &str = "agent-forge.containeroo.ch/cleanup-vm";
/// Annotation on a `VsphereAgentPool`: a new value asks for one more look at the ISO's bytes.
pub const FORCE_ISO_REFRESH_ANNOTATION: &str = "agent-forge.containeroo.ch/force-iso-refresh";

/// Annotation on a `VsphereAgent`: uid of the AgentMachine it is for. Ours; the predecessor kept the name only.
pub const AGENT_MACHINE_UID_ANNOTATION: &str = "agent-forge.containeroo.ch/agent-machine-uid";
/// Annotation on a `VsphereAgent`: name of the Machine that owns that AgentMachine.
pub const MACHINE_NAME_ANNOTATION: &str = "agent-forge.containeroo.ch/machine-name";
/// Annotation on a `VsphereAgent`: uid of that Machine.
pub const MACHINE_UID_ANNOTATION: &str = "agent-forge.containeroo.ch/machine-uid";
/// Annotation on a `VsphereAgent`, set by a person: the attempt (`status.vm.attempt`) whose VM is to be replaced, whatever
/// its guest looks like and however many were replaced before it. Refused where its Agent serves a Machine, or did.
pub const REPLACE_ANNOTATION: &str = "agent-forge.containeroo.ch/replace";
/// Annotation on a `VsphereAgent` with `created-for: adopted`, set by a person: `"true"` lets the operator take over the
/// VM that the predecessor recorded there, once its recorded BIOS UUID is confirmed at the pool's folder.
pub const ADOPT_ANNOTATION: &str = "agent-forge.containeroo.ch/adopt";
/// Annotation on a `VsphereAgent`, set by a person: `"true"` lets its deletion go on although its Agent is bound.
pub const FORCE_DELETE_ANNOTATION: &str = "agent-forge.containeroo.ch/force-delete";
/// Annotation on a Namespace or a Secret: namespaces whose pools may use what lies there, separated by commas; `*` means
/// all. What lies in a pool's own namespace needs no annotation.
pub const ALLOW_POOLS_FROM_ANNOTATION: &str = "agent-forge.containeroo.ch/allow-pools-from";
