//! The states of a host in the service.

/// A host's state, as `status.debugInfo.state` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostState {
    /// Registered, not validated, in no cluster.
    DiscoveringUnbound,
    /// Validated, in no cluster.
    KnownUnbound,
    /// Hardware or hostname does not do, in no cluster.
    InsufficientUnbound,
    /// Silent, in no cluster.
    DisconnectedUnbound,
    /// Told to join a cluster.
    Binding,
    /// Registered in a cluster, not validated.
    Discovering,
    /// Validated in a cluster.
    Known,
    /// Validation failed in a cluster.
    Insufficient,
    /// Silent, in a cluster.
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
    /// Told to leave its cluster before it was installed.
    Unbinding,
    /// Left its cluster, waits for somebody to boot the discovery image.
    UnbindingPendingUserAction,
    /// A pod on the host fetches the discovery kernel.
    Reclaiming,
    /// The host reboots into that kernel.
    ReclaimingRebooting,
}

impl HostState {
    /// The name on the wire.
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

    /// Whether the service takes hostname, role and disk from the Agent's spec in this state.
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
