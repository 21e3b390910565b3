//! What each workload costs without faults. `costs.txt` has the known numbers, and a test compares them.
//!
//! Assumption: a workload plays the same each time, so a number that differs comes from a change of the code.

use std::{collections::BTreeMap, fmt, fs, path::PathBuf};

use agent_forge_actors::ports::effect::EffectKind;
use anyhow::{Context as _, Result};

use crate::{call::Call, run::Outcome};

/// The costs of one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Its name.
    pub workload: String,
    /// Writes to the API server.
    pub writes: usize,
    /// Calls that change something in vCenter. A session view counts.
    pub vcenter: usize,
    /// Live reads that guard an effect.
    pub reads: usize,
}

impl Cost {
    /// What that run cost.
    #[must_use]
    pub fn of(outcome: &Outcome) -> Self {
        let effects = outcome
            .effects
            .iter()
            .filter_map(|(_, point)| match point.call {
                Call::Effect(kind) if kind != EffectKind::Lease => Some(kind),
                Call::Effect(_) | Call::Read(_) => None,
            });
        let (writes, vcenter): (Vec<_>, Vec<_>) =
            effects.partition(|kind| kind.code().starts_with('K'));
        Self {
            workload: outcome.plan.workload.clone(),
            writes: writes.len(),
            vcenter: vcenter.len(),
            reads: outcome.reads.len(),
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            workload,
            writes,
            vcenter,
            reads,
        } = self;
        write!(f, "{workload:<36} {writes:>6} {vcenter:>7} {reads:>5}")
    }
}

/// The head of the table.
pub const HEAD: &str = "workload                             writes vcenter reads";

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("costs.txt")
}

/// Replaces the known costs.
///
/// # Errors
/// The file cannot be written.
pub fn record(costs: &[Cost]) -> Result<()> {
    fs::write(file(), table(costs)).context("costs.txt")
}

/// The table of these costs.
#[must_use]
pub fn table(costs: &[Cost]) -> String {
    let rows: String = costs.iter().map(|c| format!("{c}\n")).collect();
    format!("{HEAD}\n{rows}")
}

/// Those that cost more than is known, and those that are not known: a sentence each.
///
/// # Errors
/// The file cannot be read.
pub fn above_known(costs: &[Cost]) -> Result<Vec<String>> {
    let known = fs::read_to_string(file()).context("costs.txt")?;
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let numbers: Vec<usize> = words.filter_map(|w| w.parse().ok()).collect();
        let [writes, vcenter, reads] = numbers.try_into().ok()?;
        Some((name, (writes, vcenter, reads)))
    };
    let known: BTreeMap<String, _> = known.lines().filter_map(row).collect();
    let above = |cost: &&Cost| {
        let known = known.get(&cost.workload);
        known.is_none_or(|(writes, vcenter, reads)| {
            cost.writes > *writes || cost.vcenter > *vcenter || cost.reads > *reads
        })
    };
    let told = |cost: &Cost| match known.get(&cost.workload) {
        Some((writes, vcenter, reads)) => {
            format!("{cost}\n  known: {writes:>34} {vcenter:>7} {reads:>5}")
        }
        None => format!("{cost}\n  not known yet"),
    };
    Ok(costs.iter().filter(above).map(told).collect())
}
