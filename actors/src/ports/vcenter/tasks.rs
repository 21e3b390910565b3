//! Tasks of vCenter: how many may run, and how each ends.

use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;

use super::error::VcResult;
use crate::{domain::names::MoRef, ports::slots::Slots};

/// Longest wait for one task within one pass. A later pass continues a creation by its recorded task id. After any other
/// task the VM counts as busy.
pub const TASK_PATIENCE: Duration = Duration::from_secs(120);

/// A task that vCenter accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaskRef(pub String);

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// With success; the result where it is a reference (the created VM).
    Success(Option<MoRef>),
    /// vCenter does not know the task any more: look at the object itself.
    Vanished,
}

/// The end of a change that has begun.
pub type Ended<'a> = BoxFuture<'a, VcResult<TaskEnd>>;

/// Bounds and awaits tasks.
#[async_trait]
pub trait Tasks: Send + Sync {
    /// Bounds the tasks in flight on this vCenter (`--max-concurrent-vcenter-tasks`). All sessions with it share them.
    fn slots(&self) -> Slots;

    /// Waits for the end of a task.
    ///
    /// # Errors
    /// The outer error is about the waiting, such as a missing privilege: the task continues. The inner error is how the
    /// task failed.
    async fn wait(&self, task: &TaskRef) -> VcResult<VcResult<TaskEnd>>;
}
