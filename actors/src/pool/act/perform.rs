//! Carries one action out.

use std::{fmt, sync::Arc};

use agent_forge_crds::{
    conditions::{Reason, event},
    external::agent::Agent,
    names::{AGENT_MACHINE_LABEL, API_VERSION, POOL_FINALIZER},
    pool::{VsphereAgentPool, VsphereAgentPoolStatus},
};
use kube::{Resource as _, ResourceExt};

use super::child_object::{bring_to, into_buffer, move_to, reassignment};
use crate::{
    context::Context,
    demand::{
        applied,
        lending::{self, Offer},
    },
    domain::{
        failure::ReconcileError, goal, machine_state::MachineState, managed_vm::ManagedVm,
        names::ObjectKey,
    },
    guard::{self, Leaves, LiveReads, PoolCase, Refusal},
    lifecycle::ReleaseReason,
    pool::{
        observed::Observed,
        plan::{self, Action, Waiting},
        provision,
    },
    ports::{
        cluster::{AgentPatch, Notice, OwnPatch, Precondition, Regarding},
        effect::{Effect, Hold},
        permit::Permit,
    },
    report::{Metric, Reports, tell},
    runtime::holds,
};

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

type Performed = Result<ActionOutcome, ReconcileError>;

/// The permit to move a host, and the pool that has it.
type Proven =
    Result<Result<(Permit<Precondition>, Arc<VsphereAgentPool>), Refusal>, ReconcileError>;

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
    let performer = Performer {
        context,
        s,
        effect: &effect,
        live,
    };
    if let Some(hold) = holds::ask(context.view.as_ref(), &effect, s.wall) {
        return Ok(performer.held_back(hold));
    }
    match action {
        Action::AddFinalizer => return performer.add_finalizer().await,
        Action::RemoveFinalizer => return performer.remove_finalizer().await,
        Action::Close => return Ok(ActionOutcome::Record(|status| status.closed = Some(true))),
        Action::Pin { agent_machine, pin } => {
            let at = Precondition::of(agent_machine.as_ref());
            cluster.pin(&effect, &at, AGENT_MACHINE_LABEL, pin).await?;
        }
        Action::CreateChild { .. } | Action::CreateForBuffer { .. } => {
            provision::make(context, s, &effect, action).await?;
        }
        Action::Take { .. } | Action::Bring { .. } => return performer.get(action).await,
        Action::MoveToBuffer { child, why } => {
            let patch = into_buffer(child, goal::of(&child.object).life);
            return performer.moves(child, Leaves::ToBuffer(*why), &patch).await;
        }
        Action::Recycle { child, life } => {
            let leaves = Leaves::ToBuffer(ReleaseReason::MachineGone);
            let patch = into_buffer(child, *life);
            return performer.moves(child, leaves, &patch).await;
        }
        Action::Reassign {
            child,
            agent_machine: am,
            machine,
        } => {
            let leaving = s.host(child).machine == MachineState::Leaving;
            let patch = reassignment(child, am, machine.as_ref());
            return performer
                .moves(child, Leaves::To(am, leaving), &patch)
                .await;
        }
        Action::Prepare { patch, child } => return performer.prepare(child, patch).await,
        Action::Fence { patch, child } => return performer.fence(child, patch).await,
        Action::Release { child, why } => return performer.release(child, *why).await,
    }
    Ok(ActionOutcome::It)
}

/// What each action needs.
struct Performer<'a> {
    context: &'a Context,
    s: &'a Observed,
    effect: &'a Effect,
    live: &'a LiveReads,
}

impl Performer<'_> {
    fn held_back(&self, hold: Hold) -> ActionOutcome {
        ActionOutcome::HeldBack(Waiting {
            subject: self.effect.subject.name().to_owned(),
            reason: hold.reason,
            message: format!("{} waits: {}", self.effect.kind.name(), hold.why),
        })
    }

    /// What the guard has shown of `child` instead.
    fn refused(&self, child: &ManagedVm, refusal: Refusal) -> ActionOutcome {
        match refusal {
            Refusal::HeldBack(hold) => self.held_back(hold),
            Refusal::Shown(reason, message) => ActionOutcome::Held(Some(Waiting {
                subject: child.key.name.clone(),
                reason,
                message,
            })),
        }
    }

    /// The plan takes that Agent for fenced, and it can be chosen by what was read.
    fn was_unfenced(&self, live: &Agent) -> bool {
        let s = self.s;
        let shown = s.agents.iter().find(|a| a.uid() == live.uid());
        shown.is_some_and(|a| s.fence(a).is_none()) && s.fence(live).is_some()
    }

    /// What the guard needs to know before `child` leaves the pool, or its AgentMachine.
    fn case<'a>(
        &'a self,
        child: &'a ManagedVm,
        was_unfenced: &'a (dyn Fn(&Agent) -> bool + Send + Sync),
    ) -> PoolCase<'a> {
        PoolCase {
            context: self.context,
            pool: &self.s.pool,
            child,
            agents: plan::agents_to_ask(self.s, child),
            was_unfenced,
        }
    }

    async fn add_finalizer(&self) -> Performed {
        let finalizers = self.s.pool.finalizers().iter().cloned();
        let finalizers = finalizers.chain([POOL_FINALIZER.to_owned()]);
        self.finalizers(finalizers.collect()).await
    }

    /// By a live list, no VsphereAgent is left that the pool has made or uses.
    async fn remove_finalizer(&self) -> Performed {
        let (s, cluster) = (self.s, &self.context.cluster);
        let left = cluster
            .live_children(&s.key, &s.group.host_namespaces)
            .await?;
        if !left.is_empty() {
            return Ok(ActionOutcome::Held(None));
        }
        let finalizers = self.s.pool.finalizers().iter();
        let finalizers = finalizers.filter(|f| *f != POOL_FINALIZER).cloned();
        self.finalizers(finalizers.collect()).await
    }

    /// Replaces the finalizers of the pool. They change only if no Secret is on record: so this pass has written no status
    /// before.
    async fn finalizers(&self, all: Vec<String>) -> Performed {
        let at = Precondition::of(self.s.pool.as_ref());
        let patch = OwnPatch {
            finalizers: Some(all),
            ..OwnPatch::default()
        };
        let cluster = &self.context.cluster;
        cluster.patch_pool(self.effect, &at, &patch).await?;
        // The patch changed the resourceVersion: the next pass writes the status.
        Ok(ActionOutcome::Gone)
    }

    /// Changes whom `child` is for, after live proof.
    async fn moves(&self, child: &ManagedVm, leaves: Leaves<'_>, patch: &OwnPatch) -> Performed {
        let was_unfenced = |agent: &Agent| self.was_unfenced(agent);
        let case = self.case(child, &was_unfenced);
        match case.permit(self.live, self.effect, leaves).await? {
            Ok(permit) => self.context.cluster.patch_child(&permit, patch).await?,
            Err(refusal) => return Ok(self.refused(child, refusal)),
        }
        Ok(ActionOutcome::It)
    }

    /// Takes the host of another pool, for an AgentMachine or into the buffer, after live proof that both pools may act, and that the
    /// host is free. The patch names the version of the VsphereAgent that was seen: of several pools that take it, one gets it.
    async fn get(&self, action: &Action) -> Performed {
        let pool = &self.s.pool;
        let (host, patch, does) = match action {
            Action::Take {
                host,
                to,
                machine,
                class,
            } => {
                let patch = move_to(pool, &host.child, to, (machine, class.clone()));
                (
                    host,
                    patch,
                    format!("serves AgentMachine {}", to.name_any()),
                )
            }
            Action::Bring { host, class } => {
                let patch = bring_to(pool, &host.child, class.clone());
                (host, patch, "waits in the buffer".to_owned())
            }
            _ => return Ok(ActionOutcome::Held(None)),
        };
        let stays = |why: &dyn fmt::Display| {
            tracing::info!(object = %host.child.key, "the host stays, and does not: {does}. {why}");
            Ok(ActionOutcome::Held(None))
        };
        // Nothing was sent, so another host is tried.
        let (permit, from) = match self.proven_free(host).await {
            Ok(Ok(proven)) => proven,
            Ok(Err(refusal)) => return stays(&refusal),
            Err(trouble) => return stays(&trouble),
        };
        self.context.cluster.patch_child(&permit, &patch).await?;
        self.tell_taken(&from, &host.child, &does);
        Ok(ActionOutcome::It)
    }

    /// Proves live that both pools may act, that they still share, and that the host is free.
    async fn proven_free(&self, host: &Offer) -> Proven {
        let (context, child) = (self.context, &host.child);
        let reads = LiveReads::default();
        let own = PoolCase::pool(context, &self.s.key, self.live, self.effect).await?;
        let theirs = PoolCase::pool(context, &child.pool, &reads, self.effect).await?;
        let (own, theirs) = match (own, theirs) {
            (Ok(own), Ok(theirs)) => (own, theirs),
            (Err(refusal), _) | (_, Err(refusal)) => return Ok(Err(refusal)),
        };
        let namespaces = &context.settings.secret_namespaces;
        let refusal = lending::still(context.view.as_ref(), (&own, &theirs), child, namespaces);
        if let Some(refusal) = refusal {
            return Ok(Err(Refusal::Shown(Reason::TakingHost, refusal.to_string())));
        }
        let case = PoolCase {
            context,
            pool: &theirs,
            child,
            agents: host.agents.clone(),
            was_unfenced: &|_| false,
        };
        let permit = case.permit(&reads, self.effect, Leaves::ToPool).await?;
        Ok(permit.map(|permit| (permit, theirs.clone())))
    }

    /// An Event on either pool says so. `from`: the one that had the host.
    fn tell_taken(&self, from: &VsphereAgentPool, child: &ManagedVm, does: &str) {
        let (to, name) = (self.s.pool.as_ref(), &child.vm_name);
        let given = format!(
            "host {name} of pool {} {does} of pool {} now",
            child.pool, self.s.key
        );
        let told = |pool: &VsphereAgentPool, reason, action| Notice {
            regarding: Regarding {
                api_version: API_VERSION.to_owned(),
                kind: VsphereAgentPool::kind(&()).into_owned(),
                key: ObjectKey::of(pool),
                uid: pool.uid().unwrap_or_default(),
            },
            warning: false,
            reason,
            action,
            note: given.clone(),
        };
        let mut reports = Reports::metric(Metric::Reassigned("taken"));
        reports.events = vec![
            told(to, event::HOST_BORROWED, "TakeHost"),
            told(from, event::HOST_LENT, "LendHost"),
        ];
        tell(self.context, reports);
    }

    async fn prepare(&self, child: &ManagedVm, patch: &AgentPatch) -> Performed {
        let was_unfenced = |agent: &Agent| self.was_unfenced(agent);
        let shown = self.s.host(child).possible.iter();
        let case = self.case(child, &was_unfenced);
        let asked = case.permit_promise(self.live, self.effect, patch, shown);
        match asked.await? {
            Ok(permit) => self.context.cluster.patch_agent(&permit).await?,
            Err(Some(refusal)) => return Ok(self.refused(child, refusal)),
            Err(None) => return Ok(ActionOutcome::Held(None)),
        }
        Ok(ActionOutcome::It)
    }

    async fn fence(&self, child: &ManagedVm, patch: &AgentPatch) -> Performed {
        let cluster = self.context.cluster.as_ref();
        let agent = cluster.live_agent(&patch.key).await?;
        let Some(agent) = agent.filter(|a| patch.is_made_from(a)) else {
            return Ok(ActionOutcome::Held(None));
        };
        // The cache may be late: the labels must stay on a host that serves.
        let was_unfenced = |agent: &Agent| self.was_unfenced(agent);
        let case = self.case(child, &was_unfenced);
        let kept = match applied::withdraws_only(patch) {
            true => None,
            false => case.keeps_labels(self.live, &agent).await?,
        };
        if let Some((reason, message)) = kept {
            return Ok(self.refused(child, Refusal::Shown(reason, message)));
        }
        let permit = guard::harmless(self.effect.clone(), patch.clone())?;
        cluster.patch_agent(&permit).await?;
        Ok(ActionOutcome::It)
    }

    async fn release(&self, child: &ManagedVm, why: ReleaseReason) -> Performed {
        let was_unfenced = |agent: &Agent| self.was_unfenced(agent);
        let case = self.case(child, &was_unfenced);
        let leaves = Leaves::Deleted(why);
        match case.permit(self.live, self.effect, leaves).await? {
            Ok(permit) => self.context.cluster.delete_child(&permit).await?,
            Err(refusal) => {
                if let Refusal::Shown(reason, message) = &refusal {
                    tracing::info!(child = %child.key, reason = reason.as_str(), "not released: {message}");
                }
                return Ok(self.refused(child, refusal));
            }
        }
        Ok(ActionOutcome::It)
    }
}
