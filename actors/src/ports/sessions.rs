//! Access to a vCenter: what VM actors, pools and ISO caches ask the session actor for.

use std::sync::Arc;

use agent_forge_crds::pool::RefusedCredentials;
use async_trait::async_trait;

use super::vcenter::VCenter;
use crate::domain::{failure::ReconcileError, names::ObjectKey};

/// Hands out sessions by credentials Secret.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// The session with that Secret's credentials for a pool of that namespace. Logs in if needed. A Secret of another
    /// namespace must allow it.
    ///
    /// # Errors
    /// [`ReconcileError`] names Secret, server or user, and what to do.
    async fn session(
        &self,
        secret: &ObjectKey,
        namespace: &str,
    ) -> Result<Arc<dyn VCenter>, ReconcileError>;

    /// What the pool records of that Secret for the next process: vCenter refused its content. `None` if it was not refused,
    /// or if nothing is known of it.
    async fn refusal(&self, secret: &ObjectKey) -> Option<RefusedCredentials>;
}

/// Wakes actors: "look again", nothing else.
pub trait Waker: Send + Sync {
    /// Wakes a pool's actor.
    fn wake_pool(&self, pool: &ObjectKey, reason: &'static str);
}

/// Wakes the actors that the news of vCenters concern.
pub trait NewsWaker: Send + Sync {
    /// Wakes the actor of a VM.
    fn wake_vm(&self, vm: &ObjectKey, reason: &'static str);

    /// Wakes the actor that reads the news.
    fn wake_news(&self);
}
