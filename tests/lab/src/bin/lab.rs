//! The lab's command line.

use agent_forge_lab::{bench, demo, soak};
use clap::{Parser, Subcommand};

/// Real counterparts of the operator on this machine: watch it at work, measure it.
#[derive(Debug, Parser)]
#[command(name = "lab", about, max_term_width = 110)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The main job, live: up, down, and whether every promise held.
    Demo(demo::Args),
    /// Measure scale-ups: time, requests, writes, memory.
    Bench(bench::Args),
    /// Measure one ISO transfer: throughput against `curl | sha256sum`, memory.
    BenchIso(bench::iso::Args),
    /// Measure what tracing costs: processor time per machine with it and without, memory while the collector is away.
    BenchTraces(bench::traces::Args),
    /// Measure the start of a process beside a thousand machines that serve.
    BenchStart(bench::serving::Args),
    /// Measure the peak memory beside a thousand large Agents of other hosts, while VMs with dead guests are replaced.
    BenchMemory(bench::memory::Args),
    /// Kill the operator again and again while machines go up and down; whether every promise held.
    Soak(soak::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // `cargo demo -- --keep` arrives as `lab demo -- --keep`: the alias has used up its own `--`.
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
        Command::Soak(args) => soak::run(args).await,
    }
}
