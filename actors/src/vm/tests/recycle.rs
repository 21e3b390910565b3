//! A VM whose Machine is gone begins another life: one VM, one Agent, whatever crashes in between.

use agent_forge_crds::{
    external::agent::{Agent, DeprovisionInfo, InventoryDisk, SKIP_SPOKE_CLEANUP_ANNOTATION},
    names::PAUSED_ANNOTATION,
    pool::{ReleasePolicy, ReleaseSpec, ReleasedDisk},
};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    silent::{change, state},
    *,
};
use crate::{
    ports::{
        cluster::ClusterErrorKind,
        vcenter::{BootDevice, RenewedDisk},
    },
    testing::CONTROL_PLANE,
    vm::testing::vcenter::{FIRST_DISK, SECOND_DISK},
};

const BEFORE: i64 = 500;

fn reports(agent: &mut Agent, at: i64) {
    let inventory = agent.status.as_mut().and_then(|s| s.inventory.as_mut());
    inventory.expect("an inventory").report_time =
        Some(agent_forge_crds::Time(Timestamp::from_second(at).unwrap()));
}

/// The VM served. Its Machine is gone, its Agent is free, and the pool has moved it into the buffer.
pub(super) async fn released(disk: Option<ReleasedDisk>) -> Bench {
    let mut bench = on().await;
    bind_agent(&bench);
    bench.pass().await;
    bench.turn(MINUTE);
    bench.pass().await;
    assert_eq!(bench.vm().served, Some(true));
    change(&bench, |a| {
        a.spec.cluster_deployment_name = None;
        a.metadata.labels = None;
        a.metadata.annotations = None;
        a.spec.approved = false;
        state(a, "unbinding-pending-user-action", &[]);
        reports(a, BEFORE);
    });
    bench.hub.with(|o| {
        o.agent_machines.clear();
        o.machines.clear();
        let pool = o.pool.as_mut().expect("a pool");
        pool.spec.release = Some(ReleaseSpec {
            policy: Some(ReleasePolicy::Recycle),
            disk,
            ..ReleaseSpec::default()
        });
        let child = o.child.as_mut().expect("it exists");
        testing::move_to_buffer(child);
        testing::ask_for_life(child, 2);
        o.version += 1;
        child.metadata.resource_version = Some((o.version + 100).to_string());
    });
    bench
}

/// Its guest registers again and reports.
pub(super) fn returns(bench: &Bench) {
    change(bench, |a| {
        state(a, "known-unbound", &[]);
        reports(a, BEFORE + 1000);
    });
}

/// The API server has accepted the pause, and the watch of pools hangs.
#[tokio::test]
async fn a_pause_of_the_pool_that_no_cache_shows_keeps_the_disk() {
    for when in [E::PowerOff, E::Renew] {
        let mut bench = released(None).await;
        if when == E::Renew {
            bench.site.with(|i| i.power_off_fails = true);
            bench.until(|b| b.vm().recycle.is_some()).await;
            bench.site.with(|i| {
                i.power_off_fails = false;
                i.vms[0].power = PowerState::Off;
            });
        }
        bench.hub.with(|o| {
            o.unseen_pool = o.pool.clone();
            let pool = o.unseen_pool.as_mut().expect("a pool");
            let pause = (PAUSED_ANNOTATION.to_owned(), "true".to_owned());
            pool.annotations_mut().extend([pause]);
        });
        let before = bench.times(when);
        for _ in 0..6 {
            bench.pass().await;
            bench.turn(MINUTE);
        }
        assert_eq!(bench.times(when), before, "{when:?}");
        assert!(bench.site.with(|i| i.renewals.is_empty()));
        bench.hub.with(|o| o.unseen_pool = None);
        bench.until(|b| b.vm().generation == Some(2)).await;
    }
}

#[tokio::test]
async fn a_released_vm_begins_another_life_with_the_same_identity() {
    let mut bench = released(None).await;
    let (before, served) = (bench.vm(), bench.status().trace_id);
    bench
        .until(|b| b.vm().generation == Some(2) && b.is_on())
        .await;
    let vm = bench.vm();
    assert_eq!(vm.bios_uuid, before.bios_uuid);
    assert_eq!(vm.moref, before.moref);
    assert_eq!(vm.attempt, Some(1));
    assert_eq!((vm.served, vm.iso_ejected), (None, None));
    assert!(vm.discovery_deadline > before.discovery_deadline, "{vm:?}");
    let renewals = bench.site.with(|i| i.renewals.clone());
    assert_eq!(renewals.len(), 1);
    assert_eq!(renewals[0].generation, 2);
    assert_eq!(renewals[0].iso.to_string(), "[isos] agent-forge/x.iso");
    assert_eq!(
        renewals[0].disk,
        RenewedDisk::Replaced {
            gib: 100,
            eagerly_scrub: false
        }
    );
    // Nobody may claim it yet: what the Agent shows was before.
    assert_eq!(bench.waits_on(), Some(Reason::Recycling));
    assert_eq!(vm.reason, Some(Reason::Recycling));
    let [life] = vm.lives.as_slice() else {
        panic!("one life is over: {:?}", vm.lives)
    };
    assert_eq!(
        (life.generation, &life.since),
        (1, &before.first_powered_on)
    );
    let machine = before.machine_ref.as_ref().and_then(|m| m.name.as_ref());
    assert!(
        machine.is_some() && life.machine.as_ref() == machine,
        "{life:?}"
    );
    assert_eq!(
        life.trace_id, served,
        "the trace of the machine that it served"
    );
    assert_eq!(vm.machine_ref, None, "it serves none now");
    let way = vm.recycle.expect("the way");
    assert_eq!(way.new_disk.as_deref(), Some(SECOND_DISK));
    returns(&bench);
    bench.until(|b| b.vm().recycle.is_none()).await;
    assert_eq!(bench.waits_on(), None);
    assert_eq!((bench.times(E::PowerOff), bench.times(E::PowerOn)), (1, 2));
    assert_eq!((bench.times(E::CreateVm), bench.times(E::Destroy)), (1, 0));
    let order = bench.site.with(|i| i.vms[0].boot_order.clone());
    assert_eq!(order, [BootDevice::Disk(2001), BootDevice::Cdrom]);
}

#[tokio::test]
async fn a_kept_disk_boots_last_until_the_agent_is_back() {
    let mut bench = released(Some(ReleasedDisk::Keep)).await;
    bench
        .until(|b| b.vm().generation == Some(2) && b.is_on())
        .await;
    let order = |b: &Bench| b.site.with(|i| i.vms[0].boot_order.clone());
    assert_eq!(order(&bench)[0], BootDevice::Cdrom);
    returns(&bench);
    bench.until(|b| b.vm().recycle.is_none()).await;
    assert_eq!(order(&bench), [BootDevice::Disk(2000), BootDevice::Cdrom]);
}

/// Somebody edits `release.disk` at each step of a renewal. What the renewal did decides.
#[tokio::test]
async fn an_edit_of_the_pool_changes_nothing_of_a_renewal_that_is_done() {
    for kept in [false, true] {
        let word = |kept| {
            Some(if kept {
                ReleasedDisk::Keep
            } else {
                ReleasedDisk::Replace
            })
        };
        for edited_after in 1..=9 {
            let mut bench = released(word(kept)).await;
            let edit = |b: &Bench| {
                b.hub.with(|o| {
                    let pool = o.pool.as_mut().expect("a pool");
                    let release = pool.spec.release.as_mut().expect("it recycles");
                    release.disk = word(!kept);
                });
            };
            for step in 1..80 {
                let memory = std::mem::take(&mut bench.memory);
                let key = crate::domain::names::ObjectKey::of(&bench.child());
                let pass = crate::vm::pass::run_at_most(1, bench.context.clone(), key, memory);
                bench.memory = pass.await.0;
                bench.turn(Duration::from_secs(3));
                if step == edited_after {
                    edit(&bench);
                }
                if bench.is_on() && bench.vm().generation == Some(2) {
                    break;
                }
            }
            let renewals = bench.site.with(|i| i.renewals.clone());
            assert_eq!(renewals.len(), 1);
            let stays = renewals[0].disk == RenewedDisk::Kept;
            let order = bench.site.with(|i| i.vms[0].boot_order.clone());
            let old_first = order.first() == Some(&BootDevice::Disk(2000));
            assert!(
                !(stays && old_first),
                "{kept} {edited_after}: the old system boots"
            );
            let record = bench.vm().disk.expect("it is recorded");
            assert_eq!(record.handling, word(stays), "{kept} {edited_after}");
            edit(&bench);
            returns(&bench);
            bench.until(|b| b.vm().recycle.is_none()).await;
            let order = bench.site.with(|i| i.vms[0].boot_order.clone());
            assert!(
                matches!(order.first(), Some(BootDevice::Disk(_))),
                "{kept} {edited_after}: what is installed next boots from its disk: {order:?}"
            );
        }
    }
}

/// The record is older than the VM, as after a restore of etcd, or was emptied while the host served.
#[tokio::test]
async fn a_record_that_is_older_than_the_vm_does_not_keep_the_disk_that_served() {
    for (life, emptied) in [(2, false), (3, false), (3, true)] {
        let mut bench = released(None).await;
        bench.site.with(|i| {
            i.vms[0].generation = Some(life);
            i.vms[0].may_serve = None;
        });
        if emptied {
            bench.hub.with(|o| {
                let vm = o.child.as_mut().and_then(|c| c.status.as_mut());
                let vm = vm.and_then(|s| s.vm.as_mut()).expect("a record");
                vm.generation = None;
                vm.lives.clear();
            });
        }
        let next = i32::try_from(life + 1).expect("a number");
        bench
            .until(|b| b.vm().generation == Some(next) && b.is_on())
            .await;
        let renewals = bench.site.with(|i| i.renewals.clone());
        let renewed: Vec<_> = renewals.iter().map(|r| r.generation).collect();
        assert_eq!(
            renewed,
            [life + 1],
            "its disk is replaced, as the pool asks"
        );
        let record = bench.vm().disk.expect("it is recorded");
        assert_eq!(record.handling, Some(ReleasedDisk::Replace));
    }
}

/// After a reclaim the Agent shows the same state as after the next start. The state in between is recorded.
#[tokio::test]
async fn an_agent_that_was_discovered_before_must_be_so_again() {
    let mut bench = released(None).await;
    let clean = |a: &mut Agent| {
        let inventory = a.status.as_mut().and_then(|s| s.inventory.as_mut());
        inventory.expect("an inventory").report_time = None;
    };
    change(&bench, |a| {
        state(a, "known-unbound", &[]);
        clean(a);
    });
    bench
        .until(|b| b.vm().generation == Some(2) && b.is_on())
        .await;
    bench.turn(MINUTE);
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::Recycling));
    change(&bench, |a| state(a, "discovering-unbound", &[]));
    bench.pass().await;
    // The next process did not see that.
    bench.restart();
    change(&bench, |a| state(a, "known-unbound", &[]));
    bench.until(|b| b.vm().recycle.is_none()).await;
}

/// The watch is late, and shows what was before the VM was made ready. The API server knows better.
#[tokio::test]
async fn what_only_a_late_watch_shows_does_not_bring_an_agent_back() {
    for (before, shown) in [
        ("known-unbound", "discovering-unbound"),
        ("unbinding-pending-user-action", "known-unbound"),
    ] {
        let mut bench = released(None).await;
        change(&bench, |a| state(a, before, &[]));
        bench
            .until(|b| b.vm().generation == Some(2) && b.is_on())
            .await;
        bench.hub.with(|o| o.live_instead = o.agents.clone());
        change(&bench, |a| state(a, shown, &[]));
        bench.turn(MINUTE);
        bench.pass().await;
        let way = bench.vm().recycle.expect("it is not back");
        assert_eq!(way.restarted, None, "{before}");
        bench
            .hub
            .with(|o| o.agents = std::mem::take(&mut o.live_instead));
        bench.turn(MINUTE);
        bench.pass().await;
        assert_eq!(bench.waits_on(), Some(Reason::Recycling), "{before}");
    }
}

/// A crash after each effect: the next process goes on, and repeats none.
#[tokio::test]
async fn a_crash_between_any_two_steps_converges() {
    for limit in 2..=4 {
        let mut bench = released(None).await;
        for _ in 0..80 {
            let memory = std::mem::take(&mut bench.memory);
            let key = crate::domain::names::ObjectKey::of(&bench.child());
            let pass = crate::vm::pass::run_at_most(limit, bench.context.clone(), key, memory);
            drop(pass.await);
            // The process dies: nothing is remembered.
            bench.restart();
            bench.turn(MINUTE / 10);
            if bench.is_on() && bench.vm().generation == Some(2) {
                break;
            }
        }
        assert_eq!(
            bench.vm().generation,
            Some(2),
            "{limit}: {:?}",
            bench.status()
        );
        assert_eq!(bench.site.with(|i| i.renewals.len()), 1, "{limit}");
        assert_eq!(
            (bench.times(E::PowerOff), bench.times(E::PowerOn)),
            (1, 2),
            "{limit}"
        );
        returns(&bench);
        bench.until(|b| b.vm().recycle.is_none()).await;
    }
}

#[tokio::test]
async fn an_agent_that_is_bound_at_the_last_moment_keeps_its_vm() {
    let mut bench = released(None).await;
    let bound = bench.hub.with(|o| {
        let mut agent = o.agents[0].clone();
        agent.spec.cluster_deployment_name = Some(Default::default());
        agent
    });
    bench.hub.with(|o| o.live_instead = vec![bound]);
    for _ in 0..5 {
        bench.pass().await;
        bench.turn(MINUTE);
    }
    assert_eq!(bench.times(E::PowerOff), 0);
    assert_eq!(bench.site.with(|i| i.renewals.len()), 0);
}

#[tokio::test]
async fn somebody_elses_change_at_the_last_moment_is_seen_and_the_vm_looked_at_again() {
    let mut bench = released(None).await;
    bench.site.with(|i| i.changed_before_renewal = true);
    bench.until(|b| b.vm().generation == Some(2)).await;
    assert_eq!(bench.site.with(|i| i.renewals.len()), 1);
}

#[tokio::test]
async fn a_guest_that_does_not_come_back_is_replaced_with_its_vm() {
    let mut bench = released(None).await;
    bench
        .until(|b| b.vm().generation == Some(2) && b.is_on())
        .await;
    bench.turn(31 * MINUTE);
    bench
        .until(|b| b.vm().attempt == Some(2) && b.is_on())
        .await;
    let vm = bench.vm();
    assert_eq!((vm.generation, vm.recycle.clone()), (None, None), "{vm:?}");
    assert_eq!(bench.times(E::Destroy), 1);
    let failure = bench.status().last_failure.expect("recorded");
    assert_eq!(failure.attempt, Some(1));
    // The request was about the VM before.
    bench.pass().await;
    assert_eq!(bench.site.with(|i| i.renewals.len()), 1);
}

/// Somebody switches the VM on before its new life is on record. Its guest gets a deadline all the same.
#[tokio::test]
async fn a_vm_that_runs_before_its_life_is_recorded_has_a_deadline() {
    let mut bench = released(None).await;
    while bench.site.with(|i| i.renewals.is_empty()) {
        let memory = std::mem::take(&mut bench.memory);
        let key = crate::domain::names::ObjectKey::of(&bench.child());
        let pass = crate::vm::pass::run_at_most(1, bench.context.clone(), key, memory);
        bench.memory = pass.await.0;
    }
    assert_eq!(bench.vm().generation, None);
    bench.site.with(|i| i.vms[0].power = PowerState::On);
    bench.until(|b| b.vm().generation == Some(2)).await;
    bench.until(|b| b.vm().discovery_deadline.is_some()).await;
    assert_eq!(bench.vm().power_state.as_deref(), Some("poweredOn"));
    bench.turn(31 * MINUTE);
    bench.until(|b| b.vm().attempt == Some(2)).await;
}

/// The record of the way may fail, and the status be written all the same. The Machine of the life that is over stays on
/// record until then.
#[tokio::test]
async fn the_life_that_is_over_is_recorded_with_its_machine_also_at_the_second_try() {
    let mut bench = released(None).await;
    let machine = bench.vm().machine_ref.and_then(|m| m.name);
    assert!(machine.is_some());
    let fails = ClusterErrorKind::Unavailable;
    bench
        .hub
        .with(|o| drop(o.fails.insert(E::RecordObservation, fails)));
    bench.pass().await;
    assert_eq!((bench.vm().recycle, bench.vm().lives), (None, Vec::new()));
    bench.turn(MINUTE);
    bench.until(|b| b.vm().recycle.is_some()).await;
    assert_eq!(bench.vm().lives[0].machine, machine);
}

/// The state is the same before and after, and the service tells no time. The inventory names the new disk.
#[tokio::test]
async fn an_inventory_with_the_new_disk_shows_at_once_that_the_guest_is_back() {
    let mut bench = released(None).await;
    let names = |a: &mut Agent, disk: &str| {
        let inventory = a.status.as_mut().and_then(|s| s.inventory.as_mut());
        let inventory = inventory.expect("an inventory");
        inventory.report_time = None;
        inventory.disks = vec![InventoryDisk {
            id: Some(format!("/dev/disk/by-id/wwn-0x{disk}")),
            ..InventoryDisk::default()
        }];
    };
    change(&bench, |a| {
        state(a, "known-unbound", &[]);
        names(a, FIRST_DISK);
    });
    bench
        .until(|b| b.vm().generation == Some(2) && b.is_on())
        .await;
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::Recycling));
    change(&bench, |a| names(a, SECOND_DISK));
    bench.pass().await;
    assert_eq!(bench.vm().recycle, None, "without any wait");
}

/// The host runs in its new life, and its Agent goes on showing the old one: the Node cannot be taken out of the cluster.
async fn hangs() -> Bench {
    let mut bench = released(None).await;
    change(&bench, |a| {
        let leaves = DeprovisionInfo {
            cluster_namespace: Some(CONTROL_PLANE.to_owned()),
            node_name: Some("node".to_owned()),
        };
        a.status.get_or_insert_default().deprovision_info = Some(leaves);
    });
    bench.hub.with(|o| {
        o.hosted_cluster = Some(false);
    });
    bench
        .until(|b| b.vm().generation == Some(2) && b.is_on())
        .await;
    bench
}

/// The value of the annotation on the Agent.
fn skips(bench: &Bench) -> Option<String> {
    bench.hub.with(|o| {
        let annotations = o.agents[0].annotations();
        annotations.get(SKIP_SPOKE_CLEANUP_ANNOTATION).cloned()
    })
}

#[tokio::test]
async fn a_clean_up_that_hangs_is_skipped_when_the_hosted_cluster_is_gone() {
    let mut bench = hangs().await;
    bench.turn(9 * MINUTE);
    bench.pass().await;
    assert_eq!(skips(&bench), None, "the service gets its time");
    assert_eq!(bench.hub.with(|o| o.hosted_cluster_looks), 0);
    bench.turn(2 * MINUTE);
    bench.pass().await;
    assert_eq!(skips(&bench).as_deref(), Some("agent-forge"));
    let effects = bench.hub.with(|o| o.effects.clone());
    let marks = effects.iter().filter(|kind| **kind == E::SkipCleanup);
    assert_eq!(marks.count(), 1);
    returns(&bench);
    bench.until(|b| b.vm().recycle.is_none()).await;
    assert_eq!(skips(&bench), None, "the next Node is cleaned up again");
}

#[tokio::test]
async fn a_hosted_cluster_that_exists_or_cannot_be_listed_keeps_the_clean_up() {
    for exists in [Some(true), None] {
        let mut bench = hangs().await;
        bench.hub.with(|o| o.hosted_cluster = exists);
        bench.turn(11 * MINUTE);
        for _ in 0..3 {
            bench.pass().await;
            bench.turn(MINUTE);
        }
        assert_eq!(skips(&bench), None, "{exists:?}");
        let looks = bench.hub.with(|o| o.hosted_cluster_looks);
        assert_eq!(looks, 1, "{exists:?}: it is not asked all the time");
    }
}

#[tokio::test]
async fn a_pause_keeps_the_clean_up_too() {
    let mut bench = hangs().await;
    bench.hub.with(|o| {
        let pool = o.pool.as_mut().expect("a pool").annotations_mut();
        pool.extend([(PAUSED_ANNOTATION.to_owned(), "true".to_owned())]);
    });
    bench.turn(11 * MINUTE);
    bench.pass().await;
    bench.pass().await;
    assert_eq!(skips(&bench), None);
    assert_eq!(bench.waits_on(), Some(Reason::Paused));
}
