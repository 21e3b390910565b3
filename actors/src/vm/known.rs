//! What the status of a VsphereAgent is made from, beside the record itself.

use std::{collections::BTreeMap, time::Duration};

use agent_forge_crds::{
    agent::{HardwareDifference, Milestone},
    conditions::Reason,
    external::agent::Agent,
    pool::CleanupPolicy,
};
use jiff::Timestamp;

use super::{lost::Lost, memory::Memory, observed::Observed};
use crate::{
    context::Context,
    domain::{
        hardware::ShownHardware, holds::Holds, identity::lineup::Doubt,
        machine_state::MachineState, managed_vm::ManagedVm, trace::TraceId, vanished::Vanished,
    },
    ports::clock::Clock,
};

/// What is known beside the record itself.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The VsphereAgent.
    pub child: &'a ManagedVm,
    /// The Agent that runs on the VM.
    pub agent: Option<&'a Agent>,
    /// The only Agent that may be the VM's own, whether or not all of its evidence is there yet.
    pub candidate: Option<&'a Agent>,
    /// An Agent that runs there, or may, exists.
    pub any_agent: bool,
    /// One of those serves a Machine, or is about to.
    pub bound: bool,
    /// Why its Agent cannot be claimed.
    pub lost: Option<Lost>,
    /// How long the actor waits for a lost Agent.
    pub patience: Duration,
    /// A person asks for another VM instead of this one.
    pub asked: bool,
    /// The life that the VM is to begin, and how many hours of tries to make it ready were counted.
    pub hours_tried: Option<(i32, i32)>,
    /// Why no Agent that names the VM is approved.
    pub doubt: Option<&'a Doubt>,
    /// Whether its Machine exists.
    pub machine_state: &'a MachineState,
    /// Its AgentMachine is paused, or was when it was last seen.
    pub paused: bool,
    /// Whether its Machine disappeared and left its Agent bound.
    pub vanished: Vanished,
    /// An Agent of the VM was bound once.
    pub served: bool,
    /// Its guest may be a node whose Agent is missing.
    pub guest_may_be_node: bool,
    /// What happens to the VM when nothing needs it.
    pub policy: Option<CleanupPolicy>,
    /// What people have paused or forbidden for it.
    pub holds: &'a Holds,
    /// Namespace of AgentMachine and Machine.
    pub control_plane: Option<&'a str>,
    /// apiVersion and namespace of the Machine.
    pub machine_at: Option<(&'a str, &'a str)>,
    /// What blocks the VM first: reason and sentence, and whether it is a failure.
    pub obstacle: Option<&'a Obstacle>,
    /// The machine's trace.
    pub trace: TraceId,
    /// What happened to it, and when.
    pub timeline: &'a [Milestone],
    /// Its pool has tags for it. Also true if the pool is gone, because its tags are then unknown.
    pub wants_tags: bool,
    /// Reference under which the tags are known to be attached.
    pub tagged: Option<&'a str>,
    /// Steps that failed and stop nothing else, with a sentence.
    pub failed_steps: &'a BTreeMap<&'static str, String>,
    /// In what the hardware that its pool wants now differs from that of the VM as it was made.
    pub template_changes: &'a [HardwareDifference],
    /// Its hardware, if the actor has just looked at it.
    pub shown: Option<&'a ShownHardware>,
    /// The time that counts for the discovery deadline.
    pub discovery_time: Timestamp,
    /// Wall clock.
    pub now: Timestamp,
    /// The time for the age of what others write.
    pub steady: Timestamp,
}

/// Something that blocks the VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// Subject, for `waitingOn`.
    pub subject: String,
    /// Why, as one word.
    pub reason: Reason,
    /// Sentence.
    pub message: String,
}

/// The time that counts for the discovery deadline of the VM.
pub(super) fn discovery_time(
    observed: &Observed,
    memory: &Memory,
    clock: &dyn Clock,
) -> jiff::Timestamp {
    let vm = observed.vm();
    vm.map_or_else(|| clock.wall(), |vm| memory.discovery_time(vm, clock))
}

/// What the pure status needs to know.
#[must_use]
pub fn known<'a>(
    context: &Context,
    observed: &'a Observed,
    obstacle: Option<&'a Obstacle>,
    memory: &'a Memory,
) -> Known<'a> {
    let clock = context.clock.as_ref();
    let now = clock.wall();
    Known {
        child: &observed.child,
        agent: observed.host.agent.as_deref(),
        candidate: observed.candidate(),
        any_agent: !observed.host.possible.is_empty(),
        bound: observed.host.serves(),
        lost: observed.lost(context, memory),
        patience: observed.patience_with_lost(context, memory),
        asked: observed.is_asked(),
        hours_tried: memory.hours_tried,
        doubt: observed.host.doubt.as_ref(),
        machine_state: &observed.host.machine,
        policy: observed.policy(),
        paused: observed.is_paused(memory),
        vanished: observed.vanished(memory),
        served: observed.has_served(memory),
        guest_may_be_node: observed.guest_may_be_node(memory),
        holds: &observed.holds,
        control_plane: observed.control_plane(),
        machine_at: observed
            .machine
            .as_ref()
            .map(|m| (m.api_version.as_str(), m.key.namespace.as_str())),
        obstacle,
        trace: observed.child.trace(),
        timeline: memory.told.milestones(),
        wants_tags: observed.pool.is_none() || observed.wants_tags(),
        tagged: observed.tagged_as(memory),
        failed_steps: &memory.failed_steps,
        template_changes: &observed.template_changes,
        shown: memory.seen.ours().map(|shown| &shown.hardware),
        discovery_time: discovery_time(observed, memory, clock),
        now,
        steady: clock.steady(),
    }
}
