//! What is reported of a pool and its AgentMachines after a pass: Events, log lines, spans and metrics, as values. Pure, except for
//! the memory of what was told.

pub mod applied;
pub mod topic;
pub mod unanswered;
pub mod waits;

use agent_forge_crds::{WaitingOn, conditions::event, pool::VsphereAgentPoolStatus};
use kube::ResourceExt;

use self::{
    applied::{Applied, GATHER},
    topic::Topic,
    unanswered::Unanswered,
    waits::{Wait, Watched},
};
use super::{
    dry_run::{self, Rehearsed},
    observed::Observed,
    outcome::{Acted, Outcome},
    plan::Plan,
    status,
};
use crate::{
    domain::{failure::Class, names::ObjectKey, trace::TraceId},
    iso::{
        infra_env,
        msg::IsoState,
        of_pool::{self, held::HeldBack},
    },
    ports::cluster::{Notice, Regarding},
    report::{
        Metric, Reports,
        spans::{self, SpanSubject},
    },
    runtime::announcer::{Announcer, Due, Pace},
};

/// What was told, and what is still to be told together.
#[derive(Default)]
pub struct Told {
    announcer: Announcer<Topic>,
    /// Waits of AgentMachines, for their traces.
    watched: Watched,
    /// AgentMachines that have no VsphereAgent yet, for their traces.
    unanswered: Unanswered,
    /// What was done with VsphereAgents and is in no Event yet.
    applied: Applied,
    /// What the log has of the plan, in a dry run.
    rehearsed: Rehearsed,
}

/// What is due after a pass. `status`: as the pass rendered it. `None`: the pool has changed or is gone, so it rendered none.
pub fn report(
    s: &Observed,
    plan: &Plan,
    outcome: &Outcome,
    acted: &Acted,
    status: Option<&VsphereAgentPoolStatus>,
    told: &mut Told,
) -> Reports {
    let mut events = Events {
        s,
        reports: Reports::default(),
    };
    events.old_isos(outcome, told);
    events.iso(outcome, told);
    events.infra_env(outcome, told);
    events.applied(acted, told);
    events.failure(acted, told);
    let mut reports = events.reports;
    let waits = waits::waits(s, plan);
    traces(s, plan, &waits, told, &mut reports);
    let (notices, wait) = waits::events(&mut told.announcer, &waits, s.now);
    reports.events.extend(notices);
    wait.into_iter().for_each(|left| reports.wake(left));
    reports.metrics = metrics(s, plan, outcome, acted, status);
    if let Some(status) = status {
        let lines = dry_run::lines(s, status, &mut told.rehearsed).into_iter();
        reports.rehearsed = lines.map(|line| (s.key.clone(), line)).collect();
    }
    reports
}

fn metrics(
    s: &Observed,
    plan: &Plan,
    outcome: &Outcome,
    acted: &Acted,
    status: Option<&VsphereAgentPoolStatus>,
) -> Vec<Metric> {
    let key = || s.key.clone();
    if acted.gone && s.pool.metadata.deletion_timestamp.is_some() {
        return vec![Metric::PoolGone(key())];
    }
    let mut all = vec![Metric::Pool(key(), status::gauges(s, plan))];
    all.extend(outcome.server.as_deref().map(|server| {
        let cache = of_pool::cache_key(&s.pool, server).to_string();
        Metric::PoolUses(key(), server.to_owned(), cache)
    }));
    all.extend(
        status.map(|status| Metric::PoolView(key(), status::view(s, plan, outcome, status))),
    );
    all
}

/// What AgentMachines wait for until the pool can act, under the roots of their traces, and the roots of AgentMachines that ended
/// without a VsphereAgent.
fn traces(s: &Observed, plan: &Plan, waits: &[Wait], told: &mut Told, reports: &mut Reports) {
    let rows = s.pool.status.as_ref().map(|st| st.waiting_on.as_slice());
    let recorded = |w: &Wait| {
        let name = w.agent_machine.name_any();
        WaitingOn::since_of(rows.unwrap_or_default(), &name, &w.reason).map(|t| t.0)
    };
    for wait in told.watched.look(waits, s.wall, recorded) {
        let about = about(s, &wait.uid, &wait.agent_machine);
        let subject = format!("AgentMachine/{}", wait.agent_machine.name);
        let what = (subject.as_str(), wait.reason.as_str());
        let spans = spans::wait(&about, &[], what, wait.since, wait.until);
        reports.spans.extend(spans);
    }
    let unanswered = told.unanswered.look(s, plan, waits);
    for ended in unanswered.ended {
        let about = about(s, &ended.uid, &ended.agent_machine);
        let (from, to) = (ended.demanded, ended.end);
        let root = spans::unanswered(&about, from, to, ended.served);
        reports.spans.push(root);
    }
    let forgotten = unanswered.forgotten.iter();
    let forgotten = forgotten.map(|uid| TraceId::of_machine(uid));
    reports.ended.extend(forgotten);
    let again = unanswered.again.into_iter();
    again.for_each(|left| reports.wake(left));
}

fn about<'a>(s: &'a Observed, uid: &str, agent_machine: &'a ObjectKey) -> SpanSubject<'a> {
    SpanSubject {
        trace: TraceId::of_machine(uid),
        namespace: &agent_machine.namespace,
        name: &agent_machine.name,
        pool: &s.key.name,
        before: None,
    }
}

struct Events<'a> {
    s: &'a Observed,
    reports: Reports,
}

impl Events<'_> {
    fn send(&mut self, warning: bool, reason: &'static str, action: &'static str, note: String) {
        self.reports.events.push(Notice {
            regarding: Regarding {
                api_version: agent_forge_crds::names::API_VERSION.to_owned(),
                kind: "VsphereAgentPool".to_owned(),
                key: self.s.key.clone(),
                uid: self.s.pool.uid().unwrap_or_default(),
            },
            warning,
            reason,
            action,
            note,
        });
    }

    fn is_due(&self, told: &mut Told, topic: Topic, reason: &str, pace: Pace) -> bool {
        told.announcer.announce(topic, reason, self.s.now, pace) == Due::Now
    }

    fn old_isos(&mut self, outcome: &Outcome, told: &mut Told) {
        match &outcome.held_back {
            Some(None) => told.announcer.over(&Topic::OldIsos),
            Some(Some(held)) if self.is_due(told, Topic::OldIsos, "", HeldBack::PACE) => {
                self.send(true, event::ISO_PRUNE_FAILED, "PruneISO", held.note());
            }
            None | Some(Some(_)) => {}
        }
    }

    fn iso(&mut self, outcome: &Outcome, told: &mut Told) {
        if matches!(outcome.iso, Some(IsoState::Lost(_))) {
            // If it comes back, that is a new Event.
            told.announcer.over(&Topic::Iso);
        }
        let Some(IsoState::Ready {
            file,
            reused,
            prune_failures,
            ..
        }) = &outcome.iso
        else {
            return;
        };
        let status = self.s.pool.status.as_ref();
        let recorded = status.and_then(|st| st.iso.as_ref()?.stored_path.as_ref());
        let place = file.path.to_string();
        if self.is_due(told, Topic::Iso, &place, Pace::NEWS) && recorded != Some(&place) {
            let reason = if *reused {
                event::ISO_REUSED
            } else {
                event::ISO_UPLOADED
            };
            let note = format!("{place} ({} bytes)", file.size);
            self.send(false, reason, "EnsureISO", note);
        }
        for (path, why) in prune_failures {
            let note = format!("{path}: {why}");
            self.send(true, event::ISO_PRUNE_FAILED, "PruneISO", note);
        }
    }

    fn infra_env(&mut self, outcome: &Outcome, told: &mut Told) {
        let no_source = outcome.no_source.as_ref();
        let lack = no_source.and_then(|no| infra_env::lack(&self.s.infra_env_key, no));
        let Some((reason, pace, note)) = lack else {
            told.announcer.over(&Topic::InfraEnv);
            return;
        };
        if self.is_due(told, Topic::InfraEnv, reason.as_str(), pace) {
            self.send(true, event::INFRA_ENV_UNAVAILABLE, "EnsureISO", note);
        }
    }

    /// Announces what was done with VsphereAgents.
    fn applied(&mut self, acted: &Acted, told: &mut Told) {
        told.applied.add(acted, self.s.now);
        // A pool that is gone has no later pass.
        let by = if acted.gone {
            self.s.now + GATHER
        } else {
            self.s.now
        };
        match told.applied.due(by) {
            Ok(note) => self.send(false, event::PLAN_APPLIED, "ApplyPlan", note),
            Err(left) => left.into_iter().for_each(|left| self.reports.wake(left)),
        }
    }

    fn failure(&mut self, acted: &Acted, told: &mut Told) {
        match &acted.result {
            Err(t) if t.class == Class::Conflict => {}
            Err(t) => {
                if self.is_due(told, Topic::Failure, t.reason.as_str(), Pace::NEWS) {
                    let note = t.message.clone();
                    self.send(true, event::APPLY_PLAN_FAILED, "ApplyPlan", note);
                }
            }
            Ok(()) => told.announcer.over(&Topic::Failure),
        }
    }
}
