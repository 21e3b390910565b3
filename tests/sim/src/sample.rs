//! Which plans with a single fault run with every change.
//!
//! Guarantees
//! - Each workload has a plan at each of its calls, and each call has each fault at least once.
//! - The seed chooses among them. It is the commit, so each commit plays others.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    process::Command,
};

use crate::plan::Plan;

/// Name of the variable that sets the seed.
pub const VARIABLE: &str = "AGENT_FORGE_SIM_SEED";

/// The seed of this run: the variable, else the commit. Outside a repository there is one sample only.
#[must_use]
pub fn seed() -> String {
    let commit = || {
        let head = Command::new("git").args(["rev-parse", "HEAD"]).output();
        let head = head.ok().filter(|o| o.status.success())?;
        Some(String::from_utf8_lossy(&head.stdout).trim().to_owned())
    };
    let set = std::env::var(VARIABLE).ok();
    set.or_else(commit).unwrap_or_default()
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
    let cell = |plan: &Plan| (plan.workload.clone(), plan.faults[0].0.call);
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
        let workloads = ["one_machine", "host_recycled"];
        let points = ["create:demo/a#1", "create:demo/b#1", "destroy:demo/a#1"];
        let faults = ["reply_lost", "request_lost", "process_killed"];
        let text = |w: &&str| {
            points.map(|point| faults.map(|fault| format!("{w}@1 {point}={fault}").parse()))
        };
        let all = workloads.iter().flat_map(text).flatten();
        all.collect::<Result<_, _>>().expect("plans")
    }

    #[test]
    fn each_effect_of_a_workload_has_a_plan_and_each_effect_each_fault() {
        let all = plans();
        for seed in ["1", "2", "3"] {
            let chosen = choose(&all, seed);
            // Two workloads with two effects. Two faults of an effect may need a plan more each.
            assert!((6..=8).contains(&chosen.len()), "{chosen:?}");
            let pairs = chosen.iter().map(|p| (p.faults[0].0.call, p.faults[0].1));
            assert_eq!(pairs.collect::<BTreeSet<_>>().len(), 6, "{chosen:?}");
            assert_eq!(chosen, choose(&all, seed), "the same again");
        }
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
