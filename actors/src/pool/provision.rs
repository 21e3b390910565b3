//! Provisions a machine: creates its VsphereAgent, and remembers that while the watch does not show it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::{
    agent::VsphereAgent,
    conditions::Reason,
    external::{agent::Agent, agent_machine::AgentMachine},
    names::RESERVED_FOR_ANNOTATION,
};
use kube::ResourceExt;

use super::{
    act::child_object::{borrower_object, buffer_object, child_object},
    observed::{Observed, Pending},
    plan::Action,
};
use crate::{
    context::Context,
    demand::lending,
    domain::{
        failure::{ErrorSource, ReconcileError},
        managed_vm::ManagedVm,
        names::ObjectKey,
        reassign::Reservation,
        upstream::MachineFacts,
    },
    guard,
    ports::{
        cluster::{AgentPatch, ClusterErrorKind},
        effect::{Effect, EffectKind},
    },
};

/// How long a write that the watch does not show yet counts as done: watches are late by seconds. If somebody undoes it
/// in that time, the pool does it again afterwards.
const PENDING_FOR: Duration = Duration::from_secs(60);

/// How long an AgentMachine that got a host gets no other one, while the watch does not show it. A watch that hangs is begun
/// again within six minutes. An API server that was restored may never show it.
const GIVEN_FOR: Duration = Duration::from_secs(600);

/// The writes for AgentMachines that the watch does not show yet, by uid, and when (monotonic) they were sent. Without
/// this memory each pass would send them again, and the API server would accept them.
#[derive(Debug, Default)]
pub struct PendingWrites {
    /// The version that was pinned.
    pinned: BTreeMap<String, (String, Duration)>,
    made: BTreeMap<String, Duration>,
    given: BTreeMap<String, Given>,
    /// By name of the VsphereAgent.
    made_for_buffer: BTreeMap<String, Duration>,
}

/// A VsphereAgent that was given to an AgentMachine.
#[derive(Debug)]
struct Given {
    /// Its uid.
    child: String,
    /// Its version before. The write names it, so the next version that the watch shows has the write.
    version: String,
    at: Duration,
}

impl Given {
    fn is_unseen(&self, s: &Observed) -> bool {
        let before = |c: &ManagedVm| {
            c.uid == self.child && c.object.resource_version().unwrap_or_default() == self.version
        };
        s.children.iter().any(before)
    }
}

impl PendingWrites {
    /// Notes an action that succeeded.
    pub fn note(&mut self, action: &Action, now: Duration) {
        if let Action::CreateForBuffer { name } = action {
            self.made_for_buffer.insert(name.clone(), now);
        }
        if let Action::Reassign {
            child,
            agent_machine,
            ..
        } = action
        {
            let given = Given {
                child: child.uid.clone(),
                version: child.object.resource_version().unwrap_or_default(),
                at: now,
            };
            self.given
                .insert(agent_machine.uid().unwrap_or_default(), given);
        }
        let Some(am) = whose(action) else { return };
        let uid = am.uid().unwrap_or_default();
        match action {
            Action::Pin { .. } => {
                let version = am.resource_version().unwrap_or_default();
                self.pinned.insert(uid, (version, now));
            }
            _ => {
                self.made.insert(uid, now);
            }
        }
    }

    /// The writes that the cache does not show yet. Forgets what the cache shows, and what is too old.
    pub fn recall(&mut self, s: &Observed) -> Pending {
        let recent = |at: &Duration| s.now.saturating_sub(*at) < PENDING_FOR;
        self.pinned.retain(|uid, (version, at)| {
            let is_old =
                |am: &Arc<AgentMachine>| am.resource_version().unwrap_or_default() == *version;
            recent(at) && s.agent_machine(uid).is_some_and(is_old)
        });
        let counts = |at: &Duration| s.now.saturating_sub(*at) < GIVEN_FOR;
        self.made
            .retain(|uid, at| counts(at) && !s.has_child_for(uid));
        self.given.retain(|_, g| counts(&g.at) && g.is_unseen(s));
        let shown: BTreeSet<&str> = s.children.iter().map(|c| c.key.name.as_str()).collect();
        self.made_for_buffer
            .retain(|name, at| recent(at) && !shown.contains(name.as_str()));
        let (made, begun): (Vec<_>, Vec<_>) = self.made.iter().partition(|(_, at)| recent(at));
        let given = self.given.iter();
        Pending {
            pinned: self.pinned.keys().cloned().collect(),
            made: made.into_iter().map(|(uid, _)| uid.clone()).collect(),
            begun: begun.into_iter().map(|(uid, _)| uid.clone()).collect(),
            given: given
                .map(|(uid, g)| (uid.clone(), g.child.clone()))
                .collect(),
            made_for_buffer: self.made_for_buffer.keys().cloned().collect(),
        }
    }
}

/// The AgentMachine that an action provisions.
pub fn whose(action: &Action) -> Option<&AgentMachine> {
    match action {
        Action::Pin { agent_machine, .. }
        | Action::CreateChild { agent_machine, .. }
        | Action::Borrow { agent_machine, .. } => Some(agent_machine),
        _ => None,
    }
}

/// Creates the VsphereAgent that `action` asks for, as `effect`, whose subject is that VsphereAgent.
///
/// # Errors
/// The [`ReconcileError`] of a write.
pub async fn make(
    context: &Context,
    s: &Observed,
    effect: &Effect,
    action: &Action,
) -> Result<(), ReconcileError> {
    match action {
        Action::CreateChild {
            agent_machine: am,
            machine,
            ..
        } => create(context, s, effect, am, machine).await,
        Action::Borrow {
            agent_machine: am,
            machine,
            lender,
            agent,
            ..
        } => borrow(context, s, effect, (am, machine), (lender, agent)).await,
        Action::CreateForBuffer { .. } => create_for_buffer(context, s, effect).await,
        // Reported as carried out, it would be taken for made.
        _ => Err(ReconcileError::blocked(
            ErrorSource::Kubernetes,
            Reason::InternalError,
            "this action makes no VsphereAgent",
        )),
    }
}

/// Creates the VsphereAgent of an AgentMachine, as `effect`, whose subject is that VsphereAgent.
///
/// # Errors
/// The [`ReconcileError`] of the write.
async fn create(
    context: &Context,
    s: &Observed,
    effect: &Effect,
    am: &Arc<AgentMachine>,
    machine: &MachineFacts,
) -> Result<(), ReconcileError> {
    let child = child_object(&s.pool, am, machine, effect.subject.name());
    create_once(context, s, effect, &child, |there| there.is_for(am)).await
}

/// Reserves the Agent of a host of another pool, then creates the VsphereAgent that takes the host over, as `effect`, whose
/// subject is that VsphereAgent. Of several that reserve one Agent, the API server takes the first.
///
/// # Errors
/// The [`ReconcileError`] of a write.
async fn borrow(
    context: &Context,
    s: &Observed,
    effect: &Effect,
    (am, machine): (&Arc<AgentMachine>, &MachineFacts),
    (lender, agent): (&ManagedVm, &Agent),
) -> Result<(), ReconcileError> {
    let name = effect.subject.name();
    let own = Reservation {
        pool: s.pool.uid().unwrap_or_default(),
        name: name.to_owned(),
    };
    let source = lender.as_source();
    if lending::reservation(agent).as_ref() != Some(&own) {
        let patch = AgentPatch {
            annotations: [(RESERVED_FOR_ANNOTATION.to_owned(), Some(own.to_string()))].into(),
            ..AgentPatch::of(agent)
        };
        let reserve = Effect::new(EffectKind::ReserveAgent, effect.subject.clone());
        let permit = guard::harmless(reserve, patch)?;
        context.cluster.patch_agent(&permit).await?;
    }
    let child = borrower_object(&s.pool, am, machine, name, &source);
    create_once(context, s, effect, &child, |there| there.is_for(am)).await
}

/// Creates a VsphereAgent for the buffer, as `effect`, whose subject is that VsphereAgent.
///
/// # Errors
/// The [`ReconcileError`] of the write.
async fn create_for_buffer(
    context: &Context,
    s: &Observed,
    effect: &Effect,
) -> Result<(), ReconcileError> {
    let child = buffer_object(&s.pool, effect.subject.name());
    create_once(context, s, effect, &child, ManagedVm::is_of_buffer).await
}

/// Creates `child`. It may have been created before while the cache is late: that is right if `is_its`.
async fn create_once(
    context: &Context,
    s: &Observed,
    effect: &Effect,
    child: &VsphereAgent,
    is_its: impl Fn(&ManagedVm) -> bool,
) -> Result<(), ReconcileError> {
    let key = ObjectKey::of(child);
    match context.cluster.create_child(effect, child).await {
        Ok(_) => Ok(()),
        Err(e) if e.kind == ClusterErrorKind::AlreadyExists => {
            let there = context.cluster.live_child(&key).await?;
            let there = there.map(|c| ManagedVm::read(Arc::new(c)));
            let own = |c: &ManagedVm| c.object.spec.pool_ref.name == s.pool.name_any();
            if there.is_some_and(|c| own(&c) && is_its(&c)) {
                return Ok(());
            }
            Err(ReconcileError::blocked(
                ErrorSource::Kubernetes,
                Reason::NameConflict,
                format!(
                    "VsphereAgent {key} exists for something else; it is left alone until it is gone"
                ),
            ))
        }
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
pub mod tests;
