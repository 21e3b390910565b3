use serde_json::{Value, json};

use super::{
    found::Kind,
    state::{Judged, State},
    *,
};
use crate::testing::World;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().expect("a time")
}

/// The only row.
fn only(world: &World) -> Machine {
    let pools = machines(&world.caches(), now()).pools;
    let mut rows = pools.into_iter().flat_map(|p| p.machines);
    let row = rows.next().expect("a machine");
    assert!(rows.next().is_none(), "there is another one");
    row
}

fn waiting_on(object: &mut Value, subject: &str, reason: &str) {
    object["status"]["waitingOn"] =
        json!([{"subject": subject, "reason": reason, "message": "a sentence"}]);
}

#[test]
fn the_state_follows_from_what_a_machine_waits_for() {
    type Change = fn(&mut World);
    let table: [(&str, Change, State, &str, bool, &str); 16] = [
        (
            "the operator goes on",
            |w| waiting_on(&mut w.child, "w-1", "ISOUploading"),
            State::Waiting,
            "Bound",
            true,
            "ISOUploading",
        ),
        (
            "a person has to act",
            |w| waiting_on(&mut w.child, "w-1", "InvalidSpec"),
            State::Stuck,
            "Bound",
            true,
            "InvalidSpec",
        ),
        (
            "a person paused it",
            |w| waiting_on(&mut w.child, "w-1", "Paused"),
            State::Waiting,
            "Bound",
            true,
            "Paused",
        ),
        (
            "the Node is not ready",
            |w| w.agent_machine["status"]["ready"] = json!(false),
            State::Coming,
            "Bound",
            false,
            "AgentBound",
        ),
        (
            "its VM is being made",
            |w| {
                w.child["status"]["vm"]["phase"] = json!("Provisioning");
                w.child["status"]["vm"]["reason"] = json!("VMCreatePending");
                w.agent = Value::Null;
            },
            State::Coming,
            "Provisioning",
            false,
            "VMCreatePending",
        ),
        (
            "its pool cannot fence it",
            |w| {
                w.child["status"]["vm"]["phase"] = json!("Released");
                waiting_on(&mut w.pool, "w-1", "Paused");
            },
            State::Leaving,
            "Released",
            true,
            "Paused",
        ),
        (
            "its pool waits for another one",
            |w| waiting_on(&mut w.pool, "new-w-1", "InvalidSpec"),
            State::Serving,
            "Bound",
            false,
            "AgentBound",
        ),
        (
            "its record is late",
            |w| {
                w.child["status"]["vm"]["phase"] = json!("Provisioning");
                w.child["status"]["vm"]["reason"] = json!("AgentNotDiscovered");
            },
            State::Serving,
            "Provisioning",
            false,
            "AgentBound",
        ),
        (
            "its AgentMachine has another host",
            |w| {
                w.child["status"]["vm"]["phase"] = json!("Available");
                w.child["status"]["vm"]["reason"] = json!("AgentPrepared");
                w.agent_machine["status"]["agentRef"]["name"] = json!("metal");
            },
            State::Coming,
            "Available",
            false,
            "AgentPrepared",
        ),
        (
            "it waits in the buffer",
            |w| {
                w.child["metadata"]["labels"] =
                    json!({"agent-forge.containeroo.ch/created-for": "buffer"});
                w.child["metadata"]["annotations"] = json!({});
                w.child["status"]["vm"]["phase"] = json!("Available");
                w.child["status"]["vm"]["reason"] = json!("AgentAvailable");
                w.agent["metadata"]["labels"] =
                    json!({"infraenvs.agent-install.openshift.io": "infra"});
                w.agent["spec"]["clusterDeploymentName"] = json!(null);
                w.agent_machine = Value::Null;
            },
            State::Ready,
            "Available",
            false,
            "AgentAvailable",
        ),
        (
            "it is being deleted",
            |w| {
                w.child["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:20:00Z");
            },
            State::Leaving,
            "Deleting",
            false,
            "AgentBound",
        ),
        (
            "its deletion waits for the provider",
            |w| {
                w.child["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:20:00Z");
                waiting_on(&mut w.child, "w-1", "AgentBound");
            },
            State::Leaving,
            "Deleting",
            true,
            "AgentBound",
        ),
        (
            "its deletion waits for a person",
            |w| {
                w.child["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:20:00Z");
                waiting_on(&mut w.child, "w-1", "InvalidSpec");
            },
            State::Stuck,
            "Deleting",
            true,
            "InvalidSpec",
        ),
        (
            "nothing needs it",
            |w| w.child["status"]["vm"]["phase"] = json!("Orphaned"),
            State::Stuck,
            "Orphaned",
            true,
            "AgentBound",
        ),
        (
            "its pool is gone",
            |w| w.pool = Value::Null,
            State::Stuck,
            "Bound",
            true,
            "PoolNotFound",
        ),
        (
            "a host of the buffer is claimed, and its record is late",
            |w| {
                w.child["metadata"]["labels"] =
                    json!({"agent-forge.containeroo.ch/created-for": "buffer"});
                w.child["metadata"]["annotations"] = json!({});
                w.child["status"]["vm"]["phase"] = json!("Available");
            },
            State::Serving,
            "Available",
            false,
            "AgentBound",
        ),
    ];
    for (what, change, state, phase, waits, reason) in table {
        let mut world = World::serving();
        change(&mut world);
        let row = only(&world);
        let Judged {
            state: is,
            reason: why,
            wait,
            ..
        } = &row.judged;
        assert_eq!(
            (*is, row.phase.as_str(), why.as_str()),
            (state, phase, reason),
            "{what}"
        );
        let wait = wait.as_ref().map(|w| w.reason.as_str());
        assert_eq!(wait, waits.then_some(reason), "{what}");
        assert_eq!(row.found.pool.is_some(), what != "its pool is gone");
    }
}

#[test]
fn an_agent_machine_without_a_vm_waits_leaves_or_has_a_foreign_host() {
    let told = |world: &World| {
        let row = only(world);
        let Judged {
            state,
            reason,
            message,
            ..
        } = row.judged;
        (row.kind, state, row.phase, reason, message)
    };
    let mut world = World::waiting();
    let text = str::to_owned;
    let demand = |state, phase, reason, message| {
        (
            Kind::AgentMachine,
            state,
            text(phase),
            text(reason),
            text(message),
        )
    };
    let first = demand(State::Waiting, "Waiting", "NoSuitableAgents", "m");
    assert_eq!(told(&world), first);
    // The pool says more than the provider.
    waiting_on(
        &mut world.pool,
        "AgentMachine/demo-demo/w-1",
        "CreateCapReached",
    );
    let second = demand(State::Stuck, "Waiting", "CreateCapReached", "a sentence");
    assert_eq!(told(&world), second);
    // One whose VM is not made yet waits in the line of creates, which the pool tells of once.
    let mut queued = World::serving();
    queued.child["status"]["vm"]["phase"] = json!("Provisioning");
    waiting_on(&mut queued.pool, "vSphere", "CreateQueued");
    assert_ne!(told(&queued).3, "CreateQueued");
    queued.child["status"]["vm"]["moref"] = Value::Null;
    let (_, state, _, reason, _) = told(&queued);
    assert_eq!((state, reason.as_str()), (State::Waiting, "CreateQueued"));
    let mut leaving = World::waiting();
    leaving.agent_machine["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:20:00Z");
    assert_eq!(
        told(&leaving),
        demand(State::Leaving, "Deleting", "Deleting", "")
    );
    // A bare-metal host serves it: the pool's rows do not matter then.
    let host = World::serving();
    (world.agent_machine, world.agent) = (host.agent_machine, host.agent);
    let (_, state, phase, reason, _) = told(&world);
    assert_eq!((state, phase.as_str()), (State::Foreign, "Foreign"));
    assert_eq!(reason, "added-to-existing-cluster");
    assert!(only(&world).judged.wait.is_none());
}

/// The usual time of the pool is 16 minutes.
#[test]
fn a_machine_that_comes_is_expected_at_the_usual_time() {
    type Change = fn(&mut Value);
    let table: [(&str, Change, Option<&str>, usize); 6] = [
        ("it comes", |_| {}, Some("2026-01-01T00:56:00Z"), 0),
        (
            "it is much too late",
            |c| c["status"]["timeline"][0]["at"] = json!("2026-01-01T00:20:00.000000Z"),
            Some("2026-01-01T00:36:00Z"),
            1,
        ),
        (
            "a person has to act",
            |c| waiting_on(c, "w-2", "InvalidSpec"),
            Some("2026-01-01T00:56:00Z"),
            0,
        ),
        (
            "it is being deleted",
            |c| c["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:50:00Z"),
            None,
            0,
        ),
        (
            "it is bound",
            |c| c["status"]["vm"]["phase"] = json!("Bound"),
            None,
            0,
        ),
        (
            "it waits in the buffer",
            |c| {
                c["metadata"]["labels"] =
                    json!({"agent-forge.containeroo.ch/created-for": "buffer"});
                c["metadata"]["annotations"] = json!({});
            },
            None,
            0,
        ),
    ];
    for (what, change, expected, late) in table {
        let mut world = World::serving();
        let mut second = world.child.clone();
        second["metadata"]["name"] = json!("w-2");
        second["metadata"]["uid"] = json!("u-2");
        second["metadata"]["annotations"]["agent-forge.containeroo.ch/agent-machine-uid"] =
            json!("u-am-2");
        second["status"]["vm"] = json!({"name": "w-2", "phase": "Provisioning"});
        second["status"]["timeline"] =
            json!([{"event": "Demanded", "attempt": 1, "at": "2026-01-01T00:40:00.000000Z"}]);
        change(&mut second);
        let bound = json!({"event": "Bound", "attempt": 1, "at": "2026-01-01T00:16:00.000000Z"});
        let timeline = world.child["status"]["timeline"].as_array_mut();
        timeline.expect("a timeline").push(bound);
        world.child = json!([world.child, second]);
        let all = machines(&world.caches(), now());
        let pool = &all.pools[0];
        assert_eq!(
            (pool.usual_seconds, pool.late(now())),
            (Some(960), late),
            "{what}"
        );
        let [first, second] = &pool.machines[..] else {
            panic!("{what}")
        };
        assert_eq!(
            (first.took_seconds, first.expected),
            (Some(960), None),
            "{what}"
        );
        let expected = expected.map(|at| at.parse().expect("a time"));
        assert_eq!(second.expected, expected, "{what}");
    }
}
