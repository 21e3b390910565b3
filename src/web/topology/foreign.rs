//! Hosts of the pools' InfraEnvs that are not VMs of agent-forge. The page shows them in grey.

use std::collections::BTreeSet;

use agent_forge_actors::{
    domain::{host_class::HostClass, names::ObjectKey, upstream},
    ports::cluster::View as _,
    world::boundary::Grants,
};
use agent_forge_crds::external::agent::Agent;
use serde::Serialize;

use super::Reach;
use crate::{cluster::view::Caches, machines::found::hostname};

/// The most hosts that are listed.
pub const MOST: usize = 500;

/// Hosts that are not VMs of agent-forge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignHosts {
    /// The first ones, by name. At most [`MOST`].
    pub hosts: Vec<ForeignHost>,
    /// How many more there are.
    pub more: usize,
}

/// One such host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignHost {
    /// Namespace and name of its Agent.
    pub agent: String,
    /// Its hostname.
    pub hostname: Option<String>,
    /// Namespace and name of its InfraEnv.
    pub infra_env: String,
    /// State of the Agent, as the assisted service gives it.
    pub state: String,
    /// What kind of host it is, in words.
    pub class: String,
    /// Whether the agent provider could bind it now.
    pub free: bool,
    /// The AgentMachine that has it.
    pub claimed_by: Option<String>,
}

/// The hosts, without the Agents in `own`. A viewer sees those of the namespaces in reach. A pool leads only to InfraEnvs
/// whose namespace admits it.
#[must_use]
pub fn hosts(
    caches: &Caches,
    grants: &Grants,
    reach: &Reach,
    own: &BTreeSet<ObjectKey>,
) -> ForeignHosts {
    let pools = caches.pools();
    let pools = pools.iter().filter(|pool| {
        let namespace = pool.metadata.namespace.as_deref();
        reach.covers(namespace.unwrap_or_default())
    });
    let infra_envs = pools.flat_map(|pool| grants.homes(pool));
    let infra_envs: BTreeSet<ObjectKey> = infra_envs
        .filter(|key| reach.covers(&key.namespace))
        .collect();
    let namespaces: BTreeSet<&str> = infra_envs.iter().map(|k| k.namespace.as_str()).collect();
    let mut shown = ForeignHosts::default();
    for agent in namespaces.iter().flat_map(|n| caches.agents(n)) {
        let key = ObjectKey::of(agent.as_ref());
        let infra_env = agent.infra_env().unwrap_or_default();
        let infra_env = ObjectKey::new(&key.namespace, infra_env);
        if own.contains(&key) || !infra_envs.contains(&infra_env) {
            continue;
        }
        if shown.hosts.len() < MOST {
            shown.hosts.push(host(&key, &infra_env, &agent));
        } else {
            shown.more += 1;
        }
    }
    shown
}

fn host(key: &ObjectKey, infra_env: &ObjectKey, agent: &Agent) -> ForeignHost {
    ForeignHost {
        agent: key.to_string(),
        hostname: hostname(agent).map(str::to_owned),
        infra_env: infra_env.to_string(),
        state: agent.state().to_owned(),
        class: HostClass::of(agent).to_string(),
        free: upstream::claimable(agent),
        claimed_by: agent.claimed_by().map(str::to_owned),
    }
}
