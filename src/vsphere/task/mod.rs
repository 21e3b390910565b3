//! Waits for tasks. One list view, one property collector and one long poll serve all tasks of a session.
//!
//! [`TaskHub`] passes a waiter to the watcher, a tokio task that starts with the first waiter. The watcher keeps the
//! long poll and at most one `ModifyListView` running. Tasks that come or end in the meantime share the next one.
//!
//! Guarantees: every waiter gets an end. It is success, the task's fault, or `Vanished` for a task that vCenter does
//! not know. After vCenter has been silent for `wait_patience`, the waiter gets that failure. A lost session or reply
//! does not end the wait: the watcher creates view and filter again, and vCenter reports the current state of each
//! task. A reported end is remembered for callers that ask again. Without tasks no request is sent.

mod ends;
mod labels;
mod plumbing;
mod progress;
mod watcher;

use std::sync::{Mutex, PoisonError, Weak};

use agent_forge_actors::ports::vcenter::{TaskEnd, TaskRef, VcError, VcErrorKind, VcResult};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

pub(super) use self::labels::Labels;
use self::watcher::Watcher;
use super::{client::Client, wire::reference_in};

/// How a task ended, with its result as vCenter sent it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// Success, with a boxed result or none.
    Success(Option<Value>),
    /// vCenter does not know the task.
    Vanished,
}

/// A caller that waits.
struct Waiter {
    task: String,
    done: oneshot::Sender<VcResult<Outcome>>,
}

/// The connection to the watcher of one client.
pub(super) struct TaskHub {
    client: Weak<Client>,
    watcher: Mutex<Option<mpsc::UnboundedSender<Waiter>>>,
    /// What the tasks that this client started are about.
    pub(super) labels: Labels,
}

impl TaskHub {
    /// The watcher starts with the first waiter.
    pub(super) fn new(client: Weak<Client>) -> Self {
        Self {
            client,
            watcher: Mutex::default(),
            labels: Labels::default(),
        }
    }

    /// Waits for the end of a task, whatever its result is.
    ///
    /// # Errors
    /// The task's fault, or the reason why its end cannot be found out.
    pub(super) async fn outcome(&self, task: &TaskRef) -> VcResult<Outcome> {
        let (done, end) = oneshot::channel();
        self.enqueue(Waiter {
            task: task.0.clone(),
            done,
        });
        let ended = end.await.unwrap_or_else(|_| {
            Err(self
                .labels
                .failure(&task.0, VcErrorKind::NoAnswer, "the session was ended"))
        });
        // The waiter logs this, so that the line names the object. Conditions repeat the failure, and the task's number
        // differs with every try. So the number is only in the log.
        if let Err(e) = ended.as_ref()
            && self.labels.is_of(&task.0, e)
        {
            let (task, operation) = (&task.0, e.operation);
            tracing::info!(task, operation, subject = %e.subject, error = %e.message, "task failed");
        }
        ended
    }

    /// Waits for the end of a task. If the result is a reference, it is passed on.
    ///
    /// # Errors
    /// The reason why the task's end cannot be found out.
    pub(super) async fn wait(&self, task: &TaskRef) -> VcResult<VcResult<TaskEnd>> {
        Ok(match self.outcome(task).await {
            Ok(Outcome::Success(result)) => {
                Ok(TaskEnd::Success(result.as_ref().and_then(reference_in)))
            }
            Ok(Outcome::Vanished) => Ok(TaskEnd::Vanished),
            Err(e) if e.fault().is_some() && self.labels.is_of(&task.0, &e) => Err(e),
            Err(e) => return Err(e),
        })
    }

    /// Stops the watcher. Its waiters get an error.
    pub(super) fn stop(&self) {
        self.watcher
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }

    fn enqueue(&self, waiter: Waiter) {
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        let waiter = match watcher.as_ref() {
            Some(running) => match running.send(waiter) {
                Ok(()) => return,
                // The watcher died (a panic): start another one.
                Err(mpsc::error::SendError(waiter)) => waiter,
            },
            None => waiter,
        };
        let (sender, inbox) = mpsc::unbounded_channel();
        // Cannot fail, because the receiver exists.
        let _ = sender.send(waiter);
        *watcher = Some(sender);
        tokio::spawn(Watcher::new(Weak::clone(&self.client), inbox).run());
    }
}

/// A failure of a task that vCenter reported.
fn task_failure(labels: &Labels, task: &str, error: &Value) -> VcError {
    use agent_forge_actors::ports::vcenter::Fault;
    match super::fault::decode(super::wire::unboxed(error)) {
        Some(decoded) => labels.failure(task, VcErrorKind::Fault(decoded.fault), &decoded.message),
        None => {
            let message = "the task failed and vCenter gives no fault";
            let fault = Fault::Other {
                type_name: "UnknownFault".to_owned(),
                message: message.to_owned(),
            };
            labels.failure(task, VcErrorKind::Fault(fault), message)
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Instrument as _;

    use super::*;
    use crate::telemetry::told::Lines;

    /// The log lines about the end of task 7, for which a step of `demo/a` waits.
    async fn lines(end: impl FnOnce(&Labels) -> VcError) -> Vec<Value> {
        let hub = TaskHub::new(Weak::new());
        let (sender, mut inbox) = mpsc::unbounded_channel::<Waiter>();
        *hub.watcher.lock().expect("lock") = Some(sender);
        hub.labels.note("task-7", "CreateVM_Task", "VM a");
        let lines = Lines::default();
        let here = lines.here();
        let task = TaskRef("task-7".to_owned());
        let step = tracing::error_span!("vm.step", object = "demo/a");
        let waits = hub.outcome(&task).instrument(step);
        let answers = async {
            let waiter = inbox.recv().await.expect("who waits");
            let _ = waiter.done.send(Err(end(&hub.labels)));
        };
        let (ended, ()) = tokio::join!(waits, answers);
        drop(here);
        assert!(ended.is_err());
        lines.all()
    }

    #[tokio::test]
    async fn the_line_of_a_failed_task_names_whom_it_was_for_and_keeps_its_words_beside_vcenters() {
        let full =
            |labels: &Labels| labels.failure("task-7", VcErrorKind::NoAnswer, "no host has room");
        let told = lines(full).await;
        let [line] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!(line["span"]["object"], "demo/a", "{line}");
        for (field, said) in [
            ("message", "task failed"),
            ("error", "no host has room"),
            ("task", "task-7"),
            ("operation", "CreateVM_Task"),
            ("subject", "VM a"),
        ] {
            assert_eq!(line["fields"][field], said, "{line}");
        }
    }

    #[tokio::test]
    async fn a_task_whose_end_cannot_be_asked_for_has_not_failed() {
        let away = |_: &Labels| VcError {
            kind: VcErrorKind::NoAnswer,
            operation: "WaitForUpdatesEx",
            subject: "tasks".to_owned(),
            message: "no route".to_owned(),
        };
        assert_eq!(lines(away).await, Vec::<Value>::new());
    }
}
