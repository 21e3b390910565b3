//! The states of a host in the service.

/// A host's state, as `status.debugInfo.state` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostState {
    /// Registered, not validated, in no cluster.
    DiscoveringUnbound,
    /// Validated, in no cluster.
    KnownUnbound,
    /// Hardware or hostname is not sufficient, in no cluster.
    InsufficientUnbound,
    /// Does not answer, in no cluster.
    DisconnectedUnbound,
    /// Must join a cluster.
    Binding,
    /// Registered in a cluster, not validated.
    Discovering,
    /// Validated in a cluster.
    Known,
    /// Validation failed in a cluster.
    Insufficient,
    /// Does not answer, in a cluster.
    Disconnected,
    /// The install was ordered.
    Installing,
    /// The install runs.
    InstallingInProgress,
    /// The host booted the discovery image again instead of its disk.
    InstallingPendingUserAction,
    /// The host is a Node of a cluster that existed before.
    AddedToExistingCluster,
    /// The install failed.
    Error,
    /// Must leave its cluster; it was not installed yet.
    Unbinding,
    /// Left its cluster, and waits until somebody boots the discovery image.
    UnbindingPendingUserAction,
    /// A pod on the host fetches the discovery kernel.
    Reclaiming,
    /// The host reboots into that kernel.
    ReclaimingRebooting,
}

impl HostState {
    /// The name in `status.debugInfo.state`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DiscoveringUnbound => "discovering-unbound",
            Self::KnownUnbound => "known-unbound",
            Self::InsufficientUnbound => "insufficient-unbound",
            Self::DisconnectedUnbound => "disconnected-unbound",
            Self::Binding => "binding",
            Self::Discovering => "discovering",
            Self::Known => "known",
            Self::Insufficient => "insufficient",
            Self::Disconnected => "disconnected",
            Self::Installing => "installing",
            Self::InstallingInProgress => "installing-in-progress",
            Self::InstallingPendingUserAction => "installing-pending-user-action",
            Self::AddedToExistingCluster => "added-to-existing-cluster",
            Self::Error => "error",
            Self::Unbinding => "unbinding",
            Self::UnbindingPendingUserAction => "unbinding-pending-user-action",
            Self::Reclaiming => "reclaiming",
            Self::ReclaimingRebooting => "reclaiming-rebooting",
        }
    }

    /// Whether the service accepts hostname, role and disk from the Agent's spec in this state.
    #[must_use]
    pub fn takes_spec(self) -> bool {
        matches!(
            self,
            Self::DiscoveringUnbound
                | Self::KnownUnbound
                | Self::InsufficientUnbound
                | Self::DisconnectedUnbound
                | Self::Binding
                | Self::Discovering
                | Self::Known
                | Self::Insufficient
                | Self::Disconnected
        )
    }

    /// Whether an install is under way.
    #[must_use]
    pub fn installs(self) -> bool {
        matches!(self, Self::Installing | Self::InstallingInProgress)
    }
}
