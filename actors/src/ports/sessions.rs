//! Getting at a vCenter: what VM actors, pools and ISO caches ask the session actor for.

use std::sync::Arc;

use async_trait::async_trait;

use super::vcenter::VCenter;
use crate::{error::Trouble, model::names::ObjectKey};

/// Hands out sessions by credentials Secret.
#[async_trait]
pub trait Sessions: Send + Sync {
    /// The session of that Secret's credentials, logging in when needed.
    ///
    /// # Errors
    /// [`Trouble`] names Secret, server or user and says what to do.
    async fn session(&self, secret: &ObjectKey) -> Result<Arc<dyn VCenter>, Trouble>;
}

/// Wakes actors: "look again", nothing else.
pub trait Waker: Send + Sync {
    /// Wakes a pool's actor.
    fn wake_pool(&self, pool: &ObjectKey, reason: &'static str);
}
