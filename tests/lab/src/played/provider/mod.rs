//! The agent CAPI provider of one hosted cluster, in the current and the legacy generation.
//!
//! An AgentMachine with an owner Machine gets hook and finalizer. Then it gets the first valid Agent that fits its
//! selector, and mirrors that Agent's conditions until the Agent is installed. When a Machine waits for its hook, the
//! provider unbinds the Agent and releases the hook. If a paused AgentMachine is deleted, the provider releases the hook
//! at once, and the Agent stays bound.
//!
//! Guarantees: it reads only its control plane namespace and its Agent namespace. It writes what the real provider
//! writes, in the same order. Each write is conditional on what was read, except for an Agent's label that is put back
//! and for the end of the finalizer. Caveat: the effects of mismatched generation and CRD are real. The API server
//! refuses the conditions, and each generation continues as the real one does.

mod bootstrap;
mod claim;
mod conditions;
mod hook;
mod pass;
mod select;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};

use super::{
    desk::Desk,
    kinds,
    mirror::{Change, Mirror, Object},
    object::Facts as _,
    options::{Generation, HostedCluster, PlayedOptions},
    selector,
    task::Task,
};

/// Finalizer of an AgentMachine whose owner the provider accepted.
pub const FINALIZER: &str = "agentmachine.agent-install.openshift.io/deprovision";
/// Annotation that delays a Machine's termination until the Agent is unbound.
pub const HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/agentmachine";
/// Label of a claimed Agent: its AgentMachine's name.
pub const AGENT_MACHINE_REF: &str = "agentMachineRef";
/// Annotation of a claimed Agent: its AgentMachine's namespace.
pub const AGENT_MACHINE_REF_NAMESPACE: &str = "agentMachineRefNamespace";
/// Label of objects that a hub backup contains.
pub const BACKUP_LABEL: &str = "cluster.open-cluster-management.io/backup";
/// Annotation that stops all CAPI controllers. For this provider the value must be `true`.
pub const PAUSED: &str = "cluster.x-k8s.io/paused";

/// A running provider. Ends when dropped.
#[derive(Debug)]
pub struct Provider {
    _tasks: Vec<Task>,
}

struct Play {
    cluster: HostedCluster,
    agent_machines: Mirror,
    machines: Mirror,
    agents: Mirror,
    secrets: Api<Secret>,
    /// The bootstrap Secrets whose token Secret exists.
    tokens: Mutex<BTreeSet<String>>,
    claim_step: Duration,
    hook_poll: Duration,
}

impl Provider {
    /// Starts the provider of `cluster`. `agents` mirrors its Agent namespace.
    ///
    /// # Errors
    /// The watches ended.
    pub async fn start(
        client: &Client,
        cluster: HostedCluster,
        agents: Mirror,
        options: &PlayedOptions,
    ) -> Result<Self> {
        let namespace = &cluster.control_plane_namespace;
        let agent_machines = Mirror::start(client, &kinds::agent_machine(), namespace);
        let machines = Mirror::start(client, &kinds::machine(cluster.machine_api), namespace);
        for mirror in [&agent_machines, &machines, &agents] {
            mirror.synced().await?;
        }
        let desk = Desk::new();
        let mut tasks = vec![desk.follow(&agent_machines, Change::name)];
        tasks.push(desk.follow(&machines, {
            let agent_machines = agent_machines.clone();
            move |change| owned_by_machine(&agent_machines, change)
        }));
        tasks.push(desk.follow(&agents, {
            let agent_machines = agent_machines.clone();
            move |change| concerned_by_agent(&agent_machines, change)
        }));
        let play = Play {
            secrets: Api::namespaced(client.clone(), namespace),
            tokens: Mutex::default(),
            claim_step: options.delays.claim_step,
            hook_poll: options.delays.hook_poll,
            cluster,
            agent_machines,
            machines,
            agents,
        };
        // The real provider reconciles one AgentMachine at a time. Therefore two AgentMachines never claim the same
        // Agent.
        tasks.push(desk.work(Arc::new(play), 1));
        Ok(Self { _tasks: tasks })
    }
}

impl Play {
    fn is_legacy(&self) -> bool {
        self.cluster.generation == Generation::Legacy
    }
}

fn owned_by_machine(agent_machines: &Mirror, change: &Change) -> Vec<String> {
    let Some(machine) = change.object() else {
        return Vec::new();
    };
    let owned = |agent_machine: &Object| {
        owner_machine(agent_machine).is_some_and(|owner| owner.name == machine.name())
    };
    names(&agent_machines.select(owned))
}

fn names(objects: &[Object]) -> Vec<String> {
    let names = objects.iter().map(|object| object.name().to_owned());
    names.collect()
}

/// A change of a claimed Agent concerns one AgentMachine that has it: the oldest one here, any in the real provider. A
/// change of a free and valid Agent concerns the AgentMachines that have no Agent and may take it. The real provider
/// reconciles all that have none, but has nothing to do for the others.
fn concerned_by_agent(agent_machines: &Mirror, change: &Change) -> Vec<String> {
    let Some(agent) = change.object() else {
        return Vec::new();
    };
    let mut states = change.old.iter().chain(&change.new);
    let was_claimed =
        states.any(|agent| claiming_namespace(agent) == Some(agent_machines.namespace()));
    let is_free = change
        .new
        .as_ref()
        .is_some_and(|agent| claiming_namespace(agent).is_none() && select::is_valid(agent));
    let mut concerned = Vec::new();
    if was_claimed {
        let has =
            |agent_machine: &Object| agent_machine.text("/status/agentRef/name") == agent.name();
        let age = |agent_machine: &Object| {
            let created = agent_machine.metadata.creation_timestamp.as_ref();
            created.map(|created| created.0)
        };
        // The list is in the order of names.
        let oldest = agent_machines.select(has).into_iter().min_by_key(age);
        concerned.extend(oldest.map(|agent_machine| agent_machine.name().to_owned()));
    }
    if is_free {
        let labels = agent.label_map();
        let may_take = |agent_machine: &Object| {
            let wanted = agent_machine.at("/spec/agentLabelSelector");
            // A malformed selector is reported in its own pass.
            agent_machine.text("/status/agentRef/name").is_empty()
                && (agent.label(AGENT_MACHINE_REF) == Some(agent_machine.name())
                    || selector::fits(wanted, &labels).unwrap_or(true))
        };
        concerned.extend(names(&agent_machines.select(may_take)));
    }
    concerned
}

/// Namespace of the AgentMachine that has claimed the Agent.
fn claiming_namespace(agent: &Object) -> Option<&str> {
    agent.annotation(AGENT_MACHINE_REF_NAMESPACE)
}

struct Owner<'a> {
    api_version: &'a str,
    name: &'a str,
}

/// The owner reference to a CAPI Machine of any version.
fn owner_machine(agent_machine: &Object) -> Option<Owner<'_>> {
    agent_machine
        .metadata
        .owner_references
        .iter()
        .flatten()
        .find_map(|owner| {
            let of_capi = owner.api_version.split('/').next() == Some(kinds::CAPI_GROUP);
            (owner.kind == "Machine" && of_capi).then_some(Owner {
                api_version: &owner.api_version,
                name: &owner.name,
            })
        })
}
