//! What agent-forge promises, checked from outside: some at every look, the others at the end.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use kube::ResourceExt;

use super::{
    stage::{Seen, Stage},
    track::{Milestone, Track},
};

/// The promises and whether they held.
pub(super) struct Promises {
    foreign: (Vec<u8>, String),
    kept: Vec<(&'static str, Result<(), String>)>,
    doubles: BTreeSet<String>,
    early: BTreeSet<String>,
    /// Agent of each VM, as last seen together.
    agents: BTreeMap<String, String>,
    survivors: BTreeMap<String, (String, String)>,
}

impl Promises {
    pub(super) async fn new(stage: &Stage) -> Result<Self> {
        Ok(Self {
            foreign: stage.foreign.prints().await?,
            kept: Vec::new(),
            doubles: BTreeSet::new(),
            early: BTreeSet::new(),
            agents: BTreeMap::new(),
            survivors: BTreeMap::new(),
        })
    }

    /// At every look: no double, no Agent that dies before its VM.
    pub(super) fn during(&mut self, seen: &Seen, track: &Track) {
        let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
        for vm in &seen.vms {
            *by_name.entry(vm.name.as_str()).or_default() += 1;
        }
        self.doubles.extend(
            by_name
                .into_iter()
                .filter(|(_, n)| *n > 1)
                .map(|(name, _)| name.to_owned()),
        );
        let owner_gone = |name: &String| {
            !seen.agent_machines.iter().any(|am| {
                use crate::played::object::Facts as _;
                am.name() == name
            })
        };
        for child in &seen.children {
            let agent = child
                .status
                .as_ref()
                .and_then(|s| s.vm.as_ref()?.agent_ref.as_ref()?.name.clone());
            if let Some(agent) = agent {
                self.agents.insert(child.name_any(), agent);
            }
        }
        for (name, agent) in &self.agents {
            let vm = seen.vms.iter().any(|vm| vm.name == *name);
            let there = seen.agents.iter().any(|a| a.name_any() == *agent);
            let registered = track
                .lines
                .get(name)
                .is_some_and(|l| l.at(Milestone::AgentRegistered).is_some());
            if vm && !there && registered && owner_gone(name) {
                self.early.insert(name.clone());
            }
        }
    }

    pub(super) async fn after_up(&mut self, stage: &Stage, up: usize) -> Result<()> {
        let seen = stage.look().await?;
        let marked = seen
            .vms
            .iter()
            .filter(|vm| vm.extra_config.keys().any(|k| k.starts_with("agent-forge")))
            .count();
        self.keep(
            "one VM per AgentMachine, each with our marker",
            seen.vms.len() == up && marked == up,
            || format!("{} VMs, {marked} marked, {up} wanted", seen.vms.len()),
        );
        let right = seen
            .agents
            .iter()
            .filter(|a| a.spec.hostname.as_deref() == a.claimed_by())
            .count();
        self.keep(
            "each Agent is bound by the AgentMachine it was prepared for",
            right == up,
            || format!("{right} of {up} Agents serve the AgentMachine whose hostname they carry"),
        );
        let disks_first = seen
            .vms
            .iter()
            .all(|vm| vm.boot_order.first().is_some_and(|d| d.starts_with("disk")));
        self.keep(
            "every VM boots its disk before the ISO",
            disks_first,
            || "a boot order is another".to_owned(),
        );
        self.survivors = seen
            .vms
            .iter()
            .map(|vm| {
                (
                    vm.name.clone(),
                    (vm.instance_uuid.clone(), format!("{:?}", vm.powered_on_at)),
                )
            })
            .collect();
        Ok(())
    }

    pub(super) async fn after_down(&mut self, stage: &Stage, down: usize) -> Result<()> {
        let seen = stage.look().await?;
        let c = seen.counts();
        let clean = c.vms == down && c.agents == down && c.children == down;
        self.keep(
            "freed VMs, Agents and VsphereAgents are gone, completely",
            clean,
            || format!("{c:?}"),
        );
        let untouched = seen.vms.iter().all(|vm| {
            self.survivors.get(&vm.name)
                == Some(&(vm.instance_uuid.clone(), format!("{:?}", vm.powered_on_at)))
        });
        self.keep("the VMs that serve on were not touched", untouched, || {
            "one was replaced or power cycled".to_owned()
        });
        let now = stage.foreign.prints().await?;
        let same = now == self.foreign;
        self.keep(
            "the foreign Agent and the foreign VM are as they were, byte for byte",
            same,
            || "they differ".to_owned(),
        );
        Ok(())
    }

    pub(super) async fn of_the_operator(&mut self, stage: &Stage) -> Result<()> {
        let doubles = self.doubles.clone();
        self.keep(
            "never two VMs for one AgentMachine",
            doubles.is_empty(),
            || format!("{doubles:?}"),
        );
        let early = self.early.clone();
        self.keep(
            "no Agent was deleted before its VM was gone",
            early.is_empty(),
            || format!("{early:?}"),
        );
        let mut panics = 0;
        for operator in stage.dead.iter().chain([&stage.operator]) {
            // Chaos lets handlers fail on purpose; a pass must never panic.
            let log = operator.log()?;
            panics += log.lines().filter(|l| l.contains("panicked at")).count();
        }
        self.keep("the operator never panicked", panics == 0, || {
            format!("{panics} panics in its log")
        });
        stage.lab.audited().await?;
        let forbidden = stage.lab.audit().forbidden(&stage.access.user)?;
        self.keep(
            "the rules of config/rbac were enough",
            forbidden.is_empty(),
            || {
                format!(
                    "{:?}",
                    forbidden
                        .iter()
                        .map(|e| (&e.verb, &e.uri))
                        .collect::<Vec<_>>()
                )
            },
        );
        Ok(())
    }

    fn keep(&mut self, promise: &'static str, held: bool, else_: impl FnOnce() -> String) {
        self.kept
            .push((promise, if held { Ok(()) } else { Err(else_()) }));
    }

    /// Each promise and whether it held.
    pub(super) fn list(&self) -> &[(&'static str, Result<(), String>)] {
        &self.kept
    }

    /// # Errors
    /// A promise was broken.
    pub(super) fn verdict(&self) -> Result<()> {
        let broken = self.kept.iter().filter(|(_, held)| held.is_err()).count();
        if broken > 0 {
            bail!("{broken} of {} promises did not hold", self.kept.len());
        }
        Ok(())
    }
}
