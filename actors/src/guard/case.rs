//! What an actor knows when it asks the guard.

use std::sync::Arc;

use agent_forge_crds::{external::agent::Agent, pool::VsphereAgentPool};

use crate::{context::Context, domain::managed_vm::ManagedVm};

/// A VsphereAgent and its VM, as an actor knows them from its caches.
pub struct Case<'a> {
    /// The ports.
    pub context: &'a Context,
    /// The record.
    pub child: &'a ManagedVm,
    /// Its pool.
    pub pool: Option<&'a VsphereAgentPool>,
    /// Where its AgentMachine and Machine are.
    pub control_plane: Option<&'a str>,
    /// Agents that may run on the VM.
    pub possible: &'a [Arc<Agent>],
    /// The one that runs there.
    pub own: Option<&'a Agent>,
    /// Whether a selector, of today or later, can choose that Agent.
    pub can_be_chosen: Box<dyn Fn(&Agent) -> bool + Send + Sync + 'a>,
}
