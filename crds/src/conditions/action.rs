//! Types of `status.plannedActions[]`.

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
