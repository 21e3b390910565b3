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

/// Faults that hit recovery. A restored vCenter needs a person, who does not expect another fault.
fn faults() -> impl Iterator<Item = Fault> {
    let all = Fault::ALL.iter().copied();
    all.filter(|f| *f != Fault::VcenterRestored)
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
        v.failures.is_empty() && *first != Fault::VcenterRestored
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
