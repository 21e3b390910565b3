//! Starts what the demo runs on: lab, upstream, pool, objects of other people, operator.

use std::path::Path;

use agent_forge_crds::{VsphereAgent, VsphereAgentPool, external::agent::Agent, pool::IsoStatus};
use anyhow::{Context as _, Result};
use kube::{Api, Client, ResourceExt, api::PostParams};
use serde_json::json;

use super::{Args, Counts, Voice};
use crate::{
    Lab, LabOptions, OperatorAccess, ProviderGeneration,
    lab::manifest::{OPERATOR_NAMESPACE, agent_selector, pool},
    parts::{Jaeger, Operator, OperatorOptions, VCenterAdmin, VCenterOptions},
    played::{
        Delays, Generation, HostedCluster, HostedClusterPlay, ImageOptions, MachineApi, Upstream,
        foreign::Strangers, mirror::Object,
    },
    stage, tools,
};

pub(super) const NAMESPACE: &str = "demo";
pub(super) const POOL: &str = "demo-worker";

/// Everything that runs. Fields are dropped in this order: the operator first, the lab last.
pub(super) struct Stage {
    pub(super) voice: Voice,
    pub(super) operator: Operator,
    options: OperatorOptions,
    /// The operators that were killed.
    pub(super) dead: Vec<Operator>,
    pub(super) nodes: HostedClusterPlay,
    pub(super) node_pool: &'static str,
    pub(super) upstream: Upstream,
    pub(super) vcenter: VCenterAdmin,
    pub(super) access: OperatorAccess,
    pub(super) cluster: HostedCluster,
    /// With `--late-binding`: another hosted cluster, whose NodePools use the same InfraEnv.
    pub(super) second: Option<HostedCluster>,
    /// Objects and VMs that belong to others.
    pub(super) foreign: Strangers,
    pub(super) client: Client,
    pub(super) jaeger: Option<Jaeger>,
    pub(super) lab: Lab,
}

/// One observation of everything.
pub(super) struct Seen {
    pub(super) agent_machines: Vec<Object>,
    pub(super) machines: usize,
    pub(super) running: Vec<String>,
    pub(super) children: Vec<VsphereAgent>,
    pub(super) agents: Vec<Agent>,
    /// The pool's ISO, from its status.
    pub(super) iso: IsoStatus,
    /// Read after the Agents. So if an Agent is missing here while its VM exists, the Agent was deleted too early.
    pub(super) vms: Vec<crate::parts::vcenter_inventory::Vm>,
}

impl Seen {
    pub(super) fn counts(&self) -> Counts {
        Counts {
            running: self.running.len(),
            machines: self.machines,
            children: self.children.len(),
            agents: self.agents.len(),
            vms: self.vms.len(),
        }
    }
}

impl Stage {
    pub(super) async fn start(args: &Args, voice: &Voice) -> Result<Self> {
        let program = match &args.operator {
            Some(given) => given.clone(),
            None => {
                voice.say("building the operator (dev profile)");
                tools::built("agent-forge", "agent-forge", "dev")?
            }
        };
        let (vcenter, delays) = delays(&args.delay)?;
        let generation = ProviderGeneration::from(args.generation);
        voice.say("starting etcd, kube-apiserver, kube-controller-manager and a simulated vCenter");
        let lab = Lab::start(
            LabOptions::default()
                .vcenter(vcenter)
                .generation(generation),
        )
        .await?;
        let client = lab.admin();
        let mut cluster = HostedCluster::new(NAMESPACE, "demo");
        if generation.legacy_provider() {
            cluster.generation = Generation::Legacy;
            cluster.machine_api = MachineApi::V1Beta1;
        }
        voice.say("playing HyperShift, Cluster API, agent provider, assisted service and guests");
        let process = lab.vcenters().first().context("the lab has one vCenter")?;
        let vcenter = process.admin()?;
        let second = args
            .late_binding
            .then(|| super::late_binding::second(&cluster));
        let clusters: Vec<_> = [cluster.clone()]
            .into_iter()
            .chain(second.clone())
            .collect();
        let upstream = stage::set(&lab, &clusters, delays, ImageOptions::default()).await?;
        let service = upstream.service(&cluster.agent_namespace)?;

        voice.say("adding a bare-metal host with the pool's labels, and a VM of another team");
        let labels = json!({"customer": "example"});
        let foreign = Strangers::settle(service, "demo", labels, &vcenter, "other-team").await?;

        let nodes = upstream
            .node_pool(&cluster, POOL, Some(agent_selector()))
            .await?;
        let spec = match args.late_binding {
            true => super::late_binding::spec(),
            false => json!({}),
        };
        let pools: Api<VsphereAgentPool> = Api::namespaced(client.clone(), NAMESPACE);
        pools
            .create(&PostParams::default(), &pool(&cluster, POOL, &spec)?)
            .await
            .context("create the pool")?;
        let access = lab.kubeconfig_for_operator(OPERATOR_NAMESPACE).await?;
        voice.say(
            "agent-forge starts as its own ServiceAccount, with exactly the rules of config/rbac",
        );
        let mut options = OperatorOptions::new(program, &access.kubeconfig);
        let jaeger = match args.jaeger {
            true => Some(Jaeger::start(lab.dir()).await?),
            false => None,
        };
        if let Some(jaeger) = &jaeger {
            options.env.extend(jaeger.environment());
            voice.say(&format!("Jaeger's query API: {}", jaeger.query_url()));
        }
        let operator = lab.operator(&options).await?;
        Ok(Self {
            voice: voice.clone(),
            operator,
            options,
            dead: Vec::new(),
            nodes,
            node_pool: POOL,
            upstream,
            vcenter,
            access,
            cluster,
            second,
            foreign,
            client,
            jaeger,
            lab,
        })
    }

    /// The operator's program.
    pub(super) fn program(&self) -> &Path {
        &self.options.program
    }

    /// Kills the operator as a crash of its node would, and starts another.
    pub(super) async fn restart(&mut self) -> Result<()> {
        self.operator.kill().await?;
        let next = self.lab.operator(&self.options).await?;
        self.dead.push(std::mem::replace(&mut self.operator, next));
        Ok(())
    }

    /// How many AgentMachines have an Agent.
    pub(super) fn bound(&self) -> usize {
        let all = self.nodes.agent_machines();
        let has = |am: &&Object| am.data["status"]["agentRef"].is_object();
        all.iter().filter(has).count()
    }

    pub(super) async fn look(&self) -> Result<Seen> {
        let children: Api<VsphereAgent> = Api::namespaced(self.client.clone(), NAMESPACE);
        let agents: Api<Agent> =
            Api::namespaced(self.client.clone(), &self.cluster.agent_namespace);
        let pools: Api<VsphereAgentPool> = Api::namespaced(self.client.clone(), NAMESPACE);
        let status = pools.get(POOL).await?.status.unwrap_or_default();
        let children = children.list(&Default::default()).await?.items;
        let mut agents = agents.list(&Default::default()).await?.items;
        agents.retain(|a| a.name_any() != self.foreign.agent);
        let mut vms = self.vcenter.inventory().await?.vms;
        vms.retain(|vm| vm.moref != self.foreign.vm);
        Ok(Seen {
            agent_machines: self.nodes.agent_machines(),
            machines: self.nodes.machines().len(),
            running: self.nodes.running(),
            iso: status.iso.unwrap_or_default(),
            children,
            agents,
            vms,
        })
    }
}

fn delays(given: &[String]) -> Result<(VCenterOptions, Delays)> {
    let mut vcenter = VCenterOptions::realistic();
    let mut delays = Delays::default();
    for text in given {
        let (name, value) = text
            .split_once('=')
            .with_context(|| format!("--delay {text}: use NAME=DURATION"))?;
        let value =
            agent_forge_crds::duration::parse(value).with_context(|| format!("--delay {text}"))?;
        match name {
            "create" => vcenter.create_delay = value,
            "power-on" => vcenter.power_on_delay = value,
            "power-off" => vcenter.power_off_delay = value,
            "reconfigure" => vcenter.reconfigure_delay = value,
            "destroy" => vcenter.destroy_delay = value,
            other => delays
                .set(other, value)
                .map_err(|e| anyhow::anyhow!("--delay {text}: {e}"))?,
        }
    }
    Ok((vcenter, delays))
}
