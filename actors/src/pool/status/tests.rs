//! Planned actions and counts, as tables: what is so, and what the pool says of it.

use agent_forge_crds::{
    external::agent_machine::{AGENT_RESERVED, AgentMachine},
    pool::PlannedAction,
};

use super::*;
use crate::{
    pool::plan::plan,
    ports::instruments::PoolGauges,
    testing::{
        World, agent_machine, agent_on, child, child_with_vm, claim, condition, delete,
        foreign_agent, labels, machine, reserve, with,
    },
};

fn status_of(world: &World) -> VsphereAgentPoolStatus {
    let snapshot = world.snapshot();
    render(
        &VsphereAgentPoolStatus::default(),
        &snapshot,
        &plan(&snapshot),
        &Surroundings::default(),
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

/// Its Machine and AgentMachine are gone, and nobody took its VM over in time.
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

/// One AgentMachine for each thing that is counted, in the order of its making.
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
    // It reports something, but not that it waits.
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
    let snapshot = world.snapshot();
    let counted = gauges(&snapshot, &plan(&snapshot));
    let expected = PoolGauges {
        // All but the one that is being deleted.
        desired: 7,
        agent_machines: 7,
        // asks, asks-too, building, registered
        waiting_agent_machines: 4,
        // All but the one that serves.
        unready_agent_machines: 6,
        // Those that wait, and the one that stands by.
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
