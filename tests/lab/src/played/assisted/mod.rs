//! The assisted service of one Agent namespace: InfraEnvs, their images, and the Agents of registered hosts.
//!
//! An InfraEnv gets an image URL. A host that booted the image registers, and its Agent appears. Changes of the Agent's
//! spec reach the host. The host's state appears in the Agent's status, labels and annotations.
//!
//! Guarantees: Agents appear only by registration. They are not approved, and have only the InfraEnv's labels. States
//! and conditions are those of the real service. Nothing is written without a cause. Caveat: there is no hosted
//! cluster. Nodes, certificate requests and reclaim pods are only delays.

mod agents;
mod conditions;
pub mod host;
pub mod image;
pub mod image_server;
mod infra_env;
mod inventory;
mod lifecycle;
#[cfg(test)]
mod recorded;
mod restore;
pub mod state;

use std::sync::{Arc, PoisonError, atomic::Ordering::Relaxed};

use anyhow::{Context as _, Result, bail};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    desk::Desk,
    kinds,
    mirror::{Change, Mirror},
    nature,
    object::Facts as _,
    options::PlayedOptions,
    refusal,
    task::Task,
};
pub use agents::Late;
use agents::Troubles;
use host::{Content, Host, HostFacts, Hosts, NextBoot};
use image_server::ImageServer;
use infra_env::Withheld;
pub use lifecycle::Answer;

/// Label of an Agent with its InfraEnv's name.
pub const INFRA_ENV_LABEL: &str = "infraenvs.agent-install.openshift.io";

/// See the module's contract. Cheap to clone; ends with the last clone.
#[derive(Debug, Clone)]
pub struct Assisted(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    agents: Mirror,
    infra_envs: Mirror,
    hosts: Hosts,
    hosts_desk: Desk,
    images_desk: Desk,
    withheld: Withheld,
    troubles: Troubles,
    _tasks: Vec<Task>,
}

impl Assisted {
    /// Starts the service for the Agents and InfraEnvs of `namespace`, with images on `images`.
    ///
    /// # Errors
    /// The watches ended.
    pub async fn start(
        client: &Client,
        namespace: &str,
        images: ImageServer,
        options: &PlayedOptions,
    ) -> Result<Self> {
        let agents = Mirror::start(client, &kinds::agent(), namespace);
        let infra_envs = Mirror::start(client, &kinds::infra_env(), namespace);
        agents.synced().await?;
        infra_envs.synced().await?;
        let hosts = Hosts::default();
        let (withheld, troubles) = (Withheld::default(), Troubles::default());
        let (hosts_desk, images_desk) = (Desk::new(), Desk::new());
        let of_infra_env = {
            let agents = agents.clone();
            move |change: &Change| {
                let name = change.name().into_iter();
                name.flat_map(|name| agents::of_infra_env(&agents, &name))
                    .collect::<Vec<_>>()
            }
        };
        let controller = agents::controller(
            agents.clone(),
            infra_envs.clone(),
            hosts.clone(),
            options,
            troubles.clone(),
        );
        let publisher = infra_env::Controller {
            infra_envs: infra_envs.clone(),
            images,
            withheld: withheld.clone(),
            delay: options.delays.image,
        };
        let tasks = vec![
            hosts_desk.follow(&agents, Change::name),
            hosts_desk.follow(&infra_envs, of_infra_env),
            // The real service reconciles one Agent at a time.
            hosts_desk.work(controller, 1),
            images_desk.follow(&infra_envs, Change::name),
            images_desk.work(Arc::new(publisher), 2),
        ];
        Ok(Self(Arc::new(Inner {
            agents,
            infra_envs,
            hosts,
            hosts_desk,
            images_desk,
            withheld,
            troubles,
            _tasks: tasks,
        })))
    }

    /// The Agents of the namespace.
    #[must_use]
    pub fn agents(&self) -> &Mirror {
        &self.0.agents
    }

    /// The InfraEnvs of the namespace.
    #[must_use]
    pub fn infra_envs(&self) -> &Mirror {
        &self.0.infra_envs
    }

    /// Registers the agent process of this machine with the service. Called at each boot of a discovery image.
    ///
    /// # Errors
    /// There is no such InfraEnv, or the API server refused the Agent. Or the service refuses hosts in this state: the
    /// process must try again.
    pub async fn register(&self, infra_env: &str, facts: HostFacts) -> Result<Answer> {
        let id = facts.id.clone();
        let now = Instant::now();
        {
            let mut hosts = self.0.hosts.lock();
            if let Some(host) = hosts.get_mut(&id) {
                if host.leaving_since.is_some() {
                    bail!("host {id} is being deregistered; register again when its Agent is gone");
                }
                let answer = lifecycle::register(host, now);
                match answer {
                    Answer::Accepted => host.facts = facts,
                    Answer::Forbidden => return Ok(answer),
                    Answer::TryAgain => {
                        let state = host.state.name();
                        bail!("host {id} cannot register in state {state}; it tries again");
                    }
                }
                drop(hosts);
                self.0.hosts_desk.wake(&id);
                return Ok(answer);
            }
            hosts.insert(id.clone(), Host::new(infra_env, facts, now));
        }
        let created = self.create_agent(infra_env, &id).await;
        let mut hosts = self.0.hosts.lock();
        match created {
            Ok(()) => {
                if let Some(host) = hosts.get_mut(&id) {
                    host.has_agent = true;
                }
            }
            Err(error) => {
                hosts.remove(&id);
                return Err(error);
            }
        }
        drop(hosts);
        self.0.hosts_desk.wake(&id);
        Ok(Answer::Accepted)
    }

    async fn create_agent(&self, infra_env: &str, id: &str) -> Result<()> {
        let owner = self.0.infra_envs.fetch(infra_env).await?;
        let owner = owner.with_context(|| format!("no InfraEnv {infra_env} to register with"))?;
        let mut labels = owner
            .at("/spec/agentLabels")
            .cloned()
            .unwrap_or_else(|| json!({}));
        labels[INFRA_ENV_LABEL] = json!(infra_env);
        let resource = kinds::infra_env();
        let metadata = json!({
            "name": id,
            "labels": labels,
            "ownerReferences": [{
                "apiVersion": resource.api_version, "kind": resource.kind, "name": infra_env, "uid": owner.uid(),
            }],
        });
        let spec = json!({"approved": false, "role": ""});
        match self
            .0
            .agents
            .create(metadata, json!({ "spec": spec }))
            .await
        {
            Err(error) if refusal::status(&error).is_some_and(|status| status.code == 409) => {
                self.keep_or_reset(infra_env, id, labels).await
            }
            created => created.map(drop),
        }
    }

    /// Does not change an existing Agent, unless it was registered with another InfraEnv.
    async fn keep_or_reset(&self, infra_env: &str, id: &str, labels: Value) -> Result<()> {
        let agent = self
            .0
            .agents
            .fetch(id)
            .await?
            .with_context(|| format!("Agent {id} came and went"))?;
        if agent.is_deleting() {
            bail!("Agent {id} is being deleted; register again when it is gone");
        }
        if agent.label(INFRA_ENV_LABEL) == Some(infra_env) {
            return Ok(());
        }
        let mut reset = (*agent).clone();
        reset.metadata.labels = serde_json::from_value(labels).context("labels of a new Agent")?;
        reset.data["spec"] = json!({"approved": false, "role": ""});
        self.0.agents.replace(&reset).await.map(drop)
    }

    /// Records that the host's machine was powered on or off. Without power its agent process does not answer.
    pub fn set_power(&self, id: &str, on: bool) {
        self.change(id, |host| {
            host.powered = on;
            if !on {
                host.on_disk = None;
                host.set_agent(false, Instant::now());
            }
        });
    }

    /// The machine continues from where it was suspended. An agent process that ran then answers again.
    pub fn resume(&self, id: &str) {
        self.change(id, |host| {
            host.powered = true;
            host.set_agent(host.stage == 0, Instant::now());
        });
    }

    /// The machine's network card was replaced, and its guest reports it.
    pub fn replace_card(&self, id: &str, old: &str, new: &str) {
        self.change(id, |host| {
            let mut cards = host.facts.interfaces.iter_mut();
            if let Some(card) = cards.find(|c| c.mac.eq_ignore_ascii_case(old)) {
                new.to_ascii_lowercase().clone_into(&mut card.mac);
            }
            host.shown = host.shown.take().map(|_| host.facts.clone());
        });
    }

    /// The machine booted its installed disk: it runs without an agent process.
    pub fn booted_disk(&self, id: &str) {
        self.change(id, |host| lifecycle::boot_disk(host, Instant::now()));
    }

    /// The host's agent process stops to answer although the machine runs.
    pub fn silence(&self, id: &str) {
        self.change(id, |host| host.set_agent(false, Instant::now()));
    }

    /// What the machine's firmware will do when the install reboots it.
    pub fn set_next_boot(&self, id: &str, next: NextBoot) {
        let known = self.0.hosts.lock().get(id).map(|host| host.next_boot);
        if known != Some(next) {
            self.change(id, |host| host.next_boot = next);
        }
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut Host)) {
        if let Some(host) = self.0.hosts.lock().get_mut(id) {
            change(host);
        }
        self.0.hosts_desk.wake(id);
    }

    /// What this disk starts; `None` if no host of the service ever wrote it.
    #[must_use]
    pub fn content(&self, disk: &str) -> Option<Content> {
        self.0.hosts.content(disk)
    }

    /// From now on the kubeconfig of the hosted clusters is unusable, or usable again. While it is unusable, the Agent of
    /// a host that has left its cluster goes on showing the state before, unless it has the annotation
    /// `agent.agent-install.openshift.io/skip-spoke-cleanup`.
    pub fn break_kubeconfig(&self, broken: bool) {
        self.0.troubles.no_kubeconfig.store(broken, Relaxed);
        self.wake_all();
    }

    /// From now on no reclaim of a host ends by itself, although its machine runs; or each does again. A reclaim that
    /// does not end has a time limit. Then the host waits for a user action.
    pub fn stall_reclaims(&self, stalled: bool) {
        self.0.troubles.reclaims_stall.store(stalled, Relaxed);
        self.wake_all();
    }

    /// From now on the service writes so late. `Late::default()` ends that.
    pub fn write_late(&self, late: Late) {
        let trouble = &self.0.troubles.late;
        *trouble.lock().unwrap_or_else(PoisonError::into_inner) = late;
        self.wake_all();
    }

    /// From now on the service has this word for the state of each host, as a newer one may have. `None` ends that.
    pub fn name_states(&self, word: Option<&'static str>) {
        let trouble = &self.0.troubles.word;
        *trouble.lock().unwrap_or_else(PoisonError::into_inner) = word;
        self.wake_all();
    }

    fn wake_all(&self) {
        let all: Vec<String> = self.0.hosts.lock().keys().cloned().collect();
        for id in all {
            self.0.hosts_desk.wake(&id);
        }
    }

    /// Removes the image URL and its condition from an InfraEnv, as if its image did not exist yet; or gives it a new
    /// URL.
    pub fn withhold_image(&self, infra_env: &str, withheld: bool) {
        let mut set = self
            .0
            .withheld
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if withheld {
            set.insert(infra_env.to_owned());
        } else {
            set.remove(infra_env);
        }
        drop(set);
        self.0.images_desk.wake(infra_env);
    }

    /// Gives the InfraEnv a new image: another URL and `createdTime`. The old URL keeps working.
    ///
    /// # Errors
    /// There is no such InfraEnv, or the API server refused.
    pub async fn rotate_image(&self, infra_env: &str) -> Result<()> {
        // `createdTime` has whole seconds, and the service never makes two images in one second.
        let seen = self.0.infra_envs.fetch(infra_env).await?;
        let created = seen.and_then(|i| i.text("/status/createdTime").parse::<Timestamp>().ok());
        if let Some(created) = created {
            let next = created.saturating_add(SignedDuration::from_secs(1))?;
            let left = next.duration_since(nature::now());
            tokio::time::sleep(left.try_into().unwrap_or_default()).await;
        }
        self.patch_infra_env(
            infra_env,
            json!({"isoDownloadURL": "", "createdTime": null}),
        )
        .await?;
        self.0.images_desk.wake(infra_env);
        Ok(())
    }

    /// Patches the current status of the InfraEnv. After a conflict it reads the InfraEnv again.
    async fn patch_infra_env(&self, infra_env: &str, patch: Value) -> Result<()> {
        loop {
            let seen = self
                .0
                .infra_envs
                .fetch(infra_env)
                .await?
                .with_context(|| format!("no InfraEnv {infra_env}"))?;
            match self.0.infra_envs.patch_status(&seen, patch.clone()).await {
                Err(error) if refusal::status(&error).is_some_and(|s| s.code == 409) => {}
                other => return other.map(drop),
            }
        }
    }

    /// Gives the InfraEnv this image URL and changes nothing else, as if only its token was renewed.
    ///
    /// # Errors
    /// There is no such InfraEnv, or the API server refused.
    pub async fn set_image_url(&self, infra_env: &str, url: &str) -> Result<()> {
        self.patch_infra_env(infra_env, json!({"isoDownloadURL": url}))
            .await
    }

    /// Creates an InfraEnv with the fields that its schema requires, and waits for its image URL.
    ///
    /// # Errors
    /// The API server refused.
    pub async fn create_infra_env(&self, name: &str, agent_labels: Value) -> Result<String> {
        let spec = json!({"pullSecretRef": {"name": "pull-secret"}, "agentLabels": agent_labels});
        let mut changes = self.0.infra_envs.changes();
        self.0
            .infra_envs
            .create(json!({"name": name}), json!({ "spec": spec }))
            .await?;
        while let Some(change) = changes.recv().await {
            if let Some(infra_env) = change.new.filter(|object| object.name() == name) {
                let url = infra_env.text("/status/isoDownloadURL");
                if !url.is_empty() {
                    return Ok(url.to_owned());
                }
            }
        }
        bail!("the watch of InfraEnvs ended")
    }
}
