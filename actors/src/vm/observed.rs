//! What is known of one VsphereAgent at one moment, from the cached view.

mod awaited;
mod facts;
mod owner;

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    agent::{HardwareDifference, VmStatus, VsphereAgent, VsphereAgentStatus},
    conditions::Reason,
    external::{agent::Agent, agent_machine::AgentMachine},
    pool::{CleanupPolicy, VsphereAgentPool},
};
use jiff::Timestamp;

use self::owner::{Owner, Provision};
use super::{
    boot_repair, drive, lost,
    memory::Memory,
    ownership::Ownership,
    step::{Lent, boots_disk_first},
};
use crate::{
    context::Context,
    demand::prepare,
    domain::{
        belonging, goal,
        holds::Holds,
        identity::{AgentMatch, BootSource, agent_runs_on},
        machine_state::MachineState,
        managed_vm::ManagedVm,
        names::ObjectKey,
        reassign::Taking,
        sizes, start_after,
        upstream::{self, MachineFacts},
        vanished::{Vanished, vanished},
    },
    guard::adoption,
    iso::infra_env_guards::{self, Guard},
    lifecycle::Policy,
    placement::request,
    ports::cluster::{AgentPatch, View},
    runtime::holds,
    world::{agents_home, half_moved, host::Host},
};

/// How long a deletion hook may wait for the guest of a VM before the VM is looked at. The guest may be dead.
pub const STUCK_GRACE: Duration = Duration::from_secs(60);

/// What one decision is made from, gathered once and never changed.
pub struct Observed {
    /// The record.
    pub child: ManagedVm,
    /// Its pool.
    pub pool: Option<Arc<VsphereAgentPool>>,
    /// Its Agents and the state of its Machine.
    pub host: Host,
    /// See [`Host::unproven`].
    pub unproven: Option<String>,
    /// An Agent that matches the VM existed before the VM was switched on for the first time.
    pub early: Option<String>,
    /// Its Machine.
    pub machine: Option<MachineFacts>,
    /// Its AgentMachine.
    pub agent_machine: Option<Arc<AgentMachine>>,
    /// Why nothing more is made for it: a namespace does not admit the pool.
    pub refused: Option<String>,
    /// What forbids a VM that does not exist yet.
    pub guard: Option<Guard>,
    /// Its AgentMachine has another host, and no Agent of this VM serves.
    pub machine_has_another: bool,
    /// What people have paused or forbidden for it.
    pub holds: Holds,
    /// In what the hardware that its pool wants now differs from that of the VM as it was made.
    pub template_changes: Vec<HardwareDifference>,
    /// What another VsphereAgent does with the VM.
    pub lent: Lent,
    /// Why the VM is not switched on for the first time yet: another pool starts before.
    pub start_after: Option<String>,
}

/// See [`Observed::early`].
fn early(child: &ManagedVm, possible: &[Arc<Agent>]) -> Option<String> {
    let identity = child.identity.as_ref()?;
    let status = child.object.status.as_ref();
    let vm = status.and_then(|s| s.vm.as_ref())?;
    if vm.first_powered_on.is_some() || vm.discovery_deadline.is_some() {
        return None;
    }
    let fits = |a: &&Arc<Agent>| {
        matches!(
            agent_runs_on(a, identity),
            AgentMatch::Same | AgentMatch::NotYet
        )
    };
    let agent = possible.iter().find(fits)?;
    Some(ObjectKey::of(agent.as_ref()).to_string())
}

/// Why the pool that it names has no say in it: their namespaces do not admit each other.
fn unshared(view: &dyn View, child: &ManagedVm) -> Option<String> {
    let (to, from) = goal::refusing(&child.object, |name| view.namespace_grant(name))?;
    Some(format!(
        "Namespace {to} admits no pools of {from}: nothing is done with the host for pool {}",
        child.pool
    ))
}

/// What another VsphereAgent does with the VM of `child`.
fn lent(view: &dyn View, child: &ManagedVm) -> Lent {
    match half_moved::taker(view, child) {
        Some(taker) if taker.taking() == Taking::Done => Lent::Over(taker.key),
        Some(taker) => Lent::Taken(taker.key),
        None => Lent::No,
    }
}

impl Observed {
    /// Gathers from the cached view.
    #[must_use]
    pub fn gather(view: &dyn View, object: Arc<VsphereAgent>) -> Self {
        let child = ManagedVm::read(object);
        let unshared = unshared(view, &child);
        let pool = view.pool(&child.pool).filter(|_| unshared.is_none());
        let gone = pool
            .as_deref()
            .and_then(|pool| sizes::gone(pool, child.class()));
        let pool = pool.map(|pool| sizes::seen_by(pool, child.class(), child.vm()));
        let agents = agents_home::naming(view, pool.as_deref(), &child);
        let owner = Owner::read(view, &child, pool.as_deref());
        let is_reserved = |agent: &Agent| owner.has_chosen(agent);
        let host = Host::read(&child, &agents, owner.state.clone(), &is_reserved);
        let provision = Provision::read(view, &child, pool.as_deref(), &owner);
        let near = |name: &str| view.pool(&ObjectKey::new(&child.pool.namespace, name));
        Self {
            start_after: pool
                .as_deref()
                .and_then(|pool| start_after::waits(pool, near)),
            unproven: host.unproven(),
            early: early(&child, &host.possible),
            machine_has_another: !host.serves() && owner.has_another_host(&child, pool.as_deref()),
            holds: holds::of_vm(view, &child),
            lent: lent(view, &child),
            machine: owner.machine,
            agent_machine: owner.agent_machine,
            guard: provision.guard.or_else(|| {
                let message = gone?;
                Some(Guard {
                    reason: Reason::InvalidSpec,
                    message,
                })
            }),
            refused: unshared.or(provision.refused),
            template_changes: pool
                .as_ref()
                .zip(child.vm())
                .map(|(pool, vm)| request::template_changes(pool, vm))
                .unwrap_or_default(),
            child,
            pool,
            host,
        }
    }

    /// The InfraEnv whose ISO the next VM boots from.
    fn source(&self) -> Option<BootSource> {
        let iso = self.pool.as_ref()?.status.as_ref()?.iso.as_ref()?;
        BootSource::read(iso.infra_env_ref.as_ref()?)
    }

    /// A new VM would boot from the ISO of another InfraEnv than the recorded one.
    fn source_changed(&self) -> bool {
        let recorded = self.child.identity.as_ref();
        let recorded = recorded.and_then(|i| i.infra_env.as_ref());
        let next = self.source();
        recorded
            .zip(next.as_ref())
            .is_some_and(|(then, now)| !then.is_same(now))
    }

    /// Namespace of its AgentMachine and Machine, even if the pool is gone.
    pub(super) fn control_plane(&self) -> Option<&str> {
        owner::control_plane(&self.child, self.pool.as_deref())
    }

    /// When its AgentMachine was created.
    #[must_use]
    pub fn demanded(&self) -> Option<Timestamp> {
        let am = self.agent_machine.as_ref().filter(|_| self.pool.is_some());
        let created = am?.metadata.creation_timestamp.as_ref();
        created.map(|t| t.0)
    }

    /// Since when its AgentMachine is ready.
    #[must_use]
    pub fn ready(&self) -> Option<Timestamp> {
        let am = self.agent_machine.as_ref().filter(|_| self.pool.is_some());
        let ready = am?.ready_condition().filter(|c| c.is_true());
        ready?.last_transition_time.as_ref().map(|t| t.0)
    }

    /// Whether its AgentMachine has the pause annotation; `None` if that is not in view.
    fn paused(&self) -> Option<bool> {
        self.agent_machine.as_ref().map(|am| am.is_paused())
    }

    /// Its AgentMachine is paused, or was when it was last seen.
    #[must_use]
    pub fn is_paused(&self, memory: &Memory) -> bool {
        let recorded = || {
            self.vm()
                .is_some_and(|vm| vm.agent_machine_paused == Some(true))
        };
        self.paused().unwrap_or_else(|| memory.paused || recorded())
    }

    /// An Agent of the VM is bound, or was bound once.
    #[must_use]
    pub fn has_served(&self, memory: &Memory) -> bool {
        let serves = self
            .host
            .agent
            .as_ref()
            .is_some_and(|a| a.is_claimed_or_bound());
        serves || memory.seen_bound || self.child.has_served(memory.told.milestones())
    }

    /// Its guest may be a node whose Agent is missing.
    #[must_use]
    pub fn guest_may_be_node(&self, memory: &Memory) -> bool {
        self.child.guest_may_be_node() || memory.guest_may_be_node
    }

    /// Whether its Machine disappeared and left its Agent bound.
    #[must_use]
    pub fn vanished(&self, memory: &Memory) -> Vanished {
        let node = self.has_served(memory) || self.guest_may_be_node(memory);
        let own = self.host.agent.as_deref();
        vanished(
            &self.child,
            &self.host.machine,
            own,
            self.is_paused(memory),
            node,
        )
    }

    /// Remembers what this actor has to know later of what is in view now.
    pub fn remember(&self, memory: &mut Memory) {
        memory.note_guest(self.vm().and_then(|vm| vm.may_serve.as_deref()));
        let own = self.host.agent.as_ref();
        memory.seen_bound |= own.is_some_and(|a| a.is_claimed_or_bound());
        memory.paused = match self.vanished(memory) {
            Vanished::Over => self.paused() == Some(true),
            Vanished::No | Vanished::Held => self.paused().unwrap_or(memory.paused),
        };
        self.note_boot(memory);
    }

    /// Remembers why the guest booted the discovery ISO instead of its disk. That is mended before the VM is reset.
    fn note_boot(&self, memory: &mut Memory) {
        let agent = self.host.agent.as_deref();
        let Some(agent) = agent.filter(|a| boot_repair::is_needed(&self.child, a)) else {
            return;
        };
        let booted_iso = match (&memory.seen, &self.pool) {
            (Ownership::Ours(shown), Some(pool)) => {
                Some(!boots_disk_first(shown) || !drive::isos_of(pool, &shown.cdroms).is_empty())
            }
            _ => None,
        };
        let own = memory.reset.get_or_insert_default();
        let is_new = own.note(boot_repair::occurrence(agent), booted_iso);
        memory.look_again_at(is_new);
    }

    /// What is missing on that Agent so that no selector matches it. If its VM is removed, that includes the selectors of
    /// future AgentMachines. `None` if the pool is gone: its labels are not known then.
    #[must_use]
    pub fn fencing(&self, context: &Context, agent: &Agent) -> Option<AgentPatch> {
        let own = belonging::base_labels(self.pool.as_ref()?);
        let choosers = context.view.all_agent_machines();
        let approved = infra_env_guards::is_auto_approved(context.view.as_ref(), agent);
        let stays = self.lifecycle().leaves_to_people();
        if stays || agent.is_claimed_or_bound() {
            return prepare::fence(&own, &choosers, approved, agent);
        }
        prepare::seal(&own, &choosers, approved, agent)
    }

    /// The recorded VM.
    #[must_use]
    pub fn vm(&self) -> Option<&VmStatus> {
        let status = self.child.object.status.as_ref();
        status.and_then(|s| s.vm.as_ref())
    }

    /// The record is the predecessor's, and its VM is not proven yet.
    #[must_use]
    pub fn is_predecessors(&self) -> bool {
        let unproven = |vm: &VmStatus| vm.bios_uuid.is_some() && vm.attempt.is_none();
        self.vm().is_some_and(unproven)
    }

    /// The recorded status.
    #[must_use]
    pub fn record(&self) -> VsphereAgentStatus {
        self.child.object.status.clone().unwrap_or_default()
    }

    /// Its Machine is being deleted, and the deletion hook waits for the guest.
    #[must_use]
    pub fn waits_for_guest(&self) -> bool {
        let waits =
            |a: &Arc<Agent>| !a.is_claimed_or_bound() && upstream::waits_for_guest(a.state());
        self.host.machine == MachineState::Leaving && self.host.agent.as_ref().is_some_and(waits)
    }

    /// `cleanupPolicy` of the pool, or the recorded one where the pool is gone.
    #[must_use]
    pub fn policy(&self) -> Option<CleanupPolicy> {
        match &self.pool {
            Some(pool) => Some(pool.spec.cleanup_policy()),
            None => self.child.object.status.as_ref()?.cleanup_policy,
        }
    }

    /// How the pool wants the VM to end.
    #[must_use]
    pub fn lifecycle(&self) -> Policy {
        Policy::of_vm(&self.child, self.policy())
    }

    /// What the cluster says of the VM, if it is to be adopted.
    #[must_use]
    pub fn adoption<'a>(
        &'a self,
        pool: &'a VsphereAgentPool,
        agent: Option<&'a Agent>,
    ) -> adoption::Facts<'a> {
        adoption::Facts {
            pool,
            child: &self.child,
            agent_machine: self.agent_machine.as_deref(),
            machine: &self.host.machine,
            agent,
            refused: self.refused.as_deref(),
        }
    }

    /// See [`lost::candidate`].
    #[must_use]
    pub fn candidate(&self) -> Option<&Agent> {
        let own = self.host.agent.as_deref();
        own.or_else(|| lost::candidate(&self.child, &self.host.possible).map(AsRef::as_ref))
    }

    /// The pool has tags for it.
    #[must_use]
    pub fn wants_tags(&self) -> bool {
        let vsphere = self.pool.as_ref().map(|p| &p.spec.vsphere);
        vsphere.is_some_and(|v| !v.vm_tags().is_empty())
    }

    /// Reference of the VM that has the current tags of the pool.
    #[must_use]
    pub fn tagged_as<'a>(&self, memory: &'a Memory) -> Option<&'a str> {
        let wanted = self.pool.as_ref().map(|p| p.spec.vsphere.vm_tags());
        let tagged = memory.tagged.as_ref()?;
        let same = wanted.is_none_or(|tags| tagged.tags == tags);
        same.then_some(tagged.moref.as_str())
    }
}
