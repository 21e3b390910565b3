//! Reads single objects. Reads at about the same time share one request.
//!
//! The request leaves after the read was asked for, never before. `None` comes only from the typed fault
//! `ManagedObjectNotFound`. An object that is missing in a shared reply is read once more by itself.
//!
//! The names of the ESXi hosts come in the same reply: the property collector follows each VM to its host.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
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
        wire::collector::Selection,
    },
};

const VM: &str = "VirtualMachine";
const HOST_SYSTEM: &str = "HostSystem";

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
pub(crate) struct Looks {
    waiting: Mutex<Vec<Asker>>,
    /// vCenter does not follow a VM to its host.
    nameless: AtomicBool,
}

impl Looks {
    /// Joins. `true` for the first one, which then serves all.
    fn join(&self, asker: Asker) -> bool {
        let mut waiting = locked(&self.waiting);
        waiting.push(asker);
        waiting.len() == 1
    }

    fn take(&self) -> Vec<Asker> {
        std::mem::take(&mut *locked(&self.waiting))
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
            many => Ok(self.ask(many).await),
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
        match self.ask(std::slice::from_ref(object)).await {
            Ok(found) => match found.into_iter().find(|p| p.object == *object) {
                Some(properties) => Ok(Some(Arc::new(properties))),
                // Neither the object nor a fault: that is no proof of absence.
                None => Err(self.unseen(object, "the reply does not mention the object")),
            },
            Err(e) if matches!(e.fault(), Some(Fault::ManagedObjectNotFound(_))) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The objects, each VM with the name of its host where the user sees that.
    async fn ask(&self, objects: &[MoRef]) -> VcResult<Vec<Properties>> {
        let named = !self.looks.nameless.load(Ordering::Relaxed);
        let found = match self.retrieve(question(objects, named)).await {
            // The name is not worth a look that fails.
            Err(e) if named && refuses_path(&e) => {
                self.looks.nameless.store(true, Ordering::Relaxed);
                self.retrieve(question(objects, false)).await?
            }
            other => other?,
        };
        Ok(with_host_names(found))
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

/// Whether vCenter refused what the question reads, and not an object.
fn refuses_path(e: &VcError) -> bool {
    match e.fault() {
        Some(Fault::InvalidArgument { .. }) => true,
        Some(Fault::Other { type_name, .. }) => {
            type_name == "InvalidProperty" || type_name == "InvalidType"
        }
        _ => false,
    }
}

/// `named`: with the names of the hosts.
fn question(objects: &[MoRef], named: bool) -> Question {
    let subject = match objects {
        [one] => one.to_string(),
        many => format!("{} objects", many.len()),
    };
    let has = |kind: &str| objects.iter().any(|o| o.kind == kind);
    let mut question = Question::about(subject);
    if objects.len() > 1 {
        question = question.missing_ok();
    }
    if has(VM) {
        question = question.read(VM, observation::PATHS);
        if named {
            question = question.read(HOST_SYSTEM, &["name"]);
        }
    }
    for kind in ["Folder", "Datacenter"] {
        if has(kind) {
            question = question.read(kind, &["name"]);
        }
    }
    objects.iter().fold(question, |question, object| {
        let follows = named && object.kind == VM;
        let to_host = || Selection::follow("host", VM, observation::HOST, Vec::new());
        question.from(object, follows.then(to_host).into_iter().collect())
    })
}

/// Gives each VM the name of its host, and leaves the hosts out.
fn with_host_names(found: Vec<Properties>) -> Vec<Properties> {
    let (hosts, mut objects): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|p| p.object.kind == HOST_SYSTEM);
    for object in &mut objects {
        let host = object.reference(observation::HOST);
        let host = host.and_then(|host| hosts.iter().find(|p| p.object == host));
        if let Some(name) = host.and_then(|p| p.text("name")) {
            object.add(observation::HOST_NAME, name.into());
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::vsphere::rpc::played;

    fn one(kind: &str, id: &str) -> Value {
        json!({"_typeName": "ManagedObjectReference", "type": kind, "value": id})
    }

    fn row(object: Value, name: &str, value: Value) -> Value {
        json!({"obj": object, "propSet": [{"name": name, "val": value}]})
    }

    fn host_of(seen: &Looked) -> Option<String> {
        let seen = seen.as_ref().expect("a reply").as_ref().expect("the VM");
        seen.text(observation::HOST_NAME).map(str::to_owned)
    }

    #[tokio::test(start_paused = true)]
    async fn a_vm_comes_with_the_name_of_its_host_and_without_the_host() {
        let client = played::client(|_, _| {
            let vm = row(
                one("VirtualMachine", "vm-1"),
                "runtime.host",
                one("HostSystem", "host-1"),
            );
            let name = json!({"_typeName": "string", "_value": "esx-1"});
            let host = row(one("HostSystem", "host-1"), "name", name);
            (200, json!({"objects": [vm, host]}))
        });
        let seen = client.look(&MoRef::new("VirtualMachine", "vm-1")).await;
        assert_eq!(host_of(&seen).as_deref(), Some("esx-1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_vcenter_that_follows_no_vm_to_its_host_still_shows_the_vm() {
        let client = played::client(|_, asked| {
            if asked.contains("HostSystem") {
                let fault = json!({"_typeName": "InvalidProperty", "name": "runtime.host"});
                return (500, fault);
            }
            let vm = row(
                one("VirtualMachine", "vm-1"),
                "runtime.host",
                one("HostSystem", "host-1"),
            );
            (200, json!({"objects": [vm]}))
        });
        let vm = MoRef::new("VirtualMachine", "vm-1");
        for _ in 0..2 {
            let seen = client.look(&vm).await;
            assert_eq!(host_of(&seen), None);
        }
    }
}
