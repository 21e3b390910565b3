//! Live reads of a world, and waits that several scenarios share.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool, external::agent::Agent, names::AGENT_MACHINE_LABEL,
    pool::VsphereAgentPoolStatus,
};
use agent_forge_lab::{
    parts::vcenter_inventory::Vm,
    played::{HostedClusterPlay, guests::identity, kinds, object::Facts as _},
};
use anyhow::{Context as _, Result, bail, ensure};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    core::DynamicObject,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::world::{LIMIT, POOL, World};

impl World {
    /// Ends the operator as a rollout does. A later `start_operator` starts it again.
    pub async fn stop_operator(&mut self) -> Result<()> {
        let operator = self.operator.take().context("no operator runs")?;
        let status = operator.stop().await?;
        ensure!(status.success(), "the operator ended with {status}");
        Ok(())
    }

    /// Kills the operator as a crash of its node does, and starts another.
    pub async fn crash(&mut self) -> Result<()> {
        let operator = self.operator.take().context("no operator runs")?;
        operator.kill().await?;
        self.start_operator().await
    }

    /// Machines of the control plane, in the version that its Cluster API writes.
    pub fn machines(&self) -> Api<DynamicObject> {
        let resource = kinds::machine(self.cluster.machine_api);
        let namespace = &self.cluster.control_plane_namespace;
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    /// AgentMachines of the control plane.
    pub fn agent_machines(&self) -> Api<DynamicObject> {
        let namespace = &self.cluster.control_plane_namespace;
        Api::namespaced_with(self.client.clone(), namespace, &kinds::agent_machine())
    }

    /// The pool.
    pub async fn pool(&self) -> Result<VsphereAgentPool> {
        Ok(self.pools().get(POOL).await?)
    }

    /// The pool's status; empty before the first one is written.
    pub async fn pool_status(&self) -> Result<VsphereAgentPoolStatus> {
        Ok(self.pool().await?.status.unwrap_or_default())
    }

    /// How many hosts wait in the pool's buffer.
    pub async fn ready_in_buffer(&self) -> Result<i32> {
        Ok(self.pool_status().await?.buffer.map_or(0, |b| b.ready))
    }

    /// Waits until that many hosts wait in the pool's buffer, and there are as many VMs as `vms`.
    pub async fn hosts_wait(&self, hosts: i32, vms: usize) -> Result<()> {
        let what = format!("{hosts} hosts in the buffer and {vms} VMs");
        let wait =
            async || Ok(self.ready_in_buffer().await? == hosts && self.vms().await?.len() == vms);
        self.until(&what, wait).await
    }

    /// All VsphereAgents.
    pub async fn all_children(&self) -> Result<Vec<VsphereAgent>> {
        Ok(self.children().list(&Default::default()).await?.items)
    }

    /// The only VsphereAgent.
    pub async fn only_child(&self) -> Result<VsphereAgent> {
        let mut all = self.all_children().await?;
        ensure!(all.len() == 1, "{} VsphereAgents", all.len());
        all.pop().context("a VsphereAgent")
    }

    /// The only VM.
    pub async fn only_vm(&self) -> Result<Vm> {
        let mut all = self.all_vms().await?;
        ensure!(all.len() == 1, "{all:?}");
        all.pop().context("a VM")
    }

    /// All Agents.
    pub async fn all_agents(&self) -> Result<Vec<Agent>> {
        Ok(self.agents().list(&Default::default()).await?.items)
    }

    /// All VMs, with every detail.
    pub async fn all_vms(&self) -> Result<Vec<Vm>> {
        Ok(self.vcenter.inventory().await?.vms)
    }

    /// The Agent that runs on this VM.
    pub async fn agent_on(&self, vm: &Vm) -> Result<Agent> {
        let name = identity::swapped(&vm.uuid);
        let found = self.agents().get_opt(&name).await?;
        found.with_context(|| format!("no Agent {name} for VM {}", vm.name))
    }

    /// The NodePool of the pool, with this number of replicas.
    pub async fn wanted(&self, machines: usize) -> Result<HostedClusterPlay> {
        let nodes = self.node_pool().await?;
        nodes.scale(machines);
        Ok(nodes)
    }

    /// The same, when all Machines run.
    pub async fn up(&self, machines: usize) -> Result<HostedClusterPlay> {
        let nodes = self.wanted(machines).await?;
        self.running(&nodes, machines).await?;
        Ok(nodes)
    }

    /// Waits until exactly `count` Machines exist and all of them run. The error says what prevented it.
    pub async fn running(&self, nodes: &HostedClusterPlay, count: usize) -> Result<()> {
        if let Err(error) = nodes.wait_running(count, LIMIT).await {
            bail!("{error:#}\n{}", self.explain().await);
        }
        Ok(())
    }

    /// Waits until only `count` Machines are left, in any state.
    pub async fn machines_left(&self, nodes: &HostedClusterPlay, count: usize) -> Result<()> {
        let done = || nodes.machines().len() == count && nodes.agent_machines().len() == count;
        self.until_nodes(nodes, "fewer Machines", done).await
    }

    /// Waits until this holds of the played control plane. The error says what prevented it.
    pub async fn until_nodes(
        &self,
        nodes: &HostedClusterPlay,
        what: &str,
        done: impl Fn() -> bool,
    ) -> Result<()> {
        if let Err(error) = nodes.wait(what, LIMIT, done).await {
            bail!("{error:#}\n{}", self.explain().await);
        }
        Ok(())
    }

    /// Waits until the pool is gone.
    pub async fn pool_ends(&self) -> Result<()> {
        let gone = async || Ok(self.pools().get_opt(POOL).await?.is_none());
        self.until("the end of the pool", gone).await
    }

    /// Waits until there are exactly `count` VMs, VsphereAgents and Agents.
    pub async fn settled(&self, count: usize) -> Result<()> {
        self.until(
            &format!("{count} VMs, VsphereAgents and Agents"),
            async || {
                Ok(self.vms().await?.len() == count
                    && self.all_children().await?.len() == count
                    && self.all_agents().await?.len() == count)
            },
        )
        .await
    }

    /// Checks that every VM serves the AgentMachine whose pin and hostname its Agent has, and that no AgentMachine has
    /// two VMs.
    pub async fn each_serves_its_own(&self) -> Result<()> {
        let mut served = BTreeSet::new();
        for vm in self.all_vms().await? {
            let agent = self.agent_on(&vm).await?;
            let claimed = agent
                .claimed_by()
                .with_context(|| format!("Agent of {} is not claimed", vm.name))?;
            ensure!(
                agent.labels().get(AGENT_MACHINE_LABEL).map(String::as_str) == Some(claimed),
                "Agent of {} is pinned to {:?} and serves {claimed}",
                vm.name,
                agent.labels().get(AGENT_MACHINE_LABEL)
            );
            ensure!(
                agent.spec.hostname.as_deref() == Some(claimed),
                "Agent of {} is called {:?} and serves {claimed}",
                vm.name,
                agent.spec.hostname
            );
            ensure!(
                served.insert(claimed.to_owned()),
                "{claimed} is served twice"
            );
        }
        Ok(())
    }

    /// Waits until a VsphereAgent waits for this reason, with all these words in the message.
    pub async fn until_waits(&self, reason: &str, words: &[&str]) -> Result<()> {
        self.until(&format!("{reason} of {words:?}"), async || {
            let all = self.all_children().await?;
            let mut rows = all
                .into_iter()
                .flat_map(|c| c.status.unwrap_or_default().waiting_on);
            Ok(rows.any(|w| {
                w.reason.as_str() == reason && words.iter().all(|word| w.message.contains(word))
            }))
        })
        .await
    }

    /// Waits until the pool waits for this reason, with this word in the message.
    pub async fn until_pool_waits(&self, reason: &str, word: &str) -> Result<()> {
        self.until(&format!("{reason} by {word}"), async || {
            let mut rows = self.pool_status().await?.waiting_on.into_iter();
            Ok(rows.any(|w| w.reason.as_str() == reason && w.message.contains(word)))
        })
        .await
    }

    /// The rows of the pool's `status.waitingOn`: subject and reason.
    pub async fn waiting_on(&self) -> Result<BTreeMap<String, String>> {
        let rows = self.pool_status().await?.waiting_on;
        Ok(rows
            .into_iter()
            .map(|w| (w.subject, w.reason.into()))
            .collect())
    }
}

/// Merges this into an object.
pub async fn merge<K>(api: &Api<K>, name: &str, patch: Value) -> Result<K>
where
    K: Clone + Debug + DeserializeOwned,
{
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let merged = api.patch(name, &params, &patch).await;
    merged.with_context(|| format!("patch {name}"))
}

/// The same with its status.
pub async fn merge_status<K>(api: &Api<K>, name: &str, status: Value) -> Result<K>
where
    K: Clone + Debug + DeserializeOwned,
{
    let params = PatchParams::default();
    let patch = Patch::Merge(json!({ "status": status }));
    let merged = api.patch_status(name, &params, &patch).await;
    merged.with_context(|| format!("patch the status of {name}"))
}

/// The reason of an AgentMachine's condition `AgentReserved`, as text.
pub fn reserved_reason(agent_machine: &DynamicObject) -> String {
    agent_machine
        .condition("AgentReserved")
        .map(|c| c.reason.to_owned())
        .unwrap_or_default()
}

/// The pin in an AgentMachine's selector.
pub fn pinned_to(agent_machine: &DynamicObject) -> Option<&str> {
    let labels = agent_machine.at("/spec/agentLabelSelector/matchLabels")?;
    labels.get(AGENT_MACHINE_LABEL)?.as_str()
}
