//! VMs that vCenter cannot show for a while, and what a person deleted around a VM.

use std::collections::BTreeSet;

use agent_forge_crds::conditions::Reason;

use super::*;
use crate::{context::VmNote, domain::names::MoRef, ports::clock::Clock};

/// vCenter shows no configuration of any VM, or shows all again.
fn shows(bench: &Bench, config: bool) {
    bench.site.with(|i| {
        let all = i.vms.iter().map(|vm| vm.moref.clone());
        i.inaccessible = all.filter(|_| !config).collect();
    });
}

/// Somebody deletes the VM folder with its content.
fn delete_folder(bench: &Bench) {
    bench.site.with(|i| {
        i.vms.clear();
        i.folders_deleted += 1;
    });
}

/// The scan of all VMs does not show the VM, or shows it as switched off.
fn missing_in_scan(bench: &Bench) {
    bench.doubts.send_modify(|all| {
        let gone = BTreeSet::from(["vm-1".to_owned()]);
        all.insert("vc.example".to_owned(), gone);
    });
}

async fn passes(bench: &mut Bench, count: usize) {
    for _ in 0..count {
        bench.turn(MINUTE);
        bench.pass().await;
    }
}

#[tokio::test]
async fn a_vm_that_cannot_be_shown_is_not_let_go_and_goes_once_it_is_shown() {
    for restarts in [false, true] {
        let mut bench = on().await;
        shows(&bench, false);
        release(&bench);
        if restarts {
            bench.restart();
        } else {
            bench.memory.seen = Ownership::NotAsked;
        }
        passes(&mut bench, 10).await;
        assert_eq!(bench.waits_on(), Some(Reason::VmInaccessible));
        assert_eq!(bench.child().finalizers(), [AGENT_FINALIZER]);
        let told = bench.hub.with(|o| o.notices.clone());
        let told = told.iter().filter(|n| n.reason == event::VSPHERE_TROUBLE);
        assert_eq!(told.count(), 1);
        shows(&bench, true);
        bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
        assert_eq!(bench.site.with(|i| i.vms.len()), 0);
    }
}

/// The reply to its create was lost, or the record of its reference. Only the name shows that it may be ours.
#[tokio::test]
async fn nothing_is_made_beside_a_vm_that_cannot_be_shown_and_has_our_name() {
    let mut bench = Bench::new();
    bench.site.with(|i| {
        i.creates = [VcErrorKind::NoAnswer].into();
        i.lost_but_done = true;
    });
    bench.pass().await;
    shows(&bench, false);
    bench.restart();
    passes(&mut bench, 10).await;
    assert_eq!(bench.waits_on(), Some(Reason::VmInaccessible));
    assert_eq!(bench.times(E::CreateVm), 1);
    shows(&bench, true);
    bench.until(Bench::is_on).await;
    assert_eq!(bench.vm().attempt, Some(1));
    assert_eq!(bench.site.with(|i| i.vms.len()), 1);
}

/// The VM was registered again, and somebody changed its BIOS uuid.
#[tokio::test]
async fn a_vm_is_found_by_its_mark_where_its_reference_and_uuid_lead_nowhere() {
    let mut bench = on().await;
    bench.site.with(|i| {
        i.vms[0].moref = MoRef::new("VirtualMachine", "vm-77");
        i.vms[0].bios_uuid = Some(BiosUuid::derive("another", "a", 1));
    });
    release(&bench);
    bench.restart();
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    assert_eq!(bench.site.with(|i| i.vms.len()), 0);
    assert_eq!(bench.times(E::Destroy), 1);
}

/// A VM that has our reference and is not proven to be another VM does not count as absent.
#[tokio::test]
async fn a_vm_under_our_reference_without_mark_and_uuid_is_left_to_a_person() {
    let mut bench = on().await;
    bench.site.with(|i| {
        i.vms[0].marker = None;
        i.vms[0].bios_uuid = Some(BiosUuid::derive("another", "a", 1));
    });
    release(&bench);
    bench.restart();
    passes(&mut bench, 10).await;
    assert_eq!(bench.waits_on(), Some(Reason::OwnershipUnproven));
    // A vCenter that was restored gave the reference to another VM.
    bench
        .site
        .with(|i| i.vms[0].instance_uuid = Some("another".to_owned()));
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    assert_eq!(bench.site.with(|i| i.vms.len()), 1);
    assert_eq!(bench.times(E::Destroy), 0);
}

#[tokio::test]
async fn a_vm_goes_whose_folder_was_deleted() {
    let mut bench = on().await;
    delete_folder(&bench);
    release(&bench);
    bench.restart();
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
}

#[tokio::test]
async fn a_vm_is_made_anew_whose_folder_was_deleted_before_it_served() {
    let mut bench = on().await;
    delete_folder(&bench);
    bench.restart();
    missing_in_scan(&bench);
    bench.until(|b| b.vm().attempt == Some(2)).await;
    bench.until(Bench::is_on).await;
    let folder = bench.vm().placement.and_then(|p| p.folder_ref);
    assert_eq!(folder.as_deref(), Some("group-v2"));
}

/// Its place is on record, and the folder was deleted before its create.
#[tokio::test]
async fn a_folder_that_went_before_the_create_is_made_again() {
    let mut bench = Bench::new();
    bench.site.with(|i| {
        i.creates = [VcErrorKind::Fault(Fault::NoDiskSpace("full".to_owned()))].into();
    });
    bench.pass().await;
    delete_folder(&bench);
    bench
        .until(|b| b.waits_on() == Some(Reason::VmFolderDeleted) || b.is_on())
        .await;
    bench.until(Bench::is_on).await;
    let folder = bench.vm().placement.and_then(|p| p.folder_ref);
    assert_eq!(folder.as_deref(), Some("group-v2"));
    assert_eq!(bench.waits_on(), None);
}

#[tokio::test]
async fn a_serving_vm_whose_folder_was_deleted_is_said_to_be_missing_for_that() {
    let mut bench = on().await;
    bench.hub.with(|o| {
        let mut agent = agent_on(o.child.as_ref().expect("child"));
        claim(&mut agent, &o.agent_machines[0]);
        o.agents = vec![agent];
    });
    bench.pass().await;
    delete_folder(&bench);
    missing_in_scan(&bench);
    passes(&mut bench, 5).await;
    assert_eq!(bench.waits_on(), Some(Reason::VmFolderDeleted));
    assert_eq!(bench.vm().attempt, Some(1));
}

#[tokio::test]
async fn a_mended_place_ends_a_conflict_of_names_at_once() {
    type Mend = fn(&mut agent_forge_crds::pool::VsphereSpec);
    let mends: [Mend; 2] = [
        |v| v.folder = Some("roomy".to_owned()),
        |v| v.datacenter = Some("dc2".to_owned()),
    ];
    for mend in mends {
        let mut bench = Bench::new();
        let taken = taken_name();
        bench.site.with(|i| {
            i.vms = vec![taken.clone()];
            i.names_are_unique = true;
        });
        bench
            .until(|b| b.waits_on() == Some(Reason::NameConflict))
            .await;
        bench.hub.with(|o| {
            let pool = o.pool.as_mut().expect("pool");
            mend(&mut pool.spec.vsphere);
            pool.metadata.generation = Some(2);
        });
        // In the new folder the name is free.
        bench.site.with(|i| i.names_are_unique = false);
        let began = bench.clock.monotonic();
        bench.until(|b| b.times(E::CreateVm) == 2).await;
        let took = bench.clock.monotonic().saturating_sub(began);
        assert!(took < Duration::from_secs(10), "{took:?}");
        bench.until(Bench::is_on).await;
        assert_eq!(bench.vm().attempt, Some(2));
        assert!(bench.site.with(|i| i.vms.contains(&taken)));
    }
}

fn suspend(bench: &Bench) {
    bench.site.with(|i| i.vms[0].power = PowerState::Suspended);
}

#[tokio::test]
async fn a_suspended_vm_goes_by_being_switched_off() {
    let mut bench = on().await;
    suspend(&bench);
    release(&bench);
    bench.restart();
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    assert_eq!((bench.times(E::PowerOff), bench.times(E::Destroy)), (1, 1));
}

#[tokio::test]
async fn a_suspended_vm_that_cannot_be_switched_off_is_tried_a_few_times_and_told_of() {
    let mut bench = on().await;
    suspend(&bench);
    bench.site.with(|i| i.suspended_stays = true);
    release(&bench);
    bench.restart();
    bench
        .until(|b| b.waits_on() == Some(Reason::VmSuspended))
        .await;
    passes(&mut bench, 60).await;
    assert_eq!(bench.times(E::PowerOff), 3);
    assert_eq!(bench.waits_on(), Some(Reason::VmSuspended));
    // Somebody resumes it, or switches it off.
    bench.site.with(|i| i.vms[0].power = PowerState::On);
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_vm_is_resumed_before_it_serves_and_left_alone_after() {
    let mut bench = Bench::new();
    bench.site.with(|i| i.hangs = Some(E::PowerOn));
    bench.until(|b| b.times(E::PowerOn) == 1).await;
    bench.site.end_task();
    suspend(&bench);
    bench.site.with(|i| i.vms[0].boot_order.clear());
    bench.restart();
    bench.until(Bench::is_on).await;
    assert_eq!(bench.times(E::Reconfigure), 1, "not while it is suspended");
    bench.hub.with(|o| {
        let mut agent = agent_on(o.child.as_ref().expect("child"));
        claim(&mut agent, &o.agent_machines[0]);
        o.agents = vec![agent];
    });
    bench.pass().await;
    suspend(&bench);
    bench.memory.seen = Ownership::NotAsked;
    let ons = bench.times(E::PowerOn);
    missing_in_scan(&bench);
    passes(&mut bench, 5).await;
    assert_eq!(bench.waits_on(), Some(Reason::VmSuspended));
    assert_eq!(bench.times(E::PowerOn), ons);
}

/// Somebody switches off a VM that serves. Only news, or a scan, lead to a look at it.
#[tokio::test]
async fn news_of_a_vm_lead_to_looks_until_it_runs_again() {
    let mut bench = on().await;
    bind_agent(&bench);
    passes(&mut bench, 2).await;
    bench.site.with(|i| i.vms[0].power = PowerState::Off);
    let reads = bench.site.with(|i| i.reads);
    passes(&mut bench, 2).await;
    assert_eq!(bench.site.with(|i| i.reads), reads, "nobody told");
    let tell = |bench: &Bench, number, runs| {
        bench.news.send_modify(|all| {
            let vms = all.entry("vc.example".to_owned()).or_default();
            vms.insert("vm-1".to_owned(), VmNote { number, runs });
        });
    };
    tell(&bench, 1, false);
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::VmPoweredOff));
    passes(&mut bench, 5).await;
    assert_eq!(bench.waits_on(), Some(Reason::VmPoweredOff), "still off");
    bench.site.with(|i| i.vms[0].power = PowerState::On);
    tell(&bench, 2, true);
    bench.pass().await;
    assert_eq!(bench.waits_on(), None);
    let reads = bench.site.with(|i| i.reads);
    passes(&mut bench, 2).await;
    assert_eq!(bench.site.with(|i| i.reads), reads, "it runs as recorded");
}
