//! A host whose guest booted the discovery ISO instead of its disk.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A host that serves and runs, and what is known of its VM.
fn astray<'a>(vm: &'a VmStatus, seen: &'a Ownership, repair: Repair) -> Facts<'a> {
    with(wanted(Some(vm), seen), |f| {
        f.agent.bound = true;
        f.agent.present = true;
        f.vm.repair = repair;
    })
}

fn ours_with(change: impl FnOnce(&mut VmObservation)) -> Ownership {
    Ownership::Ours(Box::new(with(shown(&child("a"), PowerState::On), change)))
}

fn reason(step: Step) -> Option<(Reason, Option<Duration>)> {
    match step {
        Step::Hold { reason, again, .. } => Some((reason, again)),
        _ => None,
    }
}

#[test]
fn the_iso_goes_out_the_order_is_set_the_reset_is_recorded_and_then_sent() {
    let vm = running(&child("a"));
    let unseen = Ownership::NotAsked;
    let disordered =
        ours_with(|vm| vm.boot_order = vec![BootDevice::Cdrom, BootDevice::Disk(2000)]);
    let ordered = ours(PowerState::On);
    let order = Step::Configure(Change::BootOrder(vec![2000]));
    for (what, seen, repair, step) in [
        ("a look comes first", &unseen, Repair::Due, Step::Look),
        (
            "also before the call",
            &unseen,
            Repair::Recorded,
            Step::Look,
        ),
        (
            "the order is wrong",
            &disordered,
            Repair::Due,
            order.clone(),
        ),
        ("it is wrong again", &disordered, Repair::Recorded, order),
        (
            "the order is right",
            &ordered,
            Repair::Due,
            Step::Record(Entry::Reset),
        ),
        (
            "it is on record",
            &ordered,
            Repair::Recorded,
            Step::Power(Power::Reset),
        ),
        (
            "nothing is wrong",
            &ordered,
            Repair::NotNeeded,
            Step::Settled,
        ),
        (
            "the order alone is no reason",
            &disordered,
            Repair::NotNeeded,
            Step::Settled,
        ),
    ] {
        assert_eq!(next(&astray(&vm, seen, repair)), step, "{what}");
    }
    let disc = with(astray(&vm, &disordered, Repair::Due), |f| f.vm.eject = true);
    assert_eq!(next(&disc), Step::Configure(Change::Eject));
}

#[test]
fn it_is_reported_while_it_boots_and_when_the_operator_may_do_no_more() {
    let vm = running(&child("a"));
    let seen = ours(PowerState::On);
    let waits = Repair::Waits(7 * MINUTE);
    for looked in [&Ownership::NotAsked, &seen] {
        let said = reason(next(&astray(&vm, looked, waits)));
        assert_eq!(said, Some((Reason::BootOrderRepaired, Some(7 * MINUTE))));
    }
    let wrong = Some((Reason::BootOrderWrong, Some(MINUTE)));
    for repair in [Repair::Exhausted, Repair::Unexplained] {
        let over = astray(&vm, &Ownership::NotAsked, repair);
        assert_eq!(next(&over), Step::Look, "its devices are shown");
        assert_eq!(reason(next(&astray(&vm, &seen, repair))), wrong);
    }
    let bare = ours_with(|vm| vm.disk_keys = Vec::new());
    for repair in [Repair::Due, Repair::Recorded] {
        assert_eq!(reason(next(&astray(&vm, &bare, repair))), wrong, "no disk");
    }
}

/// Otherwise each of them would be refused again and again.
#[test]
fn a_busy_vm_gets_none_of_the_calls() {
    let vm = running(&child("a"));
    let disordered = ours_with(|vm| vm.boot_order = vec![BootDevice::Cdrom]);
    let ordered = ours(PowerState::On);
    for (seen, repair) in [(&disordered, Repair::Due), (&ordered, Repair::Recorded)] {
        let busy = with(astray(&vm, seen, repair), |f| {
            f.vm.resting = Some(resting(E::EjectIso, &Reason::EjectFailed, 7));
        });
        let again = Some(Duration::from_secs(7));
        assert_eq!(reason(next(&busy)), Some((Reason::EjectFailed, again)));
    }
}

#[test]
fn only_a_running_vm_of_ours_whose_machine_lives_is_reset() {
    let vm = running(&child("a"));
    let seen = ours(PowerState::On);
    let foreign = Ownership::Foreign {
        what: "vm-9".to_owned(),
        met: FoundBy::Uuid,
        at: Duration::from_secs(100),
    };
    for repair in [Repair::Due, Repair::Recorded] {
        let of = |seen| astray(&vm, seen, repair);
        for (what, facts) in [
            ("it is off", of(&ours(PowerState::Off))),
            ("it is suspended", of(&ours(PowerState::Suspended))),
            ("it is foreign", of(&foreign)),
            ("it is missing", of(&Ownership::Absent { proofs: 2 })),
            (
                "its Machine goes",
                with(of(&seen), |f| f.owner.state = &MachineState::Leaving),
            ),
            (
                "its record goes",
                with(of(&seen), |f| f.object.deleting = true),
            ),
            (
                "it was adopted",
                with(of(&seen), |f| f.object.adopted = true),
            ),
        ] {
            let step = next(&facts);
            let harmless = !matches!(
                step,
                Step::Power(Power::Reset)
                    | Step::Record(Entry::Reset)
                    | Step::Configure(Change::BootOrder(_))
            );
            assert!(harmless, "{what}: {step:?}");
        }
    }
}
