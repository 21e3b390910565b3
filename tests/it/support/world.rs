//! One hosted cluster, one pool, one vCenter and one operator: the start of a scenario.
//!
//! Worlds share API servers, one for each choice of CRDs. Each world has its own namespaces there, and its operator serves
//! only these, with Roles in them. A scenario that stops or floods an API server, applies objects of fixed names, or is about
//! an operator for all namespaces has a lab of its own ([`Setup::own_lab`]).

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool,
    conditions::{Phase, find_condition},
    external::agent::Agent,
    names::ALLOW_POOLS_FROM_ANNOTATION,
};
pub use agent_forge_lab::lab::manifest::{
    agent_labels as pool_labels, agent_selector as fits_pool,
};
use agent_forge_lab::{
    Lab, LabOptions, MachineVersions, OperatorAccess, ProviderGeneration, install_tls_provider,
    lab::{
        apply::apply,
        manifest::{OPERATOR_NAMESPACE, credentials, pool, secret},
    },
    parts::{
        Operator, OperatorOptions, VCenterAdmin, VCenterOptions, VCenterProcess,
        audit::{AuditLog, Entry},
    },
    played::{
        Delays, Generation, HostedCluster, HostedClusterPlay, ImageOptions, MachineApi, Upstream,
    },
    stage, tools,
};
use anyhow::{Context as _, Result, bail};
use http::StatusCode;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use tokio::{sync::OnceCell, task::spawn_blocking, time::Instant};

use super::look::merge;

/// A time limit that only catches a hang.
pub const LIMIT: Duration = agent_forge_lab::patience::HANG;
/// Name of the hosted cluster, its InfraEnv and the folder of its VMs.
pub const CLUSTER: &str = "demo";
/// Name of the pool and of its NodePool.
pub const POOL: &str = "demo-worker";

/// What differs between scenarios.
pub struct Setup {
    /// Whether it has an API server of its own, with an operator for all namespaces.
    pub own_lab: bool,
    pub generation: ProviderGeneration,
    pub machine_api: MachineApi,
    pub machine_versions: Option<MachineVersions>,
    /// Where the Agents are if not with the pool: in the namespace that has the name of the pool's with this end.
    pub agents_beside: Option<&'static str>,
    pub vcenter: VCenterOptions,
    pub delays: Delays,
    pub operator_args: Vec<String>,
    /// Folder of `config` with the operator's rules, if they are not those of `config/rbac`.
    pub rules: Option<&'static str>,
    pub operator_env: Vec<(String, String)>,
    pub pool_patch: Value,
    pub image: ImageOptions,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            own_lab: false,
            generation: ProviderGeneration::Current,
            machine_api: MachineApi::V1Beta2,
            machine_versions: None,
            agents_beside: None,
            vcenter: VCenterOptions::default(),
            delays: Delays::fast(),
            operator_args: Vec::new(),
            rules: None,
            operator_env: Vec::new(),
            pool_patch: json!({}),
            image: ImageOptions::default(),
        }
    }
}

impl Setup {
    /// With this patch of the pool's spec.
    pub fn pool(pool_patch: Value) -> Self {
        Self {
            pool_patch,
            ..Self::default()
        }
    }

    /// With these arguments of the operator.
    pub fn args<S: Into<String>>(args: impl IntoIterator<Item = S>) -> Self {
        Self {
            operator_args: args.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// With a pool that recycles. A guest needs tens of seconds to report. The operator sees it come back by that.
    pub fn recycling() -> Self {
        Self {
            delays: Delays {
                inventory: Duration::from_secs(3),
                ..Delays::fast()
            },
            ..Self::pool(json!({"release": {"policy": "Recycle"}}))
        }
    }

    /// An API server of its own, with an operator for all namespaces.
    pub fn own_lab() -> Self {
        Self {
            own_lab: true,
            ..Self::default()
        }
    }

    /// The administrator names the lab's vCenters, so pools show why one of them cannot be reached.
    pub fn named() -> Self {
        Self::args(["--allowed-vcenters=127.0.0.1"])
    }
}

/// A running world.
pub struct World {
    pub operator: Option<Operator>,
    pub client: Client,
    pub cluster: HostedCluster,
    pub upstream: Upstream,
    pub vcenter: VCenterAdmin,
    pub access: OperatorAccess,
    pub setup: Setup,
    /// The program of `vcenter`.
    pub process: VCenterProcess,
    /// What the API server was asked since this world began, by all users.
    pub log: AuditLog,
    pub lab: Arc<Lab>,
}

/// The lab that worlds with these CRDs share. It is started once and ends with the process.
async fn shared_lab(options: LabOptions) -> Result<Arc<Lab>> {
    type Started = Arc<OnceCell<Arc<Lab>>>;
    static LABS: LazyLock<Mutex<HashMap<(bool, MachineVersions), Started>>> =
        LazyLock::new(Mutex::default);
    let crds = (
        options.generation.bundled_crd(),
        options.served_machine_versions(),
    );
    let started = {
        let mut labs = LABS.lock().unwrap_or_else(PoisonError::into_inner);
        labs.entry(crds).or_default().clone()
    };
    let start = async || Lab::start(options.clone()).await.map(Arc::new);
    started.get_or_try_init(start).await.cloned()
}

/// A namespace that no other world of this process has, named after the module of the test.
fn fresh_namespace() -> String {
    static WORLDS: AtomicU32 = AtomicU32::new(1);
    let number = WORLDS.fetch_add(1, Ordering::Relaxed);
    let thread = thread::current();
    // The harness names the thread of a test after it.
    let module = thread.name().and_then(|test| test.split("::").next());
    let module = module.unwrap_or("test").replace('_', "-");
    format!("{module}-{number}")
}

impl World {
    /// Starts lab, upstream, Secret, pool and operator.
    pub async fn start(setup: Setup) -> Result<Self> {
        let world = Self::without_pool(setup).await?;
        let mut patch = world.setup.pool_patch.clone();
        if world.setup.agents_beside.is_some_and(|end| end != CLUSTER) {
            // The control plane's namespace is implied, another one must be named.
            patch["infraEnvRef"] = json!({"namespace": world.cluster.agent_namespace});
        }
        world.create_pool(POOL, &patch).await?;
        Ok(world)
    }

    /// Starts everything except the pool.
    pub async fn without_pool(mut setup: Setup) -> Result<Self> {
        // Folders of `config` have fixed namespaces.
        setup.own_lab |= setup.rules.is_some();
        install_tls_provider();
        spawn_blocking(tools::built_before_tests).await?;
        let mut options = LabOptions::default().generation(setup.generation);
        options.machine_versions = setup.machine_versions;
        let (lab, namespace, operator_namespace) = if setup.own_lab {
            let lab = Arc::new(Lab::start(options).await?);
            (lab, "demo".to_owned(), OPERATOR_NAMESPACE.to_owned())
        } else {
            let namespace = fresh_namespace();
            let operator = format!("{namespace}-operator");
            (shared_lab(options).await?, namespace, operator)
        };
        let log = lab.audit().from_now();
        let process = lab.start_vcenter(setup.vcenter.clone()).await?;
        let client = lab.admin();
        let mut cluster = HostedCluster::new(&namespace, CLUSTER);
        if let Some(end) = setup.agents_beside {
            cluster.agent_namespace = format!("{namespace}-{end}");
        }
        cluster.machine_api = setup.machine_api;
        cluster.generation = if setup.generation.legacy_provider() {
            Generation::Legacy
        } else {
            Generation::Current
        };
        let upstream = stage::set_with(
            &lab,
            &process,
            &operator_namespace,
            std::slice::from_ref(&cluster),
            setup.delays.clone(),
            setup.image.clone(),
        )
        .await?;
        let access = match setup.rules {
            Some(folder) => lab.kubeconfig_for_folder(folder).await?,
            None if setup.own_lab => lab.kubeconfig_for_operator(&operator_namespace).await?,
            None => {
                let beside = served_beside(&cluster);
                lab.kubeconfig_for_namespaces(&operator_namespace, &namespace, &beside)
                    .await?
            }
        };
        let vcenter = process.admin()?;
        let mut world = Self {
            operator: None,
            client,
            cluster,
            upstream,
            vcenter,
            access,
            setup,
            process,
            log,
            lab,
        };
        world.start_operator().await?;
        Ok(world)
    }

    /// Creates or replaces a credentials Secret.
    pub async fn set_secret(&self, name: &str, password: &str) -> Result<()> {
        let mut data = credentials(&self.process);
        data["password"] = json!(password);
        self.set_secret_data(self.namespace(), name, data).await
    }

    /// Creates a Secret with these strings, or merges them into the existing one. `null` removes a key.
    pub async fn set_secret_data(&self, namespace: &str, name: &str, data: Value) -> Result<()> {
        let object = secret(namespace, name, &data);
        apply(&self.client, &object).await?;
        Ok(())
    }

    /// Creates one more pool for the NodePool of the same name. `patch` is merged over its spec.
    pub async fn create_pool(&self, name: &str, patch: &Value) -> Result<()> {
        self.create_pool_in(self.namespace(), name, patch).await
    }

    /// The same in another namespace.
    pub async fn create_pool_in(&self, namespace: &str, name: &str, patch: &Value) -> Result<()> {
        let mut pool = pool(&self.cluster, name, patch)?;
        pool.metadata.namespace = Some(namespace.to_owned());
        let pools = Api::namespaced(self.client.clone(), namespace);
        let created = pools.create(&PostParams::default(), &pool).await;
        created.with_context(|| format!("create pool {name}"))?;
        Ok(())
    }

    /// Lets pools of these namespaces use what is in that namespace; `null`: of none.
    pub async fn admit(&self, namespace: &str, who: Value) -> Result<()> {
        let grant = json!({"metadata": {"annotations": {ALLOW_POOLS_FROM_ANNOTATION: who}}});
        let namespaces = Api::<Namespace>::all(self.client.clone());
        merge(&namespaces, namespace, grant).await?;
        Ok(())
    }

    /// Merges `patch` into a pool's spec, as a person does.
    pub async fn patch_pool(&self, name: &str, patch: &Value) -> Result<()> {
        merge(&self.pools(), name, json!({ "spec": patch })).await?;
        Ok(())
    }

    /// The NodePool `name`.
    pub async fn node_pool_named(&self, name: &str) -> Result<HostedClusterPlay> {
        self.upstream
            .node_pool(&self.cluster, name, Some(fits_pool()))
            .await
    }

    /// A condition of a pool, as status, reason and message; `None` before the first.
    pub async fn condition(&self, pool: &str, type_: &str) -> Result<Option<[String; 3]>> {
        let status = self.pools().get(pool).await?.status.unwrap_or_default();
        Ok(find_condition(&status.conditions, type_)
            .map(|c| [c.status.clone(), c.reason.clone(), c.message.clone()]))
    }

    /// Waits until a condition of a pool fits. Returns its message.
    pub async fn until_pool_says(
        &self,
        pool: &str,
        type_: &str,
        what: &str,
        fits: impl Fn(&[String; 3]) -> bool,
    ) -> Result<String> {
        let mut message = String::new();
        self.until(&format!("{what} in {type_} of {pool}"), async || {
            let said = self.condition(pool, type_).await?.filter(|c| fits(c));
            Ok(said.map(|[_, _, text]| message = text).is_some())
        })
        .await?;
        Ok(message)
    }

    /// Waits until a condition of a pool is not true for this reason. Returns its message.
    pub async fn until_refused(&self, pool: &str, type_: &str, reason: &str) -> Result<String> {
        self.until_pool_says(pool, type_, reason, |[status, found, _]| {
            status == "False" && found == reason
        })
        .await
    }

    /// Waits until a condition of a pool is true. Returns its message.
    pub async fn until_true(&self, pool: &str, type_: &str) -> Result<String> {
        self.until_pool_says(pool, type_, "True", |[status, ..]| status == "True")
            .await
    }

    /// The actors as the debug endpoint shows them. Fails unless it answers within `limit`. The endpoint gives up after
    /// five seconds, which a busy machine may need. Then the test asks again.
    pub async fn actors(&self, limit: Duration) -> Result<Vec<Value>> {
        let operator = self.operator()?;
        let url = format!("{}/actors", operator.debug_url());
        let asked = async {
            loop {
                let answer = reqwest::get(&url).await?;
                if answer.status() != StatusCode::SERVICE_UNAVAILABLE {
                    return answer.error_for_status()?.json::<Vec<Value>>().await;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let answered = tokio::time::timeout(limit, asked).await;
        Ok(answered.with_context(|| format!("{url} does not answer within {limit:?}"))??)
    }

    /// The operator.
    pub fn operator(&self) -> Result<&Operator> {
        self.operator.as_ref().context("no operator runs")
    }

    /// Starts (or restarts) the operator as its own ServiceAccount.
    pub async fn start_operator(&mut self) -> Result<()> {
        let mut options =
            OperatorOptions::new(env!("CARGO_BIN_EXE_agent-forge"), &self.access.kubeconfig)
                .args(self.operator_args());
        options.env.extend(self.setup.operator_env.clone());
        self.operator = Some(self.lab.operator(&options).await?);
        Ok(())
    }

    /// Namespace of pool, NodePools and (by default) Agents.
    pub fn namespace(&self) -> &str {
        &self.cluster.namespace
    }

    /// The flag by which the operator and its commands look at this world only.
    pub fn scope(&self) -> Option<String> {
        let beside = served_beside(&self.cluster).join(",");
        let shared = !self.setup.own_lab && self.setup.rules.is_none();
        shared.then(|| format!("--namespaces={},{beside}", self.namespace()))
    }

    /// The arguments of this world's operator.
    pub fn operator_args(&self) -> Vec<String> {
        let mut all = vec![
            "--iso-allow-local-source".to_owned(),
            format!("--leader-election-namespace={}", self.operator_namespace()),
        ];
        all.extend(self.scope());
        all.extend(self.setup.operator_args.iter().cloned());
        all
    }

    /// Name of the operator's own namespace.
    pub fn operator_namespace(&self) -> &str {
        &self.access.namespace
    }

    /// Every request to the API server that was answered since this world began, by all users.
    pub async fn audited(&self) -> Result<Vec<Entry>> {
        self.lab.audited_in(&self.log).await
    }

    /// How often the operator has read this path.
    pub async fn reads(&self, path: &str) -> Result<usize> {
        let all = self.audited().await?.into_iter();
        let ours = all.filter(|e| e.user.username == self.access.user);
        Ok(ours
            .filter(|e| e.uri.split('?').next() == Some(path))
            .count())
    }

    /// Waits until the operator has read it twice more. One of the reads may have been under way.
    pub async fn until_read_again(&self, path: &str) -> Result<()> {
        let before = self.reads(path).await?;
        let again = async || Ok(self.reads(path).await? >= before + 2);
        self.until(&format!("two more reads of {path}"), again)
            .await
    }

    pub fn pools(&self) -> Api<VsphereAgentPool> {
        Api::namespaced(self.client.clone(), self.namespace())
    }

    pub fn children(&self) -> Api<VsphereAgent> {
        Api::namespaced(self.client.clone(), self.namespace())
    }

    pub fn agents(&self) -> Api<Agent> {
        Api::namespaced(self.client.clone(), &self.cluster.agent_namespace)
    }

    /// The NodePool of the pool.
    pub async fn node_pool(&self) -> Result<HostedClusterPlay> {
        self.upstream
            .node_pool(&self.cluster, POOL, Some(fits_pool()))
            .await
    }

    /// Names of the VMs in the pool's folder.
    pub async fn vms(&self) -> Result<Vec<String>> {
        let all = self.all_vms().await?.into_iter();
        Ok(all.map(|vm| vm.name).collect())
    }

    /// Waits until `done` returns true. The error has the output of `explain` and the end of the operator's log.
    pub async fn until<F>(&self, what: &str, done: F) -> Result<()>
    where
        F: AsyncFnMut() -> Result<bool>,
    {
        self.until_within(LIMIT, what, done).await
    }

    /// The same with another time limit. If a read fails on its way, or the API server is too busy, it reads again.
    pub async fn until_within<F>(&self, limit: Duration, what: &str, mut done: F) -> Result<()>
    where
        F: AsyncFnMut() -> Result<bool>,
    {
        let end = Instant::now() + limit;
        loop {
            let failed = match done().await {
                Ok(true) => return Ok(()),
                Ok(false) => None,
                Err(error) if on_the_way(&error) => Some(error),
                Err(error) => return Err(error),
            };
            if Instant::now() >= end {
                let failed = failed.map(|error| format!(" ({error:#})"));
                let failed = failed.unwrap_or_default();
                bail!(
                    "no {what} within {limit:?}{failed}\n{}",
                    self.explain().await
                );
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Phase and reason of every VsphereAgent.
    pub async fn phases(&self) -> Result<BTreeMap<String, (Option<Phase>, String)>> {
        let all = self.all_children().await?;
        Ok(all
            .into_iter()
            .map(|c| {
                let vm = c.status.and_then(|s| s.vm).unwrap_or_default();
                (
                    c.metadata.name.unwrap_or_default(),
                    (vm.phase, vm.reason.unwrap_or_default().into()),
                )
            })
            .collect())
    }

    /// State of the world, for a failed wait.
    pub async fn explain(&self) -> String {
        let mut out = String::new();
        let pools = self.pools().list(&Default::default()).await;
        for pool in pools.into_iter().flatten() {
            out += &format!(
                "pool {}: {}\n",
                pool.metadata.name.unwrap_or_default(),
                serde_json::to_string_pretty(&pool.status).unwrap_or_default()
            );
        }
        for mut c in self.all_children().await.into_iter().flatten() {
            c.metadata.managed_fields = None;
            out += &format!("child: {}\n", serde_json::to_string(&c).unwrap_or_default());
        }
        for mut a in self.all_agents().await.into_iter().flatten() {
            // Bookkeeping and a copy of the inventory: neither helps a reader.
            a.metadata.managed_fields = None;
            a.metadata.annotations = None;
            out += &format!("agent: {}\n", serde_json::to_string(&a).unwrap_or_default());
        }
        if let Some(log) = self.operator.as_ref().and_then(|o| o.log().ok()) {
            let lines: Vec<&str> = log.lines().collect();
            out += &lines[lines.len().saturating_sub(60)..].join("\n");
        }
        out
    }
}

/// The namespaces beside that of the pool in which the operator works.
fn served_beside(cluster: &HostedCluster) -> Vec<String> {
    let mut all = vec![
        cluster.control_plane_namespace.clone(),
        cluster.agent_namespace.clone(),
    ];
    all.retain(|name| *name != cluster.namespace);
    all.dedup();
    all
}

/// Whether the API server did not answer the request itself: the connection broke, or the server was too busy.
fn on_the_way(error: &anyhow::Error) -> bool {
    error.chain().any(|e| match e.downcast_ref() {
        Some(kube::Error::Api(status)) => status.code == 429 || status.code >= 500,
        Some(kube::Error::HyperError(_) | kube::Error::Service(_)) => true,
        _ => false,
    })
}
