//! Plans that break a promise for a reason that is known and not mended yet: by name, so that nothing is dropped in
//! silence. The suite counts them apart.

use crate::{plan::Plan, run::Verdict};

/// Plans of one kind that break one promise.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Workload.
    pub workload: &'static str,
    /// Codes of the effects at which alone it is an excuse; empty: any.
    pub only_at: &'static [&'static str],
    /// Codes of the faults.
    pub faults: &'static [&'static str],
    /// How the failure begins.
    pub failure: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// All of them.
pub const ALL: &[Known] = &[UNFENCED, NO_WAY_BACK, LOOKS_LOST, FORGETS];

/// No defect of the operator: it cannot be quicker than the API server.
const UNFENCED: Known = Known {
    workload: "S16",
    only_at: &["K08"],
    faults: &["m4", "m7", "g11m"],
    failure: "O5 only ",
    reason: "the API server held the fence up for longer than the provider took to bind the host, free again, to the next \
             AgentMachine: it serves on, and one VM less is made",
};

/// No defect of the operator: the fault cannot be put right.
const NO_WAY_BACK: Known = Known {
    workload: "S14",
    only_at: &[],
    faults: &["g13m"],
    failure: "O9 ",
    reason: "the Secret was taken away by force, and in a namespace that is being deleted nobody can put it back",
};

/// A record without status that looks older than a first pass takes gets its identity at once, for its VM may be there.
const LOOKS_LOST: Known = Known {
    workload: "S24",
    only_at: &[],
    faults: &["g14"],
    failure: "O4 at ",
    reason: "to a wall clock that is ahead a new VsphereAgent looks like one whose status was lost: its identity is recorded \
             although the InfraEnv is gone, no VM is made, and it begins anew with the next InfraEnv",
};

/// Both are right, and a person is asked either way.
const FORGETS: Known = Known {
    workload: "S15e",
    only_at: &[],
    faults: &["m1", "m2", "g1", "g2", "g3", "g4", "g5", "g7"],
    failure: "O4 at \"a person is asked\"",
    reason: "who lives on while etcd is rolled back remembers that the VM served, and says `AgentMissing`; who begins after it \
             finds no word of that, and says `AgentDiscoveryExpired`",
};

impl Known {
    fn is_of(&self, plan: &Plan) -> bool {
        plan.workload == self.workload
            && plan.faults.iter().any(|(point, fault)| {
                let there = self.only_at.is_empty() || self.only_at.contains(&point.effect);
                there && self.faults.contains(&fault.code())
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
