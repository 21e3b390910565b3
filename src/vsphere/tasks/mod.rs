//! Waits for tasks, and follows VMs. One list view, one property collector and one long poll serve all tasks and all
//! followed VMs of a session.
//!
//! [`TaskHub`] gives each waiter to the watcher. The watcher is a task of its own that starts with the first waiter. It
//! keeps the long poll and at most one `ModifyListView` in flight. What comes and goes meanwhile shares the next one.
//!
//! Every waiter gets a result: success, the task's fault, or `Vanished` for a task that vCenter does not know. If vCenter is
//! silent for the patience of the options, the waiter gets an error. A lost session or reply ends no wait: the watcher makes
//! a new view and filter, and vCenter reports the current state of each task. A reported end is known to callers that ask
//! again. Without tasks and followed VMs there are no requests.

mod ends;
mod labels;
mod news;
mod plumbing;
mod progress;
mod watcher;

use std::{
    collections::BTreeSet,
    sync::{Mutex, Weak},
};

use agent_forge_actors::ports::{
    slots::Slots,
    vcenter::{Fault, Listener, News, TaskEnd, TaskRef, Tasks, VcError, VcErrorKind, VcResult},
};
use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

pub(crate) use self::labels::Labels;
use self::watcher::Watcher;
use super::rpc::{
    client::Client,
    fault, locked,
    wire::{reference_in, unboxed},
};

/// How a task ended, with its result as received.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TaskReply {
    /// Success, with a boxed result if there is one.
    Success(Option<Value>),
    /// vCenter does not know the task.
    Vanished,
}

/// A call that waits.
struct Waiter {
    task: String,
    done: oneshot::Sender<VcResult<TaskReply>>,
}

/// What the watcher is asked for.
enum Ask {
    /// The end of a task.
    Wait(Waiter),
    /// The changes of these VMs and of no others.
    Follow(BTreeSet<String>, Listener),
}

/// Access to the watcher of one client.
pub(crate) struct TaskHub {
    client: Weak<Client>,
    watcher: Mutex<Option<mpsc::UnboundedSender<Ask>>>,
    /// Methods and subjects of the tasks that this client started.
    pub(crate) labels: Labels,
}

impl TaskHub {
    /// Starts nothing: the watcher starts with the first waiter.
    pub(crate) fn new(client: Weak<Client>) -> Self {
        Self {
            client,
            watcher: Mutex::default(),
            labels: Labels::default(),
        }
    }

    /// Waits for the end of a task, whatever its result is.
    ///
    /// # Errors
    /// The task's fault, or why its end cannot be known.
    pub(crate) async fn outcome(&self, task: &TaskRef) -> VcResult<TaskReply> {
        let (done, end) = oneshot::channel();
        self.enqueue(Ask::Wait(Waiter {
            task: task.0.clone(),
            done,
        }));
        let ended = end.await.unwrap_or_else(|_| {
            Err(self
                .labels
                .failure(&task.0, VcErrorKind::NoAnswer, "the session was ended"))
        });
        // The waiter logs it, so that the line names its object. Conditions repeat the failure. The task's number
        // differs with every try, so it is only in the log.
        if let Err(e) = ended.as_ref()
            && self.labels.is_of(&task.0, e)
        {
            let (task, operation) = (&task.0, e.operation);
            tracing::info!(task, operation, subject = %e.subject, error = %e.message, "task failed");
        }
        ended
    }

    /// Stops. Waiters get an error.
    pub(crate) fn stop(&self) {
        locked(&self.watcher).take();
    }

    fn enqueue(&self, ask: Ask) {
        let mut watcher = locked(&self.watcher);
        let ask = match watcher.as_ref() {
            Some(running) => match running.send(ask) {
                Ok(()) => return,
                // The watcher died (a panic): start another one.
                Err(mpsc::error::SendError(ask)) => ask,
            },
            None => ask,
        };
        let (sender, inbox) = mpsc::unbounded_channel();
        // Cannot fail: the receiver exists.
        let _ = sender.send(ask);
        *watcher = Some(sender);
        tokio::spawn(Watcher::new(Weak::clone(&self.client), inbox).run());
    }
}

impl News for Client {
    fn follow(&self, vms: BTreeSet<String>, listener: Listener) {
        self.tasks.enqueue(Ask::Follow(vms, listener));
    }
}

#[async_trait]
impl Tasks for Client {
    fn slots(&self) -> Slots {
        self.slots.clone()
    }

    /// A result that is a reference is passed on.
    async fn wait(&self, task: &TaskRef) -> VcResult<VcResult<TaskEnd>> {
        Ok(match self.tasks.outcome(task).await {
            Ok(TaskReply::Success(result)) => {
                Ok(TaskEnd::Success(result.as_ref().and_then(reference_in)))
            }
            Ok(TaskReply::Vanished) => Ok(TaskEnd::Vanished),
            Err(e) if e.fault().is_some() && self.tasks.labels.is_of(&task.0, &e) => Err(e),
            Err(e) => return Err(e),
        })
    }
}

/// A failure of a task that vCenter reported.
fn task_failure(labels: &Labels, task: &str, error: &Value) -> VcError {
    match fault::decode(unboxed(error)) {
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

    /// The lines about the end of task 7, for which a step of `demo/a` waits.
    async fn lines(end: impl FnOnce(&Labels) -> VcError) -> Vec<Value> {
        let hub = TaskHub::new(Weak::new());
        let (sender, mut inbox) = mpsc::unbounded_channel::<Ask>();
        *hub.watcher.lock().expect("lock") = Some(sender);
        hub.labels.note("task-7", "CreateVM_Task", "VM a");
        let lines = Lines::default();
        let here = lines.here();
        let task = TaskRef("task-7".to_owned());
        let step = tracing::error_span!("vm.step", object = "demo/a");
        let waits = hub.outcome(&task).instrument(step);
        let answers = async {
            let Some(Ask::Wait(waiter)) = inbox.recv().await else {
                panic!("nobody waits");
            };
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
        let away = |_: &Labels| {
            VcError::new(
                VcErrorKind::NoAnswer,
                "WaitForUpdatesEx",
                "tasks",
                "no route",
            )
        };
        assert_eq!(lines(away).await, Vec::<Value>::new());
    }
}
