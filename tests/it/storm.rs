//! A minute of many faults, or as long as twenty faults take. The process is killed, frozen and cut off from either
//! side, while twenty machines come and go. Afterwards every machine is in the state that it would have without the
//! faults.
//!
//! `AGENT_FORGE_STORM_SEED` chooses another order of faults. A failure names its seed.

use std::time::Duration;

use agent_forge_lab::{
    parts::{FaultProxy, Network},
    played::foreign::Strangers,
};
use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    witness::Witness,
    world::{POOL, Setup, World, pool_labels},
};

/// Wanted numbers of machines, one after the other during the storm.
const TIDES: [usize; 4] = [20, 8, 20, 4];
/// How long each number lasts at least, and how many faults occur in that time. If a start of the operator takes
/// seconds, the storm is longer, but has as many faults.
const TIDE: Duration = Duration::from_secs(15);
const BLOWS: usize = 5;
const IN_THE_END: usize = 6;

struct Storm {
    world: World,
    api: FaultProxy,
    vcenter: FaultProxy,
    dice: fastrand::Rng,
}

impl Storm {
    /// A world whose operator reaches everything through proxies.
    async fn brew(seed: u64, operator_args: Vec<String>) -> Result<Self> {
        let mut world = World::start(Setup {
            operator_args,
            ..Setup::default()
        })
        .await?;
        world.stop_operator().await?;
        let api = FaultProxy::start(&world.lab.api_server().endpoint().url).await?;
        let direct = world.process.url().to_owned();
        let vcenter = FaultProxy::start(&direct).await?;
        world.access.kubeconfig = world.lab.kubeconfig_through(&world.access, &api)?;
        let server = json!({"server": vcenter.url(&direct)?});
        world
            .set_secret_data(world.namespace(), "vsphere-credentials", server)
            .await?;
        world.start_operator().await?;
        Ok(Self {
            world,
            api,
            vcenter,
            dice: fastrand::Rng::with_seed(seed),
        })
    }

    fn moment(&mut self, at_most: u64) -> Duration {
        Duration::from_millis(self.dice.u64(100..at_most))
    }

    async fn blow(&mut self) -> Result<&'static str> {
        let operator = self.world.operator()?;
        Ok(match self.dice.u8(0..10) {
            0..=4 => {
                operator.kill().await?;
                self.world.start_operator().await?;
                "killed"
            }
            5 => {
                self.api.cut();
                "API server cut"
            }
            6 => {
                self.vcenter.cut();
                "vCenter cut"
            }
            7 => {
                operator.process.signal(Signal::STOP)?;
                sleep(self.moment(2500)).await;
                let operator = self.world.operator()?;
                operator.process.signal(Signal::CONT)?;
                "frozen"
            }
            8 => {
                self.api.set(Network::Silent);
                sleep(self.moment(2500)).await;
                self.api.set(Network::Open);
                "API server silent"
            }
            _ => {
                self.vcenter.set(Network::Refusing);
                sleep(self.moment(2500)).await;
                self.vcenter.set(Network::Open);
                "vCenter refusing"
            }
        })
    }
}

async fn through_the_storm(seed: u64, operator_args: Vec<String>) -> Result<()> {
    let mut storm = Storm::brew(seed, operator_args).await?;
    let world = &storm.world;
    let witness = Witness::start(world.sight());
    let service = world.upstream.service(&world.cluster.agent_namespace)?;
    let labels = json!(pool_labels());
    let strangers = Strangers::settle(service, "demo", labels, &world.vcenter, "demo").await?;
    let before = strangers.prints().await?;

    let nodes = world.node_pool().await?;
    for wanted in TIDES {
        nodes.scale(wanted);
        let (begun, mut blows) = (Instant::now(), 0);
        while blows < BLOWS || begun.elapsed() < TIDE {
            sleep(storm.moment(1500)).await;
            storm.blow().await?;
            blows += 1;
        }
    }

    let world = &storm.world;
    nodes.scale(IN_THE_END);
    world.running(&nodes, IN_THE_END).await?;
    // In addition to ours: the foreign VM and the foreign Agent.
    world.settled_with(IN_THE_END, 1).await?;
    ensure!(
        strangers.prints().await? == before,
        "something foreign was touched"
    );
    nodes.scale(0);
    world.settled_with(0, 1).await?;
    ensure!(
        strangers.prints().await? == before,
        "something foreign was touched on the way down"
    );
    world.pools().delete(POOL, &Default::default()).await?;
    world.pool_ends().await?;
    ensure!(
        strangers.prints().await? == before,
        "something foreign was touched with the end of the pool"
    );
    witness.verdict()
}

fn seed() -> u64 {
    let given = std::env::var("AGENT_FORGE_STORM_SEED").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(42)
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_machines_come_and_go_through_kills_freezes_and_cuts() -> Result<()> {
    let seed = seed();
    through_the_storm(seed, Vec::new())
        .await
        .with_context(|| format!("AGENT_FORGE_STORM_SEED={seed}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_machines_come_and_go_while_actors_die_all_the_time() -> Result<()> {
    let world = World::start(Setup {
        operator_args: [
            "--chaos-kill-every=800ms",
            "--chaos-seed=7",
            "--i-understand-this-kills-actors",
        ]
        .map(str::to_owned)
        .to_vec(),
        ..Setup::default()
    })
    .await?;
    let witness = Witness::start(world.sight());
    let nodes = world.up(8).await?;
    world.settled(8).await?;
    world.each_serves_its_own().await?;
    nodes.scale(0);
    world.settled(0).await?;
    let log = world.operator()?.log()?;
    let kills = log
        .lines()
        .filter(|l| l.contains("chaos") && l.contains("actor"))
        .count();
    ensure!(kills >= 10, "only {kills} actors were killed");
    witness.verdict()
}

impl World {
    /// Waits until there are exactly `count` VMs, VsphereAgents and Agents in addition to `foreign` VMs and Agents.
    async fn settled_with(&self, count: usize, foreign: usize) -> Result<()> {
        self.until(
            &format!("{count} VMs, VsphereAgents and Agents beside {foreign} foreign"),
            async || {
                Ok(self.vms().await?.len() == count + foreign
                    && self.all_children().await?.len() == count
                    && self.all_agents().await?.len() == count + foreign)
            },
        )
        .await
    }
}
