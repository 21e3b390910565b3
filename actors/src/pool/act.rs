//! Carries a plan out, action by action. It decides nothing.
//!
//! Before it releases a VsphereAgent, and before it approves or fences an Agent, live reads prove what the plan saw in
//! the cache. What ends the use of a VM also asks live whether people hold it back.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agent_forge_crds::{
    agent::{VsphereAgent, VsphereAgentSpec},
    conditions::Reason,
    external::{agent::Agent, agent_machine::AgentMachine},
    names::{
        AGENT_FINALIZER, AGENT_MACHINE_LABEL, AGENT_MACHINE_UID_ANNOTATION, API_VERSION,
        CREATED_FOR_AGENT_MACHINE, CREATED_FOR_BUFFER, CREATED_FOR_LABEL, MACHINE_NAME_ANNOTATION,
        MACHINE_UID_ANNOTATION, OFFERED_TO_ANNOTATION, POOL_FINALIZER, POOL_LABEL,
        RECYCLE_ANNOTATION, TAKEN_FROM_ANNOTATION, VM_NAME_ANNOTATION,
    },
    pool::{ObjectNameRef, VsphereAgentPool, VsphereAgentPoolStatus},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;
use tokio::sync::OnceCell;

use super::{
    Memory, approve,
    observed::Observed,
    plan::{self, Action, Plan, Waiting, iso::IsoPlan},
    provision, publish, secret_finalizers, traced,
    vcenter::SESSION_PATIENCE,
};
use crate::{
    context::Context,
    domain::{
        failure::{Class, ReconcileError},
        machine_state::{MachineState, machine_state},
        managed_vm::ManagedVm,
        names::{MoRef, ObjectKey},
        reassign::Source,
        upstream::{self, MachineFacts},
    },
    iso::{msg::IsoState, of_pool::IsoCaches},
    lifecycle::ReleaseReason,
    ports::{
        cluster::{MetadataPatch, Precondition},
        effect::{Effect, Hold},
        vcenter::VmObservation,
    },
    runtime::holds::{self, Pausing},
    sessions::of_vm,
};

/// How long until the pass looks again at what a live read held back.
const HELD: Duration = Duration::from_secs(5);

/// The result of carrying a plan out.
pub struct Acted {
    /// VsphereAgents created.
    pub created: usize,
    /// VsphereAgents that serve another AgentMachine now.
    pub reassigned: usize,
    /// VsphereAgents released.
    pub released: usize,
    /// The pool object is released: its status is not written any more.
    pub gone: bool,
    /// Look again after that time.
    pub again: Option<Duration>,
    /// What a live read held back.
    pub held: Vec<Waiting>,
    /// The first failure. The later actions were tried all the same.
    pub result: Result<(), ReconcileError>,
}

/// Carries the plan out: first the Secrets, because machines need them, then the machines. This needs only the cluster.
pub async fn execute(
    context: &Context,
    isos: &dyn IsoCaches,
    s: &Observed,
    plan: &Plan,
    memory: &mut Memory,
) -> Acted {
    let secrets = if s.stop().is_some() {
        Ok(())
    } else {
        secret_finalizers::execute(context, s, &plan.secrets, memory).await
    };
    let mut acted = perform_all(context, s, &plan.actions, memory).await;
    acted.result = acted.result.and(secrets);
    if plan.leave_iso {
        isos.leave(&s.key);
    }
    acted
}

/// Carries out the plan for the ISO. Returns how far the ISO is, if one is wanted.
pub async fn execute_iso(
    isos: &dyn IsoCaches,
    plan: &IsoPlan,
    memory: &mut Memory,
) -> Option<IsoState> {
    let (cache, want) = plan.ensure.as_ref()?;
    let mut state = match isos.ensure(cache.clone(), want.clone()).await {
        Ok(state) => state,
        Err(trouble) => IsoState::Failed(trouble),
    };
    memory.infra_env.told(&state);
    let IsoState::Ready {
        pruned,
        prune_failures,
        ..
    } = &mut state
    else {
        return Some(state);
    };
    for (key, left) in &plan.clear {
        match isos.clear(key.clone(), left.clone()).await {
            Ok((gone, kept)) => {
                pruned.extend(gone);
                prune_failures.extend(kept);
            }
            Err(trouble) => tracing::debug!(reason = %trouble.reason, "{trouble}"),
        }
    }
    Some(state)
}

/// Carries all actions on machines out, in order. Actions that provision different AgentMachines run side by side.
///
/// An action that fails does not hold the others back, because they are for different machines. An Agent that still
/// changes is prepared a moment later.
pub async fn perform_all(
    context: &Context,
    s: &Observed,
    actions: &[Action],
    memory: &mut Memory,
) -> Acted {
    memory.failures.keep(actions);
    let (due, again) = memory.settling.due(actions, s.now);
    let mut acted = Acted {
        created: 0,
        reassigned: 0,
        released: 0,
        gone: false,
        again,
        held: Vec::new(),
        result: Ok(()),
    };
    let mut failed = provision::Failed::new();
    let mut unpinned = false;
    let live = LiveReads::default();
    for run in due.chunk_by(|a, b| provision::whose(a).is_some() && provision::whose(b).is_some()) {
        if run.iter().any(|a| provision::whose(a).is_some()) {
            let all = provision::side_by_side(context, s, run, &memory.failures, &mut failed).await;
            for (action, result) in all {
                let done = matches!(result, Ok(ActionOutcome::It));
                unpinned |= !done && matches!(action, Action::Pin { .. });
                acted.note(s, action, result, memory);
            }
            continue;
        }
        for action in run {
            // An AgentMachine that could not be pinned might take this Agent: a later pass prepares it.
            if unpinned && matches!(action, Action::Prepare { .. }) {
                continue;
            }
            let mut result = traced::perform(context, s, action, &memory.failures, &live).await;
            if let Ok(ActionOutcome::Record(change)) = result {
                let written = publish::record(context, s, memory, change).await;
                result = written.map(|()| ActionOutcome::It);
            }
            acted.note(s, action, result, memory);
        }
    }
    acted
}

impl Acted {
    /// Logs what failed.
    pub fn log(&self, pool: &ObjectKey) {
        match &self.result {
            // After a write conflict the next pass looks again at once: it is not worth a warning.
            Err(trouble) if trouble.class == Class::Conflict => {
                tracing::debug!(object = %pool, reason = %trouble.reason, "{trouble}");
            }
            Err(trouble) => {
                tracing::warn!(object = %pool, reason = %trouble.reason, "{trouble}");
            }
            Ok(()) => {}
        }
    }

    fn note(
        &mut self,
        s: &Observed,
        action: &Action,
        result: Result<ActionOutcome, ReconcileError>,
        memory: &mut Memory,
    ) {
        memory.failures.note(action, result.is_err());
        match result {
            Ok(ActionOutcome::It) => {
                memory.pending.note(action, s.now);
                let is_creation = matches!(
                    action,
                    Action::CreateChild { .. } | Action::CreateForBuffer { .. }
                );
                let is_new_use = matches!(
                    action,
                    Action::Reassign { .. }
                        | Action::Borrow { .. }
                        | Action::MoveToBuffer { .. }
                        | Action::Recycle { .. }
                );
                self.created += usize::from(is_creation);
                self.reassigned += usize::from(is_new_use);
                self.released += usize::from(matches!(action, Action::Release { .. }));
            }
            Ok(ActionOutcome::Record(_)) => {}
            Ok(ActionOutcome::Gone) => self.gone = true,
            Ok(ActionOutcome::Held(why)) => {
                self.again = Some(self.again.map_or(HELD, |a| a.min(HELD)));
                self.held.extend(why);
            }
            Ok(ActionOutcome::HeldBack(why)) => {
                if !self.held.contains(&why) {
                    self.held.push(why);
                }
            }
            Err(trouble) => {
                let worse = self
                    .result
                    .as_ref()
                    .err()
                    .is_none_or(|t| t.class == Class::Conflict);
                if worse {
                    self.result = Err(trouble);
                }
            }
        }
    }
}

/// The result of an action that did not fail.
pub enum ActionOutcome {
    /// It was carried out.
    It,
    /// It was carried out, and it changes the pool's status, which is to be written.
    Record(fn(&mut VsphereAgentPoolStatus)),
    /// It was carried out. The pool object has changed by it, or is gone.
    Gone,
    /// It is not possible now. With the message, if the plan has none.
    Held(Option<Waiting>),
    /// People hold it back: nothing was tried.
    HeldBack(Waiting),
}

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

impl LiveReads {
    /// What people hold `effect` on `child` back with, by what the API server has of the pool and above it. The write itself
    /// names the version of the VsphereAgent, so that a hold on that is not missed either.
    async fn held(
        &self,
        context: &Context,
        s: &Observed,
        effect: &Effect,
        child: &ManagedVm,
    ) -> Result<Option<Hold>, ReconcileError> {
        let (view, cluster) = (context.view.as_ref(), context.cluster.as_ref());
        let read = || Pausing::read(view, cluster, &s.key, None);
        let pausing = self.pausing.get_or_try_init(read).await?.clone();
        let view = pausing.over(context.view.clone());
        let holds = holds::of_vm(view.as_ref(), child);
        Ok(holds::who_holds(effect.kind, &holds, context.clock.wall()))
    }

    /// The state of the Machine of `child`, and its AgentMachine: live.
    async fn machine_state(
        &self,
        context: &Context,
        s: &Observed,
        child: &ManagedVm,
    ) -> Result<(MachineState, Option<AgentMachine>), ReconcileError> {
        let cluster = context.cluster.as_ref();
        let home = child.home(&s.pool);
        let agent_machine = live_agent_machine(context, s, child).await?;
        let all: Vec<_> = agent_machine.iter().cloned().map(Arc::new).collect();
        if home != s.pool.spec.control_plane_namespace {
            let machines = cluster.live_machines(home).await?;
            return Ok((machine_state(child, home, &machines, &all), agent_machine));
        }
        let machines = self
            .machines
            .get_or_try_init(|| cluster.live_machines(home));
        let machine_state = machine_state(child, home, machines.await?, &all);
        Ok((machine_state, agent_machine))
    }
}

async fn live_agent_machine(
    context: &Context,
    s: &Observed,
    child: &ManagedVm,
) -> Result<Option<AgentMachine>, ReconcileError> {
    let Some(recorded) = &child.agent_machine else {
        return Ok(None);
    };
    let key = ObjectKey::new(child.home(&s.pool), &recorded.name);
    Ok(context.cluster.live_agent_machine(&key).await?)
}

/// Carries one action out.
///
/// # Errors
/// The [`ReconcileError`] of its reads and writes.
pub async fn perform(
    context: &Context,
    s: &Observed,
    action: &Action,
    live: &LiveReads,
) -> Result<ActionOutcome, ReconcileError> {
    let cluster = context.cluster.as_ref();
    let effect = action.effect(&s.key);
    let held_back = |hold: Hold| {
        ActionOutcome::HeldBack(Waiting {
            subject: effect.subject.name().to_owned(),
            reason: hold.reason,
            message: format!("{} waits: {}", effect.kind.name(), hold.why),
        })
    };
    if let Some(hold) = holds::ask(context.view.as_ref(), &effect, s.wall) {
        return Ok(held_back(hold));
    }
    if let Action::MoveToBuffer { child, .. }
    | Action::Recycle { child, .. }
    | Action::Release { child, .. } = action
        && let Some(hold) = live.held(context, s, &effect, child).await?
    {
        return Ok(held_back(hold));
    }
    // The pool's finalizers change only if no Secret is on record: so this pass has written no status before.
    let at = || Precondition::of(s.pool.as_ref());
    match action {
        Action::AddFinalizer => {
            let mut finalizers = s.pool.finalizers().to_vec();
            finalizers.push(POOL_FINALIZER.to_owned());
            let patch = MetadataPatch {
                finalizers: Some(finalizers),
                ..MetadataPatch::default()
            };
            cluster.patch_pool(&effect, &at(), &patch).await?;
            // The patch changed the resourceVersion: the next pass writes the status.
            Ok(ActionOutcome::Gone)
        }
        Action::Close => Ok(ActionOutcome::Record(|status| status.closed = Some(true))),
        Action::Pin { agent_machine, pin } => {
            let at = Precondition::of(agent_machine.as_ref());
            cluster.pin(&effect, &at, AGENT_MACHINE_LABEL, pin).await?;
            Ok(ActionOutcome::It)
        }
        Action::CreateChild {
            agent_machine,
            machine,
            ..
        } => {
            provision::create(context, s, &effect, agent_machine, machine).await?;
            Ok(ActionOutcome::It)
        }
        Action::Borrow {
            agent_machine,
            machine,
            lender,
            agent,
            ..
        } => {
            let host = (lender, agent.as_ref());
            provision::borrow(context, s, &effect, (agent_machine, machine), host).await?;
            Ok(ActionOutcome::It)
        }
        Action::Unreserve { patch, .. } => {
            cluster.patch_agent(&effect, patch).await?;
            Ok(ActionOutcome::It)
        }
        Action::CreateForBuffer { .. } => {
            provision::create_for_buffer(context, s, &effect).await?;
            Ok(ActionOutcome::It)
        }
        Action::MoveToBuffer { child, why } => {
            if let Some(held) = prove_released(context, s, child, *why, live).await? {
                return Ok(ActionOutcome::Held(Some(held)));
            }
            let at = Precondition::of(child.object.as_ref());
            let patch = into_buffer(child);
            cluster.patch_child(&effect, &at, &patch).await?;
            Ok(ActionOutcome::It)
        }
        Action::Recycle { child, request } => {
            let why = ReleaseReason::MachineGone;
            if let Some(held) = prove_released(context, s, child, why, live).await? {
                return Ok(ActionOutcome::Held(Some(held)));
            }
            let mut patch = into_buffer(child);
            let key = RECYCLE_ANNOTATION.to_owned();
            patch.annotations.insert(key, request.clone());
            let at = Precondition::of(child.object.as_ref());
            cluster.patch_child(&effect, &at, &patch).await?;
            Ok(ActionOutcome::It)
        }
        Action::Reassign {
            child,
            agent_machine,
            machine,
        } => {
            if let Some(held) = prove_unclaimed(context, s, child, agent_machine).await? {
                return Ok(ActionOutcome::Held(Some(held)));
            }
            let patch = reassignment(child, agent_machine, machine.as_ref());
            let at = Precondition::of(child.object.as_ref());
            cluster.patch_child(&effect, &at, &patch).await?;
            Ok(ActionOutcome::It)
        }
        Action::Prepare { patch, child } => {
            approve::approve(context, s, &effect, patch, child).await
        }
        Action::Fence { patch, child } => {
            let agent = cluster.live_agent(&patch.key).await?;
            let Some(agent) = agent.filter(|a| patch.is_made_from(a)) else {
                return Ok(ActionOutcome::Held(None));
            };
            // The cache may be late: the labels must stay on a host that serves.
            if agent.is_claimed_or_bound() {
                let (machine_state, _) = live.machine_state(context, s, child).await?;
                if !matches!(machine_state, MachineState::Leaving | MachineState::Gone) {
                    return Ok(ActionOutcome::Held(Some(shown_otherwise(
                        child,
                        &machine_state,
                    ))));
                }
            }
            cluster.patch_agent(&effect, patch).await?;
            Ok(ActionOutcome::It)
        }
        Action::Release { child, why } => {
            let held = match prove_released(context, s, child, *why, live).await? {
                // The record of a pool that goes cannot stay.
                None if *why != ReleaseReason::PoolDeleting => {
                    prove_known(context, s, child, live).await
                }
                held => held,
            };
            match held {
                None => {
                    let at = Precondition::of(child.object.as_ref());
                    cluster.delete_child(&effect, &at).await?;
                    Ok(ActionOutcome::It)
                }
                Some(held) => {
                    tracing::info!(child = %child.key, reason = held.reason.as_str(), "not released: {}", held.message);
                    Ok(ActionOutcome::Held(Some(held)))
                }
            }
        }
        Action::RemoveFinalizer => {
            let left = cluster.live_children(&s.key).await?;
            if !left.is_empty() {
                return Ok(ActionOutcome::Held(None));
            }
            let finalizers = s
                .pool
                .finalizers()
                .iter()
                .filter(|f| *f != POOL_FINALIZER)
                .cloned()
                .collect();
            let patch = MetadataPatch {
                finalizers: Some(finalizers),
                ..MetadataPatch::default()
            };
            cluster.patch_pool(&effect, &at(), &patch).await?;
            context.instruments.drop_pool(&s.key);
            Ok(ActionOutcome::Gone)
        }
    }
}

/// The annotations that say whose a VsphereAgent is.
const WHOSE: [&str; 3] = [
    AGENT_MACHINE_UID_ANNOTATION,
    MACHINE_NAME_ANNOTATION,
    MACHINE_UID_ANNOTATION,
];

/// The patch that assigns a VsphereAgent to another AgentMachine. Without a Machine it removes the record of the old
/// one.
#[must_use]
pub fn reassignment(
    child: &ManagedVm,
    am: &AgentMachine,
    machine: Option<&MachineFacts>,
) -> MetadataPatch {
    let known = annotations(am, machine);
    MetadataPatch {
        labels: BTreeMap::from([(AGENT_MACHINE_LABEL.to_owned(), Some(am.name_any()))]),
        annotations: WHOSE
            .map(|k| (k.to_owned(), known.get(k).cloned()))
            .into_iter()
            .chain(offered_to(child))
            .collect(),
        finalizers: None,
    }
}

/// The note that the VM was for its AgentMachine: what the VM says of that in vCenter stays explained.
fn offered_to(child: &ManagedVm) -> Option<(String, Option<String>)> {
    let note = child.offer_to_note()?;
    Some((OFFERED_TO_ANNOTATION.to_owned(), Some(note)))
}

/// The patch that takes a VsphereAgent from its AgentMachine into the buffer.
#[must_use]
pub fn into_buffer(child: &ManagedVm) -> MetadataPatch {
    MetadataPatch {
        labels: BTreeMap::from([
            (AGENT_MACHINE_LABEL.to_owned(), None),
            (
                CREATED_FOR_LABEL.to_owned(),
                Some(CREATED_FOR_BUFFER.to_owned()),
            ),
        ]),
        annotations: WHOSE
            .map(|k| (k.to_owned(), None))
            .into_iter()
            .chain(offered_to(child))
            .collect(),
        finalizers: None,
    }
}

fn annotations(am: &AgentMachine, machine: Option<&MachineFacts>) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([(
        AGENT_MACHINE_UID_ANNOTATION.to_owned(),
        am.uid().unwrap_or_default(),
    )]);
    if let Some(m) = machine {
        all.insert(MACHINE_NAME_ANNOTATION.to_owned(), m.key.name.clone());
        all.insert(MACHINE_UID_ANNOTATION.to_owned(), m.uid.clone());
    }
    all
}

/// The VsphereAgent for an AgentMachine, with its finalizer: one write creates both.
#[must_use]
pub fn child_object(
    pool: &VsphereAgentPool,
    am: &AgentMachine,
    machine: &MachineFacts,
    name: &str,
) -> VsphereAgent {
    let made_for = BTreeMap::from([
        (
            CREATED_FOR_LABEL.to_owned(),
            CREATED_FOR_AGENT_MACHINE.to_owned(),
        ),
        (AGENT_MACHINE_LABEL.to_owned(), am.name_any()),
    ]);
    new_child(pool, name, made_for, annotations(am, Some(machine)))
}

/// The VsphereAgent for an AgentMachine that takes over the host of `lender`, with its finalizer. Its guest keeps the hostname
/// that it has, as any host of a buffer.
#[must_use]
pub fn borrower_object(
    pool: &VsphereAgentPool,
    am: &AgentMachine,
    machine: &MachineFacts,
    name: &str,
    source: &Source,
) -> VsphereAgent {
    let mut child = child_object(pool, am, machine, name);
    let made_for = (CREATED_FOR_LABEL.to_owned(), CREATED_FOR_BUFFER.to_owned());
    child.labels_mut().extend([made_for]);
    let from = (TAKEN_FROM_ANNOTATION.to_owned(), source.to_string());
    child.annotations_mut().extend([from]);
    child
}

/// The VsphereAgent for a host of the buffer, with its finalizer.
#[must_use]
pub fn buffer_object(pool: &VsphereAgentPool, name: &str) -> VsphereAgent {
    let made_for = BTreeMap::from([(CREATED_FOR_LABEL.to_owned(), CREATED_FOR_BUFFER.to_owned())]);
    new_child(pool, name, made_for, BTreeMap::new())
}

fn new_child(
    pool: &VsphereAgentPool,
    name: &str,
    mut labels: BTreeMap<String, String>,
    mut annotations: BTreeMap<String, String>,
) -> VsphereAgent {
    labels.insert(POOL_LABEL.to_owned(), pool.name_any());
    annotations.insert(VM_NAME_ANNOTATION.to_owned(), name.to_owned());
    let mut child = VsphereAgent::new(
        name,
        VsphereAgentSpec {
            pool_ref: ObjectNameRef {
                name: pool.name_any(),
            },
        },
    );
    child.metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: pool.namespace(),
        labels: Some(labels),
        annotations: Some(annotations),
        finalizers: Some(vec![AGENT_FINALIZER.to_owned()]),
        owner_references: Some(vec![OwnerReference {
            api_version: API_VERSION.to_owned(),
            kind: "VsphereAgentPool".to_owned(),
            name: pool.name_any(),
            uid: pool.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    };
    child
}

/// Proves by live reads that a VsphereAgent may be deleted. `Some` says what holds it back.
///
/// A Machine counts as gone only by proof. An Agent that is bound or reserved keeps its VM, and so does one that the plan would
/// have fenced first.
async fn prove_released(
    context: &Context,
    s: &Observed,
    child: &ManagedVm,
    why: ReleaseReason,
    live: &LiveReads,
) -> Result<Option<Waiting>, ReconcileError> {
    let cluster = context.cluster.as_ref();
    let agent_machine = if why == ReleaseReason::MachineGone {
        let (machine_state, agent_machine) = live.machine_state(context, s, child).await?;
        if machine_state != MachineState::Gone {
            return Ok(Some(shown_otherwise(child, &machine_state)));
        }
        agent_machine
    } else {
        live_agent_machine(context, s, child).await?
    };
    for key in plan::agents_to_ask(s, child) {
        let Some(agent) = cluster.live_agent(&key).await? else {
            continue;
        };
        let reserved = agent_machine.as_ref().is_some_and(|am| {
            let named = am.agent_ref().is_some_and(|r| r.name == key.name);
            named && !am.is_deleting() && why != ReleaseReason::MachineGone
        });
        if agent.is_claimed_or_bound() || reserved {
            return Ok(Some(bound(child, &key)));
        }
        let shown = s.agents.iter().find(|a| a.uid() == agent.uid());
        let was_fenced = shown.is_some_and(|a| plan::fence(s, a).is_none());
        if was_fenced && !agent.is_deleting() && plan::fence(s, &agent).is_some() {
            return Ok(Some(Waiting {
                subject: child.key.name.clone(),
                reason: Reason::AgentNotFenced,
                message: format!(
                    "Agent {key} can be chosen, as it has changed since; looking again"
                ),
            }));
        }
    }
    Ok(None)
}

/// Proves by a look in vCenter that the record knows of all that the VM may serve. `Some` says what holds it back.
///
/// The deletion of a VsphereAgent cannot be taken back. A record that is older than its VM, as after a restore of the hub, is
/// kept for a person. A vCenter that does not answer in time is waited for once in a pass.
async fn prove_known(
    context: &Context,
    s: &Observed,
    child: &ManagedVm,
    live: &LiveReads,
) -> Option<Waiting> {
    let server = child.vm().and_then(|vm| vm.server.clone());
    let silent = || live.silent.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = if silent().contains(&server) {
        None
    } else {
        let asked = is_forgotten(context, s, child);
        tokio::time::timeout(SESSION_PATIENCE, asked).await.ok()
    };
    let (reason, message) = match answer {
        Some(Ok(false)) => return None,
        Some(Ok(true)) => (Reason::RecordOutdated, plan::OUTDATED.to_owned()),
        Some(Err(trouble)) => (
            trouble.reason,
            format!("its VM is looked at before it goes: {}", trouble.message),
        ),
        None => {
            silent().insert(server);
            let message = "its VM is looked at before it goes, and vCenter has not answered yet";
            (Reason::VcenterNoAnswer, message.to_owned())
        }
    };
    Some(Waiting {
        subject: child.key.name.clone(),
        reason,
        message,
    })
}

/// Looks whether the VM of `child` says in vCenter that it may serve an AgentMachine that the record does not know of.
async fn is_forgotten(
    context: &Context,
    s: &Observed,
    child: &ManagedVm,
) -> Result<bool, ReconcileError> {
    let vm = child.vm().filter(|_| !child.adopted);
    let Some(moref) = vm.and_then(|vm| vm.moref.as_deref()) else {
        return Ok(false);
    };
    let (sessions, settings) = (context.sessions.as_ref(), &context.settings);
    let (session, _) =
        of_vm::session(sessions, &settings.secret_namespaces, child, Some(&s.pool)).await?;
    let shown = session
        .observe(&MoRef::new("VirtualMachine", moref))
        .await?;
    let marker = child.marker(context.view.cluster_id());
    let ours = shown.filter(|vm| vm.marker.as_ref() == Some(&marker));
    let says = ours.as_ref().and_then(VmObservation::may_serve_now);
    Ok(says.is_some_and(|mark| child.forgets(mark)))
}

/// Proves by live reads that the Agent of a VM whose Machine is leaving serves nobody but that AgentMachine. `Some` says what
/// holds it back. An Agent that is bound is freed only for the Machine on record.
async fn prove_unclaimed(
    context: &Context,
    s: &Observed,
    child: &ManagedVm,
    agent_machine: &AgentMachine,
) -> Result<Option<Waiting>, ReconcileError> {
    if s.machine_state(child) != MachineState::Leaving {
        return Ok(None);
    }
    for key in plan::agents_to_ask(s, child) {
        let agent = context.cluster.live_agent(&key).await?;
        let serves = |a: &Agent| a.is_claimed_or_bound() && !upstream::claims(a, agent_machine);
        if agent.is_some_and(|a| serves(&a)) {
            return Ok(Some(bound(child, &key)));
        }
    }
    Ok(None)
}

fn bound(child: &ManagedVm, agent: &ObjectKey) -> Waiting {
    Waiting {
        subject: child.key.name.clone(),
        reason: Reason::AgentBound,
        message: format!("Agent {agent} is bound"),
    }
}

/// The message for an action that waits because its Machine is not in the state that the plan saw.
fn shown_otherwise(child: &ManagedVm, machine_state: &MachineState) -> Waiting {
    Waiting {
        subject: child.key.name.clone(),
        reason: Reason::MachineStateUnknown,
        message: match machine_state {
            MachineState::Unknown(why) => why.clone(),
            other => format!("the API server shows its Machine ({other:?}); looking again"),
        },
    }
}

#[cfg(test)]
mod tests;
