//! `cargo run -p agent-forge-sim -- <command>`: runs the simulation by hand.

#![allow(clippy::print_stdout, reason = "a command for people")]

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::BufRead as _,
    time::Duration,
};

use agent_forge_actors::ports::effect::EffectKind;
use agent_forge_sim::{
    branches::{self, Planned, planned},
    call::{Call, Read},
    cost::{self, Cost},
    known, matrix,
    plan::{Fault, Plan},
    promise::{Failure, Oracle},
    recovery,
    run::{Outcome, Verdict, counts_by_name, run, silence_after},
    scale::{self, Site},
    states::{self, States},
    waits,
    workloads::{self, Workload},
};
use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};

/// The whole operator in virtual time, with planned faults.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List all workloads, faults, effects and oracles: name, and what it does.
    List,
    /// Run one plan, e.g. `one_machine@1 create:demo/w-x#1=reply_lost`, and show its trace.
    Replay {
        /// The plan.
        plan: String,
    },
    /// Run all single-fault plans of some workloads.
    Enumerate {
        #[command(flatten)]
        worlds: Worlds,
        /// Faults, by name; all without one.
        #[arg(long, value_delimiter = ',')]
        faults: Vec<String>,
        /// Effects and reads, by name; all without one.
        #[arg(long, value_delimiter = ',')]
        effects: Vec<String>,
        /// Show the whole trace of this many failures.
        #[arg(long, default_value_t = 1)]
        traces: usize,
    },
    /// Run random schedules of one to five faults.
    Random {
        /// Number of schedules.
        #[arg(default_value_t = 500)]
        schedules: usize,
        #[command(flatten)]
        drawn: Drawn,
    },
    /// Run plans with two faults, the second at a random point after the first.
    Doubles {
        /// Number of plans for each plan with a single fault.
        #[arg(long, default_value_t = 1)]
        each: usize,
        /// Only for every n-th plan with a single fault.
        #[arg(long, default_value_t = 1)]
        every: usize,
        #[command(flatten)]
        drawn: Drawn,
    },
    /// Run all plans with one fault, then a second fault at each effect and read that only the first fault led to.
    Recovery {
        /// Most plans of a workload, drawn over workloads, effects and classes of faults; all without it.
        #[arg(long)]
        most: Option<usize>,
        /// Only every n-th first fault.
        #[arg(long, default_value_t = 1)]
        every: usize,
        #[command(flatten)]
        drawn: Drawn,
    },
    /// Play workloads without faults, in the worlds of many seeds.
    Worlds {
        /// The last seed.
        #[arg(default_value_t = 20)]
        seeds: u64,
        /// Workloads, by name; all without one.
        #[arg(long, value_delimiter = ',')]
        workloads: Vec<String>,
    },
    /// Play all workloads without faults, and print what each costs: writes, vCenter calls that change something, live reads.
    Cost {
        /// Write the numbers to costs.txt, with which a test compares.
        #[arg(long)]
        record: bool,
    },
    /// Play all workloads without faults, and print the states that VsphereAgents come into.
    States {
        /// Write an object for each state that tests/fixtures/states/vsphereagents.json does not have yet.
        #[arg(long)]
        record: bool,
        /// Write new objects for the states that it has, and drop the others. Old objects are lost.
        #[arg(long, requires = "record")]
        anew: bool,
    },
    /// Run the plans that come in as lines `SECONDS PLAN`, all of one workload, and write a verdict for each.
    #[command(hide = true)]
    Work,
    /// Let machines wait for an ISO, or a pool for its Secret, and print how long they still wait after the cause has ended.
    Waits,
    /// Scale one pool up, in a fresh world each, and count what it costs.
    Scale {
        /// Numbers of machines.
        #[arg(value_delimiter = ',', default_value = "10,100,1000")]
        machines: Vec<usize>,
        /// Afterwards listen for this many virtual minutes.
        #[arg(long, default_value_t = 0)]
        listen: u32,
        /// Afterwards make vCenter unreachable for this many virtual minutes, more than 10. Two more machines are
        /// wanted in that time.
        #[arg(long, default_value_t = 0)]
        away: u64,
        /// Machines that serve exist from the beginning. They do not come up, and upstream does not change them.
        #[arg(long, conflicts_with = "away")]
        serving: bool,
        /// Let tasks take as long as in `lab bench`: create 3 s, reconfigure 0.1 s, power on 2 s.
        #[arg(long)]
        bench_pace: bool,
    },
}

/// Which workloads are played, and in which worlds.
#[derive(clap::Args)]
struct Worlds {
    /// Workloads, by name; all without one.
    #[arg(long, value_delimiter = ',')]
    workloads: Vec<String>,
    /// Seed of the worlds: names, latencies and order.
    #[arg(long, default_value_t = 1)]
    world: u64,
}

/// The same, with plans that are drawn.
#[derive(clap::Args)]
struct Drawn {
    #[command(flatten)]
    worlds: Worlds,
    /// Seed of the plans.
    #[arg(long, default_value_t = 1)]
    seed: u64,
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
        Command::List => {
            list();
            Ok(())
        }
        Command::Replay { plan } => replay(&plan.parse()?),
        Command::Enumerate {
            worlds,
            faults,
            effects,
            traces,
        } => enumerate(
            &worlds,
            &parsed(&faults, Fault::ALL, str::parse)?,
            &parsed(&effects, &Call::all().collect::<Vec<_>>(), Call::named)?,
            traces,
        ),
        Command::Random { schedules, drawn } => random(schedules, &drawn),
        Command::Doubles { each, every, drawn } => {
            let plans = |r: &Outcome| Ok(matrix::doubles(r, each, every, drawn.seed));
            all_of(&drawn.worlds, plans, 0)
        }
        Command::Recovery { most, every, drawn } => recover((most, every), &drawn),
        Command::Worlds { seeds, workloads } => worlds(seeds, &wanted(&workloads)?),
        Command::Cost { record } => {
            let costs: Vec<Cost> = matrix::references().map(|run| Cost::of(&run)).collect();
            print!("{}", cost::table(&costs));
            if record { cost::record(&costs) } else { Ok(()) }
        }
        Command::States { record, anew } => states_of_vms(record, anew),
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

fn states_of_vms(record: bool, anew: bool) -> Result<()> {
    let mut all = States::new();
    for run in matrix::references() {
        states::add(&mut all, states::of(&run)?);
    }
    for state in all.keys() {
        println!("{state}");
    }
    if record {
        states::record(all, anew)?;
    }
    Ok(())
}

fn list() {
    println!("Workloads:");
    for workload in workloads::ALL {
        println!("  {workload}: {}", workload.text);
    }
    println!("\nFaults:");
    for fault in Fault::ALL {
        println!("  {fault}: {}", fault.text());
    }
    println!("\nEffects (docs/explanation/actors.md says what each does):");
    for effect in EffectKind::ALL {
        println!("  {}", effect.name());
    }
    println!("\nLive reads:");
    for read in Read::ALL {
        println!("  {read}: {}", read.text());
    }
    println!("\nOracles:");
    for oracle in Oracle::ALL {
        println!("  {oracle}: {}", oracle.text());
    }
}

fn replay(plan: &Plan) -> Result<()> {
    let workload = workload(&plan.workload)?;
    let reference = matrix::reference(workload, plan.seed);
    let outcome = run(plan, Some(&reference), silence_after(plan));
    print!("{}", matrix::report(&outcome.verdict()));
    for rest in &outcome.rests {
        println!("{} after {:?}", rest.name, rest.took);
        for line in &rest.picture {
            println!("    {line}");
        }
    }
    println!(
        "{:?} virtual in {:?}; effects: {}; trace hash {:016x}",
        outcome.lasted,
        outcome.took,
        counts_by_name(&outcome.effects),
        outcome.hash
    );
    if !outcome.failures.is_empty() {
        bail!("{} broken promises", outcome.failures.len());
    }
    Ok(())
}

fn enumerate(worlds: &Worlds, faults: &[Fault], calls: &[Call], traces: usize) -> Result<()> {
    let plans = |reference: &Outcome| {
        let mut all = matrix::plans(reference, faults);
        all.retain(|p| calls.contains(&p.faults[0].0.call));
        Ok(all)
    };
    all_of(worlds, plans, traces)
}

fn random(schedules: usize, drawn: &Drawn) -> Result<()> {
    let of = wanted(&drawn.worlds.workloads)?;
    let share = |name: &str| {
        let at = of.iter().position(|w| w.name == name).unwrap_or_default();
        schedules / of.len() + usize::from(at < schedules % of.len())
    };
    let plans = |r: &Outcome| Ok(matrix::schedules(r, share(&r.plan.workload), drawn.seed));
    all_of(&drawn.worlds, plans, 0)
}

fn worlds(seeds: u64, of: &[&'static Workload]) -> Result<()> {
    let (mut played, mut failed) = (0, 0);
    for (workload, seed) in of.iter().flat_map(|w| (1..=seeds).map(move |s| (w, s))) {
        let verdict = matrix::reference(workload, seed).verdict();
        played += 1;
        if !verdict.failures.is_empty() {
            failed += 1;
            println!("FAILED {}", matrix::summary(&verdict));
        }
    }
    println!("{played} worlds without faults, {failed} with a broken promise");
    anyhow::ensure!(failed == 0, "{failed} worlds failed");
    Ok(())
}

fn recover((most, every): (Option<usize>, usize), drawn: &Drawn) -> Result<()> {
    let worker = std::env::current_exe()?;
    let seed = drawn.seed.to_string();
    let plans = |reference: &Outcome| {
        let all = matrix::plans(reference, Fault::ALL).into_iter();
        let singles: Vec<Planned> = all.step_by(every.max(1)).map(planned).collect();
        let verdicts = branches::run_all(&worker, &singles, |_| {})?;
        let plans = recovery::plans(&verdicts, &seed);
        Ok(match most {
            Some(most) => recovery::choose(&plans, &seed, most),
            None => plans,
        })
    };
    all_of(&drawn.worlds, plans, 0)
}

/// The workload with that name.
fn workload(text: &str) -> Result<&'static Workload> {
    let found = workloads::named(text);
    found.with_context(|| format!("no workload is called {text}; `sim list` shows all"))
}

/// The workloads with those names, in the order of the table. All of them without a name.
fn wanted(names: &[String]) -> Result<Vec<&'static Workload>> {
    let all: Vec<&Workload> = workloads::ALL.iter().collect();
    let named = parsed(names, &all, workload)?;
    let is_named = |w: &&Workload| named.iter().any(|n| n.name == w.name);
    Ok(all.into_iter().filter(is_named).collect())
}

/// The values that those texts name. All of `all` when there is no text.
fn parsed<T: Copy>(
    texts: &[String],
    all: &[T],
    parse: impl Fn(&str) -> Result<T>,
) -> Result<Vec<T>> {
    if texts.is_empty() {
        return Ok(all.to_vec());
    }
    texts.iter().map(|text| parse(text)).collect()
}

/// Runs the plans that `plans` makes of each workload's reference run. Prints each failed plan at once, in short. At the
/// end it prints the whole report of the first `traces` failed plans.
fn all_of(
    worlds: &Worlds,
    plans: impl Fn(&Outcome) -> Result<Vec<Plan>>,
    traces: usize,
) -> Result<()> {
    let worker = std::env::current_exe()?;
    let began = std::time::Instant::now();
    let (mut ran, mut excused, mut failed) = (0, 0, Vec::new());
    let mut traces_hash = DefaultHasher::new();
    for workload in wanted(&worlds.workloads)? {
        let reference = matrix::reference(workload, worlds.world);
        if !reference.failures.is_empty() {
            print!("{}", matrix::report(&reference.verdict()));
            bail!("{workload} fails without any fault");
        }
        let plans: Vec<Planned> = plans(&reference)?.into_iter().map(planned).collect();
        let (effects, count) = (reference.effects.len(), plans.len());
        println!(
            "{workload}: {}; {effects} effects, {count} plans",
            workload.text
        );
        let at_once = |v: &Verdict| {
            let what = match known::excuse(v) {
                _ if v.failures.is_empty() => return,
                Some(_) => "KNOWN",
                None => "FAILED",
            };
            println!(
                "{what} {}\n  {}",
                matrix::replay(v.shown()),
                brief(&v.failures)
            );
        };
        for verdict in branches::run_all(&worker, &plans, at_once)? {
            ran += 1;
            verdict.hash.hash(&mut traces_hash);
            match known::excuse(&verdict) {
                _ if verdict.failures.is_empty() => {}
                Some(_) => excused += 1,
                None => failed.push(verdict),
            }
        }
    }
    for verdict in failed.iter().take(traces) {
        println!("{}", matrix::report(verdict));
    }
    println!(
        "{} of {ran} failed, {excused} as known; {:?}; hash of all traces {:016x}",
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

fn brief(failures: &[Failure]) -> String {
    let short = failures
        .iter()
        .map(|f| f.to_string().chars().take(300).collect::<String>());
    short.collect::<Vec<_>>().join("\n  ")
}
