//! What people and BYOH read of a config. Pure.

use agent_forge_crds::{
    AgentForgeInstallerConfig, AgentForgeInstallerConfigStatus,
    conditions::{Class, READY, Reason},
    external::{ForeignCondition, find},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::secret;

/// Why something is not so.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Type of the condition that says so.
    pub condition: &'static str,
    /// Why, in one word.
    pub reason: Reason,
    /// Why, in a sentence.
    pub why: String,
}

impl Problem {
    /// A problem.
    #[must_use]
    pub const fn of(condition: &'static str, reason: Reason, why: String) -> Self {
        Self {
            condition,
            reason,
            why,
        }
    }
}

/// The status of a config that waits. A person has to act where an input is refused.
#[must_use]
pub fn waiting(
    config: &AgentForgeInstallerConfig,
    now: &Time,
    problem: &Problem,
) -> AgentForgeInstallerConfigStatus {
    let severity = match problem.reason.about().class {
        Class::Refused => "Error",
        _ => "Info",
    };
    let fails = severity == "Error";
    let mut status = with(config, problem.condition, |condition| {
        condition.reason = Some(problem.reason.to_string());
        condition.message = Some(problem.why.clone());
        condition.severity = Some(severity.to_owned());
        set(condition, "False", now);
    });
    status.failure_reason = fails.then(|| problem.reason.to_string());
    status.failure_message = fails.then(|| problem.why.clone());
    status
}

/// The status of a config whose Secret exists.
#[must_use]
pub fn ready(config: &AgentForgeInstallerConfig, now: &Time) -> AgentForgeInstallerConfigStatus {
    let mut status = with(config, READY, |condition| set(condition, "True", now));
    status.ready = true;
    status.installation_secret = Some(secret::reference(config));
    status
}

/// The status without a failure, and with that condition changed.
fn with(
    config: &AgentForgeInstallerConfig,
    type_: &str,
    change: impl FnOnce(&mut ForeignCondition),
) -> AgentForgeInstallerConfigStatus {
    let mut status = config.status.clone().unwrap_or_default();
    status.observed_generation = config.metadata.generation;
    (status.failure_reason, status.failure_message) = (None, None);
    let old = find(&status.conditions, type_);
    let mut condition = ForeignCondition {
        type_: type_.to_owned(),
        status: old.map(|old| old.status.clone()).unwrap_or_default(),
        last_transition_time: old.and_then(|old| old.last_transition_time.clone()),
        ..ForeignCondition::default()
    };
    change(&mut condition);
    status.conditions.retain(|c| c.type_ != type_);
    status.conditions.push(condition);
    status
}

/// The condition's time is that of the last change of its status.
fn set(condition: &mut ForeignCondition, status: &str, now: &Time) {
    if condition.status != status || condition.last_transition_time.is_none() {
        status.clone_into(&mut condition.status);
        condition.last_transition_time = Some(now.clone());
    }
}
