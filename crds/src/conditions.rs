//! Words in the status: condition types and reasons, phases and reasons of a VM, planned actions, reasons of Events. A
//! condition list is only written with [`set_condition`].
//!
//! Words that users or their alerts know from the predecessor are kept exactly. [`Reason`] and [`event`] add words
//! for situations that had none.

pub mod action;
pub mod event;
mod phase;
mod reason;
mod set;
mod words;

pub use phase::Phase;
pub use reason::{About, Class, Policy, Reason, Section, Who};
pub use set::{
    ConditionStatus, ConditionUpdate, find_condition, is_true, remove_condition, set_condition,
};

/// On both kinds: everything that was requested exists, or the reason why not.
pub const READY: &str = "Ready";
/// On a pool: AgentMachines of its NodePool could be read and counted.
pub const AGENT_MACHINE_DEMAND_FOUND: &str = "AgentMachineDemandFound";
/// On a pool: the InfraEnv exists and offers a discovery ISO.
pub const INFRA_ENV_AVAILABLE: &str = "InfraEnvAvailable";
/// On a pool: no AgentMachine waits for a host that does not exist yet.
pub const CAPACITY_SATISFIED: &str = "CapacitySatisfied";
/// On a pool: vCenter answers, the credentials work, and no name in `spec.vsphere` is known to be missing. Most names are
/// looked up when the first VM is placed.
pub const VSPHERE_READY: &str = "VsphereReady";
/// On a pool: the complete discovery ISO is on the ISO datastore.
pub const ISO_READY: &str = "ISOReady";

/// On a VsphereAgent: the drive was emptied. Releases of the predecessor after 1.1.0 write it while they empty a drive.
/// This operator writes it only when it finishes such an ejection.
pub const ISO_EJECTED: &str = "ISOEjected";

/// On both kinds, while it lasts: somebody has paused the object, or something that it belongs to. `False` if a value that
/// should pause it means nothing.
pub const PAUSED: &str = "Paused";
/// On a VsphereAgent, while there is one: steps that failed and stop nothing else. The message lists each.
pub const STEPS_FAILED: &str = "StepsFailed";
/// On a VsphereAgent, once its VM is made: the VM has the hardware that it was made with, and the pool still wants that.
/// `Unknown` if it is not recorded what the VM was made with.
pub const CONFIG_SYNCED: &str = "ConfigSynced";
/// On both kinds, while it lasts: `spec.dryRun` of the pool or `--dry-run`. Nothing is changed except the status.
pub const DRY_RUN: &str = "DryRun";
/// On both kinds, while they stand: annotations forbid that VMs are removed, or switched on.
pub const VETOED: &str = "Vetoed";
/// On both kinds, while it lasts: a namespace has more objects than the operator keeps in memory, so a part is unknown.
pub const OVERFULL: &str = "Overfull";

/// On a pool with `spec.nodeCheck`: Nodes of the hosted cluster and VMs fit together. `Unknown` while the Nodes cannot be read.
/// `Ready` does not depend on it.
pub const NODES_CONSISTENT: &str = "NodesConsistent";

/// On an AgentForgeInstallerConfig that is being deleted: no ByoHost names its Secret any more.
pub const HOST_RELEASED: &str = "HostReleased";

/// Condition types that every `VsphereAgentPool` has, in the order in which they are first written.
pub const POOL_CONDITIONS: [&str; 6] = [
    READY,
    AGENT_MACHINE_DEMAND_FOUND,
    INFRA_ENV_AVAILABLE,
    CAPACITY_SATISFIED,
    VSPHERE_READY,
    ISO_READY,
];
