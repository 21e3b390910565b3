//! `lab bench-late-binding`: how long a machine waits for its host, with a host in the buffer and without one.
//!
//! Both machines come up in one lab, one after the other. `spec.scaling.maxVMs` keeps the buffer empty after the claim, so
//! calls and writes of the second machine are those of the claim alone. Then that machine goes, and its host is recycled.
//! At last a large buffer is observed at rest.

use std::{collections::BTreeMap, time::Duration};

use agent_forge_crds::{VsphereAgentPool, conditions::Phase, pool::OwnedVm};
use anyhow::{Context as _, Result, ensure};
use clap::Args as ClapArgs;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{
    Plan,
    binary::Source,
    run::{LIMIT, by_name, demand, difference, idle, own, quiet, written_since},
    say,
    world::World,
};
use crate::{parts::audit::count_writes, played::Delays};

/// The goals: seconds from a demand that shows to the answered claim, how many times faster the whole is, and calls to
/// vCenter and writes of one claim.
const CLAIM_WITHIN: f64 = 3.0;
const FASTER: f64 = 5.0;
const CALLS: u64 = 8;
const WRITES: usize = 8;

/// How long a guest boots, and how long from the registration of its Agent to the inventory.
const GUEST: Duration = Duration::from_secs(20);
/// Hosts in the buffer that is observed at rest, and how long.
const RESTING: usize = 50;
const REST: Duration = Duration::from_secs(60);

/// Measure what a buffer saves.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// The operator's program.
    #[command(flatten)]
    program: Source,
}

/// How one machine got its host.
struct Way {
    /// Seconds from the demand that shows to the answered claim: label and pin are on the Agent.
    claimed: f64,
    /// Seconds from the demand to the AgentMachine that has its Agent.
    bound: f64,
    calls: BTreeMap<String, u64>,
    writes: BTreeMap<String, usize>,
}

/// Measures and prints.
///
/// # Errors
/// A part does not start, a machine does not come up, or, after everything was printed, a goal is missed.
pub async fn run(args: Args) -> Result<()> {
    let path = args.program.program().await?;
    let plan = Plan {
        create: Duration::from_secs(3),
        power_on: Duration::from_secs(2),
        delays: Delays {
            boot: GUEST,
            inventory: GUEST,
            ..Delays::fast()
        },
        ..Plan::brisk(1)
    };
    let world = World::start(&path, &plan).await?;
    quiet(&world).await?;
    eprintln!("a machine comes up without a buffer");
    let cold = way(&world, 1).await?;
    eprintln!("a host comes into the buffer");
    fill(&world, 1, 2).await?;
    eprintln!("a machine comes up with it");
    let warm = way(&world, 2).await?;
    let mut text = String::new();
    text += &line("cold", &cold);
    text += &line("buffer", &warm);
    let faster = cold.bound / warm.bound;
    text += &format!("ratio    {faster:.1} times faster to the bound host (goal: {FASTER})\n");
    eprintln!("a machine goes, and its host comes back");
    let back = comes_back(&world).await?;
    text += &format!(
        "recycle  ready again {:.1} s after its Machine was gone; {} vCenter calls, {} Kubernetes writes until rest; {:.2} of a cold host\n",
        back.seconds,
        back.calls.values().sum::<u64>(),
        back.writes.values().sum::<usize>(),
        back.seconds / cold.bound
    );
    eprintln!("{RESTING} hosts come into the buffer");
    fill(&world, RESTING, RESTING + 2).await?;
    let rest = idle(&world, REST).await?;
    text += &format!(
        "at rest  {RESTING} hosts: {:.1} writes, {:.1} vCenter calls per minute over {:.0} s (goal: 0 writes)\n",
        rest.writes, rest.calls, rest.seconds
    );
    text += &details("buffer", &warm.writes, &warm.calls);
    text += &details("recycle", &back.writes, &back.calls);
    say(&text)?;
    let goals = [
        ("seconds to the claim", warm.claimed <= CLAIM_WITHIN),
        ("times faster", faster >= FASTER),
        (
            "vCenter calls of a claim",
            warm.calls.values().sum::<u64>() <= CALLS,
        ),
        (
            "writes of a claim",
            warm.writes.values().sum::<usize>() <= WRITES,
        ),
        ("writes at rest", rest.writes == 0.0),
    ];
    let missed: Vec<&str> = goals.iter().filter(|g| !g.1).map(|g| g.0).collect();
    ensure!(missed.is_empty(), "missed goals: {}", missed.join(", "));
    Ok(())
}

fn line(name: &str, way: &Way) -> String {
    format!(
        "{name:<8} claimed {:.2} s and bound {:.1} s after the demand; {} vCenter calls, {} Kubernetes writes until rest\n",
        way.claimed,
        way.bound,
        way.calls.values().sum::<u64>(),
        way.writes.values().sum::<usize>(),
    )
}

/// One line for each kind of write and call.
fn details(name: &str, writes: &BTreeMap<String, usize>, calls: &BTreeMap<String, u64>) -> String {
    let writes = writes.iter().map(|(what, n)| format!("{n:>8} {what}\n"));
    let calls = calls.iter().map(|(what, n)| format!("{n:>8} {what}\n"));
    writes
        .chain(calls)
        .fold(format!("{name}:\n"), |all, line| all + &line)
}

/// Scales to `machines`, of which the last one is new, and counts until rest.
async fn way(world: &World, machines: usize) -> Result<Way> {
    let mark = world.lab.audited().await?.len();
    let before = world.vcenter.calls().await?;
    world.nodes.scale(machines);
    let (demanded, _) = demand(world, 1).await?;
    let has_agent = || {
        let all = world.nodes.agent_machines();
        let bound = all
            .iter()
            .filter(|am| am.data["status"]["agentRef"].is_object());
        bound.count() >= machines
    };
    world.nodes.wait("a bound host", LIMIT, has_agent).await?;
    let bound = Timestamp::now();
    world.nodes.wait_running(machines, LIMIT).await?;
    quiet(world).await?;
    let entries = written_since(world, mark).await?;
    let calls = world.vcenter.calls().await?;
    let of_agents = own(world, &entries).filter(|e| {
        let object = e.object_ref.as_ref();
        e.verb == "patch" && object.is_some_and(|o| o.resource == "agents") && e.code() < 400
    });
    // A host of the buffer was named before the demand.
    let claims = of_agents.map(|e| e.stage_timestamp);
    let claimed = claims.filter(|at| *at >= demanded).min();
    let claimed = claimed.context("a claim in the audit log")?;
    let seconds = |to: Timestamp| to.duration_since(demanded).as_secs_f64();
    let writes = count_writes(&entries, &world.access.user).0;
    Ok(Way {
        claimed: seconds(claimed),
        bound: seconds(bound),
        calls: difference(&calls, &before),
        writes: by_name(writes),
    })
}

/// How a host came back.
struct Back {
    /// Seconds from the end of its Machine until it waits in the buffer, by the VsphereAgent, whose times are whole seconds.
    seconds: f64,
    calls: BTreeMap<String, u64>,
    writes: BTreeMap<String, usize>,
}

/// One of two machines goes. Its host is recycled.
async fn comes_back(world: &World) -> Result<Back> {
    let spec = json!({"spec": {
        "scaling": {"bufferAgents": 0, "bufferMax": 1},
        "release": {"policy": "Recycle"},
    }});
    change(world, &spec).await?;
    quiet(world).await?;
    let mark = world.lab.audited().await?.len();
    let before = world.vcenter.calls().await?;
    world.nodes.scale(1);
    let gone = || world.nodes.machines().len() == 1;
    world
        .nodes
        .wait("the end of a Machine", LIMIT, gone)
        .await?;
    let begun = Timestamp::now();
    // The pool says so a little later than the VsphereAgent.
    let ready = |pool: &VsphereAgentPool| {
        let rows = pool.status.iter().flat_map(|s| &s.owned_vms);
        let waits = rows.filter(|vm| vm.phase == Some(Phase::Available));
        let since = waits.filter_map(|vm| Some(vm.last_transition_time.as_ref()?.0));
        since.max().filter(|at| *at >= begun)
    };
    let back = |pool: &VsphereAgentPool| ready(pool).is_some();
    world.until_pool("a host that came back", back).await?;
    let pool = world.pools.get(world.pool_name()).await?;
    let at = ready(&pool).context("a host that waits")?;
    let seconds = at.duration_since(begun).as_secs_f64();
    quiet(world).await?;
    let entries = written_since(world, mark).await?;
    Ok(Back {
        seconds,
        calls: difference(&world.vcenter.calls().await?, &before),
        writes: by_name(count_writes(&entries, &world.access.user).0),
    })
}

/// Waits until the buffer has that many hosts, and for rest.
async fn fill(world: &World, hosts: usize, most: usize) -> Result<()> {
    let spec = json!({"spec": {"scaling": {"bufferAgents": hosts, "maxVMs": most}}});
    change(world, &spec).await?;
    // A VsphereAgent says later than its Agent that the host is there.
    let ready = |pool: &VsphereAgentPool| {
        let status = pool.status.as_ref();
        let there = |vm: &&OwnedVm| vm.phase == Some(Phase::Available);
        status.is_some_and(|s| {
            let buffer = s.buffer.as_ref().map_or(0, |b| b.ready);
            usize::try_from(buffer) == Ok(hosts)
                && s.owned_vms.iter().filter(there).count() == hosts
        })
    };
    world.until_pool("a full buffer", ready).await?;
    quiet(world).await
}

async fn change(world: &World, patch: &Value) -> Result<()> {
    let pool = world.pool_name();
    let patch = Patch::Merge(patch);
    let parameters = PatchParams::default();
    let changed = world.pools.patch(pool, &parameters, &patch).await;
    changed.context("change the pool")?;
    Ok(())
}
