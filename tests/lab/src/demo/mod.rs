//! The demo: machines are created and deleted, live, on real components.
//!
//! `stage` starts everything. Then the demo scales up; `track` follows each machine, and `view` shows it. Then it
//! scales down and waits until the freed machines are gone. `promises` are checked all the time and at the end, and
//! `table` prints the result. The exit code is 0 only if every promise held.

mod chaos;
mod keep;
mod late_binding;
mod promises;
mod stage;
mod table;
mod traces;
mod track;
mod view;

use std::{path::PathBuf, time::Duration};

use anyhow::{Result, bail};
use clap::ValueEnum;
use tokio::time::{Instant, interval};

use self::{promises::Promises, stage::Stage, track::Track, view::View};
pub use self::{traces::PHASES, view::Voice};
use crate::{ProviderGeneration, install_tls_provider, parts::Operator, played::task::Task};

/// How often the demo looks. Everything shown is observed from outside, as a user could do it.
const LOOK: Duration = Duration::from_millis(250);

/// Options of the demo.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Machines to scale up to.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=200))]
    machines: u16,

    /// Machines to scale down to afterwards.
    #[arg(long, default_value_t = 1)]
    scale_to: u16,

    /// At the end, leave everything running until Ctrl-C. Prints the address of the web page and commands to try.
    #[arg(long)]
    keep: bool,

    /// Show hosts that wait, are taken within seconds, come back, and serve another hosted cluster, instead of scaling
    /// up and down.
    #[arg(long, conflicts_with_all = ["sigkill", "kill_every", "jaeger", "machines", "scale_to"])]
    late_binding: bool,

    /// Set a delay by name; may be repeated. Delays of vCenter: create=3s, power-on=2s, destroy=15s. Delays of the
    /// played upstream: boot=5s, install-stage=1s and others.
    #[arg(long, value_name = "NAME=DURATION")]
    delay: Vec<String>,

    /// Generation of agent provider and AgentMachine CRD.
    #[arg(long, value_enum, default_value_t = Generation::Current)]
    generation: Generation,

    /// Kill an actor of the operator this often.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    kill_every: Option<Duration>,

    /// Kill the operator once with SIGKILL, as soon as the first VM exists, and start it again.
    #[arg(long)]
    sigkill: bool,

    /// Also start Jaeger, and check that it has one complete trace of each machine. With --sigkill, two processes
    /// report each trace.
    #[arg(long)]
    jaeger: bool,

    /// Run this program instead of building the operator.
    #[arg(long, value_name = "FILE")]
    operator: Option<PathBuf>,

    /// Longest time for each half of the demo.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "150s")]
    limit: Duration,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Generation {
    Current,
    Legacy,
}

impl From<Generation> for ProviderGeneration {
    fn from(generation: Generation) -> Self {
        match generation {
            Generation::Current => Self::Current,
            Generation::Legacy => Self::Legacy,
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    agent_forge_crds::duration::parse(text).map_err(|e| e.to_string())
}

/// Runs the demo on standard output, or until Ctrl-C.
///
/// # Errors
/// As [`play`].
pub async fn run(args: Args) -> Result<()> {
    let stop = async {
        // Without a handler the signal ends the process.
        let _ = tokio::signal::ctrl_c().await;
    };
    play(&args, &Voice::stdout(), stop).await
}

/// Runs the demo. With `--keep` it goes on until `stop` resolves. Everything that was started has ended when this returns.
///
/// # Errors
/// Something does not start, the operator ends, `stop` resolves before the end, or a promise was broken.
pub async fn play(args: &Args, voice: &Voice, stop: impl Future<Output = ()>) -> Result<()> {
    tokio::pin!(stop);
    let played = tokio::select! {
        played = perform(args, voice) => played?,
        () = &mut stop => bail!("interrupted; everything that was started is stopped"),
    };
    if args.keep {
        keep::tell(&played.stage).await?;
        let operator = &played.stage.operator;
        tokio::select! {
            () = stop => voice.say("everything that was started is stopped"),
            ended = operator.process.ended() => {
                bail!("the operator has ended ({}); its log ends with:\n{}", ended?, operator.process.tail())
            }
        }
    }
    played.promises.verdict()
}

/// What runs after the last scale-down.
struct Played {
    promises: Promises,
    _chaos: Option<Task>,
    stage: Stage,
}

async fn perform(args: &Args, voice: &Voice) -> Result<Played> {
    install_tls_provider();
    let begun = Instant::now();
    let mut stage = Stage::start(args, voice).await?;
    voice.say(&format!(
        "everything is up after {:.1} s",
        begun.elapsed().as_secs_f64()
    ));
    let chaos = |operator: &Operator| {
        args.kill_every
            .map(|every| chaos::start(voice.clone(), operator.debug_url(), every))
    };
    let mut _chaos = chaos(&stage.operator);
    let mut view = View::new(voice);
    let mut track = Track::default();
    let mut promises = Promises::new(&stage).await?;
    if args.late_binding {
        late_binding::play(args, &stage).await?;
        promises.of_the_operator(&stage).await?;
        return Ok(Played {
            promises,
            _chaos,
            stage,
        });
    }

    let (up, down) = (
        usize::from(args.machines),
        usize::from(args.scale_to.min(args.machines)),
    );
    voice.say(&format!("NodePool {} is scaled to {up}", stage.node_pool));
    stage.nodes.scale(up);
    if args.sigkill || args.jaeger {
        let begun = |s: &Counts| s.vms > 0 || s.running == up;
        follow(args, &stage, &mut track, &mut view, &mut promises, begun).await?;
        voice.say("the operator is killed (SIGKILL) and started again");
        stage.restart().await?;
        _chaos = chaos(&stage.operator);
    }
    follow(args, &stage, &mut track, &mut view, &mut promises, |s| {
        s.running == up
    })
    .await?;
    promises.after_up(&stage, up).await?;
    let traced = traces::ids(&stage).await?;

    voice.say(&format!("NodePool {} is scaled to {down}", stage.node_pool));
    stage.nodes.scale(down);
    follow(args, &stage, &mut track, &mut view, &mut promises, |s| {
        s.running == down
            && s.vms == down
            && s.children == down
            && s.agents == down
            && s.machines == down
    })
    .await?;
    promises.after_down(&stage, down).await?;
    promises.of_the_operator(&stage).await?;
    if let Some(jaeger) = &stage.jaeger {
        traces::check(&stage, jaeger, &traced).await?;
    }

    table::print(&stage, &track, &promises, begun.elapsed()).await?;
    Ok(Played {
        promises,
        _chaos,
        stage,
    })
}

/// The counts of one observation.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    running: usize,
    machines: usize,
    children: usize,
    agents: usize,
    vms: usize,
}

/// Observes, shows and checks again and again until `done`.
async fn follow(
    args: &Args,
    stage: &Stage,
    track: &mut Track,
    view: &mut View,
    promises: &mut Promises,
    done: impl Fn(&Counts) -> bool,
) -> Result<()> {
    let end = Instant::now() + args.limit;
    let mut ticks = interval(LOOK);
    let operator = &stage.operator.process;
    loop {
        tokio::select! {
            biased;
            ended = operator.ended() => {
                view.finish(track);
                bail!("the operator has ended ({}); its log ends with:\n{}", ended?, operator.tail());
            }
            _ = ticks.tick() => {}
        }
        let seen = stage.look().await?;
        track.take(&seen);
        promises.during(&seen, track);
        view.show(track);
        if done(&seen.counts()) {
            view.finish(track);
            return Ok(());
        }
        if Instant::now() >= end {
            view.finish(track);
            bail!(
                "not done within {:?}: {:?}\nthe operator's log ends with:\n{}",
                args.limit,
                seen.counts(),
                operator.tail()
            );
        }
    }
}
