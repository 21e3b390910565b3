//! Tests of the plan's guarantees: early pins, VMs on offer, hostnames, and pools that are deleted.

use std::time::Duration;

use agent_forge_crds::{
    agent::{Failure, Milestone, VmStatus, VsphereAgentStatus},
    conditions::Reason,
    external::{agent::INSTALLED, agent_machine::AgentMachine},
    names::AGENT_MACHINE_LABEL,
    pool::CleanupPolicy,
};
use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::Time};
use kube::ResourceExt;

use crate::{
    lifecycle::ReleaseReason,
    pool::plan::{Action, Plan, plan, stay::HOPE, vm::OFFER},
    testing::{
        AGE, World, agent_machine, agent_on, at, condition, delete, foreign_agent, machine, pool,
        reserve, selector,
    },
};

fn pins(plan: &Plan) -> Vec<String> {
    let pinned = |a: &Action| match a {
        Action::Pin { agent_machine, .. } => Some(agent_machine.name_any()),
        _ => None,
    };
    plan.actions.iter().filter_map(pinned).collect()
}

fn released(plan: &Plan) -> Vec<ReleaseReason> {
    let why = |a: &Action| match a {
        Action::Release { why, .. } => Some(*why),
        _ => None,
    };
    plan.actions.iter().filter_map(why).collect()
}

fn reason(plan: &Plan, subject: &str) -> Option<Reason> {
    let row = plan.waiting.iter().find(|w| w.subject == subject);
    row.map(|w| w.reason.clone())
}

fn pin(am: &mut AgentMachine) {
    let selector = am.spec.agent_label_selector.get_or_insert_default();
    let name = am.metadata.name.clone().unwrap_or_default();
    let exact = selector.match_labels.get_or_insert_default();
    exact.insert(AGENT_MACHINE_LABEL.to_owned(), name);
}

/// Without a condition, as from a provider that does not fit its CRD.
fn silence(am: &mut AgentMachine) {
    am.status = None;
}

#[test]
fn the_late_agent_of_a_vm_that_was_given_up_is_never_prepared() {
    let mut world = World::discovered("a");
    pin(&mut world.agent_machines[0]);
    let prepares = |world: &World| {
        let plan = plan(&world.observed());
        plan.actions
            .iter()
            .any(|a| matches!(a, Action::Prepare { .. }))
    };
    assert!(prepares(&world));
    status_of(&mut world).last_failure = Some(Failure {
        attempt: Some(1),
        ..Failure::default()
    });
    assert!(!prepares(&world));
    // The failure belongs to the VM before it.
    status_of(&mut world).last_failure = Some(Failure::default());
    assert!(prepares(&world));
}

fn status_of(world: &mut World) -> &mut VsphereAgentStatus {
    world.children[0].status.as_mut().expect("recorded")
}

#[test]
fn who_waits_is_pinned_at_first_sight_unless_a_free_agent_fits() {
    let mut world = World::waiting(&["a"]);
    world.waited = Duration::ZERO;
    assert_eq!(pins(&plan(&world.observed())), ["a"], "debouncing");
    world.agent_machines[0].metadata.finalizers = None;
    assert_eq!(pins(&plan(&world.observed())), ["a"], "not accepted yet");
    world.machines.clear();
    assert_eq!(pins(&plan(&world.observed())), ["a"], "no Machine yet");

    let mut free = foreign_agent("metal");
    free.spec.approved = true;
    free.labels_mut()
        .insert("customer".to_owned(), "example".to_owned());
    world.agents = vec![free];
    assert!(pins(&plan(&world.observed())).is_empty(), "a free one fits");
    // The same Agent, pinned for another AgentMachine, is not free for this one.
    world.agents[0]
        .labels_mut()
        .insert(AGENT_MACHINE_LABEL.to_owned(), "b".to_owned());
    assert_eq!(pins(&plan(&world.observed())), ["a"]);

    world.agents.clear();
    world.other_pools = vec![{
        let mut other = pool("other");
        other.spec.node_pool_ref = world.pool.spec.node_pool_ref.clone();
        other
    }];
    assert!(pins(&plan(&world.observed())).is_empty(), "contested");
}

#[test]
fn a_trial_ends_with_an_agent_ref_and_the_others_are_pinned_meanwhile() {
    let mut world = World::discovered("a");
    world.agent_machines.push(agent_machine("b"));
    world.machines.push(machine("b"));
    for am in &mut world.agent_machines {
        silence(am);
    }
    pin(&mut world.agent_machines[0]);
    let creates = |p: &Plan| {
        let made = |a: &&Action| matches!(a, Action::CreateChild { .. });
        p.actions.iter().filter(made).count()
    };
    let on_trial = plan(&world.observed());
    assert_eq!(
        (creates(&on_trial), pins(&on_trial)),
        (0, vec!["b".to_owned()])
    );
    assert_eq!(reason(&on_trial, "b"), Some(Reason::ConditionsMissing));

    let am = world.agent_machines[0].clone();
    crate::testing::claim(&mut world.agents[0], &am);
    assert_eq!(
        creates(&plan(&world.observed())),
        0,
        "a claim is no agentRef"
    );
    let agent = world.agents[0].clone();
    reserve(&mut world.agent_machines[0], &agent);
    silence_conditions(&mut world.agent_machines[0]);
    assert_eq!(creates(&plan(&world.observed())), 1);
}

fn silence_conditions(am: &mut AgentMachine) {
    if let Some(status) = &mut am.status {
        status.conditions.clear();
    }
}

#[test]
fn a_vm_in_the_making_is_kept_a_moment_then_released() {
    let mut world = World::discovered("a");
    world.agent_machines.clear();
    world.machines.clear();
    world.waited = OFFER / 2;
    let offered = plan(&world.observed());
    assert_eq!(reason(&offered, "a"), Some(Reason::Offered));
    assert!(released(&offered).is_empty());
    assert!(offered.again.is_some_and(|again| again <= OFFER / 2));
    world.waited = OFFER;
    assert_eq!(
        released(&plan(&world.observed())),
        [ReleaseReason::MachineGone]
    );

    // An approved Agent is free no more: the provider may have bound it already.
    world.waited = Duration::ZERO;
    world.agents[0].spec.approved = true;
    assert!(reason(&plan(&world.observed()), "a") != Some(Reason::Offered));
}

/// The recorded VM of `a`.
fn vm_of(world: &mut World) -> &mut VmStatus {
    status_of(world).vm.as_mut().expect("recorded")
}

fn registered_once(world: &mut World) {
    vm_of(world).agent_ref = Some(ObjectReference::default());
}

fn was_bound(world: &mut World) {
    status_of(world).timeline = vec![Milestone {
        event: Milestone::BOUND.to_owned(),
        attempt: 1,
        at: None,
    }];
}

/// A hub that was restored from before a node's Agent registered takes that node for a VM in the making.
#[test]
fn only_a_vm_whose_agent_may_still_come_and_that_never_served_is_given_to_the_next_one() {
    type Change = fn(&mut World);
    let table: [(&str, bool, Change); 13] = [
        ("its Agent is there", true, |_| {}),
        ("its Agent came late", true, |w| {
            vm_of(w).discovery_deadline = Some(Time(at(AGE)));
        }),
        ("its Agent is awaited", true, |w| {
            w.agents.clear();
            vm_of(w).discovery_deadline = Some(Time(at(AGE + 1)));
        }),
        ("no VM yet", true, |w| {
            w.agents.clear();
            w.children[0].status = None;
        }),
        ("the VM before was bound", true, |w| {
            was_bound(w);
            vm_of(w).attempt = Some(2);
        }),
        ("the VM before was given up", true, |w| {
            w.agents.clear();
            let before = VmStatus {
                attempt: Some(1),
                ..VmStatus::default()
            };
            let status = status_of(w);
            status.vm = Some(before);
            status.last_failure = Some(Failure {
                attempt: Some(1),
                ..Failure::default()
            });
        }),
        ("its Agent is overdue", false, |w| {
            w.agents.clear();
            vm_of(w).discovery_deadline = Some(Time(at(AGE)));
        }),
        ("its Agent is gone", false, |w| {
            w.agents.clear();
            registered_once(w);
        }),
        ("its Agent goes", false, |w| delete(&mut w.agents[0])),
        ("its Agent is installed", false, |w| {
            let status = w.agents[0].status.as_mut().expect("reported");
            status.conditions.push(condition(INSTALLED, "True", "Done"));
        }),
        ("it was bound", false, was_bound),
        ("its drive was emptied", false, |w| {
            vm_of(w).iso_ejected = Some(true);
        }),
        ("it was given up", false, |w| {
            status_of(w).last_failure = Some(Failure {
                attempt: Some(1),
                ..Failure::default()
            });
        }),
    ];
    for (what, given, change) in table {
        let mut world = World::discovered("a");
        world.agent_machines = vec![agent_machine("b")];
        world.machines = vec![machine("b")];
        change(&mut world);
        let plan = plan(&world.observed());
        let does = |wanted: fn(&Action) -> bool| plan.actions.iter().any(wanted);
        assert_eq!(
            does(|a| matches!(a, Action::Reassign { .. })),
            given,
            "{what}"
        );
        assert_eq!(
            !does(|a| matches!(a, Action::CreateChild { .. })),
            given,
            "{what}"
        );
        let goes: &[ReleaseReason] = if given {
            &[]
        } else {
            &[ReleaseReason::MachineGone]
        };
        assert_eq!(released(&plan), goes, "{what}");
    }
}

#[test]
fn a_vm_that_nobody_asked_for_is_kept_while_somebody_waits_or_is_about_to() {
    let mut world = World::discovered("a");
    let metal = foreign_agent("metal");
    reserve(&mut world.agent_machines[0], &metal);
    world.agents = vec![metal];
    let plan_of = |world: &World| plan(&world.observed());
    assert_eq!(released(&plan_of(&world)), [ReleaseReason::Surplus]);
    world.agent_machines.push(agent_machine("b"));
    world.machines.push(machine("b"));
    let long = std::mem::take(&mut world.waited);
    let soon = plan_of(&world);
    assert_eq!(released(&soon), []);
    assert_eq!(reason(&soon, "a"), Some(Reason::SurplusKept));
    world.waited = long;
    let given = |a: &Action| matches!(a, Action::Reassign { .. });
    assert!(plan_of(&world).actions.iter().any(given));
}

#[test]
fn a_vm_whose_record_is_lost_is_not_surplus_while_an_agent_of_nobody_serves() {
    let mut world = World::discovered("a");
    let agent = world.agents[0].clone();
    reserve(&mut world.agent_machines[0], &agent);
    let record = world.children[0].status.take();
    // The Agent of a foreign host.
    assert_eq!(released(&plan(&world.observed())), [ReleaseReason::Surplus]);
    let labels = world.agents[0].metadata.labels.get_or_insert_default();
    labels.insert(AGENT_MACHINE_LABEL.to_owned(), "a".to_owned());
    assert_eq!(released(&plan(&world.observed())), []);
    // It is another VsphereAgent's.
    let mut other = world.children[0].clone();
    other.metadata.name = Some("b".to_owned());
    other.metadata.uid = Some("uid-of-b".to_owned());
    other.status = record;
    world.children.push(other);
    let released = released(&plan(&world.observed()));
    assert!(released.contains(&ReleaseReason::Surplus), "{released:?}");
}

/// A VM of this pool that serves no Machine, and an AgentMachine `b` that asks.
fn surplus_beside_one_that_asks() -> World {
    let mut world = World::discovered("a");
    let metal = foreign_agent("metal");
    reserve(&mut world.agent_machines[0], &metal);
    world.agents = vec![metal];
    world.agent_machines.push(agent_machine("b"));
    world.machines.push(machine("b"));
    world
}

#[test]
fn a_vm_is_kept_a_while_for_who_asks_and_cannot_be_served_as_things_are() {
    type Change = fn(&mut World);
    let table: [(Reason, Change); 4] = [
        (Reason::MachinePending, |w| w.machines.truncate(1)),
        (Reason::ProviderNotAccepting, |w| {
            w.agent_machines[1].metadata.finalizers = None;
        }),
        (Reason::PoolConflict, |w| {
            let mut other = pool("other");
            other.spec.node_pool_ref = w.pool.spec.node_pool_ref.clone();
            w.other_pools = vec![other];
        }),
        (Reason::SelectorUnsatisfiable, |w| {
            let own = [("customer", "another")];
            w.agent_machines[1].spec.agent_label_selector = Some(selector(&own, &[]));
        }),
    ];
    for (why, change) in table {
        let mut world = surplus_beside_one_that_asks();
        change(&mut world);
        let kept = plan(&world.observed());
        assert_eq!(reason(&kept, "b"), Some(why.clone()));
        assert_eq!(reason(&kept, "a"), Some(Reason::SurplusKept), "{why}");
        assert_eq!(released(&kept), [], "{why}");
        assert!(kept.again.is_some_and(|again| again <= HOPE), "{why}");

        let mut s = world.observed();
        s.wall = s.wall.checked_add(HOPE).expect("in range");
        assert_eq!(released(&plan(&s)), [ReleaseReason::Surplus], "{why}");

        // It has its Agent, or its provider reports that it does not ask.
        let status = world.agent_machines[1].status.as_mut().expect("reported");
        status.conditions[0].reason = Some("Other".to_owned());
        let plan = plan(&world.observed());
        assert_eq!(released(&plan), [ReleaseReason::Surplus], "{why}");
    }
}

#[test]
fn a_name_that_another_agent_has_gets_a_suffix() {
    let mut world = World::discovered("a");
    pin(&mut world.agent_machines[0]);
    let hostname = |p: &Plan| {
        p.actions.iter().find_map(|a| match a {
            Action::Prepare { patch, .. } => patch.hostname.clone(),
            _ => None,
        })
    };
    assert_eq!(hostname(&plan(&world.observed())).as_deref(), Some("a"));
    let mut other = agent_on(&crate::testing::child_with_vm("b"));
    other.spec.hostname = Some("a".to_owned());
    world.agents.push(other);
    let named = hostname(&plan(&world.observed()));
    assert!(named.is_some_and(|name| name.starts_with("a-")));
}

#[test]
fn a_deleted_pool_keeps_what_a_machine_may_still_use() {
    let mut world = World::discovered("a");
    delete(&mut world.pool);
    let status = world.pool.status.get_or_insert_default();
    status.closed = Some(true);
    assert_eq!(
        released(&plan(&world.observed())),
        [ReleaseReason::PoolDeleting],
        "one that only waits"
    );
    world.machines[0].deleting = true;
    let going = plan(&world.observed());
    assert!(released(&going).is_empty());
    assert_eq!(reason(&going, "a"), Some(Reason::MachineRemains));

    // `Retain` keeps VMs, not the records of a pool that is deleted.
    world.machines.clear();
    world.agent_machines.clear();
    world.waited = OFFER;
    world.pool.spec.cleanup_policy = Some(CleanupPolicy::Retain);
    assert_eq!(
        released(&plan(&world.observed())),
        [ReleaseReason::MachineGone]
    );
}

#[test]
fn a_freed_agent_is_out_of_the_reach_of_other_hosted_clusters_too() {
    let mut world = World::discovered("a");
    world.agents[0]
        .labels_mut()
        .insert("zone".to_owned(), "north".to_owned());
    let mut chooser = agent_machine("x");
    chooser.metadata.namespace = Some("clusters-other".to_owned());
    chooser.spec.agent_label_selector = Some(selector(&[("zone", "north")], &[]));
    world.elsewhere = vec![chooser];
    world.machines[0].deleting = true;
    let plan = plan(&world.observed());
    let fenced = plan.actions.iter().find_map(|a| match a {
        Action::Fence { patch, .. } => Some(patch),
        _ => None,
    });
    let patch = fenced.expect("the Agent of a leaving Machine is fenced");
    assert_eq!(patch.labels.get("zone"), Some(&None));
}
