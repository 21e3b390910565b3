//! Played versions of the controllers that the lab does not run: HyperShift and Cluster API, the agent provider, the
//! assisted service; and the guests in the VMs.
//!
//! [`capi::HostedClusterPlay`] creates AgentMachines and Machines. [`provider::Provider`] reserves Agents for them.
//! [`assisted::Assisted`] owns InfraEnvs, images and Agents. [`guests::Guests`] boot the media in the VMs' CD drives.
//! [`Upstream`] connects all of them except the first, which a test or the demo controls.
//!
//! Guarantees: every part acts only in the namespaces of its options. So one API server and one vCenter can serve many
//! tests. Every delay is an option. A part ends when its handle is dropped. Assumptions: the CRDs of the chosen
//! generation are installed, and the client has all rights.

pub mod assisted;
pub mod capi;
pub mod condition;
pub mod desk;
pub mod foreign;
pub mod guests;
pub mod kinds;
pub mod mirror;
pub mod nature;
pub mod object;
pub mod options;
pub mod provider;
pub mod refusal;
pub mod selector;
pub mod stamps;
pub mod task;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use kube::Client;
use serde_json::Value;

pub use capi::{HostedClusterPlay, NodePoolOptions};
pub use options::{Delays, Generation, HostedCluster, ImageOptions, MachineApi, PlayedOptions};

use crate::parts::VCenterAdmin;
use assisted::{Assisted, image_server::ImageServer};
use guests::{Guests, vcenter::Hypervisor};
use provider::Provider;

/// The played upstream of some hosted clusters: providers, assisted services, image server, guests.
pub struct Upstream {
    client: Client,
    options: PlayedOptions,
    /// The image server of all InfraEnvs.
    pub images: ImageServer,
    /// The guests; `None` without a vCenter.
    pub guests: Option<Guests>,
    services: BTreeMap<String, Assisted>,
    providers: Vec<Provider>,
}

impl Upstream {
    /// Starts the services of all Agent namespaces, the provider of each hosted cluster, and the guests of `vcenter`.
    ///
    /// The namespaces must exist.
    ///
    /// # Errors
    /// A CRD is missing, or the API server or the vCenter's admin endpoint does not answer.
    pub async fn start(
        client: &Client,
        vcenter: Option<VCenterAdmin>,
        options: PlayedOptions,
    ) -> Result<Self> {
        let images = ImageServer::start(options.image.clone()).await?;
        Self::start_with(client, vcenter, images, options).await
    }

    /// As [`Upstream::start`], with an image server and VMs of the caller's choice.
    ///
    /// # Errors
    /// As [`Upstream::start`].
    pub async fn start_with(
        client: &Client,
        vcenter: Option<impl Hypervisor + 'static>,
        images: ImageServer,
        options: PlayedOptions,
    ) -> Result<Self> {
        let mut services = BTreeMap::new();
        for cluster in &options.clusters {
            let namespace = &cluster.agent_namespace;
            if !services.contains_key(namespace) {
                let service = Assisted::start(client, namespace, images.clone(), &options).await?;
                services.insert(namespace.clone(), service);
            }
        }
        let mut providers = Vec::new();
        for cluster in &options.clusters {
            let service = services
                .get(&cluster.agent_namespace)
                .context("every cluster has a service")?;
            let agents = service.agents().clone();
            providers.push(Provider::start(client, cluster.clone(), agents, &options).await?);
        }
        let guests = match vcenter {
            Some(vcenter) => Some(Guests::start(vcenter, services.clone(), &options).await?),
            None => None,
        };
        Ok(Self {
            client: client.clone(),
            options,
            images,
            guests,
            services,
            providers,
        })
    }

    /// Lets one more hosted cluster use this upstream. A service must be there for its Agents.
    ///
    /// # Errors
    /// No hosted cluster of this upstream has its Agents there, or the API server does not answer.
    pub async fn join(&mut self, cluster: HostedCluster) -> Result<()> {
        let agents = self.service(&cluster.agent_namespace)?.agents().clone();
        let provider = Provider::start(&self.client, cluster, agents, &self.options).await?;
        self.providers.push(provider);
        Ok(())
    }

    /// Ends all providers. A hosted cluster gets another one with [`Upstream::join`].
    pub fn end_providers(&mut self) {
        self.providers.clear();
    }

    /// The assisted service of an Agent namespace.
    ///
    /// # Errors
    /// No hosted cluster of this upstream has its Agents there.
    pub fn service(&self, agent_namespace: &str) -> Result<&Assisted> {
        self.services
            .get(agent_namespace)
            .with_context(|| format!("no hosted cluster has its Agents in {agent_namespace}"))
    }

    /// Ends everything except the image server. The objects stay without a controller.
    pub fn retire(&mut self) {
        self.guests = None;
        self.providers.clear();
        self.services.clear();
    }

    /// A NodePool of one of the hosted clusters, with no replicas yet.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn node_pool(
        &self,
        cluster: &HostedCluster,
        name: &str,
        agent_label_selector: Option<Value>,
    ) -> Result<HostedClusterPlay> {
        let options = NodePoolOptions {
            cluster: cluster.clone(),
            name: name.to_owned(),
            agent_label_selector,
            delays: self.options.delays.clone(),
        };
        HostedClusterPlay::new(&self.client, options).await
    }
}
