//! Slots in use, waiters, and dropped tickets.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use futures::FutureExt as _;

use super::*;

fn pool() -> ObjectKey {
    ObjectKey::new("demo", "w")
}

fn begins(slots: &Slots) -> Option<Slot> {
    slots.ask(Errand::Begin, &pool()).fetch()
}

#[test]
fn so_many_begin_and_the_next_when_one_has_ended() {
    let slots = Slots::new(Limits::tasks(2));
    let one = begins(&slots);
    let two = begins(&slots);
    assert!(one.is_some() && two.is_some());
    assert!(begins(&slots).is_none());
    drop(one);
    assert!(begins(&slots).is_some());
}

#[test]
fn one_more_is_there_for_removals_alone() {
    let slots = Slots::new(Limits::tasks(1));
    let building = begins(&slots).expect("free");
    assert!(building.serves(Errand::Remove), "a common one serves all");
    let removal = slots.ask(Errand::Remove, &pool());
    let reserve = removal.fetch().expect("reserved");
    assert!(!reserve.serves(Errand::Begin) && !reserve.serves(Errand::GoOn));
    let another = slots.ask(Errand::Remove, &pool());
    assert!(another.fetch().is_none(), "both are in use");
    drop(building);
    let common = another.fetch().expect("it may have a common one");
    assert!(common.serves(Errand::Begin));
    drop(reserve);
    assert!(begins(&slots).is_none(), "the reserve is not for it");
    drop(common);
    assert!(begins(&slots).is_some());
}

/// A half-made VM keeps the slot of its create. Others cannot create with theirs.
#[test]
fn a_slot_of_a_create_serves_all_and_no_other_slot_serves_a_create() {
    let limits = Limits {
        tasks: 3,
        creates: 1,
        creates_per_datastore: 1,
    };
    let slots = Slots::new(limits);
    let first = slots.ask_create(&pool(), "d").fetch().expect("free");
    for errand in [Errand::Create, Errand::Begin, Errand::GoOn, Errand::Remove] {
        assert!(first.serves(errand), "{errand:?}");
    }
    let second = slots.ask_create(&pool(), "e");
    assert!(second.fetch().is_none(), "one create at once");
    let other = begins(&slots).expect("others may begin");
    assert!(!other.serves(Errand::Create) && other.serves(Errand::GoOn));
    first.end_create();
    let _second = second.fetch().expect("the first one is made");
    assert!(!first.serves(Errand::Create) && first.serves(Errand::GoOn));
    assert!(begins(&slots).is_none(), "it still has its slot");
    drop(first);
    assert!(begins(&slots).is_some());
}

#[test]
fn what_runs_already_waits_for_nobody_and_keeps_others_waiting() {
    let slots = Slots::new(Limits::tasks(2));
    let old: Vec<Slot> = (0..3).map(|_| slots.count("d")).collect();
    let mut old = old.into_iter();
    drop(old.next());
    assert!(begins(&slots).is_none(), "two still run");
    drop(old.next());
    let new = begins(&slots);
    assert!(new.is_some(), "one runs");
    assert!(begins(&slots).is_none(), "two run");
    drop((old, new));
    assert_eq!(slots.free(), 2);
}

#[test]
fn who_has_waited_gets_the_slot_that_comes_back() {
    let slots = Slots::new(Limits::tasks(1));
    let old = (slots.count("d"), slots.count("d"));
    let ticket = slots.ask(Errand::Begin, &pool());
    let mut waits = Box::pin(ticket.granted());
    assert!((&mut waits).now_or_never().is_none());
    drop(old.0);
    assert!((&mut waits).now_or_never().is_none(), "one still runs");
    drop(old.1);
    assert!(waits.now_or_never().is_some());
}

#[test]
fn a_wait_that_is_cut_off_keeps_its_place() {
    let slots = Slots::new(Limits::tasks(1));
    let held = begins(&slots);
    let first = slots.ask(Errand::Begin, &pool());
    let second = slots.ask(Errand::Begin, &pool());
    assert!(first.granted().now_or_never().is_none());
    drop(held);
    assert!(second.granted().now_or_never().is_none());
    assert!(first.granted().now_or_never().is_some());
}

#[test]
fn whoever_gives_up_is_passed_over_and_leaves_no_slot_behind() {
    let slots = Slots::new(Limits::tasks(1));
    let held = begins(&slots);
    let tired = slots.ask(Errand::Begin, &pool());
    let patient = slots.ask(Errand::Begin, &pool());
    drop(tired);
    drop(held);
    let unfetched = patient;
    assert_eq!(slots.free(), 0, "it lies ready");
    drop(unfetched);
    assert_eq!(slots.free(), 1);
}

/// A create takes three seconds, and a power-on two. While VMs wait, no slot idles that the limit of creates leaves to them.
#[tokio::test(start_paused = true)]
async fn a_burst_of_creates_uses_all_slots() {
    let limits = Limits {
        tasks: 8,
        creates: 6,
        creates_per_datastore: 6,
    };
    let slots = Slots::new(limits);
    let began = tokio::time::Instant::now();
    let creating = Arc::new(AtomicUsize::new(0));
    let waiting = Arc::new(AtomicUsize::new(50));
    let machines = (0..50).map(|_| {
        let slots = slots.clone();
        let (creating, waiting) = (Arc::clone(&creating), Arc::clone(&waiting));
        tokio::spawn(async move {
            let slot = slots.ask_create(&pool(), "d").granted().await;
            waiting.fetch_sub(1, Relaxed);
            creating.fetch_add(1, Relaxed);
            tokio::time::sleep(Duration::from_secs(3)).await;
            creating.fetch_sub(1, Relaxed);
            slot.end_create();
            tokio::time::sleep(Duration::from_secs(2)).await;
        })
    });
    let machines: Vec<_> = machines.collect();
    let mut idle = 0;
    while waiting.load(Relaxed) > 0 {
        // Between two moments at which something ends.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let left = limits.creates - creating.load(Relaxed);
        idle += slots.free().min(left) * usize::from(waiting.load(Relaxed) > 0);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(idle, 0, "slots idle while VMs wait");
    for machine in machines {
        machine.await.expect("it ends");
    }
    let took = began.elapsed();
    assert!(took <= Duration::from_secs(36), "{took:?}");
    assert_eq!(slots.free(), 8);
}
