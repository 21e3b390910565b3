//! One started program.
//!
//! Guarantees:
//!
//! - A signal never reaches another program that got the same process id. The program is reaped under the lock that
//!   signals are sent under.
//! - Dropping the handle ends the program.
//! - The handle works from any async runtime, because a plain thread waits for the end. Tests share a lab, and each
//!   test has a runtime of its own.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::leash::HeldProcess;
use crate::patience::{HANG, LOOK};

/// How often a part that starts is asked whether it answers.
const PROBE_INTERVAL: Duration = Duration::from_millis(25);
/// How many lines of a log are shown when its program fails.
const TAIL_LINES: usize = 25;

/// A running (or ended) program of the lab.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: Pid,
    log: PathBuf,
    child: Arc<Mutex<Child>>,
    exit: watch::Receiver<Option<ExitStatus>>,
    reaper: Option<JoinHandle<()>>,
    // Some programs end when their input ends. They run as long as this is open.
    _stdin: Option<ChildStdin>,
}

impl Process {
    /// Starts `command` with its errors and, unless the caller reads it, its output in the file `log`.
    ///
    /// `read_output` returns the program's standard output instead of logging it.
    ///
    /// # Errors
    /// The program cannot be started, or the log cannot be written.
    pub fn spawn(
        name: &str,
        mut command: Command,
        log: &Path,
        read_output: bool,
    ) -> Result<(Self, Option<ChildStdout>)> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("open {}", log.display()))?;
        let output = if read_output {
            Stdio::piped()
        } else {
            Stdio::from(
                file.try_clone()
                    .with_context(|| format!("open {}", log.display()))?,
            )
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(file)
            // Its own process group: after a Ctrl-C the lab decides in which order its parts end.
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {name} ({})", command.get_program().display()))?;
        let pid = child.id();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let held = match HeldProcess::new(pid) {
            Ok(held) => held,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        let pid = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .context("a process id out of range")?;
        let child = Arc::new(Mutex::new(child));
        let (report, exit) = watch::channel(None);
        let reaper = thread::spawn({
            let child = Arc::clone(&child);
            move || {
                // Waits without reaping, so that the process id stays in use until it is reaped below.
                while waitid(
                    WaitId::Pid(pid),
                    WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
                )
                .is_err_and(|error| error == rustix::io::Errno::INTR)
                {}
                drop(held);
                let status = child.lock().unwrap_or_else(PoisonError::into_inner).wait();
                report.send_replace(status.ok());
            }
        });
        Ok((
            Self {
                name: name.to_owned(),
                pid,
                log: log.to_owned(),
                child,
                exit,
                reaper: Some(reaper),
                _stdin: stdin,
            },
            stdout,
        ))
    }

    /// Its process id. Other processes may use it only while this one runs.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// The file with its output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Sends a signal. Does nothing if the program has ended.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if child
            .try_wait()
            .with_context(|| format!("look at {}", self.name))?
            .is_some()
        {
            return Ok(());
        }
        kill_process(self.pid, signal).with_context(|| format!("send {signal:?} to {}", self.name))
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// How it ended cannot be found out.
    pub async fn ended(&self) -> Result<ExitStatus> {
        let mut exit = self.exit.clone();
        let status = exit
            .wait_for(Option::is_some)
            .await
            .map(|status| *status)
            .unwrap_or_default();
        status.with_context(|| format!("how {} ended is unknown", self.name))
    }

    /// Ends it at once (SIGKILL) and waits for the end.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub async fn kill(&self) -> Result<ExitStatus> {
        self.signal(Signal::KILL)?;
        self.ended().await
    }

    /// Asks it to end (SIGTERM), waits at most `grace`, then kills it.
    ///
    /// # Errors
    /// It had to be killed.
    pub async fn stop(&self, grace: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        if let Ok(status) = timeout(grace, self.ended()).await {
            return status;
        }
        self.kill().await?;
        bail!(
            "{} did not end within {} s of SIGTERM and was killed; its log ends with:\n{}",
            self.name,
            grace.as_secs(),
            self.tail()
        );
    }

    /// Calls `probe` again and again until it succeeds, for at most `within`.
    ///
    /// # Errors
    /// The program ended, or `within` passed. The error has the last answer of the probe and the end of the log.
    pub async fn until_ready<T, F: Future<Output = Result<T>>>(
        &self,
        within: Duration,
        mut probe: impl FnMut() -> F,
    ) -> Result<T> {
        let deadline = Instant::now() + within;
        loop {
            let answer = timeout(within, probe())
                .await
                .unwrap_or_else(|_| Err(anyhow!("no answer")));
            let error = match answer {
                Ok(ready) => return Ok(ready),
                Err(error) => error,
            };
            if let Some(status) = *self.exit.borrow() {
                bail!(
                    "{} ended ({status}) before it was ready; its log ends with:\n{}",
                    self.name,
                    self.tail()
                );
            }
            if Instant::now() >= deadline {
                bail!(
                    "{} was not ready within {} s ({error:#}); its log ends with:\n{}",
                    self.name,
                    within.as_secs(),
                    self.tail()
                );
            }
            // A foreign program does not announce that it is ready, so it must be asked.
            sleep(PROBE_INTERVAL).await;
        }
    }

    /// Asks `url` again and again until the answer is a success.
    ///
    /// # Errors
    /// As [`Process::until_ready`].
    pub async fn until_answers(&self, http: &reqwest::Client, url: &str) -> Result<()> {
        self.until_ready(HANG, || async {
            let answer = http.get(url).timeout(LOOK).send().await?;
            let status = answer.status();
            if status.is_success() {
                return Ok(());
            }
            let said = answer.text().await.unwrap_or_default();
            bail!("{url} answers {status}: {said}")
        })
        .await
    }

    /// The end of its log, for an error message.
    pub fn tail(&self) -> String {
        let text = fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it is already gone.
        let _ = self.signal(Signal::KILL);
        if let Some(reaper) = self.reaper.take() {
            // After SIGKILL this takes milliseconds. The program's files may be removed afterwards.
            let _ = reaper.join();
        }
    }
}
