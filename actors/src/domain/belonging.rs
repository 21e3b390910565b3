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
        None if !pool.has_node_pool() => {
            vec![ObjectKey::new(pool.namespace().unwrap_or_default(), name)]
        }
        None => vec![
            ObjectKey::new(pool.namespace().unwrap_or_default(), name),
            ObjectKey::new(pool.control_plane(), name),
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

/// As [`base_labels`], with those of all classes.
#[must_use]
pub fn all_labels(pool: &VsphereAgentPool) -> Labels {
    let mut labels = base_labels(pool);
    for class in &pool.spec.classes {
        labels.extend(class.labels.clone());
    }
    labels
}

/// Start of the keys that OSAC uses.
const OSAC: &str = "osac.openshift.io/";
/// Start of our own keys.
const OWN: &str = "agent-forge.containeroo.ch/";

/// Label of a Node that names its platform. The vSphere CSI operator reads it.
const PLATFORM_TYPE: (&str, &str) = ("node.openshift.io/platform-type", "vsphere");
/// Domains of labels that only administrators of a cluster give to Nodes.
const OF_ADMINISTRATORS: [&str; 2] = ["node-role.kubernetes.io", "node-restriction.kubernetes.io"];

/// Labels that the pool gives the Nodes of its Agents. One that no Node may get is left out ([`refused_label`]).
#[must_use]
pub fn node_labels(pool: &VsphereAgentPool) -> Labels {
    let mut labels = pool.spec.agent.node_labels.clone();
    if pool.spec.agent.platform_labels() {
        let (key, value) = PLATFORM_TYPE;
        labels
            .entry(key.to_owned())
            .or_insert_with(|| value.to_owned());
    }
    labels.retain(|key, value| refused_node_label(key, value).is_none());
    labels
}

/// Why no Node may get that label from a pool.
fn refused_node_label(key: &str, value: &str) -> Option<String> {
    let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
    let is_below = |above: &&&str| {
        let below = domain.strip_suffix(**above);
        below.is_some_and(|sub| sub.is_empty() || sub.ends_with('.'))
    };
    if let Some(above) = OF_ADMINISTRATORS.iter().find(is_below) {
        return Some(format!(
            "keys below {above} are for administrators of the hosted cluster; take it out"
        ));
    }
    let valid = selector::is_label_key(key) && selector::is_label_value(value);
    (!valid).then(|| {
        format!(
            "with the value {value:?} it cannot be a label, and the assisted service would refuse the whole Agent; correct it"
        )
    })
}

/// Why the pool gets no host because of a label that it may not set, in one sentence for people. `None`: it may set all.
#[must_use]
pub fn refused_label(pool: &VsphereAgentPool) -> Option<String> {
    let of_node = || {
        let mut all = pool.spec.agent.node_labels.iter();
        all.find_map(|(key, value)| {
            let why = refused_node_label(key, value)?;
            Some(format!("spec.agent.nodeLabels: {key:?}: {why}"))
        })
    };
    let of_agent = refused_agent_label(pool).map(|key| {
        format!(
            "spec.agent.labels: {key:?} is a label that a service goes by, not a pool's to give; take it out (labels of your \
             own keys, and {NODE_POOL_LABEL}, tell the pool's Agents apart)"
        )
    });
    of_agent.or_else(of_node)
}

/// The first key of `spec.agent.labels` that a pool may not set, because a service reads more from it than the Agent's pool.
/// Such keys are the claim, the labels of the assisted service and the provider, those that OSAC uses, and our own. A pool
/// may set our label `nodepool`: it separates pools with one selection, and has no other use.
fn refused_agent_label(pool: &VsphereAgentPool) -> Option<&str> {
    let is_refused = |key: &&String| {
        let own = key.starts_with(OWN) && *key != NODE_POOL_LABEL;
        own || key.starts_with(OSAC) || selector::is_service_label(key)
    };
    let of_classes = pool
        .spec
        .classes
        .iter()
        .flat_map(|class| class.labels.keys());
    let mut keys = pool.spec.agent.labels.keys().chain(of_classes);
    keys.find(is_refused).map(String::as_str)
}

/// Whether this pool is meant to serve this AgentMachine. Whether it may is another question (`world::boundary`). A pool
/// without a NodePool serves none.
///
/// HyperShift's NodePool annotation (`namespace/name`) decides. The control plane namespace belongs to one HostedCluster, so
/// the name is enough. Without the annotation the selector decides: the pool must offer each of its labels on its Agents.
#[must_use]
pub fn belongs(pool: &VsphereAgentPool, agent_machine: &AgentMachine) -> bool {
    let there = agent_machine.namespace();
    if !pool.has_node_pool() || there.as_deref() != Some(pool.control_plane()) {
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
    let common = base_labels(pool);
    let classes = || pool.spec.classes.iter().map(|class| &class.labels);
    let offers = |k: &String, v: &String| {
        let mut all = std::iter::once(&common).chain(classes());
        all.any(|offered| offered.get(k) == Some(v))
    };
    asked.peek().is_some() && asked.all(|(k, v)| offers(k, v))
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
