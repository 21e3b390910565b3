//! The facts of one VsphereAgent at one moment, from the cached view.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    agent::{VmStatus, VsphereAgent, VsphereAgentStatus},
    conditions::reason,
    external::{agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv},
    names::REPLACE_ANNOTATION,
    pool::{CleanupPolicy, VsphereAgentPool},
};

use kube::ResourceExt;

use super::{
    arrival::{self, Arrival, Sight},
    drive,
    lost::{self, Lost},
    memory::Memory,
    ownership::Ownership,
    place,
    step::{
        AgentState, CreateState, Facts, Loss, ObjectState, OwnerState, PlacementCheck, PoolState,
        Record, SUSPENDED_TRIES, VmState,
    },
};
use crate::{
    context::Context,
    demand::{agents_home, boundary::Grants, prepare},
    domain::{
        identity::{AgentMatch, BiosUuid, BootSource, Misfit, agent_runs_on, lineup::Doubt},
        machine_state::{MachineState, machine_state, unserved},
        managed_vm::ManagedVm,
        names::ObjectKey,
        upstream::{self, MachineFacts},
        vanished::{Vanished, vanished},
    },
    iso::{
        infra_env_guards::{self, Guard},
        of_pool,
    },
    mutants::{Mutant, on},
    placement::request,
    ports::cluster::{AgentPatch, Regarding, View},
    sessions::secret_ref,
};

/// How long a deletion hook may wait for the guest of a VM before the VM is looked at (trap G).
pub const STUCK_GRACE: Duration = Duration::from_secs(60);

/// Longer than it takes until a first pass has left something on a new VsphereAgent.
const FIRST_PASS: Duration = Duration::from_secs(60);

/// What one decision is made from, gathered once.
pub struct Observed {
    /// The record.
    pub child: ManagedVm,
    /// Its pool.
    pub pool: Option<Arc<VsphereAgentPool>>,
    /// The Agent that runs on the VM, by THE rule; not one that is being deleted.
    pub agent: Option<Arc<Agent>>,
    /// Agents that may run there, by uuid alone.
    pub possible: Vec<Arc<Agent>>,
    /// One of those serves a Machine, or is about to.
    pub bound: bool,
    /// Why none of those is approved.
    pub doubt: Option<Doubt>,
    /// Every one that serves matches in part only: which does, and what speaks against it.
    pub unproven: Option<String>,
    /// One that matches was there before the VM was ever switched on.
    pub early: Option<String>,
    /// Its Machine.
    pub machine: Option<MachineFacts>,
    /// When its AgentMachine was created.
    pub demanded: Option<jiff::Timestamp>,
    /// Since when its AgentMachine is ready.
    pub ready: Option<jiff::Timestamp>,
    /// How that Machine stands.
    pub machine_state: MachineState,
    /// Whether its AgentMachine carries the pause annotation; `None` where it is not in view.
    pub paused: Option<bool>,
    /// Why nothing more is made for it, as the boundary between namespaces has it.
    pub refused: Option<String>,
    /// What keeps a VM that does not exist yet from being made.
    pub guard: Option<Guard>,
    /// Nobody has an Agent of it, and its AgentMachine has another host.
    pub machine_has_another: bool,
}

fn is_doubted(context: &Context, vm: &VmStatus) -> bool {
    let (Some(server), Some(moref)) = (&vm.server, &vm.moref) else {
        return false;
    };
    let doubts = context.doubts.borrow();
    doubts.get(server).is_some_and(|all| all.contains(moref))
}

/// See [`Observed::unproven`].
fn unproven(child: &ManagedVm, possible: &[Arc<Agent>]) -> Option<String> {
    let lineup = child.lineup(possible);
    let mut serving = possible.iter().filter(|a| a.is_claimed_or_bound());
    let missing_in_scan = |a: &Arc<Agent>| {
        let doubtful = &lineup.doubtful;
        let (_, misfit) = doubtful.iter().find(|(other, _)| Arc::ptr_eq(other, a))?;
        Some(format!("{} ({misfit})", ObjectKey::of(a.as_ref())))
    };
    let first = missing_in_scan(serving.next()?)?;
    serving
        .all(|a| missing_in_scan(a).is_some())
        .then_some(first)
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

impl Observed {
    /// Its VsphereAgent, as what an Event is about.
    #[must_use]
    pub fn regarding(&self) -> Regarding {
        Regarding {
            api_version: agent_forge_crds::names::API_VERSION.to_owned(),
            kind: "VsphereAgent".to_owned(),
            key: self.child.key.clone(),
            uid: self.child.uid.clone(),
        }
    }

    /// Gathers from the cached view.
    #[must_use]
    pub fn gather(view: &dyn View, object: Arc<VsphereAgent>) -> Self {
        let child = ManagedVm::read(object);
        let pool_key = ObjectKey::new(&child.key.namespace, &child.object.spec.pool_ref.name);
        let pool = view.pool(&pool_key);
        let agents = agents_home::naming(view, pool.as_deref(), &child);
        let lineup = child.lineup(&agents);
        let may_run_there = |a: &&Arc<Agent>| {
            let identity = child.identity.as_ref();
            identity.is_some_and(|vm| agent_runs_on(a, vm).may_run_there())
        };
        let possible: Vec<Arc<Agent>> = agents.iter().filter(may_run_there).cloned().collect();
        let agent = lineup.own.filter(|a| !a.is_deleting()).cloned();
        let mut observed = Self {
            bound: possible.iter().any(|a| a.is_claimed_or_bound()),
            doubt: lineup.doubt(),
            unproven: unproven(&child, &possible),
            early: early(&child, &possible),
            child,
            pool,
            agent,
            possible,
            machine: None,
            demanded: None,
            ready: None,
            machine_state: MachineState::Unknown("its pool does not exist".to_owned()),
            paused: None,
            refused: None,
            guard: None,
            machine_has_another: false,
        };
        observed.look_upstream(view);
        observed
    }

    /// See [`Observed::machine_has_another`].
    fn has_another(&self, agent_machine: &AgentMachine) -> bool {
        let own = agents_home::names(self.pool.as_deref(), &self.child);
        let is_own = |key: &ObjectKey| own.contains(key) || self.child.agent.as_ref() == Some(key);
        let has = agent_machine.agent_ref();
        let has = has.map(|r| ObjectKey::new(&r.namespace, &r.name));
        !self.bound && has.is_some_and(|key| !is_own(&key))
    }

    /// See [`Observed::guard`].
    fn guard(
        &self,
        view: &dyn View,
        pool: &VsphereAgentPool,
        infra_env: Option<&InfraEnv>,
        grants: &Grants,
    ) -> Option<Guard> {
        if self.vm().is_some_and(|vm| vm.moref.is_some()) {
            return None;
        }
        let Some(infra_env) = infra_env else {
            return infra_env_guards::gone(&agents_home::candidates(pool)[0]);
        };
        let choosers = view.all_agent_machines();
        let shown = |am: &AgentMachine| grants.shows(pool, am);
        infra_env_guards::guard(pool, infra_env, &choosers, &shown)
    }

    /// The InfraEnv whose ISO the next VM boots from.
    fn source(&self) -> Option<BootSource> {
        let iso = self.pool.as_ref()?.status.as_ref()?.iso.as_ref()?;
        BootSource::read(iso.infra_env_ref.as_ref()?)
    }

    /// A VM that is made now would boot from the ISO of another InfraEnv than the record says.
    fn source_changed(&self) -> bool {
        let recorded = self.child.identity.as_ref();
        let recorded = recorded.and_then(|i| i.infra_env.as_ref());
        let next = self.source();
        recorded
            .zip(next.as_ref())
            .is_some_and(|(then, now)| !then.is_same(now))
    }

    /// Where its AgentMachine and Machine are, pool or not.
    pub(super) fn control_plane(&self) -> Option<&str> {
        match &self.pool {
            Some(pool) => Some(self.child.home(pool)),
            None => self.child.control_plane.as_deref(),
        }
    }

    fn look_upstream(&mut self, view: &dyn View) {
        let Some(namespace) = self.control_plane().map(str::to_owned) else {
            return;
        };
        if !view.serves(&namespace) {
            self.machine_state = unserved(&namespace);
            return;
        }
        let machines = view.machines(&namespace);
        let agent_machines = view.agent_machines(&namespace);
        self.machine_state = machine_state(&self.child, &namespace, &machines, &agent_machines);
        self.bound |= self
            .possible
            .iter()
            .any(|a| upstream::is_reserved(a, &agent_machines, &machines));
        let record = self.child.machine.as_ref();
        self.machine = machines
            .iter()
            .find(|m| record.is_some_and(|r| r.is(&m.key.name, &m.uid)))
            .map(|m| m.as_ref().clone());
        let wanted = self.child.agent_machine.as_ref();
        let asks = agent_machines
            .iter()
            .find(|am| wanted.is_some_and(|r| r.is_object(&am.metadata)));
        self.paused = asks.map(|am| am.is_paused());
        self.machine_has_another = asks.is_some_and(|am| self.has_another(am));
        let Some(pool) = &self.pool else {
            return;
        };
        let grants = Grants::read(view, [pool.as_ref()], asks.map(AsRef::as_ref));
        let lacking = match asks {
            Some(am) => grants.lacking(pool, am),
            None => grants.lacking_home(pool),
        };
        let (_, found) = agents_home::find(view, &grants, pool);
        self.guard = self.guard(view, pool, found.as_deref(), &grants);
        // The ISO on record may be that of an InfraEnv which the pool may not use any more.
        let lost = || {
            let refused = grants.refused_homes(pool).into_iter().next();
            refused.filter(|_| found.is_none())
        };
        let lacking = lacking.or_else(lost);
        let own = &self.child.key.namespace;
        self.refused = lacking.map(|namespace| grants.sentence(&[namespace], own));
        let created = asks.and_then(|am| am.metadata.creation_timestamp.as_ref());
        self.demanded = created.map(|t| t.0);
        let ready = asks.and_then(|am| am.ready_condition());
        self.ready = ready
            .filter(|c| c.is_true())
            .and_then(|c| c.last_transition_time.as_ref())
            .map(|t| t.0);
    }

    /// Its AgentMachine is paused, or was when it was last seen.
    #[must_use]
    pub fn is_paused(&self, memory: &Memory) -> bool {
        let recorded = || {
            self.vm()
                .is_some_and(|vm| vm.agent_machine_paused == Some(true))
        };
        self.paused.unwrap_or_else(|| memory.paused || recorded())
    }

    /// An Agent of the VM was bound once, or is, whatever becomes of it.
    #[must_use]
    pub fn has_served(&self, memory: &Memory) -> bool {
        let serves = self.agent.as_ref().is_some_and(|a| a.is_claimed_or_bound());
        serves || self.child.has_served(memory.told())
    }

    /// Its guest may be a node whose Agent is missing.
    #[must_use]
    pub fn guest_may_be_node(&self, memory: &Memory) -> bool {
        self.child.guest_may_be_node() || memory.guest_may_be_node
    }

    /// Whether its Machine went and left its Agent bound.
    #[must_use]
    pub fn vanished(&self, memory: &Memory) -> Vanished {
        let node = self.has_served(memory) || self.guest_may_be_node(memory);
        let own = self.agent.as_deref();
        vanished(
            &self.child,
            &self.machine_state,
            own,
            self.is_paused(memory),
            node,
        )
    }

    /// By the view, its Machine is gone and its Agent still bound to it, and the record does not say so yet.
    fn is_left_bound(&self) -> bool {
        let marked = self
            .vm()
            .is_none_or(|vm| vm.machine_vanished_paused == Some(true));
        let bound = |a: &Arc<Agent>| self.child.is_bound_to(a);
        !marked
            && self.machine_state == MachineState::Gone
            && self.agent.as_ref().is_some_and(bound)
    }

    /// What the rest of a life has to know of what is in view now.
    pub fn remember(&self, memory: &mut Memory) {
        memory.note_guest();
        memory.paused = match self.vanished(memory) {
            Vanished::Over => self.paused == Some(true),
            Vanished::No | Vanished::Held => self.paused.unwrap_or(memory.paused),
        };
    }

    /// Whether the Agent carries nothing that a selector could match. Every AgentMachine there is has a say, so it is
    /// looked at only where somebody asks: when the VM is to go.
    fn is_fenced(&self, context: &Context) -> bool {
        let Some(agent) = &self.agent else {
            return true;
        };
        if !self.child.deleting && !self.child.given_up {
            return true;
        }
        self.fencing(context, agent).is_none()
    }

    /// What is missing on that Agent to be out of every selection, also of AgentMachines that are made from now on where its VM
    /// goes; nothing where the pool is gone, and with it the knowledge of its labels.
    #[must_use]
    pub fn fencing(&self, context: &Context, agent: &Agent) -> Option<AgentPatch> {
        let stays = self.policy() == Some(CleanupPolicy::Retain);
        if stays || agent.is_claimed_or_bound() {
            return self.label_fence(context, agent);
        }
        let own = prepare::base_labels(self.pool.as_ref()?);
        let choosers = context.view.all_agent_machines();
        let approved = infra_env_guards::is_auto_approved(context.view.as_ref(), agent);
        prepare::seal(&own, &choosers, approved, agent)
    }

    /// What is missing on that Agent to be out of every selection of the AgentMachines that exist. It is enough before the Agent
    /// is deleted: a claim that comes first makes the deletion's precondition fail.
    #[must_use]
    pub fn label_fence(&self, context: &Context, agent: &Agent) -> Option<AgentPatch> {
        let own = prepare::base_labels(self.pool.as_ref()?);
        let choosers = context.view.all_agent_machines();
        let approved = infra_env_guards::is_auto_approved(context.view.as_ref(), agent);
        prepare::fence(&own, &choosers, approved, agent)
    }

    /// The recorded VM.
    #[must_use]
    pub fn vm(&self) -> Option<&VmStatus> {
        let status = self.child.object.status.as_ref();
        status.and_then(|s| s.vm.as_ref())
    }

    /// The record is one of the predecessor's that is still to be proven.
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

    /// Its Machine is leaving, and the deletion hook waits for a guest (trap G).
    #[must_use]
    pub fn waits_for_guest(&self) -> bool {
        let waits =
            |a: &Arc<Agent>| !a.is_claimed_or_bound() && upstream::waits_for_guest(a.state());
        self.machine_state == MachineState::Leaving && self.agent.as_ref().is_some_and(waits)
    }

    /// What is to be thought of the recorded place.
    pub(super) fn site(&self, memory: &Memory, now: Duration) -> PlacementCheck {
        let (Some(vm), Some(pool)) = (self.vm(), &self.pool) else {
            return PlacementCheck::Fits;
        };
        if self.source_changed() {
            return PlacementCheck::Elsewhere;
        }
        let request = request::place_request(pool).ok();
        let refused = memory.create_refused.as_ref();
        place::site(vm, request.as_ref(), refused, pool.metadata.generation, now)
    }

    /// What becomes of the VM when nothing needs it; as last seen, where the pool is gone.
    #[must_use]
    pub fn policy(&self) -> Option<CleanupPolicy> {
        match &self.pool {
            Some(pool) => Some(pool.spec.cleanup_policy()),
            None => self.child.object.status.as_ref()?.cleanup_policy,
        }
    }

    /// How the VM's arrival stands.
    #[must_use]
    pub fn arrival(&self, context: &Context, memory: &Memory) -> Arrival {
        let Some(vm) = self.vm() else {
            return Arrival::Awaited;
        };
        let object = &self.child.object;
        let failure = object.status.as_ref().and_then(|s| s.last_failure.as_ref());
        let sight = match self.lost(memory) {
            Some(lost) => Sight::Lost(lost, self.lost_left(context, vm, memory)),
            None if self.possible.is_empty() => Sight::Unseen,
            None => Sight::There,
        };
        let next = self.source();
        let now = memory.discovery_time(vm, context.clock.as_ref());
        arrival::arrival(vm, (failure, next.as_ref()), sight, self.asked(), now)
    }

    /// The attempt whose replacement a person asks for.
    fn asked(&self) -> Option<i32> {
        let asked = self.child.object.annotations().get(REPLACE_ANNOTATION)?;
        asked.trim().parse().ok()
    }

    /// A person asks for another VM than the one that there is.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        let attempt = self.vm().filter(|vm| vm.bios_uuid.is_some());
        let attempt = attempt.and_then(|vm| vm.attempt);
        attempt.is_some() && attempt == self.asked()
    }

    /// An Agent that matches but for its MAC addresses: a network card may have been replaced, which only a look tells.
    fn misses_mac(&self) -> bool {
        let identity = self.child.identity.as_ref();
        let differs = |a: &Arc<Agent>| {
            identity.is_some_and(|vm| agent_runs_on(a, vm) == AgentMatch::Partly(Misfit::Mac))
        };
        self.possible.iter().any(differs)
    }

    /// Why nobody can claim its Agent.
    #[must_use]
    pub fn lost(&self, memory: &Memory) -> Option<Lost> {
        let served = self.bound || self.child.has_served(memory.told());
        lost::lost(&self.child, &self.possible, served)
    }

    /// How long a lost Agent is waited for yet: by the record, and by this actor's own clock where it saw that begin.
    fn lost_left(&self, context: &Context, vm: &VmStatus, memory: &Memory) -> Duration {
        let patience = self.patience(context);
        let since = vm.agent_lost_since.as_ref();
        let by_record = since.map_or(patience, |t| {
            lost::left(t.0, patience, context.clock.wall())
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

    /// See [`lost::candidate`].
    #[must_use]
    pub fn candidate(&self) -> Option<&Agent> {
        let own = self.agent.as_deref();
        own.or_else(|| lost::candidate(&self.child, &self.possible).map(AsRef::as_ref))
    }

    /// The pool has tags for it.
    #[must_use]
    pub fn wants_tags(&self) -> bool {
        let vsphere = self.pool.as_ref().map(|p| &p.spec.vsphere);
        vsphere.is_some_and(|v| !v.vm_tags().is_empty())
    }

    /// Those tags are attached that the pool names now, or it is nobody's business: a host that serves, or did, is left alone, unless its record says that tags
    /// are missing. That outlives this actor.
    fn is_tagged(&self, memory: &Memory) -> bool {
        let recorded = self.vm().and_then(|vm| vm.moref.as_ref());
        let reference = match &memory.seen {
            Ownership::Ours(shown) => Some(&shown.moref.id),
            _ => recorded,
        };
        let attached =
            reference.is_some() && self.tagged_as(memory) == reference.map(String::as_str);
        let serves = self.bound || self.child.has_served(memory.told());
        !self.wants_tags() || attached || (serves && !self.lacks_tags())
    }

    /// Reference under which the pool's tags of now are attached.
    #[must_use]
    pub fn tagged_as<'a>(&self, memory: &'a Memory) -> Option<&'a str> {
        let wanted = self.pool.as_ref().map(|p| p.spec.vsphere.vm_tags());
        let tagged = memory.tagged.as_ref()?;
        let same = wanted.is_none_or(|tags| tagged.tags == tags || on(Mutant::TagsOnce));
        same.then_some(tagged.moref.as_str())
    }

    /// The record says so; one of an earlier release only by what it waits on.
    fn lacks_tags(&self) -> bool {
        let status = self.child.object.status.as_ref();
        let mut waiting = status.into_iter().flat_map(|s| &s.waiting_on);
        let recorded = self.vm().is_some_and(|vm| vm.tags_missing == Some(true));
        recorded || waiting.any(|w| w.reason == reason::TAGGING_FAILED)
    }

    /// Whether the record was taken away: a VM of it is in sight, this actor knew it, or no pass has left anything on a
    /// VsphereAgent that has been there for longer than a first pass takes.
    pub(super) fn loss(&self, context: &Context, memory: &Memory) -> Loss {
        let vm = self.vm();
        if self.child.adopted || vm.is_some_and(|vm| vm.bios_uuid.is_some()) {
            return Loss::None;
        }
        // The number alone stays when a VM was proven absent; whatever leads to a VM goes in the same write.
        let numbered = vm.is_some_and(|vm| vm.attempt.is_some());
        let torn = vm.is_some_and(|vm| vm.moref.is_some() || vm.vm_path.is_some());
        let first = BiosUuid::derive(&context.view.cluster_id(), &self.child.uid, 1);
        let object = self.child.object.as_ref();
        let untouched = || {
            let nothing = VsphereAgentStatus::default();
            upstream::age(object, context.clock.wall()) > FIRST_PASS
                && object.status.as_ref().is_none_or(|s| *s == nothing)
        };
        match &memory.seen {
            _ if torn => Loss::Unrecoverable,
            Ownership::Ours(shown) if shown.bios_uuid == Some(first) && !numbered => {
                Loss::Restorable
            }
            Ownership::Ours(_) | Ownership::Several(_) => Loss::Unrecoverable,
            _ if numbered => Loss::None,
            _ if memory.lost || memory.recorded == Some(first) => Loss::Restorable,
            _ if memory.recorded.is_some() => Loss::Unrecoverable,
            _ if untouched() => Loss::Restorable,
            _ => Loss::None,
        }
    }

    /// What the next step is decided from.
    #[must_use]
    pub fn facts<'a>(&'a self, context: &Context, memory: &'a Memory) -> Facts<'a> {
        let now = context.clock.monotonic();
        Facts {
            object: self.object_state(context),
            record: self.record_state(context, memory),
            pool: self.pool_state(context),
            vm: self.vm_state(context, memory, now),
            create: CreateState {
                not_sent: memory.create_not_sent,
                path_taken: memory.path_taken,
                place: self.site(memory, now),
            },
            agent: self.agent_state(context, memory),
            owner: OwnerState {
                state: &self.machine_state,
                vanished: self.vanished(memory),
                left_bound: self.is_left_bound(),
                has_another_host: self.machine_has_another,
                stuck_on_guest: memory
                    .stuck_since
                    .is_some_and(|t| now.saturating_sub(t) >= STUCK_GRACE)
                    && !on(Mutant::HookWaits),
            },
            arrival: self.arrival(context, memory),
            now,
        }
    }

    fn object_state(&self, context: &Context) -> ObjectState {
        let status = self.child.object.status.as_ref();
        let recorded_cluster = status.and_then(|s| s.cluster_id.as_deref());
        ObjectState {
            has_finalizer: self.child.has_finalizer,
            deleting: self.child.deleting,
            adopted: self.child.adopted,
            forced: self.child.forced,
            cluster_changed: recorded_cluster.is_some_and(|c| c != context.view.cluster_id()),
        }
    }

    fn record_state(&self, context: &Context, memory: &Memory) -> Record<'_> {
        let status = self.child.object.status.as_ref();
        let ejection = status.and_then(|s| s.iso_ejection.as_ref());
        let reached = memory.reached.as_ref().zip(self.vm());
        Record {
            vm: self.vm(),
            has_identity: self.child.identity.is_some(),
            loss: self.loss(context, memory),
            vcenter: reached.map(|(reached, vm)| reached.is_recorded(vm)),
            ejecting: ejection.is_some_and(|e| e.disconnect_started),
        }
    }

    fn pool_state(&self, context: &Context) -> PoolState<'_> {
        let pool = self.pool.as_deref();
        let is_held = |p: &VsphereAgentPool| {
            secret_ref::secret(p, &context.settings.secret_namespaces)
                // A wrong reference is reported where it is used.
                .map_or(true, |secret| secret_ref::holds(p, &secret))
        };
        PoolState {
            exists: pool.is_some(),
            policy: self.policy(),
            guard: self.guard.as_ref(),
            iso_ready: pool.is_some_and(|p| of_pool::iso_path(p).is_some()),
            credentials_held: pool.is_some_and(is_held),
            refused: self.refused.as_deref(),
        }
    }

    fn vm_state<'a>(&'a self, context: &Context, memory: &'a Memory, now: Duration) -> VmState<'a> {
        let agent_is_awaited = !memory.agent_seen || self.lost(memory).is_some();
        VmState {
            seen: &memory.seen,
            missing_in_scan: memory.missed
                || self.misses_mac()
                || self.vm().is_some_and(|vm| is_doubted(context, vm)),
            folder_deleted: memory.folder_deleted,
            stays_suspended: memory.suspended >= SUSPENDED_TRIES && !on(Mutant::SuspendedForEver),
            powered_on_by_us: memory.powered_on && agent_is_awaited,
            tagged: self.is_tagged(memory),
            eject: drive::is_to_be_emptied(
                self.pool.as_deref(),
                self.child.adopted,
                self.vm(),
                self.agent.as_deref(),
            ),
            resting: memory.busy.as_ref().and_then(|busy| busy.rests(now)),
        }
    }

    fn agent_state(&self, context: &Context, memory: &Memory) -> AgentState<'_> {
        // Where a request of ours may have switched the VM on, the Agent may be its own.
        let early = self.early.as_deref();
        AgentState {
            present: self.agent.is_some(),
            fenced: self.is_fenced(context),
            bound: self.bound,
            unproven: self.unproven.as_deref(),
            early: early.filter(|_| memory.switched_on_at.is_none()),
            has_served: self.child.has_served(memory.told()),
            guest_may_be_node: self.guest_may_be_node(memory),
        }
    }
}
