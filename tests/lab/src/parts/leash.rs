//! The leash: nothing that this process started outlives it, however it ends.
//!
//! One shell per process reads lines from a pipe that only this process holds. Each started program and each temporary
//! directory is announced there, and removed from the list when it is gone. When this process ends (by return, panic,
//! Ctrl-C or SIGKILL), the kernel closes the pipe. Then the shell kills all programs on the list and removes the
//! directories.
//!
//! There are two reasons for this. Destructors do not run on signals, nor for statics. The kernel's parent-death signal
//! belongs to the *thread* that started the program, and in a test binary that thread ends with the first test.

use std::{
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result};

const SCRIPT: &str = r#"
trap '' INT TERM HUP
pids=
while IFS=' ' read -r verb what; do
  case $verb in
    pid) pids="$pids $what" ;;
    ended) left=; for pid in $pids; do [ "$pid" = "$what" ] || left="$left $pid"; done; pids=$left ;;
    dir) set -- "$@" "$what" ;;
    removed) for dir; do shift; [ "$dir" = "$what" ] || set -- "$@" "$dir"; done ;;
  esac
done
[ -z "$pids" ] || kill -KILL $pids
for dir; do rm -rf -- "$dir"; done
"#;

static SHELL: Mutex<Option<Child>> = Mutex::new(None);

/// A program, or a group of programs, that is killed when this process ends.
#[derive(Debug)]
pub(crate) struct HeldProcess(i64);

/// A directory that is removed when this process ends.
#[derive(Debug)]
pub(crate) struct HeldDirectory(PathBuf);

impl HeldProcess {
    pub(super) fn new(pid: u32) -> Result<Self> {
        Self::hold(pid.into())
    }

    /// Holds all programs of the process group with this id.
    pub(crate) fn group(id: u32) -> Result<Self> {
        // What `kill` takes for a group.
        Self::hold(-i64::from(id))
    }

    fn hold(target: i64) -> Result<Self> {
        say(&format!("pid {target}"))?;
        Ok(Self(target))
    }
}

impl Drop for HeldProcess {
    fn drop(&mut self) {
        // Without a shell nothing is held, so nothing has to be released.
        let _ = say(&format!("ended {}", self.0));
    }
}

impl HeldDirectory {
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let text = path
            .to_str()
            .context("the temporary directory's name is not UTF-8: set TMPDIR to another one")?;
        anyhow::ensure!(
            !text.contains('\n'),
            "the temporary directory's name has a line break: set TMPDIR to another one"
        );
        say(&format!("dir {text}"))?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for HeldDirectory {
    fn drop(&mut self) {
        let _ = say(&format!("removed {}", self.0.display()));
    }
}

fn say(line: &str) -> Result<()> {
    let mut shell = SHELL.lock().unwrap_or_else(PoisonError::into_inner);
    if shell.is_none() {
        *shell =
            Some(start().context("start /bin/sh, which ends the lab's programs with the lab")?);
    }
    let pipe = shell
        .as_mut()
        .and_then(|child| child.stdin.as_mut())
        .context("the shell that ends the lab's programs has no pipe")?;
    pipe.write_all(format!("{line}\n").as_bytes())
        .context("talk to the shell that ends the lab's programs with the lab")
}

fn start() -> std::io::Result<Child> {
    Command::new("/bin/sh")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Its own process group: a Ctrl-C at the terminal must reach this process, not the leash.
        .process_group(0)
        .spawn()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// Runs the script itself, with a pipe that is closed as a dying process closes it.
    #[test]
    fn what_is_announced_ends_and_what_was_taken_back_stays() {
        let [mut held, mut freed] = [(); 2].map(|()| {
            Command::new("sleep")
                .arg("600")
                .spawn()
                .expect("sleep runs")
        });
        let root = tempfile::tempdir().expect("temporary directory");
        let [gone, kept] = ["with space", "kept"].map(|name| root.path().join(name));
        for dir in [&gone, &kept] {
            std::fs::create_dir(dir).expect("created");
        }
        let mut shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .spawn()
            .expect("the shell runs");
        let lines = format!(
            "pid {}\npid {}\ndir {}\ndir {}\nended {}\nremoved {}\n",
            freed.id(),
            held.id(),
            kept.display(),
            gone.display(),
            freed.id(),
            kept.display()
        );
        shell
            .stdin
            .take()
            .expect("a pipe")
            .write_all(lines.as_bytes())
            .expect("written");
        assert!(shell.wait().expect("the shell ends").success());
        assert!(!held.wait().expect("it ended").success(), "killed");
        assert!(freed.try_wait().expect("asked").is_none(), "still runs");
        freed.kill().expect("killed");
        freed.wait().expect("reaped");
        assert!(!gone.exists());
        assert!(kept.exists());
    }
}
