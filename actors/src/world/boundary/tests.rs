//! Which namespaces allow which pools, and what a refused pool still does.

use std::sync::Arc;

use agent_forge_crds::{
    conditions::{self, Reason, find_condition},
    external::{agent::Agent, agent_machine::NODE_POOL_ANNOTATION},
    pool::VsphereAgentPool,
};
use kube::ResourceExt;

use super::Grants;
use crate::{
    domain::names::ObjectKey,
    iso::of_pool::NoSource,
    pool::{
        Memory, observe,
        observed::Observed,
        outcome::Outcome,
        plan::{Action, Plan, plan},
        status,
    },
    testing::{
        CONTROL_PLANE, NAMESPACE, POOL, World, agent_machine, agent_on, child_with_vm, delete,
        foreign_agent, labels, pool, with,
    },
    vm::testing::{Turned, hub::Hub},
    world::classify::{DemandReason, DemandState},
};

const ATTACKER: &str = "attacker";

fn foreign() -> VsphereAgentPool {
    with(pool(POOL), |p| {
        p.metadata.namespace = Some(ATTACKER.to_owned());
        p.spec.infra_env_ref.namespace = Some(NAMESPACE.to_owned());
    })
}

fn grants(all: &[(&str, &str)]) -> Grants {
    let entry = |(name, grant): &(&str, &str)| ((*name).to_owned(), Some((*grant).to_owned()));
    all.iter().map(entry).collect()
}

/// What a pool of another namespace sees of this world, with these annotations.
fn seen_from_outside(mut world: World, granted: &[(&str, &str)]) -> World {
    world.pool = foreign();
    world.grants = granted
        .iter()
        .map(|(n, g)| ((*n).to_owned(), (*g).to_owned()))
        .collect();
    world
}

fn rendered(s: &Observed, plan: &Plan) -> agent_forge_crds::pool::VsphereAgentPoolStatus {
    let outcome = Outcome {
        no_source: s.refused_source(),
        ..Outcome::default()
    };
    status::render(&Default::default(), s, plan, &outcome)
}

#[test]
fn the_owner_of_the_node_pool_says_who_may_serve_it() {
    let named = |text: Option<&str>| {
        with(agent_machine("a"), |am| {
            am.metadata.annotations = text.map(|text| labels(&[(NODE_POOL_ANNOTATION, text)]));
        })
    };
    let (theirs, mine) = (format!("{NAMESPACE}/{POOL}"), format!("{ATTACKER}/{POOL}"));
    for (text, granted, lacks) in [
        (Some(theirs.as_str()), &[][..], Some(NAMESPACE)),
        (Some(&theirs), &[(NAMESPACE, ATTACKER)], None),
        (Some(&theirs), &[(NAMESPACE, "other")], Some(NAMESPACE)),
        // If a NodePool is named, its grant counts and not the control plane's.
        (Some(&theirs), &[(CONTROL_PLANE, ATTACKER)], Some(NAMESPACE)),
        (None, &[(NAMESPACE, ATTACKER)], Some(CONTROL_PLANE)),
        (None, &[(NAMESPACE, ATTACKER), (CONTROL_PLANE, "*")], None),
        (Some("workers"), &[(NAMESPACE, "*")], Some(CONTROL_PLANE)),
        (Some("/workers"), &[(NAMESPACE, "*")], Some(CONTROL_PLANE)),
        // Its own NodePool, in a control plane elsewhere, and an InfraEnv that is not its own.
        (Some(&mine), &[(NAMESPACE, ATTACKER)], None),
        (Some(&mine), &[], Some(NAMESPACE)),
    ] {
        let lacking = grants(granted).lacking(&foreign(), &named(text));
        assert_eq!(lacking.as_deref(), lacks, "{text:?} {granted:?}");
    }
    assert_eq!(
        grants(&[]).lacking(&pool(POOL), &named(Some(&theirs))),
        None
    );
}

#[test]
fn an_infra_env_is_looked_for_where_the_pool_is_admitted_and_the_rest_is_named() {
    let anywhere = with(foreign(), |p| p.spec.infra_env_ref.namespace = None);
    for (pool, granted, homes, refused) in [
        (foreign(), &[][..], &[][..], &[NAMESPACE][..]),
        (foreign(), &[(NAMESPACE, ATTACKER)], &[NAMESPACE], &[]),
        (anywhere.clone(), &[], &[ATTACKER], &[CONTROL_PLANE]),
        (
            anywhere,
            &[(CONTROL_PLANE, "*")],
            &[ATTACKER, CONTROL_PLANE],
            &[],
        ),
    ] {
        let grants = grants(granted);
        let found: Vec<String> = grants
            .homes(&pool)
            .into_iter()
            .map(|k| k.namespace)
            .collect();
        assert_eq!(found, homes, "{granted:?}");
        assert_eq!(grants.refused_homes(&pool), refused, "{granted:?}");
    }
}

#[test]
fn a_pool_that_is_not_admitted_does_nothing_and_says_so_without_a_word_of_what_is_there() {
    for world in [
        World::waiting(&["secret-name"]),
        World::discovered("secret-name"),
    ] {
        let mut world = seen_from_outside(world, &[]);
        world.children.clear();
        let s = world.observed();
        let plan = plan(&s);
        assert!(
            plan.demands.is_empty() && plan.actions.is_empty(),
            "{plan:?}"
        );
        let status = rendered(&s, &plan);
        for condition in [conditions::AGENT_MACHINE_DEMAND_FOUND, conditions::READY] {
            let said = find_condition(&status.conditions, condition).expect("said");
            assert_eq!(
                Reason::from(said.reason.as_str()),
                Reason::NamespaceNotAllowed,
                "{condition}"
            );
            let named = format!("namespace {NAMESPACE} ");
            assert!(said.message.contains(&named), "{}", said.message);
            assert!(
                said.message
                    .contains("agent-forge.containeroo.ch/allow-pools-from")
            );
        }
        let text = serde_json::to_string(&status).expect("JSON");
        assert!(!text.contains("secret-name"), "{text}");
        assert_eq!(status.agent_machines, Some(0));
    }
}

#[test]
fn a_grant_lets_it_serve_and_its_end_stops_pins_creates_and_approvals() {
    let given = &[(NAMESPACE, ATTACKER)][..];
    let begins = |granted: &[(&str, &str)]| {
        let world = seen_from_outside(World::waiting(&["a"]), granted);
        plan(&world.observed()).actions
    };
    let all = begins(given);
    assert!(all.iter().any(|a| matches!(a, Action::Pin { .. })));
    assert!(all.iter().any(|a| matches!(a, Action::CreateChild { .. })));
    assert!(begins(&[]).is_empty());
    let prepares = |granted: &[(&str, &str)]| {
        let mut world = seen_from_outside(World::discovered("a"), granted);
        let pinned = labels(&[("agent-forge.containeroo.ch/agent-machine", "a")]);
        let selector = world.agent_machines[0].spec.agent_label_selector.as_mut();
        selector.expect("one").match_labels = Some(pinned);
        plan(&world.observed())
    };
    let is_approval = |a: &Action| matches!(a, Action::Prepare { .. });
    assert!(prepares(given).actions.iter().any(is_approval));
    let stopped = prepares(&[]);
    assert!(stopped.actions.is_empty(), "{:?}", stopped.actions);
    // Its own host is still on record, and the pool shows what that host waits for.
    let needs: Vec<_> = stopped.demands.iter().map(|c| &c.state).collect();
    assert!(
        matches!(
            needs[..],
            [DemandState::NotNow {
                why: DemandReason::NamespaceNotAllowed(_),
                ..
            }]
        ),
        "{needs:?}"
    );
    assert_eq!(stopped.waiting[0].reason, Reason::NamespaceNotAllowed);
}

#[test]
fn its_recorded_hosts_are_fenced_and_let_go_without_a_grant() {
    let mut world = seen_from_outside(World::discovered("a"), &[]);
    world.agents[0]
        .labels_mut()
        .insert("customer".to_owned(), "example".to_owned());
    delete(&mut world.agent_machines[0]);
    let fenced = plan(&world.observed()).actions;
    assert!(matches!(fenced[..], [Action::Fence { .. }]), "{fenced:?}");
    world.agents[0].labels_mut().remove("customer");
    world.agent_machines.clear();
    world.machines.clear();
    world.waited = std::time::Duration::from_secs(600);
    let released = plan(&world.observed()).actions;
    assert!(
        matches!(released[..], [Action::Release { .. }]),
        "{released:?}"
    );
}

#[test]
fn a_pool_that_is_not_admitted_is_in_nobodys_way() {
    let needs = |granted: &[(&str, &str)]| {
        let mut world = World::waiting(&["a"]);
        world.other_pools.push(foreign());
        world.grants = seen_from_outside(World::default(), granted).grants;
        let plan = plan(&world.observed());
        plan.demands[0].state.clone()
    };
    assert_eq!(needs(&[]), DemandState::Host);
    let rival = ObjectKey::new(ATTACKER, POOL);
    let conflict = |need| matches!(need, DemandState::NotNow { why: DemandReason::PoolConflict(key), .. } if key == rival);
    assert!(conflict(needs(&[(NAMESPACE, ATTACKER)])));
}

#[test]
fn what_a_pool_gathers_of_a_namespace_that_refuses_it_is_its_own_hosts_alone() {
    // Its name is also the name of one of the pool's AgentMachines.
    let metal = with(foreign_agent("metal"), |a| {
        a.spec.hostname = Some("x".to_owned())
    });
    let own = child_with_vm("a");
    let own = with(own, |c| c.metadata.namespace = Some(ATTACKER.to_owned()));
    let gathered = |granted: &[(&str, &str)]| {
        let hub = Hub::default();
        hub.with(|o| {
            o.pool = Some(foreign());
            o.child = Some(own.clone());
            o.agent_machines = vec![agent_machine("x")];
            o.agents = vec![metal.clone(), agent_on(&own)];
            o.grants = seen_from_outside(World::default(), granted).grants;
        });
        let key = ObjectKey::new(ATTACKER, POOL);
        let clock = Turned::default();
        let mut memory = Memory::default();
        observe::observe(&hub, &clock, &key, &[], &mut memory).expect("a pool")
    };
    let names = |s: &Observed| -> Vec<String> {
        s.agents.iter().map(|a: &Arc<Agent>| a.name_any()).collect()
    };
    let refused = gathered(&[]);
    assert_eq!(names(&refused), [agent_on(&own).name_any()]);
    assert!(refused.infra_env.is_none());
    let named = Some(NoSource::NotAllowed(vec![NAMESPACE.to_owned()]));
    assert_eq!(refused.refused_source(), named);
    let admitted = gathered(&[(NAMESPACE, ATTACKER)]);
    assert_eq!(names(&admitted).len(), 2);
    assert!(admitted.infra_env.is_some() && admitted.refused_source().is_none());
}

#[test]
fn a_namespace_that_is_not_served_admits_nobody_and_is_told_apart() {
    let mut s = seen_from_outside(
        World::waiting(&["a"]),
        &[(NAMESPACE, "*"), (CONTROL_PLANE, "*")],
    )
    .observed();
    assert!(s.refusing().is_empty(), "{:?}", s.refusing());
    s.grants.unserved.insert(CONTROL_PLANE.to_owned());
    // The view shows nothing of a namespace that is not served.
    s.agent_machines.clear();
    assert_eq!(s.refusing(), [CONTROL_PLANE]);
    assert!(!s.grants.admit(CONTROL_PLANE, &s.pool));
    let status = rendered(&s, &plan(&s));
    let demand = find_condition(&status.conditions, conditions::AGENT_MACHINE_DEMAND_FOUND);
    let demand = demand.expect("a condition");
    assert_eq!(
        Reason::from(demand.reason.as_str()),
        Reason::NamespaceNotAllowed
    );
    assert!(
        demand.message.contains("--namespaces"),
        "{}",
        demand.message
    );
    assert!(
        !demand.message.contains("does not admit"),
        "{}",
        demand.message
    );
}
