//! Writes a claim to an Agent, and removes it.

use anyhow::Result;
use kube::core::DynamicObject;
use serde_json::{Map, Value, json};

use super::{
    super::{mirror::Object, object::Facts as _, options::HostedCluster},
    AGENT_MACHINE_REF, AGENT_MACHINE_REF_NAMESPACE, Play,
    bootstrap::Bootstrap,
};

/// The Agent after `agent_machine` has claimed it.
#[must_use]
pub fn claimed(
    agent: &DynamicObject,
    agent_machine: &DynamicObject,
    cluster: &HostedCluster,
    bootstrap: &Bootstrap,
) -> DynamicObject {
    let mut agent = bootstrap.written_to(agent);
    let labels = agent.metadata.labels.get_or_insert_default();
    labels.insert(
        AGENT_MACHINE_REF.to_owned(),
        agent_machine.name().to_owned(),
    );
    let annotations = agent.metadata.annotations.get_or_insert_default();
    annotations.insert(
        AGENT_MACHINE_REF_NAMESPACE.to_owned(),
        cluster.control_plane_namespace.clone(),
    );
    agent.data["spec"]["clusterDeploymentName"] =
        json!({"name": cluster.name, "namespace": cluster.control_plane_namespace});
    agent
}

/// Whether the Agent has any part of a claim.
#[must_use]
pub fn is_claimed(agent: &DynamicObject) -> bool {
    agent.label(AGENT_MACHINE_REF).is_some() || agent.at("/spec/clusterDeploymentName").is_some()
}

/// The Agent without any claim. Approval, hostname, role and all other labels stay.
#[must_use]
pub fn unbound(agent: &DynamicObject) -> DynamicObject {
    let mut agent = Bootstrap::default().written_to(agent);
    if let Some(labels) = &mut agent.metadata.labels {
        labels.remove(AGENT_MACHINE_REF);
    }
    if let Some(annotations) = &mut agent.metadata.annotations {
        annotations.remove(AGENT_MACHINE_REF_NAMESPACE);
    }
    if let Some(spec) = agent.data.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("clusterDeploymentName");
    }
    agent
}

/// The addresses of a Machine on this Agent: its IPv4 addresses and the name that its Node will have.
#[must_use]
pub fn addresses(agent: &DynamicObject) -> Value {
    let mut addresses = Vec::new();
    let interfaces = agent
        .at("/status/inventory/interfaces")
        .and_then(Value::as_array);
    for interface in interfaces
        .into_iter()
        .flatten()
        .filter(|interface| interface["hasCarrier"] == true)
    {
        for address in interface["ipV4Addresses"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            let bare = address.rsplit_once('/').map_or(address, |(bare, _)| bare);
            addresses.push(json!({"type": "ExternalIP", "address": bare}));
        }
    }
    let hostname = match agent.text("/spec/hostname") {
        "" => agent.text("/status/inventory/hostname"),
        hostname => hostname,
    };
    if !hostname.is_empty() {
        addresses.push(json!({"type": "InternalDNS", "address": hostname}));
    }
    Value::Array(addresses)
}

impl Play {
    /// Claims the first candidate that can be written; `None` if there is none.
    pub(super) async fn find_agent(
        &self,
        agent_machine: &Object,
        bootstrap: &Bootstrap,
    ) -> Result<Option<Object>> {
        let restored =
            |agent: &&Object| agent.label(AGENT_MACHINE_REF) == Some(agent_machine.name());
        let agents = self.agents.list();
        if let Some(agent) = agents.iter().find(restored) {
            return Ok(Some(agent.clone()));
        }
        let wanted = agent_machine.at("/spec/agentLabelSelector");
        for agent in super::select::candidates(agents, wanted)? {
            match self
                .agents
                .replace(&claimed(&agent, agent_machine, &self.cluster, bootstrap))
                .await
            {
                Ok(agent) => return Ok(Some(agent)),
                Err(error) => {
                    tracing::debug!(agent = agent.name(), %error, "not claimed, trying the next Agent")
                }
            }
        }
        Ok(None)
    }

    /// Records the Agent on the AgentMachine: provider ID first, then reference and addresses.
    pub(super) async fn record_agent(
        &self,
        agent_machine: Object,
        agent: &Object,
    ) -> Result<Object> {
        let provider_id = format!("agent://{}", agent.name());
        let agent_machine = self
            .agent_machines
            .patch(&agent_machine, json!({"spec": {"providerID": provider_id}}))
            .await?;
        if self.is_legacy() {
            // The legacy provider writes its whole status at once, conditions included.
            return Ok(agent_machine);
        }
        tokio::time::sleep(self.claim_step).await;
        self.agent_machines
            .patch_status(&agent_machine, Value::Object(reference(agent)))
            .await
    }
}

/// The part of an AgentMachine's status that names its Agent.
#[must_use]
pub fn reference(agent: &DynamicObject) -> Map<String, Value> {
    let namespace = agent.metadata.namespace.as_deref();
    Map::from_iter([
        (
            "agentRef".to_owned(),
            json!({"name": agent.name(), "namespace": namespace}),
        ),
        ("addresses".to_owned(), addresses(agent)),
    ])
}
