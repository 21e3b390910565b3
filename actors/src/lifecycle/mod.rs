//! The one place that decides what happens to a VM that no Machine needs. Pure. Whether it may have another life comes in as
//! `may_recycle`, from `recycles` in `pool/plan/vm.rs`.
//!
//! Flow: the pool actor asks for each VM that it may release, or that may come into its buffer. The VM actor asks when the
//! VsphereAgent is being deleted, when the Agent of the VM does not come, and at each step into another life. Directly before it
//! switches a VM off, renews or destroys it, it asks again from live reads. The orphan scan asks for a VM that no VsphereAgent
//! records.
//!
//! Guarantees
//! - A VM that people keep is neither switched off nor renewed nor removed, whatever the cause ([`end`]).
//! - A disk that was kept with its data is not removed for silence, failing validations, age, or another template or image. A
//!   person says so: with a smaller buffer, the deletion of a pool or VsphereAgent, or a request for another VM.
//! - This decision never removes a VM that serves a Machine. The callers prove the facts before they act.

#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

use agent_forge_crds::pool::{CleanupPolicy, ReleasedDisk, VsphereAgentPool};

use crate::domain::{
    managed_vm::ManagedVm,
    recycle::{self, Stage},
};

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
    /// How one VM is to end. `skips_delete`: a person, or an administrator of vCenter, has marked it. `cleanup`: what its pool
    /// wants.
    #[must_use]
    pub const fn of(skips_delete: bool, cleanup: Option<CleanupPolicy>) -> Self {
        if skips_delete {
            Self::SkipDelete
        } else {
            Self::Cleanup(cleanup)
        }
    }

    /// How the VM of `child` is to end. One that was adopted is retained, whatever its pool wants.
    #[must_use]
    pub fn of_vm(child: &ManagedVm, cleanup: Option<CleanupPolicy>) -> Self {
        let retain = child.retained.then_some(CleanupPolicy::Retain);
        Self::of(child.skips_delete(), retain.or(cleanup))
    }

    /// Users get the VM in the end. It keeps its Agent, and does not wait for its Machine.
    #[must_use]
    pub const fn leaves_to_people(self) -> bool {
        match self {
            Self::Cleanup(Some(CleanupPolicy::Retain)) | Self::SkipDelete => true,
            Self::Cleanup(Some(CleanupPolicy::Delete) | None) => false,
        }
    }

    /// The record of a VM that no Machine needs goes, although people keep the VM: it has `skip-delete`, and would not have another
    /// life otherwise.
    #[must_use]
    pub fn lets_record_go(self, pool_recycles: bool) -> bool {
        self == Self::SkipDelete && !pool_recycles
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

/// A VM that does not stay as it is, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unneeded {
    /// Its VsphereAgent is being deleted.
    RecordDeleted,
    /// Its Agent does not come, or not back, or no Machine can have it.
    AgentOverdue {
        /// It has, or may have, the disk of a life before.
        keeps_disk: bool,
    },
    /// It waits, and its pool wants a newer one in its place.
    Outdated {
        /// It has, or may have, the disk of a life before.
        keeps_disk: bool,
    },
    /// Its Agent did not come, and the record says that the VM is given up.
    GivenUp,
    /// Its AgentMachine went before it served. The buffer may have it.
    Spare,
    /// Its pool gives it another life, and it is still in the life before.
    Renewal(Renewal),
    /// No VsphereAgent records it.
    Orphan(OrphanVm),
}

/// A VM that is to begin another life, while it is in the life before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renewal {
    /// It could not be made ready in a day of tries.
    pub overdue: bool,
    /// Its disk is to stay, with the data on it.
    pub keeps_disk: bool,
}

impl Renewal {
    /// That of `child`, by the record. `None`: it is not on such a way, or has begun the new life.
    #[must_use]
    pub fn of(child: &ManagedVm, pool: &VsphereAgentPool) -> Option<Self> {
        let before = matches!(child.recycling(), Stage::Asked(_) | Stage::Recorded(_));
        let vm = child.vm().filter(|_| before)?;
        let disk = pool.spec.release.as_ref().and_then(|r| r.disk);
        Some(Self {
            overdue: recycle::is_overdue(vm),
            keeps_disk: disk == Some(ReleasedDisk::Keep),
        })
    }
}

/// A VM that its pool may release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeVm {
    /// Why no Machine needs it.
    pub why: ReleaseReason,
    /// The pool is being deleted. Then it cannot keep records.
    pub pool_deleting: bool,
    /// The pool gives its VMs other lives.
    pub pool_recycles: bool,
    /// This VM may have another life.
    pub may_recycle: bool,
    /// It is on its way into another life.
    pub renewal: Option<Renewal>,
    /// It has left the buffer with the disk of a life before, nobody had it since, and its pool wants a newer one.
    pub outdated_with_data: bool,
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
    /// It serves another Machine: as it is, or after it was made ready for that.
    NextLife,
    /// It stays for now, and its data with it: it can neither be made ready nor be removed without a person.
    Hold,
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
    /// People keep it. Its record stays with it.
    Kept,
    /// It cannot be made ready for another life, or its pool wants a newer one, and its disk has data on it.
    HasData,
}

/// Decides what becomes of a VM that no Machine needs. What people keep is left to them, whatever the cause.
#[must_use]
pub fn end(vm: Unneeded, policy: Policy) -> End {
    if policy.leaves_to_people() {
        return End::LeaveToPeople;
    }
    match vm {
        Unneeded::RecordDeleted | Unneeded::GivenUp => End::Remove,
        Unneeded::Spare => End::NextLife,
        Unneeded::Renewal(renewal) if !renewal.overdue => End::NextLife,
        Unneeded::Renewal(Renewal { keeps_disk, .. })
        | Unneeded::AgentOverdue { keeps_disk }
        | Unneeded::Outdated { keeps_disk } => {
            if keeps_disk {
                End::Hold
            } else {
                End::Remove
            }
        }
        Unneeded::Orphan(orphan) if orphan.is_certain() => End::Remove,
        Unneeded::Orphan(_) => End::LeaveToPeople,
    }
}

impl FreeVm {
    /// Why it does not stay as it is.
    fn cause(&self) -> Unneeded {
        match self.renewal.filter(|renewal| renewal.overdue) {
            _ if self.pool_deleting => Unneeded::RecordDeleted,
            Some(overdue) => Unneeded::Renewal(overdue),
            None if self.may_recycle => Unneeded::Renewal(self.renewal.unwrap_or_default()),
            None if self.outdated_with_data => Unneeded::Outdated { keeps_disk: true },
            None => Unneeded::RecordDeleted,
        }
    }

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
        let end = end(self.cause(), policy);
        // The records of a deleted pool are released, whatever happens to the VMs.
        let record_goes = self.pool_deleting || policy.lets_record_go(self.pool_recycles);
        match end {
            End::LeaveToPeople if !record_goes => {
                return Fate::Stay(Stay::Kept);
            }
            End::Hold => return Fate::Stay(Stay::HasData),
            _ => {}
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
