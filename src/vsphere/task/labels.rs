//! What a task is about, so that its failure names method and object instead of a number.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use agent_forge_actors::ports::vcenter::{VcError, VcErrorKind};

/// Tasks remembered; far more than are ever in flight.
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

    /// A failure of that task.
    pub(in crate::vsphere) fn failure(
        &self,
        task: &str,
        kind: VcErrorKind,
        message: &str,
    ) -> VcError {
        let labels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let label = labels.iter().rev().find(|l| l.task == task);
        // Conditions repeat this: the task's number differs with every try and stands in the log alone.
        let (operation, subject) = label.map_or(("Task", task.to_owned()), |l| {
            (l.operation, l.subject.clone())
        });
        tracing::info!(%task, operation, %subject, error = message, "task failed");
        VcError {
            kind,
            operation,
            subject,
            message: message.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::told::Lines;

    #[test]
    fn the_line_of_a_failed_task_keeps_its_words_beside_vcenters() {
        let lines = Lines::default();
        let here = lines.here();
        let labels = Labels::default();
        labels.note("task-7", "CreateVM_Task", "VM a");
        let failure = labels.failure("task-7", VcErrorKind::NoAnswer, "no host has room");
        drop(here);
        assert_eq!(failure.subject, "VM a");
        let told = lines.fields();
        let [line] = &told[..] else {
            panic!("{told:?}")
        };
        for (field, said) in [
            ("message", "task failed"),
            ("error", "no host has room"),
            ("task", "task-7"),
        ] {
            assert_eq!(line[field], said, "{line}");
        }
    }
}
