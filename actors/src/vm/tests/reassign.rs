//! A free host goes to another pool: what the live proof asks for. And hosts that a release before 1.0 was moving: one owner at each
//! moment.

use std::sync::Arc;

use agent_forge_crds::{
    agent::{TakenFrom, VsphereAgent},
    names::{DELETE_CHECK_PREFIX, PAUSED_ANNOTATION, TAKEN_FROM_ANNOTATION},
    pool::{ReassignSpec, VsphereAgentPool},
};

use super::*;
use crate::{
    demand::lending::Offer,
    domain::{goal, managed_vm::ManagedVm, marker::DiskMark},
    guard::LiveReads,
    pool::{
        act::perform::{ActionOutcome, perform},
        plan::Action,
    },
    testing::World,
    vm::testing::{
        hub::Objects,
        vcenter::{Inventory, Site},
    },
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

/// A pool of the same group in that namespace.
fn other_pool(namespace: &str) -> VsphereAgentPool {
    let mut pool = of_group(testing::pool("q"));
    pool.metadata.namespace = Some(namespace.to_owned());
    pool.metadata.uid = Some("uid-q".to_owned());
    pool
}

/// With InfraEnv and Secret in the namespace of the first pool.
fn of_group(mut pool: VsphereAgentPool) -> VsphereAgentPool {
    pool.spec.reassign = Some(ReassignSpec {
        group: "lab".to_owned(),
        max_per_namespace: None,
        new_disk: None,
    });
    pool.spec.infra_env_ref.namespace = Some(NAMESPACE.to_owned());
    pool.spec.vsphere.credentials_secret_ref = CredentialsSecretRef {
        name: "vcenter".to_owned(),
        namespace: Some(NAMESPACE.to_owned()),
    };
    pool
}

/// That pool takes the host for its AgentMachine `b`. Whether it gets it.
async fn takes(bench: &Bench, pool: VsphereAgentPool) -> bool {
    let everybody = [NAMESPACE, "elsewhere"].map(|of| (of.to_owned(), "*".to_owned()));
    bench.hub.with(|o| {
        o.pool = o.pool.take().map(of_group);
        o.other_pools = vec![pool.clone()];
        o.grants.extend(everybody);
    });
    let world = World {
        pool,
        ..World::waiting(&["b"])
    };
    let agents = bench.hub.with(|o| o.agents.clone());
    let host = Offer {
        child: ManagedVm::read(Arc::new(bench.child())),
        agents: agents.iter().map(ObjectKey::of).collect(),
        left: None,
        refusal: None,
    };
    let action = Action::Take {
        host,
        to: Arc::new(testing::agent_machine("b")),
        machine: testing::machine("b"),
        class: None,
    };
    let (s, reads) = (world.observed(), LiveReads::default());
    let done = perform(&bench.context, &s, &action, &reads).await;
    matches!(done, Ok(ActionOutcome::It))
}

fn moves(bench: &Bench) -> usize {
    let done = bench.hub.with(|o| o.effects.clone());
    done.iter().filter(|e| **e == E::ReassignChild).count()
}

#[tokio::test]
async fn in_its_namespace_a_host_moves_by_one_patch() {
    let mut bench = waiting().await;
    let before = bench.child();
    assert!(takes(&bench, other_pool(NAMESPACE)).await);
    let after = bench.child();
    assert_eq!(moves(&bench), 1);
    assert_eq!(after.uid(), before.uid());
    let own = ObjectKey::new(NAMESPACE, "q");
    assert_eq!(
        (goal::user(&after), goal::maker(&after)),
        (own.clone(), own)
    );
    let owners: Vec<_> = after.owner_references().iter().map(|o| &o.uid).collect();
    assert_eq!(owners, ["uid-q"]);
    assert_eq!(goal::wanted_by(&after), Some("am-b"));
    // The VM actor goes on with it, as with any host that is given.
    bench.hub.with(|o| {
        o.pool = Some(other_pool(NAMESPACE));
        o.agent_machines = vec![testing::agent_machine("b")];
        o.machines = vec![testing::machine("b")];
    });
    bench
        .until(|b| ManagedVm::read(Arc::new(b.child())).is_marked())
        .await;
    assert_eq!((bench.times(E::CreateVm), bench.times(E::PowerOff)), (1, 0));
}

#[tokio::test]
async fn in_another_namespace_it_keeps_its_maker_and_names_its_user() {
    let bench = waiting().await;
    let before = bench.child();
    assert!(takes(&bench, other_pool("elsewhere")).await);
    let after = bench.child();
    assert_eq!(goal::user(&after), ObjectKey::new("elsewhere", "q"));
    assert_eq!(goal::maker(&after), goal::maker(&before));
    assert_eq!(after.owner_references(), before.owner_references());
    let back = other_pool(NAMESPACE);
    let child = ManagedVm::read(Arc::new(after));
    let am = testing::agent_machine("b");
    let patch = crate::pool::act::move_to(&back, &child, &am, (&testing::machine("b"), None));
    assert_eq!(
        patch.goal.map(|goal| goal.pool),
        Some(None),
        "on its way home"
    );
}

#[tokio::test]
async fn a_host_that_people_hold_or_that_is_not_free_stays() {
    type Change = fn(&mut Objects, &mut Inventory);
    fn annotated(o: &mut Objects, key: &str) {
        let mut pool = of_group(o.pool.clone().expect("a pool"));
        pool.annotations_mut()
            .insert(key.to_owned(), "true".to_owned());
        o.unseen_pool = Some(pool);
    }
    let changes: [(&str, Change); 12] = [
        ("a pause that no cache shows", |o, _| {
            annotated(o, PAUSED_ANNOTATION)
        }),
        ("a veto", |o, _| {
            annotated(o, &format!("{DELETE_CHECK_PREFIX}storage"))
        }),
        (
            "its pool left the group, and no cache shows that",
            |o, _| {
                o.unseen_pool = o.pool.clone();
            },
        ),
        ("its disk has data of another hosted cluster", |o, _| {
            let status = o.child.as_mut().and_then(|c| c.status.as_mut());
            let vm = status.and_then(|s| s.vm.as_mut()).expect("a record");
            vm.generation = Some(2);
            vm.disk = Some(agent_forge_crds::agent::DiskStatus {
                generation: 2,
                handling: Some(agent_forge_crds::pool::ReleasedDisk::Keep),
                data_of: Some("another".to_owned()),
            });
        }),
        ("its Agent is gone", |o, _| o.agents.clear()),
        ("another one claims its Agent", |o, _| {
            claim(&mut o.agents[0], &testing::agent_machine("another"));
        }),
        ("a state that no cache has", |o, _| {
            let mut agent = o.agents[0].clone();
            silent::state(&mut agent, "a-state-of-tomorrow", &[]);
            o.live_instead = vec![agent];
        }),
        ("an administrator keeps it", |_, i| {
            i.vms[0].marks.skip_delete = true
        }),
        ("it is off", |_, i| i.vms[0].power = PowerState::Off),
        ("it has another mark", |_, i| i.vms[0].marker = None),
        ("it is in another life", |_, i| {
            i.vms[0].generation = Some(3)
        }),
        ("it has other disks", |_, i| {
            i.vms[0].generation = Some(2);
            i.vms[0].disk = DiskMark::parse("2/kept");
        }),
    ];
    for (what, change) in changes {
        let bench = waiting().await;
        let Bench { hub, site, .. } = &bench;
        hub.with(|o| site.with(|i| change(o, i)));
        let got = takes(&bench, other_pool(NAMESPACE)).await;
        assert!(!got, "{what}");
        assert_eq!(moves(&bench), 0, "{what}");
    }
    // Another pool was faster.
    let bench = waiting().await;
    bench.hub.with(|o| {
        o.fails.insert(
            E::ReassignChild,
            crate::ports::cluster::ClusterErrorKind::Conflict,
        )
    });
    assert!(!takes(&bench, other_pool(NAMESPACE)).await);
}

/// What the record says of that VsphereAgent, from which the VM is taken.
fn source(lender: &VsphereAgent, stamped: Option<bool>) -> TakenFrom {
    TakenFrom {
        namespace: lender.namespace().expect("a namespace"),
        name: lender.name_any(),
        uid: lender.uid().expect("a uid"),
        attempt: 1,
        stamped,
    }
}

/// The VsphereAgent `b`, which an earlier release made to take that host over. `stamped`: how far it came; the outer `None`: nothing is on
/// record.
fn taker(lender: &Bench, stamped: Option<Option<bool>>) -> Bench {
    let mut bench = Bench::at("b", lender.site.clone());
    let (old, agents) = lender.hub.with(|o| (o.child.clone(), o.agents.clone()));
    let old = old.expect("it exists");
    let record = old.status.clone();
    bench.hub.with(|o| {
        o.agents = agents;
        let child = o.child.as_mut().expect("it exists");
        let from = source(&old, None);
        let text = format!(
            "{}/{}/{}/{}",
            from.namespace, from.name, from.uid, from.attempt
        );
        let key = TAKEN_FROM_ANNOTATION.to_owned();
        child.annotations_mut().extend([(key, text)]);
        if let Some(stamped) = stamped {
            let mut status = record.expect("a record");
            let vm = status.vm.as_mut().expect("a VM");
            vm.attempt = Some(1);
            vm.taken_from = Some(source(&old, stamped));
            child.status = Some(status);
        }
        o.others = vec![old];
    });
    bench.clock = lender.clock.clone();
    bench.context.clock = lender.clock.clone();
    bench
}

fn owner(site: &Site) -> Option<String> {
    site.with(|i| Some(i.vms.first()?.marker.clone()?.uid))
}

/// The mark names the VsphereAgent `b`: the request of the earlier release was carried out.
fn stamp(taker: &Bench) {
    let own = ManagedVm::read(Arc::new(taker.child())).marker(testing::CLUSTER_ID.to_owned());
    taker.site.with(|i| i.vms[0].marker = Some(own));
}

fn is_stamped(bench: &Bench) -> bool {
    let from = bench.vm().taken_from;
    from.is_some_and(|from| from.stamped == Some(true))
}

#[tokio::test]
async fn a_move_whose_mark_was_changed_is_ended() {
    let lender = waiting().await;
    let mut taker = taker(&lender, Some(None));
    stamp(&taker);
    taker.until(is_stamped).await;
    for _ in 0..3 {
        taker.turn(MINUTE);
        taker.pass().await;
    }
    assert_eq!((taker.times(E::CreateVm), taker.times(E::PowerOff)), (1, 0));
    assert_eq!(taker.site.with(|i| i.vms.len()), 1);
}

#[tokio::test]
async fn a_move_that_had_not_changed_the_mark_is_given_up_and_an_own_vm_is_made() {
    for (what, stamped) in [
        ("nothing is on record", None),
        ("it had not begun", Some(Some(false))),
    ] {
        let lender = waiting().await;
        let mut taker = taker(&lender, stamped);
        taker
            .until(|b| b.vm().taken_from.is_none() && b.vm().name == "b" && b.is_on())
            .await;
        assert_eq!(owner(&taker.site).as_deref(), Some("va-a"), "{what}");
        let calls = [E::CreateVm, E::Destroy, E::PowerOff].map(|kind| taker.times(kind));
        assert_eq!(calls, [2, 0, 0], "{what}");
    }
}

/// A request may be under way.
#[tokio::test]
async fn one_that_had_begun_is_given_up_only_when_no_late_request_can_come() {
    let lender = waiting().await;
    let mut taker = taker(&lender, Some(None));
    for _ in 0..5 {
        taker.pass().await;
        taker.turn(MINUTE);
    }
    assert_eq!(taker.waits_on(), Some(Reason::TakingHost));
    assert_eq!(owner(&taker.site).as_deref(), Some("va-a"));
    assert!(taker.vm().taken_from.is_some());
    taker.turn(MINUTE * 6);
    taker
        .until(|b| b.vm().taken_from.is_none() && b.is_on())
        .await;
    assert_eq!(owner(&taker.site).as_deref(), Some("va-a"));
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
    let taker = taker(&lender, Some(Some(true)));
    stamp(&taker);
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
    let taker = taker(&lender, Some(None));
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
