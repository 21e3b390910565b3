//! An Agent that registered and cannot be claimed: the status reports it, and its VM is replaced if that is safe.

use agent_forge_crds::{
    conditions::{READY, Reason, find_condition},
    external::agent::{Agent, CONNECTED, VALIDATED},
    names::REPLACE_ANNOTATION,
};

use super::*;
use crate::{domain::belonging, testing::condition};

const TIMEOUT: Duration = Duration::from_secs(1800);

pub(super) fn change(bench: &Bench, change: impl FnOnce(&mut Agent)) {
    bench.hub.with(|o| {
        let agent = o.agents.first_mut().expect("an Agent");
        change(agent);
        o.version += 1;
        agent.metadata.resource_version = Some((o.version + 100).to_string());
    });
}

pub(super) fn state(agent: &mut Agent, state: &str, conditions: &[(&str, &str)]) {
    let status = agent.status.as_mut().expect("a status");
    status.debug_info.get_or_insert_default().state = Some(state.to_owned());
    for (type_, value) in conditions {
        status.conditions.retain(|c| c.type_ != *type_);
        status.conditions.push(condition(type_, value, "Because"));
    }
}

fn silence(bench: &Bench) {
    change(bench, |a| {
        state(a, "disconnected-unbound", &[(CONNECTED, "False")]);
    });
}

fn ask(bench: &Bench, attempt: &str) {
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("it exists");
        let asked = (REPLACE_ANNOTATION.to_owned(), attempt.to_owned());
        child.annotations_mut().extend([asked]);
        o.version += 1;
        child.metadata.resource_version = Some((o.version + 100).to_string());
    });
}

/// Its Agent registered.
pub(super) async fn registered() -> Bench {
    let mut bench = on().await;
    let agent = late_agent(&bench);
    bench.hub.with(|o| o.agents = vec![agent]);
    bench.pass().await;
    bench.turn(MINUTE);
    bench.pass().await;
    assert!(bench.vm().agent_ref.is_some(), "{:?}", bench.status());
    bench
}

fn told(bench: &Bench) -> Vec<String> {
    let all = bench.hub.with(|o| o.notices.clone()).into_iter();
    let of_it = all.filter(|n| n.reason == event::HOST_TROUBLE);
    of_it.map(|n| n.note).collect()
}

#[tokio::test]
async fn a_guest_that_went_silent_after_it_registered_is_said_and_replaced() {
    for inventory in [true, false] {
        let mut bench = registered().await;
        if !inventory {
            change(&bench, |a| {
                a.status.as_mut().expect("status").inventory = None
            });
        }
        let first = bench.vm();
        silence(&bench);
        bench.pass().await;
        assert_eq!(bench.waits_on(), Some(Reason::AgentDisconnected));
        let status = bench.status();
        let ready = find_condition(&status.conditions, READY).expect("Ready");
        assert_eq!(ready.status, "False", "{inventory}");
        assert!(ready.message.contains("disconnected-unbound"), "{ready:?}");
        bench.turn(MINUTE);
        let again = bench.pass().await.again.expect("it looks again in time");
        assert!(again <= TIMEOUT, "{again:?}");
        assert!(
            told(&bench)
                .iter()
                .any(|n| n.starts_with("AgentDisconnected: "))
        );
        bench.turn(TIMEOUT - 2 * MINUTE);
        bench.pass().await;
        assert_eq!(bench.times(E::PowerOff), 0, "there is a minute left");
        bench.turn(MINUTE * 2);
        bench.until(|b| b.vm().bios_uuid.is_none()).await;
        let failure = bench.status().last_failure.expect("recorded");
        assert_eq!(failure.class.as_deref(), Some("AgentDisconnected"));
        assert_eq!(failure.bios_uuid, first.bios_uuid);
        assert!(
            bench.hub.with(|o| o.agents.is_empty()),
            "no Agent stays behind"
        );
        bench.turn(MINUTE);
        bench.until(Bench::is_on).await;
        assert_eq!(bench.vm().attempt, Some(2));
        assert_eq!(bench.vm().agent_lost_since, None);
    }
}

pub(super) fn moves_to_buffer(bench: &Bench) {
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("it exists");
        testing::move_to_buffer(child);
        o.version += 1;
        child.metadata.resource_version = Some((o.version + 100).to_string());
    });
}

/// Its VM was made for the buffer: nobody was ever offered it.
fn offered_to_nobody(bench: &Bench) {
    let no = crate::domain::marker::MayServe::no(1);
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("it exists");
        let vm = child.status.as_mut().and_then(|s| s.vm.as_mut());
        vm.expect("a VM").may_serve = Some(no.to_string());
    });
    bench.site.with(|i| i.vms[0].may_serve = Some(no));
}

/// In the buffer a silent guest goes after ten minutes, and one that fails its validations after the discovery timeout.
#[tokio::test]
async fn a_host_of_the_buffer_that_nobody_can_claim_is_replaced() {
    let silent: (&str, &[(&str, &str)]) = ("disconnected-unbound", &[(CONNECTED, "False")]);
    let failing: (&str, &[(&str, &str)]) = ("insufficient-unbound", &[(VALIDATED, "False")]);
    for ((name, conditions), patience, class) in [
        (silent, MINUTE * 10, "AgentDisconnected"),
        (failing, TIMEOUT, "AgentInsufficient"),
    ] {
        let mut bench = registered().await;
        moves_to_buffer(&bench);
        change(&bench, |a| state(a, name, conditions));
        bench.pass().await;
        bench.turn(patience - MINUTE);
        bench.pass().await;
        assert_eq!(
            bench.times(E::PowerOff),
            0,
            "{class}: there is a minute left"
        );
        bench.turn(MINUTE * 2);
        bench.until(|b| b.vm().bios_uuid.is_none()).await;
        let failure = bench.status().last_failure.expect("recorded");
        assert_eq!(failure.class.as_deref(), Some(class));
        assert!(bench.hub.with(|o| o.agents.is_empty()), "no Agent stays");
    }
}

/// Its guest registers, answers, and never sends an inventory.
#[tokio::test]
async fn a_host_of_the_buffer_whose_agent_sends_no_inventory_is_replaced_at_its_deadline() {
    for (in_buffer, comes) in [(true, false), (true, true), (false, false)] {
        let mut bench = on().await;
        if in_buffer {
            moves_to_buffer(&bench);
            offered_to_nobody(&bench);
        }
        // Its guest has a name, as an installed one.
        bench.site.with(|i| {
            let vm = &mut i.vms[0];
            vm.tools = Some("guestToolsRunning".to_owned());
            vm.guest_address = Some("192.0.2.7".to_owned());
            vm.guest_host = Some("host-7".to_owned());
        });
        let agent = late_agent(&bench);
        let inventory = agent.status.as_ref().and_then(|s| s.inventory.clone());
        bench.hub.with(|o| o.agents = vec![agent]);
        change(&bench, |a| {
            state(a, "discovering-unbound", &[]);
            a.status.as_mut().expect("a status").inventory = None;
        });
        bench.pass().await;
        bench.turn(TIMEOUT - MINUTE);
        bench.pass().await;
        assert_eq!(bench.times(E::PowerOff), 0, "there is a minute left");
        bench.turn(2 * MINUTE);
        if comes {
            // The cache does not show it yet.
            let late = bench.hub.with(|o| {
                let mut agent = o.agents[0].clone();
                agent.status.as_mut().expect("a status").inventory = inventory;
                agent
            });
            bench.hub.with(|o| o.unseen_agents = vec![late]);
        }
        if !in_buffer || comes {
            for _ in 0..3 {
                bench.pass().await;
                bench.turn(MINUTE);
            }
            assert_eq!(bench.status().last_failure, None, "{in_buffer} {comes}");
            assert_eq!(bench.waits_on(), Some(Reason::AgentDiscoveryExpired));
            continue;
        }
        // Another process has not followed it since it was switched on.
        bench.restart();
        bench.until(|b| b.vm().bios_uuid.is_none()).await;
        let failure = bench.status().last_failure.expect("recorded");
        assert_eq!(failure.class.as_deref(), Some("AgentWithoutInventory"));
        assert!(bench.hub.with(|o| o.agents.is_empty()), "no Agent stays");
    }
}

/// Its guest is started again to mend it. The service then does not hear of it for a moment.
#[tokio::test]
async fn the_ten_minutes_in_the_buffer_begin_with_the_silence() {
    let mut bench = registered().await;
    moves_to_buffer(&bench);
    offered_to_nobody(&bench);
    let failing = [(VALIDATED, "False")];
    change(&bench, |a| state(a, "insufficient-unbound", &failing));
    bench.pass().await;
    bench.turn(MINUTE * 20);
    bench.pass().await;
    let since = bench.context.clock.wall();
    change(&bench, |a| {
        state(a, "disconnected-unbound", &[(CONNECTED, "False")]);
        let conditions = &mut a.status.as_mut().expect("a status").conditions;
        let connected = conditions.iter_mut().find(|c| c.type_ == CONNECTED);
        connected.expect("said").last_transition_time = Some(agent_forge_crds::Time(since));
    });
    bench.restart();
    bench.pass().await;
    bench.turn(MINUTE * 9);
    bench.pass().await;
    assert_eq!(bench.status().last_failure, None, "there is a minute left");
    bench.turn(MINUTE * 2);
    bench.until(|b| b.status().last_failure.is_some()).await;
}

#[tokio::test]
async fn a_guest_that_answers_again_is_kept_and_its_clock_starts_anew() {
    let mut bench = registered().await;
    silence(&bench);
    bench.pass().await;
    bench.turn(TIMEOUT - MINUTE);
    bench.pass().await;
    change(&bench, |a| {
        state(a, "known-unbound", &[(CONNECTED, "True")])
    });
    bench.pass().await;
    assert_eq!(bench.waits_on(), None);
    silence(&bench);
    bench.pass().await;
    bench.turn(MINUTE * 2);
    bench.pass().await;
    assert_eq!(bench.times(E::PowerOff), 0);
    // At the last moment: the cache still shows it silent.
    bench.turn(TIMEOUT);
    let answers = bench.hub.with(|o| {
        let mut agent = o.agents[0].clone();
        state(&mut agent, "known-unbound", &[(CONNECTED, "True")]);
        agent
    });
    bench.hub.with(|o| o.unseen_agents = vec![answers]);
    bench.pass().await;
    assert_eq!(bench.times(E::PowerOff), 0);
    assert_eq!(bench.status().last_failure, None, "a live look decides");
}

#[tokio::test]
async fn a_clock_that_jumps_replaces_nobody() {
    let mut bench = registered().await;
    moves_to_buffer(&bench);
    offered_to_nobody(&bench);
    silence(&bench);
    bench.pass().await;
    bench.hub.with(|o| {
        let status = o.child.as_mut().and_then(|c| c.status.as_mut());
        let vm = status.and_then(|s| s.vm.as_mut()).expect("a VM");
        let long_ago = jiff::Timestamp::UNIX_EPOCH;
        vm.agent_lost_since = Some(agent_forge_crds::Time(long_ago));
        o.version += 1;
        let version = (o.version + 100).to_string();
        o.child
            .as_mut()
            .expect("it exists")
            .metadata
            .resource_version = Some(version);
    });
    bench.turn(MINUTE);
    bench.pass().await;
    assert_eq!(bench.status().last_failure, None);
    // A new actor that did not see the loss begin uses the record only.
    bench.restart();
    bench.until(|b| b.status().last_failure.is_some()).await;
}

#[tokio::test]
async fn an_agent_deleted_before_it_served_is_missed_and_its_vm_replaced() {
    let mut bench = registered().await;
    bench.hub.with(|o| o.agents.clear());
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::AgentMissing));
    bench.turn(TIMEOUT + MINUTE);
    bench.until(|b| b.vm().bios_uuid.is_none()).await;
    let failure = bench.status().last_failure.expect("recorded");
    assert_eq!(failure.class.as_deref(), Some("AgentGone"));
}

#[tokio::test]
async fn the_agent_of_a_serving_host_is_missed_and_its_vm_left_alone() {
    for asked in [false, true] {
        let mut bench = on().await;
        bind_agent(&bench);
        bench.pass().await;
        bench.turn(MINUTE);
        bench.pass().await;
        if asked {
            ask(&bench, "1");
            bench.pass().await;
            assert_eq!(bench.waits_on(), Some(Reason::ReplaceRefused));
        }
        bench.hub.with(|o| o.agents.clear());
        for _ in 0..3 {
            bench.turn(TIMEOUT);
            bench.pass().await;
            let why = if asked {
                Reason::ReplaceRefused
            } else {
                Reason::AgentMissing
            };
            assert_eq!(bench.waits_on(), Some(why));
        }
        assert_eq!(bench.vm().reason, Some(Reason::AgentMissing));
        bench.restart();
        bench.turn(TIMEOUT);
        bench.pass().await;
        assert!(!told(&bench).is_empty());
        assert_eq!(bench.status().last_failure, None);
        assert_eq!(bench.times(E::PowerOff), 0);
    }
}

#[tokio::test]
async fn whatever_state_a_free_agent_is_in_a_person_may_have_its_vm_replaced() {
    for word in [
        "known-unbound",
        "insufficient-unbound",
        "discovering-unbound",
    ] {
        let mut bench = registered().await;
        change(&bench, |a| state(a, word, &[]));
        ask(&bench, "2");
        bench.pass().await;
        assert_eq!(bench.status().last_failure, None, "another attempt");
        ask(&bench, "1");
        bench.until(|b| b.vm().bios_uuid.is_none()).await;
        let failure = bench.status().last_failure.expect("recorded");
        assert_eq!(failure.class.as_deref(), Some("Asked"), "{word}");
        assert!(bench.hub.with(|o| o.agents.is_empty()), "{word}");
    }
    // Bound at the last moment: the cache does not show it yet.
    let mut bench = registered().await;
    let bound = bench.hub.with(|o| {
        let mut agent = o.agents[0].clone();
        claim(&mut agent, &testing::agent_machine("a"));
        agent
    });
    bench.hub.with(|o| o.unseen_agents = vec![bound]);
    ask(&bench, "1");
    bench.pass().await;
    assert_eq!(bench.waits_on(), Some(Reason::ReplaceRefused));
    assert_eq!(bench.status().last_failure, None);
}

#[tokio::test]
async fn validations_that_fail_for_long_are_named_and_nothing_is_replaced() {
    let mut bench = registered().await;
    let failed_at = bench.context.clock.wall();
    change(&bench, |a| {
        state(a, "insufficient-unbound", &[(VALIDATED, "False")]);
        let status = a.status.as_mut().expect("status");
        let row = status.conditions.iter_mut().find(|c| c.type_ == VALIDATED);
        let row = row.expect("it is there");
        row.message = Some("The agent's validations are failing: too little memory".to_owned());
        row.last_transition_time = Some(agent_forge_crds::Time(failed_at));
    });
    let again = bench.pass().await.again.expect("it looks again");
    assert_eq!(bench.waits_on(), None, "it may pass");
    assert!(again <= 6 * MINUTE, "{again:?}");
    bench.clock.jump(60 * MINUTE);
    bench.pass().await;
    assert_eq!(bench.waits_on(), None, "only the operator's clock jumped");
    bench.turn(6 * MINUTE);
    bench.pass().await;
    let row = bench.status().waiting_on.remove(0);
    assert_eq!(row.reason, Reason::AgentValidationsFailing);
    let says = |word| row.message.contains(word);
    assert!(
        says("insufficient-unbound") && says("too little memory"),
        "{row:?}"
    );
    bench.turn(4 * TIMEOUT);
    bench.pass().await;
    assert_eq!(bench.status().last_failure, None);
}

#[tokio::test]
async fn a_guest_that_dies_after_binding_is_named_and_left_to_its_machine() {
    for word in ["disconnected", "binding"] {
        let mut bench = on().await;
        bind_agent(&bench);
        let began = bench.context.clock.wall();
        change(&bench, |a| {
            let bound = if word == "binding" { "False" } else { "True" };
            state(a, word, &[("Bound", bound)]);
            if word == "disconnected" {
                state(a, word, &[(CONNECTED, "False")]);
            }
            let status = a.status.as_mut().expect("status");
            for row in &mut status.conditions {
                row.last_transition_time = Some(agent_forge_crds::Time(began));
            }
        });
        for later in [MINUTE, 11 * MINUTE] {
            bench.pass().await;
            bench.turn(later);
        }
        bench.pass().await;
        assert_eq!(bench.waits_on(), Some(Reason::AgentStuck), "{word}");
        bench.turn(4 * TIMEOUT);
        bench.pass().await;
        assert_eq!(bench.times(E::PowerOff), 0, "{word}");
        assert!(told(&bench).iter().all(|n| n.contains(word)), "{word}");
    }
}

/// Its condition `Bound` is False since it registered, and keeps that time while its state becomes `binding`.
#[tokio::test]
async fn a_host_that_waited_for_long_is_not_stuck_when_it_is_claimed() {
    let mut bench = registered().await;
    let began = bench.context.clock.wall();
    bench.turn(11 * MINUTE);
    bench.pass().await;
    bind_agent(&bench);
    change(&bench, |a| {
        state(a, "binding", &[("Bound", "False")]);
        let conditions = a.status.as_mut().expect("status").conditions.iter_mut();
        for condition in conditions.filter(|c| c.type_ == "Bound") {
            condition.last_transition_time = Some(agent_forge_crds::Time(began));
        }
    });
    for stuck in [None, None, Some(Reason::AgentStuck)] {
        bench.pass().await;
        assert_eq!(bench.waits_on(), stuck);
        bench.turn(MINUTE);
    }
}

/// The Agent has the labels by which AgentMachines choose it, and its pool keeps giving it those.
#[tokio::test]
async fn the_agent_of_a_vm_that_somebody_destroyed_goes_and_another_vm_is_made() {
    let mut bench = registered().await;
    change(&bench, |agent| {
        let pool = testing::pool("p");
        agent.labels_mut().extend(belonging::base_labels(&pool));
        agent.spec.approved = true;
    });
    bench.site.with(|i| i.vms.clear());
    bench.restart();
    bench.doubts.send_modify(|all| {
        all.insert("vc.example".to_owned(), ["vm-1".to_owned()].into());
    });
    bench.until(|b| b.vm().attempt == Some(2)).await;
    assert_eq!(bench.hub.with(|o| o.agents.len()), 0);
    assert_eq!(
        bench.times(E::FenceAgent),
        0,
        "its pool would prepare it again"
    );
    bench.until(Bench::is_on).await;
}
