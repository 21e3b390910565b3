//! A hosted cluster of tests.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};

use crate::{
    domain::{failure::ReconcileError, names::ObjectKey, node::NodeFacts},
    ports::{
        nodes::{HostedNodes, NodeAccess},
        sessions::Waker,
    },
};

/// Its Nodes, who asked for them, and who was woken.
#[derive(Default)]
pub struct Hosted {
    /// What it answers. `None`: no Nodes.
    pub answer: Mutex<Option<Result<Vec<NodeFacts>, ReconcileError>>>,
    /// The kubeconfigs that it was asked with.
    pub asked: Mutex<Vec<String>>,
    /// How often a pool was woken.
    pub woken: AtomicUsize,
}

impl Hosted {
    /// The way to it.
    pub fn access(self: &Arc<Self>) -> NodeAccess {
        NodeAccess {
            hosted: self.clone(),
            waker: self.clone(),
        }
    }

    /// From now on it answers this.
    pub fn answers(&self, answer: Result<Vec<NodeFacts>, ReconcileError>) {
        *self.answer.lock().expect("no panic") = Some(answer);
    }

    /// The kubeconfigs that it was asked with.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }

    /// How often a pool was woken.
    pub fn woken(&self) -> usize {
        self.woken.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl HostedNodes for Hosted {
    async fn nodes(&self, kubeconfig: &SecretString) -> Result<Vec<NodeFacts>, ReconcileError> {
        let text = kubeconfig.expose_secret().to_owned();
        self.asked.lock().expect("no panic").push(text);
        let answer = self.answer.lock().expect("no panic").clone();
        answer.unwrap_or_else(|| Ok(Vec::new()))
    }
}

impl Waker for Hosted {
    fn wake_pool(&self, _: &ObjectKey, reason: &'static str) {
        assert_eq!(reason, "nodes");
        self.woken.fetch_add(1, Ordering::SeqCst);
    }
}
