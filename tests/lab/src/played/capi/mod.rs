//! HyperShift and CAPI core for one NodePool: creates and deletes AgentMachines and Machines.
//!
//! [`HostedClusterPlay`] holds the NodePool's wanted state. The set controller creates and deletes Machines until the
//! counts fit. The machine controller takes each Machine from creation to `Running`, and after its deletion through
//! drain and hook to its end.
//!
//! Guarantees: the AgentMachine is created before the Machine, and its owner is swapped later. A Machine is gone only
//! after its AgentMachine. Machines under deletion count, so a replacement comes after the old one is gone. A paused
//! Machine stays as it is. Only objects of this NodePool are changed. `tests/it/real_capi.rs` compares all this with
//! the real Cluster API. Caveats: there is no HostedCluster, NodePool or MachineDeployment object and
//! no hosted API server. Nodes are only names in the status of Machines.

mod machine;
mod objects;
mod sets;
mod status;
mod victim;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use kube::Client;
use serde_json::{Value, json};

use super::{
    desk::Desk,
    kinds,
    mirror::{Change, Mirror, Object},
    object::Facts as _,
    options::{Delays, HostedCluster, MachineApi},
    refusal,
    task::Task,
};

/// Annotation that names the NodePool, `<namespace>/<name>`, on everything created for it.
pub const NODE_POOL: &str = "hypershift.openshift.io/nodePool";

/// Options of a played NodePool.
#[derive(Debug, Clone)]
pub struct NodePoolOptions {
    /// The hosted cluster it belongs to.
    pub cluster: HostedCluster,
    /// The NodePool's name.
    pub name: String,
    /// `spec.platform.agent.agentLabelSelector`, a LabelSelector as JSON; `None` selects every Agent.
    pub agent_label_selector: Option<Value>,
    /// Step times.
    pub delays: Delays,
}

/// See the module's contract. Ends when dropped; its objects stay.
#[derive(Debug)]
pub struct HostedClusterPlay {
    pool: Arc<Pool>,
    desk: Desk,
    tasks: Vec<Task>,
}

/// What the controllers share.
#[derive(Debug)]
struct Pool {
    options: NodePoolOptions,
    templates: Mirror,
    sets: Mirror,
    agent_machines: Mirror,
    machines: Mirror,
    wish: Mutex<Wish>,
}

/// The fields of the NodePool's spec that are played.
#[derive(Debug, Clone)]
struct Wish {
    replicas: usize,
    max_surge: usize,
    revision: u32,
    deleting: bool,
}

impl Pool {
    fn wish(&self) -> MutexGuard<'_, Wish> {
        self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn api(&self) -> MachineApi {
        self.options.cluster.machine_api
    }

    /// The annotation's value.
    fn identity(&self) -> String {
        format!("{}/{}", self.options.cluster.namespace, self.options.name)
    }

    fn owns(&self, object: &Object) -> bool {
        object.annotation(NODE_POOL) == Some(self.identity().as_str())
    }

    fn own(&self, mirror: &Mirror) -> Vec<Object> {
        let identity = self.identity();
        mirror.select(|object| object.annotation(NODE_POOL) == Some(identity.as_str()))
    }
}

/// What a set counts of a Machine: its set, whether it runs, and whether it is being deleted.
fn counts(machine: Option<&Object>) -> Option<(Option<&str>, bool, bool)> {
    let machine = machine?;
    let set = machine.label(objects::SET_LABEL);
    let runs = victim::is_healthy(machine);
    Some((set, runs, machine.is_deleting()))
}

/// The key under which the set controller runs. The keys of Machines are their names.
const SETS: &str = "";

impl HostedClusterPlay {
    /// Starts the controllers of one NodePool with no replicas.
    ///
    /// # Errors
    /// A CRD is missing in the API server, or it does not answer.
    pub async fn new(client: &Client, options: NodePoolOptions) -> Result<Self> {
        let namespace = options.cluster.control_plane_namespace.clone();
        let api = options.cluster.machine_api;
        let pool = Arc::new(Pool {
            templates: Mirror::start(client, &kinds::agent_machine_template(), &namespace),
            sets: Mirror::start(client, &kinds::machine_set(api), &namespace),
            agent_machines: Mirror::start(client, &kinds::agent_machine(), &namespace),
            machines: Mirror::start(client, &kinds::machine(api), &namespace),
            wish: Mutex::new(Wish {
                replicas: 0,
                max_surge: 1,
                revision: 1,
                deleting: false,
            }),
            options,
        });
        for mirror in [
            &pool.templates,
            &pool.sets,
            &pool.agent_machines,
            &pool.machines,
        ] {
            mirror.synced().await?;
        }
        let desk = Desk::new();
        let counted = move |change: &Change| {
            let sets = counts(change.old.as_ref()) != counts(change.new.as_ref());
            change
                .name()
                .into_iter()
                .chain(sets.then(|| SETS.to_owned()))
                .collect::<Vec<_>>()
        };
        let tasks = vec![
            desk.follow(&pool.machines, counted),
            // AgentMachine and Machine have the same name.
            desk.follow(&pool.agent_machines, Change::name),
            desk.work(Arc::new(machine::Controller::new(pool.clone())), 16),
        ];
        Ok(Self { pool, desk, tasks })
    }

    /// Ends the controllers. The NodePool's objects stay without a controller.
    pub fn retire(&mut self) {
        self.tasks.clear();
    }

    /// Sets the NodePool's replicas. Returns at once.
    pub fn scale(&self, replicas: usize) {
        self.pool.wish().replicas = replicas;
        self.desk.wake(SETS);
    }

    /// Starts a rolling replacement of all Machines: at most `max_surge` more than the replicas, and none unavailable.
    ///
    /// # Errors
    /// `max_surge` is 0: such a rollout could never begin.
    pub fn rolling_upgrade(&self, max_surge: usize) -> Result<()> {
        if max_surge == 0 {
            bail!("a rolling upgrade without unavailable Machines needs a max_surge of at least 1");
        }
        let mut wish = self.pool.wish();
        wish.max_surge = max_surge;
        wish.revision += 1;
        drop(wish);
        self.desk.wake(SETS);
        Ok(())
    }

    /// Deletes one Machine, as a MachineHealthCheck does. Its set replaces it once it is gone.
    ///
    /// # Errors
    /// There is no such Machine in this NodePool, or the API server refused.
    pub async fn remediate(&self, machine: &str) -> Result<()> {
        let found = self
            .pool
            .machines
            .get(machine)
            .filter(|object| self.pool.owns(object));
        self.pool
            .machines
            .delete(&*found.with_context(|| format!("no Machine {machine} in this NodePool"))?)
            .await
    }

    /// Deletes the NodePool in HyperShift's order: its AgentMachines first, then sets and Machines. Returns at once.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn delete_node_pool(&self) -> Result<()> {
        for agent_machine in self.pool.own(&self.pool.agent_machines) {
            self.pool.agent_machines.delete(&agent_machine).await?;
        }
        {
            let mut wish = self.pool.wish();
            wish.replicas = 0;
            wish.deleting = true;
        }
        self.desk.wake(SETS);
        Ok(())
    }

    /// Marks a Machine as the first one to delete at the next scale-down, as the autoscaler does.
    ///
    /// # Errors
    /// There is no such Machine, or the API server refused.
    pub async fn prefer_for_deletion(&self, machine: &str) -> Result<()> {
        let mark = json!({"metadata": {"annotations": {victim::DELETE_MACHINE: "true"}}});
        loop {
            let seen = self.pool.machines.fetch(machine).await?;
            let seen = seen.with_context(|| format!("no Machine {machine}"))?;
            match self.pool.machines.patch(&seen, mark.clone()).await {
                // Its own controller wrote it in between.
                Err(error) if refusal::is_stale(&error) => {}
                done => return done.map(drop),
            }
        }
    }

    /// The NodePool's Machines, by name.
    #[must_use]
    pub fn machines(&self) -> Vec<Object> {
        self.pool.own(&self.pool.machines)
    }

    /// The NodePool's AgentMachines, by name.
    #[must_use]
    pub fn agent_machines(&self) -> Vec<Object> {
        self.pool.own(&self.pool.agent_machines)
    }

    /// Names of the Machines that run on a ready Node and are not being deleted.
    #[must_use]
    pub fn running(&self) -> Vec<String> {
        let list = self.machines();
        list.iter()
            .filter(|machine| victim::is_healthy(machine))
            .map(|machine| machine.name().to_owned())
            .collect()
    }

    /// Waits until exactly `count` Machines exist and all of them run.
    ///
    /// # Errors
    /// It does not happen within `limit`. The error describes the state of each Machine.
    pub async fn wait_running(&self, count: usize, limit: Duration) -> Result<()> {
        let what = format!("{count} running Machines");
        self.wait(&what, limit, || {
            self.machines().len() == count && self.running().len() == count
        })
        .await
    }

    /// Waits until `done` holds. Checks again at each change of a Machine or AgentMachine.
    ///
    /// # Errors
    /// It does not happen within `limit`. The error describes the state of each Machine.
    pub async fn wait(&self, what: &str, limit: Duration, done: impl Fn() -> bool) -> Result<()> {
        let mut machines = self.pool.machines.changes();
        let mut agent_machines = self.pool.agent_machines.changes();
        let reached = async {
            while !done() {
                tokio::select! {
                    biased;
                    _ = machines.recv() => {}
                    _ = agent_machines.recv() => {}
                }
            }
        };
        let outcome = tokio::time::timeout(limit, reached).await;
        outcome.map_err(|_| {
            anyhow::anyhow!(
                "not within {limit:?}: {what}; there are {:?}",
                self.describe()
            )
        })
    }

    /// The state of each Machine and its AgentMachine, by name.
    #[must_use]
    pub fn describe(&self) -> BTreeMap<String, String> {
        let mut all: BTreeMap<String, String> = BTreeMap::new();
        for machine in self.machines() {
            let step = machine
                .condition("Deleting")
                .or(machine.condition_in("/status/v1beta2/conditions", "Deleting"));
            let text = format!(
                "Machine {} (deleting {}, {}, hook {})",
                machine.text("/status/phase"),
                machine.is_deleting(),
                step.map(|condition| condition.reason).unwrap_or_default(),
                machine.annotation(super::provider::HOOK).is_some(),
            );
            all.insert(machine.name().to_owned(), text);
        }
        for object in self.agent_machines() {
            let text = format!(
                "AgentMachine (deleting {}, finalizers {:?}, ready {}, Agent {:?}, {})",
                object.is_deleting(),
                object.metadata.finalizers.clone().unwrap_or_default(),
                object.flag("/status/ready"),
                object.text("/status/agentRef/name"),
                object
                    .condition("AgentReserved")
                    .map(|condition| condition.reason)
                    .unwrap_or_default(),
            );
            let entry = all
                .entry(object.name().to_owned())
                .or_insert_with(|| "no Machine".to_owned());
            *entry = format!("{entry}, {text}");
        }
        all
    }
}
