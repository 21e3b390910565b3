//! Passes of a VM whose guest booted the discovery ISO instead of its disk.

use agent_forge_crds::{
    agent::{BootRepair, VsphereAgentStatus},
    external::agent::{Agent, Progress},
    names::PAUSED_ANNOTATION,
};

use super::*;
use crate::{
    ports::vcenter::BootDevice,
    testing::at,
    vm::boot_repair::{GRACE, MOST},
};

const BOOTED: &str =
    "Expected the host to boot from disk, but it booted the installation image - please reboot";
const SLOW: &str =
    "Host timed out when pulling the configuration files. Verify in the host console";

fn say(agent: &mut Agent, state: &str, info: &str, stage: &str, minute: i64) {
    silent::state(agent, state, &[(INSTALLED, "False")]);
    let status = agent.status.as_mut().expect("a status");
    status.debug_info.get_or_insert_default().state_info = Some(info.to_owned());
    status.progress = Some(Progress {
        current_stage: Some(stage.to_owned()),
        stage_update_time: Some(agent_forge_crds::Time(at(minute * 60))),
    });
}

/// The ISO is in the drive, and comes first.
fn boot_cdrom_first(bench: &Bench) {
    bench.site.with(|i| {
        i.vms[0].boot_order = vec![BootDevice::Cdrom];
        i.vms[0].cdroms = vec![disc()];
    });
}

/// A host in its installation. Somebody has broken the boot order of its VM.
async fn installing() -> Bench {
    let mut bench = on().await;
    bind_agent(&bench);
    boot_cdrom_first(&bench);
    silent::change(&bench, |a| {
        say(a, "installing-in-progress", "Rebooting", "Rebooting", 1);
    });
    bench.pass().await;
    bench.turn(MINUTE);
    bench.pass().await;
    bench
}

/// Its guest boots the ISO instead of its disk.
fn go_astray(bench: &Bench) {
    silent::change(bench, |a| {
        say(a, "installing-pending-user-action", BOOTED, "Rebooting", 1);
    });
}

fn resets(bench: &Bench) -> usize {
    bench.site.with(|i| i.resets)
}

async fn minutes(bench: &mut Bench, count: u32) {
    for _ in 0..count {
        bench.pass().await;
        bench.turn(MINUTE);
    }
}

fn told(bench: &Bench, reason: &str) -> Vec<String> {
    let all = bench.hub.with(|o| o.notices.clone());
    let of_it = all.into_iter().filter(|n| n.reason == reason);
    of_it.map(|n| n.note).collect()
}

#[tokio::test]
async fn a_pause_that_no_cache_shows_keeps_its_iso() {
    let mut bench = installing().await;
    go_astray(&bench);
    bench.hub.with(|o| {
        let pause = (PAUSED_ANNOTATION.to_owned(), "true".to_owned());
        let pool = o.pool.clone().expect("a pool");
        o.unseen_pool = Some(with(pool, |p| p.annotations_mut().extend([pause])));
    });
    minutes(&mut bench, 10).await;
    assert_eq!(bench.times(E::EjectIso), 0);
    assert_eq!(bench.waits_on(), Some(Reason::Paused));
    bench.hub.with(|o| o.unseen_pool = None);
    minutes(&mut bench, 10).await;
    assert_eq!(bench.times(E::EjectIso), 1);
}

#[tokio::test]
async fn it_loses_the_iso_gets_its_order_back_and_is_reset_once() {
    let mut bench = installing().await;
    let before = bench.site.with(|i| i.effects.len());
    minutes(&mut bench, 3).await;
    assert_eq!(bench.waits_on(), None);
    assert_eq!(
        bench.site.with(|i| i.effects.len()),
        before,
        "nothing is wrong yet"
    );

    go_astray(&bench);
    minutes(&mut bench, 10).await;
    let done = bench.site.with(|i| i.effects.split_off(before));
    assert_eq!(done, [E::EjectIso, E::Reconfigure, E::Reset]);
    bench.site.with(|i| {
        assert!(i.vms[0].cdroms.iter().all(|drive| drive.iso.is_none()));
        assert_eq!(
            i.vms[0].boot_order,
            [BootDevice::Disk(2000), BootDevice::Cdrom]
        );
    });
    let vm = bench.vm();
    let repair = vm.boot_repair.expect("it is on record");
    assert_eq!((repair.count, vm.iso_ejected), (1, Some(true)));
    assert_eq!(
        repair.state_updated_at,
        Some(agent_forge_crds::Time(at(60)))
    );
    assert_eq!(bench.waits_on(), Some(Reason::BootOrderRepaired));
    assert_eq!(told(&bench, event::VM_RESET).len(), 1);

    silent::change(&bench, |a| {
        say(a, "added-to-existing-cluster", "Done", "Done", 12);
    });
    minutes(&mut bench, 60).await;
    assert_eq!((resets(&bench), bench.waits_on()), (1, None));
}

/// The Agent says the same after the reset: the guest booted the ISO again, or its Node serves and the service cannot see it.
#[tokio::test]
async fn one_occurrence_gets_one_reset_also_from_the_next_process() {
    for restarts in [false, true] {
        let mut bench = installing().await;
        go_astray(&bench);
        minutes(&mut bench, 38).await;
        assert_eq!(resets(&bench), 1);
        assert_eq!(bench.waits_on(), Some(Reason::BootOrderRepaired));
        if restarts {
            bench.restart();
        }
        minutes(&mut bench, 100).await;
        assert_eq!(resets(&bench), 1, "nothing new is known");
        assert_eq!(bench.vm().boot_repair.map(|r| r.count), Some(1));
        assert_eq!(bench.waits_on(), Some(Reason::BootOrderWrong));
        let ejected = bench.times(E::EjectIso);
        bench.site.with(|i| i.vms[0].cdroms = vec![disc()]);
        minutes(&mut bench, 5).await;
        assert_eq!(bench.times(E::EjectIso), ejected, "it is left to people");
        let said = told(&bench, event::HOST_TROUBLE);
        let said = said.iter().find(|n| n.starts_with("BootOrderWrong: "));
        assert!(
            said.is_some_and(|n| n.contains("Boot order: disk 2000, CD-ROM.")),
            "{said:?}"
        );
    }
}

/// The next time it boots the ISO is another occurrence: nobody has to wait.
#[tokio::test]
async fn each_occurrence_gets_a_reset_at_once() {
    let mut bench = installing().await;
    go_astray(&bench);
    minutes(&mut bench, 3).await;
    silent::change(&bench, |a| {
        say(a, "added-to-existing-cluster", "Done", "Done", 5)
    });
    minutes(&mut bench, 3).await;
    boot_cdrom_first(&bench);
    silent::change(&bench, |a| {
        say(a, "installing-pending-user-action", BOOTED, "Done", 5)
    });
    minutes(&mut bench, 3).await;
    assert_eq!(resets(&bench), 2);
    assert_eq!(bench.vm().boot_repair.map(|r| r.count), Some(MOST));
    boot_cdrom_first(&bench);
    silent::change(&bench, |a| {
        say(a, "installing-pending-user-action", BOOTED, "Done", 9)
    });
    minutes(&mut bench, 100).await;
    assert_eq!(resets(&bench), 2, "that is all for one VM");
    assert_eq!(bench.waits_on(), Some(Reason::BootOrderWrong));
}

#[tokio::test]
async fn a_slow_guest_is_never_reset() {
    let mut bench = installing().await;
    let before = bench.site.with(|i| i.effects.len());
    silent::change(&bench, |a| {
        say(a, "installing-pending-user-action", SLOW, "Rebooting", 1);
    });
    minutes(&mut bench, 100).await;
    assert_eq!(bench.site.with(|i| i.effects.len()), before);
    assert_eq!(bench.waits_on(), Some(Reason::AgentStuck));
    let said = bench.status().waiting_on[0].message.clone();
    assert!(said.contains("timed out when pulling"), "{said}");
}

#[tokio::test]
async fn an_install_that_started_over_asks_for_another_machine() {
    let mut bench = installing().await;
    let before = bench.site.with(|i| i.effects.len());
    silent::change(&bench, |a| {
        let info = "The host unexpectedly restarted during the installation";
        say(a, "error", info, "Installing", 1);
    });
    minutes(&mut bench, 100).await;
    assert_eq!(bench.site.with(|i| i.effects.len()), before);
    assert_eq!(bench.waits_on(), Some(Reason::HostRestarted));
    let said = told(&bench, event::HOST_TROUBLE);
    assert!(
        said.iter().any(|n| n.contains("MachineHealthCheck")),
        "{said:?}"
    );
}

/// Only its order is wrong, and the cache is late: the API server knows already that the host moved on.
async fn moved_on() -> Bench {
    let bench = installing().await;
    bench.site.with(|i| i.vms[0].cdroms = Vec::new());
    go_astray(&bench);
    bench.hub.with(|o| {
        let mut agent = o.agents[0].clone();
        say(&mut agent, "added-to-existing-cluster", "Done", "Done", 9);
        o.live_instead = vec![agent];
    });
    bench
}

#[tokio::test]
async fn a_host_that_has_moved_on_is_not_reset() {
    let mut bench = moved_on().await;
    minutes(&mut bench, 100).await;
    assert_eq!(resets(&bench), 0);
    bench
        .hub
        .with(|o| o.agents = std::mem::take(&mut o.live_instead));
    minutes(&mut bench, 3).await;
    assert_eq!((resets(&bench), bench.waits_on()), (0, None));
}

#[tokio::test]
async fn nothing_is_done_while_it_is_paused_or_its_machine_goes() {
    for paused in [true, false] {
        let mut bench = installing().await;
        let before = bench.site.with(|i| i.effects.len());
        bench.hub.with(|o| {
            if paused {
                let child = o.child.as_mut().expect("a child");
                let annotation = (PAUSED_ANNOTATION.to_owned(), "true".to_owned());
                child.annotations_mut().extend([annotation]);
            } else {
                o.machines[0].deleting = true;
            }
        });
        go_astray(&bench);
        minutes(&mut bench, 60).await;
        assert_eq!(bench.site.with(|i| i.effects.len()), before, "{paused}");
        assert_eq!(bench.vm().boot_repair, None, "none is counted either");
    }
}

/// The API server has accepted the pause, and the watch of pools hangs.
#[tokio::test]
async fn a_pause_of_the_pool_that_no_cache_shows_holds_the_reset() {
    let mut bench = installing().await;
    bench.hub.with(|o| {
        o.unseen_pool = o.pool.clone();
        let pool = o.unseen_pool.as_mut().expect("a pool");
        let pause = (PAUSED_ANNOTATION.to_owned(), "true".to_owned());
        pool.annotations_mut().extend([pause]);
    });
    go_astray(&bench);
    minutes(&mut bench, 10).await;
    assert_eq!(
        (resets(&bench), bench.waits_on()),
        (0, Some(Reason::Paused))
    );
    bench.hub.with(|o| o.unseen_pool = None);
    minutes(&mut bench, 3).await;
    assert_eq!(resets(&bench), 1);
}

/// A process that dies between record and call leaves a record. Nothing shows whether its reset came.
#[tokio::test]
async fn a_reset_that_was_recorded_and_may_have_been_sent_is_left_to_people() {
    let mut bench = moved_on().await;
    minutes(&mut bench, 2).await;
    assert_eq!(bench.vm().boot_repair.map(|r| r.count), Some(1));
    assert_eq!(resets(&bench), 0);
    bench.restart();
    bench.hub.with(|o| o.live_instead.clear());
    minutes(&mut bench, 36).await;
    assert_eq!(bench.waits_on(), Some(Reason::BootOrderRepaired));
    bench.turn(GRACE);
    minutes(&mut bench, 100).await;
    assert_eq!(resets(&bench), 0);
    assert_eq!(bench.waits_on(), Some(Reason::BootOrderWrong));
}

/// Nothing was done: the same reset is sent again, and counted once.
#[tokio::test]
async fn a_refused_reset_is_tried_again_and_one_without_an_answer_is_not() {
    let refusal = VcErrorKind::Fault(Fault::NoPermission {
        object: None,
        privilege: "VirtualMachine.Interact.Reset".to_owned(),
    });
    let busy = VcErrorKind::Fault(Fault::TaskInProgress);
    for (failure, tries) in [
        (refusal, 2),
        (VcErrorKind::Unreachable, 2),
        (VcErrorKind::NoAnswer, 1),
        (busy, 1),
    ] {
        let mut bench = installing().await;
        go_astray(&bench);
        bench.site.with(|i| i.reset_fails = Some(failure.clone()));
        minutes(&mut bench, 15).await;
        let count = bench.vm().boot_repair.map(|r| r.count);
        assert_eq!((resets(&bench), count), (tries, Some(1)), "{failure:?}");
    }
}

/// Somebody changes the status, or it comes from a backup.
fn restore(bench: &Bench, change: impl FnOnce(&mut Option<VsphereAgentStatus>)) {
    bench.hub.with(|o| {
        o.version += 1;
        let child = o.child.as_mut().expect("it exists");
        change(&mut child.status);
        child.metadata.resource_version = Some((o.version + 100).to_string());
    });
}

fn repair_of(status: &mut Option<VsphereAgentStatus>) -> &mut Option<BootRepair> {
    let vm = status.as_mut().and_then(|s| s.vm.as_mut());
    &mut vm.expect("a record").boot_repair
}

/// Its Node is up. The service cannot see that, and the Agent says the same as before the reset.
#[tokio::test]
async fn a_node_whose_reset_is_not_on_record_any_more_is_not_reset_again() {
    for restarts in [false, true] {
        for emptied in [false, true] {
            let mut bench = installing().await;
            go_astray(&bench);
            minutes(&mut bench, 3).await;
            assert_eq!(resets(&bench), 1);
            restore(&bench, |status| {
                if emptied {
                    *status = None;
                } else {
                    *repair_of(status) = None;
                }
            });
            if restarts {
                bench.restart();
            }
            minutes(&mut bench, 5).await;
            assert_eq!(resets(&bench), 1, "{restarts} {emptied}");
            assert!(bench.vm().moref.is_some(), "its record is back");
            minutes(&mut bench, 60).await;
            assert_eq!(resets(&bench), 1, "{restarts} {emptied}");
            assert_eq!(bench.waits_on(), Some(Reason::BootOrderWrong));
        }
    }
}

/// The record is of the time between the two resets.
#[tokio::test]
async fn an_older_record_does_not_bring_the_second_reset_back() {
    for restarts in [false, true] {
        let mut bench = installing().await;
        go_astray(&bench);
        minutes(&mut bench, 3).await;
        let first = bench.vm().boot_repair;
        boot_cdrom_first(&bench);
        silent::change(&bench, |a| {
            say(a, "installing-pending-user-action", BOOTED, "Done", 5)
        });
        minutes(&mut bench, 3).await;
        assert_eq!(resets(&bench), 2);
        restore(&bench, |status| *repair_of(status) = first);
        if restarts {
            bench.restart();
        }
        minutes(&mut bench, 60).await;
        assert_eq!(resets(&bench), 2, "{restarts}");
        assert_eq!(bench.waits_on(), Some(Reason::BootOrderWrong));
    }
}

/// The limit is for the VM, not for the record of it.
#[tokio::test]
async fn a_lost_record_gives_the_vm_no_third_reset() {
    let mut bench = installing().await;
    for minute in [1, 5, 9] {
        boot_cdrom_first(&bench);
        silent::change(&bench, |a| {
            let stage = ("installing-pending-user-action", "Rebooting");
            say(a, stage.0, BOOTED, stage.1, minute);
        });
        minutes(&mut bench, 3).await;
        restore(&bench, |status| *repair_of(status) = None);
    }
    minutes(&mut bench, 60).await;
    assert_eq!(resets(&bench), 2);
    assert_eq!(bench.waits_on(), Some(Reason::BootOrderWrong));
}

/// Its disk came first, and no ISO was in a drive, when this process first looked: nothing shows why it booted the ISO.
#[tokio::test]
async fn a_guest_that_has_no_iso_to_boot_is_left_to_people() {
    let mut bench = installing().await;
    bench.site.with(|i| {
        i.vms[0].boot_order = vec![BootDevice::Disk(2000), BootDevice::Cdrom];
        i.vms[0].cdroms = Vec::new();
    });
    go_astray(&bench);
    minutes(&mut bench, 5).await;
    assert_eq!(bench.waits_on(), Some(Reason::BootOrderWrong));
    let said = bench.status().waiting_on[0].message.clone();
    assert!(said.contains("nothing in vCenter showed why"), "{said}");
    // A person works on it.
    boot_cdrom_first(&bench);
    minutes(&mut bench, 60).await;
    assert_eq!((resets(&bench), bench.times(E::EjectIso)), (0, 0));
    assert_eq!(bench.vm().boot_repair, None);
}

/// What the process saw wrong counts until the reset, although it mends that before. The next process sees what is left.
#[tokio::test]
async fn what_was_wrong_is_known_until_the_reset() {
    for (mended, expected) in [(None, 1), (Some(false), 1), (Some(true), 0)] {
        let mut bench = installing().await;
        let order = vec![BootDevice::Disk(2000), BootDevice::Cdrom];
        go_astray(&bench);
        for _ in 0..12 {
            let memory = std::mem::take(&mut bench.memory);
            let key = ObjectKey::of(&bench.child());
            let pass = crate::vm::pass::run_at_most(1, bench.context.clone(), key, memory);
            bench.memory = pass.await.0;
            let (ejected, ordered) = bench.site.with(|i| {
                let vm = &i.vms[0];
                let ejected = vm.cdroms.iter().all(|drive| drive.iso.is_none());
                (ejected, vm.boot_order == order)
            });
            if mended.is_some_and(|all| ejected && (ordered || !all)) {
                break;
            }
        }
        if mended.is_some() {
            assert_eq!(bench.vm().boot_repair, None, "it is not recorded yet");
            bench.restart();
        }
        minutes(&mut bench, 5).await;
        assert_eq!(resets(&bench), expected, "{mended:?}");
        let reason = bench.waits_on().expect("a reason");
        let asked = reason == Reason::BootOrderWrong;
        assert_eq!(asked, expected == 0, "{mended:?}: {reason}");
    }
}

/// A watch lists again, as after a restore of etcd.
#[tokio::test]
async fn nothing_is_reset_while_the_caches_may_mix_two_histories() {
    let mut bench = installing().await;
    bench.hub.with(|o| o.in_doubt = true);
    go_astray(&bench);
    minutes(&mut bench, 10).await;
    assert_eq!((resets(&bench), bench.vm().boot_repair), (0, None));
    assert_eq!(bench.waits_on(), Some(Reason::HistoryUnclear));
    bench.hub.with(|o| o.in_doubt = false);
    minutes(&mut bench, 3).await;
    assert_eq!(resets(&bench), 1);
}
