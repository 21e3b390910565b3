use tokio::time::Instant;

use super::{super::host::HostFacts, *};

/// Status and reason of Bound, Validated, RequirementsMet, Installed, Connected.
fn row(state: HostState, validation: Validation, approved: bool) -> [String; 5] {
    let mut host = Host::new("env", HostFacts::bare_metal(1), Instant::now());
    host.state = state;
    host.validation = validation;
    host.approved = approved;
    let all = of(&host);
    [
        "Bound",
        "Validated",
        "RequirementsMet",
        "Installed",
        "Connected",
    ]
    .map(|kind| {
        let found = all
            .iter()
            .find(|condition| condition.kind == kind)
            .unwrap_or_else(|| panic!("{kind}"));
        format!("{} {}", &found.status[..1], found.reason)
    })
}

#[test]
fn table_of_the_contract() {
    use HostState as S;
    use Validation::{Failing, Never, Passing};
    let connected = "T AgentIsConnected";
    let rows = [
        (
            S::DiscoveringUnbound,
            Never,
            [
                "F Unbound",
                "U ValidationsUnknown",
                "F AgentNotReady",
                "F InstallationNotStarted",
                connected,
            ],
        ),
        (
            S::DiscoveringUnbound,
            Passing,
            [
                "F Unbound",
                "T ValidationsPassing",
                "F AgentNotReady",
                "F InstallationNotStarted",
                connected,
            ],
        ),
        (
            S::InsufficientUnbound,
            Failing,
            [
                "F Unbound",
                "F ValidationsFailing",
                "F AgentNotReady",
                "F InstallationNotStarted",
                connected,
            ],
        ),
        (
            S::KnownUnbound,
            Passing,
            [
                "F Unbound",
                "T ValidationsPassing",
                "T AgentIsReady",
                "F InstallationNotStarted",
                connected,
            ],
        ),
        (
            S::DisconnectedUnbound,
            Passing,
            [
                "F Unbound",
                "T ValidationsPassing",
                "F AgentNotReady",
                "F InstallationNotStarted",
                "F AgentIsDisconnected",
            ],
        ),
        (
            S::Binding,
            Passing,
            [
                "F Binding",
                "F Binding",
                "F Binding",
                "F Binding",
                connected,
            ],
        ),
        (
            S::Known,
            Passing,
            [
                "T Bound",
                "T ValidationsPassing",
                "T AgentIsReady",
                "F InstallationNotStarted",
                connected,
            ],
        ),
        (
            S::Insufficient,
            Failing,
            [
                "T Bound",
                "F ValidationsFailing",
                "F AgentNotReady",
                "F InstallationNotStarted",
                connected,
            ],
        ),
        (
            S::InstallingInProgress,
            Passing,
            [
                "T Bound",
                "T ValidationsPassing",
                "T AgentAlreadyInstalling",
                "F InstallationInProgress",
                connected,
            ],
        ),
        (
            S::AddedToExistingCluster,
            Passing,
            [
                "T Bound",
                "T ValidationsPassing",
                "T AgentInstallationStopped",
                "T InstallationCompleted",
                connected,
            ],
        ),
        (
            S::Error,
            Passing,
            [
                "T Bound",
                "T ValidationsPassing",
                "T AgentInstallationStopped",
                "F InstallationFailed",
                connected,
            ],
        ),
        (
            S::Unbinding,
            Passing,
            [
                "F Unbinding",
                "F Unbinding",
                "F Unbinding",
                "F Unbinding",
                connected,
            ],
        ),
        (
            S::UnbindingPendingUserAction,
            Passing,
            [
                "F UnbindingPendingUserAction",
                "F Unbinding",
                "F Unbinding",
                "F Unbinding",
                connected,
            ],
        ),
        (
            S::Reclaiming,
            Passing,
            [
                "T Bound",
                "T ValidationsPassing",
                "U UnknownStatus",
                "U UnknownStatus",
                connected,
            ],
        ),
    ];
    for (state, validation, wanted) in rows {
        assert_eq!(
            row(state, validation, true),
            wanted.map(str::to_owned),
            "{}",
            state.name()
        );
    }
    assert_eq!(
        row(S::KnownUnbound, Passing, false)[2],
        "F AgentIsNotApproved"
    );
}
