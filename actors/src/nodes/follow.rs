//! Reads the Nodes of a hosted cluster again and again, in a task beside the pool's actor (ADR 10).
//!
//! Guarantees: without a source no task runs. The task ends with the memory of its pool. It reads the Secret each time, so a
//! rotated one counts within 30 s. It wakes the pool only if the answer differs from the one before.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{conditions::Reason, pool::VsphereAgentPool};
use secrecy::SecretString;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use crate::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        names::ObjectKey,
        node::NodeFacts,
    },
    ports::{
        cluster::{Cluster, SecretRead},
        nodes::{HostedNodes, NodeAccess},
    },
    sessions::secret_ref,
};

/// From the begin of one read to the begin of the next. A read ends earlier ([`HostedNodes::nodes`] is bounded).
const EVERY: Duration = Duration::from_secs(20);

/// Where the Nodes of a pool's hosted cluster come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The pool.
    pub pool: ObjectKey,
    /// The Secret with the kubeconfig.
    pub secret: ObjectKey,
    /// The key in it.
    pub key: String,
}

/// What the last read gave.
pub type NodesRead = Result<Arc<Vec<NodeFacts>>, ReconcileError>;

impl Source {
    /// The source that the pool names. `None`: it names none.
    ///
    /// # Errors
    /// As [`secret_ref::secret_at`].
    pub fn of(
        pool: &VsphereAgentPool,
        allowed_namespaces: &[String],
    ) -> Result<Option<Self>, ReconcileError> {
        let Some(check) = &pool.spec.node_check else {
            return Ok(None);
        };
        let (reference, key) = (&check.kubeconfig_secret_ref, ObjectKey::of(pool));
        let secret = secret_ref::kubeconfig(reference, &key.namespace, allowed_namespaces)?;
        Ok(Some(Self {
            secret,
            key: reference.key().to_owned(),
            pool: key,
        }))
    }
}

/// Follows one source.
#[derive(Default)]
pub struct Follower {
    running: Option<(Source, watch::Receiver<Option<NodesRead>>)>,
    task: JoinSet<()>,
}

impl Follower {
    /// What was read last from that source. `None`: nothing yet. Begins to read it, or ends that without a source.
    pub fn follow(
        &mut self,
        access: &NodeAccess,
        cluster: &Arc<dyn Cluster>,
        source: Option<&Source>,
    ) -> Option<NodesRead> {
        let Some(source) = source else {
            *self = Self::default();
            return None;
        };
        // A task never ends by itself: it has panicked.
        let ended = self.task.try_join_next().is_some();
        match &self.running {
            Some((running, latest)) if running == source && !ended => latest.borrow().clone(),
            _ => {
                self.begin(access.clone(), cluster.clone(), source.clone());
                None
            }
        }
    }

    fn begin(&mut self, access: NodeAccess, cluster: Arc<dyn Cluster>, source: Source) {
        let (tell, told) = watch::channel(None);
        self.task = JoinSet::new();
        self.running = Some((source.clone(), told));
        self.task.spawn(async move {
            let mut ticks = interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let now = Some(read(cluster.as_ref(), access.hosted.as_ref(), &source).await);
                let differs = |before: &mut Option<NodesRead>| {
                    let differs = *before != now;
                    *before = now;
                    differs
                };
                if tell.send_if_modified(differs) {
                    access.waker.wake_pool(&source.pool, "nodes");
                }
            }
        });
    }
}

/// Reads the Secret, and the Nodes with it.
///
/// # Errors
/// The Secret cannot be used, or the hosted cluster gives no list that can be used.
pub async fn read(cluster: &dyn Cluster, hosted: &dyn HostedNodes, source: &Source) -> NodesRead {
    let text = kubeconfig(source, cluster.secret(&source.secret).await?)?;
    let nodes = hosted.nodes(&text).await.map_err(|failed| ReconcileError {
        message: format!("Secret {}: {failed}", source.secret),
        ..failed
    })?;
    Ok(Arc::new(nodes))
}

/// The kubeconfig in that Secret.
///
/// # Errors
/// The Secret does not exist, does not admit the pool, or has no such key.
pub fn kubeconfig(
    source: &Source,
    found: Option<SecretRead>,
) -> Result<SecretString, ReconcileError> {
    let (secret, key) = (&source.secret, &source.key);
    let refused = |message| {
        ReconcileError::blocked(ErrorSource::Kubernetes, Reason::KubeconfigRefused, message)
    };
    let pools_from = found.as_ref().and_then(|s| s.pools_from.as_deref());
    let (field, namespace) = (secret_ref::KUBECONFIG, &source.pool.namespace);
    secret_ref::admit(field, secret, pools_from, namespace)?;
    let Some(found) = found else {
        return Err(refused(format!("{field}: Secret {secret} does not exist")));
    };
    let missing = || format!("{field}: Secret {secret} has no text under the key {key:?}");
    let text = found.data.get(key).cloned();
    text.ok_or_else(|| refused(missing()))
}

#[cfg(test)]
mod tests;
