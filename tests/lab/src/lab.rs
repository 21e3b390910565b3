//! A lab: a real API server with the CRDs, users, namespaces, and simulated vCenters.
//!
//! The parts start in this order: etcd (on a copy of the data of an earlier first boot) and vCenters, API server, CRDs,
//! controller manager.
//!
//! Guarantees: several labs run side by side, in one process or in several. One lab serves tests on different async
//! runtimes. A client belongs to the runtime on which it is created, so [`Lab::admin`] creates a new one each time.
//! Everything ends with the lab, or at the latest with the process.

pub mod access;
pub mod apply;
pub mod crds;
pub mod manifest;
pub mod options;
mod seed;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use kube::{Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use crate::{
    parts::{
        ApiServer, ControllerManager, Etcd, FaultProxy, Operator, OperatorOptions, VCenterOptions,
        VCenterProcess,
        audit::{AuditLog, Entry},
        certificates::write_private,
        kubeconfig::{self, Credential},
        leash::HeldDirectory,
    },
    patience::ANSWER,
    tools,
};
use access::OperatorAccess;
use options::LabOptions;

/// A running lab.
///
/// Fields are dropped in this order: clients of a part before the part, the directory last.
pub struct Lab {
    vcenters: Vec<VCenterProcess>,
    _controller_manager: Option<ControllerManager>,
    api_server: ApiServer,
    _etcd: Etcd,
    config: Config,
    admin_kubeconfig: PathBuf,
    directory: Directory,
}

struct Directory {
    path: PathBuf,
    // Dropped before `_held`: the directory is removed first, and then unregistered.
    _temporary: Option<TempDir>,
    _held: Option<HeldDirectory>,
}

impl Directory {
    fn new() -> Result<Self> {
        if let Some(parent) = env::var_os("AGENT_FORGE_LAB_DIR") {
            let path = PathBuf::from(parent).join(Uuid::new_v4().to_string());
            fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
            return Ok(Self {
                path,
                _temporary: None,
                _held: None,
            });
        }
        let temporary = tempfile::Builder::new()
            .prefix("agent-forge-lab-")
            .tempdir()
            .context("create a temporary directory")?;
        let held = HeldDirectory::new(temporary.path())?;
        Ok(Self {
            path: temporary.path().to_owned(),
            _temporary: Some(temporary),
            _held: Some(held),
        })
    }
}

impl Lab {
    /// Starts what `options` ask for. The first time on a machine this builds programs, which takes minutes.
    ///
    /// # Errors
    /// A part does not start; the error has the end of its log.
    pub async fn start(options: LabOptions) -> Result<Self> {
        crate::install_tls_provider();
        let directory = Directory::new()?;
        let dir = directory.path.as_path();
        let vcenters = try_join_all(
            options
                .vcenters
                .iter()
                .map(|vcenter| VCenterProcess::start(dir, vcenter.clone())),
        );
        let (cluster, vcenters) = tokio::try_join!(Self::start_cluster(dir, &options), vcenters)?;
        let (etcd, api_server, controller_manager, config, admin_kubeconfig) = cluster;
        Ok(Self {
            vcenters,
            _controller_manager: controller_manager,
            api_server,
            _etcd: etcd,
            config,
            admin_kubeconfig,
            directory,
        })
    }

    async fn start_cluster(
        dir: &Path,
        options: &LabOptions,
    ) -> Result<(Etcd, ApiServer, Option<ControllerManager>, Config, PathBuf)> {
        let mut definitions = crds::own()?;
        definitions.extend(crds::foreign(options)?);
        seed::plant(&definitions, &Etcd::data(dir)).await?;
        let etcd = Etcd::start(dir).await?;
        let api_server = ApiServer::start(dir, etcd.url()).await?;
        let admin = kubeconfig::kubeconfig(
            api_server.endpoint(),
            "lab-admin",
            api_server.admin(),
            "default",
        );
        let path = dir.join("admin.kubeconfig");
        kubeconfig::write(&admin, &path)?;
        let config = kubeconfig::config(admin).await?;
        let client = kubeconfig::client(&config)?;
        crds::served(&client, &definitions, &api_server.process).await?;
        let controller_manager = match options.controller_manager {
            true => Some(ControllerManager::start(dir, &api_server).await?),
            false => None,
        };
        Ok((etcd, api_server, controller_manager, config, path))
    }

    /// A client with all rights. It belongs to the async runtime of the caller.
    ///
    /// # Panics
    /// Never: the same settings were used at the start.
    pub fn admin(&self) -> Client {
        #[expect(
            clippy::expect_used,
            reason = "the same settings made a client at the start"
        )]
        kubeconfig::client(&self.config).expect("the lab's own settings")
    }

    /// A kubeconfig file of the user of [`Lab::admin`], for kubectl.
    pub fn kubeconfig_admin_path(&self) -> &Path {
        &self.admin_kubeconfig
    }

    /// A new namespace with a name that starts with `prefix`.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        self.namespace_with_labels(prefix, &[]).await
    }

    /// A new namespace with labels, for instance `pod-security.kubernetes.io/enforce`.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn namespace_with_labels(
        &self,
        prefix: &str,
        labels: &[(&str, &str)],
    ) -> Result<String> {
        let suffix = Uuid::new_v4().simple().to_string();
        let name = format!("{prefix}-{}", &suffix[..8]);
        let labels: serde_json::Map<_, _> = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        apply::apply(&self.admin(), &object).await?;
        Ok(name)
    }

    /// Access for an operator in `namespace`: a ServiceAccount with exactly the rules of `config/rbac`.
    ///
    /// # Errors
    /// `config/rbac` is missing or refused.
    pub async fn kubeconfig_for_operator(&self, namespace: &str) -> Result<OperatorAccess> {
        let client = self.admin();
        let account =
            access::grant(&client, &tools::repository().join("config/rbac"), namespace).await?;
        self.kubeconfig_for(namespace, &account).await
    }

    /// Access for an operator in `namespace` that serves only `pools`, a namespace with pools, and `others`: a
    /// ServiceAccount with exactly the Roles of `config/overlays/namespaced`. All namespaces must exist.
    ///
    /// # Errors
    /// The overlay is missing or refused.
    pub async fn kubeconfig_for_namespaces(
        &self,
        namespace: &str,
        pools: &str,
        others: &[String],
    ) -> Result<OperatorAccess> {
        let config = tools::repository().join("config");
        let account =
            access::grant_served(&self.admin(), &config, namespace, pools, others).await?;
        self.kubeconfig_for(namespace, &account).await
    }

    /// Access for an operator with exactly the rules of `kubectl apply -k config/<folder>`, in the namespaces that the
    /// folder names. These namespaces must exist.
    ///
    /// # Errors
    /// The folder cannot be rendered, or the API server refuses its content.
    pub async fn kubeconfig_for_folder(&self, folder: &'static str) -> Result<OperatorAccess> {
        self.kubeconfig_for_objects(&manifest::rendered(folder).await?)
            .await
    }

    /// The same for objects that are rendered already.
    ///
    /// # Errors
    /// The API server refuses them.
    pub async fn kubeconfig_for_objects(&self, objects: &[Value]) -> Result<OperatorAccess> {
        let (namespace, account) = access::grant_bound(&self.admin(), objects).await?;
        self.kubeconfig_for(&namespace, &account).await
    }

    /// Access as a ServiceAccount that has `rules` (of a Role) in its namespace and no others.
    ///
    /// # Errors
    /// The API server refuses the rules or issues no token.
    pub async fn kubeconfig_with(
        &self,
        namespace: &str,
        service_account: &str,
        rules: &Value,
    ) -> Result<OperatorAccess> {
        access::grant_rules(&self.admin(), namespace, service_account, rules).await?;
        self.kubeconfig_for(namespace, service_account).await
    }

    async fn kubeconfig_for(
        &self,
        namespace: &str,
        service_account: &str,
    ) -> Result<OperatorAccess> {
        let token = access::token(&self.admin(), namespace, service_account).await?;
        let user = access::user(namespace, service_account);
        let path = self
            .directory
            .path
            .join(format!("{namespace}-{service_account}.kubeconfig"));
        let kubeconfig = kubeconfig::kubeconfig(
            self.api_server.endpoint(),
            &user,
            &Credential::Token(token),
            namespace,
        );
        kubeconfig::write(&kubeconfig, &path)?;
        Ok(OperatorAccess {
            kubeconfig: path,
            user,
            namespace: namespace.into(),
            service_account: service_account.into(),
        })
    }

    /// The same access through a proxy in front of the API server.
    ///
    /// # Errors
    /// The kubeconfig cannot be written.
    pub fn kubeconfig_through(
        &self,
        access: &OperatorAccess,
        proxy: &FaultProxy,
    ) -> Result<PathBuf> {
        let text = fs::read_to_string(&access.kubeconfig)
            .with_context(|| format!("read {}", access.kubeconfig.display()))?;
        let direct = &self.api_server.endpoint().url;
        let through = proxy.url(direct)?;
        let path = access
            .kubeconfig
            .with_extension(format!("{}.kubeconfig", Uuid::new_v4().simple()));
        write_private(&path, &text.replace(direct.as_str(), &through))?;
        Ok(path)
    }

    /// Starts an operator with its log in the lab's directory and waits until it is ready.
    ///
    /// # Errors
    /// It does not become ready; the error has the end of its log.
    pub async fn operator(&self, options: &OperatorOptions) -> Result<Operator> {
        Operator::start(self.dir(), options).await
    }

    /// Starts one more simulated vCenter with its log in the lab's directory. It ends when it is dropped.
    ///
    /// # Errors
    /// It does not start; the error has the end of its log.
    pub async fn start_vcenter(&self, options: VCenterOptions) -> Result<VCenterProcess> {
        VCenterProcess::start(self.dir(), options).await
    }

    /// The simulated vCenters of the options, in their order.
    pub fn vcenters(&self) -> &[VCenterProcess] {
        &self.vcenters
    }

    /// The API server.
    pub fn api_server(&self) -> &ApiServer {
        &self.api_server
    }

    /// The requests to the API server that are logged so far. [`Lab::audited`] waits for those under way.
    pub fn audit(&self) -> AuditLog {
        self.api_server.audit()
    }

    /// Audit entries that include every request answered before this call.
    ///
    /// # Errors
    /// The log cannot be read or does not grow.
    pub async fn audited(&self) -> Result<Vec<Entry>> {
        self.audited_in(&self.audit()).await
    }

    /// The same with the entries of `log`, which may begin later.
    ///
    /// # Errors
    /// As [`Lab::audited`].
    pub async fn audited_in(&self, log: &AuditLog) -> Result<Vec<Entry>> {
        let marker = format!(
            "/api/v1/namespaces/audit-marker-{}",
            Uuid::new_v4().simple()
        );
        let request = http::Request::get(&marker)
            .body(Vec::new())
            .context("make a request")?;
        // Not found on purpose: only its entry in the log counts.
        let _ = self.admin().request_text(request).await;
        self.api_server
            .process
            .until_ready(ANSWER, || async {
                let entries = log.entries()?;
                let position = entries.iter().rposition(|entry| entry.uri == marker);
                position
                    .map(|_| entries)
                    .context("the audit log lacks a request that was answered")
            })
            .await
    }

    /// The lab's directory: data, keys, logs.
    pub fn dir(&self) -> &Path {
        &self.directory.path
    }
}
