//! The conditions `DryRun`, `Paused`, `Vetoed` and `Overfull`, which both of our kinds have while they hold.

use agent_forge_crds::conditions::{
    self, ConditionStatus, ConditionUpdate, Reason, remove_condition, set_condition,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::words::{by_bound, by_dry_run, by_pause};
use crate::domain::holds::Holds;

/// Writes these conditions as `holds` has them at `now`, and removes those that do not hold any more.
pub fn set_conditions(
    list: &mut Vec<Condition>,
    holds: &Holds,
    observed_generation: Option<i64>,
    now: Timestamp,
) {
    let paused = match holds.pause(now) {
        Some(pause) => Some((true, Reason::Paused, by_pause(pause).why)),
        None if holds.invalid.is_empty() => None,
        None => Some((false, Reason::PausedUntilInvalid, holds.invalid.join("; "))),
    };
    let dry_run = holds.dry_run.as_ref().map(|run| {
        let message = format!(
            "{}: nothing is changed; status.plannedActions of the pool lists what would be",
            by_dry_run(run).why
        );
        (true, Reason::DryRun, message)
    });
    let vetoes: Vec<String> = holds.vetoes.iter().map(ToString::to_string).collect();
    let vetoed = (!vetoes.is_empty()).then(|| (true, Reason::Vetoed, vetoes.join("; ")));
    let overfull = by_bound(holds).map(|hold| {
        let message = format!("nothing is made or ended meanwhile: {}", hold.why);
        (true, hold.reason, message)
    });
    for (type_, wanted) in [
        (conditions::DRY_RUN, dry_run),
        (conditions::PAUSED, paused),
        (conditions::VETOED, vetoed),
        (conditions::OVERFULL, overfull),
    ] {
        let Some((status, reason, message)) = wanted else {
            remove_condition(list, type_);
            continue;
        };
        let update = ConditionUpdate {
            type_,
            status: ConditionStatus::from(status),
            reason: &reason,
            message: &message,
            observed_generation,
        };
        set_condition(list, &update, &Time(now));
    }
}
