//! `cargo run -p agent-forge-sim -- <command>`: the simulation by hand.

#![allow(clippy::print_stdout, reason = "a command for people")]

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::BufRead as _,
    time::Duration,
};

use agent_forge_sim::{
    branches::{self, Planned},
    matrix::{self, Matrix},
    plan::{Fault, Plan},
    run::{Outcome, SILENCE, Verdict, counts, run},
    scale::{self, Site},
    waits,
    workloads::{self, Workload},
};
use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};

/// The whole operator in virtual time, with everything going wrong.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run one plan, e.g. `S1@1 V02:demo/w-x#1=m5`, and show its trace.
    Replay {
        /// The plan.
        plan: String,
    },
    /// Run all single-fault plans of some workloads.
    Enumerate {
        /// Workloads; all without one.
        #[arg(long, value_delimiter = ',')]
        workloads: Vec<String>,
        /// Codes of faults; all without one.
        #[arg(long, value_delimiter = ',')]
        faults: Vec<String>,
        /// Codes of effects; all without one.
        #[arg(long, value_delimiter = ',')]
        effects: Vec<String>,
        /// Show the whole trace of this many failures.
        #[arg(long, default_value_t = 1)]
        traces: usize,
        /// Virtual minutes of listening after each run (O6).
        #[arg(long, default_value_t = 15)]
        silence: u64,
        /// Only every n-th plan.
        #[arg(long, default_value_t = 1)]
        every: usize,
    },
    /// Run random schedules of one to five faults.
    Random {
        /// How many.
        #[arg(default_value_t = 500)]
        schedules: usize,
        /// Seed of the schedules.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Workloads; all without one.
        #[arg(long, value_delimiter = ',')]
        workloads: Vec<String>,
    },
    /// Run plans with two faults, the second at a random point after the first.
    Doubles {
        /// How many for each plan with a single fault.
        #[arg(long, default_value_t = 1)]
        each: usize,
        /// Only for every n-th of these.
        #[arg(long, default_value_t = 1)]
        every: usize,
        /// Seed of the second faults.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Workloads; all without one.
        #[arg(long, value_delimiter = ',')]
        workloads: Vec<String>,
    },
    /// Run the plans that come in as lines `SECONDS PLAN`, all of one workload, and write a verdict for each.
    #[command(hide = true)]
    Work,
    /// Let machines wait for an ISO, and say how long they wait on when what they wait for has come about.
    Waits,
    /// Scale one pool up, in a fresh world each, and count what it costs.
    Scale {
        /// Numbers of machines.
        #[arg(value_delimiter = ',', default_value = "10,100,1000")]
        machines: Vec<usize>,
        /// Then listen for so many virtual minutes.
        #[arg(long, default_value_t = 0)]
        listen: u32,
        /// Then take the vCenter away for so many virtual minutes, more than 10; two more machines are wanted meanwhile.
        #[arg(long, default_value_t = 0)]
        away: u64,
        /// Machines that serve stand there from the beginning, instead of coming up: nothing moves upstream of them.
        #[arg(long, conflicts_with = "away")]
        serving: bool,
        /// Let tasks take what they take in `lab bench`: create 3 s, reconfigure 0.1 s, power on 2 s.
        #[arg(long)]
        bench_pace: bool,
    },
}

fn main() -> Result<()> {
    if let Ok(filter) = std::env::var("RUST_LOG") {
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .without_time()
            .init();
    }
    match Args::parse().command {
        Command::Replay { plan } => replay(&plan.parse()?),
        Command::Enumerate {
            workloads,
            faults,
            effects,
            traces,
            silence,
            every,
        } => enumerate(&workloads, &faults, &effects, (traces, silence, every)),
        Command::Random {
            schedules,
            seed,
            workloads,
        } => random(schedules, seed, &workloads),
        Command::Doubles {
            each,
            every,
            seed,
            workloads,
        } => doubles((each, every), seed, &workloads),
        Command::Work => branches::work(std::io::stdin().lock().lines()),
        Command::Waits => waits::ALL.iter().try_for_each(|case| {
            println!("{}", waits::play(case)?);
            Ok(())
        }),
        Command::Scale {
            machines,
            listen,
            away,
            serving,
            bench_pace,
        } => {
            let each = |n: &usize| scaled(*n, (serving, bench_pace), listen, away);
            machines.iter().try_for_each(each)
        }
    }
}

fn replay(plan: &Plan) -> Result<()> {
    let workload = workloads::named(&plan.workload)
        .with_context(|| format!("no workload {}", plan.workload))?;
    let reference = matrix::reference(workload, plan.seed);
    let outcome = run(plan, Some(&reference), SILENCE);
    print!("{}", matrix::report(&outcome.verdict()));
    for rest in &outcome.rests {
        println!("{} after {:?}", rest.name, rest.took);
        for line in &rest.picture {
            println!("    {line}");
        }
    }
    println!(
        "{:?} virtual in {:?}; effects {:?}; trace hash {:016x}",
        outcome.lasted,
        outcome.took,
        counts(&outcome.effects),
        outcome.hash
    );
    if !outcome.failures.is_empty() {
        bail!("{} broken promises", outcome.failures.len());
    }
    Ok(())
}

fn enumerate(
    names: &[String],
    codes: &[String],
    effects: &[String],
    (traces, silence, every): (usize, u64, usize),
) -> Result<()> {
    let named = |f: &Fault| codes.iter().any(|c| c == f.code());
    let faults: Vec<Fault> = if codes.is_empty() {
        Fault::ALL.to_vec()
    } else {
        Fault::ALL.iter().copied().filter(named).collect()
    };
    let mut all = Matrix::default();
    let plans = |reference: &Outcome| {
        let all = matrix::plans(reference, &faults).into_iter();
        let wanted =
            |p: &Plan| effects.is_empty() || effects.iter().any(|e| e == p.faults[0].0.effect);
        all.filter(wanted).step_by(every.max(1)).collect()
    };
    let silence = Duration::from_secs(60 * silence);
    let result = all_of(names, plans, silence, traces, |verdict| all.count(verdict));
    println!("{}", all.text(&faults));
    result
}

fn random(schedules: usize, seed: u64, names: &[String]) -> Result<()> {
    let of = wanted(names);
    let share = |name: &str| {
        let at = of.iter().position(|w| w.name == name).unwrap_or_default();
        schedules / of.len() + usize::from(at < schedules % of.len())
    };
    let plans = |r: &Outcome| matrix::schedules(r, share(&r.plan.workload), seed);
    all_of(names, plans, LISTEN, 0, |_| {})
}

fn doubles((each, every): (usize, usize), seed: u64, names: &[String]) -> Result<()> {
    let plans = |r: &Outcome| matrix::doubles(r, each, every, seed);
    all_of(names, plans, LISTEN, 0, |_| {})
}

/// Listening after plans with several faults.
const LISTEN: Duration = Duration::from_secs(900);

/// The workloads of those names; all without one.
fn wanted(names: &[String]) -> Vec<&'static Workload> {
    let all = workloads::ALL.iter();
    all.filter(|w| names.is_empty() || names.iter().any(|n| n == w.name))
        .collect()
}

/// Runs the plans that `plans` makes of each workload's reference run, and tells of those that fail: at once by a line, of the
/// first `traces` in the end by all that happened.
fn all_of(
    names: &[String],
    plans: impl Fn(&Outcome) -> Vec<Plan>,
    silence: Duration,
    traces: usize,
    mut each: impl FnMut(&Verdict),
) -> Result<()> {
    let worker = std::env::current_exe()?;
    let began = std::time::Instant::now();
    let (mut ran, mut failed) = (0, Vec::new());
    let mut traces_hash = DefaultHasher::new();
    for workload in wanted(names) {
        let reference = matrix::reference(workload, 1);
        if !reference.failures.is_empty() {
            print!("{}", matrix::report(&reference.verdict()));
            bail!("{} fails without any fault", workload.name);
        }
        let plans: Vec<Planned> = plans(&reference)
            .into_iter()
            .map(|p| (p, silence))
            .collect();
        let (name, effects) = (workload.name, reference.effects.len());
        println!(
            "{name} {}: {effects} effects, {} plans",
            workload.text,
            plans.len()
        );
        let at_once = |v: &Verdict| {
            if !v.failures.is_empty() {
                println!("{}: {}", v.plan, brief(&v.failures));
            }
        };
        for verdict in branches::run_all(&worker, &plans, at_once)? {
            each(&verdict);
            ran += 1;
            verdict.hash.hash(&mut traces_hash);
            if !verdict.failures.is_empty() {
                failed.push(verdict);
            }
        }
    }
    for verdict in failed.iter().take(traces) {
        println!("{}", matrix::report(verdict));
    }
    println!(
        "{} of {ran} failed; {:?}; hash of all traces {:016x}",
        failed.len(),
        began.elapsed(),
        traces_hash.finish()
    );
    if failed.is_empty() {
        Ok(())
    } else {
        bail!("{} plans failed", failed.len())
    }
}

fn scaled(
    machines: usize,
    (serving, bench_pace): (bool, bool),
    listen: u32,
    away: u64,
) -> Result<()> {
    let began = std::time::Instant::now();
    scale::play(async {
        let mut site = Site::start().await?;
        if bench_pace {
            site.at_bench_pace();
        }
        if serving {
            site.serving(machines).await?;
            println!("{machines:>5} machines serve");
        } else {
            println!("{}", site.up(machines).await?);
        }
        if listen > 0 {
            println!("      {}", site.listen(listen).await?);
        }
        if away > 0 {
            let away = Duration::from_secs(60 * away);
            println!("      {}", site.bear_absence(away, 2).await?);
        }
        println!("      {:.1} s of real time", began.elapsed().as_secs_f64());
        Ok(())
    })
}

fn brief(failures: &[String]) -> String {
    let short = failures
        .iter()
        .map(|f| f.chars().take(300).collect::<String>());
    short.collect::<Vec<_>>().join(" | ")
}
