//! Hardware that somebody changed in vCenter is reported. A changed template replaces a VM that no Machine can have, and no
//! other.

use agent_forge_crds::{
    conditions::{CONFIG_SYNCED, find_condition},
    external::agent::VALIDATED,
    names::PAUSED_ANNOTATION,
    pool::VsphereAgentPool,
};

use super::{
    silent::{change, moves_to_buffer, registered, state},
    *,
};
use crate::{
    domain::hardware::{Link, ShownCard, ShownNow},
    vm::testing::vcenter::as_made,
};

/// Status and reason of the condition.
fn synced(bench: &Bench) -> Option<(String, String)> {
    let status = bench.status();
    let found = find_condition(&status.conditions, CONFIG_SYNCED)?;
    Some((found.status.clone(), found.reason.clone()))
}

fn says(bench: &Bench, status: &str, reason: &str) -> bool {
    synced(bench) == Some((status.to_owned(), reason.to_owned()))
}

fn edit(bench: &Bench, edit: impl FnOnce(&mut VsphereAgentPool)) {
    bench.hub.with(|o| edit(o.pool.as_mut().expect("a pool")));
}

fn more_cpus(bench: &Bench) {
    edit(bench, |p| p.spec.template.num_cpus = Some(8));
}

/// Its validations have failed for longer than the status needs.
fn fails(bench: &Bench) {
    let at = bench.context.clock.wall();
    change(bench, |a| {
        state(a, "insufficient-unbound", &[(VALIDATED, "False")]);
        let status = a.status.as_mut().expect("status");
        let row = status.conditions.iter_mut().find(|c| c.type_ == VALIDATED);
        row.expect("it is there").last_transition_time = Some(agent_forge_crds::Time(at));
    });
    bench.turn(6 * MINUTE);
}

/// Whether the last scan showed the VM otherwise than it is recorded.
fn is_doubted(bench: &Bench, doubted: bool) {
    let vms = doubted.then(|| "vm-1".to_owned()).into_iter().collect();
    bench
        .doubts
        .send_modify(|all| drop(all.insert("vc.example".to_owned(), vms)));
}

/// The VM of the bench is given up for its template, and the next one runs.
async fn is_replaced(bench: &mut Bench) {
    // The rest between two VMs may be over when a pause ends.
    bench
        .until(|b| b.vm().attempt == Some(2) && b.is_on())
        .await;
    let failure = bench.status().last_failure.expect("recorded");
    assert_eq!(failure.class.as_deref(), Some("TemplateChanged"));
    assert_eq!(failure.count, Some(1));
    let made = bench.site.with(|i| i.vms[0].hardware.num_cpus);
    assert_eq!(made, Some(8));
    assert!(says(bench, "True", "Synced"), "{:?}", synced(bench));
}

#[tokio::test]
async fn a_vm_is_made_as_recorded_and_compared_with_that() {
    let mut bench = on().await;
    assert!(says(&bench, "True", "Synced"), "{:?}", synced(&bench));
    let template = bench.vm().template.expect("recorded");
    assert_eq!((template.num_cpus, template.disk_gib), (Some(4), Some(100)));
    bench.site.with(|i| i.vms[0].hardware.num_cpus = Some(8));
    is_doubted(&bench, true);
    // What the actor has seen a moment ago counts for a while.
    bench.pass().await;
    bench.turn(2 * MINUTE);
    bench.until(|b| says(b, "False", "HardwareDrift")).await;
    is_doubted(&bench, false);
    let row = bench.vm().hardware_drift.remove(0);
    assert_eq!(
        (row.field.as_str(), row.want.as_str(), row.have.as_str()),
        ("numCPUs", "4", "8")
    );
    let notices = bench.hub.with(|o| o.notices.clone());
    let told = notices.iter().filter(|n| n.reason == event::HARDWARE_DRIFT);
    assert_eq!(told.count(), 1);
    // The actor may not have looked since it started: the record stays.
    bench.restart();
    bench.pass().await;
    assert!(says(&bench, "False", "HardwareDrift"));
    bench.site.with(|i| i.vms[0].hardware.num_cpus = Some(4));
    let hardware = crate::domain::template::recorded(&bench.vm()).expect("recorded");
    assert_eq!(
        bench.site.with(|i| i.vms[0].hardware.clone()),
        as_made(&hardware, &crate::domain::network::nics("VM Network"))
    );
    is_doubted(&bench, true);
    bench.until(|b| says(b, "True", "Synced")).await;
    assert_eq!(bench.times(E::PowerOff), 0);
}

/// The VM has that card, and the operator learns it.
async fn with_card(bench: &mut Bench, edit: impl FnOnce(&mut ShownCard)) {
    bench.site.with(|i| {
        let cards = i.vms[0].hardware.cards.as_mut().expect("cards");
        edit(&mut cards[0]);
    });
    is_doubted(bench, true);
    bench.pass().await;
    bench.turn(2 * MINUTE);
    bench.pass().await;
    is_doubted(bench, false);
}

#[tokio::test]
async fn another_network_is_reported_and_nothing_is_done_about_it() {
    let mut bench = on().await;
    let made = bench.vm().template.expect("recorded").network_cards;
    assert_eq!(made.len(), 1);
    let network = made[0].network.clone().expect("its name");
    let id = made[0].network_ref.clone().expect("its id");
    with_card(&mut bench, |card| {
        card.network = None;
        card.network_ref = Some("dvportgroup-9".to_owned());
        card.link = Some(Link::Disconnected);
    })
    .await;
    assert!(
        says(&bench, "False", "HardwareDrift"),
        "{:?}",
        synced(&bench)
    );
    let rows = crate::domain::template::explain(&bench.vm().hardware_drift);
    let want = format!("{network} ({id})");
    assert_eq!(
        rows,
        format!(
            "network: want {want}, have dvportgroup-9; networkConnection: want connected, have disconnected"
        )
    );
    with_card(&mut bench, |card| {
        card.network_ref = Some(id.clone());
        card.link = Some(Link::Connected);
    })
    .await;
    assert!(says(&bench, "True", "Synced"), "{:?}", synced(&bench));
    let record = bench.vm().template.expect("recorded");
    assert_eq!(record.network_cards, made, "it is written once");
    assert_eq!(bench.times(E::PowerOff), 0);
    assert_eq!(bench.status().last_failure, None);
}

#[tokio::test]
async fn a_vm_of_an_older_release_is_not_compared_by_its_networks() {
    let mut bench = on().await;
    bench.hub.with(|o| {
        o.version += 1;
        let version = (o.version + 100).to_string();
        let child = o.child.as_mut().expect("child");
        child.metadata.resource_version = Some(version);
        let vm = child.status.as_mut().and_then(|s| s.vm.as_mut());
        let template = vm.and_then(|vm| vm.template.as_mut());
        template.expect("recorded").network_cards.clear();
    });
    with_card(&mut bench, |card| {
        card.network_ref = Some("dvportgroup-9".to_owned());
    })
    .await;
    assert!(says(&bench, "True", "Synced"), "{:?}", synced(&bench));
    let record = bench.vm().template.expect("recorded");
    assert_eq!(record.network_cards, [], "the first sight is long past");
}

#[tokio::test]
async fn another_template_replaces_a_vm_whose_agent_has_not_registered() {
    let mut bench = on().await;
    more_cpus(&bench);
    is_replaced(&mut bench).await;
}

#[tokio::test]
async fn another_template_replaces_a_vm_whose_validations_fail() {
    for in_buffer in [false, true] {
        let mut bench = registered().await;
        if in_buffer {
            moves_to_buffer(&bench);
        }
        fails(&bench);
        bench.pass().await;
        assert_eq!(
            bench.status().last_failure,
            None,
            "the template is the same"
        );
        more_cpus(&bench);
        is_replaced(&mut bench).await;
    }
}

#[tokio::test]
async fn a_vm_that_a_machine_can_have_or_has_stays_as_it_is() {
    for bound in [false, true] {
        let mut bench = registered().await;
        if bound {
            bind_agent(&bench);
        }
        bench.pass().await;
        more_cpus(&bench);
        for _ in 0..3 {
            bench.turn(6 * MINUTE);
            bench.pass().await;
        }
        assert!(says(&bench, "False", "TemplateChanged"), "{bound}");
        assert_eq!(bench.status().last_failure, None, "{bound}");
        assert_eq!(bench.times(E::PowerOff), 0, "{bound}");
    }
}

#[tokio::test]
async fn an_agent_that_is_valid_at_the_last_moment_keeps_its_vm() {
    let mut bench = registered().await;
    fails(&bench);
    let valid = bench.hub.with(|o| {
        let mut agent = o.agents[0].clone();
        state(&mut agent, "known-unbound", &[(VALIDATED, "True")]);
        agent
    });
    bench.hub.with(|o| o.unseen_agents = vec![valid]);
    more_cpus(&bench);
    bench.pass().await;
    assert_eq!(bench.status().last_failure, None, "a live look decides");
}

#[tokio::test]
async fn what_is_kept_or_not_recorded_is_not_replaced() {
    let mut bench = on().await;
    edit(&bench, |p| {
        p.spec.cleanup_policy = Some(CleanupPolicy::Retain)
    });
    more_cpus(&bench);
    bench.pass().await;
    assert!(says(&bench, "False", "TemplateChanged"));
    assert_eq!(bench.status().last_failure, None);

    let mut bench = on().await;
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("child");
        let vm = child.status.as_mut().and_then(|s| s.vm.as_mut());
        vm.expect("recorded").template = None;
        o.version += 1;
        let version = (o.version + 100).to_string();
        let child = o.child.as_mut().expect("child");
        child.metadata.resource_version = Some(version);
    });
    more_cpus(&bench);
    bench
        .until(|b| says(b, "Unknown", "TemplateUnrecorded"))
        .await;
    assert_eq!(bench.status().last_failure, None);
}

#[tokio::test]
async fn a_vm_that_does_not_exist_yet_is_made_with_the_new_template() {
    let mut bench = Bench::new();
    let refused = VcErrorKind::Fault(Fault::InvalidArgument {
        property: "numCPUs".to_owned(),
    });
    bench.site.with(|i| i.creates = [refused].into());
    bench.pass().await;
    assert_eq!(bench.times(E::CreateVm), 1);
    more_cpus(&bench);
    bench.until(Bench::is_on).await;
    assert_eq!((bench.vm().attempt, bench.times(E::CreateVm)), (Some(2), 2));
    assert_eq!(bench.site.with(|i| i.vms[0].hardware.num_cpus), Some(8));
}

#[tokio::test]
async fn a_vm_that_was_made_and_never_ran_is_replaced_without_a_start() {
    let mut bench = Bench::new();
    edit(&bench, |p| {
        let later = bench.context.clock.wall() + 10 * MINUTE;
        p.spec.power_on_after = Some(agent_forge_crds::Time(later));
    });
    bench
        .until(|b| b.waits_on() == Some(Reason::PowerOnScheduled))
        .await;
    more_cpus(&bench);
    bench.until(|b| b.status().last_failure.is_some()).await;
    assert_eq!(bench.times(E::PowerOn), 0);
    is_replaced(&mut bench).await;
    assert_eq!(bench.times(E::PowerOn), 1);
}

#[tokio::test]
async fn a_vm_that_was_given_up_waits_quietly_while_its_pool_is_paused() {
    let mut bench = on().await;
    more_cpus(&bench);
    bench.until(|b| b.times(E::Destroy) == 1).await;
    edit(&bench, |p| {
        let paused = (PAUSED_ANNOTATION.to_owned(), "true".to_owned());
        p.annotations_mut().extend([paused]);
    });
    bench.until(|b| b.waits_on() == Some(Reason::Paused)).await;
    let (reads, status) = (bench.site.with(|i| i.reads), bench.status());
    for _ in 0..5 {
        bench.turn(MINUTE);
        bench.pass().await;
        assert_eq!(bench.waits_on(), Some(Reason::Paused));
    }
    assert_eq!(bench.site.with(|i| i.reads), reads, "its absence is proven");
    assert_eq!(bench.status(), status, "nothing new is to be said");
    edit(&bench, |p| p.annotations_mut().clear());
    is_replaced(&mut bench).await;
}

#[tokio::test]
async fn its_hardware_version_is_recorded_and_stays_where_vcenter_does_not_show_it() {
    let mut bench = on().await;
    assert_eq!(bench.vm().hardware_version, Some(19));
    let look = async |bench: &mut Bench, seen: fn(&Bench) -> bool| {
        is_doubted(bench, true);
        // What the actor has seen a moment ago counts for a while.
        bench.pass().await;
        bench.turn(2 * MINUTE);
        bench.until(seen).await;
    };
    bench.site.with(|i| i.vms[0].hardware.version = Some(13));
    look(&mut bench, |b| b.vm().hardware_version == Some(13)).await;
    assert!(says(&bench, "True", "Synced"), "it is no drift");
    bench.site.with(|i| {
        let shown = &mut i.vms[0].hardware;
        (shown.version, shown.num_cpus) = (None, Some(8));
    });
    look(&mut bench, |b| says(b, "False", "HardwareDrift")).await;
    assert_eq!(bench.vm().hardware_version, Some(13));
}

#[tokio::test]
async fn host_storage_and_snapshot_are_recorded_and_what_is_not_shown_stays() {
    let mut bench = on().await;
    let is = |b: &Bench| {
        let vm = b.vm();
        (vm.esxi_host.clone(), vm.used_storage_gib, vm.has_snapshot)
    };
    let esx = |n: u8| Some(format!("esx-{n}"));
    assert_eq!(is(&bench), (esx(1), Some(5), None));
    let look = async |bench: &mut Bench, seen: fn(&Bench) -> bool| {
        is_doubted(bench, true);
        bench.pass().await;
        bench.turn(2 * MINUTE);
        bench.until(seen).await;
    };
    bench.site.with(|i| {
        i.vms[0].hardware.now = ShownNow {
            host: Some("esx-2".to_owned()),
            used_bytes: Some(8 << 30),
            has_snapshot: Some(true),
        };
    });
    look(&mut bench, |b| b.vm().has_snapshot == Some(true)).await;
    assert_eq!(is(&bench), (esx(2), Some(8), Some(true)));
    assert!(says(&bench, "True", "Synced"), "it is no drift");
    bench.site.with(|i| {
        let shown = &mut i.vms[0].hardware;
        (shown.now, shown.num_cpus) = (ShownNow::default(), Some(8));
    });
    look(&mut bench, |b| says(b, "False", "HardwareDrift")).await;
    assert_eq!(is(&bench), (esx(2), Some(8), Some(true)));
    // Little more storage is nothing new.
    bench.site.with(|i| {
        let shown = &mut i.vms[0].hardware;
        shown.now.used_bytes = Some((8 << 30) + 1);
        (shown.now.has_snapshot, shown.num_cpus) = (Some(false), Some(16));
    });
    look(&mut bench, |b| b.vm().has_snapshot.is_none()).await;
    assert_eq!(is(&bench), (esx(2), Some(8), None));
}
