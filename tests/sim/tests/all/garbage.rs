//! Compares the simulated garbage collector and namespace controller with the real kube-controller-manager. Owners and
//! namespaces are deleted, and the same objects have to be left at the end.
//!
//! Each side may take its own time and its own order, so the test compares only the final objects.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use agent_forge_crds::{VsphereAgent, names::AGENT_FINALIZER};
use agent_forge_lab::{Lab, LabOptions, install_tls_provider, patience::HANG};
use agent_forge_sim::{
    director::Director,
    kube::{ApiServer, kind, store::is_deleting},
    plan::Plan,
};
use fastrand::Rng;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// Pause between two checks of what the controllers did.
const LOOK: Duration = Duration::from_millis(100);
const OWNERS: [&str; 2] = ["owner-0", "owner-1"];

/// One side.
struct Side {
    namespace: String,
    agents: Api<VsphereAgent>,
    namespaces: Api<Namespace>,
    uids: BTreeMap<String, String>,
}

impl Side {
    async fn new(client: Client, namespace: &str) -> Self {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let made =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let made = serde_json::from_value(made).expect("a namespace");
        let post = PostParams::default();
        namespaces.create(&post, &made).await.expect("a namespace");
        Self {
            namespace: namespace.to_owned(),
            agents: Api::namespaced(client, namespace),
            namespaces,
            uids: BTreeMap::new(),
        }
    }

    async fn create(&mut self, name: &str, owners: &[&str], finalizers: &[&str]) {
        let owner = |name: &&str| {
            json!({"apiVersion": "agent-forge.containeroo.ch/v1alpha1", "kind": "VsphereAgent", "name": name,
                "uid": self.uids[*name], "blockOwnerDeletion": true})
        };
        let owners: Vec<Value> = owners.iter().map(owner).collect();
        let object = json!({
            "apiVersion": "agent-forge.containeroo.ch/v1alpha1", "kind": "VsphereAgent",
            "metadata": {"name": name, "finalizers": finalizers, "ownerReferences": owners},
            "spec": {"poolRef": {"name": "pool"}},
        });
        let object = serde_json::from_value(object).expect("an object");
        let made = self.agents.create(&PostParams::default(), &object).await;
        let uid = made.expect("it is new").uid().expect("a uid");
        self.uids.insert(name.to_owned(), uid);
    }

    async fn delete(&self, name: &str) {
        let deleted = self.agents.delete(name, &DeleteParams::background()).await;
        deleted.expect("it is there");
    }

    async fn delete_namespace(&self) {
        let how = DeleteParams::default();
        let deleted = self.namespaces.delete(&self.namespace, &how).await;
        deleted.expect("it is there");
    }

    /// Removes the finalizers of all objects in deletion.
    async fn let_go(&self) {
        let (bare, patch) = (
            Patch::Merge(json!({"metadata": {"finalizers": null}})),
            PatchParams::default(),
        );
        for object in self.agents.list(&Default::default()).await.expect("a list") {
            if object.metadata.deletion_timestamp.is_some() {
                let done = self.agents.patch(&object.name_any(), &patch, &bare).await;
                done.expect("it waits for that");
            }
        }
    }

    async fn picture(&self) -> Value {
        let all = self.agents.list(&Default::default()).await.expect("a list");
        let told = |o: &VsphereAgent| {
            let owners = o.owner_references().iter();
            let owners: Vec<&str> = owners.map(|r| r.name.as_str()).collect();
            let deleting = o.metadata.deletion_timestamp.is_some();
            let shown =
                json!({"deleting": deleting, "finalizers": o.finalizers(), "owners": owners});
            (o.name_any(), shown)
        };
        let objects: BTreeMap<String, Value> = all.iter().map(told).collect();
        let there = self.namespaces.get_opt(&self.namespace).await;
        let going = there
            .expect("an answer")
            .map(|n| n.metadata.deletion_timestamp.is_some());
        json!({"objects": objects, "namespace is going": going})
    }
}

/// Whether the controllers have nothing left to do.
fn is_done(played: &ApiServer, namespace: &str) -> bool {
    played.read(|store| {
        let home = (String::new(), namespace.to_owned());
        let home = store.get(&kind("namespaces"), &home);
        let going = home.is_some_and(|home| is_deleting(&home));
        let agents = store.list(&kind("vsphereagents"), namespace);
        let stays = |o: &Arc<Value>| !is_deleting(o);
        // Empty lists are dropped.
        let left = going && (agents.is_empty() || agents.iter().any(stays));
        store.orphans().is_empty() && store.half_orphans().is_empty() && !left
    })
}

async fn agree(real: &Side, played: &Side, server: &ApiServer, what: &str) {
    let differ = std::sync::Mutex::new(String::new());
    let settled = async {
        while !is_done(server, &played.namespace) {
            tokio::time::sleep(LOOK).await;
        }
        let wanted = played.picture().await;
        loop {
            let got = real.picture().await;
            if got == wanted {
                return;
            }
            *differ.lock().expect("one at a time") = format!("real   {got}\nplayed {wanted}");
            tokio::time::sleep(LOOK).await;
        }
    };
    let agreed = tokio::time::timeout(HANG, settled).await;
    let differ = differ.lock().expect("one at a time");
    assert!(agreed.is_ok(), "{what}: they never agreed\n{differ}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_loses_its_owner_or_its_namespace_goes_as_with_the_real_controllers() {
    install_tls_provider();
    let lab = Lab::start(LabOptions::default()).await.expect("a lab");
    let director = Director::new(Plan::default());
    let server = ApiServer::new(director, jiff::Timestamp::UNIX_EPOCH, 1);
    let controllers = tokio::spawn(server.clone().collect_garbage());
    for seed in 0..4 {
        let mut rng = Rng::with_seed(seed);
        let namespace = format!("garbage-{seed}");
        let mut real = Side::new(lab.admin(), &namespace).await;
        let mut played = Side::new(server.client(), &namespace).await;
        for owner in OWNERS {
            let held = rng.bool().then_some(AGENT_FINALIZER);
            for side in [&mut real, &mut played] {
                side.create(owner, &[], held.as_slice()).await;
            }
        }
        for n in 0..6 {
            let owners: Vec<&str> = OWNERS.into_iter().filter(|_| rng.u8(..3) > 0).collect();
            let held = rng.bool().then_some(AGENT_FINALIZER);
            for side in [&mut real, &mut played] {
                let name = format!("agent-{n}");
                side.create(&name, &owners, held.as_slice()).await;
            }
        }
        let agree = async |what: String| {
            agree(&real, &played, &server, &format!("seed {seed}: {what}")).await;
        };
        let let_go = async || {
            for side in [&real, &played] {
                side.let_go().await;
            }
        };
        for (n, owner) in OWNERS.into_iter().enumerate() {
            for side in [&real, &played] {
                side.delete(owner).await;
            }
            agree(format!("{n} deleted")).await;
            let_go().await;
            agree(format!("{n} let go")).await;
        }
        for side in [&real, &played] {
            side.delete_namespace().await;
        }
        agree("namespace deleted".to_owned()).await;
        let_go().await;
        let gone = json!({"objects": {}, "namespace is going": null});
        let end = async {
            while played.picture().await != gone || real.picture().await != gone {
                tokio::time::sleep(LOOK).await;
            }
        };
        let ended = tokio::time::timeout(HANG, end).await;
        assert!(ended.is_ok(), "seed {seed}: the namespace stays");
    }
    controllers.abort();
}
