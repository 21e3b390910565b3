//! Many machines: what each costs on its way up, what all of them ask for at rest, and how often a vCenter that is away
//! is tried.
//!
//! Counted is what arrives at the doors ([`crate::traffic`]), not what the operator says of itself.

mod copies;

use std::{collections::BTreeMap, fmt, future::Future, time::Duration};

use anyhow::{Result, ensure};
use serde_json::json;

use crate::{
    director::is_deed,
    oracles,
    plan::Plan,
    run,
    traffic::Counts,
    vcenter::tasks::Work,
    workloads::{children, marked},
    world::World,
};

/// A generous bound in virtual time; that many at once wait for their task slots.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);
/// Without an effect for that long the operator is at rest.
const QUIET: Duration = Duration::from_secs(300);
const MINUTE: Duration = Duration::from_secs(60);
const POOL: &str = "w";

/// What a number of machines cost until all of them served and nothing moved any more.
#[derive(Clone, Debug)]
pub struct Ascent {
    /// How many.
    pub machines: usize,
    /// From the demand on.
    pub counts: Counts,
    /// Mutating effects by code, session views and leases aside.
    pub effects: BTreeMap<&'static str, u32>,
    /// Virtual time from the demand to the last machine that runs.
    pub took: Duration,
    /// Virtual time from the demand until each VM was on.
    pub on: Vec<Duration>,
}

impl Ascent {
    /// When the first VM was on, the one in the middle, and the last.
    #[must_use]
    pub fn rise(&self) -> [Duration; 3] {
        let at = |place: usize| self.on.get(place).copied().unwrap_or_default();
        let last = self.on.len().saturating_sub(1);
        [at(0), at(last / 2), at(last)]
    }

    /// vCenter calls per machine.
    #[must_use]
    pub fn calls(&self) -> f64 {
        self.counts.calls as f64 / self.machines as f64
    }

    /// Kubernetes writes per machine.
    #[must_use]
    pub fn writes(&self) -> f64 {
        self.counts.writes as f64 / self.machines as f64
    }
}

impl fmt::Display for Ascent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>5} machines up in {:.0} s: {:.2} vCenter calls, {:.2} Kubernetes writes, {:.2} reads each; {} long polls at once at most",
            self.machines,
            self.took.as_secs_f64(),
            self.calls(),
            self.writes(),
            self.counts.reads as f64 / self.machines as f64,
            self.counts.most_waiting,
        )?;
        let [first, median, last] = self.rise().map(|at| at.as_secs_f64());
        write!(
            f,
            "; VMs on: first {first:.1} s, median {median:.1} s, last {last:.1} s"
        )?;
        // One that each machine has is no news.
        let each = |count: u32| f64::from(count) / self.machines as f64;
        let often = self.effects.iter().filter(|(_, n)| each(**n) > 1.05);
        let often = often.map(|(code, n)| format!(" {code} {:.2}", each(*n)));
        write!(f, "; most often{}", often.collect::<String>())
    }
}

/// What the operator asked for while nothing happened.
#[derive(Clone, Debug)]
pub struct Stillness {
    /// Minutes that it was watched for.
    pub minutes: u32,
    /// Mutating effects, session views and leases aside.
    pub effects: Vec<String>,
    /// All of it.
    pub counts: Counts,
    /// Reads and writes of Kubernetes in the minute with the most of them.
    pub worst_minute: u64,
}

impl fmt::Display for Stillness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts {
            reads,
            writes,
            watches,
            calls,
            most_waiting,
            ..
        } = self.counts;
        write!(
            f,
            "at rest for {} min: {} mutating calls; Kubernetes: {reads} reads, {writes} writes, {} in the worst minute, {watches} watches begun; vCenter: {calls} calls, {most_waiting} long polls at once at most",
            self.minutes,
            self.effects.len(),
            self.worst_minute,
        )
    }
}

/// How the operator bore a vCenter that was away.
#[derive(Clone, Copy, Debug)]
pub struct Absence {
    /// For how long.
    pub lasted: Duration,
    /// How long until the pool said so, although nobody had work there.
    pub told_after: Duration,
    /// Tries to reach it.
    pub tries: u64,
    /// From its return until every machine ran that was wanted meanwhile.
    pub steady_after: Duration,
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "vCenter away for {:.0} min: told after {:.0} s, {} tries to reach it, {:.0} s after its return all machines run",
            self.lasted.as_secs_f64() / 60.0,
            self.told_after.as_secs_f64(),
            self.tries,
            self.steady_after.as_secs_f64(),
        )
    }
}

/// How a machine of another pool and a removal fared beside a burst.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// From the demand of the small pool until its VM was on.
    pub small_pool: Duration,
    /// From the end of a machine's demand until its VM was destroyed.
    pub removal: Duration,
}

impl fmt::Display for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (small, removal) = (self.small_pool.as_secs_f64(), self.removal.as_secs_f64());
        write!(
            f,
            "beside a burst: a machine of another pool on after {small:.1} s, a VM removed after {removal:.1} s"
        )
    }
}

/// A site with one pool, and a NodePool that has been scaled.
pub struct Site {
    world: World,
    machines: usize,
}

/// Runs `play` with virtual time.
///
/// # Errors
/// What it fails with, a promise that was broken meanwhile, or a panic anywhere.
pub fn play<T>(play: impl Future<Output = Result<T>>) -> Result<T> {
    let (result, panics) = run::in_virtual_time(play);
    ensure!(panics.is_empty(), "{panics:?}");
    result
}

impl Site {
    /// A site whose pool is ready and at rest.
    ///
    /// # Errors
    /// It does not come about.
    pub async fn start() -> Result<Self> {
        let mut world = World::start(
            &Plan {
                workload: "scale".to_owned(),
                seed: 1,
                faults: Vec::new(),
            },
            1,
        )
        .await?;
        world.pool(POOL, &json!({})).await?;
        let site = Self { world, machines: 0 };
        site.quiet().await?;
        Ok(site)
    }

    /// Lets tasks of vCenter take that long: create 3 s, reconfigure 0.1 s, power on 2 s, as `lab bench` has it.
    pub fn at_bench_pace(&self) {
        self.world.vcenter.set_tempo(|work| match work {
            Work::Create(..) => Some(3000),
            Work::Reconfigure(..) => Some(100),
            Work::PowerOn(_) => Some(2000),
            _ => None,
        });
    }

    /// A machine serves in a pool of its own; then `machines` are wanted at once in the first pool, whose creates take a
    /// minute. Beside them another pool wants one machine, and the one that serves goes.
    ///
    /// # Errors
    /// It does not come about, or a promise was broken.
    pub async fn beside_a_burst(&mut self, machines: usize) -> Result<Crowd> {
        for name in ["old", "small"] {
            self.world.pool(name, &json!({})).await?;
        }
        self.world.play("old")?.scale(1);
        let director = self.world.director.clone();
        let serves = self.world.play("old")?;
        let up = || serves.running().len() == 1;
        self.world.until("one serves", PATIENCE, up).await?;
        self.world.vcenter.set_tempo(|work| match work {
            Work::Create(..) => Some(60_000),
            _ => None,
        });
        let before = self.world.vcenter.switched_on().len();
        self.world.play(POOL)?.scale(machines);
        let all = || children(&self.world) == machines + 1;
        self.world.until("the burst waits", PATIENCE, all).await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let asked = director.now();
        self.world.play("small")?.scale(1);
        self.world.play("old")?.scale(0);
        let had = marked(&self.world);
        let gone = || marked(&self.world) < had;
        self.world.until("the removal", PATIENCE, gone).await?;
        let removal = director.now() - asked;
        let on = || {
            let all = self.world.vcenter.switched_on().split_off(before);
            let mut all = all.into_iter();
            all.find(|(_, name)| name.starts_with("small"))
        };
        self.world
            .until("the small pool", PATIENCE, || on().is_some())
            .await?;
        let small_pool = on().map(|(at, _)| at - asked).unwrap_or_default();
        self.kept()?;
        Ok(Crowd {
            small_pool,
            removal,
        })
    }

    fn deeds(&self) -> usize {
        self.world.director.deeds()
    }

    async fn quiet(&self) -> Result<()> {
        let until = self.world.director.now() + PATIENCE;
        loop {
            let before = self.deeds();
            tokio::time::sleep(QUIET).await;
            if self.deeds() == before {
                return Ok(());
            }
            ensure!(
                self.world.director.now() < until,
                "effects do not end: {:?}",
                self.world.director.effects().last()
            );
        }
    }

    async fn until_running(&self) -> Result<()> {
        let nodes = self.world.play(POOL)?;
        let all = || {
            nodes.running().len() == self.machines
                && marked(&self.world) == self.machines
                && children(&self.world) == self.machines
        };
        self.world.until("all machines run", PATIENCE, all).await
    }

    /// What the pool says of its vCenter.
    fn is_reached(&self) -> bool {
        let conditions = self.world.of_pool(POOL, "/status/conditions");
        let mut all = conditions.as_array().into_iter().flatten();
        all.any(|c| c["type"] == "VsphereReady" && c["status"] == "True")
    }

    fn kept(&self) -> Result<()> {
        let broken = self.world.director.violations();
        ensure!(broken.is_empty(), "{broken:?}");
        Ok(())
    }

    /// Scales up to `machines`, until nothing moves any more.
    ///
    /// # Errors
    /// It does not come about, or a promise was broken.
    pub async fn up(&mut self, machines: usize) -> Result<Ascent> {
        let director = &self.world.director;
        let (before, began) = (director.traffic.counts(), director.now());
        let earlier = director.effects().len();
        self.machines = machines;
        self.world.play(POOL)?.scale(machines);
        self.until_running().await?;
        let took = self.world.director.now() - began;
        let on = self.world.vcenter.switched_on();
        let on = on.iter().filter_map(|(at, _)| at.checked_sub(began));
        let on = on.collect();
        self.quiet().await?;
        let broken = oracles::at_rest(&self.world);
        ensure!(broken.is_empty(), "{broken:?}");
        self.kept()?;
        Ok(Ascent {
            machines,
            counts: self.world.director.traffic.counts().since(before),
            effects: run::counts(&self.world.director.effects()[earlier..]),
            took,
            on,
        })
    }

    /// Lets one machine come up and copies it until there are `machines`, of which nobody upstream knows: they serve, and
    /// nothing happens to them any more.
    ///
    /// # Errors
    /// It does not come about, the operator has work with a copy, or a promise was broken.
    pub async fn serving(&mut self, machines: usize) -> Result<()> {
        self.up(1).await?;
        self.world.upstream.retire();
        for (_, nodes) in &mut self.world.node_pools {
            nodes.retire();
        }
        let created = self.world.director.created();
        copies::make(&self.world, machines.saturating_sub(1))?;
        self.machines = machines;
        self.quiet().await?;
        ensure!(
            marked(&self.world) == machines && children(&self.world) == machines,
            "{} VMs, {} VsphereAgents",
            marked(&self.world),
            children(&self.world)
        );
        ensure!(
            self.world.director.created() == created,
            "the operator made VMs"
        );
        let leaks = oracles::leaks(&self.world);
        ensure!(leaks.is_empty(), "{leaks:?}");
        self.kept()
    }

    /// Listens for `minutes`.
    ///
    /// # Errors
    /// A promise was broken.
    pub async fn listen(&self, minutes: u32) -> Result<Stillness> {
        let director = &self.world.director;
        let (before, deeds) = (director.traffic.counts(), self.deeds());
        let (mut last, mut worst_minute) = (before, 0);
        for _ in 0..minutes {
            tokio::time::sleep(MINUTE).await;
            let now = director.traffic.counts();
            let asked = now.since(last);
            worst_minute = worst_minute.max(asked.reads + asked.writes);
            last = now;
        }
        self.kept()?;
        Ok(Stillness {
            minutes,
            effects: director
                .effects()
                .into_iter()
                .filter(|(_, p)| is_deed(p.effect))
                .skip(deeds)
                .map(|(at, p)| format!("{p} at {at:?}"))
                .collect(),
            counts: director.traffic.counts().since(before),
            worst_minute,
        })
    }

    /// Takes the vCenter away for more than ten minutes; after these `more` machines are wanted. Ends when all of them run.
    ///
    /// # Errors
    /// It is too short, does not come about, or a promise was broken.
    pub async fn bear_absence(&mut self, lasting: Duration, more: usize) -> Result<Absence> {
        ensure!(
            lasting > 10 * MINUTE,
            "the absence must last for more than 10 minutes"
        );
        let director = self.world.director.clone();
        let before = director.traffic.counts();
        director.take_vcenter(lasting);
        let (began, over) = (director.now(), director.now() + lasting);
        let away = || !self.is_reached();
        self.world
            .until("the pool says so", 10 * MINUTE, away)
            .await?;
        let told_after = director.now() - began;
        tokio::time::sleep((10 * MINUTE).saturating_sub(told_after)).await;
        self.machines += more;
        self.world.play(POOL)?.scale(self.machines);
        tokio::time::sleep(over.saturating_sub(director.now())).await;
        let tries = director.traffic.counts().since(before).refused;
        self.until_running().await?;
        let steady_after = director.now().saturating_sub(over);
        let back = || self.is_reached();
        self.world
            .until("the pool takes it back", MINUTE, back)
            .await?;
        self.kept()?;
        Ok(Absence {
            lasted: lasting,
            told_after,
            tries,
            steady_after,
        })
    }
}
