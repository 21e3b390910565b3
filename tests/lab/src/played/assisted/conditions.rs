//! The conditions of an Agent, derived from its host's state.

use super::{
    super::condition::Condition,
    host::{Host, Validation},
    lifecycle,
    state::HostState,
};

/// SpecSynced, Connected, RequirementsMet, Validated, Installed and Bound, as the real service derives them.
#[must_use]
pub fn of(host: &Host) -> Vec<Condition> {
    let synced = match &host.refused {
        Some(why) => Condition::new("SpecSynced", "False", "BackendError", why),
        None => Condition::new(
            "SpecSynced",
            "True",
            "SyncOK",
            "The Spec has been successfully applied",
        ),
    };
    vec![
        synced,
        connected(host),
        requirements(host),
        validated(host),
        installed(host),
        bound(host),
    ]
}

fn connected(host: &Host) -> Condition {
    match host.state {
        HostState::DisconnectedUnbound | HostState::Disconnected => Condition::new(
            "Connected",
            "False",
            "AgentIsDisconnected",
            "The agent has not contacted the service",
        ),
        _ => Condition::new(
            "Connected",
            "True",
            "AgentIsConnected",
            "The agent's connection to the service is unimpaired",
        ),
    }
}

/// The common reason in all conditions of a host that is being bound or unbound.
fn between(state: HostState, kind: &'static str) -> Option<Condition> {
    let (reason, message) = match state {
        HostState::Binding => (
            "Binding",
            "The agent is currently binding to a cluster deployment",
        ),
        HostState::Unbinding | HostState::UnbindingPendingUserAction => (
            "Unbinding",
            "The agent is currently unbinding from a cluster deployment",
        ),
        _ => return None,
    };
    Some(Condition::new(kind, "False", reason, message))
}

fn requirements(host: &Host) -> Condition {
    use HostState as S;
    const KIND: &str = "RequirementsMet";
    if let Some(condition) = between(host.state, KIND) {
        return condition;
    }
    match host.state {
        S::KnownUnbound | S::Known if host.approved => Condition::new(
            KIND,
            "True",
            "AgentIsReady",
            "The agent is ready to begin the installation",
        ),
        S::KnownUnbound | S::Known => Condition::new(
            KIND,
            "False",
            "AgentIsNotApproved",
            "The agent is not approved",
        ),
        S::Installing | S::InstallingInProgress | S::InstallingPendingUserAction => Condition::new(
            KIND,
            "True",
            "AgentAlreadyInstalling",
            "Installation already started and is in progress",
        ),
        S::AddedToExistingCluster | S::Error => Condition::new(
            KIND,
            "True",
            "AgentInstallationStopped",
            "The agent installation stopped",
        ),
        S::Reclaiming | S::ReclaimingRebooting => {
            Condition::new(KIND, "Unknown", "UnknownStatus", "Unknown status")
        }
        _ => Condition::new(
            KIND,
            "False",
            "AgentNotReady",
            "The agent is not ready to begin the installation",
        ),
    }
}

fn validated(host: &Host) -> Condition {
    const KIND: &str = "Validated";
    if let Some(condition) = between(host.state, KIND) {
        return condition;
    }
    match host.validation {
        Validation::Never => Condition::new(
            KIND,
            "Unknown",
            "ValidationsUnknown",
            "The agent's validations are unknown",
        ),
        Validation::Passing => Condition::new(
            KIND,
            "True",
            "ValidationsPassing",
            "The agent's validations are passing",
        ),
        Validation::Failing => Condition::new(
            KIND,
            "False",
            "ValidationsFailing",
            "The agent's validations are failing: hardware, hostname or disk identification does not do",
        ),
    }
}

fn installed(host: &Host) -> Condition {
    use HostState as S;
    const KIND: &str = "Installed";
    if let Some(condition) = between(host.state, KIND) {
        return condition;
    }
    match host.state {
        S::Installing | S::InstallingInProgress | S::InstallingPendingUserAction => {
            let stage = lifecycle::STAGES
                .get(host.stage.saturating_sub(1))
                .copied()
                .unwrap_or_default();
            let message = format!("The installation is in progress: {stage}");
            Condition::new(KIND, "False", "InstallationInProgress", &message)
        }
        S::AddedToExistingCluster => Condition::new(
            KIND,
            "True",
            "InstallationCompleted",
            "The installation has completed: Done",
        ),
        S::Error => Condition::new(
            KIND,
            "False",
            "InstallationFailed",
            "The installation has failed",
        ),
        S::Reclaiming | S::ReclaimingRebooting => {
            Condition::new(KIND, "Unknown", "UnknownStatus", "Unknown status")
        }
        _ => Condition::new(
            KIND,
            "False",
            "InstallationNotStarted",
            "The installation has not yet started",
        ),
    }
}

fn bound(host: &Host) -> Condition {
    use HostState as S;
    const KIND: &str = "Bound";
    match host.state {
        S::DiscoveringUnbound
        | S::KnownUnbound
        | S::InsufficientUnbound
        | S::DisconnectedUnbound => Condition::new(
            KIND,
            "False",
            "Unbound",
            "The agent is not bound to any cluster deployment",
        ),
        S::UnbindingPendingUserAction => Condition::new(
            KIND,
            "False",
            "UnbindingPendingUserAction",
            "The agent is currently unbinding; please reboot from the discovery image",
        ),
        S::Binding | S::Unbinding => between(host.state, KIND)
            .unwrap_or_else(|| Condition::new(KIND, "Unknown", "UnknownStatus", "Unknown status")),
        // Also while a host is reclaimed, although it no longer has a cluster.
        _ => Condition::new(
            KIND,
            "True",
            "Bound",
            "The agent is bound to a cluster deployment",
        ),
    }
}
