//! Live reads and writes of the installer for BYOH.

use std::{convert::identity, sync::Arc};

use agent_forge_actors::{
    domain::names::ObjectKey,
    ports::{
        byoh::{Installers, ScriptsSecret},
        cluster::{ClusterResult, Precondition},
        effect::Effect,
    },
};
use agent_forge_crds::{
    AgentForgeInstallerConfig, AgentForgeInstallerConfigStatus,
    external::{ByoHost, ByoMachine},
};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::json;

use super::{Writer, subject};
use crate::cluster::{installers::InstallerCaches, view::Caches, watches::PAGE};

/// The caches and the writer.
pub struct InstallerCluster {
    /// The caches. Without those of the installer it sees nothing.
    pub caches: Arc<Caches>,
    /// The writer.
    pub writer: Arc<Writer>,
}

impl InstallerCluster {
    fn shown<T>(&self, read: impl FnOnce(&InstallerCaches) -> T) -> Option<T> {
        self.caches.installers.as_ref().map(read)
    }
}

#[async_trait]
impl Installers for InstallerCluster {
    fn ready(&self) -> bool {
        self.shown(InstallerCaches::ready).is_some_and(identity)
    }

    fn configs(&self) -> Vec<Arc<AgentForgeInstallerConfig>> {
        self.shown(|c| c.configs.all()).unwrap_or_default()
    }

    fn machine(&self, key: &ObjectKey) -> Option<Arc<ByoMachine>> {
        self.shown(|c| c.machines.get(key)).flatten()
    }

    fn hosts(&self) -> Vec<Arc<ByoHost>> {
        self.shown(|c| c.hosts.all()).unwrap_or_default()
    }

    async fn live_config(
        &self,
        key: &ObjectKey,
    ) -> ClusterResult<Option<AgentForgeInstallerConfig>> {
        let api: Api<AgentForgeInstallerConfig> = self.writer.api(&key.namespace);
        let subject = subject::<AgentForgeInstallerConfig>(key);
        let call = api.get_opt(&key.name);
        self.writer.read("get", subject, call).await
    }

    async fn live_hosts(&self) -> ClusterResult<Vec<ByoHost>> {
        let api: Api<ByoHost> = Api::all(self.writer.client.clone());
        let page = |params: ListParams| {
            let api = api.clone();
            async move { api.list(&params).await }
        };
        let mut found = Vec::new();
        let keep = |host| found.push(host);
        self.writer.list(("ByoHosts", PAGE), page, keep).await?;
        Ok(found)
    }

    async fn scripts_secret(&self, key: &ObjectKey) -> ClusterResult<Option<ScriptsSecret>> {
        let api: Api<Secret> = self.writer.api(&key.namespace);
        let call = api.get_opt(&key.name);
        let found = self
            .writer
            .read("get", subject::<Secret>(key), call)
            .await?;
        Ok(found.as_ref().map(ScriptsSecret::of))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "behind the gate, as everything in this module's parent"
    )]
    async fn create_scripts(&self, effect: &Effect, secret: &Secret) -> ClusterResult<()> {
        let key = ObjectKey::of(secret);
        let api: Api<Secret> = self.writer.api(&key.namespace);
        let params = PostParams::default();
        let call = api.create(&params, secret);
        let subject = subject::<Secret>(&key);
        let created = self.writer.effect(effect, "create", subject, call).await;
        created.map(|_| ())
    }

    async fn set_finalizers(
        &self,
        effect: &Effect,
        at: &Precondition,
        finalizers: Vec<String>,
    ) -> ClusterResult<()> {
        let patch = json!({ "metadata": { "finalizers": finalizers } });
        let writer = &self.writer;
        writer
            .merge::<AgentForgeInstallerConfig>(effect, at, patch, None)
            .await
    }

    async fn installer_status(
        &self,
        effect: &Effect,
        at: &Precondition,
        status: &AgentForgeInstallerConfigStatus,
    ) -> ClusterResult<()> {
        let writer = &self.writer;
        let written = writer.status::<AgentForgeInstallerConfig>(effect, at, status);
        written.await.map(|_| ())
    }
}
