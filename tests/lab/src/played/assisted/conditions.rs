//! The conditions of an Agent, derived from its host's state.

use std::borrow::Cow;

use super::{
    super::condition::Condition,
    host::{Host, Validation},
    lifecycle,
    state::HostState as S,
};

/// Status, reason and message.
type Says = (&'static str, &'static str, Cow<'static, str>);

fn says(status: &'static str, reason: &'static str, message: &'static str) -> Says {
    (status, reason, message.into())
}

fn unknown() -> Says {
    says("Unknown", "UnknownStatus", "Unknown status")
}

/// SpecSynced, Connected, RequirementsMet, Validated, Installed and Bound, as the real service derives them.
#[must_use]
pub fn of(host: &Host) -> Vec<Condition> {
    let synced = match &host.refused {
        Some(why) => ("False", "BackendError", why.clone().into()),
        None => says("True", "SyncOK", "The Spec has been successfully applied"),
    };
    let all = [
        ("SpecSynced", synced),
        ("Connected", connected(host)),
        ("RequirementsMet", requirements(host)),
        ("Validated", validated(host)),
        ("Installed", installed(host)),
        ("Bound", bound(host)),
    ];
    all.map(|(kind, (status, reason, message))| Condition::new(kind, status, reason, &message))
        .into()
}

fn connected(host: &Host) -> Says {
    match host.state {
        S::DisconnectedUnbound | S::Disconnected => says(
            "False",
            "AgentIsDisconnected",
            "The agent has not contacted the service",
        ),
        _ => says(
            "True",
            "AgentIsConnected",
            "The agent's connection to the service is unimpaired",
        ),
    }
}

/// The common reason in all conditions of a host that is being bound or unbound.
fn between(state: S) -> Option<Says> {
    const BINDING: &str = "The agent is currently binding to a cluster deployment";
    const UNBINDING: &str = "The agent is currently unbinding from a cluster deployment";
    match state {
        S::Binding => Some(says("False", "Binding", BINDING)),
        S::Unbinding | S::UnbindingPendingUserAction => Some(says("False", "Unbinding", UNBINDING)),
        _ => None,
    }
}

fn requirements(host: &Host) -> Says {
    const UNDER_WAY: &str = "Installation already started and is in progress";
    const NOT_READY: &str = "The agent is not ready to begin the installation";
    if let Some(says) = between(host.state) {
        return says;
    }
    match host.state {
        S::KnownUnbound | S::Known if host.approved => says(
            "True",
            "AgentIsReady",
            "The agent is ready to begin the installation",
        ),
        S::KnownUnbound | S::Known => {
            says("False", "AgentIsNotApproved", "The agent is not approved")
        }
        S::Installing | S::InstallingInProgress | S::InstallingPendingUserAction => {
            says("True", "AgentAlreadyInstalling", UNDER_WAY)
        }
        S::AddedToExistingCluster | S::Error => says(
            "True",
            "AgentInstallationStopped",
            "The agent installation stopped",
        ),
        S::Reclaiming | S::ReclaimingRebooting => unknown(),
        _ => says("False", "AgentNotReady", NOT_READY),
    }
}

fn validated(host: &Host) -> Says {
    const FAILING: &str = "The agent's validations are failing: hardware, hostname or disk identification does not do";
    if let Some(says) = between(host.state) {
        return says;
    }
    match host.validation {
        Validation::Never => says(
            "Unknown",
            "ValidationsUnknown",
            "The agent's validations are unknown",
        ),
        Validation::Passing => says(
            "True",
            "ValidationsPassing",
            "The agent's validations are passing",
        ),
        Validation::Failing => says("False", "ValidationsFailing", FAILING),
    }
}

fn installed(host: &Host) -> Says {
    if let Some(says) = between(host.state) {
        return says;
    }
    match host.state {
        S::Installing | S::InstallingInProgress | S::InstallingPendingUserAction => {
            let stage = lifecycle::STAGES.get(host.stage.saturating_sub(1)).copied();
            let message = format!(
                "The installation is in progress: {}",
                stage.unwrap_or_default()
            );
            ("False", "InstallationInProgress", message.into())
        }
        S::AddedToExistingCluster => says(
            "True",
            "InstallationCompleted",
            "The installation has completed: Done",
        ),
        S::Error => says("False", "InstallationFailed", "The installation has failed"),
        S::Reclaiming | S::ReclaimingRebooting => unknown(),
        _ => says(
            "False",
            "InstallationNotStarted",
            "The installation has not yet started",
        ),
    }
}

fn bound(host: &Host) -> Says {
    const UNBOUND: &str = "The agent is not bound to any cluster deployment";
    const REBOOT: &str = "The agent is currently unbinding; please reboot from the discovery image";
    match host.state {
        S::DiscoveringUnbound
        | S::KnownUnbound
        | S::InsufficientUnbound
        | S::DisconnectedUnbound => says("False", "Unbound", UNBOUND),
        S::UnbindingPendingUserAction => says("False", "UnbindingPendingUserAction", REBOOT),
        S::Binding | S::Unbinding => between(host.state).unwrap_or_else(unknown),
        // Also while a host is reclaimed, although it no longer has a cluster.
        _ => says(
            "True",
            "Bound",
            "The agent is bound to a cluster deployment",
        ),
    }
}
