//! Provisions a machine: creates its VsphereAgent, and remembers that while the watch does not show it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::{
    agent::VsphereAgent, conditions::Reason, external::agent_machine::AgentMachine,
};
use kube::ResourceExt;

use super::{
    act::child_object::{buffer_object, child_object},
    observed::{Observed, Pending},
    plan::Action,
};
use crate::{
    context::Context,
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        managed_vm::ManagedVm,
        names::ObjectKey,
    },
    ports::{cluster::ClusterErrorKind, effect::Effect},
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
    /// Creates whose outcome is not known.
    tried: BTreeMap<String, Duration>,
    given: BTreeMap<String, Given>,
    /// The same, where nobody knows whether the write arrived.
    unsure: BTreeMap<String, Given>,
    /// By name of the VsphereAgent, with its class.
    made_for_buffer: BTreeMap<String, (Option<String>, Duration)>,
    /// The same, where nobody knows whether the write arrived.
    tried_for_buffer: BTreeMap<String, (Option<String>, Duration)>,
    /// Hosts of other pools that could not be had, by uid of the VsphereAgent.
    passed_over: BTreeMap<String, Duration>,
}

/// A VsphereAgent that was given to an AgentMachine.
#[derive(Debug)]
struct Given {
    /// Its namespace and name.
    key: ObjectKey,
    /// Its uid.
    child: String,
    /// Its version before. The write names it, so the next version that the watch shows has the write.
    version: String,
    at: Duration,
}

impl Given {
    fn is_unseen(&self, shown: Option<Arc<VsphereAgent>>) -> bool {
        shown.is_some_and(|c| {
            c.uid().as_ref() == Some(&self.child)
                && c.resource_version().unwrap_or_default() == self.version
        })
    }
}

/// The AgentMachine to which that action gives a host, and the host.
fn given(action: &Action, now: Duration) -> Option<(String, Given)> {
    let (child, whose) = match action {
        Action::Reassign {
            child,
            agent_machine,
            ..
        } => (child, agent_machine.uid().unwrap_or_default()),
        Action::Take { host, to, .. } => (&host.child, to.uid().unwrap_or_default()),
        // No AgentMachine has that uid.
        Action::Bring { host, .. } => (&host.child, host.child.uid.clone()),
        _ => return None,
    };
    let given = Given {
        key: child.key.clone(),
        child: child.uid.clone(),
        version: child.object.resource_version().unwrap_or_default(),
        at: now,
    };
    Some((whose, given))
}

impl PendingWrites {
    /// Notes an action that succeeded.
    pub fn note(&mut self, action: &Action, now: Duration) {
        if let Action::CreateForBuffer { name, class } = action {
            self.tried_for_buffer.remove(name);
            let made = (class.clone(), now);
            self.made_for_buffer.insert(name.clone(), made);
        }
        self.given.extend(given(action, now));
        let Some(am) = whose(action) else { return };
        let uid = am.uid().unwrap_or_default();
        match action {
            Action::Pin { .. } => {
                let version = am.resource_version().unwrap_or_default();
                self.pinned.insert(uid, (version, now));
            }
            _ => {
                self.tried.remove(&uid);
                self.made.insert(uid, now);
            }
        }
    }

    /// Notes an action that was not carried out. `failed`: of its write; `None`: nothing was sent.
    ///
    /// If a host of another pool was refused, another one is tried, or one is made. Where the API server may have taken the write,
    /// or takes it late, the AgentMachine gets no other host than the one of that write.
    pub fn note_failed(&mut self, action: &Action, failed: Option<Class>, now: Duration) {
        match (action, failed) {
            (Action::Take { host, .. } | Action::Bring { host, .. }, None) => {
                self.passed_over.insert(host.child.uid.clone(), now);
            }
            (
                Action::Take { host, .. } | Action::Bring { host, .. },
                Some(Class::Blocked | Class::Defect),
            ) => {
                self.passed_over.insert(host.child.uid.clone(), now);
            }
            // If another write was faster, it may be an earlier one of this pool.
            (Action::Take { .. } | Action::Bring { .. }, Some(_)) => {
                self.unsure.extend(given(action, now));
            }
            (
                Action::CreateChild { agent_machine, .. },
                Some(Class::Transient | Class::Throttled(_)),
            ) => {
                let uid = agent_machine.uid().unwrap_or_default();
                self.tried.insert(uid, now);
            }
            (
                Action::CreateForBuffer { name, class },
                Some(Class::Transient | Class::Throttled(_)),
            ) => {
                let tried = (class.clone(), now);
                self.tried_for_buffer.insert(name.clone(), tried);
            }
            _ => {}
        }
    }

    /// The writes that the cache does not show yet. Forgets what the cache shows, and what is too old. `child`: a VsphereAgent of any
    /// pool, as the cache shows it.
    pub fn recall(
        &mut self,
        s: &Observed,
        child: impl Fn(&ObjectKey) -> Option<Arc<VsphereAgent>>,
    ) -> Pending {
        let recent = |at: &Duration| s.now.saturating_sub(*at) < PENDING_FOR;
        self.pinned.retain(|uid, (version, at)| {
            let is_old =
                |am: &Arc<AgentMachine>| am.resource_version().unwrap_or_default() == *version;
            recent(at) && s.agent_machine(uid).is_some_and(is_old)
        });
        let counts = |at: &Duration| s.now.saturating_sub(*at) < GIVEN_FOR;
        self.made
            .retain(|uid, at| counts(at) && !s.has_child_for(uid));
        for given in [&mut self.given, &mut self.unsure] {
            given.retain(|_, g| counts(&g.at) && g.is_unseen(child(&g.key)));
        }
        let shown: BTreeSet<&str> = s.children.iter().map(|c| c.key.name.as_str()).collect();
        for made in [&mut self.made_for_buffer, &mut self.tried_for_buffer] {
            made.retain(|name, (_, at)| recent(at) && !shown.contains(name.as_str()));
        }
        self.passed_over.retain(|_, at| recent(at));
        self.tried
            .retain(|uid, at| counts(at) && !s.has_child_for(uid));
        let (made, begun): (Vec<_>, Vec<_>) = self.made.iter().partition(|(_, at)| recent(at));
        let begun = begun.into_iter().chain(&self.tried);
        let uids = |all: &BTreeMap<String, Given>| -> BTreeMap<String, String> {
            let all = all.iter();
            all.map(|(uid, g)| (uid.clone(), g.child.clone())).collect()
        };
        let classes = |all: &BTreeMap<String, (Option<String>, Duration)>| {
            let all = all.iter();
            all.map(|(name, (class, _))| (name.clone(), class.clone()))
                .collect()
        };
        Pending {
            pinned: self.pinned.keys().cloned().collect(),
            made: made.into_iter().map(|(uid, _)| uid.clone()).collect(),
            begun: begun.map(|(uid, _)| uid.clone()).collect(),
            given: uids(&self.given),
            unsure: uids(&self.unsure),
            made_for_buffer: classes(&self.made_for_buffer),
            begun_for_buffer: classes(&self.tried_for_buffer),
            passed_over: self.passed_over.keys().cloned().collect(),
        }
    }
}

/// The AgentMachine that an action provisions.
pub fn whose(action: &Action) -> Option<&AgentMachine> {
    match action {
        Action::Pin { agent_machine, .. } | Action::CreateChild { agent_machine, .. } => {
            Some(agent_machine)
        }
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
            class,
            ..
        } => {
            let mut child = child_object(&s.pool, am, machine, effect.subject.name());
            child.spec.class.clone_from(class);
            create_once(context, s, effect, &child, |there| there.is_for(am)).await
        }
        Action::CreateForBuffer { class, .. } => {
            let mut child = buffer_object(&s.pool, effect.subject.name());
            child.spec.class.clone_from(class);
            create_once(context, s, effect, &child, ManagedVm::is_of_buffer).await
        }
        // Reported as carried out, it would be taken for made.
        _ => Err(ReconcileError::blocked(
            ErrorSource::Kubernetes,
            Reason::InternalError,
            "this action makes no VsphereAgent",
        )),
    }
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
