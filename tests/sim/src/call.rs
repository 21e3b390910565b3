//! What a point of a plan may be: an effect, or a live read.
//!
//! A live read is a request of the operator that changes nothing. Its answer decides something. It is a GET of one object, a
//! list, or a look at a VM or a directory. Watches, long polls and the requests of placement are none: what they show is stale
//! by design, and the operator decides nothing final from it. The list that a watch begins with looks like any other list, so
//! it counts too.

use std::time::Duration;

use agent_forge_actors::ports::effect::{EffectKind, Nature};
use anyhow::Context as _;

use crate::{names::named, plan::Point};

named! {
    /// A kind of live read. The phrase says what is read, and what the key of its points is.
    Read, "read":
    ReadVsphereAgent "read_vsphere_agent" "a VsphereAgent, by namespace and name";
    ReadAgent "read_agent" "an Agent, by namespace and name";
    ReadAgentMachine "read_agent_machine" "an AgentMachine, by namespace and name";
    ReadSecret "read_secret" "a Secret or its metadata, by namespace and name";
    ListVsphereAgents "list_vsphere_agents" "the VsphereAgents of a namespace";
    ListAgents "list_agents" "the Agents of a namespace";
    ListAgentMachines "list_agent_machines" "the AgentMachines of a namespace, or of `all`";
    ListMachines "list_machines" "the Machines of a namespace";
    ReadVm "read_vm" "a VM, by the VsphereAgent in its mark, else by its reference";
    FindVm "find_vm" "the VMs with a BIOS uuid";
    ListVms "list_vms" "all VMs of the vCenter";
    SearchFiles "search_files" "the files of a directory on a datastore";
}

impl Read {
    /// Whether vCenter answers it. The API server answers the others.
    #[must_use]
    pub fn is_of_vcenter(self) -> bool {
        self >= Self::ReadVm
    }
}

/// An effect or a live read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// It changes something.
    Effect(EffectKind),
    /// It changes nothing.
    Read(Read),
}

impl Call {
    /// All of them, effects first.
    pub fn all() -> impl Iterator<Item = Self> {
        let effects = EffectKind::ALL.iter().map(|e| Self::Effect(*e));
        effects.chain(Read::ALL.iter().map(|r| Self::Read(*r)))
    }

    /// The name in plans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Effect(effect) => effect.name(),
            Self::Read(read) => read.name(),
        }
    }

    /// The effect, if it is one.
    #[must_use]
    pub const fn effect(self) -> Option<EffectKind> {
        match self {
            Self::Effect(effect) => Some(effect),
            Self::Read(_) => None,
        }
    }

    /// The call with that name.
    ///
    /// # Errors
    /// No call has it.
    pub fn named(text: &str) -> anyhow::Result<Self> {
        let mut all = Self::all();
        let found = all.find(|c| c.name() == text);
        found.with_context(|| format!("no effect or read is called {text}; `sim list` shows all"))
    }
}

/// Effects that live reads guard: what they do cannot be undone, or decides whose a host is.
const GUARDED: [EffectKind; 12] = [
    EffectKind::ReassignChild,
    EffectKind::FenceAgent,
    EffectKind::DeleteAgent,
    EffectKind::DeleteChild,
    EffectKind::RemoveChildFinalizer,
    EffectKind::RemovePoolFinalizer,
    EffectKind::ReleaseSecret,
    EffectKind::PowerOff,
    EffectKind::Reset,
    EffectKind::Destroy,
    EffectKind::DeleteFile,
    EffectKind::Renew,
];

/// How long before a guarded effect its reads are. A pass decides within less.
const BEFORE: Duration = Duration::from_secs(5);

/// Whether the world may change between the check of that effect and the effect.
#[must_use]
pub fn is_guarded(effect: EffectKind) -> bool {
    GUARDED.contains(&effect)
}

/// The reads that guard something: those before a guarded effect, in its last seconds and after the effect before it for
/// the same object. Reports and sessions do not count as an effect before it.
///
/// The reads of another object may be among them. That costs a plan and hides nothing.
#[must_use]
pub fn guards(
    effects: &[(Duration, Point)],
    reads: &[(Duration, Point)],
) -> Vec<(Duration, Point)> {
    let mut out = Vec::new();
    let of = |p: &Point| p.call.effect().map(EffectKind::nature);
    let acts = |p: &Point| matches!(of(p), Some(Nature::Cluster | Nature::Vcenter));
    let acting: Vec<_> = effects.iter().filter(|(_, p)| acts(p)).collect();
    for (nth, (at, point)) in acting.iter().enumerate() {
        let effect = point.call.effect();
        if !effect.is_some_and(is_guarded) {
            continue;
        }
        // A pool reads named objects. A list of all before its patch is that of a watch.
        let lists = effect != Some(EffectKind::ReassignChild);
        let mut before = acting[..nth].iter().rev();
        let before = before.find(|(_, p)| p.key == point.key).map(|(at, _)| *at);
        let from = at.saturating_sub(BEFORE).max(before.unwrap_or_default());
        let first = reads.partition_point(|(when, _)| *when < from);
        let them = reads[first..].iter().take_while(|(when, _)| when <= at);
        out.extend(them.filter(|(_, p)| lists || p.key != "all").cloned());
    }
    // Two effects may share their reads.
    out.sort();
    out.dedup();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, point: &str) -> (Duration, Point) {
        (Duration::from_secs(seconds), point.parse().expect("point"))
    }

    #[test]
    fn the_reads_before_an_effect_that_cannot_be_undone_are_guards() {
        let effects = [
            at(10, "power_off:demo/a#1"),
            at(12, "record_observation:demo/a#4"),
            at(13, "destroy:demo/a#1"),
            at(14, "power_on:demo/b#1"),
        ];
        let reads = [
            at(3, "read_agent:demo/x#1"),
            at(9, "read_vm:demo/a#1"),
            at(11, "read_vm:demo/a#2"),
            at(14, "read_vm:demo/b#1"),
        ];
        let found = guards(&effects, &reads);
        assert_eq!(found, [reads[1].clone(), reads[2].clone()]);
    }
}
