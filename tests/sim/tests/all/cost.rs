//! What the workloads cost, and the states that their VMs come into: one test, as it has to play them all.

use agent_forge_sim::{
    cost::{self, Cost},
    matrix,
    states::{self, States},
};

/// `cargo run -p agent-forge-sim -- cost --record` records other numbers, if the change is worth them.
#[test]
fn no_workload_costs_more_or_comes_into_other_states_than_is_known() {
    let (mut costs, mut all) = (Vec::new(), States::new());
    for run in matrix::references() {
        costs.push(Cost::of(&run));
        states::add(&mut all, states::of(&run).expect("VsphereAgents"));
    }
    let new = states::not_recorded(&all).expect("the recorded states");
    let command = states::COMMAND;
    assert!(new.is_empty(), "`{command}` adds: {new:#?}");
    let above = cost::above_known(&costs).expect("costs.txt");
    assert!(above.is_empty(), "{}\n{}", cost::HEAD, above.join("\n"));
}
