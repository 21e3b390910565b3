//! What the workloads cost.

use agent_forge_sim::cost;

/// `cargo run -p agent-forge-sim -- cost --record` records other numbers, if the change is worth them.
#[test]
fn no_workload_costs_more_than_is_known() {
    let above = cost::above_known(&cost::all()).expect("costs.txt");
    assert!(above.is_empty(), "{}\n{}", cost::HEAD, above.join("\n"));
}
