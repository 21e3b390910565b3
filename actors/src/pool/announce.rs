//! The Events of a pool and of its AgentMachines.

use std::time::Duration;

use agent_forge_crds::conditions::event;
use kube::ResourceExt;

use super::{
    Memory, act::Acted, applied::GATHER, observed::Observed, plan::Plan, status::Outcome, traced,
    waits,
};
use crate::{
    context::Context,
    domain::failure::Class,
    iso::{infra_env, msg::IsoState, of_pool::held::HeldBack},
    ports::cluster::{Notice, Regarding},
    report::{Reports, tell},
    runtime::announcer::{Due, Pace},
};

/// What Events of a pool are about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topic {
    /// The ISO that is on the datastore.
    Iso,
    /// Old versions of the ISO that are kept.
    OldIsos,
    /// The InfraEnv offers no ISO.
    InfraEnv,
    /// The plan failed.
    Failure,
    /// An AgentMachine waits, by its uid.
    Wait(String),
}

/// Sends the Events that are due. Returns when the next one is due.
pub fn announce(
    context: &Context,
    s: &Observed,
    plan: &Plan,
    outcome: &Outcome,
    acted: &Acted,
    memory: &mut Memory,
) -> Option<Duration> {
    let mut events = Events {
        s,
        reports: Reports::default(),
    };
    events.old_isos(outcome, memory);
    events.iso(outcome, memory);
    events.infra_env(outcome, memory);
    events.applied(acted, memory);
    events.failure(acted, memory);
    let mut reports = events.reports;
    let waits = waits::waits(s, plan);
    traced::export_waits(s, plan, &waits, memory, &mut reports);
    let (notices, wait) = waits::events(&mut memory.announcer, &waits, s.now);
    reports.events.extend(notices);
    let again = [reports.again, wait].into_iter().flatten().min();
    tell(context, reports);
    again
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

    fn is_due(&self, memory: &mut Memory, topic: Topic, reason: &str, pace: Pace) -> bool {
        memory.announcer.announce(topic, reason, self.s.now, pace) == Due::Now
    }

    fn old_isos(&mut self, outcome: &Outcome, memory: &mut Memory) {
        match &outcome.held_back {
            Some(None) => memory.announcer.over(&Topic::OldIsos),
            Some(Some(held)) if self.is_due(memory, Topic::OldIsos, "", HeldBack::PACE) => {
                self.send(true, event::ISO_PRUNE_FAILED, "PruneISO", held.note());
            }
            None | Some(Some(_)) => {}
        }
    }

    fn iso(&mut self, outcome: &Outcome, memory: &mut Memory) {
        if matches!(outcome.iso, Some(IsoState::Lost(_))) {
            // If it comes back, that is a new Event.
            memory.announcer.over(&Topic::Iso);
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
        if self.is_due(memory, Topic::Iso, &place, Pace::NEWS) && recorded != Some(&place) {
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

    fn infra_env(&mut self, outcome: &Outcome, memory: &mut Memory) {
        let no_source = outcome.no_source.as_ref();
        let lack = no_source.and_then(|no| infra_env::lack(&self.s.infra_env_key, no));
        let Some((reason, pace, note)) = lack else {
            memory.announcer.over(&Topic::InfraEnv);
            return;
        };
        if self.is_due(memory, Topic::InfraEnv, reason.as_str(), pace) {
            self.send(true, event::INFRA_ENV_UNAVAILABLE, "EnsureISO", note);
        }
    }

    /// Announces what was done with VsphereAgents.
    fn applied(&mut self, acted: &Acted, memory: &mut Memory) {
        memory.applied.add(acted, self.s.now);
        // A pool that is gone has no later pass.
        let by = if acted.gone {
            self.s.now + GATHER
        } else {
            self.s.now
        };
        match memory.applied.due(by) {
            Ok(note) => self.send(false, event::PLAN_APPLIED, "ApplyPlan", note),
            Err(left) => left.into_iter().for_each(|left| self.reports.wake(left)),
        }
    }

    fn failure(&mut self, acted: &Acted, memory: &mut Memory) {
        match &acted.result {
            Err(t) if t.class == Class::Conflict => {}
            Err(t) => {
                if self.is_due(memory, Topic::Failure, t.reason.as_str(), Pace::NEWS) {
                    let note = t.message.clone();
                    self.send(true, event::APPLY_PLAN_FAILED, "ApplyPlan", note);
                }
            }
            Ok(()) => memory.announcer.over(&Topic::Failure),
        }
    }
}
