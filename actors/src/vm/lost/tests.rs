use agent_forge_crds::{
    agent::VsphereAgent,
    conditions::{Phase, Reason},
};
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Time};

use super::*;
use crate::testing::{agent_machine, agent_on, at, child_with_vm, claim, condition, with};

fn silent(agent: Agent) -> Agent {
    with(agent, |a| {
        let status = a.status.get_or_insert_default();
        status.debug_info.get_or_insert_default().state = Some("disconnected-unbound".to_owned());
        status.conditions.retain(|c| c.type_ != CONNECTED);
        status
            .conditions
            .push(condition(CONNECTED, "False", "AgentIsDisconnected"));
    })
}

fn change(child: VsphereAgent, change: impl FnOnce(&mut VmStatus)) -> VsphereAgent {
    with(child, |c| {
        let vm = c.status.as_mut().and_then(|s| s.vm.as_mut());
        change(vm.expect("a VM"));
    })
}

#[test]
fn only_a_free_silent_agent_that_is_alone_is_lost() {
    let made = child_with_vm("a");
    let read = |child: &VsphereAgent, agents: Vec<Agent>, served| {
        let agents: Vec<Arc<Agent>> = agents.into_iter().map(Arc::new).collect();
        lost(
            &ManagedVm::read(Arc::new(child.clone())),
            &agents,
            served,
            at(0),
        )
    };
    let own = silent(agent_on(&made));
    let bare = with(own.clone(), |a| {
        a.status.as_mut().expect("status").inventory = None
    });
    for agent in [&own, &bare] {
        assert_eq!(
            read(&made, vec![agent.clone()], false),
            Some(Lost::Disconnected)
        );
    }
    let going = with(own.clone(), crate::testing::delete);
    let bound = with(own.clone(), |a| {
        claim(a, &agent_machine("a"));
        *a = silent(a.clone());
    });
    let other_mac = with(own.clone(), |a| {
        let inventory = a.status.as_mut().and_then(|s| s.inventory.as_mut());
        inventory.expect("inventory").interfaces.truncate(1);
    });
    let rival = with(bare.clone(), |a| a.metadata.uid = Some("rival".to_owned()));
    for (what, agents) in [
        ("it answers", vec![agent_on(&made)]),
        ("it goes", vec![going]),
        ("it is bound", vec![bound]),
        ("it matches in part", vec![other_mac]),
        ("it has a rival", vec![own.clone(), rival]),
    ] {
        assert_eq!(read(&made, agents, false), None, "{what}");
    }
    assert_eq!(read(&made, vec![own.clone()], true), None, "it served");
    assert_eq!(read(&made, vec![], false), None, "it never registered");
    let known = change(made.clone(), |vm| {
        vm.agent_ref = Some(ObjectReference::default())
    });
    assert_eq!(read(&known, vec![], false), Some(Lost::Gone));
    type Change = fn(&mut VmStatus);
    let served: [(&str, Change); 4] = [
        ("bound", |vm| vm.phase = Some(Phase::Bound)),
        ("released", |vm| vm.phase = Some(Phase::Released)),
        ("missed before", |vm| {
            vm.phase = Some(Phase::Orphaned);
            vm.reason = Some(Reason::AgentMissing);
        }),
        ("the predecessor's", |vm| vm.attempt = None),
    ];
    for (what, how) in served {
        let child = change(known.clone(), how);
        assert_eq!(read(&child, vec![], false), None, "{what}");
        assert_eq!(read(&child, vec![own.clone()], false), None, "{what}");
    }
}

/// Nobody else waits for a host of the buffer to be mended.
#[test]
fn a_host_of_the_buffer_that_fails_its_validations_is_lost() {
    let insufficient = |child: &VsphereAgent, since: i64| {
        with(agent_on(child), |a| {
            let status = a.status.get_or_insert_default();
            status.conditions.retain(|c| c.type_ != VALIDATED);
            let failed = condition(VALIDATED, "False", "ValidationsFailing");
            status.conditions.push(with(failed, |c| {
                c.last_transition_time = Some(Time(at(since)));
            }));
        })
    };
    let read = |child: &VsphereAgent, agent: Agent| {
        let child = ManagedVm::read(Arc::new(child.clone()));
        lost(&child, &[Arc::new(agent)], false, at(300))
    };
    let waits = crate::testing::buffered("a");
    assert_eq!(
        read(&waits, insufficient(&waits, 0)),
        Some(Lost::Insufficient)
    );
    assert_eq!(read(&waits, insufficient(&waits, 1)), None, "not for long");
    assert_eq!(read(&waits, agent_on(&waits)), None);
    let asked_for = child_with_vm("a");
    assert_eq!(read(&asked_for, insufficient(&asked_for, 0)), None);
}

#[test]
fn what_is_left_ends_and_a_clock_set_back_makes_it_no_longer() {
    let patience = Duration::from_secs(100);
    for (now, left_over) in [(0, 100), (40, 60), (100, 0), (900, 0), (-500, 100)] {
        let rest = left(at(0), patience, at(now));
        assert_eq!(rest.as_secs(), left_over, "at {now}");
    }
}

#[test]
fn validations_are_named_once_they_failed_for_long() {
    let failing_since = |since: Option<i64>, state: &str| {
        with(agent_on(&child_with_vm("a")), |a| {
            let status = a.status.get_or_insert_default();
            status.debug_info.get_or_insert_default().state = Some(state.to_owned());
            status.conditions.retain(|c| c.type_ != VALIDATED);
            status.conditions.push(with(
                condition(VALIDATED, "False", "ValidationsFailing"),
                |c| {
                    c.message = Some("no memory\nand more".to_owned());
                    c.last_transition_time = since.map(|s| Time(at(s)));
                },
            ));
        })
    };
    let read = |agent: &Agent, now| failing(agent, at(now));
    let agent = failing_since(Some(0), "insufficient-unbound");
    assert_eq!(read(&agent, 299), Err(Some(SignedDuration::from_secs(1))));
    assert_eq!(read(&agent, 300), Ok("no memory".to_owned()));
    // If no time is known since when, it is reported at once.
    assert_eq!(
        read(&failing_since(None, "known-unbound"), 0),
        Ok("no memory".to_owned())
    );
    assert_eq!(read(&agent_on(&child_with_vm("a")), 0), Err(None));
}
