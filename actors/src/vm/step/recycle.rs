//! A VM on its way into another life. See [`crate::domain::recycle`] for the whole way.

use std::time::Duration;

use agent_forge_crds::conditions::Reason;

use super::{
    build, checks,
    facts::Facts,
    guest,
    owned::{OwnedVm, Purpose, resolve_ownership},
    remove, replace,
    steps::{AgentWork, Attempt, Change, Entry, Power, Step},
    wait::{MISSING_PROBE, Met, hold},
};
use crate::{
    domain::{
        machine_state::MachineState,
        recycle::{self, Says, Stage},
    },
    lifecycle::{self, End, Renewal, Unneeded},
    ports::vcenter::{PowerState, VmObservation},
    vm::{arrival::Arrival, ownership::Ownership},
};

/// The next step on the way, if the VM is on it.
pub(super) fn go_on(f: &Facts<'_>) -> Met {
    match f.recycle.stage {
        Stage::No => Ok(()),
        // Who has claimed the host has it as it is.
        Stage::Asked(_) if f.recycle.claimed => Ok(()),
        Stage::Asked(_) => {
            is_not_kept(f)?;
            Err(Step::Record(Entry::NextLife))
        }
        Stage::Recorded(life) => make_ready(f, life),
        Stage::Begun => come_back(f),
    }
}

/// The VM is still in its last life: it is switched off, and made ready for that one.
fn make_ready(f: &Facts<'_>, life: u32) -> Met {
    let unseen = *f.vm.seen == Ownership::NotAsked && !f.vm.missing_in_scan;
    let runs = f.runs_by_record() && !f.vm.switched_off_by_us;
    if unseen && runs && !f.recycle.claimed {
        nobody_needs_it(f)?;
        // The guard looks at it before it is switched off.
        return Err(Step::Power(Power::Off));
    }
    let shown = match resolve_ownership(f, Purpose::Recycle)? {
        OwnedVm::There(shown) => shown,
        OwnedVm::Absent => return vanished(f),
    };
    if shown.is_fresh_in(life) {
        return Err(Step::Record(Entry::Begun(life)));
    }
    if f.recycle.claimed {
        return bring_back(f, shown);
    }
    if shown.life() >= life {
        // It was in that life before: its disk may have served since.
        return Err(Step::Record(Entry::Life(shown.life())));
    }
    nobody_needs_it(f)?;
    Err(match shown.power {
        PowerState::Off => Step::Configure(Change::NewLife(life)),
        PowerState::On | PowerState::Suspended => remove::switch_off(f, shown),
    })
}

/// Its life may end now, and another one can begin.
fn nobody_needs_it(f: &Facts<'_>) -> Met {
    guest::record_is_current(f)?;
    guest::silence_is_explained(f)?;
    agent_is_free(f)?;
    guest::agent_is_fenced(f)?;
    is_not_kept(f)?;
    checks::iso_is_ready(f)
}

/// Somebody has claimed the host before it was made ready, and maybe after it was switched off: it runs as before, and stays
/// in its life.
fn bring_back(f: &Facts<'_>, shown: &VmObservation) -> Met {
    match shown.power {
        PowerState::On if !checks::is_recorded(f, shown) => Err(Step::Record(Entry::Seen)),
        PowerState::On | PowerState::Suspended => Err(Step::Record(Entry::Back)),
        PowerState::Off => {
            checks::is_time_to_run(f)?;
            Err(Step::Power(Power::On))
        }
    }
}

/// The Agent is back, or somebody has claimed it: the way is over.
fn is_over(f: &Facts<'_>) -> bool {
    f.recycle.back || f.recycle.claimed
}

/// The VM is still in the life before, and people keep it as it is.
pub(super) fn is_kept(f: &Facts<'_>) -> bool {
    let renewal = Renewal {
        overdue: f.recycle.overdue,
        keeps_disk: f.recycle.keeps_disk,
    };
    let before = matches!(f.recycle.stage, Stage::Asked(_) | Stage::Recorded(_));
    before && lifecycle::end(Unneeded::Renewal(renewal), f.pool.policy) == End::LeaveToPeople
}

/// Nobody keeps the VM as it is. If somebody does, its Agent is fenced all the same: no Machine gets the host.
fn is_not_kept(f: &Facts<'_>) -> Met {
    if !is_kept(f) {
        return Ok(());
    }
    // Only a look shows that an administrator of vCenter keeps it no more.
    let OwnedVm::There(shown) = resolve_ownership(f, Purpose::Recycle)? else {
        return Ok(());
    };
    agent_is_free(f)?;
    guest::agent_is_fenced(f)?;
    let off = match shown.power {
        PowerState::Off => ", which is switched off",
        PowerState::On | PowerState::Suspended => "",
    };
    let message = format!(
        "the VM is to begin another life, and {} keeps it as it is{off}: neither its power nor its disk is touched. Take that off \
         to let it go on, or delete this VsphereAgent: VM and Agent stay without it",
        f.pool.policy
    );
    Err(hold(Reason::Retained, message, Some(MISSING_PROBE)))
}

/// The Agent serves nobody, and its guest does not return by itself.
fn agent_is_free(f: &Facts<'_>) -> Met {
    guest::agent_state_is_known(f)?;
    match f.recycle.says {
        Says::Free | Says::Unknown | Says::Returns(Duration::ZERO) => Ok(()),
        Says::Returns(left) => Err(hold(
            Reason::Recycling,
            "its guest returns into discovery by itself: the VM is left alone meanwhile",
            Some(left.min(MISSING_PROBE)),
        )),
        Says::Serves => Err(hold(
            Reason::AgentBound,
            "the VM is to begin another life, and its Agent serves a Machine or is about to, or its state still says so: nothing is done to the VM",
            Some(MISSING_PROBE),
        )),
    }
}

/// The VM is in its new life: it runs, and its Agent comes back.
fn come_back(f: &Facts<'_>) -> Met {
    let runs = f.runs_by_record();
    // An outage may have lasted until after the deadline.
    let over = is_over(f);
    let overdue = !over && matches!(f.arrival, Arrival::Overdue { .. });
    let settled = runs && !overdue && !f.vm.missing_in_scan;
    if !over {
        // A service that was away may have written the Agent once more.
        guest::agent_is_fenced(f)?;
    }
    if runs && !over && f.recycle.restarted {
        return Err(Step::Record(Entry::Restarted));
    }
    if settled && over && !f.recycle.keeps_disk {
        return Err(Step::Record(Entry::Back));
    }
    if settled && !over && f.recycle.cleanup_hangs {
        return Err(Step::Agent(AgentWork::SkipCleanup));
    }
    if settled && !over && *f.vm.seen == Ownership::NotAsked {
        return Err(awaited());
    }
    let life = f.record.vm.map_or(1, recycle::generation);
    match resolve_ownership(f, Purpose::Recycle)? {
        OwnedVm::There(shown) if shown.life() != life => {
            Err(Step::Record(Entry::Life(shown.life())))
        }
        OwnedVm::There(shown) if overdue && runs => give_up(f, shown),
        OwnedVm::There(_) if f.mark.forgotten => guest::record_is_current(f),
        OwnedVm::There(shown) => run(f, shown),
        OwnedVm::Absent => vanished(f),
    }
}

fn run(f: &Facts<'_>, shown: &VmObservation) -> Met {
    let disk_first = checks::boots_disk_first(shown) || shown.disk_keys.is_empty();
    let order = || Err(Step::Configure(Change::BootOrder(shown.boot_disks())));
    match shown.power {
        PowerState::On if !checks::is_recorded(f, shown) => Err(Step::Record(Entry::Seen)),
        // It booted from its CD-ROM. What is installed later has to boot from the disk.
        PowerState::On if is_over(f) && !disk_first => order(),
        PowerState::On if is_over(f) => Err(Step::Record(Entry::Back)),
        PowerState::On => Err(awaited()),
        PowerState::Off if !f.recycle.keeps_disk && !disk_first => order(),
        PowerState::Off | PowerState::Suspended => {
            checks::is_time_to_run(f)?;
            Err(Step::Power(Power::On))
        }
    }
}

/// The Agent did not come back in time. A hook that waits for it is released in the other way.
fn give_up(f: &Facts<'_>, shown: &VmObservation) -> Met {
    if *f.owner.state == MachineState::Leaving {
        return Err(Step::Agent(AgentWork::ReleaseHook));
    }
    replace::give_up(f, shown)
}

fn awaited() -> Step {
    hold(
        Reason::Recycling,
        "the VM begins another life: its guest boots the discovery ISO, and its Agent is awaited",
        Some(MISSING_PROBE),
    )
}

/// Somebody has removed the VM meanwhile.
fn vanished(f: &Facts<'_>) -> Met {
    guest::agent_is_fenced(f)?;
    guest::agent_is_deleted(f)?;
    build::machine_wants_a_host(f)?;
    Err(Step::Attempt(Attempt::Next))
}
