//! The way of a VM into another life, step by step, and what holds it back.

use super::*;
use crate::domain::marker::MayServe;

/// A VM that served, in the buffer, with the intent of its second life on record.
fn recycled<'a>(vm: &'a VmStatus, seen: &'a Ownership) -> Facts<'a> {
    with(wanted(Some(vm), seen), |f| {
        f.owner.state = &MachineState::Buffer;
        f.agent.present = true;
        f.agent.has_served = true;
        f.recycle.stage = Stage::Recorded(2);
    })
}

fn seen(power: PowerState, life: Option<u32>) -> Ownership {
    let mut vm = shown(&child("a"), power);
    vm.generation = life;
    vm.may_serve = life.map(MayServe::no);
    Ownership::Ours(Box::new(vm))
}

fn reason(step: &Step) -> Option<Reason> {
    match step {
        Step::Hold { reason, .. } => Some(reason.clone()),
        _ => None,
    }
}

#[test]
fn intent_power_off_renewal_and_life_follow_each_other() {
    let c = child("a");
    let vm = running(&c);
    let asked = with(recycled(&vm, &Ownership::NotAsked), |f| {
        f.recycle.stage = Stage::Asked(2);
    });
    assert_eq!(next(&asked), Step::Record(Entry::NextLife));
    // The guard looks at a VM that runs by its record before it is switched off.
    let unseen = recycled(&vm, &Ownership::NotAsked);
    assert_eq!(next(&unseen), Step::Power(Power::Off));
    let told = with(unseen, |f| f.vm.missing_in_scan = true);
    let claimed = with(unseen, |f| f.recycle.claimed = true);
    let was_off = with(vm.clone(), |v| {
        v.power_state = Some("poweredOff".to_owned())
    });
    let off_by_record = recycled(&was_off, &Ownership::NotAsked);
    let off_by_us = with(unseen, |f| f.vm.switched_off_by_us = true);
    for unclear in [told, claimed, off_by_record, off_by_us] {
        assert_eq!(next(&unclear), Step::Look);
    }
    let on = seen(PowerState::On, None);
    assert_eq!(next(&recycled(&vm, &on)), Step::Power(Power::Off));
    let suspended = seen(PowerState::Suspended, None);
    assert_eq!(next(&recycled(&vm, &suspended)), Step::Power(Power::Off));
    let off = seen(PowerState::Off, None);
    assert_eq!(
        next(&recycled(&vm, &off)),
        Step::Configure(Change::NewLife(2))
    );
    // A crash after the change: what vCenter shows says that it was done.
    let ready = seen(PowerState::Off, Some(2));
    assert_eq!(next(&recycled(&vm, &ready)), Step::Record(Entry::Begun(2)));
    // That of an earlier life does not count.
    let third = with(recycled(&vm, &ready), |f| {
        f.recycle.stage = Stage::Recorded(3)
    });
    assert_eq!(next(&third), Step::Configure(Change::NewLife(3)));
    // What was made ready in another life, or was offered to somebody since, may have served: the record is older.
    let used = |life, machine: Option<&str>| {
        let mut vm = shown(&child("a"), PowerState::Off);
        vm.generation = Some(life);
        vm.may_serve = machine.map(|machine| MayServe {
            life,
            machine: Some(machine.to_owned()),
        });
        Ownership::Ours(Box::new(vm))
    };
    for (seen, expected) in [
        (used(2, Some("uid")), Step::Record(Entry::Life(2))),
        (used(2, None), Step::Record(Entry::Life(2))),
        (used(5, None), Step::Record(Entry::Life(5))),
        (seen(PowerState::Off, Some(5)), Step::Record(Entry::Life(5))),
    ] {
        assert_eq!(next(&recycled(&vm, &seen)), expected);
    }
}

/// What people keep is neither switched off nor renewed. Its Agent is fenced.
#[test]
fn a_vm_that_people_keep_stays_as_it_is_until_they_let_it_go() {
    let vm = running(&child("a"));
    let (on, off) = (seen(PowerState::On, None), seen(PowerState::Off, None));
    for policy in [RETAIN, Policy::SkipDelete] {
        for (stage, shown) in [
            (Stage::Asked(2), &on),
            (Stage::Recorded(2), &on),
            (Stage::Recorded(2), &off),
        ] {
            let kept = with(recycled(&vm, shown), |f| {
                f.recycle.stage = stage;
                f.pool.policy = policy;
            });
            let what = format!("{policy} {stage:?}");
            assert_eq!(reason(&next(&kept)), Some(Reason::Retained), "{what}");
            let late = with(kept, |f| f.recycle.overdue = true);
            assert_eq!(reason(&next(&late)), Some(Reason::Retained), "{what}");
            let open = with(kept, |f| f.agent.fenced = false);
            assert_eq!(next(&open), Step::Agent(AgentWork::Fence), "{what}");
            let serves = with(open, |f| f.recycle.says = Says::Serves);
            assert_eq!(reason(&next(&serves)), Some(Reason::AgentBound), "{what}");
        }
        let keep = |f: &mut Facts<'_>| f.pool.policy = policy;
        let ready = seen(PowerState::Off, Some(2));
        let renewed = with(recycled(&vm, &ready), keep);
        assert_eq!(next(&renewed), Step::Record(Entry::Begun(2)), "{policy}");
        // The hook of its Machine is freed as without recycling.
        let stuck = with(recycled(&vm, &off), |f| {
            keep(f);
            f.owner.state = &MachineState::Leaving;
            f.owner.stuck_on_guest = true;
        });
        assert_eq!(
            next(&stuck),
            Step::Agent(AgentWork::ReleaseHook),
            "{policy}"
        );
        let runs = with(stuck, |f| f.vm.seen = &on);
        assert_eq!(reason(&next(&runs)), Some(Reason::WaitingForGuest));
    }
}

/// A disk that stays has data on it: only a person gives the VM up.
#[test]
fn a_vm_with_a_kept_disk_is_not_given_up_for_silence() {
    let runs = running(&child("a"));
    let on = ours(PowerState::On);
    let late = |allowed| {
        with(recycled(&runs, &on), |f| {
            f.agent.has_served = false;
            f.recycle.stage = Stage::Begun;
            f.recycle.keeps_disk = true;
            f.vm.powered_on_by_us = true;
            f.arrival = Arrival::Overdue {
                cause: Cause::NotRegistered,
                exhausted: false,
                allowed,
            };
        })
    };
    let asks = Some(Reason::AgentDiscoveryExpired);
    assert_eq!(reason(&next(&late(false))), asks);
    assert_eq!(next(&late(true)), Step::Attempt(Attempt::GivenUp));
}

/// A hook waits for a dead guest, and vCenter refuses to make its VM ready: the Agent goes, as without recycling.
#[test]
fn a_hook_is_released_when_its_vm_cannot_be_made_ready() {
    let vm = running(&child("a"));
    let off = seen(PowerState::Off, None);
    let stuck = with(recycled(&vm, &off), |f| {
        f.owner.state = &MachineState::Leaving;
        f.owner.stuck_on_guest = true;
    });
    assert_eq!(next(&stuck), Step::Configure(Change::NewLife(2)));
    let overdue = with(stuck, |f| f.recycle.overdue = true);
    assert_eq!(next(&overdue), Step::Agent(AgentWork::ReleaseHook));
    let on = seen(PowerState::On, None);
    let runs = with(overdue, |f| f.vm.seen = &on);
    assert_eq!(next(&runs), Step::Power(Power::Off));
}

#[test]
fn nothing_is_done_to_a_vm_whose_agent_serves_or_returns_by_itself() {
    let c = child("a");
    let vm = running(&c);
    let on = seen(PowerState::On, None);
    let serves = with(recycled(&vm, &on), |f| f.recycle.says = Says::Serves);
    assert_eq!(reason(&next(&serves)), Some(Reason::AgentBound));
    let returns = |left| {
        next(&with(recycled(&vm, &on), |f| {
            f.recycle.says = Says::Returns(Duration::from_secs(left));
        }))
    };
    assert_eq!(reason(&returns(1)), Some(Reason::Recycling));
    assert_eq!(returns(0), Step::Power(Power::Off));
    let open = with(recycled(&vm, &on), |f| f.agent.fenced = false);
    assert_eq!(next(&open), Step::Agent(AgentWork::Fence));
    let no_iso = with(recycled(&vm, &on), |f| f.pool.iso_ready = false);
    assert_eq!(reason(&next(&no_iso)), Some(Reason::IsoNotReady));
    let foreign = Ownership::Foreign {
        what: "VM x".into(),
        met: FoundBy::Uuid,
        at: Duration::ZERO,
    };
    let lost = recycled(&vm, &foreign);
    assert_eq!(reason(&next(&lost)), Some(Reason::OwnershipUnproven));
}

#[test]
fn the_new_life_runs_and_waits_for_its_agent() {
    let c = child("a");
    let runs = running(&c);
    let off = VmStatus {
        power_state: Some("poweredOff".into()),
        ..runs.clone()
    };
    let begun = |vm, seen| {
        with(recycled(vm, seen), |f| {
            f.agent.has_served = false;
            f.recycle.stage = Stage::Begun;
        })
    };
    let mut replaced = shown(&c, PowerState::Off);
    replaced.disk_keys = vec![2001];
    let replaced = Ownership::Ours(Box::new(replaced));
    let facts: Facts<'_> = begun(&off, &replaced);
    assert_eq!(next(&facts), Step::Configure(Change::BootOrder(vec![2001])));
    // vCenter came back from a backup: the VM was not made ready for the life on record.
    let later = VmStatus {
        generation: Some(2),
        ..off.clone()
    };
    assert_eq!(
        next(&begun(&later, &replaced)),
        Step::Record(Entry::Life(1))
    );
    // A disk that stays has the old system on it: the CD-ROM boots first.
    let kept = with(facts, |f| f.recycle.keeps_disk = true);
    assert_eq!(next(&kept), Step::Power(Power::On));
    let made = ours(PowerState::Off);
    assert_eq!(next(&begun(&off, &made)), Step::Power(Power::On));
    let on = ours(PowerState::On);
    assert_eq!(next(&begun(&off, &on)), Step::Record(Entry::Seen));
    let waits = begun(&runs, &Ownership::NotAsked);
    assert_eq!(reason(&next(&waits)), Some(Reason::Recycling));
    let anew = with(waits, |f| f.recycle.restarted = true);
    assert_eq!(next(&anew), Step::Record(Entry::Restarted));
    let back = with(waits, |f| f.recycle.back = true);
    assert_eq!(next(&back), Step::Record(Entry::Back));
    // What is installed later must boot from the disk.
    let mut cd_first = shown(&c, PowerState::On);
    cd_first.boot_order.reverse();
    let cd_first = Ownership::Ours(Box::new(cd_first));
    let kept = with(begun(&runs, &cd_first), |f| {
        f.recycle.keeps_disk = true;
        f.recycle.back = true;
    });
    assert!(
        matches!(next(&kept), Step::Configure(Change::BootOrder(_))),
        "{:?}",
        next(&kept)
    );
    let ordered = with(kept, |f| f.vm.seen = &on);
    assert_eq!(next(&ordered), Step::Record(Entry::Back));
}

#[test]
fn a_vm_that_does_not_come_back_is_given_up_or_frees_its_hook_otherwise() {
    let c = child("a");
    let runs = running(&c);
    let on = ours(PowerState::On);
    let late = with(recycled(&runs, &on), |f| {
        f.agent.has_served = false;
        f.recycle.stage = Stage::Begun;
        f.arrival = Arrival::Overdue {
            cause: Cause::NotRegistered,
            exhausted: false,
            allowed: false,
        };
        f.vm.powered_on_by_us = true;
    });
    assert_eq!(next(&late), Step::Attempt(Attempt::GivenUp));
    let back = with(late, |f| f.recycle.back = true);
    assert_eq!(next(&back), Step::Record(Entry::Back));
    let leaving = with(late, |f| f.owner.state = &MachineState::Leaving);
    assert_eq!(next(&leaving), Step::Agent(AgentWork::ReleaseHook));
}

#[test]
fn a_dead_guest_frees_its_hook_by_another_life_where_the_pool_recycles() {
    let c = child("a");
    let runs = running(&c);
    let off = ours(PowerState::Off);
    let stuck = with(wanted(Some(&runs), &off), |f| {
        f.owner.state = &MachineState::Leaving;
        f.owner.stuck_on_guest = true;
        f.agent.present = true;
        f.agent.has_served = true;
    });
    assert_eq!(next(&stuck), Step::Agent(AgentWork::ReleaseHook));
    let recycles = with(stuck, |f| f.recycle.frees_hook = true);
    assert_eq!(next(&recycles), Step::Record(Entry::NextLife));
    let recorded = with(recycles, |f| f.recycle.stage = Stage::Recorded(2));
    assert_eq!(next(&recorded), Step::Configure(Change::NewLife(2)));
}

#[test]
fn a_vm_that_vanished_on_its_way_is_made_anew() {
    let c = child("a");
    let vm = running(&c);
    let absent = Ownership::Absent { proofs: 2 };
    let gone = recycled(&vm, &absent);
    assert_eq!(next(&gone), Step::Agent(AgentWork::Delete));
    let empty = with(gone, |f| f.agent.present = false);
    assert_eq!(next(&empty), Step::Attempt(Attempt::Next));
}

#[test]
fn a_vm_on_its_way_may_be_removed_although_it_served() {
    let c = child("a");
    let vm = running(&c);
    let on = seen(PowerState::On, None);
    let removed = with(recycled(&vm, &on), |f| {
        f.object.deleting = true;
        f.agent.present = false;
    });
    assert_eq!(next(&removed), Step::Power(Power::Off));
}

/// Whoever claims the host on its way has it as it is, and it runs.
#[test]
fn a_claim_ends_the_way_and_the_vm_runs() {
    let vm = running(&child("a"));
    let claimed = |seen| {
        with(recycled(&vm, seen), |f| {
            f.agent.bound = true;
            f.recycle.says = Says::Serves;
            f.recycle.claimed = true;
        })
    };
    let (on, off) = (seen(PowerState::On, None), seen(PowerState::Off, None));
    assert_eq!(next(&claimed(&on)), Step::Record(Entry::Back));
    assert_eq!(next(&claimed(&off)), Step::Power(Power::On));
    let asked = with(claimed(&on), |f| f.recycle.stage = Stage::Asked(2));
    assert_eq!(next(&asked), Step::Settled);
    let renewed = seen(PowerState::Off, Some(2));
    assert_eq!(next(&claimed(&renewed)), Step::Record(Entry::Begun(2)));
    // Another Agent that may run there is no reason to switch anything.
    let other = with(claimed(&off), |f| f.recycle.claimed = false);
    assert_eq!(reason(&next(&other)), Some(Reason::AgentBound));
    let begun = with(claimed(&on), |f| f.recycle.stage = Stage::Begun);
    assert_eq!(next(&begun), Step::Record(Entry::Back));
    let late = with(begun, |f| {
        f.arrival = Arrival::Overdue {
            cause: Cause::NotRegistered,
            exhausted: false,
            allowed: false,
        };
    });
    assert_eq!(next(&late), Step::Record(Entry::Back), "it is not given up");
}

#[test]
fn an_agent_that_is_written_once_more_is_fenced_until_it_is_back() {
    let vm = running(&child("a"));
    let on = seen(PowerState::On, Some(2));
    let open = with(recycled(&vm, &on), |f| {
        f.recycle.stage = Stage::Begun;
        f.agent.fenced = false;
    });
    assert_eq!(next(&open), Step::Agent(AgentWork::Fence));
    let back = with(open, |f| f.recycle.back = true);
    assert_eq!(
        next(&back),
        Step::Record(Entry::Back),
        "its labels come back now"
    );
}

/// What its Agent shows is not known: the VM is neither switched off nor renewed nor destroyed, unless a person forces it.
#[test]
fn a_state_that_is_not_known_holds_back_each_way_down() {
    let vm = running(&child("a"));
    let (on, off) = (seen(PowerState::On, None), seen(PowerState::Off, None));
    for shown in [&on, &off] {
        let unknown = with(recycled(&vm, shown), |f| f.recycle.says = Says::Unknown);
        assert_eq!(reason(&next(&unknown)), Some(Reason::AgentStateUnknown));
        let removed = with(unknown, |f| f.object.deleting = true);
        assert_eq!(reason(&next(&removed)), Some(Reason::AgentStateUnknown));
        let given_up = with(unknown, |f| {
            f.agent.has_served = false;
            f.recycle.stage = Stage::No;
            f.arrival = Arrival::GivenUp;
        });
        assert_eq!(reason(&next(&given_up)), Some(Reason::AgentStateUnknown));
        let forced = with(removed, |f| f.object.forced = true);
        let way_down = matches!(next(&forced), Step::Power(Power::Off) | Step::Destroy);
        assert!(way_down, "{:?}", next(&forced));
    }
}
