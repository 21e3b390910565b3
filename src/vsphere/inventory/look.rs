//! Reads single objects. Reads at about the same time share one request.
//!
//! The request leaves after the read was asked for, never before. `None` comes only from the typed fault
//! `ManagedObjectNotFound`. An object that is missing in a shared reply is read once more by itself.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use agent_forge_actors::{
    domain::names::MoRef,
    ports::vcenter::{Fault, VcError, VcErrorKind, VcResult},
};
use tokio::sync::oneshot;
use tracing::Instrument as _;

use crate::vsphere::{
    machines::observation,
    rpc::{
        client::Client,
        locked,
        properties::{Properties, Question},
    },
};

/// How long a read waits for others.
const GATHER: Duration = Duration::from_millis(15);
/// Objects per request.
const BATCH: usize = 50;

type Looked = VcResult<Option<Arc<Properties>>>;

struct Asker {
    object: MoRef,
    tell: oneshot::Sender<Looked>,
}

/// Reads that wait for others.
#[derive(Default)]
pub(crate) struct Looks(Mutex<Vec<Asker>>);

impl Looks {
    /// Joins. `true` for the first one, which then serves all.
    fn join(&self, asker: Asker) -> bool {
        let mut waiting = locked(&self.0);
        waiting.push(asker);
        waiting.len() == 1
    }

    fn take(&self) -> Vec<Asker> {
        std::mem::take(&mut *locked(&self.0))
    }
}

impl Client {
    /// The properties of this VM or folder; `None` when vCenter says that there is no such object.
    pub(crate) async fn look(&self, object: &MoRef) -> Looked {
        let (tell, seen) = oneshot::channel();
        let asker = Asker {
            object: object.clone(),
            tell,
        };
        if self.looks.join(asker) {
            let me = self.me();
            // In a task of its own: the first caller may stop while the others still wait.
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
            // One unreadable object must not hide the others.
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

    async fn look_at(&self, object: &MoRef) -> Looked {
        match self.retrieve(question(std::slice::from_ref(object))).await {
            Ok(mut found) => match found.pop() {
                Some(properties) => Ok(Some(Arc::new(properties))),
                // Neither the object nor a fault: that is no proof of absence.
                None => Err(self.unseen(object, "the reply does not mention the object")),
            },
            Err(e) if matches!(e.fault(), Some(Fault::ManagedObjectNotFound(_))) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn unseen(&self, object: &MoRef, message: &str) -> VcError {
        VcError::new(
            VcErrorKind::Undecodable,
            "RetrievePropertiesEx",
            object.to_string(),
            message,
        )
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
