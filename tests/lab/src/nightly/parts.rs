//! What a night consists of.

use std::{path::Path, time::Duration};

use anyhow::{Result, ensure};

/// Limit of each part. `flakes` and `mutants` take longer: they keep what they have, and `--failed` continues them.
const LIMIT: Duration = Duration::from_secs(40 * 60);

/// A program that parts run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// Cargo.
    Cargo,
    /// This program.
    Lab,
    /// The simulation, optimised.
    Sim,
    /// The model checker, optimised.
    Model,
}

impl Program {
    /// Whether it has to be built before it is run.
    pub(super) fn is_optimised(self) -> bool {
        matches!(self, Self::Sim | Self::Model)
    }

    /// How a person starts it in the root of the repository.
    fn typed(self) -> &'static str {
        match self {
            Self::Cargo => "cargo",
            Self::Lab => "cargo lab",
            Self::Sim => "cargo run --profile opt -p agent-forge-sim --",
            Self::Model => "cargo run --profile opt -p agent-forge-model --",
        }
    }
}

/// One command with a verdict.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) name: String,
    /// What it proves, as a sentence.
    pub(super) proves: String,
    pub(super) program: Program,
    pub(super) args: Vec<String>,
    /// A part that takes longer is killed.
    pub(super) limit: Duration,
}

impl Part {
    /// `args` are separated by spaces.
    fn new(name: &str, proves: &str, program: Program, args: &str) -> Self {
        Self {
            name: name.to_owned(),
            proves: proves.to_owned(),
            program,
            args: args.split_whitespace().map(str::to_owned).collect(),
            limit: LIMIT,
        }
    }

    /// Whether its output is that of `cargo test`.
    pub(super) fn is_test(&self) -> bool {
        self.args.first().is_some_and(|arg| arg == "test")
    }

    /// The command line that repeats it.
    pub(super) fn command(&self) -> String {
        format!("{} {}", self.program.typed(), self.args.join(" "))
    }
}

/// What parts depend on.
#[derive(Clone, Debug)]
pub(super) struct Setup<'a> {
    /// Names of the simulation's workloads.
    pub(super) workloads: Vec<String>,
    /// Seed of everything random.
    pub(super) seed: u64,
    /// How often each integration test is repeated.
    pub(super) flake_rounds: u32,
    /// The directory with the results, from the root of the repository.
    pub(super) dir: &'a Path,
}

/// All parts, in their order.
pub(super) fn all(setup: &Setup<'_>) -> Vec<Part> {
    let mut parts: Vec<Part> = tests().into();
    parts.push(fuzz(setup.seed));
    parts.extend(simulation(&setup.workloads, setup.seed));
    parts.extend(model());
    parts.push(Part::new(
        "soak",
        "Every promise holds while 200 machines come and go and the operator is killed every 5 s.",
        Program::Lab,
        "soak --minutes 20",
    ));
    let (dir, rounds) = (setup.dir.display(), setup.flake_rounds);
    parts.push(Part::new(
        "flakes",
        "Each integration test passes each time, on a busy machine.",
        Program::Lab,
        &format!("flakes --rounds {rounds} --state {dir}/flakes"),
    ));
    parts.push(
        Part::new(
            "mutants",
            "The unit tests notice a small random change to a decision that changed of late.",
            Program::Cargo,
            &format!(
                "mutants --package agent-forge-actors --in-diff {dir}/mutants.diff --output {dir}/mutants --iterate"
            ),
        ),
    );
    parts
}

fn tests() -> [Part; 2] {
    [
        Part::new(
            "tests",
            "All tests of the workspace pass.",
            Program::Cargo,
            "test --workspace --no-fail-fast",
        ),
        Part::new(
            "it",
            "The operator's program works with a real API server, and survives crashes, outages and hostile neighbours.",
            Program::Cargo,
            "test --workspace --features nightly --no-fail-fast --test it_nightly",
        ),
    ]
}

fn fuzz(seed: u64) -> Part {
    Part::new(
        "fuzz",
        "Each target keeps its promise for 30 s of changed examples.",
        Program::Cargo,
        &format!("run --package agent-forge-fuzz -- --seconds 30 --seed {seed}"),
    )
}

fn simulation(workloads: &[String], seed: u64) -> Vec<Part> {
    let enumerate = |workload: &String| {
        Part::new(
            &format!("sim-{workload}"),
            &format!(
                "Workload {workload} keeps every promise with each fault at each effect and guarding read."
            ),
            Program::Sim,
            &format!("enumerate --workloads {workload}"),
        )
    };
    let recovery = |workload: &String| {
        Part::new(
            &format!("recovery-{workload}"),
            &format!(
                "Workload {workload} keeps every promise with a second fault at recovery from one."
            ),
            Program::Sim,
            &format!("recovery --workloads {workload} --seed {seed}"),
        )
    };
    let mut parts: Vec<Part> = workloads.iter().map(enumerate).collect();
    parts.extend(workloads.iter().map(recovery));
    parts.push(Part::new(
        "sim-random",
        "Random schedules of one to five faults break no promise.",
        Program::Sim,
        &format!("random 3000 --seed {seed}"),
    ));
    parts.push(Part::new(
        "sim-worlds",
        "Random schedules break no promise in a world with other names, latencies and order.",
        Program::Sim,
        &format!("random 3000 --seed {seed} --world {seed}"),
    ));
    parts.push(Part::new(
        "sim-edits",
        "Each change of a pool's spec that its schema admits breaks no promise, and can be changed back.",
        Program::Sim,
        "worlds 500 --workloads spec_edited",
    ));
    parts.push(Part::new(
        "sim-doubles",
        "A second fault after the first one breaks no promise.",
        Program::Sim,
        &format!("doubles --each 1 --every 10 --seed {seed}"),
    ));
    parts
}

fn model() -> [Part; 9] {
    let part = |name: &str, world: &str, args: &str| {
        let proves = format!("No order of events breaks a promise in this world: {world}.");
        Part::new(name, &proves, Program::Model, args)
    };
    [
        part(
            "model-lease",
            "two operators and one Lease, all five faults",
            "lease --duration 8 --renew-deadline 5",
        ),
        part(
            "model-flight",
            "two pools that share one ISO, a crash and an unknown outcome",
            "flight --faults crash,unknown",
        ),
        part(
            "model-hours",
            "one machine that is made up to two times, all five faults",
            "--machines b --hours 2",
        ),
        part(
            "model-renames",
            "two machines, a foreign VM that is renamed at any moment, a crash and lagging watches",
            "--renames --faults crash,lag",
        ),
        part(
            "model-recycle",
            "a VM that begins another life, also where others start it, a crash and an unknown outcome",
            "recycle --switched-on --reclaims --faults crash,unknown",
        ),
        part(
            "model-recycle-hurries",
            "a VM that begins another life while its next machine comes and goes, a crash",
            "recycle --hurries --faults crash",
        ),
        part(
            "model-reassign",
            "three pools that want one free host, a crash",
            "reassign --machines a/p,b/q,c/r --stay --faults crash",
        ),
        part(
            "model-foreign",
            "two machines, a foreign VM, all five faults",
            "--foreign",
        ),
        part(
            "model-foreign-hours",
            "two machines that are made up to two times, a foreign VM, all five faults",
            "--foreign --hours 2",
        ),
    ]
}

/// The parts whose names begin with one of the texts. All of them without a text.
///
/// # Errors
/// A text is the beginning of no name.
pub(super) fn selected(all: Vec<Part>, beginnings: &[String]) -> Result<Vec<Part>> {
    for text in beginnings {
        let known = all.iter().any(|p| p.name.starts_with(text));
        ensure!(known, "no part begins with {text}; --list shows all");
    }
    let wanted = |p: &Part| beginnings.iter().any(|text| p.name.starts_with(text));
    let chosen = all.into_iter();
    Ok(chosen
        .filter(|p| beginnings.is_empty() || wanted(p))
        .collect())
}

/// The names of the simulation's workloads, from the table in its README. A test of the simulation keeps it complete.
///
/// # Errors
/// The table is not there.
pub(super) fn workloads(readme: &str) -> Result<Vec<String>> {
    let section = readme.split("\n## ").find(|s| s.starts_with("Workloads\n"));
    let rows = section.unwrap_or_default().lines();
    let names: Vec<String> = rows
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(str::to_owned)
        .collect();
    ensure!(!names.is_empty(), "tests/sim/README.md lists no workloads");
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;
    use crate::tools::repository;

    fn parts() -> Vec<Part> {
        all(&Setup {
            workloads: vec!["one_machine".into(), "two_pools".into()],
            seed: 7,
            flake_rounds: 20,
            dir: Path::new("target/nightly/abc"),
        })
    }

    fn names(parts: &[Part]) -> Vec<&str> {
        parts.iter().map(|p| p.name.as_str()).collect()
    }

    #[test]
    fn each_name_exists_once_and_is_a_file_name() {
        let parts = parts();
        let unique: BTreeSet<&str> = names(&parts).into_iter().collect();
        assert_eq!(unique.len(), parts.len());
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        assert!(unique.iter().all(|n| n.chars().all(plain)), "{unique:?}");
    }

    #[test]
    fn a_command_can_be_typed() {
        let parts = parts();
        let command = |name: &str| parts.iter().find(|p| p.name == name).map(Part::command);
        assert_eq!(
            command("sim-two_pools").as_deref(),
            Some("cargo run --profile opt -p agent-forge-sim -- enumerate --workloads two_pools")
        );
        assert_eq!(
            command("flakes").as_deref(),
            Some("cargo lab flakes --rounds 20 --state target/nightly/abc/flakes")
        );
        assert!(command("sim-random").unwrap().ends_with("--seed 7"));
        let recovery = command("recovery-two_pools").unwrap();
        assert!(recovery.ends_with("recovery --workloads two_pools --seed 7"));
    }

    #[test]
    fn parts_are_selected_by_the_beginning_of_their_names() {
        let some = selected(parts(), &["sim-r".into(), "soak".into()]).unwrap();
        assert_eq!(names(&some), ["sim-random", "soak"]);
        let every = selected(parts(), &[]).unwrap();
        assert_eq!(names(&every), names(&parts()));
        let error = selected(parts(), &["sin".into()]).unwrap_err();
        assert!(error.to_string().contains("sin"), "{error}");
    }

    #[test]
    fn the_simulations_readme_lists_its_workloads() {
        let readme = fs::read_to_string(repository().join("tests/sim/README.md")).unwrap();
        let names = workloads(&readme).unwrap();
        assert!(names.contains(&"one_machine".to_owned()), "{names:?}");
        assert!(!names.contains(&"refused".to_owned()), "{names:?}");
        assert!(workloads("# Simulation\n").is_err());
    }
}
