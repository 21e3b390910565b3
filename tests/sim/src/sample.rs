//! Which plans with a single fault run with every change.
//!
//! Guarantees
//! - Each cell (workload, effect, class of the fault) has at least one plan, and each effect has each fault at least once.
//! - The seed chooses among the plans of a cell. The commit chooses one of [`SEEDS`], and each of their plans has passed
//!   before.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    process::Command,
};

use crate::plan::Plan;

/// Name of the variable that sets the seed.
pub const VARIABLE: &str = "AGENT_FORGE_SIM_SEED";

/// The seeds that commits choose from. All of their plans pass: a change is not stopped by a failure that it did not cause.
/// Add more when their plans pass; `cargo lab soak` plays them all.
pub const SEEDS: [&str; 4] = ["0", "1", "2", "3"];

/// The seed of this run: the variable, else the commit's choice, else the first one.
#[must_use]
pub fn seed() -> String {
    let commit = || {
        let head = Command::new("git").args(["rev-parse", "HEAD"]).output();
        let head = head.ok().filter(|o| o.status.success())?;
        of_commit(&String::from_utf8_lossy(&head.stdout))
    };
    let set = std::env::var(VARIABLE).ok();
    set.unwrap_or_else(|| commit().unwrap_or(SEEDS[0]).to_owned())
}

/// The seed that the hash of a commit chooses.
fn of_commit(hash: &str) -> Option<&'static str> {
    let last = hash.trim().chars().last()?.to_digit(16)?;
    SEEDS.get(last as usize % SEEDS.len()).copied()
}

/// The plans of the sample, in the order of `all`.
#[must_use]
pub fn choose(all: &[Plan], seed: &str) -> Vec<Plan> {
    let lot = |plan: &Plan| {
        let mut hasher = DefaultHasher::new();
        (seed, plan).hash(&mut hasher);
        hasher.finish()
    };
    let mut drawn: Vec<&Plan> = all.iter().filter(|p| p.faults.len() == 1).collect();
    drawn.sort_by_cached_key(|plan| lot(plan));
    let cell = |plan: &Plan| {
        let (point, fault) = &plan.faults[0];
        (plan.workload.clone(), point.call, fault.class())
    };
    let pair = |plan: &Plan| (plan.faults[0].0.call, plan.faults[0].1);
    let mut cells = BTreeMap::new();
    for plan in &drawn {
        cells.entry(cell(plan)).or_insert(*plan);
    }
    let mut chosen: BTreeSet<&Plan> = cells.into_values().collect();
    let mut pairs: BTreeSet<_> = chosen.iter().map(|p| pair(p)).collect();
    chosen.extend(drawn.iter().filter(|p| pairs.insert(pair(p))));
    all.iter().filter(|p| chosen.contains(p)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans() -> Vec<Plan> {
        let points = ["create:demo/a#1", "create:demo/b#1", "destroy:demo/a#1"];
        let faults = ["reply_lost", "request_lost", "process_killed"];
        let text = |w: &&str| {
            points.map(|point| faults.map(|fault| format!("{w}@1 {point}={fault}").parse()))
        };
        let all = ["one_machine", "two_pools"];
        let all = all.iter().flat_map(text).flatten();
        all.collect::<Result<_, _>>().expect("plans")
    }

    #[test]
    fn each_cell_has_one_plan_and_each_effect_each_fault() {
        let all = plans();
        for seed in ["1", "2", "3"] {
            let chosen = choose(&all, seed);
            // Two workloads, two effects and two classes. One fault of an effect may need a plan more.
            assert!((8..=10).contains(&chosen.len()), "{chosen:?}");
            let pairs = chosen.iter().map(|p| (p.faults[0].0.call, p.faults[0].1));
            assert_eq!(pairs.collect::<BTreeSet<_>>().len(), 6, "{chosen:?}");
            assert_eq!(chosen, choose(&all, seed), "the same again");
        }
    }

    #[test]
    fn a_commit_chooses_a_seed() {
        assert_eq!(of_commit("00aa0\n"), Some(SEEDS[0]));
        assert_eq!(of_commit("00aa4\n"), Some(SEEDS[4 % SEEDS.len()]));
        assert_eq!(of_commit("no hash"), None);
        assert_eq!(of_commit(""), None);
    }

    #[test]
    fn seeds_choose_different_plans() {
        let all = plans();
        let samples: BTreeSet<Vec<Plan>> = (0..20).map(|n| choose(&all, &n.to_string())).collect();
        assert!(samples.len() > 5, "{}", samples.len());
        let covered: BTreeSet<&Plan> = samples.iter().flatten().collect();
        assert_eq!(covered.len(), all.len(), "all are covered in time");
    }
}
