//! What is known of one VsphereAgent at one moment, from the cached view.

mod facts;
mod owner;

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    agent::{HardwareDifference, VmStatus, VsphereAgent, VsphereAgentStatus},
    external::{agent::Agent, agent_machine::AgentMachine},
    pool::{CleanupPolicy, ReleaseSpec, ReleasedDisk, VsphereAgentPool},
};
use jiff::Timestamp;

use self::owner::{Owner, Provision};
use super::{
    arrival::{self, Arrival, Sight},
    boot_repair,
    drift::{Outdated, Progress},
    drive,
    lost::{self, Lost},
    memory::Memory,
    ownership::Ownership,
    step::{Lent, RecycleState, boots_disk_first},
};
use crate::{
    context::Context,
    demand::{lending, prepare},
    domain::{
        belonging, disk,
        holds::Holds,
        identity::{AgentMatch, BootSource, agent_runs_on},
        machine_state::MachineState,
        managed_vm::ManagedVm,
        names::ObjectKey,
        reassign::Taking,
        recycle::{self, Says, Stage},
        upstream::{self, MachineFacts},
        vanished::{Vanished, vanished},
    },
    iso::infra_env_guards::{self, Guard},
    lifecycle::Policy,
    placement::request,
    ports::{
        cluster::{AgentPatch, View},
        effect::EffectKind,
        vcenter::PowerState,
    },
    runtime::holds,
    world::{agents_home, host::Host},
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
    /// What people hold back of the VsphereAgent that the VM is taken from.
    pub lender_holds: Holds,
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

/// What another VsphereAgent does with the VM of `child`. `possible`: the Agents that may run there.
fn lent(view: &dyn View, child: &ManagedVm, possible: &[Arc<Agent>]) -> Lent {
    if let Some(taker) = lending::taker(view, child) {
        return match taker.taking() {
            Taking::Done => Lent::Over(taker.key),
            _ => Lent::Taken(taker.key),
        };
    }
    let free = possible.iter().filter(|a| !a.is_claimed_or_bound());
    let mut reserved = free.filter_map(|a| lending::reserved_for(view, child, a));
    reserved.next().map_or(Lent::No, |(_, by)| Lent::Taken(by))
}

/// What people hold back of the VsphereAgent whose VM `child` takes over.
fn lender_holds(view: &dyn View, child: &ManagedVm) -> Holds {
    let source = child.taken_from.as_ref().filter(|_| child.is_taking());
    let lender = source.and_then(|source| view.child(&source.key));
    lender.map_or_else(Holds::default, |lender| {
        holds::of_vm(view, &ManagedVm::read(lender))
    })
}

impl Observed {
    /// Gathers from the cached view.
    #[must_use]
    pub fn gather(view: &dyn View, object: Arc<VsphereAgent>) -> Self {
        let child = ManagedVm::read(object);
        let pool_key = ObjectKey::new(&child.key.namespace, &child.object.spec.pool_ref.name);
        let pool = view.pool(&pool_key);
        let agents = agents_home::naming(view, pool.as_deref(), &child);
        let owner = Owner::read(view, &child, pool.as_deref());
        let is_reserved = |agent: &Agent| owner.has_chosen(agent);
        let host = Host::read(&child, &agents, owner.state.clone(), &is_reserved);
        let provision = Provision::read(view, &child, pool.as_deref(), &owner);
        Self {
            unproven: host.unproven(),
            early: early(&child, &host.possible),
            machine_has_another: !host.serves() && owner.has_another_host(&child, pool.as_deref()),
            holds: holds::of_vm(view, &child),
            lent: lent(view, &child, &host.possible),
            lender_holds: lender_holds(view, &child),
            machine: owner.machine,
            agent_machine: owner.agent_machine,
            guard: provision.guard,
            refused: provision.refused,
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
        Policy::of(self.child.skips_delete(), self.policy())
    }

    /// Whether the Agent of the VM is awaited, overdue, or given up.
    #[must_use]
    pub fn arrival(&self, context: &Context, memory: &Memory) -> Arrival {
        let Some(vm) = self.vm() else {
            return Arrival::Awaited;
        };
        let object = &self.child.object;
        let failure = object.status.as_ref().and_then(|s| s.last_failure.as_ref());
        let sight = match self.lost(context, memory) {
            // It gets its time again after a hold.
            _ if self.child.recycling() == Stage::Begun && self.was_held(context, memory) => {
                Sight::There
            }
            _ if self.child.recycling() == Stage::Begun => Sight::NotBack,
            // A VM of the new template may pass where this one does not, so it does not count as one that failed.
            Some(Lost::Insufficient) if self.outdated(context, memory).is_replaced() => {
                Sight::Outdated
            }
            Some(lost) => Sight::Lost(lost, self.lost_left(context, vm, memory)),
            None if self.outdated(context, memory).is_replaced() => Sight::Outdated,
            None if self.host.possible.is_empty() => Sight::Unseen,
            None if self.sends_no_inventory() => Sight::NoInventory,
            None => Sight::There,
        };
        let next = self.source();
        let now = memory.discovery_time(vm, context.clock.as_ref());
        arrival::arrival(vm, (failure, next.as_ref()), sight, self.asked(), now)
    }

    /// It waits in the buffer, and the only Agent that names it is free and has sent no inventory. For an AgentMachine that
    /// waits, a person decides.
    fn sends_no_inventory(&self) -> bool {
        let candidate = self.candidate().filter(|_| self.host.possible.len() == 1);
        self.child.in_buffer && !self.child.adopted && candidate.is_some_and(lost::has_no_inventory)
    }

    /// What decides whether the VM is replaced because its template changed.
    fn outdated(&self, context: &Context, memory: &Memory) -> Outdated {
        let registered = self.vm().is_some_and(|vm| vm.agent_ref.is_some());
        let failing = |a: &Agent| lost::failing(a, context.clock.steady()).is_ok();
        let progress = match self.candidate() {
            None if self.host.possible.is_empty() && !registered => Progress::Unregistered,
            Some(agent) if failing(agent) => Progress::Failing,
            _ => Progress::Other,
        };
        Outdated {
            changed: !self.template_changes.is_empty(),
            serves: self.host.serves() || self.has_served(memory),
            may_be_node: self.guest_may_be_node(memory),
            is_kept: self.lifecycle().leaves_to_people(),
            progress,
        }
    }

    /// How far the VM is on its way into another life.
    fn recycle(&self, context: &Context, memory: &Memory) -> RecycleState {
        let off = matches!(&memory.seen, Ownership::Ours(vm) if vm.power == PowerState::Off);
        let record = self.vm().and_then(|vm| vm.recycle.as_ref());
        let now = context.clock.wall();
        let says = |agent: &Agent| recycle::says(Some(agent), off);
        let own = self.candidate().map_or(Says::Free, says);
        // One that only may run there counts with a word that nobody knows. Without any state it is no host that the service
        // ever had, and a stranger's Agent must not keep the VM.
        let named = |agent: &&Arc<Agent>| !agent.state().is_empty();
        let mut possible = self.host.possible.iter().filter(named);
        let unknown = own == Says::Unknown || possible.any(|a| says(a) == Says::Unknown);
        let says = match own {
            _ if self.host.serves() && !matches!(own, Says::Returns(_)) => Says::Serves,
            _ if unknown => Says::Unknown,
            Says::Returns(patience) => Says::Returns(recycle::left(record, patience, now)),
            other => other,
        };
        let release = self.pool.as_ref().and_then(|p| p.spec.release.as_ref());
        let recycles = release.is_some_and(ReleaseSpec::recycles);
        RecycleState {
            stage: self.child.recycling(),
            overdue: self.vm().is_some_and(recycle::is_overdue),
            says,
            back: self
                .vm()
                .zip(self.host.agent.as_deref())
                .is_some_and(|(vm, agent)| recycle::is_back(vm, agent)),
            claimed: self
                .host
                .agent
                .as_ref()
                .is_some_and(|a| a.is_claimed_or_bound()),
            restarted: record
                .zip(self.host.agent.as_deref())
                .is_some_and(|(record, agent)| recycle::has_restarted(record, agent)),
            cleanup_hangs: memory.looks_for_cluster(context.clock.monotonic())
                && self.cleanup_hangs(now),
            keeps_disk: match self.child.recycling() {
                // What the renewal did, whatever the pool says since.
                Stage::Begun => self.vm().is_some_and(disk::keeps),
                Stage::No => self.child.has_old_data(),
                Stage::Asked(_) | Stage::Recorded(_) => {
                    release.and_then(|r| r.disk) == Some(ReleasedDisk::Keep)
                }
            },
            frees_hook: recycles
                && !self.lifecycle().leaves_to_people()
                && self.template_changes.is_empty()
                && !self.child.adopted
                && self
                    .vm()
                    .is_some_and(|vm| vm.attempt.is_some() && vm.vm_path.is_some())
                && self
                    .host
                    .agent
                    .as_ref()
                    .is_some_and(|a| matches!(a.state(), "unbinding" | "binding")),
        }
    }

    /// Whether the Agent of the VM hangs in the clean-up of the hosted cluster of its pool.
    fn cleanup_hangs(&self, now: Timestamp) -> bool {
        let agent = self.vm().zip(self.host.agent.as_deref());
        agent
            .zip(self.pool.as_ref())
            .is_some_and(|((vm, agent), pool)| {
                recycle::cleanup_hangs(vm, agent, &pool.spec.control_plane_namespace, now)
            })
    }

    /// The attempt whose replacement a person asks for. What was asked for in an earlier life of the VM does not count.
    fn asked(&self) -> Option<i32> {
        let earlier = self.vm().and_then(|vm| vm.replace_ignored);
        let asked = self.child.replace_annotation();
        asked.filter(|asked| earlier != Some(*asked))
    }

    /// People hold the VM, or keep it: nothing is done on its way into another life.
    pub(super) fn is_held(&self, now: Timestamp) -> bool {
        let held = holds::who_holds(EffectKind::Renew, &self.holds, now).is_some();
        held || self.lifecycle().leaves_to_people()
    }

    /// This actor saw that people held the VM, less than a discovery timeout ago.
    fn was_held(&self, context: &Context, memory: &Memory) -> bool {
        let gone_by = |at| context.clock.monotonic().saturating_sub(at);
        let patience = self.patience(context);
        memory.held_at.is_some_and(|at| gone_by(at) < patience)
    }

    /// A person asks for another VM.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        let attempt = self.vm().filter(|vm| vm.bios_uuid.is_some());
        let attempt = attempt.and_then(|vm| vm.attempt);
        attempt.is_some() && attempt == self.asked()
    }

    /// Why its Agent cannot be claimed.
    #[must_use]
    pub fn lost(&self, context: &Context, memory: &Memory) -> Option<Lost> {
        let served = self.host.serves() || self.has_served(memory);
        lost::lost(
            &self.child,
            &self.host.possible,
            served,
            context.clock.steady(),
        )
    }

    /// How long a lost Agent is still awaited: by the record, and by this actor's own clock if it saw the loss.
    fn lost_left(&self, context: &Context, vm: &VmStatus, memory: &Memory) -> Duration {
        let patience = self.patience_with_lost(context, memory);
        let since = vm.agent_lost_since.as_ref();
        // A host of the buffer may have failed its validations before it fell silent.
        let silent = self.candidate().and_then(lost::silent_since);
        let by_record = since.map_or(patience, |t| {
            let since = silent.map_or(t.0, |silent| silent.max(t.0));
            lost::left(since, patience, context.clock.wall())
        });
        let now = context.clock.monotonic();
        let own = memory.lost_since.map_or(Duration::ZERO, |since| {
            patience.saturating_sub(now.saturating_sub(since))
        });
        by_record.max(own)
    }

    /// How long an Agent may take to register, and a lost one to come back.
    #[must_use]
    pub fn patience(&self, context: &Context) -> Duration {
        let pool = self.pool.as_ref();
        let own = pool.and_then(|p| p.spec.agent.discovery_timeout.as_deref());
        own.and_then(|t| agent_forge_crds::duration::parse(t).ok())
            .unwrap_or(context.settings.discovery_timeout)
    }

    /// How long a lost Agent may take to come back. Nobody waits for a host of the buffer, so a silent one goes sooner.
    #[must_use]
    pub fn patience_with_lost(&self, context: &Context, memory: &Memory) -> Duration {
        let patience = self.patience(context);
        if self.child.in_buffer && self.lost(context, memory) == Some(Lost::Disconnected) {
            patience.min(lost::SILENT_IN_BUFFER)
        } else {
            patience
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
