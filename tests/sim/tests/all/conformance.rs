//! Compares the simulated API server with the real one: the same random operations have to give the same answers.
//!
//! The test compares codes, reasons, and objects without uid, times and managed fields. Of resourceVersions it compares
//! whether an operation made a new one. Both sides get valid objects only, because schemas are not simulated.

use std::collections::BTreeMap;

use agent_forge_crds::{VsphereAgent, names::AGENT_FINALIZER};
use agent_forge_lab::{Lab, LabOptions, install_tls_provider};
use agent_forge_sim::{director::Director, kube::ApiServer, plan::Plan};
use fastrand::Rng;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};

const NAMESPACE: &str = "conformance";
const OPERATIONS: usize = 400;

/// What is wrong with a write: it gives an old version, or another uid.
#[derive(Clone, Copy, Debug)]
struct Wrong {
    stale: bool,
    uid: bool,
}

/// One operation, chosen before either side sees it. All but a list name an object.
#[derive(Clone, Debug)]
enum Operation {
    /// With these finalizers.
    Create(String, Vec<String>),
    /// The value of a label.
    Labels(String, Option<u32>, Wrong),
    Finalizers(String, Vec<String>),
    /// The observed generation.
    Status(String, u32, Wrong),
    /// The number of the pool.
    Spec(String, u32),
    Delete(String, Wrong),
    Get(String),
    List,
}

fn draw(rng: &mut Rng) -> Operation {
    let name = format!("agent-{}", rng.u32(0..3));
    let finalizers = || {
        let all = [AGENT_FINALIZER, "example.org/other"].into_iter();
        let drawn = all.filter(|_| fastrand::bool());
        drawn.map(str::to_owned).collect()
    };
    let rarely = |rng: &mut Rng| rng.u32(0..5) == 0;
    let wrong = |rng: &mut Rng| Wrong {
        stale: rarely(rng),
        uid: rarely(rng),
    };
    match rng.u32(0..12) {
        0..=2 => Operation::Create(name, finalizers()),
        3 | 4 => {
            let value = rng.bool().then(|| rng.u32(0..3));
            Operation::Labels(name, value, wrong(rng))
        }
        5 | 6 => Operation::Finalizers(name, finalizers()),
        7 => Operation::Status(name, rng.u32(0..3), wrong(rng)),
        8 => Operation::Spec(name, rng.u32(0..2)),
        9 | 10 => Operation::Delete(name, wrong(rng)),
        _ if rng.bool() => Operation::Get(name),
        _ => Operation::List,
    }
}

/// One side, with what it needs to get the same operation as the other side.
struct Side {
    api: Api<VsphereAgent>,
    /// For each name, the versions so far, the newest last.
    versions: BTreeMap<String, Vec<String>>,
    /// For each name, the last uid.
    uids: BTreeMap<String, String>,
}

impl Side {
    fn new(client: Client) -> Self {
        Self {
            api: Api::namespaced(client, NAMESPACE),
            versions: BTreeMap::new(),
            uids: BTreeMap::new(),
        }
    }

    /// The object without the fields that differ between any two servers.
    fn masked(&mut self, object: &VsphereAgent) -> Value {
        let (name, uid) = (object.name_any(), object.uid().expect("uid"));
        let version = object.resource_version().expect("version");
        let mut value = serde_json::to_value(object).expect("object");
        let metadata = value["metadata"].as_object_mut().expect("metadata");
        let same_object = self.uids.insert(name.clone(), uid.clone()) == Some(uid);
        let versions = self.versions.entry(name).or_default();
        let new = versions.last() != Some(&version);
        if new {
            versions.push(version);
        }
        for field in ["creationTimestamp", "deletionTimestamp"] {
            if let Some(time) = metadata.get_mut(field) {
                *time = json!("some time");
            }
        }
        for field in ["uid", "resourceVersion", "managedFields"] {
            metadata.remove(field);
        }
        json!({"object": value, "new version": new, "same object": same_object})
    }

    fn version(&self, name: &str, stale: bool) -> Value {
        let known = self.versions.get(name).map_or(&[][..], Vec::as_slice);
        let found = if stale {
            known.len().checked_sub(2).map(|i| &known[i])
        } else {
            known.last()
        };
        json!(found)
    }

    fn uid(&self, name: &str, wrong: bool) -> Value {
        let wrong = wrong.then(|| "00000000-0000-4000-8000-000000000000".to_owned());
        json!(wrong.or_else(|| self.uids.get(name).cloned()))
    }

    async fn perform(&mut self, operation: &Operation) -> Value {
        let post = PostParams::default();
        let object = |value: Value| serde_json::from_value(value).expect("object");
        let result = match operation {
            Operation::Create(name, finalizers) => {
                let new = object(json!({
                    "apiVersion": "agent-forge.containeroo.ch/v1alpha1", "kind": "VsphereAgent",
                    "metadata": {"name": name, "finalizers": finalizers}, "spec": {"poolRef": {"name": "pool-0"}},
                }));
                self.api.create(&post, &new).await
            }
            Operation::Labels(name, value, wrong) => {
                let patch = json!({"metadata": {
                    "labels": {"x": value.map(|v| v.to_string())},
                    "resourceVersion": self.version(name, wrong.stale), "uid": self.uid(name, wrong.uid),
                }});
                self.patch(name, patch).await
            }
            Operation::Finalizers(name, finalizers) => {
                let patch = json!({"metadata": {"finalizers": finalizers}});
                self.patch(name, patch).await
            }
            Operation::Spec(name, pool) => {
                let patch = json!({"spec": {"poolRef": {"name": format!("pool-{pool}")}}});
                self.patch(name, patch).await
            }
            Operation::Status(name, generation, wrong) => {
                let new: VsphereAgent = object(json!({
                    "apiVersion": "agent-forge.containeroo.ch/v1alpha1", "kind": "VsphereAgent",
                    "metadata": {
                        "name": name, "resourceVersion": self.version(name, wrong.stale), "uid": self.uid(name, wrong.uid),
                    },
                    "spec": {"poolRef": {"name": "never-taken"}}, "status": {"observedGeneration": generation},
                }));
                self.api.replace_status(name, &post, &new).await
            }
            Operation::Delete(name, wrong) => {
                let text = |v: Value| v.as_str().map(str::to_owned);
                let version = || text(self.version(name, true));
                let parameters = DeleteParams::default().preconditions(Preconditions {
                    uid: text(self.uid(name, wrong.uid)),
                    resource_version: wrong.stale.then(version).flatten(),
                });
                match self.api.delete(name, &parameters).await {
                    Ok(left) => return left.left().map_or(json!("gone"), |o| self.masked(&o)),
                    Err(e) => Err(e),
                }
            }
            Operation::Get(name) => self.api.get(name).await,
            Operation::List => {
                let all = self.api.list(&Default::default()).await;
                let all = all.expect("a list").items;
                return all.iter().map(|o| self.masked(o)).collect();
            }
        };
        match result {
            Ok(object) => self.masked(&object),
            Err(kube::Error::Api(status)) => json!({"code": status.code, "reason": status.reason}),
            Err(e) => panic!("{operation:?}: {e}"),
        }
    }

    async fn patch(&self, name: &str, patch: Value) -> kube::Result<VsphereAgent> {
        let patch = Patch::Merge(patch);
        self.api.patch(name, &PatchParams::default(), &patch).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_played_api_server_answers_as_the_real_one() {
    install_tls_provider();
    let lab = Lab::start(LabOptions::default()).await.expect("a lab");
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let made = agent_forge_lab::lab::apply::apply(&lab.admin(), &namespace).await;
    made.expect("namespace");
    let director = Director::new(Plan::default());
    let played = ApiServer::new(director, jiff::Timestamp::UNIX_EPOCH, 1);
    played.namespace(NAMESPACE);
    let (mut real, mut played) = (Side::new(lab.admin()), Side::new(played.client()));
    fastrand::seed(11);
    let mut rng = Rng::with_seed(7);
    let (mut met, mut differences) = (BTreeMap::<String, u32>::new(), Vec::<String>::new());
    for number in 0..OPERATIONS {
        let operation = draw(&mut rng);
        let wanted = real.perform(&operation).await;
        let got = played.perform(&operation).await;
        if wanted != got {
            differences.push(format!(
                "operation {number} {operation:?}\n  real   {wanted}\n  played {got}"
            ));
        }
        let kind = wanted["reason"].as_str().unwrap_or("accepted");
        *met.entry(kind.to_owned()).or_default() += 1;
    }
    differences.truncate(10);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    // A comparison without refusals would prove little.
    for kind in [
        "accepted",
        "AlreadyExists",
        "Conflict",
        "NotFound",
        "Invalid",
    ] {
        assert!(met.contains_key(kind), "no {kind} among {met:?}");
    }
    println!("{met:?}");
}
