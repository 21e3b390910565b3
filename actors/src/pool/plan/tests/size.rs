//! What a pass costs grows with the machines, not with their square.

use std::fs;

use crate::{
    pool::{
        plan::plan,
        report::{unanswered::Unanswered, waits},
        status, traced,
    },
    testing::{World, agent_machine, agent_on, child_with_vm, claim, machine, reserve},
};

/// The state of each machine of the pool.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Its AgentMachine waits, and there is no VM.
    Asks,
    /// The same, and a limit of the pool holds it back.
    Capped,
    /// Its Agent has registered and is to be prepared.
    Discovered,
    /// It serves.
    Serves,
}

fn world(state: State, machines: usize) -> World {
    let mut w = World::default();
    if matches!(state, State::Capped) {
        w.pool.spec.scaling.get_or_insert_default().max_vms = Some(1);
    }
    for n in 0..machines {
        let name = format!("w-{n}");
        let (mut am, child) = (agent_machine(&name), child_with_vm(&name));
        let mut agent = agent_on(&child);
        match state {
            State::Asks | State::Capped => {}
            State::Discovered => {
                w.agents.push(agent);
                w.children.push(child);
            }
            State::Serves => {
                reserve(&mut am, &agent);
                claim(&mut agent, &am);
                w.agents.push(agent);
                w.children.push(child);
            }
        }
        w.agent_machines.push(am);
        w.machines.push(machine(&name));
    }
    w
}

/// Nanoseconds that this thread has computed. It does not count while others have the processor.
fn computed() -> u64 {
    let all = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let first = all.split_whitespace().next();
    first.and_then(|n| n.parse().ok()).expect("a number")
}

/// The least that a pass over such a pool costs, and how much it decides. The clock is coarse, so short passes are measured
/// together.
fn cost(state: State, machines: usize) -> (u64, usize) {
    let w = world(state, machines);
    let mut decided = 0;
    let passes = 3000 / machines;
    let once = |_| {
        let all: Vec<_> = (0..passes).map(|_| w.observed()).collect();
        let begun = computed();
        for s in &all {
            let plan = plan(s);
            let waits = waits::waits(s, &plan);
            Unanswered::default().look(s, &plan, &waits);
            let _ = status::gauges(s, &plan);
            decided = plan.actions.len() + waits.len();
            for action in &plan.actions {
                let _ = traced::whose(s, action);
            }
        }
        (computed() - begun) / passes as u64
    };
    ((0..3).map(once).min().unwrap_or(0), decided)
}

/// Ten times as many would cost a hundred times as much if each were compared with each.
#[test]
fn a_pass_over_ten_times_as_many_machines_does_not_compare_each_with_each() {
    for state in [State::Asks, State::Capped, State::Discovered, State::Serves] {
        let ((few, of_few), (many, of_many)) = (cost(state, 300), cost(state, 3000));
        let times = many as f64 / few as f64;
        println!("{state:?}: {of_few}, {of_many} decisions, {few}, {many} ns: {times:.1} times");
        assert!(times < 30.0, "{state:?}: {times:.1} times");
    }
}
