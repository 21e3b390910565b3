//! `agent-forge top`: a live table of machines, with sums per pool.

pub mod rows;
mod screen;
#[cfg(test)]
mod tests;

use std::{io::IsTerminal as _, time::Duration};

use clap::Args as ClapArgs;
use jiff::Timestamp;
use kube::Client;

use self::rows::{MachineRow, Overview, PoolRow};
use super::{
    Place,
    report::{self, Output, Report, Verdict},
    sight::{self, Sight},
};
use crate::args::Args;

/// What `agent-forge top` shows.
#[derive(Clone, Debug, ClapArgs)]
pub struct TopArgs {
    /// Which pools and VsphereAgents, with what belongs to them.
    #[command(flatten)]
    pub place: Place,

    /// Print once in this format, and end. Default: a live table, if the output is a terminal.
    #[arg(
        long,
        short,
        env = "AGENT_FORGE_OUTPUT",
        value_enum,
        value_name = "FORMAT"
    )]
    pub output: Option<Output>,

    /// How often the live table is read again, in seconds. At least 2.
    #[arg(long, env = "AGENT_FORGE_INTERVAL", default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=3600), value_name = "SECONDS")]
    pub interval: u64,
}

/// Shows the table.
///
/// # Errors
/// The cluster cannot be read at the start, or the terminal cannot be used.
pub async fn run(args: &Args, asked: &TopArgs) -> anyhow::Result<Verdict> {
    let (client, args) = &sight::connect(args).await?;
    let sight = Sight::permitted(args, client, &asked.place).await?;
    sight.tell_unseen();
    let first = overview(&sight, asked);
    if asked.output.is_none() && std::io::stdout().is_terminal() {
        let every = Duration::from_secs(asked.interval);
        screen::live(first, every, async || read(args, asked, client).await).await?;
        return Ok(Verdict::Nothing);
    }
    report::print(&first, asked.output.unwrap_or_default())
}

async fn read(args: &Args, asked: &TopArgs, client: &Client) -> anyhow::Result<Overview> {
    let sight = Sight::permitted(args, client, &asked.place).await?;
    Ok(overview(&sight, asked))
}

fn overview(sight: &Sight, asked: &TopArgs) -> Overview {
    let namespace = asked.place.namespace.as_deref();
    rows::overview(&sight.caches, namespace, Timestamp::now())
}

/// Columns of the pools.
const POOLS: [&str; 5] = ["POOL", "READY", "MACHINES", "USUAL", "LATE"];
/// Columns of the machines.
const MACHINES: [&str; 8] = [
    "MACHINE",
    "POOL",
    "PHASE",
    "AGE",
    "STEP",
    "EXPECTED",
    "WAITING",
    "LAST FAILURE",
];

fn pool_cells(pool: &PoolRow) -> Vec<String> {
    let phases: Vec<String> = pool
        .phases
        .iter()
        .map(|(phase, count)| format!("{count} {phase}"))
        .collect();
    vec![
        pool.pool.clone(),
        match &pool.paused {
            Some(_) => "Paused".to_owned(),
            None => pool.ready.clone(),
        },
        if phases.is_empty() {
            "0".to_owned()
        } else {
            phases.join(", ")
        },
        pool.usual_seconds.map_or("-".to_owned(), report::span),
        pool.late.to_string(),
    ]
}

fn machine_cells(machine: &MachineRow) -> Vec<String> {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let step = machine
        .step
        .as_ref()
        .map(|(step, since)| format!("{step} {}", report::span(*since)));
    let expected = machine.expected_seconds.map(|left| {
        if left >= 0 {
            format!("in {}", report::span(left))
        } else {
            format!("{} late", report::span(-left))
        }
    });
    vec![
        machine.machine.clone(),
        machine.pool.clone(),
        machine.phase.clone(),
        report::span(machine.age_seconds),
        or_none(&step),
        or_none(&expected),
        or_none(&machine.waiting),
        or_none(&machine.last_failure),
    ]
}

impl Report for Overview {
    fn text(&self) -> String {
        if self.pools.is_empty() {
            return "there is no VsphereAgentPool\n".to_owned();
        }
        let pools = report::table(&POOLS, self.pools.iter().map(pool_cells));
        let machines = report::table(&MACHINES, self.machines.iter().map(machine_cells));
        format!("{pools}\n{machines}")
    }

    fn verdict(&self) -> Verdict {
        let odd = |m: &MachineRow| m.last_failure.is_some();
        if self.pools.iter().any(|p| p.late > 0) || self.machines.iter().any(odd) {
            Verdict::Findings
        } else {
            Verdict::Nothing
        }
    }
}
