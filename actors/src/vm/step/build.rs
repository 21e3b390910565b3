//! A VM that a Machine needs: identity, create, power on, and then left alone.

use std::time::Duration;

use agent_forge_crds::conditions::Reason;

use super::{
    checks,
    facts::{Facts, Loss, PlacementCheck},
    guest,
    owned::{OwnedVm, Purpose, resolve_ownership},
    replace,
    steps::{Attempt, Change, Entry, Power, Step},
    wait::{CONFLICT_PROBE, MISSING_PROBE, Met, hold},
};
use crate::{
    domain::machine_state::MachineState,
    ports::vcenter::{PowerState, VmObservation},
    vm::{
        arrival::{Arrival, Cause},
        boot_repair::{self, Repair},
        ownership::Ownership,
        power_policy::{self, Again},
    },
};

/// The record has an identity.
pub(super) fn identity_is_recorded(f: &Facts<'_>) -> Met {
    if f.record.vm.is_some() && f.record.has_identity {
        return Ok(());
    }
    if let Arrival::Resting(left) = f.arrival {
        return Err(hold(
            Reason::ReplacementResting,
            "the VM before was given up, see status.lastFailure; the next one is made after a rest",
            Some(left),
        ));
    }
    match f.record.loss {
        // A new identity would make a second VM.
        Loss::Unrecoverable => return Err(checks::record_lost()),
        // The VM exists already, and needs no ISO.
        Loss::Restorable => {}
        Loss::None => checks::iso_is_ready(f)?,
    }
    checks::credentials_are_held(f)?;
    Err(Step::Attempt(Attempt::Identity))
}

/// The VM has an identity, and no reference yet.
pub(super) fn create(f: &Facts<'_>) -> Met {
    if !is_untouched(f) {
        let replaceable = f.create.path_taken || f.create.place == PlacementCheck::Elsewhere;
        match resolve_ownership(f, Purpose::Build)? {
            OwnedVm::There(shown) if is_outdated(f) => return replace::give_up(f, shown),
            OwnedVm::There(shown) => return run(f, shown),
            // Its Agent serves, so the VM exists somewhere. The record is older than the VM (a restored hub).
            OwnedVm::Absent if f.serves() => return Err(missing(f)),
            OwnedVm::Absent if replaceable => return Err(Step::Attempt(Attempt::Next)),
            OwnedVm::Absent => {}
        }
    }
    if f.create.place == PlacementCheck::Doubtful {
        return Err(Step::Place);
    }
    checks::iso_is_ready(f)?;
    Err(Step::Create)
}

/// No create was ever sent for this identity, and its place is still right: no look is needed.
fn is_untouched(f: &Facts<'_>) -> bool {
    *f.vm.seen == Ownership::NotAsked
        && f.create.not_sent
        && f.create_task().is_none()
        && f.create.place != PlacementCheck::Elsewhere
        && !f.serves()
}

/// The VM was made: it runs with its tags, and is replaced if its Agent does not come.
pub(super) fn keep(f: &Facts<'_>) -> Met {
    // A VM that serves is not replaced, even if a person asks for that.
    let overdue = matches!(f.arrival, Arrival::Overdue { .. }) && !f.serves();
    let asked = matches!(f.arrival, Arrival::Overdue { allowed: true, .. });
    let runs = f.runs_by_record();
    if *f.vm.seen == Ownership::NotAsked && runs && !overdue && !f.vm.missing_in_scan {
        return keep_unseen(f);
    }
    match resolve_ownership(f, Purpose::Keep)? {
        OwnedVm::There(shown) if overdue && (runs || asked || is_outdated(f)) => {
            replace::give_up(f, shown)
        }
        OwnedVm::There(shown) => run(f, shown),
        OwnedVm::Absent if f.serves() => Err(missing(f)),
        OwnedVm::Absent => {
            guest::agent_is_deleted(f)?;
            Err(Step::Attempt(Attempt::Next))
        }
    }
}

/// The pool wants other hardware, and no Machine can have the VM: it need not run first.
fn is_outdated(f: &Facts<'_>) -> bool {
    let outdated = |cause| cause == Cause::TemplateChanged;
    matches!(f.arrival, Arrival::Overdue { cause, .. } if outdated(cause)) && !f.serves()
}

/// The record says that the VM runs. That is enough, as long as nothing is left to do to it.
fn keep_unseen(f: &Facts<'_>) -> Met {
    let vm = f.record.vm;
    let unnamed = vm.is_some_and(|vm| vm.server_instance_uuid.is_none());
    if f.mark.unseen || f.mark.forgotten {
        Err(Step::Look)
    } else if f.mark.missing {
        // The guard looks at it before the change.
        Err(Step::Configure(Change::MayServe))
    } else if !f.vm.tagged {
        Err(Step::Tag)
    } else if let Repair::Waits(left) = f.vm.repair {
        Err(waits_for_disk(left))
    } else if f.vm.eject || f.vm.repair != Repair::NotNeeded {
        Err(Step::Look)
    } else if unnamed && f.record.vcenter.is_none() {
        Err(Step::Record(Entry::Vcenter))
    } else {
        Ok(())
    }
}

/// `shown` runs, and is recorded as it is.
fn run(f: &Facts<'_>, shown: &VmObservation) -> Met {
    match shown.power {
        PowerState::On if !checks::is_recorded(f, shown) => Err(Step::Record(Entry::Seen)),
        _ if f.mark.forgotten => guest::record_is_current(f),
        PowerState::On if f.mark.missing => Err(Step::Configure(Change::MayServe)),
        PowerState::On if !f.vm.tagged => Err(Step::Tag),
        PowerState::On if f.vm.eject => Err(Step::Configure(Change::Eject)),
        PowerState::On => boots_its_disk(f, shown),
        PowerState::Suspended if f.serves() => Err(suspended()),
        // That resumes it. Its devices cannot be changed before.
        PowerState::Suspended => {
            tags_are_attached(f)?;
            checks::is_time_to_run(f)?;
            Err(Step::Power(Power::On))
        }
        PowerState::Off if f.serves() || f.agent.guest_may_be_node => switched_off(f),
        PowerState::Off => power_on(f, shown),
    }
}

/// The VM of a node runs, as far as is known. It is only looked at.
pub(super) fn node_runs(f: &Facts<'_>) -> Met {
    if *f.vm.seen == Ownership::NotAsked && !f.vm.missing_in_scan {
        return Ok(());
    }
    match resolve_ownership(f, Purpose::Keep)? {
        OwnedVm::There(shown) => match shown.power {
            PowerState::On => Ok(()),
            PowerState::Suspended => Err(suspended()),
            PowerState::Off => switched_off(f),
        },
        OwnedVm::Absent => Err(missing(f)),
    }
}

fn suspended() -> Step {
    hold(
        Reason::VmSuspended,
        "the VM is suspended although its Agent is bound, or was; it is left as it is: resume it in vCenter",
        Some(MISSING_PROBE),
    )
}

/// The guest of an installed host boots its disk. The boot order acts at the next boot.
fn boots_its_disk(f: &Facts<'_>, shown: &VmObservation) -> Met {
    let wrong = || {
        hold(
            Reason::BootOrderWrong,
            boot_repair::explain_wrong(shown, f.vm.repair),
            Some(MISSING_PROBE),
        )
    };
    match f.vm.repair {
        Repair::NotNeeded => Ok(()),
        Repair::Waits(left) => Err(waits_for_disk(left)),
        Repair::Exhausted | Repair::Unexplained => Err(wrong()),
        _ if shown.disk_keys.is_empty() => Err(wrong()),
        _ if !checks::boots_disk_first(shown) => {
            Err(Step::Configure(Change::BootOrder(shown.boot_disks())))
        }
        Repair::Due => Err(Step::Record(Entry::Reset)),
        Repair::Recorded => Err(Step::Power(Power::Reset)),
    }
}

fn waits_for_disk(left: Duration) -> Step {
    hold(
        Reason::BootOrderRepaired,
        boot_repair::WAITS.to_owned(),
        Some(left),
    )
}

fn power_on(f: &Facts<'_>, shown: &VmObservation) -> Met {
    let ordered = checks::boots_disk_first(shown) || shown.disk_keys.is_empty();
    if !ordered {
        return Err(Step::Configure(Change::BootOrder(shown.boot_disks())));
    }
    // The guest never ran and cannot have registered: another host uses the identity of this VM.
    if let Some(agent) = f.agent.early {
        return Err(hold(
            Reason::RivalAgents,
            format!(
                "Agent {agent} has the identity of this VM and was there before it was ever switched on: it stays off, and that \
                 Agent is not approved. Find out which host that is, stop it and delete its Agent"
            ),
            Some(CONFLICT_PROBE),
        ));
    }
    tags_are_attached(f)?;
    checks::is_time_to_run(f)?;
    Err(Step::Power(Power::On))
}

/// Somebody has switched off a VM that serves, or did. The pool says who decides about its power.
fn switched_off(f: &Facts<'_>) -> Met {
    let what =
        "the VM is not powered on although its Agent is bound, or was, or its guest may be a node";
    let wanted = *f.owner.state == MachineState::Alive;
    let off = |words: &str, again| {
        let message = format!("{what}; {words}");
        Err(hold(Reason::VmPoweredOff, message, Some(again)))
    };
    match f.vm.again {
        Again::Now if wanted => {
            checks::is_time_to_run(f)?;
            Err(Step::Power(Power::OnAgain))
        }
        Again::SecondLook(left) if wanted => off(
            "it is switched on when a second look shows the same (spec.power: EnsureOn)",
            left.min(MISSING_PROBE),
        ),
        Again::Limited(left) if wanted => {
            let message = format!(
                "{what}; it was switched on {} times within an hour (spec.power: EnsureOn): find out who switches it off, it is left off \
                 until then",
                power_policy::MOST
            );
            Err(hold(
                Reason::PowerOnLimited,
                message,
                Some(left.min(MISSING_PROBE)),
            ))
        }
        _ => off("it is left as it is", MISSING_PROBE),
    }
}

/// Tags come first: as soon as the VM runs, its Agent may serve, and a VM that serves is left alone.
fn tags_are_attached(f: &Facts<'_>) -> Met {
    let missing_tags = f.record.vm.is_some_and(|vm| vm.tags_missing == Some(true));
    if f.vm.tagged || missing_tags {
        Ok(())
    } else {
        Err(Step::Tag)
    }
}

fn missing(f: &Facts<'_>) -> Step {
    let why = "although its Agent is bound, or was; if nobody brings it back, delete its Machine";
    if f.vm.folder_deleted {
        let message =
            format!("the VM's folder was deleted in vCenter, and the VM is not there {why}");
        return hold(Reason::VmFolderDeleted, message, Some(MISSING_PROBE));
    }
    let message = format!("the VM is not in vCenter {why}");
    hold(Reason::VmMissing, message, Some(MISSING_PROBE))
}

/// Its Machine lives. Otherwise nothing more is built, and a VM that runs stays as it is. While its node drains, it is reported if
/// the VM does not run: the drain may hang for that.
pub(super) fn machine_wants_a_host(f: &Facts<'_>) -> Met {
    let (reason, message) = match f.owner.state {
        MachineState::Alive | MachineState::Buffer => return Ok(()),
        MachineState::Leaving if f.is_made() && f.runs_by_record() && f.agent.bound => {
            node_runs(f)?;
            return Err(Step::Settled);
        }
        _ if f.is_made() && f.runs_by_record() => return Err(Step::Settled),
        MachineState::Nobody => (
            Reason::NoAgentMachine,
            "no AgentMachine is recorded: nothing is built for nobody".to_owned(),
        ),
        MachineState::Leaving => (
            Reason::MachineDeleting,
            "its Machine is being deleted: nothing more is built".to_owned(),
        ),
        MachineState::Gone => (
            Reason::MachineDeleted,
            "its Machine is gone: nothing more is built".to_owned(),
        ),
        MachineState::Unknown(why) => (
            Reason::MachineStateUnknown,
            format!("{why}; nothing is built"),
        ),
    };
    Err(hold(reason, message, None))
}
