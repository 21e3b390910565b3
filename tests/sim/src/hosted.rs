//! The hosted cluster, as far as the operator reads it: its Nodes.
//!
//! A host that is installed for the cluster is a Node of it, with the labels of its Agent. Other Nodes join by [`Hosted::join`].

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use agent_forge_actors::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        node::{INSTANCE_TYPE_LABEL, NodeFacts, PLATFORM_TYPE_LABEL},
    },
    ports::nodes::HostedNodes,
};
use agent_forge_crds::conditions::Reason;
use async_trait::async_trait;
use base64::Engine as _;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use crate::{
    director::{Life, alive},
    kube::{
        ApiServer, kind,
        store::{Refusal, text},
    },
    world::{NAMESPACE, PASSWORD},
};

/// Name of the Secret with the kubeconfig.
pub const SECRET: &str = "nodes";
/// How long a list takes.
const TAKES: Duration = Duration::from_millis(5);

/// The hosted cluster. All clones are the same one.
#[derive(Clone)]
pub struct Hosted {
    api: ApiServer,
    others: Arc<Mutex<Vec<NodeFacts>>>,
    away: Arc<AtomicBool>,
}

impl Hosted {
    /// The hosted cluster of that hub.
    #[must_use]
    pub fn of(api: &ApiServer) -> Self {
        Self {
            api: api.clone(),
            others: Arc::default(),
            away: Arc::default(),
        }
    }

    /// Creates the Secret with the kubeconfig. Returns the part of a pool's spec that names it.
    ///
    /// # Errors
    /// The API server refuses.
    pub fn grant(&self) -> Result<Value, Refusal> {
        let encoded = base64::engine::general_purpose::STANDARD.encode(PASSWORD);
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": {"kubeconfig": encoded},
        });
        self.api.create(&kind("secrets"), NAMESPACE, secret)?;
        Ok(json!({"kubeconfigSecretRef": {"name": SECRET}}))
    }

    /// A Node of somebody else joins.
    pub fn join(&self, node: NodeFacts) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.push(node);
    }

    /// From now on its API server does not answer, or does again.
    pub fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    fn nodes(&self) -> Vec<NodeFacts> {
        let agents = self.api.list(&kind("agents"), NAMESPACE);
        let installed = |agent: &&Arc<Value>| {
            text(agent, "/status/debugInfo/state") == "added-to-existing-cluster"
        };
        let mut all: Vec<NodeFacts> = agents.iter().filter(installed).map(|a| node(a)).collect();
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(others.iter().cloned());
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

/// The Node on the host of that Agent.
fn node(agent: &Value) -> NodeFacts {
    let label = |key: &str| {
        let value = agent["spec"]["nodeLabels"][key].as_str();
        value.map(str::to_owned)
    };
    let name = text(agent, "/metadata/name");
    NodeFacts {
        name: format!("node-{name}"),
        provider_id: Some(format!("agent://{name}")),
        platform_type: label(PLATFORM_TYPE_LABEL),
        instance_type: label(INSTANCE_TYPE_LABEL),
        // The host of a VM has the UUID that the guest sees as its name.
        system_uuid: Some(name.to_owned()),
        deleting: false,
    }
}

/// The hosted cluster, read by one process of the operator.
pub struct Reader {
    /// The hosted cluster.
    pub hosted: Hosted,
    /// The process.
    pub life: Arc<Life>,
}

#[async_trait]
impl HostedNodes for Reader {
    async fn nodes(&self, kubeconfig: &SecretString) -> Result<Vec<NodeFacts>, ReconcileError> {
        alive(Some(&self.life)).await;
        tokio::time::sleep(TAKES).await;
        alive(Some(&self.life)).await;
        let failed = |reason, message: &str| {
            Err(ReconcileError::transient(
                ErrorSource::Kubernetes,
                reason,
                message,
            ))
        };
        if kubeconfig.expose_secret() != PASSWORD {
            return failed(Reason::KubeconfigRefused, "it is another one");
        }
        if self.hosted.away.load(Ordering::Relaxed) {
            return failed(Reason::HostedApiFailed, "it does not answer");
        }
        Ok(self.hosted.nodes())
    }
}
