//! What a task is about, so that its failure names method and object instead of a number.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use agent_forge_actors::ports::vcenter::{VcError, VcErrorKind};

/// Most tasks that are remembered. Far fewer run at a time.
const KEPT: usize = 512;

struct Label {
    task: String,
    operation: &'static str,
    subject: String,
}

/// The tasks that this client started, newest last.
#[derive(Default)]
pub(in crate::vsphere) struct Labels(Mutex<VecDeque<Label>>);

impl Labels {
    /// Remembers what a task is about.
    pub(in crate::vsphere) fn note(&self, task: &str, operation: &'static str, subject: &str) {
        let mut labels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if labels.len() == KEPT {
            labels.pop_front();
        }
        labels.push_back(Label {
            task: task.to_owned(),
            operation,
            subject: subject.to_owned(),
        });
    }

    /// The method and the subject of a task. For a task that another client started, only its number.
    fn of(&self, task: &str) -> (&'static str, String) {
        let labels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let label = labels.iter().rev().find(|l| l.task == task);
        label.map_or(("Task", task.to_owned()), |l| {
            (l.operation, l.subject.clone())
        })
    }

    /// A failure of that task.
    pub(in crate::vsphere) fn failure(
        &self,
        task: &str,
        kind: VcErrorKind,
        message: &str,
    ) -> VcError {
        let (operation, subject) = self.of(task);
        VcError {
            kind,
            operation,
            subject,
            message: message.to_owned(),
        }
    }

    /// Whether this is a failure of the task itself, and not of the request for its end.
    pub(super) fn is_of(&self, task: &str, failure: &VcError) -> bool {
        self.of(task).0 == failure.operation
    }
}
