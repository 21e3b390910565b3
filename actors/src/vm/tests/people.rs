//! What people want of a VM that is to begin another life, or has begun one: to keep it, to pause it, to force its deletion, to
//! get another one.

use agent_forge_crds::{
    agent::Goal,
    external::agent::{CONNECTED, VALIDATED},
    names::{
        FORCE_DELETE_ANNOTATION, PAUSED_ANNOTATION, REPLACE_ANNOTATION, SKIP_DELETE_ANNOTATION,
    },
    pool::ReleasedDisk,
};

use super::{
    held::{annotate, free, mark},
    recycle::{released, returns},
    silent::{change, state},
    *,
};
use crate::{domain::holds::VmMarks, vm::testing::vcenter::FIRST_DISK};

/// How people keep a VM.
#[derive(Clone, Copy, Debug)]
enum Way {
    Annotation,
    InVcenter,
    Retain,
}

const WAYS: [Way; 3] = [Way::Annotation, Way::InVcenter, Way::Retain];

fn keep(bench: &Bench, way: Way) {
    match way {
        Way::Annotation => annotate(bench, SKIP_DELETE_ANNOTATION, "true"),
        Way::InVcenter => mark(bench, false, true),
        Way::Retain => bench.hub.with(|o| {
            o.pool.as_mut().expect("a pool").spec.cleanup_policy = Some(CleanupPolicy::Retain);
        }),
    }
}

fn keep_no_more(bench: &Bench, way: Way) {
    match way {
        Way::Annotation => free(bench, SKIP_DELETE_ANNOTATION),
        Way::InVcenter => mark(bench, false, false),
        Way::Retain => bench.hub.with(|o| {
            o.pool.as_mut().expect("a pool").spec.cleanup_policy = None;
        }),
    }
}

/// Goes on step by step until that is so.
async fn step_until(bench: &mut Bench, done: impl Fn(&Bench) -> bool) {
    for _ in 0..60 {
        if done(bench) {
            return;
        }
        let memory = std::mem::take(&mut bench.memory);
        let key = ObjectKey::of(&bench.child());
        let pass = crate::vm::pass::run_at_most(1, bench.context.clone(), key, memory);
        bench.memory = pass.await.0;
        bench.turn(Duration::from_secs(2));
    }
    panic!("it never came: {:?}", bench.status());
}

fn renewals(bench: &Bench) -> usize {
    bench.site.with(|i| i.renewals.len())
}

fn is_running(bench: &Bench) -> bool {
    bench.vm().generation == Some(2) && bench.is_on()
}

/// Some minutes pass, also for a new actor.
async fn wait(bench: &mut Bench) {
    for restarted in [false, true] {
        if restarted {
            bench.restart();
        }
        for _ in 0..4 {
            bench.pass().await;
            bench.turn(MINUTE);
        }
    }
}

/// In the middle of the way, at each place of it: nothing more is done to the VM. Once nobody keeps it, it goes on.
#[tokio::test]
async fn a_vm_that_people_keep_gets_no_other_disk_wherever_it_is_on_its_way() {
    type Place = fn(&Bench) -> bool;
    let places: [(&str, usize, Place); 3] = [
        ("asked", 0, |_| true),
        ("recorded", 0, |b| b.vm().recycle.is_some()),
        ("off", 1, |b| b.times(E::PowerOff) == 1),
    ];
    for (place, offs, reached) in places {
        for way in WAYS {
            let mut bench = released(None).await;
            step_until(&mut bench, reached).await;
            keep(&bench, way);
            // What is marked in vCenter is news.
            bench.restart();
            wait(&mut bench).await;
            assert_eq!(renewals(&bench), 0, "{place} {way:?}");
            assert_eq!(bench.times(E::PowerOff), offs, "{place} {way:?}");
            let disk = bench.site.with(|i| i.vms[0].hardware.disk_uuid.clone());
            assert_eq!(disk.as_deref(), Some(FIRST_DISK), "{place} {way:?}");
            assert_eq!(
                bench.waits_on(),
                Some(Reason::Retained),
                "{place} {way:?}: {:?}",
                bench.status().waiting_on
            );
            keep_no_more(&bench, way);
            bench.until(is_running).await;
            assert_eq!(renewals(&bench), 1, "{place} {way:?}");
        }
    }
}

/// The mark is set after the look that the decision is made from.
#[tokio::test]
async fn the_last_look_sees_that_people_keep_the_vm() {
    for place in [E::PowerOff, E::Renew] {
        for in_vcenter in [true, false] {
            let mut bench = released(None).await;
            if place == E::Renew {
                step_until(&mut bench, |b| b.times(E::PowerOff) == 1).await;
            } else {
                step_until(&mut bench, |b| b.vm().recycle.is_some()).await;
            }
            let before = bench.times(E::PowerOff);
            if in_vcenter {
                bench.site.with(|i| {
                    i.marks_at_observe = Some(VmMarks {
                        paused: false,
                        skip_delete: true,
                    });
                });
            } else {
                // The watch is late.
                bench.hub.with(|o| {
                    let mut live = o.child.clone().expect("child");
                    let kept = (SKIP_DELETE_ANNOTATION.to_owned(), "true".to_owned());
                    live.annotations_mut().extend([kept]);
                    o.unseen_child = Some(live);
                });
            }
            for _ in 0..4 {
                bench.pass().await;
                bench.turn(Duration::from_secs(2));
            }
            let now = (bench.times(E::PowerOff), renewals(&bench));
            assert_eq!(now, (before, 0), "{place:?} {in_vcenter}");
        }
    }
}

/// With its disk, nothing is left to keep: the new life goes on.
#[tokio::test]
async fn a_vm_that_is_renewed_already_goes_on() {
    for way in WAYS {
        let mut bench = released(None).await;
        step_until(&mut bench, |b| renewals(b) == 1).await;
        keep(&bench, way);
        bench.restart();
        bench.until(is_running).await;
        returns(&bench);
        bench.until(|b| b.vm().recycle.is_none()).await;
        assert_eq!(bench.times(E::Destroy), 0, "{way:?}");
    }
}

/// It is given up, and people keep it before it is switched off.
#[tokio::test]
async fn a_vm_that_was_given_up_is_kept_too() {
    for way in WAYS {
        let mut bench = on().await;
        bench.turn(31 * MINUTE);
        step_until(&mut bench, |b| b.status().last_failure.is_some()).await;
        keep(&bench, way);
        bench.restart();
        wait(&mut bench).await;
        let touched = bench.times(E::PowerOff) + bench.times(E::Destroy);
        assert_eq!(touched, 0, "{way:?}");
        assert_eq!(bench.waits_on(), Some(Reason::Retained), "{way:?}");
        keep_no_more(&bench, way);
        bench
            .until(|b| b.vm().attempt == Some(2) && b.is_on())
            .await;
    }
}

/// Without a deletion, `force-delete` allows nothing.
#[tokio::test]
async fn force_delete_alone_does_not_spare_the_last_look() {
    let mut bench = released(None).await;
    annotate(&bench, FORCE_DELETE_ANNOTATION, "true");
    let bound = bench.hub.with(|o| {
        let mut agent = o.agents[0].clone();
        agent.spec.cluster_deployment_name = Some(Default::default());
        agent
    });
    bench.hub.with(|o| o.live_instead = vec![bound]);
    wait(&mut bench).await;
    assert_eq!(bench.times(E::PowerOff), 0);
    assert_eq!(renewals(&bench), 0);
}

/// The annotation was about the life in which it was set. Somebody who sets it again means the present one.
#[tokio::test]
async fn another_vm_is_asked_for_in_one_life_only() {
    let mut bench = released(None).await;
    annotate(&bench, REPLACE_ANNOTATION, "1");
    bench.until(is_running).await;
    wait(&mut bench).await;
    assert_eq!(bench.vm().attempt, Some(1), "{:?}", bench.status());
    returns(&bench);
    bench.until(|b| b.vm().recycle.is_none()).await;
    wait(&mut bench).await;
    assert_eq!((bench.vm().attempt, bench.times(E::Destroy)), (Some(1), 0));
    free(&bench, REPLACE_ANNOTATION);
    wait(&mut bench).await;
    annotate(&bench, REPLACE_ANNOTATION, "1");
    bench
        .until(|b| b.vm().attempt == Some(2) && b.is_on())
        .await;
}

fn pause(bench: &Bench, paused: bool) {
    bench.hub.with(|o| {
        let pool = o.pool.as_mut().expect("a pool").annotations_mut();
        pool.insert(PAUSED_ANNOTATION.to_owned(), paused.to_string());
    });
}

/// What keeps the VM from being made ready counts by the hour. A pause does not, nor does time without a pass.
#[tokio::test]
async fn only_hours_of_tries_count_for_a_vm_that_cannot_be_made_ready() {
    let mut bench = released(None).await;
    step_until(&mut bench, |b| b.vm().recycle.is_some()).await;
    bench.hub.with(|o| {
        let status = o.pool.as_mut().and_then(|p| p.status.as_mut());
        status.expect("a status").iso = None;
    });
    let hours = |b: &Bench| b.vm().recycle.and_then(|way| way.hours_tried);
    for _ in 0..20 {
        bench.pass().await;
        bench.turn(10 * MINUTE);
    }
    assert_eq!(bench.waits_on(), Some(Reason::IsoNotReady));
    let tried = hours(&bench);
    assert!(tried >= Some(2) && tried <= Some(3), "{tried:?}");
    pause(&bench, true);
    for _ in 0..60 {
        bench.pass().await;
        bench.turn(30 * MINUTE);
    }
    assert_eq!(hours(&bench), tried, "thirty hours of a pause");
    pause(&bench, false);
    // Another process does not know what was before.
    bench.restart();
    bench.pass().await;
    bench.turn(30 * 60 * MINUTE);
    bench.pass().await;
    bench.turn(MINUTE);
    bench.pass().await;
    assert_eq!(hours(&bench), tried.map(|h| h + 1), "one pass, one hour");
}

/// The deadline of its guest passes in a pause. Afterwards it gets that time again.
#[tokio::test]
async fn a_pause_does_not_use_up_the_time_of_a_guest_in_a_new_life() {
    let mut bench = released(None).await;
    bench.until(is_running).await;
    pause(&bench, true);
    for _ in 0..4 {
        bench.turn(10 * MINUTE);
        bench.pass().await;
    }
    pause(&bench, false);
    bench.turn(MINUTE);
    bench.pass().await;
    bench.pass().await;
    assert_eq!(bench.status().last_failure, None);
    bench.turn(30 * MINUTE);
    bench.until(|b| b.vm().attempt == Some(2)).await;
}

/// A disk that stays has data on it.
#[tokio::test]
async fn a_vm_with_a_kept_disk_is_given_up_by_a_person_only() {
    let mut bench = released(Some(ReleasedDisk::Keep)).await;
    bench.until(is_running).await;
    bench.turn(31 * MINUTE);
    wait(&mut bench).await;
    assert_eq!(bench.times(E::Destroy), 0);
    let waits = bench.status().waiting_on;
    assert_eq!(waits[0].reason, Reason::AgentDiscoveryExpired);
    assert!(waits[0].message.contains("replace=1"), "{waits:?}");
    annotate(&bench, REPLACE_ANNOTATION, "1");
    bench
        .until(|b| b.vm().attempt == Some(2) && b.is_on())
        .await;
}

/// The request is left on a host that waits with its data, and the status is emptied.
#[tokio::test]
async fn a_request_of_an_earlier_life_stays_void_when_the_record_learns_of_its_life() {
    let mut bench = released(Some(ReleasedDisk::Keep)).await;
    annotate(&bench, REPLACE_ANNOTATION, "1");
    bench.until(is_running).await;
    returns(&bench);
    bench.until(|b| b.vm().recycle.is_none()).await;
    assert_eq!(bench.vm().replace_ignored, Some(1));
    bench.hub.with(|o| {
        o.version += 1;
        let child = o.child.as_mut().expect("it exists");
        child.spec.goal = Some(Goal::default());
        child.status = None;
        child.metadata.resource_version = Some((o.version + 100).to_string());
    });
    for _ in 0..30 {
        bench.pass().await;
        bench.turn(MINUTE);
    }
    assert_eq!(bench.times(E::Destroy), 0, "{:?}", bench.status());
    let vm = bench.vm();
    assert_eq!(
        (vm.generation, vm.attempt, vm.replace_ignored),
        (Some(2), Some(1), Some(1))
    );
}

/// The host waits in its second life with that disk.
async fn waits_with(disk: Option<ReleasedDisk>) -> Bench {
    let mut bench = released(disk).await;
    bench.until(is_running).await;
    returns(&bench);
    bench.until(|b| b.vm().recycle.is_none()).await;
    bench.turn(MINUTE);
    bench.pass().await;
    assert_eq!(bench.waits_on(), None, "{:?}", bench.status());
    bench
}

type Change = fn(&Bench);

/// What ends a host that waits, and the reason that people see meanwhile.
const ENDS: [(Reason, Change); 4] = [
    (Reason::AgentDisconnected, |b| {
        change(b, |a| {
            state(a, "disconnected-unbound", &[(CONNECTED, "False")]);
        });
    }),
    (Reason::AgentValidationsFailing, |b| {
        change(b, |a| {
            state(a, "insufficient-unbound", &[(VALIDATED, "False")]);
        });
    }),
    (Reason::AgentMissing, |b| b.hub.with(|o| o.agents.clear())),
    (Reason::TemplateChanged, |b| {
        change(b, |a| {
            state(a, "insufficient-unbound", &[(VALIDATED, "False")]);
        });
        b.hub.with(|o| {
            o.pool.as_mut().expect("a pool").spec.template.num_cpus = Some(8);
        });
    }),
];

/// A kept disk has data, also when its host is back. Only a person ends it.
#[tokio::test]
async fn a_kept_disk_goes_only_when_a_person_says_so() {
    for (reason, ends) in ENDS {
        let mut bench = waits_with(Some(ReleasedDisk::Keep)).await;
        let offs = bench.times(E::PowerOff);
        ends(&bench);
        for _ in 0..45 {
            bench.pass().await;
            bench.turn(MINUTE);
        }
        assert_eq!(bench.times(E::PowerOff), offs, "{reason:?}");
        assert_eq!(bench.times(E::Destroy), 0, "{reason:?}");
        assert_eq!(bench.status().last_failure, None, "{reason:?}");
        let row = bench.status().waiting_on.remove(0);
        assert_eq!(row.reason, reason, "{row:?}");
        assert!(row.message.contains("replace=1"), "{row:?}");
        annotate(&bench, REPLACE_ANNOTATION, "1");
        bench.until(|b| b.times(E::Destroy) == 1).await;
    }
}

#[tokio::test]
async fn a_host_with_a_new_disk_is_replaced_as_one_in_its_first_life() {
    for (reason, ends) in ENDS {
        let mut bench = waits_with(None).await;
        ends(&bench);
        for _ in 0..45 {
            bench.pass().await;
            bench.turn(MINUTE);
        }
        assert!(bench.times(E::Destroy) >= 1, "{reason:?}");
    }
}

/// The pool, or a person, deletes the VsphereAgent.
#[tokio::test]
async fn a_kept_disk_goes_with_its_record() {
    let mut bench = waits_with(Some(ReleasedDisk::Keep)).await;
    release(&bench);
    bench.until(|b| b.site.with(|i| i.vms.is_empty())).await;
}
