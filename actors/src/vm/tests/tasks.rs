//! Passes at a vCenter whose tasks are forgotten or do not end.

use agent_forge_crds::conditions::Reason;

use super::*;
use crate::{
    ports::slots::{
        Slots,
        turns::{Errand, Limits},
    },
    vm::{
        step::boots_disk_first,
        testing::vcenter::{SLOTS, Site},
    },
};

#[tokio::test]
async fn a_forgotten_task_has_done_what_the_vm_shows_and_nothing_else() {
    for (kind, done) in [
        (E::Reconfigure, false),
        (E::Reconfigure, true),
        (E::PowerOn, false),
        (E::PowerOn, true),
    ] {
        let mut bench = Bench::new();
        bench.site.with(|i| i.vanishes = Some((kind, done)));
        bench.until(Bench::is_on).await;
        let times = if done { 1 } else { 2 };
        assert_eq!(bench.times(kind), times, "{kind:?}, done: {done}");
        let disk_first = bench.site.with(|i| boots_disk_first(&i.vms[0]));
        assert!(disk_first, "{kind:?}, done: {done}");
    }
}

/// Passes until the VM is reported as busy, which happens if a task does not end.
pub(super) async fn until_busy(bench: &mut Bench) {
    let busy = bench.until(|b| b.waits_on() == Some(Reason::VmBusy));
    tokio::time::timeout(60 * MINUTE, busy)
        .await
        .expect("a pass ends");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_does_not_end_holds_no_slot_and_is_rarely_sent_again() {
    for (kind, method) in [
        (E::Reconfigure, "ReconfigVM_Task"),
        (E::PowerOn, "PowerOnVM_Task"),
        (E::PowerOff, "PowerOffVM_Task"),
        (E::Destroy, "Destroy_Task"),
    ] {
        let up = matches!(kind, E::Reconfigure | E::PowerOn);
        let mut bench = Bench::new();
        if !up {
            bench.until(Bench::is_on).await;
            release(&bench);
        }
        bench.site.with(|i| i.hangs = Some(kind));
        until_busy(&mut bench).await;
        let said = bench.status().waiting_on;
        for part in [method, "VM \"a\"", "vSphere client"] {
            assert!(said[0].message.contains(part), "{part}: {said:?}");
        }
        let free = bench.site.with(|i| i.slots.as_ref().map(Slots::free));
        assert_eq!(free, Some(SLOTS), "{kind:?}");
        for _ in 0..20 {
            bench.turn(MINUTE / 2);
            let reads = bench.site.with(|i| i.reads);
            bench.pass().await;
            assert_eq!(bench.status().waiting_on, said, "it stays said: {kind:?}");
            assert!(bench.site.with(|i| i.reads) > reads, "it is looked at");
        }
        assert_eq!(
            bench.times(kind),
            3,
            "{kind:?}: at first, after 5 min, after 10"
        );
        bench.site.end_task();
        bench.turn(MINUTE);
        bench.pass().await;
        assert_eq!(bench.times(kind), 3, "{kind:?} is done");
        bench
            .until(|b| {
                if up {
                    b.is_on()
                } else {
                    b.hub.with(|o| o.child.is_none())
                }
            })
            .await;
        assert_eq!(bench.times(kind), 3, "{kind:?} is done once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_heard_while_the_vm_hangs_at_its_start() {
    let mut bench = Bench::new();
    bench.site.with(|i| i.hangs = Some(E::PowerOn));
    until_busy(&mut bench).await;
    release(&bench);
    // Another call may help. It is tried at once, and then it rests as well.
    for _ in 0..9 {
        bench.pass().await;
        assert_eq!(bench.times(E::Destroy), 1);
        assert_eq!(bench.waits_on(), Some(Reason::VmBusy));
        bench.turn(MINUTE / 2);
    }
    bench.site.end_task();
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    assert!(bench.site.with(|i| i.vms.is_empty()));
    assert_eq!((bench.times(E::PowerOn), bench.times(E::PowerOff)), (1, 1));
}

#[tokio::test]
async fn a_vm_that_is_busy_for_a_moment_is_tried_soon_and_one_that_stays_busy_rests() {
    let mut bench = Bench::new();
    bench.site.occupy();
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::TaskInProgress));
    bench.site.end_task();
    bench.turn(Duration::from_secs(1));
    bench.pass().await;
    assert!(bench.is_on(), "it did not wait for long");
    let mut bench = Bench::new();
    bench.site.occupy();
    for _ in 0..20 {
        bench.pass().await;
        bench.turn(Duration::from_secs(10));
    }
    assert_eq!(bench.waits_on(), Some(Reason::VmBusy));
    assert_eq!(bench.times(E::Reconfigure), 4, "for half a minute");
    bench.site.end_task();
    bench.until(Bench::is_on).await;
    assert_eq!(bench.times(E::Reconfigure), 5);
}

/// Its Agent may serve before the VM that hung at its start is looked at again.
#[tokio::test(start_paused = true)]
async fn a_vm_that_hung_at_its_start_gets_its_tags() {
    let mut bench = Bench::new();
    bench.hub.with(|o| {
        let vsphere = &mut o.pool.as_mut().expect("pool").spec.vsphere;
        vsphere.vm_tags = Some(vec!["urn:tag".to_owned()]);
    });
    bench.site.with(|i| i.hangs = Some(E::PowerOn));
    until_busy(&mut bench).await;
    bench.site.end_task();
    bind_agent(&bench);
    bench.turn(MINUTE);
    bench.until(Bench::is_on).await;
    assert_eq!(bench.times(E::AttachTags), 1);
}

const MACHINES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Brings all of them up, as one process of the operator with two slots does.
async fn up(machines: &mut [Bench], site: &Site) {
    site.with(|i| i.slots = Some(Slots::new(Limits::tasks(2))));
    let ups = machines.iter_mut().map(|bench| bench.until(Bench::is_on));
    futures::future::join_all(ups).await;
}

/// A create takes longer than one wait of the operator, and the first process is killed while two creates run.
#[tokio::test(start_paused = true)]
async fn the_bound_on_creates_holds_over_a_pause_and_over_a_kill() {
    let site = Site::default();
    site.with(|i| i.create_takes = 5 * MINUTE);
    let mut machines = MACHINES.map(|name| Bench::at(name, site.clone()));
    let killed = tokio::time::timeout(4 * MINUTE, up(&mut machines, &site)).await;
    assert!(killed.is_err(), "two creates run");
    assert_eq!(site.with(|i| (i.born, i.most_creates)), (2, 2));
    machines.iter_mut().for_each(Bench::restart);
    up(&mut machines, &site).await;
    assert_eq!(site.with(|i| (i.born, i.most_creates)), (6, 2));
    let free = site.with(|i| i.slots.as_ref().map(Slots::free));
    assert_eq!(free, Some(2), "all are back");
}

/// The missing right to observe the end of a create does not mean that the create ended.
#[tokio::test]
async fn a_right_that_is_missing_for_waiting_says_nothing_of_the_create() {
    for deleted in [false, true] {
        let mut bench = Bench::new();
        bench.site.with(|i| i.deaf = true);
        bench.pass().await;
        assert_eq!(bench.waits_on(), Some(Reason::NoPermission));
        assert!(bench.vm().task_id.is_some(), "it is awaited yet");
        if deleted {
            release(&bench);
            bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
            assert_eq!(bench.site.with(|i| i.vms.len()), 0, "it is not forgotten");
        } else {
            bench.until(Bench::is_on).await;
        }
        assert_eq!(bench.times(E::CreateVm), 1);
    }
}

/// The actor no longer waits for its end, so it does not wait for a slot either.
#[tokio::test(start_paused = true)]
async fn a_create_that_is_put_off_by_something_else_keeps_no_slot() {
    let mut bench = Bench::new();
    bench.site.with(|i| i.create_takes = 5 * MINUTE);
    bench.pass().await;
    let free = |b: &Bench| b.site.with(|i| i.slots.as_ref().map(Slots::free));
    assert_eq!(free(&bench), Some(SLOTS - 1), "it runs, and counts");
    bench.hub.with(|o| {
        delete(o.child.as_mut().expect("it exists"));
        o.machines[0].deleting = true;
    });
    bench.pass().await;
    let hold = bench.waits_on();
    assert_eq!(hold, Some(Reason::MachineRemains));
    assert_eq!(free(&bench), Some(SLOTS));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_went_during_the_wait_for_a_slot_gets_no_vm() {
    let mut bench = Bench::new();
    let slots = Slots::new(Limits::tasks(1));
    let held = slots.count("d");
    bench.site.with(|i| i.slots = Some(slots.clone()));
    let hub = bench.hub.clone();
    let world = async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        hub.with(|o| o.machines[0].deleting = true);
        drop(held);
    };
    futures::future::join(bench.pass(), world).await;
    assert_eq!(bench.times(E::CreateVm), 0);
    assert_eq!(bench.waits_on(), Some(Reason::MachineDeleting));
    assert_eq!(slots.free(), 1, "others have it");
}

/// Id of the datastore of each VM here.
const STORE: &str = "id-ds1";

/// The sentence has the limit, and stays the same while others come and go.
#[tokio::test(start_paused = true)]
async fn a_create_that_waits_for_others_says_for_which_limit() {
    let limits = |tasks, creates, creates_per_datastore| Limits {
        tasks,
        creates,
        creates_per_datastore,
    };
    for (limits, others, words) in [
        (
            limits(4, 1, 1),
            1,
            "may run 1 creates at once (--max-concurrent-creates)",
        ),
        (
            limits(4, 3, 1),
            1,
            "may run 1 creates on a datastore at once (--max-concurrent-creates-per-datastore)",
        ),
        (
            limits(2, 2, 2),
            0,
            "may run 2 tasks at once (--max-concurrent-vcenter-tasks)",
        ),
    ] {
        let mut bench = Bench::new();
        let slots = Slots::new(limits);
        let pool = ObjectKey::new("demo", "another");
        let work: Vec<_> = match others {
            0 => (0..2).map(|_| slots.ask(Errand::Begin, &pool)).collect(),
            _ => Vec::new(),
        };
        let _creates: Vec<_> = (0..others).map(|_| slots.count(STORE)).collect();
        bench.site.with(|i| i.slots = Some(slots.clone()));
        bench.pass().await;
        let key = ObjectKey::new("demo", "workers");
        let (waiting, cap) = slots.line(&key).expect("a line");
        assert_eq!((waiting, cap.to_string().as_str()), (1, words));
        let _more: Vec<_> = (0..3).map(|_| slots.ask_create(&pool, STORE)).collect();
        let version = |b: &Bench| b.hub.with(|o| o.child.as_ref()?.resource_version());
        let before = version(&bench);
        bench.pass().await;
        assert_eq!(version(&bench), before, "nothing is written again");
        drop(work);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_heard_while_others_are_ahead() {
    let mut bench = Bench::new();
    let slots = Slots::new(Limits::tasks(1));
    let _held = slots.count("d");
    bench.site.with(|i| i.slots = Some(slots));
    bench.pass().await;
    assert_eq!(bench.times(E::CreateVm), 0, "it waits");
    release(&bench);
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    assert_eq!(bench.times(E::CreateVm), 0);
}

/// No other VM is started between the create of a VM and its power-on.
#[tokio::test(start_paused = true)]
async fn a_vm_keeps_its_slot_until_it_is_on() {
    let site = Site::default();
    let mut machines = ["a", "b", "c"].map(|name| Bench::at(name, site.clone()));
    site.with(|i| {
        i.slots = Some(Slots::new(Limits::tasks(1)));
        i.create_takes = MINUTE;
    });
    let ups = machines.iter_mut().map(|bench| bench.until(Bench::is_on));
    futures::future::join_all(ups).await;
    let effects = site.with(|i| i.effects.clone());
    let order: Vec<E> = effects
        .into_iter()
        .filter(|kind| matches!(kind, E::CreateVm | E::PowerOn))
        .collect();
    assert_eq!(order, [E::CreateVm, E::PowerOn].repeat(3));
}
