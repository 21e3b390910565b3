//! `cargo run --profile opt -p agent-forge-model -- ...`: explores a small world to its end.

#![allow(clippy::print_stdout, reason = "a command for people")]

use std::time::Instant;

use agent_forge_model::{
    machines::{LAG, Machines},
    upstream::Deed,
    verdict::Endings,
    world::Fault,
};
use anyhow::{Result, ensure};
use clap::Parser;
use stateright::{Checker, Model, report::WriteReporter};

/// A small world, explored whole: every order of everybody's steps, with each of the faults at most once, at any effect.
#[derive(Parser)]
struct Args {
    /// Machines that wait.
    #[arg(long, value_delimiter = ',', default_value = "a,b")]
    machines: Vec<String>,
    /// Faults, each at most once; `none` for none.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "crash,lag,loss,duplicate,unknown"
    )]
    faults: Vec<String>,
    /// So many hours may go by while a guest is waited for: two let a VM be given up and made again.
    #[arg(long, default_value_t = 0)]
    hours: u8,
    /// By so many events a lagging watch is behind at most.
    #[arg(long, default_value_t = LAG)]
    lag: u8,
    /// Machines that a person may delete at any moment.
    #[arg(long, value_delimiter = ',', default_value = "b")]
    leaves: Vec<String>,
    /// A foreign VM holds the first machine's name, until a person renames it at any moment.
    #[arg(long)]
    foreign: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let named = |f: &Fault| {
        let name = format!("{f:?}").to_lowercase();
        args.faults.contains(&name)
    };
    let faults: Vec<Fault> = Fault::ALL.into_iter().filter(named).collect();
    let names: Vec<&str> = args.machines.iter().map(String::as_str).collect();
    let mut people: Vec<Deed> = args.leaves.iter().cloned().map(Deed::Leaves).collect();
    people.extend(args.foreign.then_some(Deed::Renames));
    let began = Instant::now();
    let mut model = Machines::new(&names, people, args.hours, &faults);
    model.lag = args.lag;
    let checker = model
        .checker()
        .threads(std::thread::available_parallelism()?.get())
        .spawn_bfs()
        .report(&mut WriteReporter::new(&mut std::io::stdout()));
    for (name, path) in checker.discoveries() {
        println!("\n{name}:");
        let last = path.last_state().clone();
        for action in path.into_actions() {
            println!("  {action:?}");
        }
        if name == "every machine ends" {
            println!("  ends so: {}", Endings::tell(checker.model(), &last));
        }
    }
    println!(
        "\n{} states by {} transitions, at most {} deep, all explored: {}, {:.0?}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        checker.is_done(),
        began.elapsed()
    );
    let broken: Vec<&str> = checker
        .discoveries()
        .into_keys()
        .filter(|name| agent_forge_model::verdict::PROMISES.contains(name))
        .collect();
    ensure!(broken.is_empty(), "broken: {broken:?}");
    Ok(())
}
