//! Many machines: what each costs on its way up, what all of them ask for at rest, and how often the operator tries to
//! reach an absent vCenter.
//!
//! The counts come from the requests that arrive at the servers ([`crate::traffic`]), not from the operator's own
//! metrics.

mod copies;

use std::{collections::BTreeMap, fmt, future::Future, time::Duration};

use agent_forge_actors::ports::effect::EffectKind;
use anyhow::{Result, ensure};
use serde_json::json;

use crate::{
    director::is_deed,
    oracles, run,
    traffic::Counts,
    vcenter::tasks::Work,
    workloads::{children, marked},
    world::World,
};

/// A generous limit in virtual time. So many machines at once wait for their task slots.
const PATIENCE: Duration = Duration::from_secs(4 * 3600);
/// The operator is at rest after this time without an effect.
const QUIET: Duration = Duration::from_secs(300);
const MINUTE: Duration = Duration::from_secs(60);
const POOL: &str = "w";

/// What a number of machines cost until all of them served and nothing changed any more.
#[derive(Clone, Debug)]
pub struct Ascent {
    /// Number of machines.
    pub machines: usize,
    /// Requests since the machines were wanted.
    pub counts: Counts,
    /// Mutating effects by kind, without session views and leases.
    pub effects: BTreeMap<EffectKind, u32>,
    /// Virtual time from the demand to the last machine that runs.
    pub took: Duration,
    /// Virtual time from the demand until each VM was on.
    pub on: Vec<Duration>,
}

impl Ascent {
    /// When the first VM was on, when half of them were, and when the last one was.
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
        // An effect that each machine has once is not worth a mention.
        let each = |count: u32| f64::from(count) / self.machines as f64;
        let often = self.effects.iter().filter(|(_, n)| each(**n) > 1.05);
        let often = often.map(|(effect, n)| format!(" {} {:.2}", effect.name(), each(*n)));
        write!(f, "; most often{}", often.collect::<String>())
    }
}

/// What the operator asked for while nothing happened.
#[derive(Clone, Debug)]
pub struct Stillness {
    /// Number of minutes.
    pub minutes: u32,
    /// Mutating effects, without session views and leases.
    pub effects: Vec<String>,
    /// All requests.
    pub counts: Counts,
    /// Kubernetes reads and writes in the busiest minute.
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

/// How the operator behaved while vCenter was unreachable.
#[derive(Clone, Copy, Debug)]
pub struct Absence {
    /// How long vCenter was unreachable.
    pub lasted: Duration,
    /// Time until the pool reported it, although no machine needed vCenter.
    pub told_after: Duration,
    /// Number of tries to reach vCenter.
    pub tries: u64,
    /// Time from vCenter's return until every machine ran that was wanted in the meantime.
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

/// How long a machine of another pool and a removal take beside a burst.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// Time from the demand of the small pool until its VM was on.
    pub small_pool: Duration,
    /// Time from the end of a machine's demand until its VM was destroyed.
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

/// A world with one pool and a NodePool that is scaled.
pub struct Site {
    world: World,
    machines: usize,
}

/// Runs `play` with virtual time.
///
/// # Errors
/// The error of `play`, a broken promise, or a panic in any task.
pub fn play<T>(play: impl Future<Output = Result<T>>) -> Result<T> {
    let (result, panics) = run::in_virtual_time(play);
    ensure!(panics.is_empty(), "{panics:?}");
    result
}

impl Site {
    /// A world whose pool is ready and at rest.
    ///
    /// # Errors
    /// The pool does not become ready.
    pub async fn start() -> Result<Self> {
        let mut world = World::start("scale").await?;
        world.pool(POOL, &json!({})).await?;
        let site = Self { world, machines: 0 };
        site.quiet().await?;
        Ok(site)
    }

    /// Lets vCenter tasks take as long as in `lab bench`: create 3 s, reconfigure 0.1 s, power on 2 s.
    pub fn at_bench_pace(&self) {
        self.world.vcenter.set_tempo(|work| match work {
            Work::Create(..) => Some(3000),
            Work::Reconfigure(..) => Some(100),
            Work::PowerOn(_) => Some(2000),
            _ => None,
        });
    }

    /// A machine serves in a pool of its own. Then `machines` are wanted at once in the first pool, whose creates take
    /// a minute. In the same time another pool wants one machine, and the serving machine is removed.
    ///
    /// # Errors
    /// This state is not reached in time, or a promise was broken.
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
        let all = || nodes.running().len() == self.machines && self.has_vms(self.machines);
        self.world.until("all machines run", PATIENCE, all).await
    }

    fn has_vms(&self, vms: usize) -> bool {
        marked(&self.world) == vms && children(&self.world) == vms
    }

    /// Whether the pool reports that it reaches its vCenter.
    fn is_reached(&self) -> bool {
        self.world.condition(POOL, "VsphereReady")["status"] == "True"
    }

    fn kept(&self) -> Result<()> {
        let broken = self.world.director.violations();
        ensure!(broken.is_empty(), "{broken:?}");
        Ok(())
    }

    /// Scales up to `machines`, and waits until nothing changes any more.
    ///
    /// # Errors
    /// This state is not reached in time, or a promise was broken.
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

    /// Lets one machine come up and copies it until there are `machines`. Upstream does not know the copies: they
    /// serve, and nothing changes them any more.
    ///
    /// # Errors
    /// This state is not reached in time, the operator changes a copy, or a promise was broken.
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
            self.has_vms(machines),
            "{} VMs, {} VsphereAgents",
            marked(&self.world),
            children(&self.world)
        );
        let made = self.world.director.created() - created;
        ensure!(made == 0, "the operator made {made} VMs");
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
        let effects = director.effects().into_iter();
        let effects = effects.filter(|(_, p)| is_deed(p)).skip(deeds);
        Ok(Stillness {
            minutes,
            effects: effects.map(|(at, p)| format!("{p} at {at:?}")).collect(),
            counts: director.traffic.counts().since(before),
            worst_minute,
        })
    }

    /// Makes vCenter unreachable for more than ten minutes. Then `more` machines are wanted. Ends when all of them run.
    ///
    /// # Errors
    /// The time is too short, the machines do not run in time, or a promise was broken.
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
