//! The table.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::{Context as _, Result};

use super::{CREATE, POWER_ON, RECONFIGURE, Report, Run, mib, say};

/// A goal, and the value of a run.
struct Goal {
    name: &'static str,
    most: f64,
    value: f64,
}

/// Prints the whole report on standard output.
///
/// # Errors
/// Standard output is closed.
pub(super) fn print(report: &Report, json: bool) -> Result<()> {
    let text = if json {
        serde_json::to_string_pretty(report).context("write JSON")? + "\n"
    } else {
        table(report)
    };
    say(&text)
}

fn table(report: &Report) -> String {
    let program = &report.program;
    let mut out = format!(
        "operator: {}, {:.1} MB, loads {}\ntasks: create {CREATE:?}, reconfigure {RECONFIGURE:?}, power on {POWER_ON:?}; {} processors\n\n",
        program.made,
        program.bytes as f64 / 1e6,
        if program.libraries.is_empty() {
            "no library".to_owned()
        } else {
            program.libraries.join(" ")
        },
        report.processors,
    );
    out += "   N  tasks   all on  limit  ratio  from last demand  running  calls/VM  writes/VM  logins vim/rest  RSS MiB before/after/peak  cpu s  machine busy\n";
    for run in &report.runs {
        let login = |kind: &str| run.logins.get(kind).copied().unwrap_or_default();
        let _ = writeln!(
            out,
            "{:>4}  {:>5}  {:>5.1} s  {:>3.0} s  {:>5.2}  {:>16.2}  {:>5.1} s  {:>8.2}  {:>9.2}  {:>15}  {:>25}  {:>5.1}  {:>10.0} %",
            run.machines,
            run.tasks,
            run.all_on,
            run.limit,
            run.ratio(),
            run.ratio_from_last(),
            run.all_running,
            run.calls_per_machine(),
            run.writes_per_machine(),
            format!("{}/{}", login("vim"), login("rest")),
            format!(
                "{:.1}/{:.1}/{:.1}",
                mib(run.before.resident_bytes),
                mib(run.after.resident_bytes),
                mib(run.after.peak_bytes)
            ),
            run.after.cpu_seconds - run.before.cpu_seconds,
            run.busy * 100.0,
        );
    }
    for run in &report.runs {
        out += "\n";
        out += &self::run(run);
    }
    out += "\n";
    for promise in &report.promises {
        let word = if promise.kept { "kept  " } else { "BROKEN" };
        let _ = writeln!(out, "{word}  {}: {}", promise.what, promise.found);
    }
    out
}

/// One run in full.
pub(super) fn run(run: &Run) -> String {
    let mut out = format!(
        "{} machines, at most {} tasks: demand within {:.1} s, VMs on after {:.1} s (first), {:.1} s (median), {:.1} s (last), running after {:.1} s; load average {:.1}\n",
        run.machines,
        run.tasks,
        run.demand_spread,
        run.first_on,
        run.median_on,
        run.all_on,
        run.all_running,
        run.load
    );
    let lines = |counts: Vec<(&String, f64)>| {
        let mut text = String::new();
        for (name, count) in counts {
            let _ = writeln!(
                text,
                "{:>10.2}  {name}  ({count:.0})",
                count / run.machines as f64
            );
        }
        text
    };
    let floats =
        |counts: &'_ BTreeMap<String, u64>| counts.values().map(|c| *c as f64).collect::<Vec<_>>();
    out += "  vCenter calls per VM\n";
    out += &lines(run.calls.keys().zip(floats(&run.calls)).collect());
    let _ = writeln!(
        out,
        "  vCenter calls before the demand: {}",
        run.calls_before.values().sum::<u64>()
    );
    out += "  Kubernetes writes per VM\n";
    out += &lines(
        run.writes
            .iter()
            .map(|(name, count)| (name, *count as f64))
            .collect(),
    );
    if run.writes_refused > 0 {
        let _ = writeln!(out, "  of them refused: {}", run.writes_refused);
    }
    let _ = writeln!(
        out,
        "  operator: {} threads, {:.1} MiB resident of which {:.1} MiB its own, {}",
        run.after.threads,
        mib(run.after.resident_bytes),
        mib(run.after.anonymous_bytes),
        if run.after.never_spawned() {
            "no child process ever"
        } else {
            "CHILD PROCESSES SEEN"
        }
    );
    if let Some(idle) = &run.idle {
        let _ = writeln!(
            out,
            "  at rest, per minute over {:.0} s: {:.1} vCenter calls, {:.1} writes, {:.1} reads, {:.1} watches begun; {:.1} MiB resident",
            idle.seconds,
            idle.calls,
            idle.writes,
            idle.reads,
            idle.watches,
            mib(idle.usage.resident_bytes)
        );
    }
    if let Some(restart) = &run.restart {
        let _ = writeln!(
            out,
            "  started again beside {} Agents of {:.0} kB: ready after {:.1} s, then {} reads, {} writes, {} vCenter calls until rest; {:.1} MiB resident, {:.1} at most",
            run.machines,
            restart.agent_bytes as f64 / 1e3,
            restart.ready_seconds,
            restart.reads,
            restart.writes.values().sum::<usize>(),
            restart.calls,
            mib(restart.usage.resident_bytes),
            mib(restart.usage.peak_bytes)
        );
    }
    for (write, count) in run.restart.iter().flat_map(|r| &r.writes) {
        let _ = writeln!(out, "{count:>14}  {write}");
    }
    for goal in goals(run).into_iter().filter(|g| g.value > g.most) {
        let _ = writeln!(
            out,
            "  MISSED: {} is {:.2}, the goal is at most {}",
            goal.name, goal.value, goal.most
        );
    }
    out
}

fn goals(run: &Run) -> Vec<Goal> {
    let login = |kind: &str| run.logins.get(kind).copied().unwrap_or_default() as f64;
    let goal = |name, most, value| Goal { name, most, value };
    let mut goals = vec![
        goal("time against the limit", 1.2, run.ratio()),
        goal("vCenter calls per VM", 8.0, run.calls_per_machine()),
        goal("Kubernetes writes per VM", 8.0, run.writes_per_machine()),
        goal("VI/JSON logins", 1.0, login("vim")),
        goal("Automation API logins without tags", 0.0, login("rest")),
        goal("resident MiB", 25.0, mib(run.after.resident_bytes)),
    ];
    if let Some(idle) = &run.idle {
        goals.push(goal("writes per minute at rest", 0.0, idle.writes));
    }
    if let Some(restart) = &run.restart {
        goals.push(goal("seconds until ready", 10.0, restart.ready_seconds));
        let peak = mib(restart.usage.peak_bytes);
        goals.push(goal("resident MiB after a start", 64.0, peak));
    }
    goals
}
