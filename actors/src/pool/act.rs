//! Carries a plan out, action by action. It decides nothing.
//!
//! Before it releases a VsphereAgent, and before it approves or fences an Agent, live reads prove what the plan saw in
//! the cache. What ends the use of a VM also asks live whether people hold it back.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Memory,
    observed::Observed,
    plan::{self, Action, Plan, Waiting, iso::IsoPlan},
    provision, publish, secret_finalizers, traced,
};
use crate::{
    context::Context,
    domain::{
        failure::{Class, ReconcileError},
        machine_state::MachineState,
        managed_vm::ManagedVm,
        names::ObjectKey,
        reassign::Source,
        upstream::MachineFacts,
    },
    guard::{self, Leaves, LiveReads, PoolCase, Refusal},
    iso::{msg::IsoState, of_pool::IsoCaches},
    lifecycle::ReleaseReason,
    ports::{
        cluster::{MetadataPatch, Precondition},
        effect::Hold,
    },
    runtime::holds,
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

/// What the guard needs to know before `child` leaves the pool, or its AgentMachine.
fn leaving<'a>(
    context: &'a Context,
    s: &'a Observed,
    child: &'a ManagedVm,
    was_unfenced: &'a (dyn Fn(&Agent) -> bool + Send + Sync),
) -> PoolCase<'a> {
    PoolCase {
        context,
        pool: &s.pool,
        child,
        agents: plan::agents_to_ask(s, child),
        was_unfenced,
    }
}

/// What is waited for, by what the guard read of `child`.
fn waits(child: &ManagedVm, (reason, message): (Reason, String)) -> Waiting {
    Waiting {
        subject: child.key.name.clone(),
        reason,
        message,
    }
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
    // The plan takes it for fenced, and it can be chosen by what was read.
    let was_unfenced = |live: &Agent| {
        let mut shown = s.agents.iter();
        let shown = shown.find(|a| a.uid() == live.uid());
        shown.is_some_and(|a| plan::fence(s, a).is_none()) && plan::fence(s, live).is_some()
    };
    let asks = |child| leaving(context, s, child, &was_unfenced);
    let refused = |child: &ManagedVm, refusal: Refusal| match refusal {
        Refusal::HeldBack(hold) => held_back(hold),
        Refusal::Shown(reason, message) => {
            ActionOutcome::Held(Some(waits(child, (reason, message))))
        }
    };
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
            let permit = guard::harmless(effect.clone(), patch.clone())?;
            cluster.patch_agent(&permit).await?;
            Ok(ActionOutcome::It)
        }
        Action::CreateForBuffer { .. } => {
            provision::create_for_buffer(context, s, &effect).await?;
            Ok(ActionOutcome::It)
        }
        Action::MoveToBuffer { child, why } => {
            let leaves = Leaves::ToBuffer(*why);
            match asks(child).permit(live, &effect, leaves).await? {
                Ok(permit) => cluster.patch_child(&permit, &into_buffer(child)).await?,
                Err(refusal) => return Ok(refused(child, refusal)),
            }
            Ok(ActionOutcome::It)
        }
        Action::Recycle { child, request } => {
            let leaves = Leaves::ToBuffer(ReleaseReason::MachineGone);
            let permit = match asks(child).permit(live, &effect, leaves).await? {
                Ok(permit) => permit,
                Err(refusal) => return Ok(refused(child, refusal)),
            };
            let mut patch = into_buffer(child);
            let key = RECYCLE_ANNOTATION.to_owned();
            patch.annotations.insert(key, request.clone());
            cluster.patch_child(&permit, &patch).await?;
            Ok(ActionOutcome::It)
        }
        Action::Reassign {
            child,
            agent_machine,
            machine,
        } => {
            let leaving = s.host(child).machine == MachineState::Leaving;
            let leaves = Leaves::To(agent_machine, leaving);
            let permit = match asks(child).permit(live, &effect, leaves).await? {
                Ok(permit) => permit,
                Err(refusal) => return Ok(refused(child, refusal)),
            };
            let patch = reassignment(child, agent_machine, machine.as_ref());
            cluster.patch_child(&permit, &patch).await?;
            Ok(ActionOutcome::It)
        }
        Action::Prepare { patch, child } => {
            let shown = s.host(child).possible.iter();
            let case = asks(child);
            match case.permit_promise(live, &effect, patch, shown).await? {
                Ok(permit) => cluster.patch_agent(&permit).await?,
                Err(Some(refusal)) => return Ok(refused(child, refusal)),
                Err(None) => return Ok(ActionOutcome::Held(None)),
            }
            Ok(ActionOutcome::It)
        }
        Action::Fence { patch, child } => {
            let agent = cluster.live_agent(&patch.key).await?;
            let Some(agent) = agent.filter(|a| patch.is_made_from(a)) else {
                return Ok(ActionOutcome::Held(None));
            };
            // The cache may be late: the labels must stay on a host that serves.
            if let Some(shown) = asks(child).keeps_labels(live, &agent).await? {
                return Ok(ActionOutcome::Held(Some(waits(child, shown))));
            }
            let permit = guard::harmless(effect.clone(), patch.clone())?;
            cluster.patch_agent(&permit).await?;
            Ok(ActionOutcome::It)
        }
        Action::Release { child, why } => {
            let leaves = Leaves::Deleted(*why);
            match asks(child).permit(live, &effect, leaves).await? {
                Ok(permit) => cluster.delete_child(&permit).await?,
                Err(refusal) => {
                    if let Refusal::Shown(reason, message) = &refusal {
                        tracing::info!(child = %child.key, reason = reason.as_str(), "not released: {message}");
                    }
                    return Ok(refused(child, refusal));
                }
            }
            Ok(ActionOutcome::It)
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

#[cfg(test)]
mod tests;
