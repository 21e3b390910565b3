//! Holds: whether an effect may run now, and if not, who holds it back. The effect gate asks once before each effect.
//!
//! A room that plans an effect may ask the same question before ([`ask`]), so that it reports the hold and does not work in
//! vain. The answer of the gate counts.

mod conditions;
mod gather;
#[cfg(test)]
mod tests;
mod words;

use std::time::Duration;

use jiff::Timestamp;

use self::words::{by_doubt, by_dry_run, by_veto};
pub use self::{
    conditions::set_conditions,
    gather::{covers, home_of_hosted_cluster, of, of_pool, of_vm},
    words::{by_bound, by_pause},
};
use super::lease::{Leadership, Need};
use crate::{
    domain::holds::{Check, Holds},
    ports::{
        cluster::View,
        effect::{Effect, EffectKind, Hold, Nature},
    },
};

/// What the gate knows of the Lease when an effect asks. Times are monotonic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseFacts {
    /// Whether this process leads.
    pub leadership: Leadership,
    /// Now, read after `leadership`.
    pub now: Duration,
    /// The longest time that a call takes.
    pub bound: Duration,
}

/// What the gate knows when an effect asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The Lease; `None` without leader election.
    pub lease: Option<LeaseFacts>,
    /// What people have written on the subject of the effect and above it.
    pub holds: Holds,
    /// Wall clock.
    pub now: Timestamp,
}

/// The first hold on that effect, if there is one: the Lease, a dry run, a pause, a veto.
#[must_use]
pub fn held(effect: &Effect, facts: &Facts) -> Option<Hold> {
    // It only looks at vCenter while the predecessor leads.
    let only_looks = effect.kind.nature() == Nature::Session && facts.holds.is_silent();
    let refuses = |lease: &LeaseFacts| {
        let need = Need::of(effect.kind);
        let admitted = lease.leadership.admits(need, lease.now, lease.bound);
        admitted.err().map(Hold::lease)
    };
    let fenced = facts.lease.as_ref().filter(|_| !only_looks);
    let by_lease = fenced.and_then(refuses);
    by_lease.or_else(|| who_holds(effect.kind, &facts.holds, facts.now))
}

/// What people hold back: a dry run and a pause hold everything that writes except status, Events, Lease and sessions. A
/// silent dry run also holds status and Events. What is unknown of a namespace holds as a pause does, and no `force-delete`
/// overrides it.
#[must_use]
pub fn who_holds(kind: EffectKind, holds: &Holds, now: Timestamp) -> Option<Hold> {
    let dry_run = holds.dry_run.as_ref();
    match kind.nature() {
        Nature::Lease | Nature::Session => return None,
        Nature::Status | Nature::Event => return dry_run.filter(|run| run.silent).map(by_dry_run),
        Nature::Cluster | Nature::Vcenter => {}
    }
    if let Some(run) = dry_run {
        return Some(by_dry_run(run));
    }
    if holds.in_doubt && ends(kind) {
        return Some(by_doubt());
    }
    if let Some(over) = by_bound(holds) {
        return Some(over);
    }
    let paused = holds.pause(now).map(by_pause);
    paused.or_else(|| by_veto(check(kind)?, holds))
}

/// As [`who_holds`], from what the cache shows now.
#[must_use]
pub fn ask(view: &dyn View, effect: &Effect, now: Timestamp) -> Option<Hold> {
    who_holds(effect.kind, &of(view, &effect.subject), now)
}

/// What stops everything that writes, if something does: a dry run, a pause, or what is unknown.
#[must_use]
pub fn stop(holds: &Holds, now: Timestamp) -> Option<Hold> {
    let dry_run = holds.dry_run.as_ref().map(by_dry_run);
    let paused = || holds.pause(now).map(by_pause);
    dry_run.or_else(paused).or_else(|| by_bound(holds))
}

/// The effect ends something for good, or may hit a node. It waits while the caches may mix two histories.
const fn ends(kind: EffectKind) -> bool {
    use EffectKind as E;
    matches!(
        kind,
        E::DeleteChild
            | E::PowerOff
            | E::Destroy
            | E::Renew
            | E::Reset
            | E::DeleteAgent
            | E::RemoveChildFinalizer
            | E::RemovePoolFinalizer
            | E::ReleaseSecret
            | E::ReleaseInstaller
    )
}

/// The change that people may forbid with a veto, if the effect is part of one.
const fn check(kind: EffectKind) -> Option<Check> {
    use EffectKind as E;
    match kind {
        E::DeleteChild
        | E::PowerOff
        | E::Destroy
        | E::Renew
        | E::DeleteAgent
        | E::RemoveChildFinalizer => Some(Check::Delete),
        E::PowerOn => Some(Check::PowerOn),
        _ => None,
    }
}
