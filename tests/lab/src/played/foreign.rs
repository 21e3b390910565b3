//! Objects of other people in the same namespaces, Agents and vCenter. The operator must not change them.

use anyhow::{Context as _, Result};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::{
    assisted::{Assisted, host::HostFacts},
    mirror::Object,
    object::Facts as _,
    provider::AGENT_MACHINE_REF,
};
use crate::parts::{VCenterAdmin, vcenter_trouble::ForeignVm};

/// Creates a bare-metal host of this InfraEnv with these labels. Returns its Agent once its state is `known-unbound`,
/// or once it is claimed.
///
/// # Errors
/// The InfraEnv does not exist, or the API server refused.
pub async fn bare_metal(
    service: &Assisted,
    infra_env: &str,
    number: u8,
    labels: Value,
    approved: bool,
) -> Result<Object> {
    let facts = HostFacts::bare_metal(number);
    let id = facts.id.clone();
    let mut changes = service.agents().changes();
    service.register(infra_env, facts).await?;
    let mut prepared = false;
    while let Some(change) = changes.recv().await {
        let Some(agent) = change.new.filter(|agent| agent.name() == id) else {
            continue;
        };
        if !prepared {
            let patch = json!({
                "metadata": {"labels": labels},
                "spec": {"approved": approved, "role": "worker", "hostname": format!("metal-{number}")},
            });
            // The service writes at the same time. The next change brings the right version.
            prepared = service.agents().patch(&agent, patch).await.is_ok();
            continue;
        }
        let met = agent
            .condition("RequirementsMet")
            .map(|condition| condition.reason);
        let wanted = match approved {
            true => "AgentIsReady",
            false => "AgentIsNotApproved",
        };
        // An Agent that fits a waiting AgentMachine is claimed before its state can settle.
        let claimed = agent.label(AGENT_MACHINE_REF).is_some();
        // The role comes from the patch. Without it the service has not processed the patch yet.
        let rests = agent.text("/status/debugInfo/state") == "known-unbound"
            && met == Some(wanted)
            && agent.text("/status/role") == "worker";
        if claimed || rests {
            return Ok(agent);
        }
    }
    anyhow::bail!("the watch of Agents ended")
}

/// A bare-metal host and a VM of another team, beside those of a pool.
#[derive(Clone, Debug)]
pub struct Strangers {
    /// Name of the host's Agent.
    pub agent: String,
    /// Managed object id of the VM.
    pub vm: String,
    service: Assisted,
    vcenter: VCenterAdmin,
}

impl Strangers {
    /// Creates a host of this InfraEnv with these labels, which is not approved, and a VM in `folder`.
    ///
    /// # Errors
    /// The InfraEnv does not exist, or the API server or vCenter refused.
    pub async fn settle(
        service: &Assisted,
        infra_env: &str,
        labels: Value,
        vcenter: &VCenterAdmin,
        folder: &str,
    ) -> Result<Self> {
        let agent = bare_metal(service, infra_env, 9, labels, false).await?;
        let vm = ForeignVm {
            name: "somebody-elses".to_owned(),
            folder: folder.to_owned(),
            power_on: true,
            ..ForeignVm::default()
        };
        Ok(Self {
            agent: agent.name().to_owned(),
            vm: vcenter.create_vm(&vm).await?,
            service: service.clone(),
            vcenter: vcenter.clone(),
        })
    }

    /// The full content of both, for an exact comparison.
    ///
    /// # Errors
    /// One of them is gone, or there is no answer.
    pub async fn prints(&self) -> Result<(Vec<u8>, String)> {
        let agent = self.service.agents().fetch(&self.agent).await?;
        let agent = fingerprint(&*agent.context("the foreign Agent is gone")?)?;
        let vm = self.vcenter.shown(&self.vm).await?;
        Ok((agent, vm.context("the foreign VM is gone")?.to_string()))
    }
}

/// The whole object as bytes, with `resourceVersion` and `managedFields`. So even a write without effect is found.
///
/// # Errors
/// Never for an object from the API server.
pub fn fingerprint(object: &DynamicObject) -> Result<Vec<u8>> {
    serde_json::to_vec(object).context("an object as JSON")
}
