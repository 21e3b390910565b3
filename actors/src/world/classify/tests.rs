//! Demand as a table: one AgentMachine that needs a host, one changed fact, and the result.

use super::{DemandReason, DemandState, classify};
use crate::{
    domain::names::ObjectKey,
    pool::observed::Observed,
    testing::{
        CONTROL_PLANE, NAMESPACE, World, agent_on, at, child, child_with_vm, claim, condition,
        delete, foreign_agent, machine, pool, reserve, selector,
    },
    world::classify,
};
use agent_forge_crds::{
    external::{agent::Agent, agent_machine::NODE_POOL_ANNOTATION},
    names::AGENT_MACHINE_LABEL,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use std::time::Duration;

fn classified(s: &Observed) -> Vec<classify::Demand> {
    classify(&classify::Facts {
        pool: &s.pool,
        sizes: &s.sizes,
        grants: &s.grants,
        other_pools: &s.other_pools,
        agent_machines: &s.agent_machines,
        machines: &s.machines,
        agents: &s.agents,
        agent_namespace: &s.infra_env_key.namespace,
        foreign: &s.foreign,
        in_flight: &|am| {
            s.children
                .iter()
                .any(|c| c.object.name_any() == am.name_any())
        },
        on_record: &|_| false,
        made_by_others: &s.made_by_others,
        guard: s.guard().as_ref(),
        waiting_since: &s.waiting_since,
        now: s.now,
        wall: s.wall,
    })
}

/// The demand of the only AgentMachine; `None` if it is not this pool's.
fn need(change: impl FnOnce(&mut World)) -> Option<DemandState> {
    let mut world = World::waiting(&["a"]);
    change(&mut world);
    let mut found = classified(&world.observed());
    assert!(found.len() <= 1);
    found.pop().map(|c| c.state)
}

fn quiet(why: DemandReason) -> Option<DemandState> {
    Some(DemandState::NotRequested(why))
}

fn later(why: DemandReason, again: impl Into<Option<u64>>) -> Option<DemandState> {
    let again = again.into().map(Duration::from_millis);
    Some(DemandState::NotNow { why, again })
}

/// A free Agent that fits.
fn free(namespace: &str) -> Agent {
    let mut agent = foreign_agent("metal");
    agent.metadata.namespace = Some(namespace.to_owned());
    agent.spec.approved = true;
    agent
        .labels_mut()
        .insert("customer".to_owned(), "example".to_owned());
    agent
}

fn made_now(w: &mut World, seconds_ago: i64) {
    let age = crate::testing::AGE - seconds_ago;
    w.agent_machines[0].metadata.creation_timestamp = Some(Time(at(age)));
}

#[test]
fn who_waits_and_has_all_it_takes_needs_a_host() {
    assert_eq!(need(|_| {}), Some(DemandState::Host));
}

#[test]
fn who_does_not_ask_is_left_in_peace() {
    assert_eq!(
        need(|w| delete(&mut w.agent_machines[0])),
        quiet(DemandReason::Deleting)
    );
    assert_eq!(
        need(|w| w.machines[0].deleting = true),
        quiet(DemandReason::Deleting)
    );
    assert_eq!(
        need(|w| w.machines.clear()),
        quiet(DemandReason::MachinePending)
    );
    // Another Machine of that name is not its owner.
    assert_eq!(
        need(|w| w.machines[0].uid = "m-other".to_owned()),
        quiet(DemandReason::MachinePending)
    );
    assert_eq!(
        need(|w| w.agent_machines[0].metadata.owner_references = None),
        quiet(DemandReason::MachinePending)
    );
    let paused = |w: &mut World| {
        let annotations = w.agent_machines[0].annotations_mut();
        annotations.insert("cluster.x-k8s.io/paused".to_owned(), "true".to_owned());
    };
    assert_eq!(need(paused), quiet(DemandReason::Paused));
    let says = |reason: &'static str, message: Option<String>| {
        move |w: &mut World| {
            let status = w.agent_machines[0].status.get_or_insert_default();
            let mut said = condition("AgentReserved", "False", reason);
            said.message = message;
            status.conditions = vec![said];
        }
    };
    let other_trouble = says("SomethingElse", None);
    assert_eq!(need(other_trouble), quiet(DemandReason::NotWaiting));
    let failed = |error: &str| quiet(DemandReason::SearchFailed(error.to_owned()));
    assert_eq!(need(says("AgentNotYetFound", None)), failed(""));
    // However long the text of its provider is.
    let long = says("AgentNotYetFound", Some("é".repeat(1000)));
    assert_eq!(need(long), failed(&"é".repeat(300)));
}

#[test]
fn both_generations_of_the_provider_are_heard() {
    for type_ in ["AgentReserved", "Ready"] {
        let says = |w: &mut World| {
            let status = w.agent_machines[0].status.get_or_insert_default();
            status.conditions = vec![condition(type_, "False", "NoSuitableAgents")];
        };
        assert_eq!(need(says), Some(DemandState::Host), "{type_}");
    }
}

#[test]
fn who_has_or_gets_an_agent_is_served_whatever_its_conditions_say() {
    let reserved = |w: &mut World| reserve(&mut w.agent_machines[0], &foreign_agent("x"));
    assert_eq!(need(reserved), Some(DemandState::Served));
    let claimed = |w: &mut World| {
        let mut agent = foreign_agent("x");
        claim(&mut agent, &w.agent_machines[0]);
        w.agents.push(agent);
    };
    assert_eq!(need(claimed), Some(DemandState::Served));
    let claimed_by_a_namesake = |w: &mut World| {
        let mut agent = foreign_agent("x");
        let mut namesake = w.agent_machines[0].clone();
        namesake.metadata.namespace = Some("elsewhere".to_owned());
        claim(&mut agent, &namesake);
        w.agents.push(agent);
    };
    assert_eq!(need(claimed_by_a_namesake), Some(DemandState::Host));
}

#[test]
fn a_vm_on_its_way_answers_the_request() {
    assert_eq!(
        need(|w| w.children.push(child("a"))),
        Some(DemandState::InFlight)
    );
    let discovered = |w: &mut World| {
        let child = child_with_vm("a");
        w.agents.push(agent_on(&child));
        w.children.push(child);
    };
    assert_eq!(need(discovered), Some(DemandState::InFlight));
}

#[test]
fn two_pools_that_claim_the_same_one_both_stand_still() {
    let rival = |w: &mut World| {
        let mut other = pool("other");
        other.spec.node_pool_ref = w.pool.spec.node_pool_ref.clone();
        w.other_pools.push(other);
    };
    let other = ObjectKey::new(NAMESPACE, "other");
    assert_eq!(need(rival), later(DemandReason::PoolConflict(other), None));
    // A pool of another NodePool is no rival.
    assert_eq!(
        need(|w| w.other_pools.push(pool("other"))),
        Some(DemandState::Host)
    );
}

#[test]
fn a_silent_provider_is_waited_for_then_taken_at_its_silence() {
    let silent = |age| {
        move |w: &mut World| {
            w.agent_machines[0].status = None;
            made_now(w, age);
        }
    };
    assert_eq!(
        need(silent(59)),
        later(DemandReason::ConditionsMissing, 1000)
    );
    assert_eq!(need(silent(60)), Some(DemandState::HostUnconfirmed));
    let refused = |age| {
        move |w: &mut World| {
            w.agent_machines[0].metadata.finalizers = None;
            made_now(w, age);
        }
    };
    assert_eq!(
        need(refused(59)),
        later(DemandReason::ProviderNotAccepting, 1000)
    );
    // Later only a change helps.
    assert_eq!(
        need(refused(60)),
        later(DemandReason::ProviderNotAccepting, None)
    );
    // Both at once: no trial VM for an AgentMachine that the provider does not accept.
    let both = |w: &mut World| {
        w.agent_machines[0].status = None;
        w.agent_machines[0].metadata.finalizers = None;
        made_now(w, 61);
    };
    assert_eq!(need(both), later(DemandReason::ProviderNotAccepting, None));
}

#[test]
fn free_agents_are_the_providers_to_bind_for_a_while() {
    let waited = |millis| move |w: &mut World| w.waited = Duration::from_millis(millis);
    assert_eq!(need(waited(499)), later(DemandReason::Debouncing, 1));
    assert_eq!(need(waited(500)), Some(DemandState::Host));
    let beside_free = |millis| {
        move |w: &mut World| {
            w.agents.push(free(NAMESPACE));
            w.waited = Duration::from_millis(millis);
        }
    };
    let fits = DemandReason::FreeAgentFits("metal".to_owned());
    assert_eq!(need(beside_free(59_999)), later(fits, 1));
    assert_eq!(need(beside_free(60_000)), Some(DemandState::Host));
    for (name, agent) in [
        ("of another namespace", free("elsewhere")),
        ("not approved", with(|a| a.spec.approved = false)),
        (
            "without the label",
            with(|a| drop(a.labels_mut().remove("customer"))),
        ),
        (
            "promised to another",
            with(|a| {
                a.labels_mut()
                    .insert(AGENT_MACHINE_LABEL.to_owned(), "b".to_owned());
            }),
        ),
        ("going", with(delete)),
    ] {
        assert_eq!(
            need(|w| w.agents.push(agent)),
            Some(DemandState::Host),
            "{name}"
        );
    }
}

fn with(change: impl FnOnce(&mut Agent)) -> Agent {
    let mut agent = free(NAMESPACE);
    change(&mut agent);
    agent
}

#[test]
fn a_selector_that_contradicts_the_pool_is_said_and_makes_nothing() {
    let contradicts = |w: &mut World| {
        w.agent_machines[0].spec.agent_label_selector =
            Some(selector(&[("customer", "another")], &[]));
    };
    match need(contradicts) {
        Some(DemandState::NotNow {
            why: DemandReason::SelectorUnsatisfiable(why),
            again: None,
        }) => assert!(why.contains("customer"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_agent_machine_belongs_by_node_pool_and_else_by_what_it_selects() {
    let of = |name: &str| {
        let name = format!("{NAMESPACE}/{name}");
        move |w: &mut World| {
            w.agent_machines[0]
                .annotations_mut()
                .insert(NODE_POOL_ANNOTATION.to_owned(), name);
        }
    };
    assert_eq!(need(of("another")), None);
    let elsewhere = |w: &mut World| w.agent_machines[0].metadata.namespace = Some("x".to_owned());
    assert_eq!(need(elsewhere), None);
    let by_labels = |exact: &'static [(&'static str, &'static str)]| {
        move |w: &mut World| {
            w.agent_machines[0].metadata.annotations = None;
            w.agent_machines[0].spec.agent_label_selector = Some(selector(exact, &[]));
            w.grants
                .insert(CONTROL_PLANE.to_owned(), NAMESPACE.to_owned());
        }
    };
    assert_eq!(
        need(by_labels(&[("customer", "example")])),
        Some(DemandState::Host)
    );
    assert_eq!(need(by_labels(&[("customer", "another")])), None);
    assert_eq!(
        need(by_labels(&[("customer", "example"), ("zone", "x")])),
        None
    );
    // A pool cannot offer the pin or labels of the service. These labels alone do not assign an AgentMachine to a pool.
    const SERVICE: (&str, &str) = ("inventory.agent-install.openshift.io/cpu-vendor", "x");
    let beside = by_labels(&[("customer", "example"), (AGENT_MACHINE_LABEL, "a")]);
    assert_eq!(need(beside), Some(DemandState::Host));
    let beside = by_labels(&[("customer", "example"), SERVICE]);
    assert!(need(beside).is_some());
    assert_eq!(need(by_labels(&[SERVICE])), None);
    assert_eq!(need(by_labels(&[(AGENT_MACHINE_LABEL, "a")])), None);
    assert_eq!(need(by_labels(&[])), None);
}

#[test]
fn each_gets_one_claim_in_name_order() {
    let mut world = World::waiting(&["b", "a"]);
    world.machines.push(machine("c"));
    world.agent_machines.sort_by_key(ResourceExt::name_any);
    let names: Vec<String> = classified(&world.observed())
        .iter()
        .map(classify::Demand::name)
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert!(
        world
            .agent_machines
            .iter()
            .all(|am| am.namespace().as_deref() == Some(CONTROL_PLANE))
    );
}
