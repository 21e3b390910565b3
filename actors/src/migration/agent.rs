//! What the predecessor wrote on an Agent.

use agent_forge_crds::{external::agent::Agent, names::CLEANUP_VM_ANNOTATION};
use kube::ResourceExt as _;

/// Whether the predecessor has decided to delete the VM of this Agent.
#[must_use]
pub fn is_let_go(agent: &Agent) -> bool {
    agent.annotations().contains_key(CLEANUP_VM_ANNOTATION)
}
