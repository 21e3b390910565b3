//! The last look before a VM is switched off, reset or destroyed. The actor reads everything that the decision depends on
//! live, also what people hold it back with, and the VM itself. It then makes the pure decision once more from that, and
//! sends the call. Before a power-on or a new boot order it looks so at the VM and its holds, unless it did a moment ago.
//!
//! Guarantee: the actor holds the slot by then, and awaits nothing between the look at the VM and the call.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use agent_forge_crds::{
    agent::VsphereAgent,
    conditions::Reason,
    external::{agent::Agent, agent_machine::AgentMachine, infra_env::InfraEnv},
    pool::VsphereAgentPool,
};
use kube::ResourceExt;

use super::{Executor, StepOutcome};
use crate::{
    context::Context,
    demand::agents_home,
    domain::{
        failure::{ErrorSource, ReconcileError},
        holds::Mode,
        identity::agent_runs_on,
        index_keys::{self, IndexKeys},
        machine_state::{MachineState, machine_state},
        managed_vm::ManagedVm,
        names::ObjectKey,
        selector,
        upstream::{MachineFacts, Pausable, PausableKind},
    },
    ports::{
        cluster::View,
        effect::EffectKind,
        vcenter::{VCenter, VmObservation},
    },
    runtime::holds::{self, Pausing},
    vm::{
        memory::Memory,
        observed::Observed,
        ownership::{self, Ownership},
        pass::held_back,
        step::{self, Step},
    },
};

/// The VM as it is now, and the session that shows it.
pub(super) struct Looked {
    pub(super) session: Arc<dyn VCenter>,
    pub(super) shown: VmObservation,
    /// Its pool, as it was read with it.
    pub(super) pool: Option<Arc<VsphereAgentPool>>,
}

/// What the API server has of all that decides about the end of a VM.
#[derive(Default)]
pub(super) struct Live {
    /// Namespaces whose Agents were listed.
    homes: BTreeSet<String>,
    /// Agents that may run on the VM, or were named as doing so.
    pub(super) agents: Vec<Arc<Agent>>,
    /// Where AgentMachine and Machine are.
    control_plane: Option<String>,
    /// The AgentMachine on record, those that name one of the Agents, and those whose selector one of them matches.
    agent_machines: Vec<Arc<AgentMachine>>,
    machines: Vec<Arc<MachineFacts>>,
}

impl Live {
    /// The AgentMachine that the VM is for, if neither it nor its Machine is being deleted. The provider deletes the
    /// AgentMachine only after the Machine is gone. Until then it may still name an Agent that it has already unbound.
    pub(super) fn living_agent_machine(&self, child: &ManagedVm) -> Option<&AgentMachine> {
        let record = child.agent_machine.as_ref()?;
        let home = self.control_plane.as_deref()?;
        if machine_state(child, home, &self.machines, &self.agent_machines) == MachineState::Leaving
        {
            return None;
        }
        let mut all = self.agent_machines.iter().map(AsRef::as_ref);
        all.find(|am| {
            am.name_any() == record.name
                && am.metadata.namespace.as_deref() == Some(home)
                && !am.is_deleting()
        })
    }
}

impl Executor<'_> {
    /// Reads it.
    pub(super) async fn read_live(&self) -> Result<Live, ReconcileError> {
        let (child, cluster) = (&self.observed.child, &self.context.cluster);
        let pool = self.observed.pool.as_deref();
        let control_plane = self.observed.control_plane().map(str::to_owned);
        let mut own = None;
        if let (Some(home), Some(record)) = (&control_plane, &child.agent_machine) {
            let key = ObjectKey::new(home, &record.name);
            own = cluster.live_agent_machine(&key).await?;
        }
        let chosen = own.as_ref().and_then(AgentMachine::agent_ref);
        let chosen = chosen.map(|r| ObjectKey::new(&r.namespace, &r.name));
        let mut homes = agents_home::namespaces(pool, [child]);
        homes.extend(chosen.iter().map(|key| key.namespace.clone()));
        let named: BTreeSet<ObjectKey> = agents_home::names(pool, child)
            .into_iter()
            .chain(child.agent.clone())
            .chain(chosen)
            .chain(
                self.observed
                    .possible
                    .iter()
                    .map(|a| ObjectKey::of(a.as_ref())),
            )
            .collect();
        let mut agents = Vec::new();
        for home in &homes {
            let (identity, named) = (child.identity.clone(), named.clone());
            let wanted = move |a: &Agent| {
                let runs = |vm| agent_runs_on(a, vm).may_run_there();
                named.contains(&ObjectKey::of(a)) || identity.as_ref().is_some_and(runs)
            };
            let found = cluster.live_agents(home, Arc::new(wanted)).await?;
            agents.extend(found.into_iter().map(Arc::new));
        }
        let all = cluster
            .live_agent_machines(wanted_agent_machines(child, &agents))
            .await?;
        let mut agent_machines: Vec<_> = all.into_iter().map(Arc::new).collect();
        let listed = |am: &AgentMachine| agent_machines.iter().any(|a| a.uid() == am.uid());
        if let Some(own) = own.filter(|own| !listed(own)) {
            agent_machines.push(Arc::new(own));
        }
        let machines = match &control_plane {
            Some(home) => cluster.live_machines(home).await?,
            None => Vec::new(),
        };
        Ok(Live {
            homes,
            agents,
            control_plane,
            agent_machines,
            machines: machines.into_iter().map(Arc::new).collect(),
        })
    }

    /// The look before `step`: a power-off, a reset, a destruction, or the renewal for another life. Only a reset may hit a
    /// bound host. A power-on and a new boot order ask for no Agents and Machines. If the look before them is at most
    /// [`FRESH`] old, it is enough.
    ///
    /// # Errors
    /// The outer result says what keeps the VM, by what was read. The inner result says what to do instead.
    pub(super) async fn last_look(
        &self,
        memory: &mut Memory,
        step: &Step,
    ) -> Result<Result<Looked, StepOutcome>, ReconcileError> {
        let starts = step.starts_vm();
        let now = self.context.clock.monotonic();
        let is_fresh = |at| now.saturating_sub(at) <= FRESH;
        if starts && memory.looked_at.is_some_and(is_fresh) {
            return Ok(Ok(self.as_seen(memory).await?));
        }
        let before = self.shown(memory)?;
        let session = self.session().await?;
        let child = self
            .context
            .cluster
            .live_child(&self.observed.child.key)
            .await?;
        let same = |c: &VsphereAgent| c.uid().as_ref() == Some(&self.observed.child.uid);
        let Some(child) = child.filter(same) else {
            return Ok(Err(StepOutcome::Pause(SOON)));
        };
        let child = ManagedVm::read(Arc::new(child));
        let stays = *step == Step::ResetVm;
        let live = if starts || child.forced && !stays {
            None
        } else {
            Some(self.read_live().await?)
        };
        if let Some(live) = live.as_ref().filter(|_| !stays) {
            self.unbound(live)?;
            self.fenced(live)?;
        }
        let pausing = self.pausing(&child).await?;
        let shown = session.observe(&before.moref).await?;
        // From here on nothing is awaited.
        let now = self.context.clock.monotonic();
        let found = shown.into_iter().collect();
        let seen = ownership::judge(found, &self.expected(), &Ownership::NotAsked, now);
        let Ownership::Ours(shown) = &seen else {
            // The VM is missing, or another VM has its reference: the next step looks for it.
            memory.seen = Ownership::NotAsked;
            return Ok(Err(StepOutcome::Same));
        };
        let shown = shown.as_ref().clone();
        memory.seen = seen;
        memory.looked_at = None;
        let live = live.unwrap_or_default();
        let context = seeing(self.context, live, pausing, child.object.clone());
        let observed = Observed::gather(context.view.as_ref(), child.object);
        observed.remember(memory);
        let next = step::next(&observed.facts(&context, memory));
        match held_back(&context, &observed, next) {
            next if next == *step => {
                memory.looked_at = Some(now);
                let pool = observed.pool;
                Ok(Ok(Looked {
                    session,
                    shown,
                    pool,
                }))
            }
            // The same by what the caches show, so that the VM is the reason.
            _ if starts && step::next(&self.observed.facts(self.context, memory)) != *step => {
                Ok(Err(StepOutcome::Same))
            }
            Step::Hold {
                reason, message, ..
            } => Err(ReconcileError::transient(
                ErrorSource::Upstream,
                reason,
                message,
            )),
            // Only the VM changed: it is off already, or on again.
            Step::PowerOff
            | Step::Destroy
            | Step::Renew(_)
            | Step::BeginLife(_)
            | Step::RecordLife(_) => Ok(Err(StepOutcome::Same)),
            // The watch will show the reason.
            _ => Ok(Err(StepOutcome::Pause(SOON))),
        }
    }
}

impl Executor<'_> {
    /// Reads live what can pause the VM above its VsphereAgent. A forced deletion asks the pool alone.
    async fn pausing(&self, child: &ManagedVm) -> Result<Pausing, ReconcileError> {
        let key = ObjectKey::new(&child.key.namespace, &child.object.spec.pool_ref.name);
        let (view, cluster) = (self.context.view.as_ref(), self.context.cluster.as_ref());
        if child.forced {
            return Ok(Pausing::read_pool(cluster, &key).await?);
        }
        let home = self.observed.control_plane();
        Ok(Pausing::read(view, cluster, &key, home).await?)
    }

    /// Asks directly before an effect that needs no look at the VM whether people hold it back, by what the API server has.
    /// `live`: what was read of it already.
    pub(super) async fn held_live(
        &self,
        kind: EffectKind,
        live: Live,
    ) -> Result<(), ReconcileError> {
        let key = &self.observed.child.key;
        let child = self.context.cluster.live_child(key).await?;
        let same = |c: &VsphereAgent| c.uid().as_ref() == Some(&self.observed.child.uid);
        let Some(child) = child.filter(same) else {
            return Err(ReconcileError::transient(
                ErrorSource::Kubernetes,
                Reason::Conflict,
                format!("VsphereAgent {key} is gone, or is another one by now"),
            ));
        };
        let child = ManagedVm::read(Arc::new(child));
        let pausing = self.pausing(&child).await?;
        let context = seeing(self.context, live, pausing, child.object.clone());
        let holds = holds::of_vm(context.view.as_ref(), &child);
        match holds::who_holds(kind, &holds, self.context.clock.wall()) {
            Some(hold) => Err(ReconcileError::transient(
                ErrorSource::Upstream,
                hold.reason,
                format!("{} waits: {}", kind.name(), hold.why),
            )),
            None => Ok(()),
        }
    }
}

/// How old a look may be when a VM is switched on, or gets its boot order. These follow a create within seconds.
const FRESH: Duration = Duration::from_secs(10);

/// How long until the watch shows what a look showed.
pub(super) const SOON: Duration = Duration::from_secs(2);

/// The AgentMachines that matter for an Agent that may run on the VM.
fn wanted_agent_machines(
    child: &ManagedVm,
    agents: &[Arc<Agent>],
) -> crate::ports::cluster::AgentMachineFilter {
    let record = child.agent_machine.as_ref().map(|r| r.name.clone());
    let agents = agents.to_vec();
    Arc::new(move |am: &AgentMachine| {
        let chosen = am.agent_ref();
        let concerns = |a: &Arc<Agent>| {
            chosen.is_some_and(|r| r.name == a.name_any())
                || selector::matches(am.spec.agent_label_selector.as_ref(), a.labels())
        };
        am.metadata.name == record || agents.iter().any(concerns)
    })
}

/// The same ports, with what was read live instead of the cache.
fn seeing(context: &Context, live: Live, pausing: Pausing, child: Arc<VsphereAgent>) -> Context {
    let view = LiveView {
        cached: pausing.over(context.view.clone()),
        live,
        child,
    };
    Context {
        view: Arc::new(view),
        ..context.clone()
    }
}

struct LiveView {
    cached: Arc<dyn View>,
    live: Live,
    child: Arc<VsphereAgent>,
}

impl LiveView {
    fn is_control_plane(&self, namespace: &str) -> bool {
        self.live.control_plane.as_deref() == Some(namespace)
    }
}

impl View for LiveView {
    fn ready(&self) -> bool {
        self.cached.ready()
    }
    fn mode(&self) -> Mode {
        self.cached.mode()
    }
    fn cluster_id(&self) -> String {
        self.cached.cluster_id()
    }
    fn pools(&self) -> Vec<Arc<VsphereAgentPool>> {
        self.cached.pools()
    }
    fn pool(&self, key: &ObjectKey) -> Option<Arc<VsphereAgentPool>> {
        self.cached.pool(key)
    }
    fn children(&self, pool: &ObjectKey) -> Vec<Arc<VsphereAgent>> {
        self.cached.children(pool)
    }
    fn child(&self, key: &ObjectKey) -> Option<Arc<VsphereAgent>> {
        if *key == ObjectKey::of(self.child.as_ref()) {
            return Some(self.child.clone());
        }
        self.cached.child(key)
    }
    fn all_children(&self) -> Vec<Arc<VsphereAgent>> {
        self.cached.all_children()
    }
    fn agent_machines(&self, namespace: &str) -> Vec<Arc<AgentMachine>> {
        if !self.is_control_plane(namespace) {
            return self.cached.agent_machines(namespace);
        }
        let all = self.live.agent_machines.iter();
        let there = all.filter(|am| am.metadata.namespace.as_deref() == Some(namespace));
        there.cloned().collect()
    }
    fn all_agent_machines(&self) -> Vec<Arc<AgentMachine>> {
        let mut all = self.live.agent_machines.clone();
        let is_live = |am: &AgentMachine| {
            let mut live = self.live.agent_machines.iter();
            live.any(|l| l.metadata.uid == am.metadata.uid)
        };
        let cached = self.cached.all_agent_machines().into_iter();
        all.extend(cached.filter(|am| !is_live(am)));
        all
    }
    fn machines(&self, namespace: &str) -> Vec<Arc<MachineFacts>> {
        if self.is_control_plane(namespace) {
            self.live.machines.clone()
        } else {
            self.cached.machines(namespace)
        }
    }
    fn pausables(&self, kind: PausableKind, namespace: &str) -> Vec<Arc<Pausable>> {
        self.cached.pausables(kind, namespace)
    }
    fn agents(&self, namespace: &str) -> Vec<Arc<Agent>> {
        if !self.live.homes.contains(namespace) {
            return self.cached.agents(namespace);
        }
        let all = self.live.agents.iter();
        let there = all.filter(|a| a.metadata.namespace.as_deref() == Some(namespace));
        there.cloned().collect()
    }
    fn agents_with(&self, namespace: &str, keys: &IndexKeys) -> Vec<Arc<Agent>> {
        if !self.live.homes.contains(namespace) {
            return self.cached.agents_with(namespace, keys);
        }
        let mut there = self.agents(namespace);
        there.retain(|agent| !index_keys::of_agent(agent).is_disjoint(keys));
        there
    }
    fn infra_env(&self, key: &ObjectKey) -> Option<Arc<InfraEnv>> {
        self.cached.infra_env(key)
    }
    fn history(&self) -> u64 {
        self.cached.history()
    }
    fn is_in_doubt(&self) -> bool {
        self.cached.is_in_doubt()
    }
    fn over_bound(&self, namespace: &str) -> Option<String> {
        self.cached.over_bound(namespace)
    }
    fn all_over_bound(&self) -> Vec<String> {
        self.cached.all_over_bound()
    }
    fn serves(&self, namespace: &str) -> bool {
        self.cached.serves(namespace)
    }
    fn namespace_grant(&self, namespace: &str) -> Option<String> {
        self.cached.namespace_grant(namespace)
    }
}
