//! Plans that break a promise for a reason that is known and not mended yet: by name, so that nothing is dropped in
//! silence. The suite counts them apart.

use crate::{plan::Plan, run::Verdict};

/// Plans of one kind that break one promise.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Workload; empty: any.
    pub workload: &'static str,
    /// Codes of the effects at which it is no excuse.
    pub never_at: &'static [&'static str],
    /// Code of the fault; empty: any.
    pub fault: &'static str,
    /// How the failure begins.
    pub failure: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// What goes to a datastore or into a drive: nothing is excused there for going wrong in that place.
pub const STORE_EFFECTS: &[&str] = &["V07", "V08", "V09", "V10", "V11", "V15"];

/// All of them.
pub const ALL: &[Known] = &[LAGGING_S2, LAGGING_S3, NO_WAY_BACK];

const LAGGING_S2: Known = Known {
    workload: "S2",
    never_at: STORE_EFFECTS,
    fault: "g7",
    failure: "O7 ",
    reason: "where a process dies and the next one's watches lag, each of three machines is told of in more status writes",
};
const LAGGING_S3: Known = Known {
    workload: "S3",
    ..LAGGING_S2
};

/// No defect of the operator: the fault cannot be put right.
const NO_WAY_BACK: Known = Known {
    workload: "S14",
    never_at: &[],
    fault: "g13m",
    failure: "O9 ",
    reason: "the Secret was taken away by force, and in a namespace that is being deleted nobody can put it back",
};

impl Known {
    fn is_of(&self, plan: &Plan) -> bool {
        let fits = |wanted: &str, is: &str| wanted.is_empty() || wanted == is;
        fits(self.workload, &plan.workload)
            && plan.faults.iter().any(|(point, fault)| {
                !self.never_at.contains(&point.effect) && fits(self.fault, fault.code())
            })
    }
}

/// Why all that failed in this run is known; `None` when something is not.
#[must_use]
pub fn excuse(verdict: &Verdict) -> Option<&'static str> {
    let known: Vec<&Known> = ALL.iter().filter(|k| k.is_of(&verdict.plan)).collect();
    let reason = |failure: &String| known.iter().find(|k| failure.starts_with(k.failure));
    let mut reasons = verdict.failures.iter().map(reason);
    let first = reasons.next().flatten()?;
    reasons.all(|r| r.is_some()).then_some(first.reason)
}
