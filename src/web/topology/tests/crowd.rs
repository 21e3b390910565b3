//! Many machines: size and time.

use std::time::Duration;

use agent_forge_actors::domain::identity::BiosUuid;

use super::*;
use crate::testing::CLUSTER;

/// A pool with that many serving machines.
pub fn crowd(many: usize) -> World {
    let mut world = World::serving();
    let (mut children, mut demands, mut agents) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..many {
        let (name, uid) = (format!("demo-workers-x7k2p-{n:05}"), format!("u-{n}"));
        let uuid = BiosUuid::derive(CLUSTER, &uid, 1);
        let host = uuid.swapped().to_string();
        let mut child = world.child.clone();
        child["metadata"]["name"] = json!(name);
        child["metadata"]["uid"] = json!(uid);
        child["metadata"]["annotations"]["agent-forge.containeroo.ch/agent-machine-uid"] =
            json!(format!("u-am-{n}"));
        child["status"]["vm"]["name"] = json!(name);
        child["status"]["vm"]["biosUUID"] = json!(uuid.to_string());
        child["status"]["vm"]["agentRef"]["name"] = json!(host);
        child["status"]["vm"]["placement"] =
            json!({"host": "esx-01.dc.example", "datastore": "vsan-datastore-01"});
        bound(&mut child);
        children.push(child);
        let mut demand = world.agent_machine.clone();
        demand["metadata"]["name"] = json!(name);
        demand["metadata"]["uid"] = json!(format!("u-am-{n}"));
        demands.push(demand);
        let mut agent = world.agent.clone();
        agent["metadata"]["name"] = json!(host);
        agent["spec"]["hostname"] = json!(name);
        agent["status"]["inventory"]["systemVendor"]["serialNumber"] =
            json!(format!("VMware-{uuid}"));
        agents.push(agent);
    }
    world.child = Value::Array(children);
    world.agent_machine = Value::Array(demands);
    world.agent = Value::Array(agents);
    world
}

#[test]
fn a_thousand_machines_are_less_than_a_megabyte() {
    let shown = shown(&crowd(1000));
    let all = machines(&shown);
    assert_eq!(all.len(), 1000);
    assert!(
        all.iter()
            .all(|m| m.state == State::Serving && m.chain.len() == 6)
    );
    let json = serde_json::to_vec(&shown).expect("JSON").len();
    assert!(json < 1_000_000, "{json} bytes");
}

/// The processor time of this thread, to some milliseconds. What else runs on the machine does not count.
fn worked() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux counts it");
    let first = text.split_whitespace().next().expect("three numbers");
    Duration::from_nanos(first.parse().expect("nanoseconds"))
}

/// Eight times as many objects take about eight times as long. A walk through all objects for each of them would take 64
/// times as long.
#[test]
fn the_time_is_in_proportion_to_the_number_of_machines() {
    let time = |many, runs: u32| {
        let caches = crowd(many).caches();
        let begun = worked();
        for _ in 0..runs {
            let shown = topology(&caches, &Reach::All, Vec::new(), super::now());
            assert_eq!(machines(&shown).len(), many);
        }
        (worked() - begun) / runs
    };
    let (few, many) = (time(250, 24), time(2000, 3));
    assert!(
        many < few * 28,
        "250 machines take {few:?}, 2000 take {many:?}"
    );
}
