//! Passes of a VM that served, or may serve: what remains known of that, and what is needed before such a VM is
//! removed.

use agent_forge_crds::{
    conditions::Reason,
    external::agent_machine::PAUSED_ANNOTATION,
    names::{AGENT_MACHINE_UID_ANNOTATION, FORCE_DELETE_ANNOTATION},
};
use k8s_openapi::api::core::v1::ObjectReference;

use super::*;

/// A VM whose Agent serves, as this actor has seen.
async fn serving() -> Bench {
    let mut bench = on().await;
    bind_agent(&bench);
    bench.pass().await;
    bench.turn(MINUTE);
    bench.pass().await;
    assert_eq!(bench.vm().served, Some(true));
    bench
}

fn pause(bench: &Bench) {
    bench.hub.with(|o| {
        let paused = (PAUSED_ANNOTATION.to_owned(), "true".to_owned());
        o.agent_machines[0].annotations_mut().extend([paused]);
    });
}

/// Machine and AgentMachine are gone.
fn vanish(bench: &Bench) {
    bench.hub.with(|o| {
        o.agent_machines.clear();
        o.machines.clear();
    });
}

fn force(bench: &Bench) {
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("child");
        let forced = (FORCE_DELETE_ANNOTATION.to_owned(), "true".to_owned());
        child.annotations_mut().extend([forced]);
    });
}

/// It waits for that and its VM runs, however often it is looked at, also by a new actor.
async fn stays(bench: &mut Bench, reason: Reason) {
    for restarted in [false, true] {
        if restarted {
            bench.restart();
        }
        for _ in 0..5 {
            bench.pass().await;
            assert_eq!(bench.waits_on(), Some(reason.clone()));
            bench.turn(MINUTE);
        }
    }
    assert_eq!((bench.times(E::PowerOff), bench.times(E::Destroy)), (0, 0));
}

async fn goes(bench: &mut Bench) {
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    assert_eq!(bench.site.with(|i| i.vms.len()), 0);
}

fn told(bench: &Bench, reason: &str) -> usize {
    let is_it = |o: &mut super::super::testing::hub::Objects| {
        o.notices.iter().filter(|n| n.reason == reason).count()
    };
    bench.hub.with(is_it)
}

/// Hub migration: the provider releases a paused AgentMachine without unbinding its Agent. The Agent is removed
/// afterwards.
#[tokio::test]
async fn a_vm_whose_paused_machine_vanished_stays_until_a_person_lets_it_go() {
    for restarted in [false, true] {
        let mut bench = serving().await;
        pause(&bench);
        bench.pass().await;
        assert_eq!(bench.vm().agent_machine_paused, Some(true), "at once");
        if restarted {
            bench.restart();
        }
        vanish(&bench);
        bench.hub.with(|o| o.agents.clear());
        stays(&mut bench, Reason::MachineVanishedPaused).await;
        assert_eq!(bench.vm().machine_vanished_paused, Some(true));
        assert!(told(&bench, event::AGENT_DELETE_DEFERRED) >= 1);
        bench.hub.with(|o| delete(o.child.as_mut().expect("child")));
        stays(&mut bench, Reason::MachineVanishedPaused).await;
        force(&bench);
        goes(&mut bench).await;
    }
}

/// Without a deletion, the annotation ends no hold.
#[tokio::test]
async fn force_delete_alone_does_not_end_the_hold_of_a_vm_whose_machine_vanished() {
    let mut bench = serving().await;
    pause(&bench);
    bench.pass().await;
    vanish(&bench);
    bench.hub.with(|o| o.agents.clear());
    force(&bench);
    stays(&mut bench, Reason::MachineVanishedPaused).await;
    bench.hub.with(|o| delete(o.child.as_mut().expect("child")));
    goes(&mut bench).await;
}

/// The actor never saw the pause. The cache shows the Agent bound after the Machine's end, and the API server confirms
/// it.
#[tokio::test]
async fn an_agent_that_was_left_bound_holds_its_vm_when_it_is_gone_as_well() {
    let mut bench = serving().await;
    vanish(&bench);
    bench.pass().await;
    assert_eq!(bench.vm().machine_vanished_paused, Some(true));
    bench.hub.with(|o| {
        o.agents.clear();
        delete(o.child.as_mut().expect("child"));
    });
    stays(&mut bench, Reason::MachineVanishedPaused).await;
    let retain = |o: &mut super::super::testing::hub::Objects| {
        let pool = o.pool.as_mut().expect("pool");
        pool.spec.cleanup_policy = Some(CleanupPolicy::Retain);
    };
    bench.hub.with(retain);
    bench.until(|b| b.hub.with(|o| o.child.is_none())).await;
    assert_eq!(bench.site.with(|i| i.vms.len()), 1, "it is kept");
}

/// The cache is late: at the API server the Agent was unbound before its Machine was deleted.
#[tokio::test]
async fn an_agent_that_only_the_view_shows_bound_was_not_left_bound() {
    let mut bench = serving().await;
    vanish(&bench);
    bench.hub.with(|o| {
        let bound = o.agents[0].clone();
        let free = with(bound.clone(), |a| {
            a.metadata.labels = None;
            a.spec.cluster_deployment_name = None;
        });
        o.live_instead = vec![free];
    });
    bench.pass().await;
    assert_eq!(bench.vm().machine_vanished_paused, None);
}

#[tokio::test]
async fn a_vm_whose_paused_machine_vanished_goes_once_its_agent_is_seen_unbound() {
    let mut bench = serving().await;
    pause(&bench);
    bench.pass().await;
    vanish(&bench);
    bench.hub.with(|o| delete(o.child.as_mut().expect("child")));
    stays(&mut bench, Reason::AgentBound).await;
    assert_eq!(bench.vm().machine_vanished_paused, Some(true));
    // The record is written before anything is done to the VM, because the Agent may not be seen again.
    bench.hub.with(|o| {
        let agent = &mut o.agents[0];
        agent.metadata.labels = None;
        agent.spec.cluster_deployment_name = None;
    });
    bench.site.with(|i| i.power_off_fails = true);
    for _ in 0..3 {
        bench.turn(MINUTE);
        bench.pass().await;
    }
    let vm = bench.vm();
    let marks = (vm.machine_vanished_paused, vm.agent_machine_paused);
    assert_eq!(marks, (None, None));
    bench.hub.with(|o| o.agents.clear());
    bench.restart();
    bench.site.with(|i| i.power_off_fails = false);
    goes(&mut bench).await;
}

#[tokio::test]
async fn a_machine_that_was_paused_for_a_while_is_none_that_vanished() {
    let mut bench = serving().await;
    pause(&bench);
    bench.pass().await;
    let unpause = |o: &mut super::super::testing::hub::Objects| {
        o.agent_machines[0].annotations_mut().clear();
    };
    bench.hub.with(unpause);
    bench.pass().await;
    assert_eq!(bench.vm().agent_machine_paused, None);
    release(&bench);
    bench.hub.with(|o| o.agents.clear());
    goes(&mut bench).await;
}

/// A change of the annotations changes the trace, and the timeline starts again with it.
#[tokio::test]
async fn what_served_has_served_whatever_becomes_of_the_timeline() {
    let mut bench = serving().await;
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("child");
        let other = (AGENT_MACHINE_UID_ANNOTATION.to_owned(), "other".to_owned());
        child.annotations_mut().extend([other]);
        o.agents.clear();
    });
    bench.restart();
    for _ in 0..3 {
        bench.turn(MINUTE);
        bench.pass().await;
    }
    let status = bench.status();
    let bound = |e: &agent_forge_crds::agent::Milestone| e.event == "Bound";
    assert!(!status.timeline.iter().any(bound), "{:?}", status.timeline);
    assert_eq!(bench.vm().served, Some(true));
    bench.hub.with(|o| delete(o.child.as_mut().expect("child")));
    stays(&mut bench, Reason::MachineRemains).await;
}

/// A node whose Agent is missing reboots, and VMware Tools report nothing for a while.
#[tokio::test]
async fn a_guest_that_told_its_name_once_may_be_a_node_for_good() {
    let mut bench = on().await;
    let tell = |bench: &Bench, told: bool| {
        bench.site.with(|i| {
            let vm = &mut i.vms[0];
            vm.tools = told.then(|| "guestToolsRunning".to_owned());
            vm.guest_address = told.then(|| "192.0.2.7".to_owned());
            vm.guest_host = told.then(|| "host-7.example".to_owned());
        });
    };
    tell(&bench, true);
    bench.restart();
    expire(&mut bench).await;
    assert_eq!(bench.vm().guest_may_be_node, Some(true));
    tell(&bench, false);
    stays(&mut bench, Reason::AgentDiscoveryExpired).await;
    // It is not switched on either, as a VM that has never run would be.
    bench.site.with(|i| i.vms[0].power = PowerState::Off);
    bench.hub.with(|o| {
        let vm = o.child.as_mut().and_then(|c| c.status.as_mut());
        vm.and_then(|s| s.vm.as_mut()).expect("vm").power_state = None;
    });
    bench.restart();
    let before = bench.times(E::PowerOn);
    stays(&mut bench, Reason::VmPoweredOff).await;
    assert_eq!(bench.times(E::PowerOn), before);
}

/// Its Machine is in the recorded namespace. The pool is gone or names another one, or the namespace is not served.
#[tokio::test]
async fn a_machine_is_looked_for_where_it_was_recorded() {
    type Change = fn(&mut super::super::testing::hub::Objects);
    let changes: [(Change, Reason); 3] = [
        (|o| o.pool = None, Reason::MachineRemains),
        (
            |o| {
                let pool = o.pool.as_mut().expect("pool");
                pool.spec.control_plane_namespace = "elsewhere".to_owned();
            },
            Reason::MachineRemains,
        ),
        (
            |o| o.unserved = vec![testing::CONTROL_PLANE.to_owned()],
            Reason::MachineStateUnknown,
        ),
    ];
    for (change, reason) in changes {
        let mut bench = serving().await;
        bench.hub.with(|o| {
            o.machines_at = Some(testing::CONTROL_PLANE.to_owned());
            change(o);
            o.agents.clear();
            delete(o.child.as_mut().expect("child"));
        });
        stays(&mut bench, reason).await;
        let home = |r: Option<ObjectReference>| r.and_then(|r| r.namespace);
        let recorded = home(bench.vm().agent_machine_ref);
        assert_eq!(recorded.as_deref(), Some(testing::CONTROL_PLANE));
        bench.hub.with(|o| o.unserved.clear());
        vanish(&bench);
        goes(&mut bench).await;
    }
}

/// A hub that was restored with new uids.
#[tokio::test]
async fn a_vm_that_served_stays_while_nobody_knows_of_its_machine() {
    let mut bench = serving().await;
    bench.hub.with(|o| {
        o.agents.clear();
        o.machines.clear();
        o.agent_machines[0].metadata.uid = Some("other".to_owned());
        delete(o.child.as_mut().expect("child"));
    });
    stays(&mut bench, Reason::MachineStateUnknown).await;
    force(&bench);
    goes(&mut bench).await;
}
