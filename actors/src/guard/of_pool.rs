//! What is proven live before a pool releases a VsphereAgent or moves it, and before it fences or approves an Agent.
//!
//! Its actor reads the named objects, not whole lists: the VM actor proves all of it again before it ends the VM.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agent_forge_crds::{
    conditions::Reason,
    external::{agent::Agent, agent_machine::AgentMachine},
    pool::VsphereAgentPool,
};
use tokio::sync::OnceCell;

use super::pausing::Pausing;
use crate::{
    context::Context,
    demand::prepare,
    domain::{
        failure::ReconcileError,
        holds::Holds,
        machine_state::{MachineState, machine_state},
        managed_vm::ManagedVm,
        names::{MoRef, ObjectKey},
        upstream::{self, MachineFacts},
    },
    lifecycle::ReleaseReason,
    ports::{
        cluster::{AgentPatch, Precondition},
        effect::{Effect, Hold},
        permit::Permit,
        vcenter::VmObservation,
    },
    runtime::holds,
    sessions::of_vm,
    world::agents_home,
};

/// How long a pass waits for a vCenter before it releases a VsphereAgent.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Why a VsphereAgent stays whose VM may serve an AgentMachine that its record does not know of.
pub const OUTDATED: &str = "its VM says in vCenter that it may serve an AgentMachine that this hub does not know of: nothing is \
     prepared, fenced or released until a person decides";

/// The Machines of the control plane namespace, and what can pause the pool. Both are read live when the first action of a
/// pass needs them, so after its plan was made.
///
/// The other actions of the pass use the same reads. So a hundred machines that are deleted together cost one list. If a
/// VsphereAgent has its Machine in another namespace on record, that Machine is read for each action.
#[derive(Default)]
pub struct LiveReads {
    machines: OnceCell<Vec<MachineFacts>>,
    pausing: OnceCell<Pausing>,
    /// The recorded vCenters that did not answer in time.
    silent: Mutex<BTreeSet<Option<String>>>,
}

/// Why nothing is done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// People hold it back.
    HeldBack(Hold),
    /// The API server or vCenter shows something else than the caches: reason and sentence.
    Shown(Reason, String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeldBack(hold) => f.write_str(&hold.why),
            Self::Shown(_, why) => f.write_str(why),
        }
    }
}

/// What a VsphereAgent is to be changed for.
#[derive(Clone, Copy, Debug)]
pub enum Leaves<'a> {
    /// It is deleted.
    Deleted(ReleaseReason),
    /// It goes into the buffer, as it is or with another life.
    ToBuffer(ReleaseReason),
    /// It is for this AgentMachine. `true`: the Machine that it was for is leaving.
    To(&'a AgentMachine, bool),
    /// It is free, and is for another pool.
    ToPool,
}

/// A VsphereAgent, as its pool knows it from the caches.
pub struct PoolCase<'a> {
    /// The ports.
    pub context: &'a Context,
    /// The pool.
    pub pool: &'a Arc<VsphereAgentPool>,
    /// The record.
    pub child: &'a ManagedVm,
    /// Agents that may run on its VM, by all names that they can have.
    pub agents: BTreeSet<ObjectKey>,
    /// Whether an Agent that the caches show as fenced can be chosen again, as it was read now.
    pub was_unfenced: &'a (dyn Fn(&Agent) -> bool + Send + Sync),
}

impl PoolCase<'_> {
    /// The permit to change the VsphereAgent at the version that the plan saw.
    ///
    /// # Errors
    /// A read failed. The inner result says what holds it back.
    pub async fn permit(
        &self,
        reads: &LiveReads,
        effect: &Effect,
        leaves: Leaves<'_>,
    ) -> Result<Result<Permit<Precondition>, Refusal>, ReconcileError> {
        if let Some(hold) = self.held(reads, effect).await? {
            return Ok(Err(Refusal::HeldBack(hold)));
        }
        let shown = match leaves {
            Leaves::ToBuffer(why) => self.released(reads, why).await?,
            Leaves::Deleted(why) => match self.released(reads, why).await? {
                // The record of a pool that goes cannot stay.
                None if why != ReleaseReason::PoolDeleting => self.outdated(reads).await,
                shown => shown,
            },
            Leaves::To(agent_machine, true) => self.serves_another(agent_machine).await?,
            Leaves::To(_, false) => None,
            Leaves::ToPool => self.stays(reads).await?,
        };
        Ok(match shown {
            Some((reason, message)) => Err(Refusal::Shown(reason, message)),
            None => Ok(Permit::issue(
                effect.clone(),
                Precondition::of(self.child.object.as_ref()),
            )),
        })
    }

    /// The permit to prepare the Agent of the VM, so that an AgentMachine can have it: the identity rule again, on the objects as
    /// the API server has them. A late cache never leads to a wrong approval. `shown`: the Agents that name the VM, by the caches.
    ///
    /// Assumption: a host registers under a uuid. A rival that no cache shows yet has the VM's uuid as its name, in one byte order
    /// or the other. An Agent with any other name was written by hand, and the cache shows it.
    ///
    /// # Errors
    /// A read failed. The inner result says what holds it back; `None`: something else than planned is there by now.
    pub async fn permit_promise<'b>(
        &self,
        reads: &LiveReads,
        effect: &Effect,
        patch: &AgentPatch,
        shown: impl Iterator<Item = &'b Arc<Agent>>,
    ) -> Result<Result<Permit<AgentPatch>, Option<Refusal>>, ReconcileError> {
        let cluster = self.context.cluster.as_ref();
        if let Some(hold) = self.held(reads, effect).await? {
            return Ok(Err(Some(Refusal::HeldBack(hold))));
        }
        let live = cluster.live_child(&self.child.key).await?;
        let live = live.map(|live| ManagedVm::read(Arc::new(live)));
        let Some(live) = live.filter(|live| prepare::is_wanted_by(self.child, live)) else {
            return Ok(Err(None));
        };
        // A late cache shows old versions one after the other. The API server would refuse a write for each of them.
        let agent = cluster.live_agent(&patch.key).await?;
        let Some(agent) = agent.filter(|a| patch.is_made_from(a)) else {
            return Ok(Err(None));
        };
        let mut asked = BTreeSet::from([patch.key.clone()]);
        let mut agents = vec![Arc::new(agent)];
        for key in agents_home::own_names(Some(self.pool), &live) {
            if asked.insert(key.clone()) {
                agents.extend(cluster.live_agent(&key).await?.map(Arc::new));
            }
        }
        let unread = shown.filter(|a| !asked.contains(&ObjectKey::of(a.as_ref())));
        agents.extend(unread.cloned());
        let lineup = live.lineup(&agents);
        let proven = lineup.approvable();
        if proven.is_some_and(|a| ObjectKey::of(a.as_ref()) == patch.key) {
            return Ok(Ok(Permit::issue(effect.clone(), patch.clone())));
        }
        let doubt = lineup.doubt();
        Ok(Err(doubt.map(|d| Refusal::Shown(d.reason, d.message))))
    }

    /// Why a bound Agent keeps its labels: its Machine is neither leaving nor gone. `None`: they may go.
    ///
    /// # Errors
    /// A read failed.
    pub async fn keeps_labels(
        &self,
        reads: &LiveReads,
        agent: &Agent,
    ) -> Result<Option<(Reason, String)>, ReconcileError> {
        if !agent.is_claimed_or_bound() {
            return Ok(None);
        }
        let (state, _) = self.machine(reads).await?;
        let goes = matches!(state, MachineState::Leaving | MachineState::Gone);
        Ok((!goes).then(|| shown_otherwise(&state)))
    }

    /// What people hold `effect` back with, by what the API server has of the pool and above it. The write itself names the
    /// version of the VsphereAgent, so that a hold on that is not missed either.
    async fn held(
        &self,
        reads: &LiveReads,
        effect: &Effect,
    ) -> Result<Option<Hold>, ReconcileError> {
        let (holds, now) = (self.holds(reads).await?, self.context.clock.wall());
        Ok(holds::who_holds(effect.kind, &holds, now))
    }

    /// A pool as the API server has it, if it may do `effect`: it is not being deleted, and nobody holds it back.
    ///
    /// # Errors
    /// A read failed.
    pub async fn pool(
        context: &Context,
        key: &ObjectKey,
        reads: &LiveReads,
        effect: &Effect,
    ) -> Result<Result<Arc<VsphereAgentPool>, Refusal>, ReconcileError> {
        let (view, cluster) = (context.view.as_ref(), context.cluster.as_ref());
        let read = || Pausing::read(view, cluster, key, None);
        let pausing = reads.pausing.get_or_try_init(read).await?.clone();
        let pool = pausing.pool(key).flatten().cloned();
        let lives = |pool: &Arc<VsphereAgentPool>| pool.metadata.deletion_timestamp.is_none();
        let Some(pool) = pool.filter(lives) else {
            let why = format!("VsphereAgentPool {key} is gone, or going");
            return Ok(Err(Refusal::Shown(Reason::PoolNotFound, why)));
        };
        let holds = holds::of_pool(pausing.over(context.view.clone()).as_ref(), key);
        let held = holds::who_holds(effect.kind, &holds, context.clock.wall());
        Ok(held.map_or(Ok(pool), |hold| Err(Refusal::HeldBack(hold))))
    }

    /// All that holds the VM, by what the API server has of the pool and above it.
    pub(super) async fn holds(&self, reads: &LiveReads) -> Result<Holds, ReconcileError> {
        let (view, cluster) = (self.context.view.as_ref(), self.context.cluster.as_ref());
        let key = ObjectKey::of(self.pool.as_ref());
        let read = || Pausing::read(view, cluster, &key, None);
        let pausing = reads.pausing.get_or_try_init(read).await?.clone();
        let pausing = pausing.with_maker(cluster, self.child).await?;
        let view = pausing.over(self.context.view.clone());
        Ok(holds::of_vm(view.as_ref(), self.child))
    }

    async fn agent_machine(&self) -> Result<Option<AgentMachine>, ReconcileError> {
        let Some(recorded) = &self.child.agent_machine else {
            return Ok(None);
        };
        let key = ObjectKey::new(self.child.home(self.pool), &recorded.name);
        Ok(self.context.cluster.live_agent_machine(&key).await?)
    }

    /// The state of its Machine, and its AgentMachine.
    async fn machine(
        &self,
        reads: &LiveReads,
    ) -> Result<(MachineState, Option<AgentMachine>), ReconcileError> {
        let cluster = self.context.cluster.as_ref();
        let home = self.child.home(self.pool);
        let agent_machine = self.agent_machine().await?;
        let all: Vec<_> = agent_machine.iter().cloned().map(Arc::new).collect();
        if home != self.pool.control_plane() {
            let machines = cluster.live_machines(home).await?;
            let state = machine_state(self.child, home, &machines, &all);
            return Ok((state, agent_machine));
        }
        let machines = reads
            .machines
            .get_or_try_init(|| cluster.live_machines(home));
        let state = machine_state(self.child, home, machines.await?, &all);
        Ok((state, agent_machine))
    }

    /// Proves that it may be released. A Machine counts as gone only by proof. An Agent that is bound or reserved keeps its VM,
    /// and so does one that the plan would have fenced first.
    async fn released(
        &self,
        reads: &LiveReads,
        why: ReleaseReason,
    ) -> Result<Option<(Reason, String)>, ReconcileError> {
        let agent_machine = if why == ReleaseReason::MachineGone {
            let (state, agent_machine) = self.machine(reads).await?;
            if state != MachineState::Gone {
                return Ok(Some(shown_otherwise(&state)));
            }
            agent_machine
        } else {
            self.agent_machine().await?
        };
        for key in &self.agents {
            let Some(agent) = self.context.cluster.live_agent(key).await? else {
                continue;
            };
            let reserved = agent_machine.as_ref().is_some_and(|am| {
                let named = am.agent_ref().is_some_and(|r| r.name == key.name);
                named && !am.is_deleting() && why != ReleaseReason::MachineGone
            });
            if agent.is_claimed_or_bound() || reserved {
                return Ok(Some(bound(key)));
            }
            if !agent.is_deleting() && (self.was_unfenced)(&agent) {
                return Ok(Some((
                    Reason::AgentNotFenced,
                    format!("Agent {key} can be chosen, as it has changed since; looking again"),
                )));
            }
        }
        Ok(None)
    }

    /// Proves by a look in vCenter that the record knows of all that the VM may serve.
    ///
    /// The deletion of a VsphereAgent cannot be taken back. A record that is older than its VM, as after a restore of the hub, is
    /// kept for a person. A vCenter that does not answer in time is waited for once in a pass.
    async fn outdated(&self, reads: &LiveReads) -> Option<(Reason, String)> {
        let server = self.child.vm().and_then(|vm| vm.server.clone());
        let silent = || reads.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = if silent().contains(&server) {
            None
        } else {
            tokio::time::timeout(PATIENCE, self.is_forgotten())
                .await
                .ok()
        };
        match answer {
            Some(Ok(false)) => None,
            Some(Ok(true)) => Some((Reason::RecordOutdated, OUTDATED.to_owned())),
            Some(Err(trouble)) => Some((
                trouble.reason,
                format!("its VM is looked at before it goes: {}", trouble.message),
            )),
            None => {
                silent().insert(server);
                let message =
                    "its VM is looked at before it goes, and vCenter has not answered yet";
                Some((Reason::VcenterNoAnswer, message.to_owned()))
            }
        }
    }

    /// Looks whether its VM says in vCenter that it may serve an AgentMachine that the record does not know of.
    async fn is_forgotten(&self) -> Result<bool, ReconcileError> {
        let vm = self.child.vm().filter(|_| !self.child.adopted);
        let Some(moref) = vm.and_then(|vm| vm.moref.as_deref()) else {
            return Ok(false);
        };
        let context = self.context;
        let (sessions, settings) = (context.sessions.as_ref(), &context.settings);
        let namespaces = &settings.secret_namespaces;
        let (session, _) =
            of_vm::session(sessions, namespaces, self.child, Some(self.pool)).await?;
        let shown = session
            .observe(&MoRef::new("VirtualMachine", moref))
            .await?;
        let marker = self.child.marker(context.view.cluster_id());
        let ours = shown.filter(|vm| vm.marker.as_ref() == Some(&marker));
        let says = ours.as_ref().and_then(VmObservation::may_serve_now);
        Ok(says.is_some_and(|mark| self.child.forgets(mark)))
    }

    /// Proves that the Agent of a VM whose Machine is leaving serves nobody but that AgentMachine. An Agent that is bound is freed
    /// only for the Machine on record.
    async fn serves_another(
        &self,
        agent_machine: &AgentMachine,
    ) -> Result<Option<(Reason, String)>, ReconcileError> {
        for key in &self.agents {
            let agent = self.context.cluster.live_agent(key).await?;
            let serves = |a: &Agent| a.is_claimed_or_bound() && !upstream::claims(a, agent_machine);
            if agent.is_some_and(|a| serves(&a)) {
                return Ok(Some(bound(key)));
            }
        }
        Ok(None)
    }
}

fn bound(agent: &ObjectKey) -> (Reason, String) {
    (Reason::AgentBound, format!("Agent {agent} is bound"))
}

/// The message for an action that waits because its Machine is not in the state that the plan saw.
fn shown_otherwise(state: &MachineState) -> (Reason, String) {
    let message = match state {
        MachineState::Unknown(why) => why.clone(),
        other => format!("the API server shows its Machine ({other:?}); looking again"),
    };
    (Reason::MachineStateUnknown, message)
}
