//! What others do to a VM and its Agent while it is on its way into another life: a service that writes late, claims at each
//! step, states that nobody knows, and a guest that died before its claim was seen.

use agent_forge_crds::{
    external::agent::{Agent, CONNECTED, InventoryDisk},
    pool::{ReleasePolicy, ReleaseSpec, ReleasedDisk},
};
use kube::ResourceExt;

use super::{
    recycle::released,
    silent::{change, state},
    *,
};
use crate::vm::testing::vcenter::{FIRST_DISK, SECOND_DISK};

/// The inventory of the Agent names that disk.
fn names(agent: &mut Agent, disk: &str) {
    let inventory = agent.status.as_mut().and_then(|s| s.inventory.as_mut());
    let inventory = inventory.expect("an inventory");
    inventory.report_time = None;
    inventory.disks = vec![InventoryDisk {
        id: Some(format!("/dev/disk/by-id/wwn-0x{disk}")),
        ..InventoryDisk::default()
    }];
}

/// The VM runs in its second life. Its Agent was in that state before, with the disk of its first life.
async fn begun(before: &str, disk: Option<ReleasedDisk>) -> Bench {
    let mut bench = released(disk).await;
    change(&bench, |a| {
        state(a, before, &[(CONNECTED, "True")]);
        names(a, FIRST_DISK);
    });
    bench
        .until(|b| b.vm().generation == Some(2) && b.is_on())
        .await;
    bench
}

/// The Machine went at `discovering-unbound`. The service makes `known-unbound` of the last report of the guest after its VM was
/// switched off.
#[tokio::test]
async fn a_state_that_the_service_writes_late_is_no_return() {
    for disk in [None, Some(ReleasedDisk::Keep)] {
        let mut bench = begun("discovering-unbound", disk).await;
        change(&bench, |a| state(a, "known-unbound", &[]));
        for _ in 0..3 {
            bench.pass().await;
            bench.turn(MINUTE / 10);
        }
        assert!(bench.vm().recycle.is_some(), "{disk:?}: nobody may have it");
        assert_eq!(bench.waits_on(), Some(Reason::Recycling), "{disk:?}");
    }
}

/// The service is away, and the guest died: the Agent goes on showing what was before.
#[tokio::test]
async fn no_time_brings_an_agent_back_whose_inventory_names_the_old_disk() {
    let mut bench = begun("known-unbound", None).await;
    bench.turn(6 * MINUTE);
    bench.pass().await;
    bench.pass().await;
    assert!(bench.vm().recycle.is_some(), "nobody may have it");
    change(&bench, |a| names(a, SECOND_DISK));
    bench.until(|b| b.vm().recycle.is_none()).await;
}

/// A service that came back writes the Agent once more: with the labels of its InfraEnv, and approved.
#[tokio::test]
async fn an_agent_that_is_written_once_more_is_fenced_again() {
    let mut bench = begun("known-unbound", None).await;
    let open = |a: &mut Agent| {
        a.spec.approved = true;
        let label = ("hypershift.openshift.io/nodepool-role", "worker");
        a.labels_mut()
            .insert(label.0.to_owned(), label.1.to_owned());
    };
    change(&bench, open);
    bench.turn(MINUTE);
    bench.pass().await;
    let agent = bench.hub.with(|o| o.agents[0].clone());
    assert!(!agent.spec.approved, "no provider takes it");
    let labels = agent.labels();
    assert!(
        !labels.contains_key("hypershift.openshift.io/nodepool-role"),
        "{labels:?}"
    );
    assert!(bench.vm().recycle.is_some());
}

/// OSAC takes each Agent with this label. It comes back with the host.
#[tokio::test]
async fn a_renewal_keeps_the_label_of_osac_for_later() {
    const CLASS: &str = "osac.openshift.io/resource_class";
    let class = |b: &Bench| b.hub.with(|o| o.agents[0].labels().get(CLASS).cloned());
    let label = |a: &mut Agent, value: &str| {
        a.labels_mut().insert(CLASS.to_owned(), value.to_owned());
    };
    let mut bench = released(None).await;
    change(&bench, |a| {
        state(a, "known-unbound", &[]);
        names(a, FIRST_DISK);
        label(a, "large");
    });
    bench.until(|b| b.times(E::PowerOff) == 1).await;
    assert_eq!(class(&bench), None, "it goes before the VM is switched off");
    bench.restart();
    bench
        .until(|b| b.vm().generation == Some(2) && b.is_on())
        .await;
    // A person sets it again meanwhile.
    change(&bench, |a| label(a, "small"));
    bench.turn(MINUTE);
    bench.until(|b| class(b).is_none()).await;
    change(&bench, |a| names(a, SECOND_DISK));
    bench.until(|b| b.vm().recycle.is_none()).await;
    assert_eq!(class(&bench).as_deref(), Some("small"));
}

/// The pool sets it, and sets it again when the host is ready in the buffer.
#[tokio::test]
async fn a_renewal_gives_no_label_of_osac_back_that_the_operator_had_set() {
    const CLASS: &str = "osac.openshift.io/resource_class";
    let mut bench = released(None).await;
    change(&bench, |a| {
        state(a, "known-unbound", &[]);
        names(a, FIRST_DISK);
        a.labels_mut().insert(CLASS.to_owned(), "large".to_owned());
        let record = r#"{"resourceClass":"large"}"#.to_owned();
        let key = agent_forge_crds::names::APPLIED_ANNOTATION.to_owned();
        a.annotations_mut().insert(key, record);
    });
    bench
        .until(|b| b.vm().generation == Some(2) && b.is_on())
        .await;
    let way = bench.vm().recycle.expect("it is on its way");
    assert_eq!(way.resource_class, None);
    change(&bench, |a| names(a, SECOND_DISK));
    bench.until(|b| b.vm().recycle.is_none()).await;
    let agent = bench.hub.with(|o| o.agents[0].clone());
    assert_eq!(agent.labels().get(CLASS), None);
    let left = agent.annotations().keys();
    let record = agent_forge_crds::names::APPLIED_ANNOTATION;
    assert!(!left.into_iter().any(|key| key == record));
}

/// A person binds the Agent, or OSAC reserves it, at each step.
#[tokio::test]
async fn a_host_that_is_claimed_on_its_way_is_brought_back_to_work() {
    let claims: [fn(&mut Agent); 2] = [
        |a| a.spec.cluster_deployment_name = Some(Default::default()),
        |a| {
            let order = ("osac.openshift.io/clusterorder", "order");
            a.labels_mut()
                .insert(order.0.to_owned(), order.1.to_owned());
        },
    ];
    type Reached = fn(&Bench) -> bool;
    let steps: [(&str, Reached, usize); 4] = [
        ("recorded", |b| b.vm().recycle.is_some(), 0),
        ("off", |b| b.times(E::PowerOff) == 1, 0),
        ("renewed", |b| b.site.with(|i| i.renewals.len()) == 1, 1),
        ("on again", |b| b.times(E::PowerOn) == 2, 1),
    ];
    for (what, reached, renewals) in steps {
        for claims in claims {
            let mut bench = released(None).await;
            change(&bench, |a| {
                state(a, "known-unbound", &[]);
                names(a, FIRST_DISK);
            });
            while !reached(&bench) {
                let memory = std::mem::take(&mut bench.memory);
                let key = crate::domain::names::ObjectKey::of(&bench.child());
                let pass = crate::vm::pass::run_at_most(1, bench.context.clone(), key, memory);
                bench.memory = pass.await.0;
                bench.turn(MINUTE / 60);
            }
            change(&bench, claims);
            bench.until(|b| b.vm().recycle.is_none() && b.is_on()).await;
            assert_eq!(bench.site.with(|i| i.renewals.len()), renewals, "{what}");
            let power = bench.site.with(|i| i.vms[0].power);
            assert_eq!(power, PowerState::On, "{what}: the claimant has a host");
            let offs = bench.times(E::PowerOff);
            bench.turn(MINUTE);
            bench.pass().await;
            assert_eq!(bench.times(E::PowerOff), offs, "{what}");
            let notices = bench.hub.with(|o| o.notices.clone());
            assert!(
                notices.iter().any(|n| n.note.contains("claimed")),
                "{what}: {notices:?}"
            );
        }
    }
}

/// The service is newer than the operator, or has just made the Agent.
#[tokio::test]
async fn a_state_that_nobody_knows_touches_nothing() {
    for word in ["", "known-unbound-and-more", "Known-Unbound"] {
        let mut bench = released(None).await;
        change(&bench, |a| state(a, word, &[]));
        for _ in 0..5 {
            bench.pass().await;
            bench.turn(MINUTE);
        }
        assert_eq!(bench.times(E::PowerOff), 0, "{word:?}");
        assert_eq!(
            bench.waits_on().map(|r| r.to_string()).as_deref(),
            Some("AgentStateUnknown"),
            "{word:?}"
        );
        change(&bench, |a| state(a, "known-unbound", &[]));
        bench.until(|b| b.times(E::PowerOff) == 1).await;
    }
}

/// A host died before its claim was seen. Its Machine goes, and the service cannot unbind it.
#[tokio::test]
async fn a_guest_that_is_dead_in_binding_frees_its_machine_by_another_life() {
    let mut bench = on().await;
    bind_agent(&bench);
    change(&bench, |a| {
        state(a, "binding", &[("Bound", "False")]);
        let bound = a.status.as_mut().expect("a status").conditions.iter_mut();
        for condition in bound.filter(|c| c.type_ == "Bound") {
            condition.last_transition_time = Some(born_now(&bench));
        }
    });
    bench.hub.with(|o| {
        let pool = o.pool.as_mut().expect("a pool");
        pool.spec.release = Some(ReleaseSpec {
            policy: Some(ReleasePolicy::Recycle),
            ..ReleaseSpec::default()
        });
    });
    for later in [Duration::from_secs(5), MINUTE] {
        bench.pass().await;
        bench.turn(later);
    }
    bench.pass().await;
    assert_eq!(
        bench.waits_on(),
        Some(Reason::AgentStuck),
        "a minute after that is written"
    );
    bench
        .hub
        .with(|o| testing::delete(&mut o.agent_machines[0]));
    bench.hub.with(|o| o.machines[0].deleting = true);
    change(&bench, |a| {
        a.spec.cluster_deployment_name = None;
        a.metadata.labels = None;
        a.metadata.annotations = None;
    });
    let began = bench.context.clock.monotonic();
    bench.until(|b| b.times(E::PowerOff) == 1).await;
    let took = bench.context.clock.monotonic() - began;
    assert!(took < 8 * MINUTE, "{took:?}");
    assert!(
        took > 4 * MINUTE,
        "{took:?}: a living guest registers by itself"
    );
    bench
        .until(|b| b.vm().generation == Some(2) && b.is_on())
        .await;
    let way = bench.vm().recycle.expect("its Agent is awaited");
    assert_eq!(way.reason.as_deref(), Some("GuestDead"));
}
