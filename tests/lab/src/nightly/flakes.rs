//! `lab flakes`: runs each integration test again and again on a busy machine, and counts how often it fails.
//!
//! The tests run one after the other, each in a process of its own. After each run the counts are kept in a file, so a
//! second start with the same directory goes on where the first one ended.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use clap::Args as ClapArgs;
use serde::{Deserialize, Serialize};
use tokio::{process::Command, time::timeout};

use super::records::{last_lines, read_json, text_of, write_json};
use crate::{
    patience::HANG,
    tools::{cargo, repository},
};

/// Test programs with integration tests, as `cargo test` selects them.
const PROGRAMS: &str = "test -p agent-forge --features nightly --test it --test it_nightly --no-run --message-format json-render-diagnostics";
/// Limit of one run. It only catches a hang.
const LIMIT: Duration = HANG.saturating_mul(2);
/// How many lines of a failed run are shown.
const TAIL: usize = 30;

/// Run each integration test several times beside a load.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Runs of each test.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,
    /// Threads that are busy all the time.
    #[arg(long, value_name = "N", default_value_t = 2)]
    load: usize,
    /// Directory for counts and for the output of failed runs. A second start goes on with it.
    #[arg(long, value_name = "DIRECTORY")]
    state: PathBuf,
    /// Only tests whose names contain this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// One test of a test program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Test {
    program: PathBuf,
    /// Program and path, such as `it leader::a_leader_is_frozen`.
    name: String,
    path: String,
}

/// What is known about a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Count {
    runs: u32,
    failures: u32,
}

type Counts = BTreeMap<String, Count>;

/// Threads that compute nothing until this is dropped.
struct Load(Arc<AtomicBool>);

impl Load {
    fn start(threads: usize) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        for _ in 0..threads {
            let ended = Arc::clone(&ended);
            std::thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(ended)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs the tests and prints how often each failed.
///
/// # Errors
/// The tests cannot be built, the counts cannot be kept, or a run failed.
pub async fn run(args: Args) -> Result<()> {
    let mut tests = tests().await?;
    tests.retain(|t| t.name.contains(&args.only));
    ensure!(!tests.is_empty(), "no test has {:?} in its name", args.only);
    fs::create_dir_all(&args.state).context("create the directory for the counts")?;
    let file = args.state.join("counts.json");
    let mut counts: Counts = read_json(&file)?.unwrap_or_default();
    let load = Load::start(args.load);
    for round in 1..=args.rounds {
        for (at, test) in tests.iter().enumerate() {
            let count = counts.entry(test.name.clone()).or_default();
            if count.runs >= round {
                continue;
            }
            eprintln!(
                "round {round}, test {} of {}: {}",
                at + 1,
                tests.len(),
                test.name
            );
            let passed = passes(test, &args.state, round).await?;
            count.runs += 1;
            count.failures += u32::from(!passed);
            write_json(&file, &counts)?;
        }
    }
    drop(load);
    counts.retain(|name, _| tests.iter().any(|t| t.name == *name));
    let mut out = io::stdout().lock();
    out.write_all(table(&counts).as_bytes())
        .context("print the table")?;
    let failed = counts.values().filter(|c| c.failures > 0).count();
    ensure!(failed == 0, "{failed} tests do not pass each time");
    Ok(())
}

/// All integration tests. Builds them.
async fn tests() -> Result<Vec<Test>> {
    let mut build = Command::from(cargo());
    let messages = output(build.args(PROGRAMS.split(' '))).await?;
    let mut tests = Vec::new();
    for (name, program) in programs(&messages) {
        let list = output(Command::new(&program).args(["--list", "--format", "terse"])).await?;
        tests.extend(listed(&list).map(|path| Test {
            program: program.clone(),
            name: format!("{name} {path}"),
            path: path.to_owned(),
        }));
    }
    Ok(tests)
}

/// Standard output of a command that has to succeed.
async fn output(command: &mut Command) -> Result<String> {
    let command = command
        .current_dir(repository())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let shown = command.as_std().get_program().display().to_string();
    let output = command
        .output()
        .await
        .with_context(|| format!("run {shown}"))?;
    ensure!(output.status.success(), "{shown}: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Name and path of the test programs in the messages of `cargo test --no-run`.
fn programs(messages: &str) -> Vec<(String, PathBuf)> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["profile"]["test"] == true)
        .filter_map(|message| {
            let program = message["executable"].as_str()?;
            Some((
                message["target"]["name"].as_str()?.to_owned(),
                program.into(),
            ))
        })
        .collect()
}

/// The tests that `--list --format terse` names.
fn listed(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter_map(|line| line.strip_suffix(": test"))
}

/// Runs a test once. A failed run leaves its output in the directory, and the end of it on stderr.
async fn passes(test: &Test, state: &Path, round: u32) -> Result<bool> {
    let name = test.name.replace(['/', ' ', ':'], ".");
    let log = state.join(format!("{name}-{round}.log"));
    let file = File::create(&log).with_context(|| format!("create {}", log.display()))?;
    let mut child = Command::new(&test.program)
        .args(["--exact", &test.path])
        .current_dir(repository())
        .stdin(Stdio::null())
        .stdout(file.try_clone().context("share the log")?)
        .stderr(file)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start {}", test.program.display()))?;
    let ended: Option<ExitStatus> = match timeout(LIMIT, child.wait()).await {
        Ok(status) => Some(status.context("wait for the test")?),
        Err(_) => {
            // What the test started ends with it.
            child.kill().await.context("kill the test")?;
            None
        }
    };
    if ended.is_some_and(|status| status.success()) {
        fs::remove_file(&log).context("remove the log")?;
        return Ok(true);
    }
    let how = ended.map_or("too long".to_owned(), |status| status.to_string());
    let tail = last_lines(&text_of(&log)?, TAIL).join("\n");
    eprintln!("FAILED {}: {how}; {}\n{tail}", test.name, log.display());
    Ok(false)
}

/// One line for each test, those that fail most often last, and the sum.
fn table(counts: &Counts) -> String {
    let mut rows: Vec<_> = counts.iter().collect();
    rows.sort_by_key(|(_, count)| count.failures);
    let mut text = String::new();
    for (name, Count { runs, failures }) in &rows {
        let rate = 100.0 * f64::from(*failures) / f64::from((*runs).max(1));
        text += &format!("{failures:>3} of {runs:>3} runs failed, {rate:>3.0} %: {name}\n");
    }
    let failed = rows.iter().filter(|(_, c)| c.failures > 0).count();
    let runs: u32 = counts.values().map(|c| c.runs).sum();
    text + &format!(
        "{failed} of {} tests failed, {runs} runs in all\n",
        rows.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_names_the_programs_and_they_name_their_tests() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"agent_forge"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","target":{"name":"agent-forge"},"profile":{"test":false},"executable":"/t/agent-forge"}
{"reason":"compiler-artifact","target":{"name":"it"},"profile":{"test":true},"executable":"/t/it-0f"}
{"reason":"build-finished","success":true}
"#;
        assert_eq!(programs(messages), [("it".into(), "/t/it-0f".into())]);
        let list =
            "leader::frozen: test\nbench: benchmark\nstorm::all: test\n\n2 tests, 1 benchmark\n";
        let paths: Vec<&str> = listed(list).collect();
        assert_eq!(paths, ["leader::frozen", "storm::all"]);
    }

    #[test]
    fn the_table_ends_with_what_fails_most() {
        let count = |runs, failures| Count { runs, failures };
        let counts = Counts::from([
            ("it a".to_owned(), count(3, 2)),
            ("it b".to_owned(), count(3, 0)),
        ]);
        assert_eq!(
            table(&counts),
            "  0 of   3 runs failed,   0 %: it b\n  2 of   3 runs failed,  67 %: it a\n1 of 2 tests failed, 6 runs in all\n"
        );
    }

    #[tokio::test]
    async fn only_a_failed_run_leaves_its_output() {
        let dir = tempfile::tempdir().unwrap();
        // `false` and `true` ignore the arguments of a test program.
        for (program, passed) in [("false", false), ("true", true)] {
            let test = Test {
                program: program.into(),
                name: format!("it {program}::run"),
                path: "run".into(),
            };
            assert_eq!(passes(&test, dir.path(), 2).await.unwrap(), passed);
        }
        let left = fs::read_dir(dir.path()).unwrap();
        let left: Vec<_> = left.map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["it.false..run-2.log"]);
    }
}
