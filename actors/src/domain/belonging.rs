//! Which AgentMachines and InfraEnvs are a pool's, and which Agents an AgentMachine could get. Pure.

use agent_forge_crds::{
    external::{agent::Agent, agent_machine::AgentMachine},
    names::{AGENT_MACHINE_LABEL, NODE_POOL_LABEL, NODE_POOL_ROLE_LABEL},
    pool::VsphereAgentPool,
};
use kube::ResourceExt as _;

use super::{
    names::ObjectKey,
    selector::{self, Labels},
    upstream,
};

/// Namespaces in which the InfraEnv may be, in order of preference. If the spec names one, only that. Else the pool's own,
/// then the control plane's.
#[must_use]
pub fn infra_envs(pool: &VsphereAgentPool) -> Vec<ObjectKey> {
    let name = &pool.spec.infra_env_ref.name;
    match pool
        .spec
        .infra_env_ref
        .namespace
        .as_deref()
        .filter(|n| !n.is_empty())
    {
        Some(namespace) => vec![ObjectKey::new(namespace, name)],
        None => vec![
            ObjectKey::new(pool.namespace().unwrap_or_default(), name),
            ObjectKey::new(&pool.spec.control_plane_namespace, name),
        ],
    }
}

/// Labels that the pool sets on each of its Agents.
#[must_use]
pub fn base_labels(pool: &VsphereAgentPool) -> Labels {
    let mut labels = pool.spec.agent.labels.clone();
    labels
        .entry(NODE_POOL_ROLE_LABEL.to_owned())
        .or_insert_with(|| pool.spec.agent.role().to_owned());
    labels
}

/// Start of the keys that OSAC uses.
const OSAC: &str = "osac.openshift.io/";
/// Start of our own keys.
const OWN: &str = "agent-forge.containeroo.ch/";

/// The first key of `spec.agent.labels` that a pool may not set, because a service reads more from it than the Agent's pool.
/// Such keys are the claim, the labels of the assisted service and the provider, those that OSAC uses, and our own. A pool
/// may set our label `nodepool`: it separates pools with one selection, and has no other use.
#[must_use]
pub fn refused_label(pool: &VsphereAgentPool) -> Option<&str> {
    let is_refused = |key: &&String| {
        let own = key.starts_with(OWN) && *key != NODE_POOL_LABEL;
        own || key.starts_with(OSAC) || selector::is_service_label(key)
    };
    let mut keys = pool.spec.agent.labels.keys();
    keys.find(is_refused).map(String::as_str)
}

/// The message for [`refused_label`].
#[must_use]
pub fn refused_label_sentence(key: &str) -> String {
    format!(
        "spec.agent.labels: {key:?} is a label that a service goes by, not a pool's to give; take it out (labels of your own \
         keys, and {NODE_POOL_LABEL}, tell the pool's Agents apart)"
    )
}

/// Whether this pool is meant to serve this AgentMachine. Whether it may is another question (`world::boundary`).
///
/// HyperShift's NodePool annotation (`namespace/name`) decides. The control plane namespace belongs to one HostedCluster, so
/// the name is enough. Without the annotation the selector decides: the pool must offer each of its labels on its Agents.
#[must_use]
pub fn belongs(pool: &VsphereAgentPool, agent_machine: &AgentMachine) -> bool {
    if agent_machine.namespace().as_deref() != Some(pool.spec.control_plane_namespace.as_str()) {
        return false;
    }
    if let Some((_, name)) = agent_machine.node_pool() {
        return name == pool.spec.node_pool_ref.name;
    }
    let exact = agent_machine
        .spec
        .agent_label_selector
        .as_ref()
        .and_then(|s| s.match_labels.as_ref());
    let mut asked = exact
        .into_iter()
        .flatten()
        .filter(|(k, _)| *k != AGENT_MACHINE_LABEL && !selector::is_service_label(k))
        .peekable();
    let offered = base_labels(pool);
    asked.peek().is_some() && asked.all(|(k, v)| offered.get(k) == Some(v))
}

/// The AgentMachine's pin, if it has one.
#[must_use]
pub fn pinned(agent_machine: &AgentMachine) -> Option<&String> {
    agent_machine
        .spec
        .agent_label_selector
        .as_ref()?
        .match_labels
        .as_ref()?
        .get(AGENT_MACHINE_LABEL)
}

/// Whether the provider could bind this Agent to that AgentMachine, and our pin does not promise it to another one.
#[must_use]
pub fn is_free_for(agent: &Agent, am: &AgentMachine) -> bool {
    let promised = agent
        .labels()
        .get(AGENT_MACHINE_LABEL)
        .is_some_and(|pin| pinned(am) != Some(pin));
    !promised
        && upstream::claimable(agent)
        && selector::matches(am.spec.agent_label_selector.as_ref(), agent.labels())
}
