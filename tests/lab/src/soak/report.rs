//! The table of a soak: what happened, and which promises held.

use std::{fmt::Write as _, fs, io::Write as _, time::Duration};

use anyhow::{Context as _, Result, ensure};

use super::{Args, tides::Tides};
use crate::bench::world::World;

/// See the module.
pub(super) struct Report {
    rows: Vec<(&'static str, String)>,
    promises: Vec<(&'static str, Result<()>)>,
}

impl Report {
    pub(super) fn new(args: &Args) -> Self {
        let asked = format!(
            "{} machines, SIGKILL every {:.0} s for {} min",
            args.machines,
            args.kill_every.as_secs_f64(),
            args.minutes
        );
        Self {
            rows: vec![("soak", asked)],
            promises: Vec::new(),
        }
    }

    pub(super) fn tides(&mut self, tides: &Tides) {
        let seconds = |d: Duration| d.as_secs_f64();
        let mut starts = tides.starts.clone();
        starts.sort_unstable();
        let middle = starts.get(starts.len() / 2).copied().unwrap_or_default();
        let most = starts.last().copied().unwrap_or_default();
        self.rows.push((
            "kills",
            format!(
                "{}; the next process was ready after {:.1} s (median), {:.1} s at most",
                starts.len(),
                seconds(middle),
                seconds(most)
            ),
        ));
        let all: Vec<String> = tides
            .tides
            .iter()
            .map(|t| {
                let how = if t.whole { "" } else { " (not whole)" };
                format!("{}{how} in {:.0} s", t.wanted, seconds(t.took))
            })
            .collect();
        self.rows.push(("tides", all.join(", ")));
    }

    pub(super) fn looks(&mut self, looks: usize) {
        self.rows.push(("witness", format!("looked {looks} times")));
    }

    pub(super) fn promise(&mut self, what: &'static str, held: Result<()>) {
        self.promises.push((what, held));
    }

    /// The logs of all processes: no panic, no password.
    pub(super) fn logs(&mut self, world: &World, password: &str) -> Result<()> {
        let (mut processes, mut panics, mut secrets) = (0, 0, 0);
        for entry in fs::read_dir(world.lab.dir()).context("list the lab's directory")? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if !(name.starts_with("operator-") && name.ends_with(".log")) {
                continue;
            }
            let text = fs::read_to_string(entry.path()).context("read an operator's log")?;
            processes += 1;
            panics += text.lines().filter(|l| l.contains("panicked at")).count();
            secrets += usize::from(text.contains(password));
        }
        ensure!(processes > 0, "there is no operator log");
        self.rows.push(("processes", processes.to_string()));
        let none = |count: usize, what: &str| {
            ensure!(count == 0, "{count} {what}");
            Ok(())
        };
        self.promise("no process panicked", none(panics, "panics in the logs"));
        self.promise(
            "no log has the password",
            none(secrets, "logs have the password"),
        );
        Ok(())
    }

    pub(super) async fn costs(&mut self, world: &World) -> Result<()> {
        let calls = world.vcenter.calls().await?;
        world.lab.audited().await?;
        let writes = world.lab.audit().writes(&world.access.user)?;
        let text = format!(
            "{} VMs made, {} destroyed; {} vCenter calls, {} logins, {} Kubernetes writes in all",
            calls.of("CreateVM_Task"),
            calls.of("Destroy_Task"),
            calls.total,
            calls.logins.values().sum::<u64>(),
            writes.total()
        );
        self.rows.push(("work", text));
        Ok(())
    }

    /// # Errors
    /// A promise was broken.
    pub(super) fn print(self) -> Result<()> {
        let mut text = String::new();
        for (what, row) in &self.rows {
            let _ = writeln!(text, "{what:<10} {row}");
        }
        let mut broken = 0;
        for (promise, held) in &self.promises {
            let _ = match held {
                Ok(()) => writeln!(text, "kept       {promise}"),
                Err(why) => {
                    broken += 1;
                    writeln!(text, "BROKEN     {promise}: {why:#}")
                }
            };
        }
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).context("print the table")?;
        ensure!(
            broken == 0,
            "{broken} of {} promises did not hold",
            self.promises.len()
        );
        Ok(())
    }
}
