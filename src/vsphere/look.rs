//! Reads objects. Callers that ask at about the same time share one request.
//!
//! Guarantees: the request is sent after the caller has asked, never before. `None` comes only from the fault
//! `ManagedObjectNotFound`. An object that is only missing from a shared reply is requested again by itself.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agent_forge_actors::{
    model::names::MoRef,
    ports::vcenter::{Fault, VcError, VcErrorKind, VcResult},
};
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::{
    client::Client,
    observation,
    properties::{Properties, Question},
};

/// How long a read waits for more callers.
const GATHER: Duration = Duration::from_millis(15);
/// Objects per request.
const BATCH: usize = 50;

type Seen = VcResult<Option<Arc<Properties>>>;

struct Asker {
    object: MoRef,
    tell: oneshot::Sender<Seen>,
}

/// Reads that wait for more callers.
#[derive(Default)]
pub(super) struct Looks(Mutex<Vec<Asker>>);

impl Looks {
    /// Adds a caller. Returns `true` for the first one, who starts the request.
    fn join(&self, asker: Asker) -> bool {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push(asker);
        waiting.len() == 1
    }

    fn take(&self) -> Vec<Asker> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Client {
    /// The properties of this VM or folder; `None` if vCenter reports that the object does not exist.
    pub(super) async fn look(&self, object: &MoRef) -> Seen {
        let (tell, seen) = oneshot::channel();
        let asker = Asker {
            object: object.clone(),
            tell,
        };
        if self.looks.join(asker) {
            let me = self.me();
            // In a task of its own: the first caller may give up while the others still wait.
            let gathering = async move {
                tokio::time::sleep(GATHER).await;
                if let Some(client) = me.upgrade() {
                    client.look_for_all().await;
                }
            };
            tokio::spawn(gathering.in_current_span());
        }
        let lost = || self.unseen(object, "the look was interrupted");
        seen.await.unwrap_or_else(|_| Err(lost()))
    }

    async fn look_for_all(&self) {
        let mut askers = self.looks.take();
        while !askers.is_empty() {
            let rest = askers.split_off(askers.len().min(BATCH));
            let batch = std::mem::replace(&mut askers, rest);
            self.look_for(batch).await;
        }
    }

    async fn look_for(&self, batch: Vec<Asker>) {
        let mut objects: Vec<MoRef> = batch.iter().map(|a| a.object.clone()).collect();
        objects.sort_unstable();
        objects.dedup();
        let shared = match objects.as_slice() {
            [one] => Err(one.clone()),
            many => Ok(self.retrieve(question(many).missing_ok()).await),
        };
        match shared {
            Err(one) => {
                let seen = self.look_at(&one).await;
                for asker in batch {
                    let _ = asker.tell.send(seen.clone());
                }
            }
            Ok(Ok(found)) => {
                let found: Vec<Arc<Properties>> = found.into_iter().map(Arc::new).collect();
                for asker in batch {
                    let seen = match found.iter().find(|p| p.object == asker.object) {
                        Some(properties) => Ok(Some(Arc::clone(properties))),
                        None => self.look_at(&asker.object).await,
                    };
                    let _ = asker.tell.send(seen);
                }
            }
            // One unreadable object must not make the others fail.
            Ok(Err(e)) if e.fault().is_some() => {
                for asker in batch {
                    let _ = asker.tell.send(self.look_at(&asker.object).await);
                }
            }
            Ok(Err(e)) => {
                for asker in batch {
                    let _ = asker.tell.send(Err(e.clone()));
                }
            }
        }
    }

    async fn look_at(&self, object: &MoRef) -> Seen {
        match self.retrieve(question(std::slice::from_ref(object))).await {
            Ok(mut found) => match found.pop() {
                Some(properties) => Ok(Some(Arc::new(properties))),
                // Neither the object nor a fault. That does not prove that the object is absent.
                None => Err(self.unseen(object, "the reply does not mention the object")),
            },
            Err(e) if matches!(e.fault(), Some(Fault::ManagedObjectNotFound(_))) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn unseen(&self, object: &MoRef, message: &str) -> VcError {
        VcError {
            kind: VcErrorKind::Undecodable,
            operation: "RetrievePropertiesEx",
            subject: object.to_string(),
            message: message.to_owned(),
        }
    }
}

fn question(objects: &[MoRef]) -> Question {
    let subject = match objects {
        [one] => one.to_string(),
        many => format!("{} objects", many.len()),
    };
    let has = |kind: &str| objects.iter().any(|o| o.kind == kind);
    let mut question = Question::about(subject);
    if has("VirtualMachine") {
        question = question.read("VirtualMachine", observation::PATHS);
    }
    for kind in ["Folder", "Datacenter"] {
        if has(kind) {
            question = question.read(kind, &["name"]);
        }
    }
    objects.iter().fold(question, Question::of)
}
