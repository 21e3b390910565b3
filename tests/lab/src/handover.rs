//! `lab handover`: two operators with one Lease take over from each other, while machines come and go.
//!
//! The leader ends in order (SIGTERM), dies (SIGKILL), stands still (SIGSTOP) until its Lease has long run out, or loses the
//! API server. The other one acts then, and a new process takes the place of the old one. The flags of the election are
//! those that users have by default. A witness observes, as with [`crate::kills`].

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args as ClapArgs;
use rustix::process::Signal;
use serde_json::json;
use tokio::time::sleep;

use crate::{
    bench::{Plan, Source, world::World},
    install_tls_provider,
    kills::{costs, judge, logs, say, settled, sight},
    lab::manifest::agent_labels,
    parts::{FaultProxy, Network, Operator, OperatorOptions},
    played::foreign::Strangers,
    witness::Witness,
};

/// How long a leader stands still.
const STILL: Duration = Duration::from_secs(60);
/// Time limit of a hand-over. It only catches a hang.
const HANG: Duration = Duration::from_secs(300);
/// Pause between two looks at who leads.
const LOOK: Duration = Duration::from_millis(100);

/// Let two operators take over from each other while machines come and go.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Highest number of machines.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub machines: usize,
    /// Number of hand-overs.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub handovers: usize,
    /// Seed of their moments.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The program of every second operator, for example of another release. By default both have the same one.
    #[arg(long, value_name = "FILE")]
    pub other: Option<PathBuf>,
    /// More arguments of both operators, for example a shorter lease.
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    pub flag: Vec<String>,
    /// The operator's program.
    #[command(flatten)]
    pub program: Source,
}

/// How a leader ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Term,
    Kill,
    Stop,
    Cut,
}

impl End {
    const ALL: [Self; 4] = [Self::Term, Self::Kill, Self::Stop, Self::Cut];

    fn words(self) -> &'static str {
        match self {
            Self::Term => "ended in order (SIGTERM)",
            Self::Kill => "died (SIGKILL)",
            Self::Stop => "stood still for 60 s (SIGSTOP)",
            Self::Cut => "lost the API server",
        }
    }
}

/// One of the two, with the network between it and the API server.
struct Place {
    options: OperatorOptions,
    proxy: FaultProxy,
    operator: Operator,
}

impl Place {
    async fn new(world: &World, args: &Args, program: Option<&PathBuf>) -> Result<Self> {
        let proxy = FaultProxy::start(&world.lab.api_server().endpoint().url).await?;
        let mut options = world.options().clone();
        options.kubeconfig = world.lab.kubeconfig_through(&world.access, &proxy)?;
        if let Some(program) = program {
            options.program.clone_from(program);
        }
        options.args.push("--leader-elect".to_owned());
        options.args.extend(args.flag.iter().cloned());
        let operator = world.lab.operator(&options).await?;
        Ok(Self {
            options,
            proxy,
            operator,
        })
    }

    async fn leads(&self) -> bool {
        self.operator
            .readiness()
            .await
            .is_ok_and(|said| said == "ok")
    }
}

/// Plays, and prints what happened.
///
/// # Errors
/// A part does not start, or a promise was broken.
pub async fn run(args: Args) -> Result<()> {
    ensure!(args.machines > 0, "--machines must be at least 1");
    install_tls_provider();
    let program = args.program.program().await?;
    let world = World::start(&program, &Plan::brisk(args.machines)).await?;
    let process = world.lab.vcenters().first();
    let password = process
        .context("the lab has one vCenter")?
        .options()
        .password
        .clone();
    let service = world.upstream.service(&world.cluster.agent_namespace)?;
    let cluster = world.cluster.name.clone();
    let labels = json!(agent_labels());
    let strangers = Strangers::settle(service, &cluster, labels, &world.vcenter, &cluster).await?;
    let before = strangers.prints().await?;
    world.operator.stop().await?;
    let mut pair = [
        Place::new(&world, &args, None).await?,
        Place::new(&world, &args, args.other.as_ref()).await?,
    ];
    let witness = Witness::start(sight(&world));
    let mut times: BTreeMap<End, Vec<Duration>> = BTreeMap::new();
    let mut random = fastrand::Rng::with_seed(args.seed);
    for turn in 0..args.handovers {
        let wanted = if turn % 2 == 0 {
            args.machines
        } else {
            args.machines.div_ceil(5)
        };
        world.nodes.scale(wanted);
        sleep(Duration::from_secs(5).mul_f64(random.f64())).await;
        let how = End::ALL[turn % End::ALL.len()];
        let took = hand_over(&world, &mut pair, how).await;
        let took =
            took.with_context(|| format!("hand-over {}: the leader {}", turn + 1, how.words()))?;
        times.entry(how).or_default().push(took);
        say(&format!(
            "{:>3}  the leader {}; the other one acts after {took:.1?}",
            turn + 1,
            how.words()
        ))?;
    }
    let some = args.machines.div_ceil(4);
    world.nodes.scale(some);
    let serve = settled(&world, some, &strangers).await;
    world.nodes.scale(0);
    let gone = settled(&world, 0, &strangers).await;
    let untouched = strangers.prints().await.and_then(|now| {
        ensure!(now == before, "they differ");
        Ok(())
    });
    for (how, mut all) in times {
        all.sort_unstable();
        let (middle, most) = (all[all.len() / 2], all[all.len() - 1]);
        say(&format!(
            "{} hand-overs after the leader {}: {middle:.1?} (median), {most:.1?} at most",
            all.len(),
            how.words()
        ))?;
    }
    say(&costs(&world).await?)?;
    judge(&[
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
    ])
}

/// Ends the leader. Returns how long it took until the other one acted. Then another process stands in its place.
async fn hand_over(world: &World, pair: &mut [Place; 2], how: End) -> Result<Duration> {
    let leader = leader(pair).await?;
    let [first, second] = pair;
    let (old, new) = if leader == 0 {
        (first, second)
    } else {
        (second, first)
    };
    let began = Instant::now();
    match how {
        End::Term => old.operator.process.signal(Signal::TERM)?,
        End::Kill => old.operator.process.signal(Signal::KILL)?,
        End::Stop => old.operator.process.signal(Signal::STOP)?,
        End::Cut => old.proxy.set(Network::Silent),
    }
    while !new.leads().await {
        ensure!(began.elapsed() < HANG, "nobody takes over");
        sleep(LOOK).await;
    }
    let took = began.elapsed();
    if how == End::Stop {
        sleep(STILL.saturating_sub(began.elapsed())).await;
        old.operator.process.signal(Signal::CONT)?;
    }
    // Each of them ends by itself: whoever does not lead any more must not act.
    let ended = tokio::time::timeout(HANG, old.operator.process.ended()).await;
    let status = ended.context("the old leader does not end")??;
    ensure!(
        status.success() == (how == End::Term),
        "the old leader ended with {status}"
    );
    old.proxy.set(Network::Open);
    old.operator = world.lab.operator(&old.options).await?;
    Ok(took)
}

/// The one that leads.
async fn leader(pair: &[Place; 2]) -> Result<usize> {
    let began = Instant::now();
    while began.elapsed() < HANG {
        match (pair[0].leads().await, pair[1].leads().await) {
            (true, true) => bail!("both lead"),
            (true, false) => return Ok(0),
            (false, true) => return Ok(1),
            (false, false) => sleep(LOOK).await,
        }
    }
    bail!("nobody leads")
}
