//! `lab soak`: machines come and go while the operator is killed again and again (SIGKILL), and a witness observes.
//!
//! It starts a fresh lab as the bench does ([`crate::bench`]), and creates objects of other owners. Then the number of
//! replicas rises and falls while the operator is killed at regular intervals. After the kills some machines stay and
//! must all serve; then all are deleted. Finally it prints a table of what happened and of the promises. The exit code
//! is 0 only if every promise held.

mod report;
mod tides;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args as ClapArgs;
use kube::Api;
use serde_json::json;

use self::{report::Report, tides::Tides};
use crate::{
    bench::{Plan, Source, world::World},
    install_tls_provider,
    lab::manifest::agent_labels,
    played::{foreign::Strangers, guests::vcenter::VCenter, kinds, object::Facts as _},
    witness::{Sight, Witness},
};

/// Time limit for the end, when the operator is no longer killed. It only catches a hang.
const LIMIT: Duration = Duration::from_secs(900);

/// Kill the operator again and again while machines come and go.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Highest number of machines.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub machines: usize,
    /// How long the operator is killed again and again.
    #[arg(long, value_name = "MINUTES", default_value_t = 10.0)]
    pub minutes: f64,
    /// Time between two kills.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    pub kill_every: Duration,
    /// The operator's program.
    #[command(flatten)]
    pub program: Source,
}

fn duration(text: &str) -> Result<Duration, String> {
    agent_forge_crds::duration::parse(text).map_err(|e| e.to_string())
}

/// Runs the soak and prints the result.
///
/// # Errors
/// A part does not start, or a promise was broken.
pub async fn run(args: Args) -> Result<()> {
    ensure!(args.machines > 0, "--machines must be at least 1");
    ensure!(
        args.minutes > 0.0 && !args.kill_every.is_zero(),
        "--minutes and --kill-every must be more than 0"
    );
    install_tls_provider();
    let program = args.program.program().await?;
    let mut world = World::start(&program, &Plan::brisk(args.machines)).await?;
    let process = world
        .lab
        .vcenters()
        .first()
        .context("the lab has one vCenter")?;
    let guests = VCenter::new(process.url(), process.ca_pem())?;
    let password = process.options().password.clone();
    let service = world.upstream.service(&world.cluster.agent_namespace)?;
    let cluster = world.cluster.name.clone();
    let labels = json!(agent_labels());
    let strangers = Strangers::settle(service, &cluster, labels, &guests, &cluster).await?;
    let before = strangers.prints().await?;
    let witness = Witness::start(sight(&world));

    let mut report = Report::new(&args);
    let mut tides = Tides::new(&args);
    tides.play(&mut world).await?;
    report.tides(&tides);

    let some = args.machines.div_ceil(4);
    for count in [some, 0] {
        world.nodes.scale(count);
        let came = settled(&world, count, &strangers).await;
        let serves = match count {
            0 => "in the end everything is gone: VMs, VsphereAgents, Agents, AgentMachines",
            _ => "afterwards each wanted machine runs, with one VM, VsphereAgent and Agent",
        };
        report.promise(serves, came);
    }
    let untouched = strangers.prints().await.and_then(|now| {
        ensure!(now == before, "they differ");
        Ok(())
    });
    report.promise(
        "a foreign Agent and a foreign VM are as they were, byte for byte",
        untouched,
    );
    report.looks(witness.looks());
    report.promise(
        "no second VM, no VM without VsphereAgent, no serving VM touched, no Agent deleted before its VM",
        witness.verdict(),
    );
    report.logs(&world, &password)?;
    report.costs(&world).await?;
    report.print()
}

fn sight(world: &World) -> Sight {
    let client = world.lab.admin();
    let machine = kinds::machine(world.cluster.machine_api);
    Sight {
        vcenter: world.vcenter.clone(),
        children: Api::namespaced(client.clone(), &world.cluster.namespace),
        agents: Api::namespaced(client.clone(), &world.cluster.agent_namespace),
        machines: Api::namespaced_with(client, &world.cluster.control_plane_namespace, &machine),
    }
}

/// Waits until exactly `count` machines run, and nothing else exists except the objects of other owners.
async fn settled(world: &World, count: usize, strangers: &Strangers) -> Result<()> {
    world.nodes.wait_running(count, LIMIT).await?;
    let sight = sight(world);
    let deadline = tokio::time::Instant::now() + LIMIT;
    loop {
        let vms = world.vcenter.inventory().await?.vms;
        let agents = sight.agents.list(&Default::default()).await?.items;
        let children = sight.children.list(&Default::default()).await?.items.len();
        let vms = vms.iter().filter(|vm| vm.moref != strangers.vm).count();
        let agents = agents
            .iter()
            .filter(|a| a.metadata.name.as_ref() != Some(&strangers.agent))
            .count();
        let waiting = world.nodes.agent_machines().len();
        if [vms, agents, children, waiting] == [count; 4] {
            return Ok(());
        }
        ensure!(
            tokio::time::Instant::now() < deadline,
            "{vms} VMs, {children} VsphereAgents, {agents} Agents and {waiting} AgentMachines where {count} are wanted; {:?}",
            world
                .nodes
                .machines()
                .iter()
                .map(|m| m.name().to_owned())
                .collect::<Vec<_>>()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
