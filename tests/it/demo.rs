//! `cargo demo` as a new user runs it, with short delays. It succeeds only if every promise held, and otherwise says
//! why.

use std::{
    io::Write,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use agent_forge_lab::{
    demo::{Args, Voice, play},
    patience,
};
use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use tokio::{process::Command, sync::Notify};

/// Time limits that only catch a hang: for each half of the demo, and for all of it with the start of its parts.
const HALF: Duration = patience::HANG;
const ALL: Duration = patience::HANG.saturating_mul(4);
const OPERATOR: &str = env!("CARGO_BIN_EXE_agent-forge");

/// The demo's part of the command line.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    demo: Args,
}

/// The output of the demo so far.
#[derive(Clone, Default)]
struct Ear {
    heard: Arc<Mutex<String>>,
    /// When this text is printed, create this file.
    then: Option<(&'static str, PathBuf)>,
    /// Something was printed.
    printed: Arc<Notify>,
}

impl Write for Ear {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.push_str(&String::from_utf8_lossy(bytes));
        if let Some((_, path)) = self.then.take_if(|(words, _)| heard.contains(*words)) {
            std::fs::write(path, "")?;
        }
        self.printed.notify_one();
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Ear {
    fn heard(&self) -> String {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.clone()
    }

    /// Waits until these words are printed.
    async fn until(&self, words: &str) {
        while !self.heard().contains(words) {
            self.printed.notified().await;
        }
    }
}

/// Runs the demo with that output and with the operator at `program`. Returns how it ended.
async fn demo(ear: &Ear, program: &Path, args: &[&str]) -> Result<Result<()>> {
    demo_until(ear, program, args, std::future::pending()).await
}

/// The same, until `stop` resolves.
async fn demo_until(
    ear: &Ear,
    program: &Path,
    args: &[&str],
    stop: impl Future<Output = ()>,
) -> Result<Result<()>> {
    let program = format!("--operator={}", program.display());
    let delays = [
        "create=300ms",
        "power-on=200ms",
        "power-off=100ms",
        "reconfigure=50ms",
        "destroy=100ms",
        "owner-swap=100ms",
        "drain=50ms",
        "node-ready=50ms",
        "hook-poll=500ms",
        "boot=300ms",
        "inventory=100ms",
        "agent-poll=150ms",
        "monitor=100ms",
        "install-start=50ms",
        "install-stage=50ms",
        "reclaim=150ms",
        "reclaim-reboot=150ms",
    ];
    let delays = delays.map(|d| format!("--delay={d}"));
    let limit = format!("--limit={}s", HALF.as_secs());
    let all = ["demo", &program, &limit].into_iter();
    let all = all.chain(delays.iter().map(String::as_str));
    let cli = Cli::try_parse_from(all.chain(args.iter().copied()))?;
    let ended = tokio::time::timeout(ALL, play(&cli.demo, &Voice::to(ear.clone()), stop)).await;
    ended.with_context(|| format!("it hangs after\n{}", ear.heard()))
}

/// A program with this shell script. `$OPERATOR` in it is the operator.
fn script(dir: &Path, body: &str) -> Result<PathBuf> {
    let path = dir.join("operator.sh");
    let text = format!("#!/bin/sh\nOPERATOR='{OPERATOR}'\n{body}\n");
    std::fs::write(&path, text)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// The page answers and the printed commands work while the demo is kept. Nothing answers afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn every_promise_is_kept_and_told_and_a_kept_demo_works_until_it_is_stopped() -> Result<()> {
    let ear = Ear::default();
    let mut tried = Ok(String::new());
    let stop = async {
        ear.until("Ctrl-C stops everything").await;
        tried = try_out(&ear.heard()).await;
    };
    let args = ["--machines=2", "--keep"];
    let ended = demo_until(&ear, Path::new(OPERATOR), &args, stop).await?;
    let said = ear.heard();
    ended.with_context(|| said.clone())?;
    let page = tried.with_context(|| said.clone())?;
    let gone = reqwest::get(&page)
        .await
        .err()
        .context("the page answers")?;
    ensure!(gone.is_connect(), "{gone:#}");
    let lines = |word: &str| said.lines().filter(|l| l.starts_with(word)).count();
    ensure!(lines("  kept    ") == 10, "{said}");
    ensure!(lines("  BROKEN  ") == 0, "{said}");
    for words in [
        "==> everything is up after",
        "==> NodePool demo-worker is scaled to 2",
        "  installed",
        "==> NodePool demo-worker is scaled to 1",
        "==> done after",
        "  kubectl   KUBECONFIG=",
    ] {
        ensure!(said.contains(words), "no {words:?} in:\n{said}");
    }
    Ok(())
}

/// What the page shows, once its machine serves. The operator sees that a moment after the demo.
async fn serving(page: &str) -> Result<serde_json::Value> {
    loop {
        let topology = reqwest::get(format!("{page}topology.json")).await?;
        let topology: serde_json::Value = topology.error_for_status()?.json().await?;
        let pool = &topology["clusters"][0]["nodePools"][0]["pools"][0];
        if pool["machines"][0]["state"] == "serving" {
            return Ok(topology);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Does what a kept demo proposes. Returns the page's address.
async fn try_out(said: &str) -> Result<String> {
    let after = |mark: &str| said.split(mark).nth(1).context(mark.to_owned());
    let page = after("Open the page:")?.lines().next().context("a line")?;
    let page = page.trim().to_owned();
    let shown = reqwest::get(&page).await?.error_for_status()?;
    ensure!(shown.text().await?.contains("<title>agent-forge</title>"));
    let topology = tokio::time::timeout(HALF, serving(&page)).await??;
    ensure!(
        topology["foreign"]["hosts"].as_array().map(Vec::len) == Some(1),
        "{topology}"
    );
    let commands = after("Commands to try:\n")?.lines();
    let commands: Vec<&str> = commands.take_while(|l| !l.trim().is_empty()).collect();
    ensure!(commands.len() == 3, "{commands:?}");
    for (command, word) in commands.iter().zip([
        "marker of the VM in vCenter",
        "demo/demo-worker",
        "demo/demo-worker",
    ]) {
        // As a shell does it.
        let mut words = command.split_whitespace();
        let program = words.next().context("a program")?;
        let ran = Command::new(program)
            .args(words)
            .env_clear()
            .output()
            .await?;
        let text = String::from_utf8(ran.stdout)?;
        let errors = String::from_utf8(ran.stderr)?;
        ensure!(
            ran.status.code().is_some_and(|c| c < 2),
            "{command}: {text}{errors}"
        );
        ensure!(
            text.contains(word),
            "{command}: no {word:?} in {text}{errors}"
        );
    }
    Ok(page)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_promise_is_named_and_fails_the_demo() -> Result<()> {
    let dir = tempfile::tempdir()?;
    // A log with this text must fail the demo.
    let body = "echo \"thread 'main' panicked at nowhere\" >&2\nexec \"$OPERATOR\" \"$@\"";
    let program = script(dir.path(), body)?;
    let args = ["--machines=1", "--scale-to=0"];
    let ear = Ear::default();
    let ended = demo(&ear, &program, &args).await?;
    let said = ear.heard();
    let broken = "  BROKEN  the operator never panicked: 1 panics in its log";
    ensure!(said.lines().any(|l| l == broken), "{said}");
    let error = ended.err().context("it succeeded all the same")?;
    let error = format!("{error:#}");
    ensure!(error == "1 of 10 promises did not hold", "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_operator_ends_the_demo_at_once() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let flag = dir.path().join("die");
    // The shell becomes the operator. Its background job kills the operator when the file exists, and ends with it.
    let body = format!(
        "(while kill -0 $$; do [ -e '{}' ] && kill -KILL $$; sleep 0.1; done) >/dev/null 2>&1 &\nexec \"$OPERATOR\" \"$@\"",
        flag.display()
    );
    let program = script(dir.path(), &body)?;
    let ear = Ear {
        then: Some(("is scaled to 1", flag)),
        ..Ear::default()
    };
    // No guest ever boots. So before the time limit only the end of the operator can end this run, with another
    // message.
    let args = ["--machines=1", "--delay=boot=1h"];
    let ended = demo(&ear, &program, &args).await?;
    let error = ended.err().context("it succeeded all the same")?;
    let error = format!("{error:#}");
    let wanted = "the operator has ended (signal: 9 (SIGKILL)); its log ends with:";
    ensure!(error.contains(wanted), "{error}\n{}", ear.heard());
    Ok(())
}
