//! The two patches as tables: what an Agent gets, and what it loses.

use super::{awaits_approval, fence, pin_value, prepare, prepare_as, seal};
use crate::{
    domain::belonging::{base_labels, refused_label},
    ports::cluster::AgentPatch,
    testing::{POOL, World, agent_machine, labels, patch_agent, pool, selector, with},
};
use agent_forge_crds::{
    external::{agent::Agent, agent_machine::AgentMachine},
    names::{AGENT_MACHINE_LABEL, CLEANUP_VM_ANNOTATION, NODE_POOL_ROLE_LABEL},
};
use kube::ResourceExt;
use std::{collections::BTreeMap, sync::Arc};

fn discovered() -> (Agent, AgentMachine) {
    let world = World::discovered("a");
    (world.agents[0].clone(), world.agent_machines[0].clone())
}

fn set(pairs: &[(&str, &str)]) -> BTreeMap<String, Option<String>> {
    labels(pairs)
        .into_iter()
        .map(|(k, v)| (k, Some(v)))
        .collect()
}

#[test]
fn one_patch_gives_all_and_a_second_finds_nothing_to_do() {
    let (mut agent, am) = discovered();
    let pool = pool(POOL);
    let patch = prepare(&pool, &am, "a", &agent)
        .expect("satisfiable")
        .expect("a patch");
    assert_eq!(
        patch.labels,
        set(&[
            ("customer", "example"),
            (AGENT_MACHINE_LABEL, "a"),
            (NODE_POOL_ROLE_LABEL, pool.spec.agent.role()),
        ])
    );
    assert_eq!(patch.approved, Some(true));
    assert_eq!(patch.hostname.as_deref(), Some("a"));
    assert_eq!(patch.role.as_deref(), Some("worker"));
    assert_eq!(Some(&patch.uid), agent.uid().as_ref());
    assert_eq!(
        Some(&patch.resource_version),
        agent.resource_version().as_ref()
    );
    patch_agent(&mut agent, &patch);
    assert_eq!(prepare(&pool, &am, "a", &agent), Ok(None));
    // Only what differs is written again.
    agent.labels_mut().remove("customer");
    let again = prepare(&pool, &am, "a", &agent)
        .expect("satisfiable")
        .expect("a patch");
    assert_eq!(again.labels, set(&[("customer", "example")]));
    assert_eq!(
        (again.approved, again.hostname, again.role),
        (None, None, None)
    );
}

#[test]
fn approval_is_left_to_people_where_the_pool_says_so() {
    let (agent, am) = discovered();
    let by_hand = with(pool(POOL), |p| p.spec.agent.approve = Some(false));
    let patch = prepare(&by_hand, &am, "a", &agent)
        .expect("satisfiable")
        .expect("a patch");
    assert_eq!(patch.approved, None);
    assert!(awaits_approval(&by_hand, &agent));
    let approved = with(agent.clone(), |a| a.spec.approved = true);
    assert!(!awaits_approval(&by_hand, &approved));
    assert!(!awaits_approval(&pool(POOL), &agent));
}

#[test]
fn the_role_is_one_that_the_installer_knows() {
    let (agent, am) = discovered();
    for (role, given) in [
        ("infra", "worker"),
        ("worker", "worker"),
        ("arbiter", "arbiter"),
    ] {
        let pool = with(pool(POOL), |p| p.spec.agent.role = Some(role.to_owned()));
        let patch = prepare(&pool, &am, "a", &agent)
            .expect("satisfiable")
            .expect("a patch");
        assert_eq!(patch.role.as_deref(), Some(given), "{role}");
        // The label has the NodePool's word nevertheless.
        assert_eq!(patch.labels[NODE_POOL_ROLE_LABEL].as_deref(), Some(role));
    }
}

#[test]
fn what_the_selector_asks_for_is_given_or_named() {
    let (agent, mut am) = discovered();
    let pool = pool(POOL);
    am.spec.agent_label_selector = Some(selector(
        &[("rack", "7")],
        &[
            ("tier", "In", &["gold", "silver"]),
            ("gpu", "Exists", &[]),
            ("customer", "NotIn", &["another"]),
        ],
    ));
    let patch = prepare(&pool, &am, "a", &agent)
        .expect("satisfiable")
        .expect("a patch");
    assert_eq!(patch.labels["rack"].as_deref(), Some("7"));
    assert!(matches!(
        patch.labels["tier"].as_deref(),
        Some("gold" | "silver")
    ));
    assert!(patch.labels["gpu"].is_some());
    am.spec.agent_label_selector = Some(selector(&[("customer", "another")], &[]));
    let why = prepare(&pool, &am, "a", &agent).expect_err("contradicts the pool");
    assert!(why.to_string().contains("customer"), "{why}");
}

#[test]
fn another_hostname_changes_nothing_else() {
    let (agent, am) = discovered();
    let plain = prepare(&pool(POOL), &am, "a", &agent)
        .expect("ok")
        .expect("a patch");
    let other = prepare_as(&pool(POOL), &am, "a", "a-2", &agent)
        .expect("ok")
        .expect("a patch");
    assert_eq!(other.hostname.as_deref(), Some("a-2"));
    assert_eq!(
        AgentPatch {
            hostname: plain.hostname.clone(),
            ..other
        },
        plain
    );
}

/// The predecessor withdraws the approval and records which VM it deletes.
#[test]
fn an_agent_that_the_predecessor_let_go_is_fenced_until_it_is_prepared_again() {
    let (mut agent, am) = discovered();
    let pool = pool(POOL);
    let patch = prepare(&pool, &am, "a", &agent).expect("ok").expect("one");
    patch_agent(&mut agent, &patch);
    let choosers = [Arc::new(am.clone())];
    let own = base_labels(&pool);
    agent
        .annotations_mut()
        .insert(CLEANUP_VM_ANNOTATION.to_owned(), "a".to_owned());
    assert!(
        fence(&own, &choosers, false, &agent).is_some(),
        "it is approved"
    );
    agent.spec.approved = false;
    assert_eq!(fence(&own, &choosers, false, &agent), None);
    assert!(
        fence(&own, &choosers, true, &agent).is_some(),
        "the service would approve it again"
    );
    let patch = prepare(&pool, &am, "a", &agent).expect("ok").expect("one");
    patch_agent(&mut agent, &patch);
    assert!(agent.spec.approved && agent.annotations().is_empty());
    assert_eq!(prepare(&pool, &am, "a", &agent), Ok(None));
    // Without that record an unapproved Agent does not count as fenced.
    agent.spec.approved = false;
    assert!(fence(&own, &choosers, false, &agent).is_some());
}

#[test]
fn a_pin_is_the_name_unless_that_is_ambiguous_or_no_label_value() {
    let am = agent_machine("a");
    assert_eq!(pin_value(&am, false), "a");
    assert_eq!(pin_value(&am, true), "a-ama");
    let long = with(agent_machine(&"x".repeat(70)), |am| {
        am.metadata.uid = Some("1234-5678-9abc".to_owned());
    });
    let pin = pin_value(&long, false);
    assert_eq!(pin, format!("{}-12345678", "x".repeat(54)));
    assert!(pin.len() <= 63);
    // A shortened value never ends with a character that a label value may not end with.
    let dotted = with(
        agent_machine(&format!("{}.{}", "y".repeat(53), "z".repeat(20))),
        |am| {
            am.metadata.uid = Some("12345678".to_owned());
        },
    );
    assert_eq!(
        pin_value(&dotted, false),
        format!("{}-12345678", "y".repeat(53))
    );
}

#[test]
fn the_fence_takes_every_label_that_somebody_selects_by_but_the_pin() {
    let (mut agent, mut am) = discovered();
    am.spec.agent_label_selector = Some(selector(
        &[("customer", "example"), (AGENT_MACHINE_LABEL, "a")],
        &[],
    ));
    let pool = pool(POOL);
    let patch = prepare(&pool, &am, "a", &agent)
        .expect("ok")
        .expect("a patch");
    patch_agent(&mut agent, &patch);
    let extra = labels(&[
        ("zone", "north"),
        ("inventory.agent-install.openshift.io/disk", "ssd"),
        ("mine", "1"),
    ]);
    agent.labels_mut().extend(extra);
    let by_zone = with(agent_machine("b"), |am| {
        am.spec.agent_label_selector = Some(selector(&[("zone", "north")], &[]));
    });
    let choosers = [Arc::new(am), Arc::new(by_zone)];
    let fenced = fence(&base_labels(&pool), &choosers, false, &agent).expect("a patch");
    let taken: Vec<&str> = fenced.labels.keys().map(String::as_str).collect();
    assert_eq!(taken, ["customer", NODE_POOL_ROLE_LABEL, "zone"]);
    assert!(fenced.labels.values().all(Option::is_none));
    assert_eq!(
        (
            fenced.approved,
            fenced.hostname.clone(),
            fenced.role.clone()
        ),
        (None, None, None)
    );
    patch_agent(&mut agent, &fenced);
    assert_eq!(
        agent.labels().get(AGENT_MACHINE_LABEL).map(String::as_str),
        Some("a")
    );
    assert_eq!(
        fence(&base_labels(&pool), &choosers, false, &agent),
        None,
        "once is enough"
    );
}

#[test]
fn where_no_label_keeps_somebody_away_the_approval_goes_too() {
    let (mut agent, _) = discovered();
    agent.spec.approved = true;
    for (name, any) in [
        ("no selector", None),
        ("an empty one", Some(selector(&[], &[]))),
        (
            "by what the service wrote",
            Some(selector(
                &[("infraenvs.agent-install.openshift.io", "infra")],
                &[],
            )),
        ),
        (
            "by absence",
            Some(selector(&[], &[("zone", "DoesNotExist", &[])])),
        ),
    ] {
        let chooser = with(agent_machine("b"), |am| am.spec.agent_label_selector = any);
        let choosers = [Arc::new(chooser)];
        let patch = fence(&base_labels(&pool(POOL)), &choosers, false, &agent);
        assert_eq!(patch.and_then(|p| p.approved), Some(false), "{name}");
        // The service would approve it again, and so on for ever.
        let labels = base_labels(&pool(POOL));
        let patch = fence(&labels, &choosers, true, &agent);
        assert_eq!(patch.and_then(|p| p.approved), None, "{name}");
    }
}

#[test]
fn labels_that_a_service_goes_by_are_refused_and_named() {
    use crate::{
        pool::{plan, status},
        testing::World,
    };
    use agent_forge_crds::{
        conditions::{self, Reason, find_condition},
        names::NODE_POOL_LABEL,
    };
    for (key, refused) in [
        ("customer", false),
        ("hypershift.openshift.io/nodepool-role", false),
        (NODE_POOL_LABEL, false),
        ("example.com/agentMachineRef", false),
        ("agentMachineRef", true),
        (
            "agent-install.openshift.io/clusterdeployment-namespace",
            true,
        ),
        ("infraenvs.agent-install.openshift.io", true),
        (
            "inventory.agent-install.openshift.io/cpu-architecture",
            true,
        ),
        ("osac.openshift.io/resource_class", true),
        ("agent-forge.containeroo.ch/agent-machine", true),
        ("agent-forge.containeroo.ch/vsphere-agent-pool", true),
        ("agent-forge.containeroo.ch/anything", true),
    ] {
        let mut world = World::waiting(&["a"]);
        let labels = &mut world.pool.spec.agent.labels;
        labels.insert(key.to_owned(), "example".to_owned());
        let sentence = refused_label(&world.pool);
        assert_eq!(sentence.is_some(), refused, "{key}");
        assert!(sentence.is_none_or(|s| s.contains(key)), "{key}");
        let s = world.observed();
        let plan = plan::plan(&s);
        assert_eq!(plan.actions.is_empty(), refused, "{key}");
        let status = status::render(&Default::default(), &s, &plan, &Default::default());
        let said = find_condition(&status.conditions, conditions::AGENT_MACHINE_DEMAND_FOUND);
        let said = said.filter(|c| c.reason == Reason::InvalidSpec.as_str());
        assert_eq!(said.is_some(), refused, "{key}");
        assert!(said.is_none_or(|c| c.message.contains(key)), "{key}");
    }
}

#[test]
fn an_agent_whose_vm_goes_loses_its_approval_whoever_asks_today() {
    let (mut agent, am) = discovered();
    agent.spec.approved = true;
    let nobodys = [Arc::new(am)];
    let none = labels(&[]);
    let fenced = fence(&none, &nobodys, false, &agent);
    assert_eq!(fenced.and_then(|p| p.approved), None);
    let sealed = seal(&none, &nobodys, false, &agent).expect("a patch");
    assert_eq!(sealed.approved, Some(false));
    // The service would approve it again.
    let again = seal(&none, &nobodys, true, &agent);
    assert_eq!(again.and_then(|p| p.approved), None);
    patch_agent(&mut agent, &sealed);
    assert_eq!(seal(&none, &nobodys, false, &agent), None);
}
