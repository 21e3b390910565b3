//! What each task is about, so that its failure names method and object instead of a number.

use std::{collections::VecDeque, sync::Mutex};

use agent_forge_actors::ports::vcenter::{VcError, VcErrorKind};

use crate::vsphere::rpc::locked;

/// Most tasks that are kept: far more than are ever in flight.
const KEPT: usize = 512;

struct Label {
    task: String,
    operation: &'static str,
    subject: String,
}

/// The tasks that this client started, the newest last.
#[derive(Default)]
pub(crate) struct Labels(Mutex<VecDeque<Label>>);

impl Labels {
    /// Remembers what a task is about.
    pub(crate) fn note(&self, task: &str, operation: &'static str, subject: &str) {
        let mut labels = locked(&self.0);
        if labels.len() == KEPT {
            labels.pop_front();
        }
        labels.push_back(Label {
            task: task.to_owned(),
            operation,
            subject: subject.to_owned(),
        });
    }

    /// Method and subject of the task. Another client's task has its number as subject.
    fn of(&self, task: &str) -> (&'static str, String) {
        let labels = locked(&self.0);
        let label = labels.iter().rev().find(|l| l.task == task);
        label.map_or(("Task", task.to_owned()), |l| {
            (l.operation, l.subject.clone())
        })
    }

    /// Whether the task takes seconds: a create, or a power-on.
    pub(super) fn is_long(&self, task: &str) -> bool {
        matches!(self.of(task).0, "CreateVM_Task" | "PowerOnVM_Task")
    }

    /// A failure of that task.
    pub(crate) fn failure(&self, task: &str, kind: VcErrorKind, message: &str) -> VcError {
        let (operation, subject) = self.of(task);
        VcError::new(kind, operation, subject, message.to_owned())
    }

    /// Whether it is a failure of that task itself, and not of the question for its end.
    pub(super) fn is_of(&self, task: &str, failure: &VcError) -> bool {
        self.of(task).0 == failure.operation
    }
}
