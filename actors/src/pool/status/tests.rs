//! Planned actions and counts as tables: the facts, and the status of the pool for them.

use agent_forge_crds::{
    conditions::{CAPACITY_SATISFIED, Reason, find_condition},
    external::agent_machine::{AGENT_RESERVED, AgentMachine, PAUSED_ANNOTATION},
    pool::{PlannedAction, ScalingSpec},
};

use super::*;
use crate::{
    domain::holds::Pause,
    pool::plan::{Waiting, plan},
    ports::instruments::PoolGauges,
    testing::{
        World, agent_machine, agent_on, at, child, child_with_vm, claim, condition, delete,
        foreign_agent, labels, machine, pool, reserve, with,
    },
};

fn status_of(world: &World) -> VsphereAgentPoolStatus {
    let observed = world.observed();
    render(
        &VsphereAgentPoolStatus::default(),
        &observed,
        &plan(&observed),
        &Outcome::default(),
    )
}

fn pin(am: &mut AgentMachine) {
    let name = am.name_any();
    let selector = am.spec.agent_label_selector.get_or_insert_default();
    let exact = selector.match_labels.get_or_insert_default();
    exact.insert(
        agent_forge_crds::names::AGENT_MACHINE_LABEL.to_owned(),
        name,
    );
}

/// Its Machine and AgentMachine are gone, and no other one took its VM over in time.
fn abandoned() -> World {
    with(World::discovered("a"), |w| {
        w.agent_machines.clear();
        w.machines.clear();
        w.waited = std::time::Duration::from_secs(600);
    })
}

#[test]
fn each_planned_action_names_its_object_and_why() {
    let agent = agent_on(&child_with_vm("a")).name_any();
    let agent = Some(agent.as_str());
    type Row<'a> = (&'a str, Option<&'a str>, &'a str);
    let cases: [(&str, World, Vec<Row<'_>>); 7] = [
        (
            "nobody asks for anything",
            World::default(),
            vec![(action::NOOP, None, "nothing is to do")],
        ),
        (
            "two wait",
            World::waiting(&["a", "b"]),
            vec![
                (action::DEMAND_DEFICIT, Some("a"), "waits for an Agent"),
                (action::DEMAND_DEFICIT, Some("b"), "waits for an Agent"),
            ],
        ),
        (
            "a VM that nobody needs, and somebody who waits",
            with(World::discovered("a"), |w| {
                let metal = foreign_agent("metal");
                reserve(&mut w.agent_machines[0], &metal);
                w.agents = vec![metal];
                w.agent_machines.push(agent_machine("b"));
                w.machines.push(machine("b"));
            }),
            vec![(action::DEMAND_DEFICIT, Some("a"), "AgentMachine b")],
        ),
        (
            "an Agent has registered",
            with(World::discovered("a"), |w| pin(&mut w.agent_machines[0])),
            vec![(action::PATCH_AGENT, agent, "prepare it")],
        ),
        (
            "the Machine of a prepared Agent is being deleted",
            with(World::discovered("a"), |w| {
                w.machines[0].deleting = true;
                let own = labels(&[("customer", "example")]);
                w.agents[0].labels_mut().extend(own);
            }),
            vec![(action::PATCH_AGENT, agent, "out of every selection")],
        ),
        (
            "the Machine is gone: the VM first, then its Agent",
            abandoned(),
            vec![
                (action::DELETE_VM, Some("a"), "its Machine is gone"),
                (action::DELETE_AGENT, agent, "after its VM"),
            ],
        ),
        (
            "the Machine is gone before an Agent registered",
            with(abandoned(), |w| w.agents.clear()),
            vec![(action::DELETE_VM, Some("a"), "its Machine is gone")],
        ),
    ];
    for (so, world, expected) in cases {
        let planned = status_of(&world).planned_actions;
        let said = |p: &PlannedAction| (p.type_.clone(), p.name.clone());
        let named: Vec<_> = planned.iter().map(said).collect();
        let wanted: Vec<_> = expected
            .iter()
            .map(|(type_, name, _)| ((*type_).to_owned(), name.map(str::to_owned)))
            .collect();
        assert_eq!(named, wanted, "{so}");
        for (row, (.., word)) in planned.iter().zip(&expected) {
            assert!(row.reason.contains(word), "{so}: {row:?} lacks {word:?}");
        }
    }
}

/// One AgentMachine for each count, in the order of their creation.
fn crowd() -> World {
    let mut world = World::waiting(&[
        "asks",
        "asks-too",
        "building",
        "registered",
        "joins",
        "serves",
        "stands-by",
        "leaves",
    ]);
    let [.., joins, serves, stands_by, leaves] = world.agent_machines.as_mut_slice() else {
        panic!("eight were made")
    };
    let on = |name| agent_on(&child_with_vm(name));
    let (registered, mut joining, mut serving) = (on("registered"), on("joins"), on("serves"));
    for (am, agent) in [(&mut *joins, &mut joining), (&mut *serves, &mut serving)] {
        claim(agent, am);
        reserve(am, agent);
    }
    serves.status.get_or_insert_default().ready = Some(true);
    // It has a condition, but not the one that says that it waits.
    stands_by.status.get_or_insert_default().conditions =
        vec![condition(AGENT_RESERVED, "False", "AgentNotYetFound")];
    delete(leaves);
    let going = with(foreign_agent("going"), delete);
    world.agents = vec![
        registered,
        joining,
        serving,
        foreign_agent("metal"),
        going,
        foreign_agent("unlabelled"),
    ];
    for agent in world.agents.iter_mut().take(5) {
        let own = labels(&[("customer", "example")]);
        agent.labels_mut().extend(own);
    }
    world.children = vec![child("building")];
    let running = ["registered", "joins", "serves"].map(child_with_vm);
    world.children.extend(running);
    world
}

#[test]
fn each_state_of_capacity_counts_what_it_is_called() {
    let world = crowd();
    let observed = world.observed();
    let counted = gauges(&observed, &plan(&observed));
    let expected = PoolGauges {
        // All except the one that is being deleted.
        desired: 7,
        agent_machines: 7,
        // asks, asks-too, building, registered
        waiting_agent_machines: 4,
        // All except the one that serves.
        unready_agent_machines: 6,
        // Those that wait, and the one that asks for nothing yet.
        without_agent: 5,
        // registered, joins, serves, metal
        matching_agents: 4,
        // joins, serves
        bound_agents: 2,
        // registered, metal
        available_agents: 2,
        // building
        pending_owned_vms: 1,
        // asks, asks-too
        demand_deficit: 2,
        vm_cpu_cores: 4,
        vm_memory_bytes: 16_384 << 20,
        vm_disk_bytes: 100 << 30,
    };
    assert_eq!(counted, expected);
    // The status says the same.
    let s = status_of(&world);
    let said = [
        s.desired_replicas,
        s.agent_machines,
        s.waiting_agent_machines,
        s.unready_agent_machines,
        s.agent_machines_without_agent,
        s.matching_agents,
        s.bound_agents,
        s.available_agents,
    ];
    assert_eq!(said, [7, 7, 4, 6, 5, 4, 2, 2].map(Some));
    assert_eq!(s.owned_vms.len(), 4);
}

/// A limit keeps a host out of the buffer, and no AgentMachine waits.
#[test]
fn a_buffer_that_lacks_a_host_is_no_lack_of_capacity() {
    let mut world = World::default();
    world.pool.spec.scaling = Some(ScalingSpec {
        buffer_agents: Some(1),
        max_vms: Some(0),
        ..ScalingSpec::default()
    });
    let status = status_of(&world);
    let waits: Vec<_> = status.waiting_on.iter().map(|w| &w.reason).collect();
    assert_eq!(waits, [&Reason::CreateCapReached]);
    let satisfied = find_condition(&status.conditions, CAPACITY_SATISFIED).expect("a condition");
    assert_eq!(satisfied.reason, "Satisfied", "{}", satisfied.message);
}

#[test]
fn a_machine_that_waits_for_two_reasons_is_counted_once() {
    let refused = |name| {
        with(child(name), |c| {
            c.status.get_or_insert_default().waiting_on = vec![WaitingOn {
                subject: "vSphere".to_owned(),
                reason: Reason::NoPermission,
                ..WaitingOn::default()
            }];
        })
    };
    let world = World {
        children: vec![refused("a"), refused("b")],
        ..World::default()
    };
    let plan = Plan {
        waiting: vec![Waiting {
            subject: "a".to_owned(),
            reason: Reason::MachineStateUnknown,
            message: "a sentence".to_owned(),
        }],
        ..Plan::default()
    };
    let view = view(
        &world.observed(),
        &plan,
        &Outcome::default(),
        &VsphereAgentPoolStatus::default(),
    );
    let counted: Vec<_> = view.waiting_on.into_iter().collect();
    let once = |reason: Reason| (reason.to_string(), 1);
    assert_eq!(
        counted,
        [
            once(Reason::MachineStateUnknown),
            once(Reason::NoPermission)
        ]
    );
}

#[test]
fn whoever_is_missed_is_told_of_whatever_its_provider_says() {
    type Change = fn(&mut World);
    // Whether it counts as without a host, and as not ready.
    let cases: [(&str, Change, [bool; 2]); 8] = [
        ("it asks", |_| {}, [true, true]),
        (
            "its provider cannot look for an Agent",
            |w| {
                let failed = condition(AGENT_RESERVED, "False", "AgentNotYetFound");
                let status = w.agent_machines[0].status.get_or_insert_default();
                status.conditions = vec![failed];
            },
            [true, true],
        ),
        (
            "two pools claim it",
            |w| {
                let mut other = pool("other");
                other.spec.node_pool_ref = w.pool.spec.node_pool_ref.clone();
                w.other_pools.push(other);
            },
            [true, true],
        ),
        (
            "it has its Agent",
            |w| {
                let mut agent = agent_on(&child_with_vm("a"));
                claim(&mut agent, &w.agent_machines[0]);
                reserve(&mut w.agent_machines[0], &agent);
                w.agents.push(agent);
            },
            [false, true],
        ),
        (
            "it is ready",
            |w| w.agent_machines[0].status.get_or_insert_default().ready = Some(true),
            [false, false],
        ),
        (
            "it is being deleted",
            |w| delete(&mut w.agent_machines[0]),
            [false, false],
        ),
        (
            "it is paused",
            |w| {
                let paused = (PAUSED_ANNOTATION.to_owned(), "true".to_owned());
                w.agent_machines[0].annotations_mut().extend([paused]);
            },
            [false, false],
        ),
        ("it has no Machine", |w| w.machines.clear(), [false, false]),
    ];
    for (so, change, expected) in cases {
        let mut world = World::waiting(&["a"]);
        change(&mut world);
        let mut observed = world.observed();
        let status = VsphereAgentPoolStatus::default();
        let told = |observed: &Observed| {
            let view = view(observed, &plan(observed), &Outcome::default(), &status);
            [view.oldest_waiting, view.oldest_unready]
        };
        let expected = expected.map(|is| is.then(|| at(0)));
        assert_eq!(told(&observed), expected, "{so}");
        observed.holds.pauses.push(Pause::by("a test".to_owned()));
        assert_eq!(told(&observed), [None; 2], "the pool is paused");
    }
}
