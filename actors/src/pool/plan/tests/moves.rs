//! Hosts that change their owner unexpectedly: an Agent that serves another control plane, a record without its label,
//! a NodePool that another pool takes.

use agent_forge_crds::{
    agent::Milestone, conditions::Reason, external::agent::AGENT_MACHINE_REF_NAMESPACE_ANNOTATION,
    names::AGENT_MACHINE_LABEL,
};
use kube::ResourceExt;

use crate::{
    domain::names::ObjectKey,
    lifecycle::ReleaseReason,
    pool::plan::{Action, Plan, plan},
    testing::{
        NAMESPACE, World, agent_machine, child, child_with_vm, claim, machine, reserve, with,
    },
};

/// Kind of each action, and its object.
fn done(plan: &Plan) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    for action in &plan.actions {
        all.push(match action {
            Action::CreateChild {
                name,
                agent_machine,
                ..
            } => ("create", format!("{name} for {}", agent_machine.name_any())),
            Action::Reassign {
                child,
                agent_machine,
                machine,
            } => {
                assert!(machine.is_some(), "its Machine is known");
                let whom = agent_machine.name_any();
                ("reassign", format!("{} to {whom}", child.key.name))
            }
            Action::Release { child, why } => {
                assert_eq!(*why, ReleaseReason::Surplus);
                ("release", child.key.name.clone())
            }
            Action::Prepare { patch, .. } => ("prepare", patch.key.name.clone()),
            Action::Fence { patch, .. } => ("fence", patch.key.name.clone()),
            Action::Pin { agent_machine, .. } => ("pin", agent_machine.name_any()),
            other => panic!("{other:?}"),
        });
    }
    all.retain(|(kind, _)| *kind != "pin");
    all
}

fn says(plan: &Plan, subject: &str) -> Vec<Reason> {
    let of_it = plan.waiting.iter().filter(|w| w.subject == subject);
    of_it.map(|w| w.reason.clone()).collect()
}

fn action(kind: &'static str, what: &str) -> Vec<(&'static str, String)> {
    vec![(kind, what.to_owned())]
}

/// AgentMachine `a` waits, and the Agent of its VM is claimed by an AgentMachine of another control plane.
fn claimed_elsewhere() -> World {
    let mut world = World::discovered("a");
    let stranger = with(agent_machine("b"), |am| {
        am.metadata.namespace = Some("other".to_owned());
    });
    claim(&mut world.agents[0], &stranger);
    world
}

#[test]
fn whose_agent_serves_another_control_plane_asks_again() {
    let mut world = claimed_elsewhere();
    let first = plan(&world.observed());
    assert_eq!(done(&first), action("create", "a-ama for a"));
    assert_eq!(says(&first, "a"), [Reason::AgentElsewhere]);
    // It was created, and is for the same AgentMachine: nothing more happens.
    let second = with(child("a"), |c| {
        c.metadata.name = Some("a-ama".to_owned());
        c.metadata.uid = Some("va-second".to_owned());
    });
    world.children.push(second);
    let next = plan(&world.observed());
    assert_eq!(done(&next), []);
    // Its own Machine is deleted. The host that serves another keeps its labels, and the other VM is removed with the
    // Machine.
    let mut gone = world.clone();
    gone.waited = std::time::Duration::from_secs(60);
    gone.machines.clear();
    gone.agent_machines.clear();
    let left: Vec<String> = plan(&gone.observed())
        .actions
        .iter()
        .map(|a| match a {
            Action::Release { child, .. } => child.key.name.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(left, ["a-ama"]);
    // It comes back. It may be installed, and is given to no AgentMachine.
    let agent = &mut world.agents[0];
    agent.labels_mut().clear();
    agent
        .annotations_mut()
        .remove(AGENT_MACHINE_REF_NAMESPACE_ANNOTATION);
    agent.spec.cluster_deployment_name = None;
    let status = world.children[0].status.get_or_insert_default();
    status.timeline = vec![Milestone {
        event: Milestone::BOUND.to_owned(),
        attempt: 1,
        at: None,
    }];
    let back = plan(&world.observed());
    assert!(
        done(&back).iter().all(|(kind, _)| *kind != "prepare"),
        "{back:?}"
    );
    let served = with(world, |w| {
        let own = crate::testing::foreign_agent("x");
        reserve(&mut w.agent_machines[0], &own);
        w.agents.push(own);
    });
    let rest = done(&plan(&served.observed()));
    assert!(rest.contains(&("release", "a".to_owned())), "{rest:?}");
}

#[test]
fn whose_agent_serves_another_node_pool_goes_with_that_ones_machine() {
    let mut world = World::discovered("a");
    let stranger = with(agent_machine("b"), |am| {
        let annotations = am.annotations_mut();
        for pool in annotations.values_mut() {
            *pool = format!("{NAMESPACE}/another");
        }
    });
    claim(&mut world.agents[0], &stranger);
    world.agent_machines.push(stranger);
    world.machines.push(machine("b"));
    assert_eq!(done(&plan(&world.observed())), action("reassign", "a to b"));
    // A Machine that the cache does not show is not recorded.
    world.machines.pop();
    assert_eq!(done(&plan(&world.observed())), []);
}

#[test]
fn a_label_that_somebody_took_off_or_changed_is_put_back() {
    for label in [None, Some("z")] {
        let mut world = World::waiting(&["a"]);
        world.children = vec![with(child_with_vm("a"), |c| {
            match label {
                Some(other) => c
                    .labels_mut()
                    .insert(AGENT_MACHINE_LABEL.to_owned(), other.to_owned()),
                None => c.labels_mut().remove(AGENT_MACHINE_LABEL),
            };
        })];
        let made = plan(&world.observed());
        assert_eq!(done(&made), action("reassign", "a to a"), "{label:?}");
        // Without the uid its AgentMachine is unknown.
        world.children[0].spec.goal = None;
        world.children[0].annotations_mut().clear();
        let lost = done(&plan(&world.observed()));
        assert!(
            !lost.contains(&("reassign", "a to a".to_owned())),
            "{label:?}: {lost:?}"
        );
    }
}

#[test]
fn a_vm_for_a_node_pool_that_moved_is_released_unless_it_serves() {
    let mut world = World::discovered("a");
    world.pool.spec.node_pool_ref.name = "another".to_owned();
    let moved = plan(&world.observed());
    assert_eq!(done(&moved), action("release", "a"));
    assert_eq!(says(&moved, "a"), [Reason::NodePoolMoved]);
    let am = world.agent_machines[0].clone();
    claim(&mut world.agents[0], &am);
    reserve(&mut world.agent_machines[0], &world.agents[0]);
    assert_eq!(done(&plan(&world.observed())), []);
}

#[test]
fn a_pool_that_takes_a_node_pool_waits_for_the_vm_of_the_other() {
    let mut world = World::waiting(&["a"]);
    let other = ObjectKey::new("elsewhere", "a");
    world.made_by_others = [("am-a".to_owned(), other)].into();
    let waits = plan(&world.observed());
    assert_eq!(done(&waits), []);
    assert_eq!(says(&waits, "a"), [Reason::HostOfAnotherPool]);
    assert!(waits.again.is_some(), "it looks again");
    world.made_by_others.clear();
    assert_eq!(done(&plan(&world.observed())), action("create", "a for a"));
}
