//! Facts about the upstream controllers that need an AgentMachine and an Agent together. Facts about one object are methods
//! of the types in `agent_forge_crds::external`.

use std::{borrow::Borrow, sync::Arc, time::Duration};

use agent_forge_crds::external::{agent::Agent, agent_machine::AgentMachine};
use jiff::Timestamp;
use kube::ResourceExt;

use super::names::ObjectKey;

/// What an AgentMachine's conditions show about waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingSign {
    /// `AgentReserved=False/NoSuitableAgents`, or the older `Ready=False/NoSuitableAgents`.
    NoSuitableAgents,
    /// No condition at all: the object is new, or the versions of provider and CRD do not match.
    NoConditions,
    /// Anything else.
    Other,
}

/// Reads the waiting sign.
#[must_use]
pub fn waiting_sign(am: &AgentMachine) -> WaitingSign {
    if am.conditions().is_empty() {
        WaitingSign::NoConditions
    } else if am.is_waiting() || am.is_waiting_legacy() {
        WaitingSign::NoSuitableAgents
    } else {
        WaitingSign::Other
    }
}

/// Age by the creation timestamp; zero when unknown or in the future.
#[must_use]
pub fn age(object: &impl ResourceExt, now: Timestamp) -> Duration {
    object
        .creation_timestamp()
        .and_then(|t| Duration::try_from(now.duration_since(t.0)).ok())
        .unwrap_or_default()
}

/// Whether the Agent's claim label names this AgentMachine. A claim without the namespace annotation counts for any
/// AgentMachine of that name.
#[must_use]
pub fn claims(agent: &Agent, am: &AgentMachine) -> bool {
    let name = am.metadata.name.as_deref();
    name.is_some_and(|name| agent.claimed_by() == Some(name))
        && agent
            .claimed_by_namespace()
            .is_none_or(|ns| am.metadata.namespace.as_deref() == Some(ns))
}

/// Whether an AgentMachine has this Agent in its `status.agentRef`, and neither it nor its Machine is being deleted. The
/// Agent then serves it, even without the claim label: the provider restores the label.
#[must_use]
pub fn is_reserved(
    agent: &Agent,
    agent_machines: &[Arc<AgentMachine>],
    machines: &[impl Borrow<MachineFacts>],
) -> bool {
    agent_machines.iter().any(|am| {
        let names_it = am.agent_ref().is_some_and(|r| {
            r.name == agent.name_any() && Some(&r.namespace) == agent.namespace().as_ref()
        });
        let owner = am.owner_machine();
        let machine_lives = || {
            let mut owned = machines
                .iter()
                .map(Borrow::borrow)
                .filter(|m: &&MachineFacts| owner.is_some_and(|o| o.uid == m.uid));
            owned.any(|m| !m.deleting)
        };
        names_it && !am.is_deleting() && machine_lives()
    })
}

/// Whether the provider could claim the Agent now.
#[must_use]
pub fn claimable(agent: &Agent) -> bool {
    agent.is_valid_for_claim() && !agent.is_claimed_or_bound() && !agent.is_deleting()
}

/// Whether the provider's deletion hook waits in this state for a live guest. If the VM is dead, the wait never ends.
#[must_use]
pub fn waits_for_guest(state: &str) -> bool {
    matches!(
        state,
        "unbinding" | "reclaiming" | "reclaiming-rebooting" | "binding" | "cancelled"
    )
}

/// What the operator reads of a CAPI Machine: only its metadata. Spec and status differ by API version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFacts {
    /// Namespace and name.
    pub key: ObjectKey,
    /// uid.
    pub uid: String,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// It has the pause annotation of Cluster API.
    pub paused: bool,
    /// apiVersion it was read with, e.g. `cluster.x-k8s.io/v1beta2`.
    pub api_version: String,
}

/// Kinds above a pool that can be paused. A management cluster may not serve all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PausableKind {
    /// `Cluster` of Cluster API. It covers the pools that work in its namespace.
    Cluster,
    /// `NodePool` of HyperShift. It covers the pools that name it.
    NodePool,
    /// `HostedCluster` of HyperShift. It covers the pools that name it.
    HostedCluster,
}

impl PausableKind {
    /// The kind in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "Cluster",
            Self::NodePool => "NodePool",
            Self::HostedCluster => "HostedCluster",
        }
    }
}

/// What the operator reads of such an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pausable {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `spec.clusterName` of a NodePool.
    pub cluster: Option<String>,
    /// It has the pause annotation of Cluster API.
    pub annotated: bool,
    /// `spec.paused` of a Cluster.
    pub paused: bool,
    /// `spec.pausedUntil` of a NodePool or a HostedCluster.
    pub paused_until: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, delete, foreign_agent, reserve};

    #[test]
    fn an_agent_is_reserved_by_who_lives_and_names_it() {
        type Change = fn(&mut World);
        let table: [(&str, Change, bool); 7] = [
            ("it is", |_| {}, true),
            ("another", |w| w.agents = vec![foreign_agent("y")], false),
            (
                "a namesake",
                |w| w.agents[0].metadata.namespace = Some("elsewhere".to_owned()),
                false,
            ),
            ("who goes", |w| delete(&mut w.agent_machines[0]), false),
            (
                "whose Machine goes",
                |w| w.machines[0].deleting = true,
                false,
            ),
            (
                "whose Machine is another",
                |w| w.machines[0].uid = "other".to_owned(),
                false,
            ),
            ("whose Machine is gone", |w| w.machines.clear(), false),
        ];
        for (what, change, reserved) in table {
            let mut world = World::waiting(&["a"]);
            world.agents = vec![foreign_agent("x")];
            reserve(&mut world.agent_machines[0], &world.agents[0]);
            change(&mut world);
            let s = world.observed();
            let is = is_reserved(&s.agents[0], &s.agent_machines, &s.machines);
            assert_eq!(is, reserved, "{what}");
        }
    }

    #[test]
    fn only_states_that_a_live_guest_ends_wait_for_it() {
        for (state, waits) in [
            ("unbinding", true),
            ("reclaiming", true),
            ("reclaiming-rebooting", true),
            ("binding", true),
            ("cancelled", true),
            ("known-unbound", false),
            ("added-to-existing-cluster", false),
            ("", false),
        ] {
            assert_eq!(waits_for_guest(state), waits, "{state}");
        }
    }
}
