use agent_forge_crds::external::agent::{DebugInfo, Progress};

use super::*;
use crate::{
    ports::vcenter::{Cdrom, PowerState},
    testing::{agent_machine, agent_on, at, child, claim, running, shown, with},
};

const MINUTE: Duration = Duration::from_secs(60);

/// The second reset counts as recorded after this many minutes of both clocks.
fn record(count: i32, minute: i64, occurrence: i64) -> BootRepair {
    BootRepair {
        count,
        at: Some(Time(at(minute * 60))),
        state_updated_at: Some(Time(at(occurrence))),
    }
}

/// What an actor knows that has looked at the VM: why the guest of that occurrence booted the ISO, and the reset that it
/// recorded.
fn looked(occurrence: Option<&Time>, booted_iso: bool, recorded: Option<Recorded>) -> Own {
    let mut own = Own {
        recorded,
        ..Own::default()
    };
    assert!(
        own.note(occurrence.cloned(), Some(!booted_iso)),
        "look again"
    );
    assert!(!own.note(occurrence.cloned(), Some(booted_iso)));
    assert!(!own.note(occurrence.cloned(), Some(!booted_iso)), "later");
    own
}

#[test]
fn one_reset_for_an_occurrence_another_for_the_next_one_and_no_third() {
    let minutes = |m: u64| MINUTE * u32::try_from(m).unwrap_or_default();
    let left = |m: u64| Repair::Waits(minutes(m));
    for (what, before, occurrence, minute, decided) in [
        ("the first time", None, Some(1), 0, Repair::Due),
        ("just reset", Some(record(1, 0, 1)), Some(1), 0, left(40)),
        ("it boots", Some(record(1, 0, 1)), Some(1), 39, left(1)),
        (
            "it did not help, or nobody can see it",
            Some(record(1, 0, 1)),
            Some(1),
            40,
            Repair::Exhausted,
        ),
        (
            "it is another one",
            Some(record(1, 0, 1)),
            Some(2),
            5,
            Repair::Due,
        ),
        (
            "the Agent says no time",
            Some(record(1, 0, 1)),
            None,
            5,
            left(35),
        ),
        (
            "the Agent says no time, much later",
            Some(record(1, 0, 1)),
            None,
            500,
            Repair::Exhausted,
        ),
        (
            "the Agent comes from a backup",
            Some(record(1, 0, 20)),
            Some(2),
            40,
            Repair::Exhausted,
        ),
        ("reset twice", Some(record(2, 0, 1)), Some(1), 39, left(1)),
        (
            "twice, in vain",
            Some(record(2, 0, 1)),
            Some(1),
            40,
            Repair::Exhausted,
        ),
        (
            "a third one",
            Some(record(2, 0, 1)),
            Some(2),
            5,
            Repair::Exhausted,
        ),
        (
            "the clock was set back",
            Some(record(1, 90, 1)),
            Some(1),
            0,
            left(40),
        ),
    ] {
        let occurrence = occurrence.map(|second| Time(at(second)));
        let now = (at(minute * 60), minutes(minute.unsigned_abs()));
        let decide = |own: Option<&Own>| repair(before.as_ref(), occurrence.as_ref(), own, now);
        let own = looked(occurrence.as_ref(), true, None);
        assert_eq!(decide(Some(&own)), decided, "{what}");
        // Without a look that shows why, the decision differs only where a reset would be due.
        let unexplained = match decided {
            Repair::Due => Repair::Unexplained,
            other => other,
        };
        let (sees_nothing, other) = (
            looked(occurrence.as_ref(), false, None),
            looked(Some(&Time(at(7))), true, None),
        );
        for own in [None, Some(&sees_nothing), Some(&other)] {
            assert_eq!(decide(own), unexplained, "{what}");
        }
    }
}

/// The record is lost, or is that of an earlier reset.
#[test]
fn a_reset_that_this_actor_sent_counts_without_its_record() {
    let occurrence = Time(at(2));
    let own = |sent| {
        let recorded = Recorded {
            repair: record(2, 0, 2),
            at: Duration::ZERO,
            sent,
        };
        looked(Some(&occurrence), true, Some(recorded))
    };
    let (older, now) = (record(1, 0, 1), (at(60), MINUTE));
    for before in [None, Some(&older)] {
        let decide = |own: &Own, occurrence: i64| {
            let occurrence = Time(at(occurrence));
            repair(before, Some(&occurrence), Some(own), now)
        };
        assert_eq!(decide(&own(true), 2), Repair::Waits(39 * MINUTE));
        assert_eq!(decide(&own(true), 3), Repair::Exhausted, "it had two");
        assert_eq!(decide(&own(false), 2), Repair::Due, "it had not");
        assert_eq!(last(before, Some(&own(true))), Some(&record(2, 0, 2)));
        assert_eq!(last(before, Some(&own(false))), before);
    }
    let later = record(3, 5, 9);
    assert_eq!(last(Some(&later), Some(&own(true))), Some(&later));
}

/// The Agent said no time when the first reset was recorded.
#[test]
fn without_a_report_on_record_only_a_later_one_is_another_occurrence() {
    let before = BootRepair {
        state_updated_at: None,
        ..record(1, 1, 0)
    };
    let decide = |occurrence: Option<i64>, minute: i64| {
        let occurrence = occurrence.map(|second| Time(at(second)));
        let now = (at(minute * 60), Duration::ZERO);
        let own = looked(occurrence.as_ref(), true, None);
        repair(Some(&before), occurrence.as_ref(), Some(&own), now)
    };
    assert_eq!(decide(None, 2), Repair::Waits(39 * MINUTE));
    assert_eq!(decide(None, 60), Repair::Exhausted);
    assert_eq!(decide(Some(30), 60), Repair::Exhausted, "from before");
    assert_eq!(decide(Some(90), 2), Repair::Due);
}

#[test]
fn only_the_actor_that_recorded_a_reset_knows_that_it_was_not_sent() {
    let (before, occurrence) = (record(1, 0, 1), Time(at(1)));
    let own = |repair: BootRepair, sent| {
        let recorded = Recorded {
            repair,
            at: Duration::ZERO,
            sent,
        };
        looked(Some(&occurrence), true, Some(recorded))
    };
    let decide = |own: Option<&Own>, seconds: i64| {
        let now = (at(seconds), Duration::from_secs(60));
        repair(Some(&before), Some(&occurrence), own, now)
    };
    assert_eq!(
        decide(Some(&own(before.clone(), false)), 60),
        Repair::Recorded
    );
    let waits = Repair::Waits(39 * MINUTE);
    assert_eq!(decide(Some(&own(before.clone(), true)), 60), waits);
    assert_eq!(decide(None, 60), waits, "another process recorded it");
    let of_another = own(record(1, 1, 1), false);
    assert_eq!(decide(Some(&of_another), 60), waits, "by the same count");
    // A wall clock that jumps ahead shortens nothing that this actor has seen begin.
    assert_eq!(decide(Some(&own(before.clone(), true)), 9000), waits);
    assert_eq!(decide(None, 9000), Repair::Exhausted);
    let another = Time(at(2));
    let mut unsent = own(before.clone(), false);
    let is_new = unsent.note(Some(another.clone()), None);
    unsent.note(Some(another.clone()), Some(true));
    assert!(is_new);
    let now = (at(60), MINUTE);
    let decided = repair(Some(&before), Some(&another), Some(&unsent), now);
    assert_eq!(decided, Repair::Due, "it was meant for another occurrence");
}

#[test]
fn only_a_host_of_its_machine_that_booted_the_image_again() {
    let ours = with(child("a"), |c| {
        let vm = running(c);
        c.status.get_or_insert_default().vm = Some(vm);
    });
    let ours = ManagedVm::read(std::sync::Arc::new(ours));
    let agent = |machine: Option<&str>, state: &str, info: &str| {
        with(agent_on(&ours.object), |a| {
            if let Some(machine) = machine {
                claim(a, &agent_machine(machine));
            }
            let status = a.status.get_or_insert_default();
            status.debug_info = Some(DebugInfo {
                state: Some(state.to_owned()),
                state_info: Some(info.to_owned()),
            });
            status.progress = Some(Progress::default());
        })
    };
    let booted = "Expected the host to boot from disk, but it booted the installation image - please reboot and fix boot order";
    let slow = "Host timed out when pulling the configuration files. Verify in the host console that it boots from disk";
    for (what, machine, state, info, needed) in [
        ("it booted the image", Some("a"), PENDING, booted, true),
        ("it is slow", Some("a"), PENDING, slow, false),
        ("nothing is said", Some("a"), PENDING, "", false),
        (
            "it goes on",
            Some("a"),
            "installing-in-progress",
            booted,
            false,
        ),
        ("it is another Machine's", Some("b"), PENDING, booted, false),
        ("it is free", None, PENDING, booted, false),
    ] {
        assert_eq!(
            is_needed(&ours, &agent(machine, state, info)),
            needed,
            "{what}"
        );
    }
    let failed = "The host unexpectedly restarted during the installation";
    assert!(is_restarted(&agent(Some("a"), "error", failed)));
    assert!(!is_restarted(&agent(
        Some("a"),
        "error",
        "Failed - no disk"
    )));
    assert!(!is_restarted(&agent(Some("a"), PENDING, failed)));
}

#[test]
fn a_person_reads_which_devices_the_vm_has() {
    let vm = with(shown(&child("a"), PowerState::On), |vm| {
        vm.boot_order = vec![BootDevice::Cdrom, BootDevice::Disk(2000)];
        vm.disk_keys = vec![2000];
        vm.cdroms = vec![Cdrom {
            key: 16000,
            iso: Some("[isos] a.iso".to_owned()),
            connected: false,
            start_connected: true,
        }];
    });
    let said = explain_wrong(&vm, Repair::Exhausted);
    for part in [
        "the Agent still says so after a reset",
        "Boot order: CD-ROM, disk 2000.",
        "Disks: 2000.",
        "CD-ROM drives: 16000 ([isos] a.iso, not connected).",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let said = explain_wrong(&vm, Repair::Unexplained);
    assert!(said.contains("showed why") && !said.contains("after a reset"));
    let bare = with(vm, |vm| {
        vm.boot_order = Vec::new();
        vm.disk_keys = Vec::new();
        vm.cdroms = Vec::new();
    });
    let said = explain_wrong(&bare, Repair::Due);
    assert!(
        said.contains("no disk to boot. Boot order: none. Disks: none."),
        "{said}"
    );
}
