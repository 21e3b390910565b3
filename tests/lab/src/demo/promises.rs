//! The promises of agent-forge, checked from outside: some at every observation, the others at the end.

use std::collections::{BTreeMap, BTreeSet};

use agent_forge_crds::names::AGENT_MACHINE_UID_ANNOTATION;
use anyhow::{Result, bail};
use kube::ResourceExt;

use super::{
    stage::{Seen, Stage},
    track::{Milestone, Track},
};
use crate::witness::owner;

/// The promises, and whether they held.
pub(super) struct Promises {
    foreign: (Vec<u8>, String),
    kept: Vec<(&'static str, Result<(), String>)>,
    doubles: BTreeSet<String>,
    early: BTreeSet<String>,
    /// By uid of each VsphereAgent, the uid of the AgentMachine that it was last seen with.
    made_for: BTreeMap<String, String>,
    /// The Agent of each VM, as last seen together.
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
            made_for: BTreeMap::new(),
            agents: BTreeMap::new(),
            survivors: BTreeMap::new(),
        })
    }

    /// At every observation: no second VM for an AgentMachine, and no Agent that is deleted before its VM.
    pub(super) fn during(&mut self, seen: &Seen, track: &Track) {
        for child in &seen.children {
            let made_for = child.annotations().get(AGENT_MACHINE_UID_ANNOTATION);
            if let (Some(uid), Some(made_for)) = (child.uid(), made_for) {
                self.made_for.insert(uid, made_for.clone());
            }
        }
        // A VM without our mark belongs to another owner.
        let ours = seen
            .vms
            .iter()
            .filter_map(|vm| Some((vm.name.as_str(), owner(vm)?)));
        self.doubles.extend(doubles(ours, &self.made_for));
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
            || "a boot order is different".to_owned(),
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
        self.keep(
            "the VMs that keep serving were not touched",
            untouched,
            || "one was replaced or power cycled".to_owned(),
        );
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
            // Chaos makes message handlers fail on purpose, but a pass must never panic.
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

/// The VMs that are more than one for an AgentMachine, under any name. Each VM comes with the uid of the VsphereAgent
/// in its mark. If that VsphereAgent was never seen, its uid is used instead of the AgentMachine's.
fn doubles<'a>(
    vms: impl Iterator<Item = (&'a str, String)>,
    made_for: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut whose: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, owner) in vms {
        let agent_machine = made_for.get(&owner).cloned().unwrap_or(owner);
        whose.entry(agent_machine).or_default().push(name);
    }
    let many = whose.into_iter().filter(|(_, names)| names.len() > 1);
    many.map(|(of, names)| format!("{} for {of}", names.join(" and ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_vms_for_one_agent_machine_are_found_by_any_name() {
        let found = |vms: &[(&'static str, &str)], made_for: &[(&str, &str)]| {
            let made_for = made_for.iter().map(|(c, am)| ((*c).into(), (*am).into()));
            let vms = vms.iter().map(|(name, owner)| (*name, (*owner).to_owned()));
            doubles(vms, &made_for.collect())
        };
        let each = [("va-1", "am-1"), ("va-2", "am-2")];
        let both = [("va-1", "am-1"), ("va-2", "am-1")];
        let vms = [("a", "va-1"), ("b", "va-2")];
        assert!(found(&vms, &each).is_empty());
        assert_eq!(found(&vms, &both), ["a and b for am-1"]);
        // Two VMs of one VsphereAgent, which may have been seen or not.
        let twice = [("a", "va-1"), ("a-again", "va-1")];
        assert_eq!(found(&twice, &each), ["a and a-again for am-1"]);
        assert_eq!(found(&twice, &[]), ["a and a-again for va-1"]);
    }
}
