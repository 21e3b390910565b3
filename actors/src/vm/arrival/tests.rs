use agent_forge_crds::agent::Failure;
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Time};

use super::*;
use crate::testing::{at, child, running, shown, with};

fn vm(deadline: i64) -> VmStatus {
    with(running(&child("a")), |v| {
        v.discovery_deadline = Some(Time(at(deadline)));
    })
}

fn given_up(attempt: i32, count: i32, when: i64) -> Failure {
    Failure {
        attempt: Some(attempt),
        count: Some(count),
        time: Some(Time(at(when))),
        ..Failure::default()
    }
}

fn sight(known: bool) -> Sight {
    if known { Sight::There } else { Sight::Unseen }
}

fn overdue(exhausted: bool, allowed: bool) -> Arrival {
    Arrival::Overdue {
        cause: Cause::NotRegistered,
        exhausted,
        allowed,
    }
}

#[test]
fn only_one_that_never_had_an_agent_is_overdue() {
    let late = vm(100);
    let read = |vm: &VmStatus, known| arrival(vm, (None, None), sight(known), None, at(100));
    assert_eq!(read(&late, false), overdue(false, false));
    assert_eq!(read(&vm(101), false), Arrival::Awaited);
    assert_eq!(read(&late, true), Arrival::Awaited);
    let had_one = with(late.clone(), |v| {
        v.agent_ref = Some(ObjectReference::default());
    });
    assert_eq!(read(&had_one, false), Arrival::Awaited);
    let undated = with(late, |v| v.discovery_deadline = None);
    assert_eq!(read(&undated, false), Arrival::Awaited);
}

#[test]
fn a_person_allows_one_attempt_not_all_to_come() {
    let late = with(vm(0), |v| v.attempt = Some(6));
    let before = given_up(5, REPLACEMENTS, 0);
    let read = |allowed| {
        arrival(
            &late,
            (Some(&before), None),
            Sight::Unseen,
            allowed,
            at(100),
        )
    };
    assert_eq!(read(None), overdue(true, false));
    assert_eq!(read(Some(5)), overdue(true, false));
    assert_eq!(read(Some(6)), overdue(true, true));
    let fewer = given_up(5, REPLACEMENTS - 1, 0);
    assert_eq!(
        arrival(&late, (Some(&fewer), None), Sight::Unseen, None, at(100)),
        overdue(false, false)
    );
}

#[test]
fn what_was_given_up_stays_given_up_and_the_next_one_rests() {
    let late = vm(0);
    let failure = given_up(1, 1, 50);
    // Even if its Agent registers after all, or the clock is set back.
    for (known, now) in [(false, 60), (true, 60), (true, -600)] {
        let read = arrival(&late, (Some(&failure), None), sight(known), None, at(now));
        assert_eq!(read, Arrival::GivenUp);
    }
    let bare = VmStatus {
        attempt: Some(1),
        ..VmStatus::default()
    };
    let rest = |count, now| {
        let failure = given_up(1, count, 50);
        match arrival(&bare, (Some(&failure), None), Sight::Unseen, None, at(now)) {
            Arrival::Resting(left) => left.as_secs(),
            Arrival::Awaited => 0,
            other => panic!("{other:?}"),
        }
    };
    for (count, now, left) in [
        (1, 50, 60),
        (1, 80, 30),
        (1, 110, 0),
        (2, 50, 120),
        (3, 50, 240),
        (9, 50, 1800),
        (1, -600, 60),
        (0, 50, 60),
        (i32::MAX, 50, 1800),
    ] {
        assert_eq!(rest(count, now), left, "after {count} at {now}");
    }
    // A failure of another attempt does not concern it.
    for (recorded, failed) in [(Some(2), Some(1)), (None, None)] {
        let (bare, failure) = (
            with(bare.clone(), |v| v.attempt = recorded),
            with(failure.clone(), |f| f.attempt = failed),
        );
        let read = arrival(&bare, (Some(&failure), None), Sight::Unseen, None, at(60));
        assert_eq!(read, Arrival::Awaited);
    }
    let next = with(late, |v| v.attempt = Some(2));
    let read = arrival(&next, (Some(&failure), None), Sight::There, None, at(60));
    assert_eq!(read, Arrival::Awaited);
}

#[test]
fn how_far_it_came_is_told_and_a_named_guest_may_serve() {
    let on = shown(&child("a"), PowerState::On);
    let guest = |address: Option<&str>, host: Option<&str>| {
        with(on.clone(), |v| {
            v.tools = Some("guestToolsRunning".to_owned());
            v.guest_address = address.map(str::to_owned);
            v.guest_host = host.map(str::to_owned);
        })
    };
    let a = Some("192.0.2.7");
    for (seen, word, serves) in [
        (on.clone(), "NoGuest", false),
        (shown(&child("a"), PowerState::Off), "NotRunning", false),
        (guest(None, Some("a")), "NoAddress", false),
        (guest(a, Some("localhost")), "NotRegistered", false),
        (
            guest(a, Some("localhost.localdomain")),
            "NotRegistered",
            false,
        ),
        (guest(a, Some("a")), "NotRegistered", true),
        (guest(a, Some("host-7.example")), "NotRegistered", true),
        (guest(a, None), "NotRegistered", true),
        (
            with(guest(a, Some("a")), |v| v.power = PowerState::Off),
            "NotRunning",
            false,
        ),
    ] {
        assert_eq!((class(&seen), may_serve(&seen)), (word, serves), "{seen:?}");
    }
    for (word, look_at) in [
        ("NotRunning", "events in vCenter"),
        ("NotRegistered", "DNS, proxy and firewall"),
        ("NoAddress", "DHCP, VLAN"),
        ("NoGuest", "console"),
    ] {
        assert!(advice(word).contains(look_at), "{word}");
    }
}

#[test]
fn the_record_counts_in_a_row_and_carries_the_evidence() {
    let seen = with(shown(&child("a"), PowerState::On), |v| {
        v.tools = Some("guestToolsNotRunning".to_owned());
    });
    let first = failure(&vm(0), Cause::NotRegistered, None, &seen, at(7));
    assert_eq!((first.attempt, first.count), (Some(1), Some(1)));
    assert_eq!(first.class.as_deref(), Some("NoGuest"));
    assert_eq!(first.power_state.as_deref(), Some("poweredOn"));
    assert_eq!(first.tools_status.as_deref(), Some("guestToolsNotRunning"));
    assert!(first.bios_uuid.is_some() && first.moref.is_some());
    let second = with(vm(0), |v| v.attempt = Some(2));
    assert_eq!(
        failure(&second, Cause::NotRegistered, Some(&first), &seen, at(9)).count,
        Some(2)
    );
}

/// The ISO of another InfraEnv may help where no other VM of the old ISO did.
#[test]
fn replacements_are_counted_anew_when_the_source_changes() {
    let source = |name: &str, uid: &str| ObjectReference {
        namespace: Some("ns".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    };
    let old = source("infra", "1");
    let before = with(given_up(4, REPLACEMENTS, 0), |f| {
        f.infra_env_ref = Some(old.clone());
    });
    let late = with(vm(0), |v| v.attempt = Some(5));
    let bare = VmStatus {
        attempt: Some(4),
        ..VmStatus::default()
    };
    for (next, changed) in [
        (old.clone(), false),
        (source("other", "2"), true),
        (source("infra", "2"), true),
    ] {
        let after = BootSource::read(&next);
        let read = |vm: &VmStatus, now| {
            arrival(
                vm,
                (Some(&before), after.as_ref()),
                Sight::Unseen,
                None,
                at(now),
            )
        };
        assert_eq!(read(&late, 100), overdue(!changed, false), "{next:?}");
        let rests = matches!(read(&bare, 70), Arrival::Resting(_));
        assert_eq!(rests, !changed, "{next:?}");
        let made = with(late.clone(), |v| v.infra_env_ref = Some(next.clone()));
        let seen = shown(&child("a"), crate::ports::vcenter::PowerState::On);
        let failed = failure(&made, Cause::NotRegistered, Some(&before), &seen, at(100));
        let count = if changed { 1 } else { REPLACEMENTS + 1 };
        assert_eq!(failed.count, Some(count), "{next:?}");
        assert_eq!(failed.infra_env_ref, Some(next));
    }
}
