//! What a machine waits for, since when, and who can end that.

use std::collections::BTreeSet;

use agent_forge_actors::{
    domain::{
        holds::{Check, Holds},
        managed_vm::ManagedVm,
        upstream,
    },
    pool::{
        observed::Observed,
        plan::{Action, Plan},
    },
    runtime::holds,
};
use agent_forge_actors::{
    ports::effect::EffectKind,
    world::classify::{DemandState, words},
};
use agent_forge_crds::{
    VsphereAgent, WaitingOn,
    conditions::{
        CONFIG_SYNCED, INFRA_ENV_AVAILABLE, ISO_READY, Phase, READY, Reason, STEPS_FAILED,
        VSPHERE_READY, Who, find_condition,
    },
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use serde::Serialize;

use super::found::Found;

/// One thing that does not happen now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    /// What waits: an object or a step.
    pub subject: String,
    /// Why, as one word.
    pub reason: Reason,
    /// Why, as a sentence.
    pub message: String,
    /// Since when, if that is known.
    pub since: Option<Timestamp>,
    /// What the word means.
    pub meaning: &'static str,
    /// Who can end it.
    pub who: Who,
    /// What that person does.
    pub remedy: &'static str,
    /// Where to read more.
    pub page: &'static str,
}

impl Wait {
    /// A wait, with what people need to know about its reason.
    #[must_use]
    pub fn of(
        subject: impl Into<String>,
        reason: &Reason,
        message: impl Into<String>,
        since: Option<Timestamp>,
    ) -> Self {
        let about = reason.about();
        Self {
            subject: subject.into(),
            reason: reason.clone(),
            message: message.into(),
            since,
            meaning: about.meaning,
            who: about.who,
            remedy: about.remedy,
            page: about.section.page(),
        }
    }

    /// The wait that a condition tells.
    #[must_use]
    pub fn told(subject: impl Into<String>, condition: &Condition) -> Self {
        let since = Some(condition.last_transition_time.0);
        let reason = Reason::from(condition.reason.as_str());
        Self::of(subject, &reason, &condition.message, since)
    }

    /// The wait that a row of a status tells.
    #[must_use]
    pub fn recorded(row: &WaitingOn) -> Self {
        let since = row.since.as_ref().map(|t| t.0);
        Self::of(&row.subject, &row.reason, &row.message, since)
    }
}

/// Everything that the machine waits for. Each reason once: the status of the machine comes first, then that of its pool, then
/// what the operator would decide now.
#[must_use]
pub fn waits(found: &Found, plan: Option<&Plan>, held: &Holds, now: Timestamp) -> Vec<Wait> {
    let mut all: Vec<Wait> = found.rows().map(Wait::recorded).collect();
    all.extend(by_people(held, &next_effects(found), now));
    if let Some(plan) = plan {
        let rows = plan.waiting.iter().filter(|w| found.is_named(&w.subject));
        all.extend(rows.map(|w| Wait::of(&w.subject, &w.reason, &w.message, None)));
        all.extend(demand(found, plan));
    }
    if !has_agent(found) {
        all.extend(of_the_pool(found));
    }
    all.extend(gone_pool(found));
    all.extend(refused_pool(found));
    all.extend(not_ready(found));
    let mut seen = BTreeSet::new();
    all.retain(|wait| seen.insert(wait.reason.clone()));
    all
}

/// Whether the machine needs nothing more of the pool.
fn has_agent(found: &Found) -> bool {
    let phase = found.child.as_ref().and_then(|c| c.vm()?.phase.clone());
    matches!(
        phase,
        Some(Phase::Available | Phase::Bound | Phase::Released)
    )
}

/// The effects that come next for the machine. A veto on another effect stands, and nothing waits for it.
#[must_use]
pub fn next_effects(found: &Found) -> Vec<EffectKind> {
    if found.leaves() {
        return vec![EffectKind::Destroy];
    }
    match &found.child {
        Some(child) if is_on(child) => vec![EffectKind::CreateVm],
        _ => vec![EffectKind::CreateVm, EffectKind::PowerOn],
    }
}

/// The same for a pool: what it does now, and what it would do for the next AgentMachine.
#[must_use]
pub fn next_effects_of_pool(s: &Observed, plan: &Plan) -> Vec<EffectKind> {
    let goes = |c: &ManagedVm| c.deleting || c.given_up;
    let releases = |action: &Action| matches!(action, Action::Release { .. });
    let mut all = vec![EffectKind::CreateVm, EffectKind::PowerOn];
    if s.children.iter().any(goes) || plan.actions.iter().any(releases) {
        all.push(EffectKind::Destroy);
    }
    all
}

fn is_on(child: &ManagedVm) -> bool {
    let state = child.vm().and_then(|vm| vm.power_state.as_deref());
    state == Some("poweredOn")
}

/// Pauses and vetoes that hold these effects.
#[must_use]
pub fn by_people(held: &Holds, effects: &[EffectKind], now: Timestamp) -> Vec<Wait> {
    let ask = |kind: &EffectKind| holds::who_holds(*kind, held, now);
    let row = |hold: agent_forge_actors::ports::effect::Hold| {
        Wait::of(hold.holder.clone(), &hold.reason, hold.why, None)
    };
    effects.iter().filter_map(ask).map(row).collect()
}

/// Vetoes on none of these effects, in sentences: they stand, and nothing waits for them.
#[must_use]
pub fn standing(held: &Holds, effects: &[EffectKind]) -> Vec<String> {
    let waits = |check| match check {
        Check::Delete => effects.contains(&EffectKind::Destroy),
        Check::PowerOn => effects.contains(&EffectKind::PowerOn),
    };
    let idle = held.vetoes.iter().filter(|veto| !waits(veto.check));
    idle.map(ToString::to_string).collect()
}

/// A `spec.pausedUntil` that means nothing. Its author believes that it pauses.
#[must_use]
pub fn invalid_pause(held: &Holds) -> Option<Wait> {
    let said = held.invalid.join("; ");
    let told = !held.invalid.is_empty();
    told.then(|| Wait::of("spec.pausedUntil", &Reason::PausedUntilInvalid, said, None))
}

/// Steps of the VsphereAgent that failed and stop nothing else.
#[must_use]
pub fn failed_steps(child: &VsphereAgent) -> Option<Wait> {
    let conditions = &child.status.as_ref()?.conditions;
    let failed = find_condition(conditions, STEPS_FAILED).filter(|c| c.status == "True")?;
    Some(Wait::told(
        format!("VsphereAgent/{}", child.name_any()),
        failed,
    ))
}

/// Why the AgentMachine asks for no host, or gets none.
fn demand(found: &Found, plan: &Plan) -> Option<Wait> {
    let am = found.agent_machine.as_ref()?;
    let demand = plan
        .demands
        .iter()
        .find(|d| d.agent_machine.metadata.uid == am.metadata.uid)?;
    let (DemandState::NotRequested(why) | DemandState::NotNow { why, .. }) = &demand.state else {
        return None;
    };
    let (reason, message) = words::explain(why);
    let subject = format!("AgentMachine/{}", am.name_any());
    let changed = am
        .reserved_condition()
        .and_then(|c| c.last_transition_time.as_ref());
    let since = changed.or(am.metadata.creation_timestamp.as_ref());
    Some(Wait::of(subject, &reason, message, since.map(|t| t.0)))
}

/// What the whole pool waits for. A VM cannot be made, or does not boot, before it is there.
fn of_the_pool(found: &Found) -> Vec<Wait> {
    let status = found.pool.as_ref().and_then(|p| p.status.as_ref());
    let conditions = status.map(|s| s.conditions.as_slice()).unwrap_or_default();
    let row = |type_: &&str| {
        let condition = find_condition(conditions, type_).filter(|c| c.status == "False")?;
        Some(Wait::told(format!("pool: {type_}"), condition))
    };
    let all = [INFRA_ENV_AVAILABLE, VSPHERE_READY, ISO_READY];
    all.iter().filter_map(row).collect()
}

/// The pool of the VsphereAgent does not exist.
pub(super) fn gone_pool(found: &Found) -> Option<Wait> {
    let child = found.child.as_ref().filter(|_| found.pool.is_none())?;
    let message = format!("VsphereAgentPool {} does not exist", child.pool);
    Some(Wait::of(
        format!("VsphereAgent/{}", child.key.name),
        &Reason::PoolNotFound,
        message,
        None,
    ))
}

fn refused_pool(found: &Found) -> Option<Wait> {
    let (am, why) = (found.agent_machine.as_ref()?, found.refused.as_ref()?);
    let subject = format!("AgentMachine/{}", am.name_any());
    Some(Wait::of(subject, &Reason::NamespaceNotAllowed, why, None))
}

/// The condition `Ready` of the VsphereAgent, if it is False.
pub(super) fn not_ready(found: &Found) -> Option<Wait> {
    let child = found.child.as_ref()?;
    let status = child.object.status.as_ref()?;
    let condition = find_condition(&status.conditions, READY).filter(|c| c.status == "False")?;
    Some(Wait::told(
        format!("VsphereAgent/{}", child.key.name),
        condition,
    ))
}

/// The VM has a snapshot.
fn snapshot(vm: &str) -> String {
    format!(
        "VM {vm} has a snapshot in vCenter. It grows, and while it is there, the disk cannot be replaced when the host is \
         recycled. Delete the snapshots of the VM in vCenter"
    )
}

/// What people should look at although nothing waits.
#[must_use]
pub fn notes(found: &Found, held: &Holds, now: Timestamp) -> Vec<String> {
    let mut all = Vec::new();
    let failed = found.child.as_ref().and_then(|c| failed_steps(&c.object));
    for wait in invalid_pause(held).into_iter().chain(failed) {
        let (reason, message) = (wait.reason, wait.message);
        all.push(format!("{reason}: {message}. {}", wait.remedy));
    }
    let alone = (&found.agent_machine, &found.pool, &found.child);
    if let (Some(am), None, None) = alone
        && found.refused.is_none()
    {
        let pool = am
            .node_pool()
            .map_or("its NodePool".to_owned(), |(_, name)| {
                format!("NodePool {name}")
            });
        let age = upstream::age(am.as_ref(), now).as_secs();
        all.push(format!(
            "no VsphereAgentPool serves this AgentMachine, which is {age} s old: none names {pool} and its control plane namespace"
        ));
    }
    let child = found.child.as_ref();
    if let Some(failure) = child.and_then(|c| c.object.status.as_ref()?.last_failure.as_ref()) {
        let class = failure.class.as_deref().unwrap_or("?");
        let attempt = failure.attempt.unwrap_or(1);
        let count = failure.count.unwrap_or(1);
        let time = failure
            .time
            .as_ref()
            .map_or("?".to_owned(), |t| t.0.to_string());
        all.push(format!(
            "attempt {attempt} was given up at {time}: it came as far as {class} (in a row: {count}). status.lastFailure has the evidence"
        ));
    }
    let conditions = child.and_then(|c| c.object.status.as_ref());
    let synced = conditions.and_then(|status| find_condition(&status.conditions, CONFIG_SYNCED));
    if let Some(condition) = synced.filter(|c| c.status == "False") {
        all.push(format!("{}: {}", condition.reason, condition.message));
    }
    if let Some(vm) = child
        .and_then(|c| c.vm())
        .filter(|vm| vm.has_snapshot == Some(true))
    {
        all.push(snapshot(&vm.name));
    }
    if let Some(child) = child.filter(|c| c.skips_delete()) {
        all.push(format!(
            "VM {} stays when its VsphereAgent is deleted (skip-delete)",
            child.vm_name
        ));
    }
    all
}
