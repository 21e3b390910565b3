//! `lab nightly`: everything that takes too long for each change, as one command.
//!
//! A night is a list of parts ([`parts`]). Each is one command with a time limit. After each part its result is kept in
//! `target/nightly/<commit>` ([`records`]), so a second start goes on where the first one ended. At the end a report is
//! printed ([`report`]). The exit code is 0 only if every selected part passed.

mod checkout;
mod execute;
pub mod flakes;
mod parts;
mod records;
mod report;

use std::{
    env, fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args as ClapArgs;
use jiff::Timestamp;
use tokio::time::Instant;

use self::{
    checkout::{Checkout, git},
    execute::{End, execute},
    parts::{Part, Program, Setup},
    records::{Outcome, Record, Records, is_due, last_lines, text_of},
    report::{Row, time},
};
use crate::tools::{self, repository};

/// Limit for building simulation and model checker.
const BUILD: Duration = Duration::from_secs(3600);
/// How many lines of a part's output its result has.
const TAIL: usize = 40;
/// How many characters of a part's last line are shown while it runs.
const SHOWN: usize = 120;

/// Run the second lane of tests, and print a report.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Only parts whose names begin with one of these texts.
    #[arg(long, value_name = "TEXT,..", value_delimiter = ',')]
    parts: Vec<String>,
    /// Forget earlier results of these parts, and run them again.
    #[arg(long, conflicts_with_all = ["list", "report"])]
    again: bool,
    /// Also repeat parts that failed or took too long.
    #[arg(long, conflicts_with_all = ["list", "report"])]
    failed: bool,
    /// List the parts with their results, and run nothing.
    #[arg(long, conflicts_with = "report")]
    list: bool,
    /// Print the report of what has a result, and run nothing.
    #[arg(long)]
    report: bool,
    /// Write the report to this file, too.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    out: Option<PathBuf>,
    /// Begin no part after so many minutes. The next start goes on with the others.
    #[arg(long, value_name = "N", conflicts_with_all = ["list", "report"])]
    minutes: Option<u64>,
    /// How often each integration test is repeated. A full run takes 20.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    flake_rounds: u32,
    /// Random changes are made to what changed since this commit.
    #[arg(long, value_name = "COMMIT", default_value = "HEAD~10")]
    mutants_since: String,
}

/// Why a part was killed.
enum Stop {
    Limit,
    Interrupt,
}

/// One start of the command.
struct Night {
    root: PathBuf,
    /// Build output, from the root.
    target: PathBuf,
    /// This program.
    lab: PathBuf,
    records: Records,
    checkout: Checkout,
    since: String,
    began: Instant,
    /// No part begins after that.
    budget: Duration,
}

/// Runs what has no result, and prints the report.
///
/// # Errors
/// A selected part did not pass; or git, a result or a log cannot be used; or Ctrl-C was pressed.
pub async fn run(args: Args) -> Result<()> {
    let root = repository();
    let checkout = Checkout::read(&root)?;
    let seed = checkout.seed()?;
    let target = PathBuf::from(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let dir = target.join("nightly").join(checkout.key());
    let readme = root.join("tests/sim/README.md");
    let readme = fs::read_to_string(&readme).context("read the simulation's README")?;
    let setup = Setup {
        workloads: parts::workloads(&readme)?,
        seed,
        flake_rounds: args.flake_rounds,
        dir: &dir,
    };
    let parts = parts::selected(parts::all(&setup), &args.parts)?;
    let night = Night {
        records: Records::new(root.join(&dir)),
        // A later build may put another file in its place.
        lab: env::current_exe().context("find this program")?,
        root,
        target,
        checkout: checkout.clone(),
        since: args.mutants_since,
        began: Instant::now(),
        budget: args
            .minutes
            .map_or(Duration::MAX, |n| Duration::from_secs(n * 60)),
    };
    if checkout.dirty {
        eprintln!(
            "files differ from commit {}: results are kept apart",
            checkout.commit
        );
    }
    if !(args.list || args.report) {
        eprintln!(
            "commit {}, seed {seed}, results in {}",
            checkout.key(),
            dir.display()
        );
        if args.again {
            parts
                .iter()
                .try_for_each(|p| night.records.forget(&p.name))?;
        }
        night.play(&parts, args.failed).await?;
    }
    let rows = night.rows(parts)?;
    if args.list {
        return print(&report::list(&rows));
    }
    let text = report::markdown(&checkout, seed, &report::machine(), &rows);
    print(&text)?;
    if let Some(file) = &args.out {
        fs::write(file, &text).with_context(|| format!("write {}", file.display()))?;
    }
    let passed = |row: &Row| row.1.as_ref().is_some_and(|r| r.outcome == Outcome::Passed);
    ensure!(rows.iter().all(passed), "{}", report::summary(&rows));
    Ok(())
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("write to standard output")
}

impl Night {
    fn rows(&self, parts: Vec<Part>) -> Result<Vec<Row>> {
        parts
            .into_iter()
            .map(|part| self.records.get(&part.name).map(|record| (part, record)))
            .collect()
    }

    /// Plays all parts that are due, one after the other.
    async fn play(&self, parts: &[Part], failed_too: bool) -> Result<()> {
        let mut due = Vec::new();
        for part in parts {
            let earlier = self.records.get(&part.name)?;
            if is_due(earlier.as_ref(), &part.command(), failed_too) {
                due.push(part);
            }
        }
        self.say(&format!(
            "{} of {} parts have to run",
            due.len(),
            parts.len()
        ));
        fs::create_dir_all(self.records.dir()).context("create the directory for results")?;
        let unbuilt = if due.iter().any(|p| p.program.is_optimised()) {
            self.build().await?
        } else {
            None
        };
        for (at, part) in due.iter().enumerate() {
            if self.began.elapsed() >= self.budget {
                let left = due.len() - at;
                self.say(&format!(
                    "the time is over: {left} parts are left for the next start"
                ));
                break;
            }
            let now = Checkout::read(&self.root)?;
            ensure!(
                now == self.checkout,
                "another commit or other files are checked out"
            );
            self.say(&format!(
                "{} ({} of {}): {}",
                part.name,
                at + 1,
                due.len(),
                part.proves
            ));
            let missing = match &unbuilt {
                Some(why) if part.program.is_optimised() => Some(why.clone()),
                _ => self.missing(part),
            };
            let record = match missing {
                Some(why) => not_run(part, why),
                None => self.execute(part).await?,
            };
            let (word, took) = (record.outcome.word(), time(record.seconds));
            self.say(&format!(
                "{}: {word} after {took}; {}",
                part.name, record.figures
            ));
            self.records.put(&part.name, &record)?;
        }
        Ok(())
    }

    /// Builds simulation and model checker. Returns why that failed.
    async fn build(&self) -> Result<Option<String>> {
        let args = "build --profile opt -p agent-forge-sim -p agent-forge-model";
        self.say("building simulation and model checker; the first time this takes minutes");
        let mut command = self.program(Program::Cargo);
        command.args(args.split(' '));
        let outcome = self.until("build", command, BUILD).await?;
        Ok((outcome != Outcome::Passed).then(|| format!("`cargo {args}` did not succeed")))
    }

    /// What the part needs and does not find.
    fn missing(&self, part: &Part) -> Option<String> {
        if part.name != "mutants" {
            return None;
        }
        let mut version = self.program(Program::Cargo);
        version.args(["mutants", "--version"]).stdin(Stdio::null());
        if !version.output().is_ok_and(|o| o.status.success()) {
            return Some("cargo-mutants is missing: cargo install --locked cargo-mutants".into());
        }
        let diff = git(&self.root, &["diff", &self.since, "--", "*.rs"]);
        let file = self.records.dir().join("mutants.diff");
        let written = diff.and_then(|text| Ok(fs::write(&file, text)?));
        written
            .err()
            .map(|why| format!("{why:#}").replace('\n', " "))
    }

    fn program(&self, program: Program) -> Command {
        let optimised = |name: &str| self.root.join(&self.target).join("opt").join(name);
        let mut command = match program {
            Program::Cargo => tools::cargo(),
            Program::Lab => Command::new(&self.lab),
            Program::Sim => Command::new(optimised("sim")),
            Program::Model => Command::new(optimised("model")),
        };
        command.current_dir(&self.root);
        command.env("CARGO_TERM_COLOR", "never");
        // The backtrace of an error would push the result out of the last lines. A panic keeps its own.
        command.env("RUST_LIB_BACKTRACE", "0");
        command
    }

    async fn execute(&self, part: &Part) -> Result<Record> {
        let began = Instant::now();
        let mut command = self.program(part.program);
        command.args(&part.args);
        let outcome = self.until(&part.name, command, part.limit).await?;
        let log = text_of(&self.records.log(&part.name))?;
        Ok(Record {
            outcome,
            command: part.command(),
            seconds: began.elapsed().as_secs(),
            date: Timestamp::now(),
            figures: report::figures(&log, part.is_test()),
            tail: last_lines(&log, TAIL),
        })
    }

    /// Runs a command, kills it at its limit, and shows now and then how far it is.
    async fn until(&self, name: &str, command: Command, limit: Duration) -> Result<Outcome> {
        let stop = async {
            tokio::select! {
                () = tokio::time::sleep(limit) => Stop::Limit,
                _ = tokio::signal::ctrl_c() => Stop::Interrupt,
            }
        };
        let began = Instant::now();
        let tick = |line: &str| {
            let line: String = line.chars().take(SHOWN).collect();
            let took = time(began.elapsed().as_secs());
            self.say(&format!("  {name} runs for {took}: {line}"));
        };
        match execute(command, &self.records.log(name), stop, tick).await? {
            End::Exited(status) if status.success() => Ok(Outcome::Passed),
            End::Exited(_) => Ok(Outcome::Failed),
            End::Stopped(Stop::Limit) => Ok(Outcome::TooLong),
            End::Stopped(Stop::Interrupt) => {
                bail!("interrupted in {name}; the next start goes on there")
            }
        }
    }

    fn say(&self, text: &str) {
        eprintln!("[{:>9}] {text}", time(self.began.elapsed().as_secs()));
    }
}

fn not_run(part: &Part, why: String) -> Record {
    Record {
        outcome: Outcome::NotRun,
        command: part.command(),
        seconds: 0,
        date: Timestamp::now(),
        figures: why,
        tail: Vec::new(),
    }
}
