//! The pool actor: it reads the demand for hosts, and creates and deletes VsphereAgents.
//!
//! Flow of a pass: [`observe`] -> pure [`plan`] -> [`act`] -> pure [`status`] -> [`publish`] if the status changed -> pure
//! [`mod@report`].

pub mod act;
pub mod agent_debounce;
mod dry_run;
pub mod index;
mod memory;
pub mod nodes;
pub mod observe;
pub mod observed;
pub mod outcome;
pub mod pass;
mod past_hosts;
pub mod plan;
mod provision;
pub mod publish;
pub mod report;
pub mod secret_finalizers;
pub mod status;
mod tables;
pub mod traced;
pub mod vcenter;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;

pub use self::memory::Memory;
use crate::{
    context::Context,
    domain::names::ObjectKey,
    iso::of_pool::IsoCaches,
    ports::instruments::Instruments,
    runtime::shell::{Verdict, Worker},
};

/// Worker of a pool actor.
pub struct PoolWorker {
    /// Ports.
    pub context: Context,
    /// ISO caches.
    pub isos: Arc<dyn IsoCaches>,
    /// The pool.
    pub key: ObjectKey,
}

impl Worker for PoolWorker {
    type Memory = Memory;

    fn kind(&self) -> &'static str {
        "pool"
    }

    fn key(&self) -> String {
        self.key.to_string()
    }

    fn instruments(&self) -> &dyn Instruments {
        self.context.instruments.as_ref()
    }

    fn debounce(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn pass(&self, memory: Memory) -> BoxFuture<'static, (Memory, Verdict)> {
        Box::pin(pass::run(
            self.context.clone(),
            self.isos.clone(),
            self.key.clone(),
            memory,
        ))
    }
}
