//! The one place that decides what happens to a VM that no Machine needs. Pure.
//!
//! Flow: the pool actor asks for each VM that it may release. The VM actor asks when the VsphereAgent is being deleted, and
//! when the Agent of the VM does not come. The orphan scan asks for a VM that no VsphereAgent records.
//!
//! Guarantee: this decision never removes a VM that serves a Machine. The callers prove the facts before they act.

#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

use agent_forge_crds::pool::CleanupPolicy;

/// How a pool wants its VMs to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A VM serves one Machine, and then is cleaned up as `cleanupPolicy` says. `None`: that was never recorded, and the
    /// pool is gone.
    Cleanup(Option<CleanupPolicy>),
    /// The VM is marked with `skip-delete`: it stays when its VsphereAgent goes, whatever its pool wants.
    SkipDelete,
}

impl Policy {
    /// What happens to a VM in the end.
    const fn end(self) -> End {
        match self {
            Self::Cleanup(Some(CleanupPolicy::Retain)) | Self::SkipDelete => End::LeaveToPeople,
            Self::Cleanup(Some(CleanupPolicy::Delete) | None) => End::Remove,
        }
    }

    /// Users get the VM in the end. It keeps its Agent, and does not wait for its Machine.
    #[must_use]
    pub fn leaves_to_people(self) -> bool {
        self.end() == End::LeaveToPeople
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cleanup(Some(CleanupPolicy::Retain)) => "cleanupPolicy Retain",
            Self::Cleanup(Some(CleanupPolicy::Delete) | None) => "cleanupPolicy Delete",
            Self::SkipDelete => "skip-delete",
        })
    }
}

/// A VM that does not stay, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unneeded {
    /// Its VsphereAgent is being deleted.
    RecordDeleted,
    /// Its Agent does not come.
    AgentOverdue,
    /// Its Agent did not come, and the record says that the VM is given up.
    GivenUp,
    /// No VsphereAgent records it.
    Orphan(OrphanVm),
}

/// A VM that its pool may release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeVm {
    /// Why no Machine needs it.
    pub why: ReleaseReason,
    /// The pool is being deleted. Then it cannot keep records.
    pub pool_deleting: bool,
    /// Its Agent serves a Machine of another control plane.
    pub serves_elsewhere: bool,
    /// Its Agent is bound.
    pub is_bound: bool,
    /// Its Machine is being deleted, or has this host.
    pub machine_remains: bool,
    /// How long it still waits for an AgentMachine that replaces its own.
    pub offer_left: Option<Duration>,
    /// How long another AgentMachine may still need it.
    pub wait_left: Option<Duration>,
}

/// Why no Machine needs a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseReason {
    /// Its Machine and AgentMachine are gone.
    MachineGone,
    /// No AgentMachine asked for it, or another host serves its AgentMachine.
    Surplus,
    /// The pool is being deleted, and the Agent of the VM is unbound.
    PoolDeleting,
}

/// A VM with our mark and without a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrphanVm {
    /// No VsphereAgent can need it: its own is gone, or has a later attempt.
    pub is_ownerless: bool,
    /// It was never powered on.
    pub never_ran: bool,
    /// The scan before found the same.
    pub is_confirmed: bool,
}

/// What becomes of a VM that its pool may release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It stays for now.
    Stay(Stay),
    /// It does not stay.
    End(End),
}

/// What becomes of a VM in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It stays for good: users decide about it.
    LeaveToPeople,
    /// It is removed with its Agent.
    Remove,
}

/// Why a VM stays for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// Its Agent serves a Machine of another control plane.
    ServesElsewhere,
    /// Its Agent is bound.
    Bound,
    /// Its Machine is not gone yet.
    MachineRemains,
    /// An AgentMachine that replaces its own may take it, for this long.
    Offered(Duration),
    /// Another AgentMachine may need it, for this long.
    Awaited(Duration),
}

/// Decides how a VM ends that does not stay.
#[must_use]
pub fn end(vm: Unneeded, policy: Policy) -> End {
    match vm {
        Unneeded::RecordDeleted | Unneeded::AgentOverdue => policy.end(),
        // The record promises another VM in its place.
        Unneeded::GivenUp if policy == Policy::SkipDelete => End::LeaveToPeople,
        Unneeded::GivenUp => End::Remove,
        Unneeded::Orphan(orphan) if orphan.is_certain() => policy.end(),
        Unneeded::Orphan(_) => End::LeaveToPeople,
    }
}

impl FreeVm {
    /// Decides whether it stays.
    #[must_use]
    pub fn fate(&self, policy: Policy) -> Fate {
        if self.serves_elsewhere {
            return Fate::Stay(Stay::ServesElsewhere);
        }
        if self.is_bound {
            return Fate::Stay(Stay::Bound);
        }
        if self.pool_deleting && self.machine_remains {
            return Fate::Stay(Stay::MachineRemains);
        }
        let end = policy.end();
        // The records of a deleted pool are released, whatever happens to the VMs.
        if end == End::LeaveToPeople && !self.pool_deleting {
            return Fate::End(end);
        }
        match (self.why, self.offer_left, self.wait_left) {
            (ReleaseReason::MachineGone, Some(left), _) => Fate::Stay(Stay::Offered(left)),
            (ReleaseReason::Surplus, _, Some(left)) => Fate::Stay(Stay::Awaited(left)),
            _ => Fate::End(end),
        }
    }
}

impl OrphanVm {
    const fn is_certain(&self) -> bool {
        self.is_ownerless && self.never_ran && self.is_confirmed
    }
}
