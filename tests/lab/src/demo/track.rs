//! What happened to each machine, and when, according to the observations alone.

use std::{collections::BTreeMap, time::Duration};

use agent_forge_crds::{
    conditions::{Phase, Reason},
    external::agent::Agent,
    names::AGENT_MACHINE_LABEL,
    pool::IsoStatus,
};
use kube::ResourceExt;
use tokio::time::Instant;

use super::stage::Seen;
use crate::played::{guests::identity::swapped, object::Facts as _, provider};

/// The milestones of a machine, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Milestone {
    Demand,
    VmCreated,
    PoweredOn,
    AgentRegistered,
    Prepared,
    Bound,
    Installed,
    Gone,
}

impl Milestone {
    pub(super) const ALL: [Self; 8] = [
        Self::Demand,
        Self::VmCreated,
        Self::PoweredOn,
        Self::AgentRegistered,
        Self::Prepared,
        Self::Bound,
        Self::Installed,
        Self::Gone,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Demand => "demand",
            Self::VmCreated => "VM created",
            Self::PoweredOn => "powered on",
            Self::AgentRegistered => "Agent",
            Self::Prepared => "prepared",
            Self::Bound => "bound",
            Self::Installed => "installed",
            Self::Gone => "gone",
        }
    }
}

/// One machine, by the name that AgentMachine, Machine, VsphereAgent, VM and host share.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pub(super) reached: BTreeMap<Milestone, Duration>,
    /// Phase and reason from the VsphereAgent's status.
    pub(super) phase: String,
    pub(super) leaving: bool,
    agent: Option<String>,
}

impl Line {
    pub(super) fn at(&self, milestone: Milestone) -> Option<Duration> {
        self.reached.get(&milestone).copied()
    }
}

/// The progress of an ISO.
fn about(iso: &IsoStatus) -> String {
    let mib = |bytes: i64| bytes as f64 / f64::from(1 << 20);
    match (
        iso.downloaded_bytes,
        iso.total_bytes,
        iso.stored_path.as_deref(),
    ) {
        (Some(done), Some(total), _) => {
            let speed = iso
                .bytes_per_second
                .map(|b| format!(", {:.1} MiB/s", mib(b)));
            let left = iso.eta_seconds.map(|s| format!(", {s} s left"));
            format!(
                "{:.1} of {:.1} MiB{}{}",
                mib(done),
                mib(total),
                speed.unwrap_or_default(),
                left.unwrap_or_default()
            )
        }
        (Some(_), None, _) => "asked for".to_owned(),
        (None, _, Some(path)) => format!("ready at {path}"),
        (None, _, None) => String::new(),
    }
}

/// All machines.
pub(super) struct Track {
    begun: Instant,
    /// The pool's ISO in a sentence; empty before anything is known.
    pub(super) iso: String,
    pub(super) lines: BTreeMap<String, Line>,
}

impl Default for Track {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            iso: String::new(),
            lines: BTreeMap::new(),
        }
    }
}

impl Track {
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Adds an observation.
    pub(super) fn take(&mut self, seen: &Seen) {
        let now = self.begun.elapsed();
        self.iso = about(&seen.iso);
        for am in &seen.agent_machines {
            let line = self.lines.entry(am.name().to_owned()).or_default();
            if am.has_finalizer(provider::FINALIZER) {
                line.reached.entry(Milestone::Demand).or_insert(now);
            }
            if am.flag("/status/ready") {
                line.reached.entry(Milestone::Installed).or_insert(now);
            }
        }
        for vm in &seen.vms {
            let line = self.lines.entry(vm.name.clone()).or_default();
            line.reached.entry(Milestone::VmCreated).or_insert(now);
            if vm.is_on() {
                line.reached.entry(Milestone::PoweredOn).or_insert(now);
            }
            // The guest registers under its VM's uuid. The status names its Agent later.
            line.agent.get_or_insert_with(|| swapped(&vm.uuid));
        }
        for child in &seen.children {
            let line = self.lines.entry(child.name_any()).or_default();
            line.leaving = child.metadata.deletion_timestamp.is_some();
            if let Some(vm) = child.status.as_ref().and_then(|s| s.vm.as_ref()) {
                let (phase, reason) = (vm.phase.as_ref(), vm.reason.as_ref());
                line.phase = format!(
                    "{}/{}",
                    phase.map_or("", Phase::as_str),
                    reason.map_or("", Reason::as_str)
                );
                line.agent = vm
                    .agent_ref
                    .as_ref()
                    .and_then(|r| r.name.clone())
                    .or(line.agent.take());
            }
        }
        for agent in &seen.agents {
            self.take_agent(agent, now);
        }
        for (name, line) in &mut self.lines {
            let vm = seen.vms.iter().any(|vm| vm.name == *name);
            let child = seen.children.iter().any(|c| c.name_any() == *name);
            let agent = seen.agents.iter().any(|a| Some(a.name_any()) == line.agent);
            if line.at(Milestone::VmCreated).is_some() && !vm && !child && !agent {
                line.reached.entry(Milestone::Gone).or_insert(now);
                line.phase = "gone".to_owned();
            }
        }
    }

    fn take_agent(&mut self, agent: &Agent, now: Duration) {
        let id = agent.name_any();
        let Some(line) = self
            .lines
            .values_mut()
            .find(|l| l.agent.as_ref() == Some(&id))
        else {
            return;
        };
        line.reached
            .entry(Milestone::AgentRegistered)
            .or_insert(now);
        if agent.spec.approved && agent.labels().contains_key(AGENT_MACHINE_LABEL) {
            line.reached.entry(Milestone::Prepared).or_insert(now);
        }
        if agent.is_claimed_or_bound() {
            line.reached.entry(Milestone::Bound).or_insert(now);
        }
    }
}
