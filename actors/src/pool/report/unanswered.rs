//! AgentMachines that end without a VsphereAgent. The pool exports the roots of their traces, because no VM actor does.
//!
//! Assumption: the watch shows a VsphereAgent within [`GRACE`] after it was created.
//! Caveats: if a process first sees an AgentMachine while it is being deleted, it does not know whether there was a
//! VsphereAgent, and exports nothing. The root is missing as well if the pool is deleted before its AgentMachine.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::external::agent_machine::AgentMachine;
use jiff::Timestamp;
use kube::ResourceExt;

use super::waits::Wait;
use crate::{
    domain::names::ObjectKey,
    pool::{observed::Observed, plan::Plan},
    world::classify::{Demand, DemandState},
};

/// The time between the end of a demand and its export, and again until it is forgotten. So another pool with the same
/// demand does not export it again.
pub const GRACE: Duration = Duration::from_secs(60);

/// The end of a demand that never got a VsphereAgent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The AgentMachine.
    pub agent_machine: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// It was created.
    pub demanded: Timestamp,
    /// It was deleted, or seen to have a host.
    pub end: Timestamp,
    /// It has a host that is not ours.
    pub served: bool,
}

/// The result of a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// To be exported, each one once.
    pub ended: Vec<Ended>,
    /// uids for which nothing more will be exported.
    pub forgotten: Vec<String>,
    /// When the next one is due.
    pub again: Option<Duration>,
}

/// The demands without a VsphereAgent, by uid.
#[derive(Clone, Debug, Default)]
pub struct Unanswered {
    demands: BTreeMap<String, Unmet>,
    /// AgentMachines that have had a VsphereAgent, as long as they exist. The VM actor exports their traces.
    answered: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Unmet {
    agent_machine: ObjectKey,
    demanded: Timestamp,
    over: Option<Over>,
}

/// The AgentMachine no longer waits.
#[derive(Clone, Debug)]
struct Over {
    /// Wall clock.
    at: Timestamp,
    served: bool,
    /// Monotonic, when it was seen.
    seen: Duration,
    told: bool,
}

/// The state of a demand.
enum Stands {
    Waits,
    /// Gone, being deleted, or served: when, and whether it is served.
    Over(Timestamp, bool),
    /// Another pool's.
    NotOurs,
}

impl Unanswered {
    /// Updates the demands: which AgentMachines wait, and what happened to the earlier ones.
    pub fn look(&mut self, s: &Observed, plan: &Plan, waits: &[Wait]) -> Export {
        let existing = s.agent_machines.iter().filter_map(|am| am.uid());
        let existing: BTreeSet<String> = existing.collect();
        let has_child = |am: &&Arc<AgentMachine>| {
            let made = am.metadata.uid.as_ref();
            made.is_some_and(|uid| s.was_served(uid)) || s.has_record_of(am)
        };
        let with = s.agent_machines.iter().filter(has_child);
        self.answered.retain(|uid| existing.contains(uid));
        self.answered.extend(with.filter_map(|am| am.uid()));
        for wait in waits.iter().filter(|w| !w.of_vm) {
            self.note(&wait.agent_machine);
        }
        let mut look = Export::default();
        let answered = &self.answered;
        let demands = plan.demands.iter();
        let demands = demands.filter_map(|d| Some((d.agent_machine.metadata.uid.as_deref()?, d)));
        let demands: HashMap<&str, &Demand> = demands.collect();
        self.demands.retain(|uid, demand| {
            !answered.contains(uid)
                // Also one of an AgentMachine that is gone.
                && !s.has_child_for(uid)
                && demand.goes_on(uid, &stands(s, &demands, uid), s, &mut look)
        });
        look
    }

    fn note(&mut self, am: &AgentMachine) {
        let uid = am.uid().unwrap_or_default();
        let demanded = am.creation_timestamp();
        if let (Some(demanded), false) = (demanded, self.answered.contains(&uid)) {
            self.demands.entry(uid).or_insert_with(|| Unmet {
                agent_machine: ObjectKey::of(am),
                demanded: demanded.0,
                over: None,
            });
        }
    }
}

impl Unmet {
    /// Whether the demand is kept.
    fn goes_on(&mut self, uid: &str, stands: &Stands, s: &Observed, look: &mut Export) -> bool {
        let told = self.over.as_ref().is_some_and(|over| over.told);
        let (at, served) = match stands {
            Stands::NotOurs => return told,
            Stands::Waits => {
                self.over = self.over.take().filter(|_| told);
                return true;
            }
            Stands::Over(at, served) => (*at, *served),
        };
        let over = self.over.get_or_insert(Over {
            at,
            served,
            seen: s.now,
            told: false,
        });
        let since = s.now.saturating_sub(over.seen);
        if since < GRACE {
            let left = GRACE.saturating_sub(since);
            look.again = Some(look.again.map_or(left, |a| a.min(left)));
            return true;
        }
        if !std::mem::replace(&mut over.told, true) {
            look.ended.push(Ended {
                agent_machine: self.agent_machine.clone(),
                uid: uid.to_owned(),
                demanded: self.demanded,
                end: over.at,
                served: over.served,
            });
        }
        let gone = s.agent_machine(uid).is_none();
        if gone && since >= GRACE * 2 {
            look.forgotten.push(uid.to_owned());
            return false;
        }
        true
    }
}

fn stands(s: &Observed, demands: &HashMap<&str, &Demand>, uid: &str) -> Stands {
    let Some(am) = s.agent_machine(uid) else {
        return Stands::Over(s.wall, false);
    };
    if let Some(deleted) = &am.metadata.deletion_timestamp {
        return Stands::Over(deleted.0, false);
    }
    match demands.get(uid) {
        Some(demand) if demand.state == DemandState::Served => Stands::Over(s.wall, true),
        Some(_) => Stands::Waits,
        None => Stands::NotOurs,
    }
}

#[cfg(test)]
mod tests;
