//! `lab soak`: plays for a given time what is too much for each change. A second start for the same commit goes on.
//!
//! A piece is one command that takes some minutes. There are kinds of pieces ([`Kind`]), and the next piece is of the
//! kind that had the least time. What was played is kept in `target/soak/<commit>/played.json` after each piece, and
//! each piece has its output beside it. Ctrl-C ends the piece that runs; it is played again by the next start. The
//! programs lie there too, so another commit may be checked out meanwhile.

use std::{
    env,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::{Args as ClapArgs, ValueEnum};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::{
    parts::leash::HeldProcess,
    tools::{built, repository},
};

/// Limit of one piece. It only catches a hang.
const LIMIT: Duration = Duration::from_secs(3600);
/// How many faults one piece of the simulation plays.
const FAULTS: usize = 8;
/// How many lines of a failed piece are shown: those that name failed plans, or else the last ones.
const TAIL: usize = 20;

/// The model's larger worlds (tests/model/README.md).
const WORLDS: [&str; 7] = [
    "recycle --switched-on --reclaims --faults crash,unknown",
    "recycle --hurries --faults crash",
    "reassign --machines a/p,b/q,c/r --stay --faults none",
    "reassign --machines b/q,c/r --stay --faults lag",
    "--machines b --hours 2",
    "--foreign",
    "--foreign --hours 2",
];

/// Play for a given time what is too much for each change.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Begin nothing after so many minutes.
    #[arg(long, value_name = "N")]
    minutes: u64,
    /// Seed of everything random. Without it, the commit.
    #[arg(long)]
    seed: Option<u64>,
    /// Only these kinds; all without one.
    #[arg(long, value_name = "KIND,..", value_delimiter = ',')]
    only: Vec<Kind>,
}

/// What a piece plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
enum Kind {
    /// The simulation's plans with one fault, each once.
    Singles,
    /// Random plans of the simulation.
    Random,
    /// Random kills of the real operator.
    Kills,
    /// Larger worlds of the model, each once.
    Model,
    /// Changed copies of texts that others write.
    Fuzz,
}

/// The names that the simulation knows.
#[derive(Default)]
struct Names {
    workloads: Vec<String>,
    faults: Vec<String>,
}

impl Names {
    /// From the output of `sim list`.
    fn read(list: &str) -> Result<Self> {
        let section = |title: &str| -> Vec<String> {
            let found = list.split("\n\n").find(|s| s.starts_with(title));
            let lines = found.unwrap_or_default().lines().skip(1);
            let names = lines.filter_map(|line| line.split_whitespace().next());
            names.map(|n| n.trim_end_matches(':').to_owned()).collect()
        };
        let names = Self {
            workloads: section("Workloads:"),
            faults: section("Faults:"),
        };
        let some = !names.workloads.is_empty() && !names.faults.is_empty();
        ensure!(some, "`sim list` names no workloads or no faults");
        Ok(names)
    }
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    program: &'static str,
    args: String,
}

impl Piece {
    /// The command line that repeats it, in the root of the repository.
    fn command(&self) -> String {
        let typed = match self.program {
            "sim" => "cargo run -p agent-forge-sim --",
            "model" => "cargo run -p agent-forge-model --",
            "fuzz" => "cargo run -p agent-forge-fuzz --",
            _ => "cargo lab",
        };
        format!("{typed} {}", self.args)
    }
}

/// The pieces of a kind, in their order. Random ones have no end.
fn pieces(kind: Kind, seed: u64, names: &Names) -> Box<dyn Iterator<Item = Piece> + '_> {
    let piece = |program, args| Piece { program, args };
    let seeds = (0..).map(move |n| seed.wrapping_add(n));
    match kind {
        Kind::Singles => {
            let edits = "worlds 500 --workloads spec_edited".to_owned();
            let of = |faults: &[String]| {
                let faults = faults.join(",");
                let args =
                    move |w| format!("enumerate --traces 0 --workloads {w} --faults {faults}");
                names.workloads.iter().map(args)
            };
            let all = names.faults.chunks(FAULTS).flat_map(of);
            Box::new(
                std::iter::once(edits)
                    .chain(all)
                    .map(move |args| piece("sim", args)),
            )
        }
        Kind::Random => Box::new(seeds.enumerate().map(move |(n, seed)| {
            let args = match n % 4 {
                0 => format!("random 300 --seed {seed}"),
                1 => format!("random 300 --seed {seed} --world {seed}"),
                2 => format!("doubles --every 100 --seed {seed}"),
                _ => format!("recovery --every 50 --most 10 --seed {seed}"),
            };
            piece("sim", args)
        })),
        Kind::Kills => Box::new(seeds.map(move |s| piece("lab", format!("kills --seed {s}")))),
        Kind::Model => Box::new(WORLDS.iter().map(move |&w| piece("model", w.to_owned()))),
        Kind::Fuzz => Box::new(seeds.map(move |s| piece("fuzz", format!("--seed {s}")))),
    }
}

/// A piece that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Played {
    kind: Kind,
    command: String,
    seconds: u64,
    passed: bool,
}

/// The next piece: one that was not played, of the kind that had the least time.
fn next(played: &[Played], only: &[Kind], seed: u64, names: &Names) -> Option<(Kind, Piece)> {
    let time = |kind: Kind| -> u64 {
        let of = played.iter().filter(|p| p.kind == kind);
        of.map(|p| p.seconds).sum()
    };
    let is_new = |piece: &Piece| played.iter().all(|p| p.command != piece.command());
    only.iter()
        .filter_map(|&kind| Some((kind, pieces(kind, seed, names).find(is_new)?)))
        .min_by_key(|(kind, _)| time(*kind))
}

/// Plays until the time is over or nothing is left.
///
/// # Errors
/// A piece failed, in this start or in an earlier one of this commit; or nothing can be played.
pub async fn run(args: Args) -> Result<()> {
    let began = Instant::now();
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let commit = commit.trim();
    let dirty = !git(&["status", "--porcelain"])?.trim().is_empty();
    let seed = match args.seed {
        Some(seed) => seed,
        None => u64::from_str_radix(commit, 16).context("the commit is no hash")?,
    };
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let suffix = if dirty { "-dirty" } else { "" };
    let dir = repository()
        .join(target)
        .join("soak")
        .join(format!("{commit}{suffix}"));
    if dirty && dir.exists() {
        eprintln!("files differ from the commit, so nothing is kept of an earlier start");
        fs::remove_dir_all(&dir).context("forget the earlier start")?;
    }
    fs::create_dir_all(&dir).context("create the directory for the results")?;
    eprintln!("seed {seed}, results in {}", dir.display());
    let only = match args.only.as_slice() {
        [] => Kind::value_variants(),
        some => some,
    };
    let names = if only.contains(&Kind::Singles) {
        let list = Command::new(program(&dir, "sim").await?)
            .arg("list")
            .output();
        Names::read(&String::from_utf8_lossy(
            &list.context("run sim list")?.stdout,
        ))?
    } else {
        Names::default()
    };
    let is_over = || began.elapsed() >= Duration::from_secs(60 * args.minutes);
    soak(&dir, only, seed, &names, is_over).await
}

async fn soak(
    dir: &Path,
    only: &[Kind],
    seed: u64,
    names: &Names,
    is_over: impl Fn() -> bool,
) -> Result<()> {
    let file = dir.join("played.json");
    let mut played: Vec<Played> = match fs::read(&file) {
        Ok(bytes) => serde_json::from_slice(&bytes).context("read played.json")?,
        Err(_) => Vec::new(),
    };
    while !is_over()
        && let Some((kind, piece)) = next(&played, only, seed, names)
    {
        let (began, command) = (Instant::now(), piece.command());
        let log = dir.join(format!("{}.log", played.len()));
        eprintln!("{kind:?}: {command}");
        let passed = passes(dir, &piece, &log).await?;
        let seconds = began.elapsed().as_secs();
        if passed {
            eprintln!("  passed after {seconds} s");
        } else {
            let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
            let lines: Vec<&str> = text.lines().collect();
            let mut shown: Vec<&str> = lines.clone();
            shown.retain(|line| line.starts_with("FAILED"));
            shown.truncate(TAIL);
            if shown.is_empty() {
                shown = lines[lines.len().saturating_sub(TAIL)..].to_vec();
            }
            eprintln!("  FAILED after {seconds} s; from {}:", log.display());
            eprintln!("{}", shown.join("\n"));
        }
        played.push(Played {
            kind,
            command,
            seconds,
            passed,
        });
        let new = file.with_extension("new");
        fs::write(&new, serde_json::to_vec_pretty(&played)?)
            .and_then(|()| fs::rename(&new, &file))
            .context("write played.json")?;
    }
    summary(&played, only, seed, names)
}

/// Prints what was played, and how to repeat what failed.
fn summary(played: &[Played], only: &[Kind], seed: u64, names: &Names) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for kind in only {
        let of = || played.iter().filter(|p| p.kind == *kind);
        let minutes = of().map(|p| p.seconds).sum::<u64>() / 60;
        let left = match next(played, &[*kind], seed, names) {
            Some(_) => "",
            None => ", nothing is left",
        };
        writeln!(
            out,
            "{kind:?}: {} pieces in {minutes} min{left}",
            of().count()
        )?;
    }
    let failed = || played.iter().filter(|p| !p.passed);
    failed().try_for_each(|p| writeln!(out, "FAILED  {}", p.command))?;
    let count = failed().count();
    ensure!(count == 0, "{count} of {} pieces failed", played.len());
    Ok(())
}

/// Runs a piece with its output in the file `log`. Kills it with its children at the limit, or when this process ends.
async fn passes(dir: &Path, piece: &Piece, log: &Path) -> Result<bool> {
    let mut command = tokio::process::Command::new(program(dir, piece.program).await?);
    command.args(piece.args.split(' '));
    if piece.program == "lab" {
        command
            .arg("--operator")
            .arg(program(dir, "agent-forge").await?);
    }
    let file = File::create(log).with_context(|| format!("create {}", log.display()))?;
    let mut child = command
        .current_dir(repository())
        .env("RUST_LIB_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(file.try_clone().context("share the log")?)
        .stderr(file)
        .process_group(0)
        .spawn()
        .with_context(|| format!("start {}", piece.program))?;
    let id = child.id().context("a new program has an id")?;
    let _held = HeldProcess::group(id)?;
    if let Ok(status) = tokio::time::timeout(LIMIT, child.wait()).await {
        return Ok(status.context("wait for its end")?.success());
    }
    eprintln!("  it did not end within {} minutes", LIMIT.as_secs() / 60);
    let group = i32::try_from(id).ok().and_then(Pid::from_raw);
    kill_process_group(group.context("a process id")?, Signal::KILL).context("kill it")?;
    child.wait().await.context("wait for its end")?;
    Ok(false)
}

/// The program of that name beside the results. If it is missing, it is built.
async fn program(dir: &Path, name: &'static str) -> Result<PathBuf> {
    let path = dir.join(name);
    if path.exists() {
        return Ok(path);
    }
    let package = match name {
        "agent-forge" => name.to_owned(),
        _ => format!("agent-forge-{name}"),
    };
    let built = if name == "lab" {
        env::current_exe().context("find this program")?
    } else {
        eprintln!("building {name}; the first time this takes minutes");
        tokio::task::spawn_blocking(move || built(&package, name, "dev")).await??
    };
    let new = path.with_extension("new");
    fs::copy(built, &new)
        .and_then(|_| fs::rename(&new, &path))
        .with_context(|| format!("keep {name}"))?;
    Ok(path)
}

fn git(args: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .current_dir(repository())
        .args(args)
        .output();
    let output = output.context("run git")?;
    ensure!(
        output.status.success(),
        "git {}: {}",
        args.join(" "),
        output.status
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let list = "Workloads:\n  one: a\n  two (S2): b\n\nFaults:\n  lost (m1): a\n  late (m2): b\n\nEffects:\n  x (K1)\n";
        Names::read(list).unwrap()
    }

    fn played(kind: Kind, command: String, seconds: u64) -> Played {
        Played {
            kind,
            command,
            seconds,
            passed: true,
        }
    }

    #[test]
    fn each_fault_of_each_workload_is_played_once() {
        let mut done = Vec::new();
        while let Some((kind, piece)) = next(&done, &[Kind::Singles], 7, &names()) {
            done.push(played(kind, piece.command(), 1));
        }
        let commands: Vec<&str> = done.iter().map(|p| p.command.as_str()).collect();
        let sim = "cargo run -p agent-forge-sim --";
        let of = |w: &str| format!("{sim} enumerate --traces 0 --workloads {w} --faults lost,late");
        let edits = format!("{sim} worlds 500 --workloads spec_edited");
        assert_eq!(commands, [edits, of("one"), of("two")]);
        assert!(Names::read("Workloads:\n").is_err());
    }

    /// The programs are `true` and `false`, so that no piece takes time.
    #[tokio::test]
    async fn a_second_start_goes_on_where_the_first_one_ended() {
        let (dir, names) = (tempfile::tempdir().unwrap(), names());
        let read = || -> Vec<Played> {
            serde_json::from_slice(&fs::read(dir.path().join("played.json")).unwrap()).unwrap()
        };
        let link = |to: &str| {
            let name = dir.path().join("model");
            let _ = fs::remove_file(&name);
            std::os::unix::fs::symlink(to, &name).unwrap();
        };
        let left = std::cell::Cell::new(0_u32);
        let is_over = || left.replace(left.get().saturating_sub(1)) == 0;
        let start = |pieces| {
            left.set(pieces);
            soak(dir.path(), &[Kind::Model], 7, &names, &is_over)
        };
        link("/bin/true");
        start(2).await.unwrap();
        assert_eq!(read().len(), 2);
        link("/bin/false");
        let error = start(1).await.unwrap_err();
        assert_eq!(error.to_string(), "1 of 3 pieces failed");
        link("/bin/true");
        // What failed is not forgotten, and nothing is played twice.
        start(100).await.unwrap_err();
        let commands: Vec<String> = read().into_iter().map(|p| p.command).collect();
        let all = pieces(Kind::Model, 7, &names);
        assert_eq!(commands, all.map(|p| p.command()).collect::<Vec<_>>());
    }
}
