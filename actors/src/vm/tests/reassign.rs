//! A VM changes its pool: one owner at each moment, whatever crashes in between.

use agent_forge_crds::{
    agent::VsphereAgent,
    names::{
        AGENT_MACHINE_UID_ANNOTATION, PAUSED_ANNOTATION, RESERVED_FOR_ANNOTATION,
        SKIP_DELETE_ANNOTATION,
    },
    pool::ReassignSpec,
};

use super::*;
use crate::{
    domain::{
        marker::Marker,
        reassign::{Reservation, Source},
    },
    pool::act,
    vm::testing::vcenter::Site,
};

/// Marks that VM as changed by somebody from now on.
const VERSION: &str = "1";

/// A host that waits in the buffer of its pool, with its Agent.
async fn waiting() -> Bench {
    let bench = on().await;
    bind_agent(&bench);
    bench.hub.with(|o| {
        let agent = o.agents.first_mut().expect("an Agent");
        agent
            .metadata
            .labels
            .as_mut()
            .expect("labels")
            .remove(agent_forge_crds::external::agent::AGENT_MACHINE_REF_LABEL);
        agent.metadata.annotations = None;
        agent.spec.cluster_deployment_name = None;
        agent.spec.approved = true;
        let child = o.child.as_mut().expect("it exists");
        testing::move_to_buffer(child);
        let reference = k8s_openapi::api::core::v1::ObjectReference {
            name: agent.metadata.name.clone(),
            namespace: agent.metadata.namespace.clone(),
            uid: agent.metadata.uid.clone(),
            ..Default::default()
        };
        let vm = child.status.as_mut().and_then(|s| s.vm.as_mut());
        vm.expect("a record").agent_ref = Some(reference);
    });
    bench.site.with(|i| {
        i.vms[0].change_version = Some(VERSION.to_owned());
    });
    bench
}

fn source(lender: &VsphereAgent) -> Source {
    Source {
        key: ObjectKey::of(lender),
        uid: lender.uid().expect("a uid"),
        attempt: 1,
    }
}

/// The VsphereAgent `b`, which takes that host over: its Agent is reserved.
fn taker(lender: &Bench) -> Bench {
    let mut bench = Bench::at("b", lender.site.clone());
    let (old, mut agents) = lender.hub.with(|o| (o.child.clone(), o.agents.clone()));
    let old = old.expect("it exists");
    bench.hub.with(|o| {
        let own = Reservation {
            pool: o.pool.as_ref().and_then(ResourceExt::uid).expect("a uid"),
            name: "b".to_owned(),
        };
        let key = RESERVED_FOR_ANNOTATION.to_owned();
        agents[0].annotations_mut().insert(key, own.to_string());
        o.agents = agents;
        o.pool.as_mut().expect("a pool").spec.reassign = Some(ReassignSpec {
            group: "lab".to_owned(),
            new_disk: None,
        });
        let child = o.child.as_mut().expect("it exists");
        let made = act::borrower_object(
            o.pool.as_ref().expect("a pool"),
            &testing::agent_machine("b"),
            &testing::machine("b"),
            "b",
            &source(&old),
        );
        child.metadata.labels = made.metadata.labels;
        child.metadata.annotations = made.metadata.annotations;
        child.spec = made.spec;
        o.others = vec![old];
    });
    bench.clock = lender.clock.clone();
    bench.context.clock = lender.clock.clone();
    bench
}

fn owner(site: &Site) -> Option<String> {
    site.with(|i| Some(i.vms.first()?.marker.clone()?.uid))
}

fn is_stamped(bench: &Bench) -> bool {
    let from = bench.vm().taken_from;
    from.is_some_and(|from| from.stamped == Some(true))
}

fn marker(uid: &str) -> Marker {
    Marker {
        cluster_id: testing::CLUSTER_ID.to_owned(),
        namespace: NAMESPACE.to_owned(),
        name: "third".to_owned(),
        uid: uid.to_owned(),
        attempt: 1,
    }
}

#[tokio::test]
async fn a_host_goes_to_another_vsphere_agent_as_it_is() {
    let lender = waiting().await;
    let before = lender.vm();
    let mut taker = taker(&lender);
    taker.until(is_stamped).await;
    let vm = taker.vm();
    assert_eq!((&vm.name, &vm.moref), (&before.name, &before.moref));
    assert_eq!(vm.bios_uuid, before.bios_uuid);
    assert_eq!((vm.attempt, vm.vm_path), (Some(1), before.vm_path));
    assert_eq!(owner(&taker.site), taker.child().uid());
    assert_eq!((taker.times(E::CreateVm), taker.times(E::PowerOff)), (1, 0));
    let notes = taker.site.with(|i| i.vms[0].annotation.clone());
    assert!(notes.ends_with("va-a"), "{notes}");
    let told = taker.hub.with(|o| o.notices.clone());
    assert!(told.iter().any(|n| n.reason == event::HOST_BORROWED));
    // From now on it is as any other.
    for _ in 0..3 {
        taker.turn(MINUTE);
        taker.pass().await;
    }
    assert_eq!(taker.waits_on(), None);
    assert_eq!(taker.site.with(|i| i.vms.len()), 1);
}

/// The process dies after each call. It looks before each, since it remembers nothing.
#[tokio::test]
async fn a_crash_after_each_step_leaves_one_owner() {
    let lender = waiting().await;
    let taker = taker(&lender);
    let mut owners = Vec::new();
    for _ in 0..12 {
        let key = ObjectKey::of(&taker.child());
        let (context, memory) = (taker.context.clone(), Default::default());
        let _ = crate::vm::pass::run_at_most(2, context, key, memory).await;
        owners.push(owner(&taker.site).expect("an owner"));
        taker.turn(Duration::from_secs(3));
    }
    assert!(is_stamped(&taker), "{:?}", taker.vm());
    owners.dedup();
    assert_eq!(owners, ["va-a", "va-b"]);
    assert_eq!(taker.site.with(|i| i.vms.len()), 1);
}

#[tokio::test]
async fn of_two_that_write_their_mark_the_second_makes_a_vm_of_its_own() {
    let lender = waiting().await;
    let mut taker = taker(&lender);
    taker
        .site
        .with(|i| i.marked_before = Some(marker("va-third")));
    taker.until(Bench::is_on).await;
    taker
        .until(|b| b.vm().attempt == Some(2) && b.is_on())
        .await;
    let vm = taker.vm();
    assert_eq!((vm.attempt, vm.taken_from), (Some(2), None));
    assert_eq!(vm.name, "b");
    assert_eq!(owner(&taker.site).as_deref(), Some("va-third"));
    let calls = [E::CreateVm, E::Destroy, E::PowerOff].map(|kind| taker.times(kind));
    assert_eq!(calls, [2, 0, 0]);
    let agents = taker.hub.with(|o| o.agents.len());
    assert_eq!(agents, 1, "the Agent is not its own");
}

/// A taker that has the VM on record, and has not begun to change its mark.
async fn recorded(lender: &Bench) -> Bench {
    let taker = taker(lender);
    for _ in 0..12 {
        if let Some(from) = taker.vm().taken_from {
            assert_eq!(from.stamped, Some(false), "it has not begun");
            return taker;
        }
        let key = ObjectKey::of(&taker.child());
        let (context, memory) = (taker.context.clone(), Default::default());
        let _ = crate::vm::pass::run_at_most(1, context, key, memory).await;
        taker.turn(Duration::from_secs(3));
    }
    panic!("the VM is not on record: {:?}", taker.status());
}

/// It makes a VM of its own, and the host stays as it is.
async fn lets_go(taker: &mut Bench) {
    let seen = taker.site.with(|i| i.effects.len());
    taker
        .until(|b| b.vm().taken_from.is_none() && b.vm().name == "b" && b.is_on())
        .await;
    assert_eq!(owner(&taker.site).as_deref(), Some("va-a"));
    let calls = taker.site.with(|i| i.effects[seen..].to_vec());
    for kind in [E::PowerOff, E::Destroy] {
        assert!(!calls.contains(&kind), "{calls:?}");
    }
}

#[tokio::test]
async fn a_taker_lets_go_of_a_host_that_others_have_or_whose_agent_is_gone() {
    type Change = fn(&mut crate::vm::testing::hub::Objects);
    let changes: [(&str, Change); 5] = [
        ("its Agent is gone", |o| o.agents.clear()),
        ("another one claims its Agent", |o| {
            claim(&mut o.agents[0], &testing::agent_machine("another"));
        }),
        ("it is reserved for another one", |o| {
            let key = RESERVED_FOR_ANNOTATION.to_owned();
            let other = "another/w".to_owned();
            o.agents[0].annotations_mut().insert(key, other);
        }),
        ("a person keeps it", |o| {
            let key = SKIP_DELETE_ANNOTATION.to_owned();
            o.others[0].annotations_mut().insert(key, "true".to_owned());
        }),
        ("its VsphereAgent is not of the buffer any more", |o| {
            let key = AGENT_MACHINE_UID_ANNOTATION.to_owned();
            let other = "am-another".to_owned();
            o.others[0].annotations_mut().insert(key, other);
        }),
    ];
    for (what, change) in changes {
        let lender = waiting().await;
        let mut taker = recorded(&lender).await;
        taker.hub.with(change);
        println!("{what}");
        lets_go(&mut taker).await;
    }
}

/// A request may be under way.
#[tokio::test]
async fn a_taker_that_has_begun_does_not_let_go() {
    let lender = waiting().await;
    let mut taker = recorded(&lender).await;
    taker.hub.with(|o| {
        let vm = o.child.as_mut().and_then(|c| c.status.as_mut());
        let vm = vm.and_then(|s| s.vm.as_mut()).expect("a record");
        vm.taken_from.as_mut().expect("on record").stamped = None;
        o.agents.clear();
    });
    for _ in 0..5 {
        taker.pass().await;
        taker.turn(MINUTE);
    }
    assert_eq!(taker.waits_on(), Some(Reason::TakingHost));
    assert_eq!(owner(&taker.site).as_deref(), Some("va-a"));
    assert!(taker.vm().taken_from.is_some());
}

/// The caches do not show it.
#[tokio::test]
async fn a_host_whose_pool_people_hold_back_is_not_taken_until_they_end_that() {
    use agent_forge_crds::names::DELETE_CHECK_PREFIX;
    let veto = format!("{DELETE_CHECK_PREFIX}storage");
    for key in [PAUSED_ANNOTATION, veto.as_str()] {
        let lender = waiting().await;
        let mut taker = recorded(&lender).await;
        taker.hub.with(|o| {
            let mut pool = o.pool.clone().expect("a pool");
            pool.annotations_mut()
                .insert(key.to_owned(), "true".to_owned());
            o.unseen_pool = Some(pool);
        });
        for _ in 0..5 {
            taker.pass().await;
            taker.turn(MINUTE);
        }
        assert_eq!(taker.waits_on(), Some(Reason::TakingHost), "{key}");
        assert_eq!(owner(&taker.site).as_deref(), Some("va-a"), "{key}");
        taker.hub.with(|o| o.unseen_pool = None);
        taker.until(is_stamped).await;
        assert_eq!(owner(&taker.site).as_deref(), Some("va-b"), "{key}");
    }
}

/// The API server has it, and the watch of Agents hangs.
fn shows_an_unknown_state(o: &mut crate::vm::testing::hub::Objects) {
    let mut agent = o.agents[0].clone();
    silent::state(&mut agent, "a-state-of-tomorrow", &[]);
    o.live_instead = vec![agent];
}

#[tokio::test]
async fn a_host_whose_agent_shows_a_state_that_no_cache_has_is_not_taken() {
    // Before its mark is changed, the taker waits.
    let lender = waiting().await;
    let mut taker = recorded(&lender).await;
    taker.hub.with(shows_an_unknown_state);
    for _ in 0..5 {
        taker.pass().await;
        taker.turn(MINUTE);
    }
    assert_eq!(taker.waits_on(), Some(Reason::TakingHost));
    assert_eq!(owner(&taker.site).as_deref(), Some("va-a"));
    taker.hub.with(|o| o.live_instead.clear());
    taker.until(is_stamped).await;
    assert_eq!(owner(&taker.site).as_deref(), Some("va-b"));
}

#[tokio::test]
async fn nor_does_it_come_on_record() {
    let lender = waiting().await;
    let mut taker = taker(&lender);
    taker.hub.with(shows_an_unknown_state);
    for _ in 0..5 {
        taker.pass().await;
        taker.turn(MINUTE);
    }
    assert_eq!(taker.vm().taken_from, None);
    assert_eq!(owner(&taker.site).as_deref(), Some("va-a"));
}

/// A person wrote both annotations.
#[tokio::test]
async fn nothing_is_taken_from_a_pool_of_another_group() {
    let lender = waiting().await;
    let mut taker = taker(&lender);
    taker
        .hub
        .with(|o| o.pool.as_mut().expect("a pool").spec.reassign = None);
    taker.until(Bench::is_on).await;
    assert_eq!(owner(&taker.site).as_deref(), Some("va-a"));
    assert_eq!(taker.vm().taken_from, None);
}

#[tokio::test]
async fn nothing_is_taken_without_the_reservation() {
    let lender = waiting().await;
    let mut taker = taker(&lender);
    taker.hub.with(|o| o.agents[0].metadata.annotations = None);
    taker.until(Bench::is_on).await;
    assert_eq!(owner(&taker.site).as_deref(), Some("va-a"));
    let vm = taker.vm();
    assert_eq!((vm.attempt, vm.taken_from), (Some(1), None));
    assert_eq!(taker.times(E::CreateVm), 2);
}

#[tokio::test]
async fn a_reservation_that_a_person_took_off_is_made_again() {
    let lender = waiting().await;
    let mut taker = taker(&lender);
    taker.until(|b| b.vm().taken_from.is_some()).await;
    if !is_stamped(&taker) {
        taker.hub.with(|o| o.agents[0].metadata.annotations = None);
    }
    taker.until(is_stamped).await;
    assert_eq!(owner(&taker.site).as_deref(), Some("va-b"));
}

#[tokio::test]
async fn a_taker_that_is_deleted_before_it_began_touches_nothing() {
    let lender = waiting().await;
    let mut taker = taker(&lender);
    release(&taker);
    for _ in 0..10 {
        if taker.hub.with(|o| o.child.is_none()) {
            break;
        }
        taker.pass().await;
        taker.turn(Duration::from_secs(3));
    }
    assert!(taker.hub.with(|o| o.child.is_none()));
    assert_eq!(owner(&taker.site).as_deref(), Some("va-a"));
    assert_eq!(taker.times(E::Destroy), 0);
    assert_eq!(taker.hub.with(|o| o.agents.len()), 1);
}

/// The lender's VsphereAgent `a` beside that of the taker, as that is now.
fn beside(lender: Bench, taker: &Bench) -> Bench {
    let (theirs, agents) = taker
        .hub
        .with(|o| (o.child.clone().expect("it exists"), o.agents.clone()));
    lender.hub.with(|o| {
        o.others = vec![theirs];
        o.agents = agents;
    });
    lender
}

#[tokio::test]
async fn the_lenders_record_goes_without_vm_and_agent() {
    let lender = waiting().await;
    let mut taker = taker(&lender);
    taker.until(is_stamped).await;
    // The Agent serves there already.
    taker.hub.with(|o| {
        let am = testing::agent_machine("b");
        claim(&mut o.agents[0], &am);
    });
    let mut lender = beside(lender, &taker);
    for _ in 0..10 {
        if lender.hub.with(|o| o.child.is_none()) {
            break;
        }
        let again = lender.pass().await.again;
        assert_ne!(again, Some(Duration::ZERO), "the watch is awaited");
        lender.turn(Duration::from_secs(3));
    }
    assert!(
        lender.hub.with(|o| o.child.is_none()),
        "{:?}",
        lender.status()
    );
    assert_eq!(
        (lender.times(E::PowerOff), lender.times(E::Destroy)),
        (0, 0)
    );
    assert_eq!(lender.hub.with(|o| o.agents.len()), 1);
    assert_eq!(owner(&lender.site).as_deref(), Some("va-b"));
    let told = lender.hub.with(|o| o.notices.clone());
    assert!(
        told.iter().any(|n| n.reason == event::HOST_LENT),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_lender_that_is_deleted_meanwhile_leaves_the_vm_to_the_taker() {
    let lender = waiting().await;
    let mut taker = taker(&lender);
    taker.until(|b| b.vm().taken_from.is_some()).await;
    taker.hub.with(|o| {
        let vm = o.child.as_mut().and_then(|c| c.status.as_mut());
        let vm = vm.and_then(|s| s.vm.as_mut()).expect("a record");
        vm.taken_from.as_mut().expect("on record").stamped = None;
    });
    let mut lender = beside(lender, &taker);
    release(&lender);
    for _ in 0..5 {
        lender.pass().await;
        lender.turn(MINUTE);
    }
    assert_eq!(lender.waits_on(), Some(Reason::HostLent));
    assert_eq!(
        (lender.times(E::PowerOff), lender.times(E::Destroy)),
        (0, 0)
    );
}

/// Keeps the disk of the host, with data of the hosted cluster with that control plane.
fn keeps_data_of(vm: &mut agent_forge_crds::agent::VmStatus, cluster: &str) {
    vm.generation = Some(2);
    vm.disk = Some(agent_forge_crds::agent::DiskStatus {
        generation: 2,
        handling: Some(agent_forge_crds::pool::ReleasedDisk::Keep),
        data_of: Some(cluster.to_owned()),
    });
}

#[tokio::test]
async fn a_disk_with_data_of_another_hosted_cluster_is_not_taken() {
    for (cluster, taken) in [("another", false), (testing::CONTROL_PLANE, true)] {
        let lender = waiting().await;
        lender.site.with(|i| {
            i.vms[0].generation = Some(2);
            i.vms[0].disk = crate::domain::marker::DiskMark::parse("2/kept");
        });
        let mut taker = taker(&lender);
        taker.hub.with(|o| {
            let status = o.others[0].status.as_mut().expect("a status");
            keeps_data_of(status.vm.as_mut().expect("a record"), cluster);
        });
        taker.until(|b| is_stamped(b) || b.vm().name == "b").await;
        assert_eq!(is_stamped(&taker), taken, "{cluster}");
        let owner = owner(&taker.site);
        let expected = if taken { "va-b" } else { "va-a" };
        assert_eq!(owner.as_deref(), Some(expected), "{cluster}");
    }
}

/// Directly before the mark is changed, VM and record are compared.
#[tokio::test]
async fn a_vm_whose_disks_are_not_as_its_record_says_is_not_taken() {
    for (life, mark) in [(Some(3), None), (Some(2), Some("2/kept"))] {
        let lender = waiting().await;
        let mut taker = taker(&lender);
        lender.site.with(|i| {
            i.vms[0].generation = life;
            i.vms[0].disk = mark.and_then(crate::domain::marker::DiskMark::parse);
        });
        for _ in 0..8 {
            taker.pass().await;
            taker.turn(MINUTE);
        }
        assert_eq!(owner(&taker.site).as_deref(), Some("va-a"), "{life:?}");
    }
}
