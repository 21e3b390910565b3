//! What the kernel reports about a process (`proc(5)`).

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};
use serde::Serialize;

/// Clock ticks per second in `/proc`. The kernel uses this unit on every common architecture.
const TICKS: f64 = 100.0;

/// Memory, time and children of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// The part of it that belongs to the process alone (no files of the program).
    pub anonymous_bytes: u64,
    /// Peak of the resident memory, in bytes.
    pub peak_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Processor time used so far, in seconds.
    pub cpu_seconds: f64,
    /// Current children, including zombies.
    pub children: usize,
    /// Page faults of all children that ended and were waited for. Every process causes some, so 0 means that there was
    /// no child.
    pub child_faults: u64,
}

impl Usage {
    /// Whether it never had a child, as far as the kernel remembers.
    #[must_use]
    pub fn never_spawned(&self) -> bool {
        self.children == 0 && self.child_faults == 0
    }
}

/// Reads what is known about `pid`.
///
/// # Errors
/// The process has ended, or this system has no `/proc`.
pub fn usage(pid: u32) -> Result<Usage> {
    let read = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        fs::read_to_string(&path).with_context(|| format!("read {path}"))
    };
    let status = read("status")?;
    let stat = Stat::parse(&read("stat")?).with_context(|| format!("read /proc/{pid}/stat"))?;
    Ok(Usage {
        resident_bytes: kibibytes(&status, "VmRSS:")?,
        anonymous_bytes: kibibytes(&status, "RssAnon:")?,
        peak_bytes: kibibytes(&status, "VmHWM:")?,
        threads: number(&status, "Threads:")?,
        cpu_seconds: stat.cpu_seconds,
        children: children(pid)?,
        child_faults: stat.child_faults,
    })
}

/// Resident memory that belongs to the process alone, in bytes.
///
/// # Errors
/// As [`usage`].
pub fn own(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    kibibytes(&status, "RssAnon:")
}

/// Runs `work`, and reads the process's own memory a hundred times a second. Returns the highest value in bytes. A
/// shorter peak is not seen.
pub(super) async fn most<T>(pid: u32, work: impl Future<Output = T>) -> (T, u64) {
    tokio::pin!(work);
    let mut most = 0;
    loop {
        // A process that has ended has none.
        most = most.max(own(pid).unwrap_or(0));
        tokio::select! {
            done = &mut work => return (done, most),
            () = tokio::time::sleep(Duration::from_millis(10)) => {}
        }
    }
}

/// Load average of the last minute: processes that run or wait to run.
///
/// # Errors
/// This system has no `/proc/loadavg`.
pub(super) fn load() -> Result<f64> {
    let text = fs::read_to_string("/proc/loadavg").context("read /proc/loadavg")?;
    text.split_whitespace()
        .next()
        .and_then(|first| first.parse().ok())
        .with_context(|| format!("read /proc/loadavg: {text}"))
}

/// Load of the machine over a span of time: the busy share of all processors, from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Busy {
    total: u64,
    idle: u64,
}

impl Busy {
    /// Begins a span.
    ///
    /// # Errors
    /// This system has no `/proc/stat`.
    pub(super) fn begin() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("read /proc/stat")?;
        Self::parse(&text).context("read /proc/stat")
    }

    /// Ends the span.
    ///
    /// # Errors
    /// As [`Busy::begin`].
    pub(super) fn share(self) -> Result<f64> {
        Ok(self.until(Self::begin()?))
    }

    fn until(self, now: Self) -> f64 {
        let total = now.total.saturating_sub(self.total);
        let idle = now.idle.saturating_sub(self.idle);
        if total == 0 {
            return 0.0;
        }
        1.0 - idle as f64 / total as f64
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let fields: Vec<u64> = line
            .split_whitespace()
            .map_while(|f| f.parse().ok())
            .collect();
        Some(Self {
            // Guest time (from the ninth field on) is part of user time.
            total: fields.iter().take(8).sum(),
            idle: fields.get(3)? + fields.get(4)?,
        })
    }
}

struct Stat {
    parent: u32,
    child_faults: u64,
    cpu_seconds: f64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name in parentheses may itself contain spaces and parentheses.
        let (_, after) = text.rsplit_once(')')?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        // proc(5) counts from 1, and the first two fields are cut off.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            parent: field(4)?.try_into().ok()?,
            child_faults: field(11)? + field(13)?,
            cpu_seconds: (field(14)? + field(15)?) as f64 / TICKS,
        })
    }
}

fn children(pid: u32) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir("/proc").context("list /proc")? {
        let entry = entry.context("list /proc")?;
        // Other processes may end while we read.
        let Ok(text) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        if Stat::parse(&text).is_some_and(|stat| stat.parent == pid) {
            count += 1;
        }
    }
    Ok(count)
}

fn kibibytes(status: &str, key: &str) -> Result<u64> {
    number(status, key).map(|number| number * 1024)
}

fn number(status: &str, key: &str) -> Result<u64> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(key)?.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .with_context(|| format!("the kernel reports no {key}"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_child_is_seen_while_it_lives_and_after() {
        // A shell of its own, so that children of other tests do not count.
        let script = "cat /proc/$$/stat; /bin/true; cat /proc/$$/stat";
        let output = Command::new("/bin/sh")
            .args(["-c", script])
            .output()
            .expect("run sh");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let faults: Vec<u64> = text
            .lines()
            .map(|line| Stat::parse(line).expect("stat").child_faults)
            .collect();
        assert_eq!(faults.first(), Some(&0), "{text}");
        assert!(faults.last().is_some_and(|last| *last > 0), "{text}");
        let mut child = Command::new("/bin/sh")
            .args(["-c", "read -r line"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("start sh");
        assert!(children(std::process::id()).expect("children") >= 1);
        drop(child.stdin.take());
        child.wait().expect("ended");
    }
}
