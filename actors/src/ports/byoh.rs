//! The objects of the installer for BYOH, as its actor needs them. Cached reads may be stale. The others are live.

use std::{collections::BTreeMap, sync::Arc};

use agent_forge_crds::{
    AgentForgeInstallerConfig, AgentForgeInstallerConfigStatus,
    external::{ByoHost, ByoMachine},
};
use async_trait::async_trait;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::ResourceExt as _;

use crate::{
    domain::names::ObjectKey,
    ports::{
        cluster::{ClusterResult, Precondition},
        effect::Effect,
    },
};

/// What shows whose an installation Secret is, and whether it is whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScriptsSecret {
    /// uid of the owner that controls it.
    pub controller: Option<String>,
    /// Type.
    pub type_: String,
    /// Nobody can change its data.
    pub immutable: bool,
    /// Its data.
    pub data: BTreeMap<String, ByteString>,
}

impl ScriptsSecret {
    /// Reads a Secret.
    #[must_use]
    pub fn of(secret: &Secret) -> Self {
        let mut owners = secret.owner_references().iter();
        let controller = owners.find(|o| o.controller == Some(true));
        Self {
            controller: controller.map(|o| o.uid.clone()),
            type_: secret.type_.clone().unwrap_or_default(),
            immutable: secret.immutable == Some(true),
            data: secret.data.clone().unwrap_or_default(),
        }
    }
}

/// Reads and writes.
#[async_trait]
pub trait Installers: Send + Sync {
    /// All kinds were listed once.
    fn ready(&self) -> bool;
    /// All configs, in key order.
    fn configs(&self) -> Vec<Arc<AgentForgeInstallerConfig>>;
    /// One ByoMachine.
    fn machine(&self, key: &ObjectKey) -> Option<Arc<ByoMachine>>;
    /// The ByoHosts of all namespaces.
    fn hosts(&self) -> Vec<Arc<ByoHost>>;

    /// Reads one config from the API server; `None` from a typed 404 only.
    async fn live_config(
        &self,
        key: &ObjectKey,
    ) -> ClusterResult<Option<AgentForgeInstallerConfig>>;
    /// Reads the ByoHosts of all namespaces from the API server.
    async fn live_hosts(&self) -> ClusterResult<Vec<ByoHost>>;
    /// Reads an installation Secret; `None` from a typed 404 only.
    async fn scripts_secret(&self, key: &ObjectKey) -> ClusterResult<Option<ScriptsSecret>>;

    /// Creates an installation Secret.
    async fn create_scripts(&self, effect: &Effect, secret: &Secret) -> ClusterResult<()>;
    /// Replaces the finalizers of a config.
    async fn set_finalizers(
        &self,
        effect: &Effect,
        at: &Precondition,
        finalizers: Vec<String>,
    ) -> ClusterResult<()>;
    /// Replaces the status of a config.
    async fn installer_status(
        &self,
        effect: &Effect,
        at: &Precondition,
        status: &AgentForgeInstallerConfigStatus,
    ) -> ClusterResult<()>;
}
