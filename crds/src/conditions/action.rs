//! Types of `status.plannedActions[]`.

/// A host is missing and will be created.
pub const DEMAND_DEFICIT: &str = "DemandDeficit";
/// A host will be made for the buffer, or will come into it.
pub const BUFFER: &str = "Buffer";
/// A VM will be destroyed.
pub const DELETE_VM: &str = "DeleteVM";
/// An Agent will be deleted.
pub const DELETE_AGENT: &str = "DeleteAgent";
/// An Agent will be prepared or fenced.
pub const PATCH_AGENT: &str = "PatchAgent";
/// The selector of an AgentMachine will be pinned to its host. Listed only in a dry run, as the next ones.
pub const PIN_AGENT_MACHINE: &str = "PinAgentMachine";
/// A finalizer of a pool or Secret will be added or removed.
pub const CHANGE_FINALIZER: &str = "ChangeFinalizer";
/// The discovery ISO will be fetched and uploaded.
pub const UPLOAD_ISO: &str = "UploadISO";
/// The next step of a VsphereAgent that exists.
pub const CHANGE_VM: &str = "ChangeVM";
/// There is nothing to do.
pub const NOOP: &str = "Noop";
