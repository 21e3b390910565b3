//! The way of a VM into its next life: what its Agent has to show before, and after. Pure.
//!
//! ```text
//! asked by the pool, or a hook waits for a dead guest
//!   -> intent recorded -> Agent fenced and free -> power off -> disk and ISO renewed -> life recorded
//!   -> boot order -> power on -> Agent back -> in the buffer
//! ```
//!
//! The number of the life stands in the request (`spec.goal.life`), in the record and in `extraConfig` of the VM. So each step is decided from
//! what is seen, and a crash between any two of them repeats none that had an effect.
//!
//! Guarantees
//! - A VM is touched only while its Agent is free of any Machine, by a live read directly before the call.
//! - The host id stays: it follows from the BIOS UUID. So the same Agent comes back.
//! - An Agent is back only if something that it shows belongs to the new boot ([`is_back`]). The service may be away or write late:
//!   what it shows then is of the life before. So neither time nor a changed state proves anything by itself.
//! - Who claims the host on its way gets it as it is, and it runs.
//! - A VM whose Agent does not come back by the discovery deadline is removed like one that never came. So is one that cannot be
//!   made ready.

use std::time::Duration;

use agent_forge_crds::{
    Time,
    agent::{MAX_LIVES, NextLife, PastLife, RecycleStatus, VmStatus},
    external::agent::{Agent, SKIP_SPOKE_CLEANUP_ANNOTATION},
};
use jiff::Timestamp;

pub use super::generation::generation;
use super::{disk, marker::DiskMark, trace::TraceId};

/// A guest that answers leaves `unbinding` by itself within a minute, and `binding` as well.
const UNBINDING: Duration = Duration::from_secs(300);
/// The service gives a reclaim up after an hour, and looks once a minute.
const RECLAIMING: Duration = Duration::from_secs(62 * 60);
/// A reboot from disk into discovery takes a few minutes.
const REBOOTING: Duration = Duration::from_secs(600);

/// Why a VM begins another life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its Machine is proven gone.
    MachineGone,
    /// The deletion hook of its Machine waits for the guest, which is dead.
    GuestDead,
}

impl Why {
    /// As in the record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MachineGone => "MachineGone",
            Self::GuestDead => "GuestDead",
        }
    }
}

/// How far a VM is on its way into another life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is not on that way.
    No,
    /// The pool asks for that life. Nothing is recorded yet.
    Asked(u32),
    /// That life is on record. The VM is in the life before.
    Recorded(u32),
    /// The VM is in its new life, and its Agent is not back yet.
    Begun,
}

/// The life after the present one.
#[must_use]
pub fn next(vm: &VmStatus) -> NextLife {
    NextLife {
        attempt: vm.attempt.unwrap_or(1),
        generation: i32::try_from(generation(vm) + 1).unwrap_or(i32::MAX),
    }
}

/// Reads the stage. `asked`: the life that the pool asks for. It counts if it is the next one of this VM, and no other does.
#[must_use]
pub fn stage(vm: &VmStatus, asked: Option<NextLife>) -> Stage {
    if vm.bios_uuid.is_none() || vm.attempt.is_none() {
        return Stage::No;
    }
    let recorded = vm.recycle.as_ref();
    let recorded = recorded.and_then(|r| u32::try_from(r.generation).ok());
    match recorded {
        Some(life) if life <= generation(vm) => Stage::Begun,
        Some(life) => Stage::Recorded(life),
        None if asked == Some(next(vm)) => Stage::Asked(generation(vm) + 1),
        None => Stage::No,
    }
}

/// The record of a VM that is in the life `shown`, where the record says another one. A way into a life that is not ahead any
/// more is void: it leads into the next one. So is a person's request for another VM: `asked`, the annotation `replace`.
/// `disk`: what the VM says of its disks, if its host was offered to nobody since.
#[must_use]
pub fn in_life(
    vm: &VmStatus,
    shown: u32,
    disk: Option<DiskMark>,
    asked: Option<i32>,
    now: Option<Time>,
) -> VmStatus {
    let number = |life: u32| i32::try_from(life).unwrap_or(i32::MAX);
    // Whose data it is, this record does not know.
    let unknown = VmStatus::default();
    let mut vm = VmStatus {
        generation: (shown > 1).then(|| number(shown)),
        disk: disk::record(&unknown, shown, disk),
        replace_ignored: asked,
        ..vm.clone()
    };
    if let Some(way) = &mut vm.recycle {
        *way = RecycleStatus {
            generation: way.generation.max(number(shown.saturating_add(1))),
            started_at: now,
            state_before: None,
            restarted: None,
            report_before: None,
            new_disk: None,
            ..way.clone()
        };
    }
    vm
}

/// What the Agent of a VM says about touching the VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// Nothing stands against it.
    Free,
    /// The guest is on its way back by itself. It gets that long, counted from the record.
    Returns(Duration),
    /// It serves a Machine, or is about to.
    Serves,
    /// It shows a state that is not known here, or none yet. Nothing is done to the VM.
    Unknown,
}

/// Reads what that Agent says. `off`: its VM is switched off, so that nothing happens by itself. The lists have every state of
/// the service, also those that it does not use any more.
#[must_use]
pub fn says(agent: Option<&Agent>, off: bool) -> Says {
    let Some(agent) = agent else {
        return Says::Free;
    };
    if agent.is_claimed_or_bound() {
        return Says::Serves;
    }
    match agent.state() {
        // Without a cluster, a host in `binding` was to be bound, and is to be unbound. The service does that only after its
        // guest has registered again.
        "unbinding" | "binding" if !off => Says::Returns(UNBINDING),
        "unbinding"
        | "binding"
        | "unbinding-pending-user-action"
        | "discovering-unbound"
        | "known-unbound"
        | "insufficient-unbound"
        | "disconnected-unbound"
        | "disabled-unbound"
        | "error"
        | "cancelled" => Says::Free,
        "reclaiming" => Says::Returns(RECLAIMING),
        "reclaiming-rebooting" => Says::Returns(REBOOTING),
        // What the service does with a host of a cluster. Its reference to the cluster went a moment ago.
        "known"
        | "discovering"
        | "insufficient"
        | "disconnected"
        | "disabled"
        | "resetting"
        | "resetting-pending-user-action"
        | "pending-for-input"
        | "preparing-for-installation"
        | "preparing-successful"
        | "preparing-failed"
        | "installing"
        | "installing-in-progress"
        | "installing-pending-user-action"
        | "installed"
        | "added-to-existing-cluster" => Says::Serves,
        _ => Says::Unknown,
    }
}

/// How much longer a guest is left alone that returns by itself.
#[must_use]
pub fn left(record: Option<&RecycleStatus>, patience: Duration, now: Timestamp) -> Duration {
    let since = record.and_then(|r| r.started_at.as_ref());
    let gone_by = since.and_then(|t| Duration::try_from(now.duration_since(t.0)).ok());
    patience.saturating_sub(gone_by.unwrap_or_default())
}

/// How many hours the operator works on a VM that is still in the life before. By then vCenter refuses the change for good, or
/// something else does. An outage of vCenter, or a guest that returns by itself, takes less. The calendar does not count: people
/// may have held the VM, or no operator ran.
const RENEWING_HOURS: i32 = 24;

/// The VM was to begin another life, and could not be made ready in all that time.
#[must_use]
pub fn is_overdue(vm: &VmStatus) -> bool {
    let record = vm.recycle.as_ref();
    let recorded = record.filter(|r| i64::from(r.generation) > i64::from(generation(vm)));
    recorded.is_some_and(|r| r.hours_tried.unwrap_or(0) >= RENEWING_HOURS)
}

/// The states of a host that was discovered and serves nobody.
const DISCOVERED: [&str; 2] = ["known-unbound", "insufficient-unbound"];

/// The states of a host whose guest registers again, or is silent.
const RESTARTED: [&str; 2] = ["discovering-unbound", "disconnected-unbound"];

/// The states of a host that has no cluster.
const UNBOUND: [&str; 4] = [
    "discovering-unbound",
    "known-unbound",
    "insufficient-unbound",
    "disconnected-unbound",
];

/// Whether that Agent shows that its guest has reported again since the VM was made ready. Each proof belongs to the new boot:
///
/// - The inventory names the new disk. No guest of an earlier life has seen it. An inventory that names another disk of vSphere
///   is an earlier one, and then nothing else counts.
/// - The inventory is younger than the power-off, and than the one that the Agent showed then, by the clock of the guest.
/// - The guest has started since. That is recorded, as it passes ([`has_restarted`]).
/// - There was no Agent when the VM was off. A guest that is off registers none.
#[must_use]
pub fn is_back(vm: &VmStatus, agent: &Agent) -> bool {
    let Some(record) = vm.recycle.as_ref() else {
        return true;
    };
    let state = agent.state();
    if agent.is_claimed_or_bound() || agent.is_deleting() || !DISCOVERED.contains(&state) {
        return false;
    }
    if shows_disk_before(record, agent) {
        return false;
    }
    let since_off = |t: &Time| vm.generation_since.as_ref().is_some_and(|off| t.0 > off.0);
    let before = record.report_before.as_ref();
    let reported = agent
        .inventory_time()
        .is_some_and(|t| since_off(&t) && before.is_none_or(|before| t.0 > before.0));
    let created = agent.metadata.creation_timestamp.as_ref();
    record
        .new_disk
        .as_deref()
        .is_some_and(|disk| names_disk(agent, disk))
        || reported
        || record.restarted == Some(true)
        || record.state_before.is_none() && created.is_some_and(since_off)
}

/// How vCenter begins the UUID of each disk that it makes.
const DISK_OF_VSPHERE: &str = "6000c29";

/// The inventory is of an earlier life: its guest sees the UUIDs of its disks, and not that of the new one.
fn shows_disk_before(record: &RecycleStatus, agent: &Agent) -> bool {
    let new = record.new_disk.as_deref();
    new.is_some_and(|disk| !names_disk(agent, disk)) && names_disk(agent, DISK_OF_VSPHERE)
}

/// The disk to look for in the inventory of the VM's Agent: the one that the VM has now, `shown`, if the Agent's inventory
/// does not name it. `before`: the Agent while the VM is off. No inventory of an earlier life can name a disk that is new. A kept
/// disk is named already, so it proves nothing.
#[must_use]
pub fn new_disk(before: Option<&Agent>, shown: Option<&str>) -> Option<String> {
    let (before, shown) = before.zip(shown)?;
    (!names_disk(before, shown)).then(|| shown.to_owned())
}

/// Whether the inventory of that Agent names a disk with this UUID, or part of one. vSphere shows a guest the UUID of a disk as its serial
/// number and world wide name, as each VM has `disk.EnableUUID`. Where it does not, the other proofs are left.
fn names_disk(agent: &Agent, uuid: &str) -> bool {
    let has = |text: &str| {
        let text = text.replace('-', "").to_ascii_lowercase();
        text.contains(uuid)
    };
    let inventory = agent.status.as_ref().and_then(|s| s.inventory.as_ref());
    let mut disks = inventory.iter().flat_map(|i| &i.disks);
    disks.any(|disk| {
        let texts = [&disk.id, &disk.wwn, &disk.serial];
        texts.into_iter().flatten().any(|text| has(text))
    })
}

/// The past lives of a VM, now that its present one is over. `host`: the name of the host in it. `trace`: the trace of the
/// machine that had it.
#[must_use]
pub fn lives(
    vm: &VmStatus,
    host: Option<String>,
    trace: TraceId,
    until: Option<Time>,
) -> Vec<PastLife> {
    let mut lives = vm.lives.clone();
    let number = i32::try_from(generation(vm)).unwrap_or(i32::MAX);
    if lives.last().is_some_and(|life| life.generation >= number) {
        return lives;
    }
    lives.push(PastLife {
        generation: number,
        since: vm.generation_since.clone().or(vm.first_powered_on.clone()),
        until,
        machine: vm.machine_ref.as_ref().and_then(|m| m.name.clone()),
        control_plane: vm
            .agent_machine_ref
            .as_ref()
            .and_then(|am| am.namespace.clone()),
        host_name: host.filter(|name| !name.is_empty()),
        trace_id: Some(trace.to_string()),
    });
    let old = lives.len().saturating_sub(MAX_LIVES);
    lives.drain(..old);
    lives
}

/// The trace of the life before the one that has the trace `own`.
#[must_use]
pub fn trace_before(vm: &VmStatus, own: TraceId) -> Option<TraceId> {
    let traces = vm.lives.iter().rev().filter_map(|l| l.trace_id.as_deref());
    traces.filter_map(TraceId::parse).find(|t| *t != own)
}

/// A guest registers within a few minutes. The service then takes the Node out of the hosted cluster, before it writes
/// anything to the Agent.
const CLEANUP: Duration = Duration::from_secs(600);
/// What the operator writes into the annotation that ends the clean-up.
pub const SKIPPED: &str = "agent-forge";

/// Whether the Agent of a VM in its new life still shows the state of the life before, because the service cannot take its
/// Node out of the hosted cluster with that control plane.
#[must_use]
pub fn cleanup_hangs(vm: &VmStatus, agent: &Agent, control_plane: &str, now: Timestamp) -> bool {
    let Some(record) = vm.recycle.as_ref() else {
        return false;
    };
    let status = agent.status.as_ref();
    let leaves = status.and_then(|s| s.deprovision_info.as_ref());
    let since = vm.generation_since.as_ref();
    let lasted = since.and_then(|t| Duration::try_from(now.duration_since(t.0)).ok());
    !agent.is_claimed_or_bound()
        && !agent.is_deleting()
        && LEAVING.contains(&agent.state())
        && record.state_before.as_deref() == Some(agent.state())
        && leaves.is_some_and(|l| l.cluster_namespace.as_deref() == Some(control_plane))
        && lasted.is_some_and(|lasted| lasted >= CLEANUP)
        && skips_cleanup(agent).is_none()
}

/// The states of a host that leaves its cluster.
const LEAVING: [&str; 4] = [
    "unbinding",
    "unbinding-pending-user-action",
    "reclaiming",
    "reclaiming-rebooting",
];

/// The value of the annotation that ends the clean-up.
#[must_use]
pub fn skips_cleanup(agent: &Agent) -> Option<&str> {
    let annotations = agent.metadata.annotations.as_ref()?;
    annotations
        .get(SKIP_SPOKE_CLEANUP_ANNOTATION)
        .map(String::as_str)
}

/// Whether that Agent shows that its guest started again, and the record does not say so yet. The state is a passing one, and the
/// service may not show it. Where the inventory names a disk, that decides, and nothing is recorded.
///
/// - The host has left its cluster since: the service does that when the guest registers again.
/// - The guest registers again, and was known before.
/// - The service misses the guest: it was off. A state of a discovered host after that is one of the new boot.
///
/// `discovering-unbound` before says nothing: the service makes `known-unbound` of the last report before the power-off.
#[must_use]
pub fn has_restarted(record: &RecycleStatus, agent: &Agent) -> bool {
    let (before, state) = (record.state_before.as_deref(), agent.state());
    record.restarted != Some(true)
        && !(record.new_disk.is_some() && names_disk(agent, DISK_OF_VSPHERE))
        && UNBOUND.contains(&state)
        && before.is_some_and(|before| {
            !UNBOUND.contains(&before) || RESTARTED.contains(&state) && before != state
        })
}

#[cfg(test)]
mod tests;
