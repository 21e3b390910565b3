//! Plans whose second fault hits what the operator does only because of the first one.
//!
//! Flow: each run with one fault reports the points that the run without faults does not have ([`points`]). Each of them
//! gets every fault that makes sense there ([`plans`]). Many first faults lead to the same point, so one of those is drawn.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use agent_forge_actors::ports::effect::EffectKind;

use crate::{
    call::Call,
    matrix::senseless,
    plan::{Fault, FaultClass, Plan, Point},
    run::{Outcome, Verdict},
};

/// The effects and guarding reads of a run with a fault that come after the fault, and that `reference` does not have.
#[must_use]
pub fn points(outcome: &Outcome, reference: &Outcome) -> Vec<Point> {
    let known: BTreeSet<&Point> = reference
        .effects
        .iter()
        .chain(&reference.reads)
        .map(|(_, p)| p)
        .collect();
    let after = outcome.points().into_iter();
    let after = after.filter(|(at, _)| (outcome.struck..outcome.ended).contains(at));
    let mut seen = BTreeSet::new();
    after
        .map(|(_, p)| p)
        // Writes of the Lease are alike, and the reference run has enough of them.
        .filter(|p| !p.is(EffectKind::Lease) && !known.contains(p))
        .filter(|p| seen.insert(p.clone()))
        .collect()
}

/// Whether the fault stands alone. A restored vCenter needs a person, who does not expect another fault. Another fault may
/// keep the operator from seeing a pause or a veto.
fn is_alone(fault: Fault) -> bool {
    fault == Fault::VcenterRestored || fault.is_hold()
}

/// Faults that hit recovery.
fn faults() -> impl Iterator<Item = Fault> {
    let all = Fault::ALL.iter().copied();
    all.filter(|f| !is_alone(*f))
}

fn lot(seed: &str, what: impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, what).hash(&mut hasher);
    hasher.finish()
}

/// Every point that only a run with a fault has, with every fault that makes sense there. The first fault is drawn by
/// `seed` among those that lead there and break no promise. The order is that of the workloads in `singles`.
#[must_use]
pub fn plans(singles: &[Verdict], seed: &str) -> Vec<Plan> {
    let leased: BTreeSet<&str> = singles
        .iter()
        .filter(|v| v.plan.faults.iter().any(|(p, _)| p.is(EffectKind::Lease)))
        .map(|v| v.plan.workload.as_str())
        .collect();
    let begins = singles.iter().filter(|v| {
        let [(_, first)] = v.plan.faults.as_slice() else {
            return false;
        };
        v.failures.is_empty() && !is_alone(*first)
    });
    let mut drawn: Vec<&Verdict> = begins.collect();
    drawn.sort_by_cached_key(|v| lot(seed, &v.plan));
    let mut first: BTreeMap<(&str, &Point), &Plan> = BTreeMap::new();
    for verdict in drawn {
        for point in &verdict.recovery {
            let key = (verdict.plan.workload.as_str(), point);
            first.entry(key).or_insert(&verdict.plan);
        }
    }
    let of = |(workload, point): (&str, &Point), begun: &Plan| {
        let leased = leased.contains(workload);
        let fits = faults().filter(|f| senseless(point.call, *f).is_none());
        let fits = fits.filter(|f| leased || *f != Fault::LeaseTaken);
        let with = |fault| {
            let mut plan = begun.clone();
            plan.faults.push((point.clone(), fault));
            plan
        };
        fits.map(with).collect::<Vec<_>>()
    };
    first
        .into_iter()
        .flat_map(|(at, plan)| of(at, plan))
        .collect()
}

/// At most `most` of these plans: one for each workload, call and class of the second fault, drawn by `seed`. If that is too
/// many, `seed` draws among them too.
#[must_use]
pub fn choose(all: &[Plan], seed: &str, most: usize) -> Vec<Plan> {
    let mut drawn: Vec<&Plan> = all.iter().collect();
    drawn.sort_by_cached_key(|plan| lot(seed, plan));
    let mut cells: BTreeSet<(&str, Call, FaultClass)> = BTreeSet::new();
    drawn.retain(|plan| {
        let last = plan.faults.last();
        last.is_some_and(|(at, fault)| cells.insert((&plan.workload, at.call, fault.class())))
    });
    drawn.truncate(most);
    let chosen: BTreeSet<&Plan> = drawn.into_iter().collect();
    all.iter().filter(|p| chosen.contains(p)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a run of that plan did only because of its fault.
    fn single(plan: &str, recovery: &[&str]) -> Verdict {
        let point = |text: &&str| text.parse().expect("point");
        Verdict {
            plan: plan.parse().expect("plan"),
            recovery: recovery.iter().map(point).collect(),
            ..Verdict::default()
        }
    }

    fn singles() -> [Verdict; 3] {
        [
            single(
                "one_machine@1 create:demo/a#1=reply_lost",
                &["find_vm:u#1", "destroy:demo/a#2"],
            ),
            single(
                "one_machine@1 create:demo/a#1=request_lost",
                &["find_vm:u#1"],
            ),
            single(
                "one_machine@1 create:demo/a#1=vcenter_restored",
                &["destroy:demo/a#3"],
            ),
        ]
    }

    #[test]
    fn each_point_of_recovery_meets_each_fault_once() {
        let all = plans(&singles(), "0");
        let seconds: BTreeSet<_> = all.iter().map(|p| p.faults[1].clone()).collect();
        assert_eq!(seconds.len(), all.len(), "one first fault for each point");
        let at = |text: &str| {
            let points = all.iter().map(|p| p.faults[1].0.to_string());
            points.filter(|p| p == text).count()
        };
        // `refused`, `server_error`, `permission_denied`, `request_lost` and `answer_slow_15s`.
        assert_eq!(at("find_vm:u#1"), 5);
        assert!(at("destroy:demo/a#2") > 20);
        assert_eq!(at("destroy:demo/a#3"), 0, "a person corrects that");
        let firsts = (0..20).map(|seed| plans(&singles(), &seed.to_string()));
        let firsts = firsts.map(|all| all.iter().map(|p| p.faults[0].1).collect::<Vec<_>>());
        assert!(firsts.collect::<BTreeSet<_>>().len() > 1, "seeds differ");
    }
}
