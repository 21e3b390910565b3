//! `cargo run -p agent-forge-model -- ...`: explores a small world completely.

#![allow(clippy::print_stdout, reason = "a command for people")]

use std::time::{Duration, Instant};

use agent_forge_model::{
    binding::GROUP,
    explore,
    machines::Machines,
    upstream::Deed,
    verdict::{self, Endings},
    world::Fault,
};
use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand};

/// An exploration mostly makes and drops small values.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Explores a small world completely: every order of steps, with each fault at most once, at any effect. Without a
/// subcommand, the world of the machines.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Command {
    #[command(subcommand)]
    world: Option<Other>,
    #[command(flatten)]
    machines: MachinesArgs,
}

#[derive(Subcommand)]
enum Other {
    /// A pool that recycles its hosts: one machine, and another one after it.
    Recycle(RecycleArgs),
    /// Pools that share a free host.
    Reassign(ReassignArgs),
    /// A pool that may have one VM, whose machine may go before it has a host.
    Capped(CappedArgs),
}

#[derive(Args)]
struct MachinesArgs {
    /// Machines that wait.
    #[arg(long, value_delimiter = ',', default_value = "a,b")]
    machines: Vec<String>,
    #[command(flatten)]
    faults: Faults,
    /// How many hours may pass while the operator waits for a guest. With two, a VM can be given up and made again.
    #[arg(long, default_value_t = 0)]
    hours: u8,
    /// Machines that a person may delete at any moment.
    #[arg(long, value_delimiter = ',', default_value = "b")]
    leaves: Vec<String>,
    /// A foreign VM holds the first machine's name.
    #[arg(long)]
    foreign: bool,
    /// A foreign VM has the first machine's name until a person renames it, at any moment.
    #[arg(long)]
    renames: bool,
    /// Other parts also act between what a pass sees and each of its effects.
    #[arg(long)]
    interleaved: bool,
}

#[derive(Args)]
struct RecycleArgs {
    #[command(flatten)]
    faults: Faults,
    /// The second machine comes as soon as the first one is being deleted, and may go at any moment.
    #[arg(long)]
    hurries: bool,
    /// The service may reclaim a host, so that its guest returns by itself.
    #[arg(long)]
    reclaims: bool,
    /// An administrator may switch the VM on between its lives.
    #[arg(long)]
    switched_on: bool,
    /// As for the world of the machines.
    #[arg(long, default_value_t = 0)]
    hours: u8,
    /// As for the world of the machines.
    #[arg(long)]
    interleaved: bool,
}

#[derive(Args)]
struct ReassignArgs {
    #[command(flatten)]
    faults: Faults,
    /// Machines that wait, as `name/pool`. The pools are p, q and r; p has a free host.
    #[arg(long, value_delimiter = ',', default_value = "b/q")]
    machines: Vec<String>,
    /// No machine leaves.
    #[arg(long)]
    stay: bool,
    /// The first pool makes another host for its buffer.
    #[arg(long)]
    refills: bool,
    /// As for the world of the machines.
    #[arg(long)]
    interleaved: bool,
}

#[derive(Args)]
struct CappedArgs {
    #[command(flatten)]
    faults: Faults,
    /// Another machine comes then. Otherwise the buffer wants the host.
    #[arg(long)]
    next: bool,
    /// As for the world of the machines.
    #[arg(long)]
    interleaved: bool,
}

#[derive(Args)]
struct Faults {
    /// Faults, each at most once. `none` for no faults.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "crash,lag,loss,duplicate,unknown"
    )]
    faults: Vec<String>,
}

impl Faults {
    fn all(&self) -> Vec<Fault> {
        let named = |f: &Fault| {
            let name = format!("{f:?}").to_lowercase();
            self.faults.contains(&name)
        };
        Fault::ALL.into_iter().filter(named).collect()
    }
}

fn main() -> Result<()> {
    let command = Command::parse();
    match command.world {
        None => machines(command.machines),
        Some(Other::Recycle(args)) => {
            let mut model = Machines::recycle(args.hurries, &args.faults.all());
            model.start.reclaims = args.reclaims;
            model
                .people
                .extend(args.switched_on.then_some(Deed::SwitchesOn));
            (model.hours, model.interleaved) = (args.hours, args.interleaved);
            explore(&model)
        }
        Some(Other::Reassign(args)) => {
            let named = |text: &String| {
                let named = text.split_once('/');
                let named = named.filter(|(_, pool)| GROUP.contains(pool));
                let (name, pool) = named.with_context(|| {
                    format!("{text}: a machine is name/pool, with a pool of {GROUP:?}")
                })?;
                Ok((name.to_owned(), pool.to_owned()))
            };
            let all: Vec<_> = args.machines.iter().map(named).collect::<Result<_>>()?;
            let all: Vec<_> = all.iter().map(|(n, p)| (n.as_str(), p.as_str())).collect();
            let mut model = Machines::reassign(&all, args.refills, &args.faults.all());
            model.people.retain(|_| !args.stay);
            model.interleaved = args.interleaved;
            explore(&model)
        }
        Some(Other::Capped(args)) => {
            let mut model = Machines::capped(args.next, &args.faults.all());
            model.interleaved = args.interleaved;
            explore(&model)
        }
    }
}

fn machines(args: MachinesArgs) -> Result<()> {
    let names: Vec<&str> = args.machines.iter().map(String::as_str).collect();
    let mut people: Vec<Deed> = args.leaves.iter().cloned().map(Deed::Leaves).collect();
    people.extend(args.renames.then_some(Deed::Renames));
    let (foreign, faults) = (args.foreign || args.renames, args.faults.all());
    let mut model = Machines::new(&names, foreign, people, args.hours, &faults);
    model.interleaved = args.interleaved;
    explore(&model)
}

/// Explores everything and prints the result.
fn explore(model: &Machines) -> Result<()> {
    let began = Instant::now();
    let mut said = began;
    let threads = std::thread::available_parallelism()?.get();
    let all = explore::explore(model, threads, &verdict::PROMISES, |states, waiting| {
        if said.elapsed() >= Duration::from_secs(10) {
            said = Instant::now();
            println!("{states} states, {waiting} wait, {:.0?}", began.elapsed());
        }
        true
    });
    for (name, found) in &all.found {
        println!("\n{name}:");
        for action in &found.way {
            println!("  {action:?}");
        }
        if *name == verdict::ENDS {
            println!("  ends so: {}", Endings::tell(model, &found.last));
        }
    }
    println!(
        "\n{} states by {} transitions, at most {} deep, all explored: {}, {:.0?}, {} MiB at most",
        all.states,
        all.ways,
        all.depth,
        all.whole,
        began.elapsed(),
        peak_mib(),
    );
    let mut broken = verdict::PROMISES.to_vec();
    broken.retain(|name| all.found.contains_key(name));
    ensure!(broken.is_empty(), "broken: {broken:?}");
    Ok(())
}

/// The most memory that this process had at any moment (`VmHWM` of proc(5)). 0 if it is unknown.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")?.parse().ok());
    kib.unwrap_or(0u64) / 1024
}
