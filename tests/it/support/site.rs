//! A separate vCenter in a shared world, with guests, a pool and a NodePool. Tests with failing vCenters run side by
//! side and do not affect each other, and one lab serves them all.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agent_forge_crds::conditions::find_condition;
use agent_forge_lab::{
    lab::manifest::credentials,
    parts::{VCenterAdmin, VCenterOptions, VCenterProcess},
    played::{HostedClusterPlay, PlayedOptions, guests::Guests},
};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::world::{LIMIT, World};

/// See the module.
pub struct Site {
    /// Name of pool, NodePool and Secret.
    pub name: String,
    pub admin: VCenterAdmin,
    pub nodes: HostedClusterPlay,
    pub process: VCenterProcess,
    _guests: Guests,
    eyes: Eyes,
}

/// Reads every version of the inventory.
struct Eyes {
    task: JoinHandle<()>,
    /// The highest number of VMs at the same time, in total and by name; and every VM that ever existed.
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    most: usize,
    per_name: BTreeMap<String, usize>,
    ever: BTreeMap<String, String>,
}

impl Eyes {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Eyes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn watch(admin: VCenterAdmin) -> Eyes {
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let notes = Arc::clone(&seen);
    let task = tokio::spawn(async move {
        let mut version = 0;
        loop {
            let Ok(now) = admin.changed_since(version, Duration::from_secs(60)).await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            version = now.version;
            let mut seen = notes.lock().unwrap_or_else(PoisonError::into_inner);
            seen.most = seen.most.max(now.vms.len());
            let mut names: BTreeMap<&str, usize> = BTreeMap::new();
            for vm in &now.vms {
                *names.entry(&vm.name).or_default() += 1;
                seen.ever.insert(vm.moref.clone(), vm.name.clone());
            }
            for (name, count) in names {
                let most = seen.per_name.entry(name.to_owned()).or_default();
                *most = (*most).max(count);
            }
        }
    });
    Eyes { task, seen }
}

impl Site {
    /// Starts vCenter and guests. There is no Secret, no pool and no machine yet.
    pub async fn start(world: &World, name: &str, options: VCenterOptions) -> Result<Self> {
        let process = world.lab.start_vcenter(options).await?;
        let admin = process.admin()?;
        let service = world.upstream.service(&world.cluster.agent_namespace)?;
        let services = BTreeMap::from([(world.cluster.agent_namespace.clone(), service.clone())]);
        let played = PlayedOptions {
            clusters: vec![world.cluster.clone()],
            delays: world.setup.delays.clone(),
            ..PlayedOptions::default()
        };
        let guests = Guests::start(admin.clone(), services, &played).await?;
        // The sites share the namespace of the Agents, so each has its own selector.
        let selector = json!({"matchLabels": {"customer": name}});
        let nodes = world
            .upstream
            .node_pool(&world.cluster, name, Some(selector))
            .await?;
        let eyes = watch(admin.clone());
        Ok(Self {
            name: name.to_owned(),
            admin,
            nodes,
            process,
            _guests: guests,
            eyes,
        })
    }

    /// Creates Secret and pool. `patch` is merged over the pool's spec.
    pub async fn open(&self, world: &World, patch: &Value) -> Result<()> {
        let data = credentials(&self.process);
        world
            .set_secret_data(world.namespace(), &self.name, data)
            .await?;
        let mut patch = patch.clone();
        patch["vsphere"]["credentialsSecretRef"] = json!({"name": self.name});
        patch["vsphere"]["folder"] = json!(self.name);
        patch["agent"]["labels"]["customer"] = json!(self.name);
        world.create_pool(&self.name, &patch).await
    }

    /// The same, with one machine that runs.
    pub async fn up(&self, world: &World, patch: &Value) -> Result<()> {
        self.open(world, patch).await?;
        self.nodes.scale(1);
        self.running(world, 1).await
    }

    /// Waits until the pool shows a failure of vCenter or of its ISO with this reason. Returns the message.
    pub async fn until_trouble(&self, world: &World, reason: &str) -> Result<String> {
        let mut said = String::new();
        let shown = async || {
            let status = world.pools().get(&self.name).await?.status;
            let conditions = status.unwrap_or_default().conditions;
            let mut found = ["VsphereReady", "ISOReady"]
                .into_iter()
                .filter_map(|type_| find_condition(&conditions, type_));
            let found = found.find(|c| c.status == "False" && c.reason == reason);
            Ok(found.map(|c| said.clone_from(&c.message)).is_some())
        };
        let what = format!("condition with reason {reason}");
        let waited = world.until(&what, shown).await;
        self.explained(world, waited).await?;
        Ok(said)
    }

    /// Waits until this site's ISO cache counts a failure. The pool's condition then says that there is no ISO.
    pub async fn until_iso_failed(&self, world: &World) -> Result<String> {
        let server = self.process.url().trim_start_matches("https://");
        let mine = |actor: &Value| {
            let state = &actor["state"];
            let key = state["key"].as_str().unwrap_or_default();
            key.starts_with(server) && state["failures"].as_u64() > Some(0)
        };
        let failed = async || Ok(world.actors(LIMIT).await?.iter().any(mine));
        let waited = world.until("a failure of the ISO cache", failed).await;
        self.explained(world, waited).await?;
        let condition = world.condition(&self.name, "ISOReady").await?;
        let [status, _, said] = condition.context("a condition ISOReady")?;
        ensure!(status == "False", "{}: {said}", self.name);
        Ok(said)
    }

    /// Waits until `count` Machines run. The error says what prevented it.
    pub async fn running(&self, world: &World, count: usize) -> Result<()> {
        let outcome = self.nodes.wait_running(count, LIMIT).await;
        self.explained(world, outcome).await
    }

    /// Returns the outcome. A failure gets the state of this site added.
    pub async fn explained<T>(&self, world: &World, outcome: Result<T>) -> Result<T> {
        let error = match outcome {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let mut told = String::new();
        if let Ok(pool) = world.pools().get(&self.name).await {
            for c in pool.status.unwrap_or_default().conditions {
                told += &format!("{} {} {}: {}\n", c.type_, c.status, c.reason, c.message);
            }
        }
        let mut children = world.all_children().await.unwrap_or_default();
        children.retain(|child| child.spec.pool_ref.name == self.name);
        for child in children {
            let status = serde_json::to_string(&child.status).unwrap_or_default();
            told += &format!("{status}\n");
        }
        let server = self.process.url().trim_start_matches("https://");
        let log = world.operator().and_then(|o| o.log()).unwrap_or_default();
        let lines: Vec<&str> = log
            .lines()
            .filter(|line| line.contains(&self.name) || line.contains(server))
            .collect();
        for line in &lines[lines.len().saturating_sub(25)..] {
            told += &line.chars().take(700).collect::<String>();
            told += "\n";
        }
        Err(error.context(format!("at {}:\n{told}", self.name)))
    }

    /// Scales down to zero and waits until neither a VM nor a partial file is left.
    pub async fn empties(&self, world: &World) -> Result<()> {
        self.nodes.scale(0);
        let empty = |i: &agent_forge_lab::parts::vcenter_inventory::Inventory| {
            i.vms.is_empty().then(|| i.files.clone())
        };
        let files = self.admin.until("no VM", LIMIT, empty).await;
        let files = self.explained(world, files).await?;
        let only_images = files
            .iter()
            .all(|f| f.datastore == "iso-datastore" && f.path.ends_with(".iso"));
        ensure!(only_images, "{}: left over: {files:#?}", self.name);
        let gone = || self.nodes.machines().is_empty() && self.nodes.agent_machines().is_empty();
        let outcome = self.nodes.wait("no Machine", LIMIT, gone).await;
        self.explained(world, outcome).await
    }

    /// Checks that there were never two VMs with one name, never more than `most` VMs at the same time, and `ever` VMs
    /// in total.
    pub fn never_double(&self, most: usize, ever: usize) -> Result<()> {
        let seen = self.eyes.seen();
        ensure!(
            seen.most <= most && seen.ever.len() == ever && seen.per_name.values().all(|n| *n == 1),
            "{}: at most {} VMs at once, ever {:?}, by name {:?}",
            self.name,
            seen.most,
            seen.ever,
            seen.per_name
        );
        Ok(())
    }

    /// Checks that there were never two VMs at the same time.
    pub fn never_two(&self) -> Result<()> {
        let seen = self.eyes.seen();
        ensure!(seen.most <= 1, "{}: {:?}", self.name, seen.ever);
        Ok(())
    }
}
