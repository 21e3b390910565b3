//! Getting at a vCenter: what VM actors, pools and ISO caches ask the session actor for.

use std::sync::Arc;

use agent_forge_crds::pool::RefusedCredentials;
use async_trait::async_trait;

use super::vcenter::VCenter;
use crate::domain::{failure::ReconcileError, names::ObjectKey};

/// Hands out sessions by credentials Secret.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// The session of that Secret's credentials for a pool of that namespace, logging in when needed. A Secret of another
    /// namespace has to admit it.
    ///
    /// # Errors
    /// [`ReconcileError`] names Secret, server or user and says what to do.
    async fn session(
        &self,
        secret: &ObjectKey,
        namespace: &str,
    ) -> Result<Arc<dyn VCenter>, ReconcileError>;

    /// What is to be recorded of that Secret for the next process: that vCenter refused what it holds. `None` where it
    /// was not refused, or nothing is known of it.
    async fn refusal(&self, secret: &ObjectKey) -> Option<RefusedCredentials>;
}

/// Wakes actors: "look again", nothing else.
pub trait Waker: Send + Sync {
    /// Wakes a pool's actor.
    fn wake_pool(&self, pool: &ObjectKey, reason: &'static str);
}
