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
    store::{Kind, Moment, Name, Refusal, Served, Store, Written},
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

/// Group, plural, kind, versions, namespaced, status.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    bool,
    bool,
);

/// Group and plural of HostedClusters, which few workloads need.
pub const HOSTED_CLUSTERS: (&str, &str) = ("hypershift.openshift.io", "hostedclusters");

const KINDS: &[Row] = &[
    ("", "namespaces", "Namespace", &["v1"], false, true),
    ("", "secrets", "Secret", &["v1"], true, false),
    ("events.k8s.io", "events", "Event", &["v1"], true, false),
    (
        "coordination.k8s.io",
        "leases",
        "Lease",
        &["v1"],
        true,
        false,
    ),
    (
        "agent-forge.containeroo.ch",
        "vsphereagentpools",
        "VsphereAgentPool",
        &["v1alpha1"],
        true,
        true,
    ),
    (
        "agent-forge.containeroo.ch",
        "vsphereagents",
        "VsphereAgent",
        &["v1alpha1"],
        true,
        true,
    ),
    (
        "agent-install.openshift.io",
        "agents",
        "Agent",
        &["v1beta1"],
        true,
        true,
    ),
    (
        "agent-install.openshift.io",
        "infraenvs",
        "InfraEnv",
        &["v1beta1"],
        true,
        true,
    ),
    (
        "capi-provider.agent-install.openshift.io",
        "agentmachines",
        "AgentMachine",
        &["v1beta1"],
        true,
        true,
    ),
    (
        "capi-provider.agent-install.openshift.io",
        "agentmachinetemplates",
        "AgentMachineTemplate",
        &["v1beta1"],
        true,
        true,
    ),
    (
        "cluster.x-k8s.io",
        "clusters",
        "Cluster",
        &["v1beta2", "v1beta1"],
        true,
        true,
    ),
    (
        "cluster.x-k8s.io",
        "machines",
        "Machine",
        &["v1beta2", "v1beta1"],
        true,
        true,
    ),
    (
        "cluster.x-k8s.io",
        "machinesets",
        "MachineSet",
        &["v1beta2", "v1beta1"],
        true,
        true,
    ),
    (
        "cluster.x-k8s.io",
        "machinedeployments",
        "MachineDeployment",
        &["v1beta2", "v1beta1"],
        true,
        true,
    ),
];

impl ApiServer {
    /// An API server that serves all kinds and holds `kube-system`.
    #[must_use]
    pub fn new(director: Director, epoch: jiff::Timestamp, seed: u64) -> Self {
        let mut store = Store::default();
        store.seed = seed;
        for (group, plural, kind, versions, namespaced, status) in KINDS {
            store.serve(
                group,
                plural,
                Served {
                    kind: (*kind).to_owned(),
                    versions: versions.iter().map(|v| (*v).to_owned()).collect(),
                    namespaced: *namespaced,
                    status: *status,
                },
            );
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
        let served = Served {
            kind: "HostedCluster".to_owned(),
            versions: vec!["v1beta1".to_owned()],
            namespaced: true,
            status: true,
        };
        let (group, plural) = HOSTED_CLUSTERS;
        let object = json!({
            "apiVersion": format!("{group}/v1beta1"), "kind": "HostedCluster", "metadata": {"name": name}, "spec": {},
        });
        let created = self.write(|s, now| {
            s.serve(group, plural, served);
            s.create(&kind(group, plural), namespace, object, now)
        });
        assert!(created.is_ok(), "{created:?}");
    }

    /// Creates a namespace.
    pub fn namespace(&self, name: &str) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let created = self.write(|s, now| s.create(&kind("", "namespaces"), "", object, now));
        assert!(created.is_ok(), "{created:?}");
    }

    /// A client whose requests no fault hits.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(
            Door {
                server: self.clone(),
                life: None,
            },
            "default",
        )
    }

    /// A client of the operator.
    #[must_use]
    pub fn client_of(&self, life: &Arc<Life>) -> Client {
        Client::new(
            Door {
                server: self.clone(),
                life: Some(life.clone()),
            },
            "default",
        )
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
        let namespaces = kind("", "namespaces");
        let going: Vec<String> = self.read(|s| {
            s.list(&namespaces, "")
                .iter()
                .filter(|n| n.pointer("/metadata/deletionTimestamp").is_some())
                .filter_map(|n| n.pointer("/metadata/name")?.as_str().map(str::to_owned))
                .collect()
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

/// A kind by group and plural.
#[must_use]
pub fn kind(group: &str, plural: &str) -> Kind {
    (group.to_owned(), plural.to_owned())
}
