//! `lab bench-traces`: what tracing costs. The same job (so many machines up, then down again) with a collector and
//! without, in turn, each in a fresh lab; compared is the operator's own processor time, by the kernel's account, so a busy
//! machine counts little. With `--away-minutes` instead: memory, minute by minute, while the collector takes connections and
//! never answers.

use std::{
    fmt::Write as _,
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args as ClapArgs;

use super::{
    Plan,
    binary::Source,
    proc,
    run::{LIMIT, quiet},
    world::World,
};
use crate::parts::{Mood, SpanSink};

/// The goal: so much processor time with tracing on, against off.
const GOAL: f64 = 1.15;
const MIB: f64 = 1024.0 * 1024.0;

/// Measure what tracing costs.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Machines of one run.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub machines: usize,
    /// Runs with tracing on, and as many with it off.
    #[arg(long, value_name = "RUNS", default_value_t = 3)]
    pub rounds: usize,
    /// Instead: so many minutes of machines up and down with a collector that never answers.
    #[arg(long, value_name = "MINUTES")]
    pub away_minutes: Option<u64>,
    /// The operator's program.
    #[command(flatten)]
    pub program: Source,
}

/// Measures and prints.
///
/// # Errors
/// A part does not come up, or a job does not end.
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
    text += &match args.away_minutes {
        Some(minutes) => away(&path, args.machines, Duration::from_secs(60 * minutes)).await?,
        None => compared(&path, args.machines, args.rounds).await?,
    };
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .context("print the figures")
}

fn plan(machines: usize, sink: Option<&SpanSink>) -> Plan {
    Plan {
        env: sink.map(SpanSink::environment).unwrap_or_default(),
        ..Plan::brisk(machines)
    }
}

/// All machines up and running, then all gone.
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
    ensure!(!traced || bytes > 0, "the collector was told nothing");
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
        // In turn, the first one too: whatever else the machine does meets both alike.
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

async fn away(program: &Path, machines: usize, span: Duration) -> Result<String> {
    let sink = SpanSink::start(Mood::Silent).await?;
    let world = World::start(program, &plan(machines, Some(&sink))).await?;
    let pid = world.operator.process.pid();
    // The first round brings what every later one needs too: caches, connections, the allocator's arenas.
    up_and_down(&world, machines).await?;
    let begun = Instant::now();
    let mut text = format!(
        "job        {machines} machines up and down, again and again; the collector takes connections and never answers\n"
    );
    let (mut rounds, mut first, mut last) = (0_usize, None, 0.0);
    let mut due = Duration::ZERO;
    loop {
        if begun.elapsed() >= due {
            let usage = proc::usage(pid)?;
            let mib = |bytes: u64| bytes as f64 / MIB;
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
    let _ = writeln!(
        text,
        "growth     {:+.1} MiB of its own memory over {} machines; {} connections to the collector",
        last - first.unwrap_or_default(),
        rounds * machines,
        sink.exports()
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_few() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
    }
}
