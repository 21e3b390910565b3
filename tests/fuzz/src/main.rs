//! Runs the targets: `cargo run -p agent-forge-fuzz -- [--seconds 30] [--seed 1] [target ...]`.
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::{fs, path::PathBuf, process::ExitCode, time::Duration};

use agent_forge_fuzz::{
    TARGETS, Target,
    run::{self, Until},
};
use clap::Parser;

/// Gives agent-forge texts that others could write, and checks what it makes of them.
#[derive(Parser)]
struct Args {
    /// Targets; all without a name.
    targets: Vec<String>,
    /// Seconds for each target.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Seed of the inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Tries only the input in this file.
    #[arg(long)]
    replay: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let known = |name: &String| TARGETS.iter().any(|t| t.name == *name);
    if let Some(unknown) = args.targets.iter().find(|name| !known(name)) {
        let names: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
        let names = names.join(", ");
        println!("there is no target {unknown}; there are {names}");
        return ExitCode::FAILURE;
    }
    let wanted = |t: &&Target| args.targets.is_empty() || args.targets.iter().any(|n| n == t.name);
    let targets: Vec<&Target> = TARGETS.iter().filter(wanted).collect();
    let mut failed = Vec::new();
    let mut inputs = 0;
    for target in &targets {
        match one(&args, target) {
            Ok(count) => inputs += count,
            Err(why) => {
                println!("{why}");
                failed.push(target.name);
            }
        }
    }
    println!(
        "{} targets, {inputs} inputs, {} failed {}",
        targets.len(),
        failed.len(),
        failed.join(" ")
    );
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn one(args: &Args, target: &Target) -> Result<usize, String> {
    if let Some(path) = &args.replay {
        let input = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        return run::holds(target, &input).map(|()| 1);
    }
    let until = Until::Elapsed(Duration::from_secs(args.seconds));
    let report = run::run(target, args.seed, until, &PathBuf::from("target/fuzz"));
    let report = report.map_err(|e| format!("{e:#}"))?;
    println!(
        "{}: {} inputs, the longest took {:?}",
        target.name, report.inputs, report.longest
    );
    Ok(report.inputs)
}
