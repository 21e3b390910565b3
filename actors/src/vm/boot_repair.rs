//! A host whose disk is installed, and whose guest booted the discovery ISO instead: when its VM is reset. Pure.
//!
//! Facts:
//! - The service puts such a host into `installing-pending-user-action`, and never lets it leave by time.
//! - A second registration there is refused, so a wrong boot after a reset changes nothing in the Agent.
//! - The boot order of a VM acts at its next boot.
//! - The service has the same state for a host that takes long to fetch its configuration. Its guest may run.
//!
//! - A second registration there leaves no trace in the Agent either. So after a reset nothing tells a guest that booted
//!   the ISO again from a node whose hosted API the service cannot reach.
//!
//! - A record may be lost, or come back from a backup. A node that was reset looks in its Agent as before the reset.
//!
//! Guarantees: one reset for one occurrence, and at most [`MOST`] in one life of a VM. Each is recorded before vCenter is asked. A
//! reset on record counts as sent, unless this actor knows that vCenter did not take it. One that this actor sent counts
//! without its record as well. Only a later stage report of the Agent is another occurrence. Without one, people are asked
//! after [`GRACE`]. A reset is due only if the first look at the VM showed this actor why the guest booted the ISO: what is
//! mended before a reset is right after it.

use std::time::Duration;

use agent_forge_crds::{Time, agent::BootRepair, external::agent::Agent};
use jiff::Timestamp;

use super::lost;
use crate::{
    domain::{managed_vm::ManagedVm, seconds},
    ports::vcenter::{BootDevice, VmObservation},
};

/// How many resets a VM gets in one life.
pub const MOST: i32 = 2;
/// How long a VM may take after a reset until its host leaves the state. The service gives a reboot as long.
pub const GRACE: Duration = Duration::from_secs(40 * 60);
/// What people read meanwhile.
pub const WAITS: &str = "the guest booted the discovery ISO although its disk is installed. The operator has set the boot order, taken \
                         the ISO out and reset the VM (status.vm.bootRepair): the host is to come up from its disk now";
/// State of a host that waits for a person.
const PENDING: &str = "installing-pending-user-action";
/// How the service begins its sentence about a host that booted the image.
const BOOTED_IMAGE: &str = "Expected the host to boot from disk";
/// How it begins the sentence about a host that restarted in the middle of the installation.
const RESTARTED: &str = "The host unexpectedly restarted during the installation";

/// The last reset that this actor recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// As it is on record.
    pub repair: BootRepair,
    /// When (monotonic) it was recorded.
    pub at: Duration,
    /// vCenter was asked, and may have done it.
    pub sent: bool,
}

/// What the first look at the VM showed since the Agent says that its guest booted the ISO. The operator mends that before
/// the reset, and people may change it afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstLook {
    /// See [`occurrence`].
    occurrence: Option<Time>,
    /// A drive had an ISO of the pool, or the disks were not first. `None`: the look is to come.
    booted_iso: Option<bool>,
}

/// What this actor itself knows of the resets of the VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// The last one that it recorded.
    pub recorded: Option<Recorded>,
    first_look: Option<FirstLook>,
}

impl Own {
    /// The Agent says that its guest booted the ISO. `booted_iso`: what the last look showed, if there was one. `true`: the
    /// VM is to be looked at, as what an earlier look showed may be over.
    pub fn note(&mut self, occurrence: Option<Time>, booted_iso: Option<bool>) -> bool {
        match &mut self.first_look {
            Some(look) if look.occurrence == occurrence => {
                look.booted_iso = look.booted_iso.or(booted_iso);
                false
            }
            look => {
                *look = Some(FirstLook {
                    occurrence,
                    booted_iso: None,
                });
                true
            }
        }
    }

    fn saw_why(&self, occurrence: Option<&Time>) -> bool {
        self.first_look.as_ref().is_some_and(|look| {
            look.occurrence.as_ref() == occurrence && look.booted_iso == Some(true)
        })
    }
}

/// The last reset of the VM: the one on record, or one that this actor sent and that the record does not have any more.
#[must_use]
pub fn last<'a>(record: Option<&'a BootRepair>, own: Option<&'a Own>) -> Option<&'a BootRepair> {
    let own = own.and_then(|own| own.recorded.as_ref());
    let sent = own.filter(|own| own.sent).map(|own| &own.repair);
    sent.into_iter().chain(record).max_by_key(|r| r.count)
}

/// What is to be done for a VM whose guest booted the discovery ISO instead of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Its guest did not do that, as far as the service says.
    NotNeeded,
    /// A reset is to be recorded.
    Due,
    /// This actor has recorded a reset, and not sent it.
    Recorded,
    /// It was reset, or is taken to be. It may take that long until its host leaves the state.
    Waits(Duration),
    /// Its reset for this occurrence did not help in time, or it had all its resets.
    Exhausted,
    /// Nothing has shown yet why it booted the ISO. It may be a node that was reset, and whose record is lost.
    Unexplained,
}

/// The Agent serves the Machine of that VM, and its guest booted the discovery ISO instead of its disk.
#[must_use]
pub fn is_needed(child: &ManagedVm, agent: &Agent) -> bool {
    agent.state() == PENDING
        && agent.state_info().starts_with(BOOTED_IMAGE)
        && child.is_bound_to(agent)
}

/// What tells one occurrence from the next: when the Agent's stage was last reported, in whole seconds as a status has it.
#[must_use]
pub fn occurrence(agent: &Agent) -> Option<Time> {
    let at = agent.stage_update_time()?.0;
    Some(Time(seconds::whole(at)))
}

/// The guest restarted in the middle of the installation. Only another Machine helps.
#[must_use]
pub fn is_restarted(agent: &Agent) -> bool {
    agent.state() == "error" && agent.state_info().starts_with(RESTARTED)
}

/// Decides. `record`: the last reset on record. `occurrence`: see [`occurrence`]. `own`: what this actor knows itself.
/// `now`: wall clock and monotonic.
#[must_use]
pub fn repair(
    record: Option<&BootRepair>,
    occurrence: Option<&Time>,
    own: Option<&Own>,
    now: (Timestamp, Duration),
) -> Repair {
    let due = if own.is_some_and(|own| own.saw_why(occurrence)) {
        Repair::Due
    } else {
        Repair::Unexplained
    };
    let Some(before) = last(record, own) else {
        return due;
    };
    let own = own.and_then(|own| own.recorded.as_ref());
    let own = own.filter(|own| own.repair == *before);
    // No report, or an older one as after a restored backup, is no news. Without one on record, a later report than that is.
    let known = before.state_updated_at.as_ref().or(before.at.as_ref());
    let same = occurrence.is_none_or(|report| known.is_some_and(|known| report.0 <= known.0));
    if same && own.is_some_and(|own| !own.sent) {
        return Repair::Recorded;
    }
    let by_record = before
        .at
        .as_ref()
        .map_or(Duration::ZERO, |at| lost::left(at.0, GRACE, now.0));
    // A wall clock that was set ahead does not shorten the grace of a reset that this actor recorded.
    let by_own = own.map_or(Duration::ZERO, |own| {
        GRACE.saturating_sub(now.1.saturating_sub(own.at))
    });
    let left = by_record.max(by_own);
    if same && !left.is_zero() {
        Repair::Waits(left)
    } else if same || before.count >= MOST {
        Repair::Exhausted
    } else {
        due
    }
}

/// What people read when the operator has done all that it may.
#[must_use]
pub fn explain_wrong(shown: &VmObservation, repair: Repair) -> String {
    let first = if shown.disk_keys.is_empty() {
        "the guest booted the discovery ISO, and the VM has no disk to boot"
    } else if repair == Repair::Unexplained {
        "the Agent says that the guest booted the discovery ISO instead of its disk, and nothing in vCenter showed why: its disk came \
         first, and no drive had the ISO. It may have been reset for that before, and the record of that may be lost"
    } else {
        "the guest booted the discovery ISO instead of its disk, and the Agent still says so after a reset"
    };
    format!(
        "{first}. Boot order: {}. Disks: {}. CD-ROM drives: {}. In vCenter, look at the console and the boot options (firmware, boot \
         order), let the VM boot its disk and restart it, or delete its Machine. If its Node is there, the service cannot reach the API of the \
         hosted cluster: leave the VM alone. The operator does not reset it",
        devices(&shown.boot_order, |device| match device {
            BootDevice::Disk(key) => format!("disk {key}"),
            BootDevice::Cdrom => "CD-ROM".to_owned(),
            BootDevice::Other(name) => name.clone(),
        }),
        devices(&shown.disk_keys, ToString::to_string),
        devices(&shown.cdroms, |drive| {
            let iso = drive.iso.as_deref().unwrap_or("empty");
            let state = if drive.connected {
                ""
            } else {
                ", not connected"
            };
            format!("{} ({iso}{state})", drive.key)
        }),
    )
}

fn devices<T>(all: &[T], name: impl Fn(&T) -> String) -> String {
    if all.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<String> = all.iter().map(name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests;
