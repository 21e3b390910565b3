//! One command with its output in a file.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
    pin::pin,
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::{Instant, interval_at};

use crate::parts::leash::HeldProcess;

/// Time between two signs of life.
const TICK: Duration = Duration::from_secs(30);
/// How much of a log is read to find its last line, in bytes.
const LAST: u64 = 4096;

/// How a command ended.
#[derive(Debug)]
pub(super) enum End<S> {
    /// By itself.
    Exited(ExitStatus),
    /// It was killed, for this reason.
    Stopped(S),
}

/// Runs `command`, with standard output and errors in the file `log`, which is new.
///
/// When `stop` is ready, the command is killed with all children that it has not moved to another process group. The
/// same happens when this process ends. `tick` gets the last line of the log every 30 seconds.
///
/// # Errors
/// The command cannot be started, or the log cannot be written.
pub(super) async fn execute<S>(
    command: Command,
    log: &Path,
    stop: impl Future<Output = S>,
    mut tick: impl FnMut(&str),
) -> Result<End<S>> {
    let file = File::create(log).with_context(|| format!("create {}", log.display()))?;
    let program = command.get_program().display().to_string();
    let mut child = tokio::process::Command::from(command)
        .stdin(Stdio::null())
        .stdout(file.try_clone().context("share the log")?)
        .stderr(file)
        .process_group(0)
        .spawn()
        .with_context(|| format!("start {program}"))?;
    let id = child.id().context("a new program has an id")?;
    let _held = HeldProcess::group(id)?;
    let group = i32::try_from(id).ok().and_then(Pid::from_raw);
    let group = group.context("a process id out of range")?;
    let mut stop = pin!(stop);
    let mut ticks = interval_at(Instant::now() + TICK, TICK);
    loop {
        tokio::select! {
            status = child.wait() => return Ok(End::Exited(status.context("wait for its end")?)),
            why = &mut stop => {
                // The child was not reaped, so its id still names its group.
                kill_process_group(group, Signal::KILL).with_context(|| format!("kill {program}"))?;
                child.wait().await.context("wait for its end")?;
                return Ok(End::Stopped(why));
            }
            _ = ticks.tick() => tick(&last_line(log)),
        }
    }
}

/// The last line of a log that is not empty. Empty if there is none.
fn last_line(log: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LAST)))?;
        let mut end = Vec::new();
        file.read_to_end(&mut end)?;
        Ok(end)
    };
    let end = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&end);
    let line = text.lines().map(str::trim).rfind(|l| !l.is_empty());
    line.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::patience::HANG;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    /// Whether the program runs. One that ended and was not reaped yet does not.
    fn runs(pid: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit(") ").next().and_then(|s| s.chars().next());
        state.is_some_and(|s| s != 'Z' && s != 'X')
    }

    async fn until(what: impl Fn() -> bool) {
        let wait = async {
            while !what() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(HANG, wait).await.expect("it happens");
    }

    #[tokio::test]
    async fn a_command_leaves_its_output_and_its_status() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let script = shell("echo out; echo err >&2; exit 3");
        let end = execute(script, &log, std::future::pending::<()>(), |_| {}).await;
        assert!(matches!(end.unwrap(), End::Exited(s) if s.code() == Some(3)));
        assert_eq!(fs::read_to_string(&log).unwrap(), "out\nerr\n");
        assert_eq!(last_line(&log), "err");
        assert_eq!(last_line(&dir.path().join("none")), "");
    }

    #[tokio::test]
    async fn what_is_stopped_ends_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let text = || fs::read_to_string(&log).unwrap_or_default();
        // The command hangs, and so do a child and a grandchild.
        let script = shell("echo $$; sleep 600 & echo $!; sh -c 'echo $$; sleep 600; :' & wait");
        let stop = async {
            until(|| text().lines().count() == 3 && text().ends_with('\n')).await;
            for pid in text().lines() {
                assert!(runs(pid), "{pid} runs");
            }
            "limit"
        };
        let end = execute(script, &log, stop, |_| {}).await;
        assert!(matches!(end.unwrap(), End::Stopped("limit")));
        until(|| !text().lines().any(runs)).await;
    }

    #[tokio::test]
    async fn a_program_that_does_not_exist_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let command = Command::new("/no/such/program");
        let log = dir.path().join("log");
        let end = execute(command, &log, std::future::pending::<()>(), |_| {}).await;
        let error = end.err().map(|e| format!("{e:#}")).unwrap_or_default();
        assert!(error.contains("/no/such/program"), "{error}");
    }
}
