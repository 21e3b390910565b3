//! What is awaited while nothing holds a machine back, and what stands while nothing waits for it.

use super::*;

const DELETE_VETO: &str = "delete.check.agent-forge.containeroo.ch/backup";

/// A machine whose Node is not ready, in that phase.
fn coming(phase: &str, reason: &str) -> World {
    let mut world = World::serving();
    let vm = &mut world.child["status"]["vm"];
    vm["phase"] = json!(phase);
    vm["reason"] = json!(reason);
    world.agent_machine["status"] = json!({"ready": false});
    world
}

#[test]
fn a_machine_that_comes_says_what_is_awaited_since_when() {
    let booted = || {
        let mut world = coming("Provisioning", "AgentNotDiscovered");
        world.child["status"]["vm"]["discoveryDeadline"] = json!("2026-01-01T01:31:30Z");
        (world.agent, world.agent_machine["spec"]) = (json!(null), json!({}));
        world
    };
    let installing = || {
        let mut world = coming("Bound", "AgentBound");
        let status = &mut world.agent["status"];
        status["conditions"] = json!([]);
        status["debugInfo"]["state"] = json!("installing-in-progress");
        status["progress"] = json!({"currentStage": "Writing image to disk"});
        world
    };
    for (world, reason, words) in [
        (
            booted(),
            "AgentNotDiscovered",
            "its guest has not registered; the VM is replaced at 01:31 UTC; look at its console",
        ),
        (
            coming("Available", "AgentAvailable"),
            "AgentAvailable",
            "has registered and is not prepared yet",
        ),
        (
            coming("Available", "AgentPrepared"),
            "AgentPrepared",
            "the agent provider has not claimed it for AgentMachine w-1",
        ),
        (
            installing(),
            "AgentBound",
            "the host installs: stage Writing image to disk, state installing-in-progress",
        ),
        (
            coming("Bound", "AgentBound"),
            "AgentBound",
            "its Node is not ready yet",
        ),
        (
            coming("Released", "MachineDeleted"),
            "MachineDeleted",
            "the VM is being removed",
        ),
    ] {
        let e = explained(&world, "va/w-1", &Live::NotAsked);
        let told: Vec<_> = e.waits.iter().map(|w| w.reason.as_str()).collect();
        assert_eq!(told, [reason], "{words}");
        assert!(e.waits[0].message.contains(words), "{:?}", e.waits);
        let step = "2026-01-01T00:01:30Z".parse().expect("the last step");
        assert_eq!(e.waits[0].since, Some(step), "{words}");
        assert_eq!(e.verdict(), Verdict::Findings, "{words}");
    }
    // Something that holds it is told instead.
    let mut held = booted();
    held.child["status"]["waitingOn"] = json!([{"subject": "w-1", "reason": "VMPoweredOff"}]);
    let e = explained(&held, "va/w-1", &Live::NotAsked);
    let told: Vec<_> = e.waits.iter().map(|w| w.reason.as_str()).collect();
    assert_eq!(told, ["VMPoweredOff"]);
}

#[test]
fn nobody_waits_for_a_veto_on_what_is_not_done() {
    let mut world = World::serving();
    world.child["metadata"]["annotations"][DELETE_VETO] = json!("runs");
    let e = explained(&world, "va/w-1", &Live::NotAsked);
    assert_eq!((&e.waits[..], e.verdict()), (&[][..], Verdict::Nothing));
    let said = "Nothing waits for it now: backup on VsphereAgent demo/w-1 forbids deletion: runs";
    assert!(e.text().contains(said), "{}", e.text());
    world.machine.as_mut().expect("one").deleting = true;
    let e = explained(&world, "va/w-1", &Live::NotAsked);
    assert!(e.waits.iter().any(|w| w.reason == Reason::Vetoed));
    assert!(e.standing.is_empty());
}

#[test]
fn a_pause_that_means_nothing_and_steps_that_failed_are_notes() {
    let mut world = World::serving();
    world.child["status"]["conditions"] = json!([{
        "type": "StepsFailed", "status": "True", "reason": "TaggingFailed", "message": "AttachTags: no such tag",
        "lastTransitionTime": "2026-01-01T00:30:00Z",
    }]);
    let caches = world.caches();
    crate::testing::pause_until(&caches, "tomorrow");
    let subject = "va/w-1".parse().expect("a subject");
    let found = subject::find(&caches, &subject, None).expect("a machine");
    let words = ("va/w-1".to_owned(), None);
    let e = explain(&caches, &found, (&Live::NotAsked, None), words, now());
    assert_eq!((&e.waits[..], e.verdict()), (&[][..], Verdict::Findings));
    for said in [
        "TaggingFailed: AttachTags: no such tag. Correct the id",
        "PausedUntilInvalid: spec.pausedUntil of NodePool demo/workers is \"tomorrow\"",
    ] {
        assert!(e.text().contains(said), "{said}: {}", e.text());
    }
}
