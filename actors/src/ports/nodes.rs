//! The Nodes of hosted clusters.

use std::sync::Arc;

use async_trait::async_trait;
use secrecy::SecretString;

use super::sessions::Waker;
use crate::domain::{failure::ReconcileError, node::NodeFacts};

/// The most Nodes that a hosted cluster may have for the check.
pub const MAX_NODES: usize = 10_000;

/// Reads the Nodes of a hosted cluster. It changes nothing there.
#[async_trait]
pub trait HostedNodes: Send + Sync {
    /// All Nodes, in name order. Kubeconfig and server are of others: time, bytes and Nodes are bounded, and nothing but the
    /// needed facts is kept.
    ///
    /// # Errors
    /// `KubeconfigRefused` names the field that is not accepted. `HostedAPIFailed`: there is no list that can be used.
    async fn nodes(&self, kubeconfig: &SecretString) -> Result<Vec<NodeFacts>, ReconcileError>;
}

/// What a pool needs to follow the Nodes of its hosted cluster.
#[derive(Clone)]
pub struct NodeAccess {
    /// Reads them.
    pub hosted: Arc<dyn HostedNodes>,
    /// Wakes the pool when they have changed.
    pub waker: Arc<dyn Waker>,
}
