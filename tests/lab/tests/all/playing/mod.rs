//! A lab with scenes. Each scene has its own namespaces and its own upstream.

pub mod guests;
pub mod inventory;
pub mod lives;
pub mod machines;
pub mod wedge;

use std::time::Duration;

use agent_forge_lab::{
    Lab, LabOptions,
    played::{
        Delays, Generation, HostedCluster, HostedClusterPlay, MachineApi, PlayedOptions, Upstream,
        foreign,
        guests::vcenter::VCenter,
        kinds,
        mirror::{Mirror, Object},
        object::Facts as _,
    },
};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

/// A time limit that only catches a hang.
pub const LIMIT: Duration = agent_forge_lab::patience::HANG;

/// The pool's selector.
pub fn fits_pool() -> Value {
    json!({"matchLabels": {"pool": "a"}})
}

/// Labels that fit the selector.
pub fn pool_labels() -> Value {
    json!({"pool": "a"})
}

/// A running lab.
pub struct Stage {
    pub lab: Lab,
    generation: Generation,
}

impl Stage {
    pub async fn open(options: LabOptions) -> Result<Self> {
        // RUST_LOG=agent_forge_lab=debug shows every step. Another test of this process may have set up logging
        // already.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let legacy = options.generation.legacy_provider();
        let generation = if legacy {
            Generation::Legacy
        } else {
            Generation::Current
        };
        Ok(Self {
            lab: Lab::start(options).await?,
            generation,
        })
    }

    /// Creates namespaces, an InfraEnv `env`, and the played upstream.
    pub async fn scene(&self, machine_api: MachineApi, name: &str) -> Result<Scene> {
        self.scene_with(machine_api, name, Delays::fast()).await
    }

    /// The same with other step times.
    pub async fn scene_with(
        &self,
        machine_api: MachineApi,
        name: &str,
        delays: Delays,
    ) -> Result<Scene> {
        self.scene_of(machine_api, name, delays, None).await
    }

    /// The same with guests of a vCenter.
    pub async fn scene_of(
        &self,
        machine_api: MachineApi,
        name: &str,
        delays: Delays,
        vcenter: Option<VCenter>,
    ) -> Result<Scene> {
        let client = self.lab.admin();
        let namespace = self.lab.namespace(name).await?;
        let control_plane_namespace = self.lab.namespace(&format!("{name}-cp")).await?;
        let cluster = HostedCluster {
            control_plane_namespace: control_plane_namespace.clone(),
            generation: self.generation,
            machine_api,
            ..HostedCluster::new(&namespace, "hc")
        };
        let options = PlayedOptions {
            clusters: vec![cluster.clone()],
            delays,
            ..PlayedOptions::default()
        };
        let upstream = Upstream::start(&client, vcenter, options).await?;
        upstream
            .service(&namespace)?
            .create_infra_env("env", json!({}))
            .await?;
        let machines = Mirror::start(
            &client,
            &kinds::machine(machine_api),
            &control_plane_namespace,
        );
        let agent_machines =
            Mirror::start(&client, &kinds::agent_machine(), &control_plane_namespace);
        machines.synced().await?;
        agent_machines.synced().await?;
        let agents = upstream.service(&namespace)?.agents().clone();
        Ok(Scene {
            cluster,
            upstream,
            machines,
            agent_machines,
            agents,
        })
    }
}

/// One hosted cluster with everything around it.
pub struct Scene {
    pub cluster: HostedCluster,
    pub upstream: Upstream,
    pub machines: Mirror,
    pub agent_machines: Mirror,
    pub agents: Mirror,
}

impl Scene {
    pub fn is_legacy(&self) -> bool {
        self.cluster.generation == Generation::Legacy
    }

    pub async fn pool(&self, name: &str, selector: Option<Value>) -> Result<HostedClusterPlay> {
        self.upstream.node_pool(&self.cluster, name, selector).await
    }

    /// A registered bare-metal host.
    pub async fn metal(&self, number: u8, labels: Value, approved: bool) -> Result<Object> {
        let service = self.upstream.service(&self.cluster.agent_namespace)?;
        let made = foreign::bare_metal(service, "env", number, labels, approved);
        tokio::time::timeout(LIMIT, made)
            .await
            .context("a bare-metal host did not register")?
    }

    pub async fn agent(&self, name: &str) -> Result<Object> {
        self.agents
            .fetch(name)
            .await?
            .with_context(|| format!("no Agent {name}"))
    }
}

/// Waits for an object that satisfies `done`. It sees each state of each object.
pub async fn until(mirror: &Mirror, what: &str, done: impl Fn(&Object) -> bool) -> Result<Object> {
    let mut changes = mirror.changes();
    let found = async {
        while let Some(change) = changes.recv().await {
            if let Some(object) = change.new.filter(|object| done(object)) {
                return Ok(object);
            }
        }
        bail!("the watch ended")
    };
    match tokio::time::timeout(LIMIT, found).await {
        Ok(found) => found,
        Err(_) => {
            let now: Vec<String> = mirror.list().iter().map(shown).collect();
            bail!("not within {LIMIT:?}: {what}; there are {}", now.join("\n"))
        }
    }
}

/// Fails as soon as `holds` is false within `time`.
pub async fn stays(what: &str, time: Duration, holds: impl Fn() -> bool) -> Result<()> {
    let end = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < end {
        ensure!(holds(), "does not stay: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// The parts of an object that explain a failure.
fn shown(object: &Object) -> String {
    let annotations = object
        .metadata
        .annotations
        .iter()
        .flatten()
        .map(|(key, _)| key)
        .collect::<Vec<_>>();
    format!(
        "{}: labels {:?}, annotations {annotations:?}, deleting {}, spec {}, state {:?}, reference {:?}, conditions {:?}",
        object.name(),
        object.label_map(),
        object.is_deleting(),
        object.data["spec"],
        object.text("/status/debugInfo/state"),
        object.text("/status/agentRef/name"),
        object.at("/status/conditions"),
    )
}
