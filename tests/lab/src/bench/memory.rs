//! `lab bench-memory`: the peak memory of the operator beside many large Agents of other hosts, while some of its own
//! VMs have dead guests.
//!
//! It starts a lab with one pool and creates Agents of other hosts in the same namespace. Then four machines come whose
//! guests never register. The operator gives up each VM and replaces it, and before that it lists all Agents live.
//! Finally the kernel reports the peak memory (`VmHWM`). Assumption: the size of an Agent is the size of its JSON. A
//! real Agent of a host with many disks has about 60 kB.

use agent_forge_crds::VsphereAgent;
use anyhow::{Context as _, Result, ensure};
use clap::Args as ClapArgs;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use serde_json::json;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{
    Plan,
    binary::Source,
    mib, proc,
    run::{LIMIT, LOOK},
    say,
    world::World,
};
use crate::played::guests::identity::Quirk;

/// Machines whose guests never register.
const DEAD: usize = 4;
/// Agents that are created at the same time.
const AT_ONCE: usize = 16;
/// The goal in MiB for up to a thousand Agents. `MANY` is the goal for more.
const FEW: (usize, f64) = (1000, 160.0);
const MANY: f64 = 200.0;

/// Measure the peak memory of the operator beside Agents of other hosts.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Number of Agents of other hosts.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub agents: usize,
    /// Approximate size of each of them.
    #[arg(long, value_name = "BYTES", default_value_t = 60_000)]
    pub agent_bytes: usize,
    /// The operator's program.
    #[command(flatten)]
    pub program: Source,
}

/// Measures and prints.
///
/// # Errors
/// A part does not start, the dead guests are not replaced, or the goal is missed.
pub async fn run(args: Args) -> Result<()> {
    let path = args.program.program().await?;
    let mut world = World::without_pool(&path, &Plan::brisk(DEAD)).await?;
    let patch = json!({"agent": {"discoveryTimeout": "30s"}});
    world.with_iso(&patch).await?;
    let guests = world.upstream.guests.as_ref().context("guests")?;
    guests.add_quirk("/", Quirk::DeadOnArrival);
    eprintln!("creating {} Agents of other hosts", args.agents);
    strangers(&world, args.agents, args.agent_bytes).await?;
    // A process that starts beside the Agents lists all of them, which is another peak.
    world.operator.stop().await?;
    world.start_anew().await?;
    eprintln!("scaling up by {DEAD} machines with dead guests");
    world.nodes.scale(DEAD);
    until_replaced(&world).await?;

    let usage = proc::usage(world.operator.process.pid())?;
    let goal = if args.agents <= FEW.0 { FEW.1 } else { MANY };
    let peak = mib(usage.peak_bytes);
    let text = format!(
        "beside      {} Agents of {:.0} kB\n\
         replaced    {DEAD} VMs with dead guests\n\
         memory      {peak:.1} MiB at most (goal: {goal} MiB), {:.1} MiB resident now\n\
         machine     load average {:.1}\n",
        args.agents,
        args.agent_bytes as f64 / 1e3,
        mib(usage.resident_bytes),
        proc::load()?,
    );
    say(&text)?;
    ensure!(peak <= goal, "the goal is missed");
    Ok(())
}

/// Creates Agents of other hosts, bound to another cluster.
async fn strangers(world: &World, count: usize, bytes: usize) -> Result<()> {
    let agents = world.agents();
    let smart = "0123456789abcdef".repeat(bytes.div_ceil(16));
    let created = stream::iter(0..count).map(|_| {
        let (agents, smart) = (agents.clone(), &smart);
        async move {
            let id = Uuid::new_v4().to_string();
            let object = json!({
                "apiVersion": "agent-install.openshift.io/v1beta1",
                "kind": "Agent",
                "metadata": {"name": id, "labels": {"infraenvs.agent-install.openshift.io": "others"}},
                "spec": {
                    "approved": true,
                    "role": "worker",
                    "clusterDeploymentName": {"name": "others", "namespace": "others"},
                },
            });
            let object: DynamicObject = serde_json::from_value(object).context("an Agent")?;
            agents
                .create(&PostParams::default(), &object)
                .await
                .context("create an Agent")?;
            let disk = json!({"id": "/dev/sda", "name": "sda", "driveType": "SSD", "sizeBytes": 1, "smart": smart});
            let status = json!({"status": {
                "debugInfo": {"state": "added-to-existing-cluster"},
                "inventory": {"hostname": id, "systemVendor": {"serialNumber": id}, "disks": [disk]},
            }});
            agents
                .patch_status(&id, &PatchParams::default(), &Patch::Merge(status))
                .await
                .context("set an Agent's status")?;
            Ok::<_, anyhow::Error>(())
        }
    });
    created
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

/// Waits until each VM was given up once and replaced.
async fn until_replaced(world: &World) -> Result<()> {
    let children: Api<VsphereAgent> = Api::namespaced(world.lab.admin(), &world.cluster.namespace);
    let by = Instant::now() + LIMIT;
    loop {
        let all = children.list(&Default::default()).await?;
        let attempts = all
            .iter()
            .filter_map(|c| c.status.as_ref()?.vm.as_ref()?.attempt);
        if attempts.filter(|attempt| *attempt > 1).count() == DEAD {
            return Ok(());
        }
        ensure!(Instant::now() < by, "the dead guests were not replaced");
        sleep(LOOK).await;
    }
}
