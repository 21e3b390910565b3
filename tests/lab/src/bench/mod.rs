//! `lab bench`: what N machines cost, measured from outside the operator.
//!
//! It builds the operator and inspects its program (`binary`). For each number of machines and each limit of tasks,
//! it starts a fresh lab with one pool (`world`) and scales up once (`run`). Then it prints the table (`report`),
//! and checks what must hold for all figures (`promises`). The simulated vCenter counts requests, and the API
//! server's audit log counts writes. The kernel reports memory and child processes (`proc`). The operator's own
//! figures are not used.

mod binary;
pub mod iso;
pub mod late_binding;
pub mod memory;
mod page;
pub mod proc;
mod promises;
mod report;
mod restart;
mod run;
pub mod serving;
pub mod traces;
pub(crate) mod world;

use std::{io::Write as _, time::Duration};

use anyhow::{Context as _, Result, ensure};
use clap::Args as ClapArgs;
use serde::Serialize;

use crate::played::{Delays, ImageOptions};

pub use binary::{Program, Source};
pub use promises::Promise;
pub use restart::Restart;
pub use run::{Idle, Run};

/// Task slots of one vCenter by default (`--max-concurrent-vcenter-tasks`).
const CAPPED: u16 = 8;
/// So many slots that no run here reaches the limit.
const UNCAPPED: u16 = 1000;

/// Times of tasks in the simulated vCenter, and of a guest's boot. A reconfigure sets the boot order in each bench.
const CREATE: Duration = Duration::from_secs(3);
const POWER_ON: Duration = Duration::from_secs(2);
const RECONFIGURE: Duration = Duration::from_millis(100);
const BOOT: Duration = Duration::from_secs(1);

/// Measure scale-ups against the simulated vCenter.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Numbers of machines, one lab each.
    #[arg(
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_value = "1,10,50"
    )]
    pub machines: Vec<usize>,
    /// Limits of concurrent vCenter tasks, one lab each per number of machines.
    #[arg(long, value_name = "TASKS,..", value_delimiter = ',', default_values_t = [CAPPED, UNCAPPED])]
    pub tasks: Vec<u16>,
    /// The operator's program.
    #[command(flatten)]
    pub program: Source,
    /// How long the idle operator is observed after the runs with the most machines. 0 turns it off.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub idle_seconds: u64,
    /// At the end of each run, restart the operator and measure its start.
    #[arg(long)]
    pub restart: bool,
    /// Before the restart, let each Agent's inventory grow by this size. Agents of real hosts are large.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 60_000,
        requires = "restart"
    )]
    pub agent_bytes: usize,
    /// Print JSON instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// All measurements.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The operator's program.
    pub program: Program,
    /// Processors of this machine.
    pub processors: usize,
    /// The runs, in the order they were made.
    pub runs: Vec<Run>,
    /// The promises about the program and about every run.
    pub promises: Vec<Promise>,
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) machines: usize,
    pub(crate) tasks: u16,
    pub(crate) create: Duration,
    pub(crate) power_on: Duration,
    pub(crate) delays: Delays,
    pub(crate) image: ImageOptions,
    pub(crate) tls: bool,
    pub(crate) idle: Option<Duration>,
    /// Bytes by which each Agent grows before the operator is restarted; `None`: no restart.
    pub(crate) restart: Option<usize>,
    /// More environment variables for the operator.
    pub(crate) env: Vec<(String, String)>,
}

impl Plan {
    /// Tasks and guests that take almost no time.
    pub(crate) fn brisk(machines: usize) -> Self {
        Self {
            machines,
            tasks: CAPPED,
            create: Duration::from_millis(300),
            power_on: Duration::from_millis(200),
            delays: Delays::fast(),
            image: ImageOptions::default(),
            tls: true,
            idle: None,
            restart: None,
            env: Vec::new(),
        }
    }
}

/// Bytes in MiB.
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Prints on standard output.
///
/// # Errors
/// Standard output is closed.
pub(crate) fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("write to standard output")
}

/// Measures and prints.
///
/// # Errors
/// A part does not start, or a scale-up does not end; the text says how far it came. Or, after everything was printed,
/// a promise is broken.
pub async fn run(args: Args) -> Result<()> {
    ensure!(
        !args.machines.is_empty() && !args.machines.contains(&0),
        "--machines: each number must be at least 1"
    );
    ensure!(
        !args.tasks.is_empty() && !args.tasks.contains(&0),
        "--tasks: each number must be at least 1"
    );
    let path = args.program.program().await?;
    let most = args.machines.iter().copied().max().unwrap_or_default();
    let mut report = Report {
        program: args.program.inspect(&path)?,
        processors: std::thread::available_parallelism().map_or(0, usize::from),
        runs: Vec::new(),
        promises: Vec::new(),
    };
    for &tasks in &args.tasks {
        for &machines in &args.machines {
            eprintln!("{machines} machines, at most {tasks} tasks at once");
            let idle = (machines == most && args.idle_seconds > 0)
                .then(|| Duration::from_secs(args.idle_seconds));
            let plan = Plan {
                tasks,
                create: CREATE,
                power_on: POWER_ON,
                delays: Delays {
                    boot: BOOT,
                    ..Delays::fast()
                },
                idle,
                restart: args.restart.then_some(args.agent_bytes),
                ..Plan::brisk(machines)
            };
            let run = run::measure(&path, &plan).await.with_context(|| {
                format!("measure {machines} machines with at most {tasks} tasks")
            })?;
            eprint!("{}", report::run(&run));
            report.runs.push(run);
        }
    }
    report.promises = promises::judge(&report.program, &report.runs);
    report::print(&report, args.json)?;
    promises::verdict(&report.promises)
}
