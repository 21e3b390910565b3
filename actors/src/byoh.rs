//! The installer for BYOH (bring your own host): scripts for hosts that others bring. It runs only with `--byoh-installer`.
//!
//! Flow of a pass, for each AgentForgeInstallerConfig: the pure [`decide`] judges what the caches show. Where that asks for a
//! write, everything is read from the API server and decided again. Then one write follows, and the next decision.
//!
//! Guarantees
//! - While BYOH does not ask, nothing of a config is written.
//! - The finalizer stands before the Secret exists, and the Secret before the status names it. So a process that dies in between is
//!   followed by one that finds the same Secret.
//! - The Secret of somebody else is left alone.
//! - The finalizer goes only after a live list of ByoHosts in which none names the Secret, except one that a person gave up.
//! - A config that fails does not hold up the others.

pub mod decide;
pub mod scripts;
pub mod secret;
pub mod status;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use agent_forge_crds::{
    AgentForgeInstallerConfig,
    conditions::Reason,
    external::{ByoHost, ByoMachine},
};
use futures::future::BoxFuture;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use self::decide::{Facts, Live, Next, decide};
use crate::{
    domain::{
        names::ObjectKey,
        upstream::{Pausable, PausableKind},
    },
    ports::{
        byoh::Installers,
        clock::Clock,
        cluster::{Cluster, ClusterError, ClusterErrorKind, ClusterResult, Precondition, View},
        effect::{Effect, EffectKind, Subject},
        instruments::Instruments,
    },
    runtime::shell::{Verdict, Worker},
};

/// Time in which wakes gather.
const GATHER: Duration = Duration::from_millis(200);
/// How soon the actor looks again while the caches are not complete: nothing wakes it then.
const SOON: Duration = Duration::from_secs(2);
/// Writes for one config in one pass: finalizer, Secret, status.
const WRITES: usize = 3;

/// What the actor remembers: why each config waits, so that the log says it once.
pub type Memory = BTreeMap<ObjectKey, (Reason, String)>;

/// Worker of the installer.
#[derive(Clone)]
pub struct ByohInstaller {
    /// Clusters, and what is unknown of a namespace.
    pub view: Arc<dyn View>,
    /// Live reads of Clusters and ConfigMaps.
    pub cluster: Arc<dyn Cluster>,
    /// Everything else.
    pub installers: Arc<dyn Installers>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Counters.
    pub instruments: Arc<dyn Instruments>,
}

impl Worker for ByohInstaller {
    type Memory = Memory;

    fn kind(&self) -> &'static str {
        "byoh"
    }

    fn key(&self) -> String {
        String::new()
    }

    fn instruments(&self) -> &dyn Instruments {
        self.instruments.as_ref()
    }

    fn debounce(&self) -> Duration {
        GATHER
    }

    fn pass(&self, memory: Memory) -> BoxFuture<'static, (Memory, Verdict)> {
        let this = self.clone();
        Box::pin(async move { this.run(memory).await })
    }
}

impl ByohInstaller {
    async fn run(self, memory: Memory) -> (Memory, Verdict) {
        if !self.view.ready() || !self.installers.ready() {
            let again = Some(SOON);
            let verdict = Verdict {
                again,
                ..Verdict::default()
            };
            return (memory, verdict);
        }
        let (mut waits, mut failure) = (Memory::new(), None);
        for config in self.installers.configs() {
            let key = ObjectKey::of(config.as_ref());
            let wait = match self.treat(config).await {
                Ok(wait) => wait,
                Err(e) => {
                    // Who holds it back has said so.
                    let is_held = matches!(e.kind, ClusterErrorKind::Held(_));
                    failure = failure.or((!is_held).then(|| e.class()));
                    Some((e.reason(), e.to_string()))
                }
            };
            let Some(wait) = wait else { continue };
            if memory.get(&key) != Some(&wait) {
                let (reason, why) = &wait;
                tracing::info!(object = %key, %reason, "installer config waits: {why}");
            }
            waits.insert(key, wait);
        }
        let row = |(key, (reason, why)): (&ObjectKey, &(Reason, String))| {
            (reason.clone(), format!("{key}: {why}"))
        };
        let verdict = Verdict {
            again: None,
            failure,
            waiting_on: waits.iter().map(row).collect(),
        };
        (waits, verdict)
    }

    /// Does for one config what can be done now. Returns why it waits, if it does.
    async fn treat(
        &self,
        config: Arc<AgentForgeInstallerConfig>,
    ) -> ClusterResult<Option<(Reason, String)>> {
        let key = ObjectKey::of(config.as_ref());
        if let Some(why) = self.view.over_bound(&key.namespace) {
            return Ok(Some((Reason::NamespaceTooLarge, why)));
        }
        match decide(&self.cached(config)) {
            Next::Rest => return Ok(None),
            Next::Wait(reason, why) => return Ok(Some((reason, why))),
            _ => {}
        }
        for _ in 0..WRITES {
            let Some(facts) = self.live(&key).await? else {
                return Ok(None);
            };
            let next = decide(&facts);
            match &next {
                Next::Rest | Next::Look => return Ok(None),
                Next::Wait(reason, why) => return Ok(Some((reason.clone(), why.clone()))),
                _ => {}
            }
            self.write(&facts.config, &next).await?;
            match next {
                Next::Status(_, wait) => return Ok(wait),
                Next::Release(_) => return Ok(None),
                _ => {}
            }
        }
        Ok(None)
    }

    /// What the caches show.
    fn cached(&self, config: Arc<AgentForgeInstallerConfig>) -> Facts {
        let hosts = self.installers.hosts();
        let cluster = decide::cluster_name(&config).and_then(|name| {
            let namespace = ObjectKey::of(config.as_ref()).namespace;
            let mut all = self
                .view
                .pausables(PausableKind::Cluster, &namespace)
                .into_iter();
            all.find(|c| c.key.name == name).map(|c| c.as_ref().clone())
        });
        self.facts(config, cluster, hosts.iter().map(AsRef::as_ref), None)
    }

    /// What the API server has; `None` if the config is gone.
    async fn live(&self, key: &ObjectKey) -> ClusterResult<Option<Facts>> {
        let Some(config) = self.installers.live_config(key).await? else {
            return Ok(None);
        };
        let config = Arc::new(config);
        let cluster = match decide::cluster_name(&config) {
            Some(name) => {
                let kind = PausableKind::Cluster;
                let found = self
                    .cluster
                    .live_pausables(kind, &key.namespace, Some(name));
                found.await?.pop()
            }
            None => None,
        };
        let (mut live, mut hosts) = (Live::default(), Vec::new());
        if config.metadata.deletion_timestamp.is_some() {
            hosts = self.installers.live_hosts().await?;
        } else {
            live.secret = self
                .installers
                .scripts_secret(&secret::key(&config))
                .await?;
            if let Some(from) = &config.spec.scripts_from {
                let map = ObjectKey::new(&key.namespace, &from.config_map_ref.name);
                live.texts = self.cluster.config_map(&map).await?;
            }
        }
        Ok(Some(self.facts(config, cluster, &hosts, Some(live))))
    }

    fn facts<'a>(
        &self,
        config: Arc<AgentForgeInstallerConfig>,
        cluster: Option<Pausable>,
        hosts: impl IntoIterator<Item = &'a ByoHost>,
        live: Option<Live>,
    ) -> Facts {
        let names =
            |host: &&ByoHost| secret::is_named(&config, host.spec.installation_secret.as_ref());
        let hosts = hosts.into_iter().filter(names).map(ObjectKey::of).collect();
        Facts {
            machine: self.machine(&config),
            cluster,
            hosts,
            live,
            now: Time(self.clock.wall()),
            config,
        }
    }

    fn machine(&self, config: &AgentForgeInstallerConfig) -> Option<Arc<ByoMachine>> {
        let owner = decide::owner(config)?;
        let namespace = ObjectKey::of(config).namespace;
        self.installers
            .machine(&ObjectKey::new(namespace, &owner.name))
    }

    /// Carries one write out.
    async fn write(&self, config: &AgentForgeInstallerConfig, next: &Next) -> ClusterResult<()> {
        let at = Precondition::of(config);
        let effect = |kind| Effect::new(kind, Subject::Object(at.key.clone()));
        match next {
            Next::Hold(finalizers) => {
                let effect = effect(EffectKind::HoldInstaller);
                let all = finalizers.clone();
                self.installers.set_finalizers(&effect, &at, all).await
            }
            Next::Create(secret) => {
                let effect = effect(EffectKind::CreateScripts);
                let created = self.installers.create_scripts(&effect, secret).await;
                created.or_else(is_there)
            }
            Next::Status(status, _) => {
                let effect = effect(EffectKind::InstallerStatus);
                self.installers.installer_status(&effect, &at, status).await
            }
            Next::Release(finalizers) => {
                let effect = effect(EffectKind::ReleaseInstaller);
                let all = finalizers.clone();
                self.installers.set_finalizers(&effect, &at, all).await
            }
            Next::Rest | Next::Wait(..) | Next::Look => Ok(()),
        }
    }
}

/// The next look shows whose the Secret is that is there already.
fn is_there(error: ClusterError) -> ClusterResult<()> {
    match error.kind {
        ClusterErrorKind::AlreadyExists => Ok(()),
        _ => Err(error),
    }
}
