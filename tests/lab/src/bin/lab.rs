//! The lab's command line.

use agent_forge_lab::{bench, demo, dist, handover, kills, soak};
use clap::{Parser, Subcommand};

/// Runs the operator on this machine with real programs around it: watch it work, measure it, or test it.
#[derive(Debug, Parser)]
#[command(name = "lab", about, max_term_width = 110)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create and delete machines live, and check every promise.
    Demo(demo::Args),
    /// Measure scale-ups: time, requests, writes, memory.
    Bench(bench::Args),
    /// Measure one ISO transfer: throughput compared with `curl | sha256sum`, and memory.
    BenchIso(bench::iso::Args),
    /// Measure what tracing costs: processor time per machine, and memory while the collector is unreachable.
    BenchTraces(bench::traces::Args),
    /// Measure the start of a process beside a thousand serving machines.
    BenchStart(bench::serving::Args),
    /// Measure the peak memory beside a thousand large Agents of other hosts, while VMs with dead guests are replaced.
    BenchMemory(bench::memory::Args),
    /// Measure how long a machine waits for its host, with a buffer and without one.
    BenchLateBinding(bench::late_binding::Args),
    /// Make the files of a release: manifests, charts, and an archive of the program.
    Dist(dist::Args),
    /// Let two operators take over from each other in every way while machines come and go, and check every promise.
    Handover(handover::Args),
    /// Kill the operator at random moments while machines come and go, and check every promise.
    Kills(kills::Args),
    /// Play for a given time what is too much for each change. A second start goes on where the first ended.
    Soak(soak::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // `cargo demo -- --keep` arrives as `lab demo -- --keep`, because the alias already contains one `--`.
    let given = std::env::args_os()
        .enumerate()
        .filter(|(at, arg)| *at != 2 || arg != "--")
        .map(|(_, arg)| arg);
    let args = Args::parse_from(given);
    match args.command {
        Command::Demo(args) => demo::run(args).await,
        Command::Bench(args) => bench::run(args).await,
        Command::BenchIso(args) => bench::iso::run(args).await,
        Command::BenchTraces(args) => bench::traces::run(args).await,
        Command::BenchStart(args) => bench::serving::run(args).await,
        Command::BenchMemory(args) => bench::memory::run(args).await,
        Command::BenchLateBinding(args) => bench::late_binding::run(args).await,
        Command::Dist(args) => dist::run(args).await,
        Command::Handover(args) => handover::run(args).await,
        Command::Kills(args) => kills::run(args).await,
        Command::Soak(args) => soak::run(args).await,
    }
}
