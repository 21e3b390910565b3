//! `lab kills`: machines come and go while the operator is killed again and again (SIGKILL), and a witness observes.
//!
//! It starts a fresh lab as the bench does ([`crate::bench`]), and creates objects of other owners. Then the number of
//! replicas rises and falls while the operator is killed at random moments. After the kills some machines stay and
//! must all serve; then all are deleted. Finally it prints what happened and which promises held.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args as ClapArgs;
use kube::Api;
use serde_json::json;

use crate::{
    bench::{self, Plan, Source, world::World},
    install_tls_provider,
    lab::manifest::agent_labels,
    played::{foreign::Strangers, kinds},
    witness::{Sight, Witness},
};

/// Time limit for the end, when the operator is no longer killed. It only catches a hang.
const LIMIT: Duration = Duration::from_secs(900);
/// Lowest number of changes of the replicas, whether they completed or not.
const CHANGES: u32 = 6;

/// Kill the operator again and again while machines come and go.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Highest number of machines.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub machines: usize,
    /// How long the operator is killed again and again.
    #[arg(long, value_name = "MINUTES", default_value_t = 10.0)]
    pub minutes: f64,
    /// Mean time between two kills.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    pub kill_every: Duration,
    /// Seed of the moments of the kills.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The operator's program.
    #[command(flatten)]
    pub program: Source,
}

fn duration(text: &str) -> Result<Duration, String> {
    agent_forge_crds::duration::parse(text).map_err(|e| e.to_string())
}

/// Plays, and prints what happened.
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
    let process = world.lab.vcenters().first();
    let process = process.context("the lab has one vCenter")?;
    let password = process.options().password.clone();
    let service = world.upstream.service(&world.cluster.agent_namespace)?;
    let cluster = world.cluster.name.clone();
    let labels = json!(agent_labels());
    let strangers = Strangers::settle(service, &cluster, labels, &world.vcenter, &cluster).await?;
    let before = strangers.prints().await?;
    let witness = Witness::start(sight(&world));

    play(&args, &mut world).await?;
    let some = args.machines.div_ceil(4);
    world.nodes.scale(some);
    let serve = settled(&world, some, &strangers).await;
    world.nodes.scale(0);
    let gone = settled(&world, 0, &strangers).await;
    let untouched = strangers.prints().await.and_then(|now| {
        ensure!(now == before, "they differ");
        Ok(())
    });
    say(&format!("the witness looked {} times", witness.looks()))?;
    let promises = [
        (
            "afterwards each wanted machine runs, with one VM, VsphereAgent and Agent",
            serve,
        ),
        (
            "in the end everything is gone: VMs, VsphereAgents, Agents, AgentMachines",
            gone,
        ),
        (
            "a foreign Agent and a foreign VM are as they were, byte for byte",
            untouched,
        ),
        (
            "no second VM, no VM without VsphereAgent, no serving VM touched, no Agent deleted before its VM",
            witness.verdict(),
        ),
        (
            "no process panicked, and no log has the password",
            logs(&world, &password),
        ),
    ];
    say(&costs(&world).await?)?;
    judge(&promises)
}

/// Prints each promise and whether it held.
///
/// # Errors
/// One did not.
pub(crate) fn judge(promises: &[(&str, Result<()>)]) -> Result<()> {
    let mut broken = 0;
    for (promise, held) in promises {
        match held {
            Ok(()) => say(&format!("kept    {promise}"))?,
            Err(why) => {
                broken += 1;
                say(&format!("BROKEN  {promise}: {why:#}"))?;
            }
        }
    }
    ensure!(broken == 0, "{broken} promises did not hold");
    Ok(())
}

/// Kills at random moments, while there are to be all machines, a tenth of them, all, half of them, and so on.
async fn play(args: &Args, world: &mut World) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(args.seed);
    let lasting = Duration::from_secs_f64(args.minutes * 60.0);
    let end = Instant::now() + lasting;
    let lows = [args.machines / 10, args.machines / 2];
    let mut starts = Vec::new();
    for turn in 0.. {
        let wanted = match turn % 2 {
            0 => args.machines,
            _ => lows[turn / 2 % 2],
        };
        world.nodes.scale(wanted);
        let began = Instant::now();
        let over = (began + lasting / CHANGES).min(end);
        let mut whole = false;
        while !whole && Instant::now() < over {
            tokio::time::sleep(args.kill_every.mul_f64(2.0 * random.f64())).await;
            world.operator.kill().await?;
            starts.push(world.start_anew().await?);
            whole = world.nodes.machines().len() == wanted && world.nodes.running().len() == wanted;
        }
        say(&format!(
            "{wanted} wanted, {} run after {:.0} s; {} kills so far",
            world.nodes.running().len(),
            began.elapsed().as_secs_f64(),
            starts.len()
        ))?;
        if Instant::now() >= end {
            break;
        }
    }
    starts.sort_unstable();
    let middle = starts.get(starts.len() / 2).copied().unwrap_or_default();
    let most = starts.last().copied().unwrap_or_default();
    say(&format!(
        "a new process was ready after {middle:.1?} (median), {most:.1?} at most"
    ))
}

/// Prints a line.
pub(crate) fn say(line: &str) -> Result<()> {
    bench::say(&format!("{line}\n"))
}

/// What the witness looks at.
pub(crate) fn sight(world: &World) -> Sight {
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
pub(crate) async fn settled(world: &World, count: usize, strangers: &Strangers) -> Result<()> {
    world.nodes.wait_running(count, LIMIT).await?;
    let sight = sight(world);
    let deadline = Instant::now() + LIMIT;
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
            Instant::now() < deadline,
            "{vms} VMs, {children} VsphereAgents, {agents} Agents and {waiting} AgentMachines where {count} are wanted"
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// The logs of all processes: no panic, no password.
pub(crate) fn logs(world: &World, password: &str) -> Result<()> {
    let mut processes = 0;
    for entry in fs::read_dir(world.lab.dir()).context("list the lab's directory")? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("operator-") && name.ends_with(".log") {
            let text = fs::read_to_string(&path).context("read an operator's log")?;
            processes += 1;
            ensure!(!text.contains("panicked at"), "{name} has a panic");
            ensure!(!text.contains(password), "{name} has the password");
        }
    }
    ensure!(processes > 0, "there is no operator log");
    Ok(())
}

/// What it took.
pub(crate) async fn costs(world: &World) -> Result<String> {
    let calls = world.vcenter.calls().await?;
    world.lab.audited().await?;
    let writes = world.lab.audit().writes(&world.access.user)?;
    Ok(format!(
        "{} VMs made, {} destroyed; {} vCenter calls, {} logins, {} Kubernetes writes in all",
        calls.of("CreateVM_Task"),
        calls.of("Destroy_Task"),
        calls.total,
        calls.logins.values().sum::<u64>(),
        writes.total()
    ))
}
