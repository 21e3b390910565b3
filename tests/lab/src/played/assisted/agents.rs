//! The Agent controller: copies an Agent's spec to its host, and the host's state to the Agent.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    super::{
        condition::{self, Shape},
        desk::Player,
        mirror::{Mirror, Object},
        nature,
        object::{Facts as _, merge_is_idle},
        options::{Delays, PlayedOptions, Unbind},
    },
    INFRA_ENV_LABEL, conditions,
    host::{Host, Hosts},
    inventory, lifecycle, restore,
    state::HostState,
};

const FINALIZER: &str = "agent.agent-install.openshift.io/ai-deprovision";
const CLUSTER_NAMESPACE_LABEL: &str = "agent-install.openshift.io/clusterdeployment-namespace";
const ANNOTATIONS: &str = "agent.agent-install.openshift.io";
const SKIP_CLEANUP: &str = "agent.agent-install.openshift.io/skip-spoke-cleanup";

/// What goes wrong in the hosted clusters. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Troubles {
    /// Their kubeconfig is unusable.
    pub no_kubeconfig: Arc<AtomicBool>,
    /// No pod that reclaims a host ever reports.
    pub reclaims_stall: Arc<AtomicBool>,
}

pub struct Controller {
    pub agents: Mirror,
    pub infra_envs: Mirror,
    pub hosts: Hosts,
    pub delays: Delays,
    pub unbind: Unbind,
    pub troubles: Troubles,
}

impl Player for Controller {
    async fn pass(&self, key: &str) -> Result<Option<Duration>> {
        let Some(agent) = self.agents.get(key) else {
            self.forget_if_gone(key).await?;
            return Ok(None);
        };
        if agent.is_deleting() {
            return self.deregister(&agent).await;
        }
        if !self.hosts.lock().contains_key(key) && !self.restore(&agent) {
            return Ok(None);
        }
        if !agent.has_finalizer(FINALIZER) {
            let mut finalizers = agent.metadata.finalizers.clone().unwrap_or_default();
            finalizers.push(FINALIZER.to_owned());
            self.agents
                .patch(&agent, json!({"metadata": {"finalizers": finalizers}}))
                .await?;
            return Ok(None);
        }
        if self.approves(&agent) {
            self.agents
                .patch(&agent, json!({"spec": {"approved": true}}))
                .await?;
            return Ok(None);
        }
        let now = Instant::now();
        let (host, due) = {
            let mut hosts = self.hosts.lock();
            let Some(host) = hosts.get_mut(key) else {
                return Ok(None);
            };
            host.reclaim_stalls = self.troubles.reclaims_stall.load(Relaxed);
            if !self.cleanup_fails(host, &agent) {
                self.take_spec(host, &agent, now);
            }
            let stage = host.stage;
            let due = lifecycle::advance(host, &self.delays, now);
            if host.stage != stage {
                host.stage_at = Some(nature::now());
            }
            (host.clone(), due)
        };
        self.hosts.note_disk(&host);
        let stuck = self.cleanup_fails(&host, &agent);
        if !stuck {
            let agent = self.write_metadata(&agent, &host).await?;
            self.write_status(&agent, &host).await?;
        }
        let again = stuck || host.refused.is_some();
        let retry = again.then_some(self.delays.backend_retry);
        let due = due.map(|due| due.saturating_duration_since(now));
        Ok(retry.into_iter().chain(due).min())
    }
}

impl Controller {
    /// When an Agent is gone, its host is forgotten too. A guest that still runs gets no answer.
    async fn forget_if_gone(&self, key: &str) -> Result<()> {
        let had_agent = self
            .hosts
            .lock()
            .get(key)
            .is_some_and(|host| host.has_agent);
        if had_agent && self.agents.fetch(key).await?.is_none() {
            self.hosts.lock().remove(key);
        }
        Ok(())
    }

    async fn deregister(&self, agent: &Object) -> Result<Option<Duration>> {
        let now = Instant::now();
        let since = match self.hosts.lock().get_mut(agent.name()) {
            Some(host) => *host.leaving_since.get_or_insert(now),
            None => now - self.delays.deregister,
        };
        let left = self
            .delays
            .deregister
            .saturating_sub(now.duration_since(since));
        if !left.is_zero() {
            return Ok(Some(left));
        }
        self.hosts.lock().remove(agent.name());
        if agent.has_finalizer(FINALIZER) {
            let mut left = agent.metadata.finalizers.clone().unwrap_or_default();
            left.retain(|finalizer| finalizer != FINALIZER);
            self.agents
                .patch(agent, json!({"metadata": {"finalizers": left}}))
                .await?;
        }
        Ok(None)
    }

    /// Creates a host for an Agent that the service has no record of. An Agent of an unknown InfraEnv gets no host.
    fn restore(&self, agent: &Object) -> bool {
        let Some(infra_env) = agent
            .label(INFRA_ENV_LABEL)
            .filter(|name| self.infra_envs.get(name).is_some())
        else {
            return false;
        };
        let host = restore::host(agent, infra_env, Instant::now());
        self.hosts
            .lock()
            .entry(agent.name().to_owned())
            .or_insert(host);
        true
    }

    /// Whether the Node of a host that has left its cluster cannot be removed there. The service tries that before it
    /// writes anything to the Agent, so the Agent goes on showing the state before.
    fn cleanup_fails(&self, host: &Host, agent: &Object) -> bool {
        let pending = agent.at("/status/deprovision_info");
        let pending = pending.is_some_and(|info| !info.is_null());
        pending
            && !is_leaving(host.state)
            && self.troubles.no_kubeconfig.load(Relaxed)
            && agent.annotation(SKIP_CLEANUP).is_none()
    }

    fn approves(&self, agent: &Object) -> bool {
        let infra_env = agent
            .label(INFRA_ENV_LABEL)
            .and_then(|name| self.infra_envs.get(name));
        let automatic =
            infra_env.is_some_and(|infra_env| infra_env.flag("/spec/agentApproval/autoApprove"));
        automatic && !agent.flag("/spec/approved")
    }

    fn take_spec(&self, host: &mut Host, agent: &Object, now: Instant) {
        if host.state.takes_spec() {
            agent.text("/spec/hostname").clone_into(&mut host.hostname);
            agent.text("/spec/role").clone_into(&mut host.role);
        }
        host.approved = agent.flag("/spec/approved");
        let text = |pointer| agent.text(pointer).to_owned();
        let wanted = agent.at("/spec/clusterDeploymentName").map(|_| {
            (
                text("/spec/clusterDeploymentName/namespace"),
                text("/spec/clusterDeploymentName/name"),
            )
        });
        let outcome = match (&host.cluster, wanted) {
            (None, Some(cluster)) => lifecycle::bind(host, cluster, now),
            (Some(_), None) => lifecycle::unbind(host, self.unbind, now),
            _ => Ok(()),
        };
        host.refused = outcome.err();
    }

    async fn write_metadata(&self, agent: &Object, host: &Host) -> Result<Object> {
        let mut wanted = (**agent).clone();
        let labels = wanted.metadata.labels.get_or_insert_default();
        let namespace = host
            .cluster
            .as_ref()
            .map(|(namespace, _)| namespace.clone())
            .unwrap_or_default();
        labels.insert(CLUSTER_NAMESPACE_LABEL.to_owned(), namespace);
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        let mut annotate =
            |key: &str, value: String| annotations.insert(format!("{ANNOTATIONS}/{key}"), value);
        annotate("state", host.state.name().to_owned());
        annotate("role", host.role.clone());
        annotate("current-stage", stage(host).to_owned());
        if let Some(shown) = &host.shown {
            labels.extend(inventory::labels(shown));
            annotate("inventory", inventory::status(shown).to_string());
            annotate(
                "validations-info",
                json!({"hardware": [{"id": "connected", "status": "success"}]}).to_string(),
            );
            annotations.insert(
                "inventory.agent-install.openshift.io/version".to_owned(),
                "0.1".to_owned(),
            );
        }
        if wanted.metadata == agent.metadata {
            return Ok(agent.clone());
        }
        self.agents.replace(&wanted).await
    }

    async fn write_status(&self, agent: &Object, host: &Host) -> Result<()> {
        let before = agent.at("/status/conditions");
        let mut status = json!({
            "conditions": condition::render(&conditions::of(host), before, Shape::Metav1, nature::now()),
            "debugInfo": {
                "state": host.state.name(),
                "stateInfo": match host.info {
                    Some(info) => info.to_owned(),
                    None => format!("Host is {}", host.state.name()),
                },
            },
            "progress": progress(host),
            "role": if host.role.is_empty() { "auto-assign" } else { &host.role },
            "bootstrap": false,
            "kind": if host.cluster.is_some() || host.left.is_some() { "AddToExistingClusterHost" } else { "Host" },
            "deprovision_info": deprovision(host),
        });
        if let Some(shown) = &host.shown {
            status["inventory"] = inventory::status(shown);
        }
        if merge_is_idle(agent.at("/status").unwrap_or(&Value::Null), &status) {
            return Ok(());
        }
        self.agents.patch_status(agent, status).await.map(drop)
    }
}

fn stage(host: &Host) -> &'static str {
    lifecycle::STAGES
        .get(host.stage.wrapping_sub(1))
        .copied()
        .unwrap_or_default()
}

fn progress(host: &Host) -> Value {
    if host.stage == 0 {
        return json!({
            "currentStage": null, "installationPercentage": null, "progressStages": null, "stageUpdateTime": null,
        });
    }
    json!({
        "stageUpdateTime": host.stage_at.map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        "currentStage": stage(host),
        "installationPercentage": host.stage * 100 / lifecycle::STAGES.len(),
        "progressStages": lifecycle::STAGES,
    })
}

/// Whether a host in this state must still leave its cluster.
fn is_leaving(state: HostState) -> bool {
    use HostState as S;
    matches!(
        state,
        S::Unbinding | S::UnbindingPendingUserAction | S::Reclaiming | S::ReclaimingRebooting
    )
}

/// The service's record of the cluster that the host leaves, until it has left.
fn deprovision(host: &Host) -> Value {
    match &host.left {
        Some((namespace, name)) if is_leaving(host.state) => json!({
            "cluster_namespace": namespace, "cluster_name": name, "node_name": host.effective_hostname(),
        }),
        _ => Value::Null,
    }
}

/// Keys to reconcile when an InfraEnv changes: all its Agents.
pub fn of_infra_env(agents: &Mirror, name: &str) -> Vec<String> {
    let list = agents.list();
    let own = list
        .iter()
        .filter(|agent| agent.label(INFRA_ENV_LABEL) == Some(name));
    own.map(|agent| agent.name().to_owned()).collect()
}

/// The controller in an [`Arc`], as the desk needs it.
pub fn controller(
    agents: Mirror,
    infra_envs: Mirror,
    hosts: Hosts,
    options: &PlayedOptions,
    troubles: Troubles,
) -> Arc<Controller> {
    Arc::new(Controller {
        agents,
        infra_envs,
        hosts,
        delays: options.delays.clone(),
        unbind: options.unbind,
        troubles,
    })
}
