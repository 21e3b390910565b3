//! The Agent controller: copies an Agent's spec to its host, and the host's state to the Agent.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Result;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    super::{
        condition::{self, Shape},
        desk::Player,
        mirror::{Mirror, Object},
        nature,
        object::{Facts as _, merge_is_idle},
        options::{Delays, PlayedOptions},
    },
    INFRA_ENV_LABEL, conditions,
    host::{Host, Hosts},
    inventory, lifecycle, restore,
    state::HostState,
};

const FINALIZER: &str = "agent.agent-install.openshift.io/ai-deprovision";
const CLUSTER_NAMESPACE_LABEL: &str = "agent-install.openshift.io/clusterdeployment-namespace";
const ANNOTATIONS: &str = "agent.agent-install.openshift.io";
const PROPAGATED: &str = "infraenv.agent-install.openshift.io/propagate-node-labels";
const INHERITED: &str = "agent.agent-install.openshift.io/inherited-node-labels";
const SKIP_CLEANUP: &str = "agent.agent-install.openshift.io/skip-spoke-cleanup";

/// How late the service writes to an Agent, and in which parts. By default it writes at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Late {
    /// From a change of the host to the pass over its Agent. A state that is shorter than this is never shown.
    pub pass: Duration,
    /// From the Agent's annotations to its status.
    pub status: Duration,
    /// The service meets a conflict at each new verdict on a host. `SpecSynced` is False until its next pass.
    pub conflicts: bool,
}

/// What goes wrong in the service and in the hosted clusters. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Troubles {
    /// How late the service writes.
    pub late: Arc<Mutex<Late>>,
    /// Their kubeconfig is unusable.
    pub no_kubeconfig: Arc<AtomicBool>,
    /// No pod that reclaims a host ever reports.
    pub reclaims_stall: Arc<AtomicBool>,
    /// A newer service has this word for each state.
    pub word: Arc<Mutex<Option<&'static str>>>,
}

pub struct Controller {
    pub agents: Mirror,
    pub infra_envs: Mirror,
    pub hosts: Hosts,
    pub delays: Delays,
    pub troubles: Troubles,
}

/// The value of a trouble.
fn read<T: Copy>(trouble: &Mutex<T>) -> T {
    *trouble.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

impl Player for Controller {
    async fn pass(&self, key: &str) -> Result<Option<Duration>> {
        let late = read(&self.troubles.late);
        wait(late.pass).await;
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
            self.agents.add_finalizer(&agent, FINALIZER).await?;
            return Ok(None);
        }
        if self.approves(&agent) {
            self.agents
                .patch(&agent, json!({"spec": {"approved": true}}))
                .await?;
            return Ok(None);
        }
        if let Some(inherited) = self.inherits(&agent) {
            self.agents.patch(&agent, inherited).await?;
            return Ok(None);
        }
        let host = self.hosts.lock().get(key).cloned();
        if let Some(until) = host.as_ref().and_then(|host| host.kept_until)
            && until > Instant::now()
        {
            return Ok(Some(until.duration_since(Instant::now())));
        }
        let cleans_first = host.is_some_and(|host| {
            cleans_before_it_tries_again(&host, &agent) && !self.cleanup_fails(&host, &agent)
        });
        let agent = if cleans_first {
            let cleaned = json!({"deprovision_info": null});
            self.agents.patch_status(&agent, cleaned).await?
        } else {
            agent
        };
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
            let (stage, reported) = (host.stage, host.reported);
            let due = lifecycle::advance(host, &self.delays, now);
            if host.stage != stage {
                host.stage_at = Some(nature::now());
            }
            if host.reported && !reported {
                host.reported_at = Some(nature::now());
            }
            (host.clone(), due)
        };
        self.hosts.note_disk(&host);
        let stuck = self.cleanup_fails(&host, &agent);
        if !stuck {
            let mut agent = agent;
            if must_clean(&host, &agent) {
                let cleaned = json!({"deprovision_info": null});
                agent = self.agents.patch_status(&agent, cleaned).await?;
            }
            let agent = self.write_metadata(&agent, &host).await?;
            wait(late.status).await;
            let mut status = status(&agent, &host);
            if let Some(word) = read(&self.troubles.word) {
                status["debugInfo"]["state"] = json!(word);
            }
            if late.conflicts && is_new_verdict(&agent, &host) {
                refuse(&mut status);
                self.write_status(&agent, status).await?;
                return Ok(Some(CONFLICT));
            }
            self.write_status(&agent, status).await?;
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
            self.agents.remove_finalizer(agent, FINALIZER).await?;
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
        must_clean(host, agent)
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

    /// The change after which the Agent has the labels for Nodes that the InfraEnv passes on; `None` if it has them. The
    /// service takes a key off that is not passed on any more, and no other one.
    fn inherits(&self, agent: &Object) -> Option<Value> {
        let infra_env = self.infra_envs.get(agent.label(INFRA_ENV_LABEL)?)?;
        let keys = |object: &Object, annotation: &str| -> Vec<String> {
            let keys = object.annotation(annotation).unwrap_or_default();
            let keys = keys.split(',').map(|key| key.trim().to_owned());
            keys.filter(|key| !key.is_empty()).collect()
        };
        let (passed, before) = (keys(&infra_env, PROPAGATED), keys(agent, INHERITED));
        let mut labels = serde_json::Map::new();
        let gone = before.iter().filter(|key| !passed.contains(key));
        labels.extend(gone.map(|key| (key.clone(), Value::Null)));
        let passed: Vec<(String, &str)> = passed
            .into_iter()
            .filter_map(|key| infra_env.label(&key).map(|value| (key, value)))
            .collect();
        let names: Vec<&str> = passed.iter().map(|(key, _)| key.as_str()).collect();
        let list = (!names.is_empty()).then(|| names.join(","));
        labels.extend(
            passed
                .iter()
                .map(|(key, value)| (key.clone(), json!(value))),
        );
        let now = agent.at("/spec/nodeLabels").unwrap_or(&Value::Null);
        let labels = Value::Object(labels);
        let is_so = merge_is_idle(now, &labels) && agent.annotation(INHERITED) == list.as_deref();
        let change =
            json!({"metadata": {"annotations": {INHERITED: list}}, "spec": {"nodeLabels": labels}});
        (!is_so).then_some(change)
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
            (Some(_), None) => {
                let left = lifecycle::unbind(host, now);
                host.kept_until = left.is_err().then(|| now + self.delays.backend_retry);
                left
            }
            _ => {
                host.kept = false;
                Ok(())
            }
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
            let reported = host.reported.then(|| {
                let mut inventory = inventory::status(shown);
                inventory["timestamp"] = json!(host.reported_at.map(|at| at.as_second()));
                inventory.to_string()
            });
            annotate("inventory", reported.unwrap_or_default());
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

    async fn write_status(&self, agent: &Object, status: Value) -> Result<()> {
        if merge_is_idle(agent.at("/status").unwrap_or(&Value::Null), &status) {
            return Ok(());
        }
        self.agents.patch_status(agent, status).await.map(drop)
    }
}

/// Pause after a conflict.
const CONFLICT: Duration = Duration::from_millis(100);

/// What the Agent's status becomes.
pub fn status(agent: &DynamicObject, host: &Host) -> Value {
    let before = agent.at("/status/conditions");
    // A host that was just registered is one of a cluster only after it has registered there.
    let in_cluster = host.cluster.is_some() && host.state != HostState::Binding;
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
        "kind": if in_cluster { "AddToExistingClusterHost" } else { "Host" },
        "deprovision_info": deprovision(host),
    });
    if let Some(shown) = &host.shown {
        status["inventory"] = inventory::status(shown);
    }
    status
}

/// Whether the Agent does not show yet what the service decided about the host's inventory.
pub fn is_new_verdict(agent: &DynamicObject, host: &Host) -> bool {
    use HostState as S;
    let verdict = matches!(
        host.state,
        S::KnownUnbound | S::InsufficientUnbound | S::Insufficient
    );
    verdict && agent.text("/status/debugInfo/state") != host.state.name()
}

/// Says in that status that the Agent's spec could not be applied.
pub fn refuse(status: &mut Value) {
    let conditions = status["conditions"].as_array_mut();
    let synced = conditions.into_iter().flatten();
    for condition in synced.filter(|c| c["type"] == "SpecSynced") {
        condition["status"] = json!("False");
        condition["reason"] = json!("BackendError");
        condition["message"] =
            json!("the object has been modified; please apply your changes to the latest version");
    }
}

/// Whether the service must first take the Node of a host that has left its cluster away.
pub fn must_clean(host: &Host, agent: &DynamicObject) -> bool {
    let pending = agent.at("/status/deprovision_info");
    pending.is_some_and(|info| !info.is_null()) && !is_leaving(host.state)
}

/// Whether the service could not let the host leave: then its Node goes before the next try.
pub fn cleans_before_it_tries_again(host: &Host, agent: &DynamicObject) -> bool {
    host.kept && must_clean(host, agent)
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

/// The service's record of the cluster that the host leaves, until it has left. It also has one after each failure to let it
/// leave.
fn deprovision(host: &Host) -> Value {
    let leaves = host.left.as_ref().filter(|_| is_leaving(host.state));
    let kept = host.cluster.as_ref().filter(|_| host.kept);
    match leaves.or(kept) {
        Some((namespace, name)) => json!({
            "cluster_namespace": namespace, "cluster_name": name, "node_name": host.effective_hostname(),
        }),
        None => Value::Null,
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
        troubles,
    })
}
