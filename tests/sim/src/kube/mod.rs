//! A simulated API server under kube's client: it receives real requests and sends real replies.
//!
//! Flow: [`Door`] is the tower service. It reads a request, applies the planned fault, and calls [`store::Store`].
//! Watches read the store's log. [`ApiServer::collect_garbage`] plays the controller manager.
//! Assumption: a request that is not simulated causes a panic, never a wrong answer.

pub mod path;
pub mod service;
pub mod store;
pub mod watch;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::Client;
use serde_json::{Value, json};

use self::{
    service::Door,
    store::{Kind, Moment, Name, Refusal, Store, Written},
};
use crate::{
    director::{Director, Life},
    news::News,
};

/// Time from the end of an owner to the end of its objects.
const GARBAGE_DELAY: Duration = Duration::from_millis(300);
/// The longest pause between two kinds while a namespace is deleted.
const LONGEST_KIND: Duration = Duration::from_secs(3);
/// With this seed, a namespace's kinds are deleted in alphabetical order, without pauses.
const IN_ORDER: u64 = 1;

/// The simulated API server. Cheap to clone.
#[derive(Clone)]
pub struct ApiServer {
    store: Arc<Mutex<Store>>,
    changed: News,
    /// Time and faults.
    pub director: Director,
    epoch: jiff::Timestamp,
}

/// API group of the operator's own kinds.
pub const OURS: &str = "agent-forge.containeroo.ch";
/// API group of Agents.
const ASSISTED: &str = "agent-install.openshift.io";
/// API group of AgentMachines.
const PROVIDER: &str = "capi-provider.agent-install.openshift.io";
/// API group of Clusters and Machines.
const CAPI: &str = "cluster.x-k8s.io";
/// API group of BYOH.
const BYOH: &str = "infrastructure.cluster.x-k8s.io";
/// API group of HyperShift. Few workloads need it, so [`ApiServer::hosted_cluster`] serves it.
const HYPERSHIFT: &str = "hypershift.openshift.io";

/// Group, plural and name of each kind.
const KINDS: &[(&str, &str, &str)] = &[
    ("", "namespaces", "Namespace"),
    ("", "secrets", "Secret"),
    ("events.k8s.io", "events", "Event"),
    ("coordination.k8s.io", "leases", "Lease"),
    (OURS, "vsphereagentpools", "VsphereAgentPool"),
    (OURS, "vsphereagents", "VsphereAgent"),
    (ASSISTED, "agents", "Agent"),
    (ASSISTED, "infraenvs", "InfraEnv"),
    (PROVIDER, "agentmachines", "AgentMachine"),
    (PROVIDER, "agentmachinetemplates", "AgentMachineTemplate"),
    (CAPI, "clusters", "Cluster"),
    (CAPI, "machines", "Machine"),
    (CAPI, "machinesets", "MachineSet"),
    (CAPI, "machinedeployments", "MachineDeployment"),
    (
        OURS,
        "agentforgeinstallerconfigs",
        "AgentForgeInstallerConfig",
    ),
    (BYOH, "byomachines", "ByoMachine"),
    (BYOH, "byohosts", "ByoHost"),
    (HYPERSHIFT, "nodepools", "NodePool"),
    (HYPERSHIFT, "hostedclusters", "HostedCluster"),
];

/// The versions of a group, the stored one first.
fn versions(group: &str) -> &'static [&'static str] {
    match group {
        OURS => &["v1alpha1"],
        ASSISTED | PROVIDER | HYPERSHIFT | BYOH => &["v1beta1"],
        CAPI => &["v1beta2", "v1beta1"],
        _ => &["v1"],
    }
}

impl ApiServer {
    /// An API server that serves all kinds and holds `kube-system`.
    #[must_use]
    pub fn new(director: Director, epoch: jiff::Timestamp, seed: u64) -> Self {
        let mut store = Store::default();
        store.seed = seed;
        for (_, plural, _) in KINDS.iter().filter(|(group, ..)| *group != HYPERSHIFT) {
            store.serve(plural);
        }
        let server = Self {
            store: Arc::new(Mutex::new(store)),
            changed: News::default(),
            director,
            epoch,
        };
        server.namespace("kube-system");
        server
    }

    /// Serves HostedClusters from now on, and holds one of that name, as a hub with HyperShift does.
    pub fn hosted_cluster(&self, namespace: &str, name: &str) {
        let object = json!({
            "apiVersion": format!("{HYPERSHIFT}/v1beta1"), "kind": "HostedCluster", "metadata": {"name": name}, "spec": {},
        });
        let created = self.write(|s, now| {
            s.serve("hostedclusters");
            s.create(&kind("hostedclusters"), namespace, object, now)
        });
        assert!(created.is_ok(), "{created:?}");
    }

    /// Creates a namespace.
    pub fn namespace(&self, name: &str) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let created = self.write(|s, now| s.create(&kind("namespaces"), "", object, now));
        assert!(created.is_ok(), "{created:?}");
    }

    /// A client whose requests no fault hits.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client_through(None)
    }

    /// A client of the operator.
    #[must_use]
    pub fn client_of(&self, life: &Arc<Life>) -> Client {
        self.client_through(Some(life.clone()))
    }

    fn client_through(&self, life: Option<Arc<Life>>) -> Client {
        let server = self.clone();
        Client::new(Door { server, life }, "default")
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Now.
    #[must_use]
    pub fn moment(&self) -> Moment {
        let since = self.director.now();
        let passed = jiff::SignedDuration::try_from(since).unwrap_or_default();
        Moment {
            wall: self.epoch.checked_add(passed).unwrap_or(self.epoch),
            since,
        }
    }

    /// Reads the objects.
    pub fn read<T>(&self, look: impl FnOnce(&Store) -> T) -> T {
        look(&self.lock())
    }

    /// One object.
    #[must_use]
    pub fn get(&self, kind: &Kind, name: &Name) -> Option<Arc<Value>> {
        self.read(|s| s.get(kind, name))
    }

    /// All objects of a kind, of one namespace if that is not empty.
    #[must_use]
    pub fn list(&self, kind: &Kind, namespace: &str) -> Vec<Arc<Value>> {
        self.read(|s| s.list(kind, namespace))
    }

    /// Writes directly, without a request. Watches see the change.
    pub fn write<T>(&self, write: impl FnOnce(&mut Store, Moment) -> T) -> T {
        let now = self.moment();
        let mut store = self.lock();
        let before = store.revision();
        let result = write(&mut store, now);
        let news = store.revision() != before;
        drop(store);
        if news {
            self.changed.tell();
        }
        result
    }

    /// Merges a patch into an object, as somebody else does.
    ///
    /// # Errors
    /// There is no such object, or the server refuses.
    pub fn merge(&self, kind: &Kind, name: &Name, patch: &Value) -> Written {
        self.write(|s, now| {
            s.update(kind, name, (store::Via::Patch, false), now, |mut o| {
                store::merge(&mut o, patch);
                o
            })
        })
    }

    /// Replaces the status of an object, as somebody else does.
    ///
    /// # Errors
    /// As [`Self::merge`].
    pub fn set_status(&self, kind: &Kind, name: &Name, status: &Value) -> Written {
        self.write(|s, now| s.set_status(kind, name, status, now))
    }

    /// Creates an object, as somebody else does.
    ///
    /// # Errors
    /// The server refuses.
    pub fn create(&self, kind: &Kind, namespace: &str, object: Value) -> Written {
        self.write(|s, now| s.create(kind, namespace, object, now))
    }

    /// Deletes an object, as somebody else does.
    ///
    /// # Errors
    /// There is no such object.
    pub fn delete(&self, kind: &Kind, name: &Name) -> Result<(), store::Refusal> {
        self.write(|s, now| s.delete(kind, name, &json!({}), now))
            .map(drop)
    }

    /// Makes every watch list again: those that run, and those that want to resume.
    pub fn compact(&self) {
        let mut store = self.lock();
        store.skip();
        store.compacted = store.revision();
        drop(store);
        self.poke();
    }

    /// Wakes all watches.
    pub fn poke(&self) {
        self.changed.tell();
    }

    /// Removes objects that have lost all their owners, and the content of namespaces in deletion, until this is
    /// dropped.
    pub async fn collect_garbage(self) {
        let mut changed = self.changed.listener();
        let seed = self.read(|s| s.seed);
        let mut chance = (seed != IN_ORDER).then(|| fastrand::Rng::with_seed(seed));
        loop {
            tokio::time::sleep(GARBAGE_DELAY).await;
            let orphans = self.read(Store::orphans);
            for (kind, name, uid) in orphans {
                let gone: Result<_, Refusal> =
                    self.write(|s, now| s.delete(&kind, &name, &json!({ "uid": uid }), now));
                self.director
                    .line(|| format!("garbage {}/{} {:?}", name.0, name.1, gone.is_ok()));
            }
            // An object with two owners loses the reference to the one that is gone.
            for (kind, name, left) in self.read(Store::half_orphans) {
                let patch = json!({"metadata": {"ownerReferences": left}});
                // It is fine if the object is gone already.
                let _ = self.merge(&kind, &name, &patch);
            }
            self.empty_namespaces(chance.as_mut()).await;
            changed.news().await;
        }
    }

    /// One round of the namespace controller. It deletes one kind after the other, in a random order.
    ///
    /// Without `chance`, the kinds are in the alphabetical order of their API groups, so Secrets come first.
    async fn empty_namespaces(&self, mut chance: Option<&mut fastrand::Rng>) {
        let namespaces = kind("namespaces");
        let going: Vec<String> = self.read(|s| {
            let all = s.list(&namespaces, "");
            let going = all.iter().filter(|n| store::is_deleting(n));
            going.map(|n| store::name_of(n).1).collect()
        });
        for namespace in going {
            let mut kinds: Vec<Kind> = self.read(|s| {
                s.objects
                    .iter()
                    .filter(|(_, all)| all.keys().any(|n| n.0 == namespace))
                    .map(|(kind, _)| kind.clone())
                    .collect()
            });
            if kinds.is_empty() {
                self.write(|s, now| s.evict(&namespaces, &(String::new(), namespace.clone()), now));
            }
            if let Some(chance) = &mut chance {
                chance.shuffle(&mut kinds);
            }
            for kind in kinds {
                self.empty(&kind, &namespace);
                if let Some(chance) = &mut chance {
                    tokio::time::sleep(LONGEST_KIND.mul_f64(chance.f64())).await;
                }
            }
        }
    }

    fn empty(&self, kind: &Kind, namespace: &str) {
        let names: Vec<Name> = self.read(|s| {
            let all = s.objects.get(kind).into_iter().flat_map(|all| all.keys());
            all.filter(|n| n.0 == namespace).cloned().collect()
        });
        for name in names {
            // It is fine if the object is gone already.
            let _ = self.delete(kind, &name);
        }
    }
}

/// The kind with that plural.
///
/// # Panics
/// There is none.
#[must_use]
pub fn kind(plural: &str) -> Kind {
    let row = KINDS.iter().find(|(_, known, _)| *known == plural);
    let (group, ..) = row.unwrap_or_else(|| panic!("no kind is called {plural}"));
    ((*group).to_owned(), plural.to_owned())
}
