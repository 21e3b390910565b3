//! One world: API server, vCenter, upstream, and the operator in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError, atomic::AtomicU32},
    time::Duration,
};

use agent_forge_actors::supervisor::SupervisorMsg;
use agent_forge_lab::played::{
    Delays, HostedCluster, HostedClusterPlay, PlayedOptions, Upstream,
    assisted::image_server::ImageServer, nature, options::ImageOptions, task::Task,
};
use anyhow::{Context as _, Result};
use base64::Engine as _;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use crate::{
    director::{ANOTHER_HUB, Director},
    hosted::Hosted,
    iso::Hold,
    kube::{
        ApiServer, kind,
        store::{Kind, Name, list, merge, name_of},
    },
    oracles,
    plan::Plan,
    process::{Heads, LEASE_NAMESPACE, Surroundings, kubelet},
    strangers::Strangers,
    vcenter::{VCenter, model},
};

/// Wall clock at the beginning of every world: 1 January 2026.
const EPOCH: i64 = 1_767_225_600;
/// Namespace of pools, NodePools and Agents.
pub const NAMESPACE: &str = "demo";
/// Namespace and name of the credentials.
pub const SECRET: (&str, &str) = (NAMESPACE, "vsphere-credentials");
/// A password that no object but the Secret may contain.
pub const PASSWORD: &str = "canary-p4ssw0rd";
/// Added to the seed of a second hub, so that it differs from the seeds of all first hubs.
const SECOND: u64 = 1 << 32;
const USER: &str = "operator@vsphere.local";

/// The wall clock of every part except the operator.
#[must_use]
pub fn wall(director: &Director) -> Timestamp {
    let passed = jiff::SignedDuration::try_from(director.now()).unwrap_or_default();
    let epoch = epoch();
    epoch.checked_add(passed).unwrap_or(epoch)
}

fn epoch() -> Timestamp {
    Timestamp::from_second(EPOCH).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Namespace and name of an object in the namespace of the pools.
#[must_use]
pub fn at_home(name: &str) -> Name {
    (NAMESPACE.to_owned(), name.to_owned())
}

/// A world. It ends with its runtime.
pub struct World {
    /// Faults, time and trace.
    pub director: Director,
    /// API server.
    pub api: ApiServer,
    /// vCenter.
    pub vcenter: VCenter,
    /// The simulated controllers of upstream.
    pub upstream: Upstream,
    /// The hosted cluster.
    pub cluster: HostedCluster,
    /// A client that no fault hits.
    pub client: Client,
    /// The NodePools, by name.
    pub node_pools: Vec<(String, HostedClusterPlay)>,
    /// Whether downloads of images send anything.
    pub hold: Hold,
    /// The Nodes of the hosted cluster.
    pub hosted: Hosted,
    /// The seed of all names.
    pub seed: u64,
    /// The API server of a second hub.
    pub second: Option<ApiServer>,
    /// What belongs to somebody else, if the workload has that.
    pub strangers: Option<Strangers>,
    /// ISOs that belong to no pool since a disaster, by datastore and path.
    pub relics: BTreeSet<(String, String)>,
    around: Surroundings,
    tasks: Vec<Task>,
}

impl World {
    /// A world without faults and pools, with one instance of the operator.
    ///
    /// # Errors
    /// A simulated part cannot start, which is a defect of the simulation.
    pub async fn start(name: &str) -> Result<Self> {
        Self::under(Director::new(Plan::without_faults(name, 1)), 1).await
    }

    /// A world that plays the director's plan, with that many instances of the operator and no pools yet.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn under(director: Director, instances: usize) -> Result<Self> {
        let plan = director.plan();
        fastrand::seed(plan.seed);
        nature::simulate(epoch(), plan.seed);
        let api = ApiServer::new(director.clone(), epoch(), plan.seed);
        let vcenter = VCenter::new(director.clone(), model::furnished(USER, PASSWORD));
        oracles::watch(&api, &vcenter);
        let cluster = HostedCluster::new(NAMESPACE, "demo");
        for namespace in [NAMESPACE, &cluster.control_plane_namespace, LEASE_NAMESPACE] {
            api.namespace(namespace);
        }
        credentials(&api, SECRET.0)?;
        capi_cluster(&api, &cluster)?;
        let garbage = Task::spawn(api.clone().collect_garbage());
        let images = ImageServer::unplugged(ImageOptions {
            size: 1,
            volatile: true,
        });
        let client = api.client();
        let upstream = Upstream::start_with(
            &client,
            Some(vcenter.clone()),
            images.clone(),
            played(&cluster),
        )
        .await?;
        upstream
            .service(&cluster.agent_namespace)?
            .create_infra_env("demo", json!({}))
            .await?;
        let (hold, hosted) = (Hold::default(), Hosted::of(&api));
        let around = Surroundings {
            director: director.clone(),
            api: api.clone(),
            vcenter: vcenter.clone(),
            images,
            hold: hold.clone(),
            hosted: hosted.clone(),
            heads: Heads::default(),
            instances,
            lives: Arc::default(),
        };
        let mut tasks = vec![garbage];
        for instance in 0..instances {
            let kubelet = kubelet(around.clone(), instance, director.orders());
            tasks.push(Task::spawn(kubelet));
        }
        Ok(Self {
            director,
            api,
            vcenter,
            upstream,
            cluster,
            client,
            node_pools: Vec::new(),
            hold,
            hosted,
            seed: plan.seed,
            second: None,
            strangers: None,
            relics: BTreeSet::new(),
            around,
            tasks,
        })
    }

    /// Creates a pool and its NodePool. `patch` is merged over the pool's spec.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn pool(&mut self, name: &str, patch: &Value) -> Result<()> {
        let play = pool_of(&self.api, (&self.cluster, &self.upstream), name, patch).await?;
        self.node_pools.push((name.to_owned(), play));
        Ok(())
    }

    /// Creates a pool for a NodePool that is there. `patch` as for [`Self::pool`].
    ///
    /// # Errors
    /// The API server refuses.
    pub fn pool_alone(&self, name: &str, patch: &Value) -> Result<()> {
        create_pool(&self.api, &self.cluster, name, patch)
    }

    /// Adds another hosted cluster of the same namespace, without NodePools.
    ///
    /// # Errors
    /// As [`Self::pool`].
    pub async fn joined(&mut self, name: &str) -> Result<HostedCluster> {
        let cluster = HostedCluster::new(NAMESPACE, name);
        self.api.namespace(&cluster.control_plane_namespace);
        capi_cluster(&self.api, &cluster)?;
        self.upstream.join(cluster.clone()).await?;
        Ok(cluster)
    }

    /// Creates a NodePool that no pool serves. It takes hosts with these labels.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn node_pool(
        &mut self,
        cluster: &HostedCluster,
        name: &str,
        labels: &Value,
    ) -> Result<()> {
        let selector = Some(json!({"matchLabels": labels}));
        let play = self.upstream.node_pool(cluster, name, selector).await?;
        self.node_pools.push((name.to_owned(), play));
        Ok(())
    }

    /// Adds another hosted cluster of the same namespace, with one pool, which boots the same ISO. `patch` as for [`Self::pool`].
    ///
    /// # Errors
    /// As [`Self::pool`].
    pub async fn another_cluster(&mut self, name: &str, pool: &str, patch: &Value) -> Result<()> {
        let cluster = self.joined(name).await?;
        let mut spec = json!({"infraEnvRef": {"name": self.cluster.name}});
        merge(&mut spec, patch);
        let play = pool_of(&self.api, (&cluster, &self.upstream), pool, &spec).await?;
        self.node_pools.push((pool.to_owned(), play));
        Ok(())
    }

    /// Adds a tenant with a namespace, a hosted cluster and an upstream of its own, all of that name, and with one pool.
    ///
    /// # Errors
    /// As [`Self::pool`].
    pub async fn another_tenant(
        &self,
        name: &str,
        pool: &str,
    ) -> Result<(Upstream, HostedClusterPlay)> {
        let cluster = HostedCluster::new(name, name);
        for namespace in [name, &cluster.control_plane_namespace] {
            self.api.namespace(namespace);
        }
        credentials(&self.api, name)?;
        let (vcenter, images) = (self.vcenter.clone(), self.around.images.clone());
        let upstream =
            Upstream::start_with(&self.client, Some(vcenter), images, played(&cluster)).await?;
        let service = upstream.service(name)?;
        service.create_infra_env(name, json!({})).await?;
        let play = pool_of(&self.api, (&cluster, &upstream), pool, &json!({})).await?;
        Ok((upstream, play))
    }

    /// Deletes a pool, as a person does.
    ///
    /// # Errors
    /// There is no such pool.
    pub fn delete_pool(&self, name: &str) -> Result<()> {
        let pools = kind("vsphereagentpools");
        self.api.delete(&pools, &at_home(name))?;
        Ok(())
    }

    /// Merges a patch into a pool, as a person does.
    ///
    /// # Errors
    /// There is no such pool.
    pub fn merge_pool(&self, name: &str, patch: &Value) -> Result<()> {
        let pools = kind("vsphereagentpools");
        self.api.merge(&pools, &at_home(name), patch)?;
        Ok(())
    }

    /// The NodePool of that name.
    ///
    /// # Errors
    /// There is no such NodePool.
    pub fn play(&self, name: &str) -> Result<&HostedClusterPlay> {
        let found = self.node_pools.iter().find(|(n, _)| n == name);
        found
            .map(|(_, p)| p)
            .with_context(|| format!("no NodePool {name}"))
    }

    /// Starts a second hub on the same vCenter, with an operator of its own. It gets the objects of the first hub that
    /// `manifests` selects, with or without status. `None` leaves an object out.
    ///
    /// # Errors
    /// The API server of the second hub refuses an object.
    pub fn second_hub(
        &mut self,
        manifests: impl Fn(&Kind, &Value) -> Option<Value>,
    ) -> Result<ApiServer> {
        let api = ApiServer::new(self.director.clone(), epoch(), self.seed + SECOND);
        for namespace in [NAMESPACE, &self.cluster.control_plane_namespace] {
            api.namespace(namespace);
        }
        let backup: Vec<(Kind, Value)> = self.api.read(|s| {
            let of = |(kind, objects): (&Kind, &BTreeMap<Name, Arc<Value>>)| {
                let all = objects.values().filter_map(|o| manifests(kind, o));
                all.map(|o| (kind.clone(), o)).collect::<Vec<_>>()
            };
            s.objects.iter().flat_map(of).collect()
        });
        for (kind, object) in backup {
            transplant(&api, &kind, object)?;
        }
        let around = Surroundings {
            api: api.clone(),
            instances: 1,
            lives: Arc::new(AtomicU32::new(ANOTHER_HUB)),
            ..self.around.clone()
        };
        let instance = self.around.instances;
        let kubelet = kubelet(around, instance, self.director.orders());
        self.tasks.push(Task::spawn(kubelet));
        self.second = Some(api.clone());
        Ok(api)
    }

    /// The operator's actors, by kind.
    pub async fn actors(&self) -> BTreeMap<String, usize> {
        let heads = self
            .around
            .heads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut kinds = BTreeMap::new();
        for head in heads.values() {
            let told = head
                .call(SupervisorMsg::Describe, Some(Duration::from_secs(30)))
                .await;
            if let Ok(ractor::rpc::CallResult::Success(all)) = told {
                for actor in all {
                    let kind = actor.name.split('/').next().unwrap_or_default();
                    *kinds.entry(kind.to_owned()).or_default() += 1;
                }
            }
        }
        kinds
    }

    /// The value of a pool at that pointer. Null when there is none.
    #[must_use]
    pub fn of_pool(&self, name: &str, pointer: &str) -> Value {
        let pool = self.api.get(&kind("vsphereagentpools"), &at_home(name));
        pool.and_then(|p| p.pointer(pointer).cloned())
            .unwrap_or_default()
    }

    /// The condition of that type of a pool. Null when there is none.
    #[must_use]
    pub fn condition(&self, pool: &str, type_: &str) -> Value {
        let conditions = self.of_pool(pool, "/status/conditions");
        let mut all = list(&conditions, "").iter();
        all.find(|c| c["type"] == type_)
            .cloned()
            .unwrap_or_default()
    }

    /// The names of the Machines of that NodePool that run.
    #[must_use]
    pub fn running(&self, pool: &str) -> Vec<String> {
        self.play(pool).map(|p| p.running()).unwrap_or_default()
    }

    /// The number of Machines of that NodePool.
    #[must_use]
    pub fn machines(&self, pool: &str) -> usize {
        self.play(pool).map_or(0, |p| p.machines().len())
    }

    /// Whether that NodePool has so many Machines, and all of them run.
    #[must_use]
    pub fn runs(&self, pool: &str, machines: usize) -> bool {
        self.machines(pool) == machines && self.running(pool).len() == machines
    }

    /// The VsphereAgents of all namespaces.
    #[must_use]
    pub fn vsphere_agents(&self) -> Vec<Arc<Value>> {
        self.api.list(&kind("vsphereagents"), "")
    }

    /// The VMs with our marker.
    #[must_use]
    pub fn our_vms(&self) -> Vec<model::Vm> {
        let all = |i: &model::Inventory| -> Vec<_> {
            let ours = i.vms.values().filter(|vm| oracles::marker(vm).is_some());
            ours.cloned().collect()
        };
        self.vcenter.read(all)
    }

    /// Changes the first VM of ours.
    ///
    /// # Errors
    /// There is none.
    pub fn change_vm<T>(&self, change: impl FnOnce(&mut model::Vm) -> T) -> Result<T> {
        let changed = self.vcenter.write(|i| {
            let mut all = i.vms.values_mut();
            all.find(|vm| oracles::marker(vm).is_some()).map(change)
        });
        changed.context("a VM of ours")
    }

    /// The first VM of ours.
    ///
    /// # Errors
    /// There is none.
    pub fn vm_of_ours(&self) -> Result<model::Vm> {
        self.our_vms().into_iter().next().context("a VM of ours")
    }

    /// Waits until `done`, and checks twice a second.
    ///
    /// # Errors
    /// It does not happen within `limit`.
    pub async fn until(
        &self,
        what: &str,
        limit: Duration,
        done: impl FnMut() -> bool,
    ) -> Result<()> {
        self.within(what, || limit, done).await
    }

    /// Like [`Self::until`], with more time: as long as the causes of all planned faults last. This includes faults
    /// that the run learns of while it waits.
    ///
    /// # Errors
    /// As [`Self::until`].
    pub async fn patiently(
        &self,
        what: &str,
        patience: Duration,
        done: impl FnMut() -> bool,
    ) -> Result<()> {
        let limit = || patience + self.director.causes();
        self.within(what, limit, done).await
    }

    async fn within(
        &self,
        what: &str,
        limit: impl Fn() -> Duration,
        mut done: impl FnMut() -> bool,
    ) -> Result<()> {
        let began = self.director.now();
        while !done() {
            let limit = limit();
            let passed = self.director.now().saturating_sub(began);
            anyhow::ensure!(passed < limit, "not within {limit:?}: {what}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }
}

/// Creates the credentials in that namespace.
fn credentials(api: &ApiServer, namespace: &str) -> Result<()> {
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET.1},
        "data": {"server": encoded("https://vcenter.example"), "username": encoded(USER), "password": encoded(PASSWORD)},
    });
    api.create(&kind("secrets"), namespace, secret)?;
    Ok(())
}

/// Creates the Cluster of that hosted cluster, as HyperShift does.
fn capi_cluster(api: &ApiServer, cluster: &HostedCluster) -> Result<()> {
    let home = &cluster.control_plane_namespace;
    let object = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": cluster.name}, "spec": {},
    });
    let clusters = kind("clusters");
    api.create(&clusters, home, object)?;
    Ok(())
}

/// Creates a pool and its NodePool for that hosted cluster.
async fn pool_of(
    api: &ApiServer,
    (cluster, upstream): (&HostedCluster, &Upstream),
    name: &str,
    patch: &Value,
) -> Result<HostedClusterPlay> {
    create_pool(api, cluster, name, patch)?;
    let selector = json!({"matchLabels": {"hypershift.openshift.io/nodepool-role": name}});
    upstream.node_pool(cluster, name, Some(selector)).await
}

/// Creates a pool for that hosted cluster. Its InfraEnv and VM folder have the cluster's name.
fn create_pool(api: &ApiServer, cluster: &HostedCluster, name: &str, patch: &Value) -> Result<()> {
    let mut spec = json!({
        "hostedClusterRef": {"name": cluster.name},
        "nodePoolRef": {"name": name},
        "infraEnvRef": {"name": cluster.name},
        "controlPlaneNamespace": cluster.control_plane_namespace,
        "vsphere": {
            "credentialsSecretRef": {"name": SECRET.1},
            "datacenter": "dc1",
            "datastoreCluster": "workload-datastore-cluster",
            "isoDatastore": "iso-datastore",
            "resourcePool": "cluster/Resources",
            "folder": cluster.name,
            "network": "VM Network",
            "vmTags": ["urn:vmomi:InventoryServiceTag:1:GLOBAL"],
        },
        "template": {},
        "agent": {"labels": {"customer": "example", "hypershift.openshift.io/nodepool-role": name}},
    });
    merge(&mut spec, patch);
    let object = json!({
        "apiVersion": "agent-forge.containeroo.ch/v1alpha1", "kind": "VsphereAgentPool",
        "metadata": {"name": name}, "spec": spec,
    });
    let pools = kind("vsphereagentpools");
    api.create(&pools, &cluster.namespace, object)?;
    Ok(())
}

/// Copies an object of another API server into this one, under a uid of its own.
fn transplant(api: &ApiServer, kind: &Kind, object: Value) -> Result<()> {
    let name = name_of(&object);
    let status = object.get("status").cloned();
    api.create(kind, &name.0, object)?;
    if let Some(status) = status {
        api.set_status(kind, &name, &status)?;
    }
    Ok(())
}

/// The controllers of that hosted cluster, with delays that are long enough for a crash between any two steps.
fn played(cluster: &HostedCluster) -> PlayedOptions {
    let delays = Delays {
        agent_poll: Duration::from_secs(5),
        monitor: Duration::from_secs(5),
        hook_poll: Duration::from_secs(10),
        ..Delays::default()
    };
    PlayedOptions {
        clusters: vec![cluster.clone()],
        delays,
        ..PlayedOptions::default()
    }
}
