//! `lab bench-traces`: what tracing costs.
//!
//! It runs the same job with and without a collector, in turn, each in a fresh lab. The job creates a number of
//! machines and deletes them again. It compares the operator's processor time as the kernel reports it, so other load
//! has little influence.
//!
//! With `--away-minutes` it measures memory instead, minute by minute. One run has a collector that accepts connections
//! and never answers, the other has no collector. It fails if memory grows by more than `MORE` with the collector.

use std::{
    fmt::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use clap::Args as ClapArgs;

use super::{
    Plan,
    binary::Source,
    mib, proc,
    run::{LIMIT, quiet},
    say,
    world::World,
};
use crate::parts::{Mood, SpanSink};

/// The goal: processor time with tracing, divided by that without.
const GOAL: f64 = 1.15;
/// The memory that an unreachable collector may cost, in MiB. That covers the queue and the kept phases (2048 of each,
/// about 1 kB per span), a batch under way, and the allocator's overhead.
const MORE: f64 = 8.0;

/// Measure what tracing costs.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Machines of one run.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub machines: usize,
    /// Number of runs with tracing, and of runs without.
    #[arg(long, value_name = "RUNS", default_value_t = 3)]
    pub rounds: usize,
    /// Measure memory instead: run for this long without a collector, and as long with a collector that never answers.
    #[arg(long, value_name = "MINUTES")]
    pub away_minutes: Option<u64>,
    /// The operator's program.
    #[command(flatten)]
    pub program: Source,
}

/// Measures and prints.
///
/// # Errors
/// A part does not start, or a job does not end.
pub async fn run(args: Args) -> Result<()> {
    ensure!(
        args.machines > 0 && args.rounds > 0,
        "--machines and --rounds must be at least 1"
    );
    let path = args.program.program().await?;
    let program = args.program.inspect(&path)?;
    let mut text = format!(
        "program    {} ({:.1} MB)\n",
        program.made,
        program.bytes as f64 / 1e6
    );
    let mut more = None;
    text += &match args.away_minutes {
        Some(minutes) => {
            let span = Duration::from_secs(60 * minutes);
            let (figures, grown) = away(&path, args.machines, span).await?;
            more = Some(grown);
            figures
        }
        None => compared(&path, args.machines, args.rounds).await?,
    };
    say(&text)?;
    within_bound(more.unwrap_or_default())
}

/// Fails if the additional memory in MiB is above the limit.
fn within_bound(more: f64) -> Result<()> {
    ensure!(
        more <= MORE,
        "an unreachable collector costs {more:.1} MiB, more than {MORE:.1}"
    );
    Ok(())
}

fn plan(machines: usize, sink: Option<&SpanSink>) -> Plan {
    Plan {
        env: sink.map(SpanSink::environment).unwrap_or_default(),
        ..Plan::brisk(machines)
    }
}

/// Creates all machines, waits until they run, and deletes them all.
async fn up_and_down(world: &World, machines: usize) -> Result<()> {
    world.nodes.scale(machines);
    world.nodes.wait_running(machines, LIMIT).await?;
    world.nodes.scale(0);
    let gone = world.vcenter.until("no VM", LIMIT, |inventory| {
        inventory.vms.is_empty().then_some(())
    });
    gone.await
}

/// Processor seconds of one job, and bytes of spans.
async fn job(program: &Path, machines: usize, traced: bool) -> Result<(f64, u64)> {
    let sink = match traced {
        true => Some(SpanSink::start(Mood::Takes).await?),
        false => None,
    };
    let world = World::start(program, &plan(machines, sink.as_ref())).await?;
    quiet(&world).await?;
    let pid = world.operator.process.pid();
    let before = proc::usage(pid)?.cpu_seconds;
    up_and_down(&world, machines).await?;
    quiet(&world).await?;
    let spent = proc::usage(pid)?.cpu_seconds - before;
    let bytes = sink.as_ref().map_or(0, SpanSink::bytes);
    ensure!(!traced || bytes > 0, "the collector received no spans");
    Ok((spent, bytes))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let at = |i: usize| sorted.get(i).copied().unwrap_or_default();
    if sorted.len() % 2 == 1 {
        at(middle)
    } else {
        f64::midpoint(at(middle - 1), at(middle))
    }
}

async fn compared(program: &Path, machines: usize, rounds: usize) -> Result<String> {
    let (mut off, mut on, mut told) = (Vec::new(), Vec::new(), 0);
    for round in 0..rounds {
        // The order alternates, so that other load of the machine affects both alike.
        for traced in [round % 2 == 1, round % 2 == 0] {
            let (spent, bytes) = job(program, machines, traced).await?;
            let each = spent * 1000.0 / machines as f64;
            eprintln!(
                "tracing {}: {each:.1} ms a machine",
                if traced { "on" } else { "off" }
            );
            if traced { &mut on } else { &mut off }.push(each);
            told = told.max(bytes);
        }
    }
    let mut text = format!(
        "job        {machines} machines up and down, {rounds} times with tracing and without\n"
    );
    for (what, values) in [("off", &off), ("on", &on)] {
        let (least, most) = values
            .iter()
            .fold((f64::MAX, 0.0_f64), |(l, m), v| (l.min(*v), m.max(*v)));
        let _ = writeln!(
            text,
            "{what:<10} {:.1} ms of processor time a machine, median ({least:.1} to {most:.1})",
            median(values)
        );
    }
    let ratio = median(&on) / median(&off);
    let _ = writeln!(
        text,
        "ratio      {ratio:.3} (goal: at most {GOAL}){}",
        if ratio > GOAL { "  MISSED" } else { "" }
    );
    let _ = writeln!(
        text,
        "spans      {:.1} KiB a machine on the wire; load average {:.1}",
        told as f64 / 1024.0 / machines as f64,
        proc::load()?
    );
    Ok(text)
}

/// The figures of both runs, and the additional growth in MiB with the unreachable collector.
async fn away(program: &Path, machines: usize, span: Duration) -> Result<(String, f64)> {
    let (control, grown) = growth(program, machines, span, None).await?;
    let sink = SpanSink::start(Mood::Silent).await?;
    let (text, grown_away) = growth(program, machines, span, Some(&sink)).await?;
    ensure!(
        sink.exports() > 0,
        "the operator never tried to reach the collector"
    );
    let more = grown_away - grown;
    let difference = format!(
        "difference {more:+.1} MiB with a collector that is away (bound: {MORE:.1} MiB); {} connections to it\n",
        sink.exports()
    );
    Ok((control + &text + &difference, more))
}

/// The figures of one run, and the growth in MiB after its first round.
async fn growth(
    program: &Path,
    machines: usize,
    span: Duration,
    sink: Option<&SpanSink>,
) -> Result<(String, f64)> {
    let world = World::start(program, &plan(machines, sink)).await?;
    let pid = world.operator.process.pid();
    // The first round fills what every later one needs too: caches, connections, the allocator's arenas.
    up_and_down(&world, machines).await?;
    let begun = Instant::now();
    let collector = match sink {
        Some(_) => "the collector accepts connections and never answers",
        None => "no collector",
    };
    let mut text =
        format!("job        {machines} machines up and down, again and again; {collector}\n");
    let (mut rounds, mut first, mut last) = (0_usize, None, 0.0);
    let mut due = Duration::ZERO;
    loop {
        if begun.elapsed() >= due {
            let usage = proc::usage(pid)?;
            last = mib(usage.anonymous_bytes);
            first.get_or_insert(last);
            let line = format!(
                "{:>4.1} min   {rounds} rounds, {:.1} MiB resident, {last:.1} MiB of it its own\n",
                begun.elapsed().as_secs_f64() / 60.0,
                mib(usage.resident_bytes)
            );
            eprint!("{line}");
            text += &line;
            due += Duration::from_secs(60);
        }
        if begun.elapsed() >= span {
            break;
        }
        up_and_down(&world, machines).await?;
        rounds += 1;
    }
    let grown = last - first.unwrap_or_default();
    let _ = writeln!(
        text,
        "growth     {grown:+.1} MiB of its own memory over {} machines",
        rounds * machines
    );
    Ok((text, grown))
}
