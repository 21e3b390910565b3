//! Whose value stands at an Agent, and that two writers come to rest.

use std::sync::Arc;

use agent_forge_crds::external::agent::{CLUSTER_ORDER_LABEL, INHERITED_NODE_LABELS_ANNOTATION};

use super::*;
use crate::{
    demand::{buffer, prepare},
    domain::managed_vm::ManagedVm,
    testing::{
        POOL, agent_machine, agent_on, buffered, claim, foreign_agent, labels, patch_agent, pool,
        selector, with,
    },
};

fn labelled(node_labels: &[(&str, &str)]) -> VsphereAgentPool {
    with(pool(POOL), |p| {
        p.spec.agent.node_labels = labels(node_labels)
    })
}

/// One pass: what is written, carried out.
fn pass(pool: &VsphereAgentPool, class: Option<&str>, agent: &mut Agent) -> AgentPatch {
    let mut patch = AgentPatch::of(agent);
    apply(pool, class, agent, &mut patch);
    patch_agent(agent, &patch);
    patch
}

fn rests(pool: &VsphereAgentPool, agent: &Agent) -> bool {
    let mut agent = agent.clone();
    pass(pool, None, &mut agent) == AgentPatch::of(&agent)
}

/// What the assisted service does with the labels of an InfraEnv that propagates all of them.
fn service(infra_env: &Labels, agent: &mut Agent) -> bool {
    let before = agent.clone();
    let inherited = |agent: &Agent, key: &str| agent.inherits_node_label(key);
    let mut now = agent.spec.node_labels.clone();
    now.retain(|key, _| infra_env.contains_key(key) || !inherited(&before, key));
    let mut kept = Vec::new();
    for (key, value) in infra_env {
        if inherited(&before, key) || !now.contains_key(key) {
            now.insert(key.clone(), value.clone());
            kept.push(key.clone());
        }
    }
    agent.spec.node_labels = now;
    let key = INHERITED_NODE_LABELS_ANNOTATION.to_owned();
    if kept.is_empty() {
        agent.annotations_mut().remove(&key);
    } else {
        agent.annotations_mut().insert(key, kept.join(","));
    }
    *agent != before
}

#[test]
fn labels_come_with_a_record_and_go_by_it() {
    let mut agent = foreign_agent("a");
    agent.spec.node_labels = labels(&[("theirs", "1"), ("same", "1"), ("rack", "9")]);
    let pool = labelled(&[("rack", "7"), ("tier", "gold"), ("same", "1")]);
    let pool = with(pool, |p| p.spec.agent.platform_labels = Some(true));
    let first = pass(&pool, None, &mut agent);
    let platform = ("node.openshift.io/platform-type", "vsphere");
    let set: Vec<_> = first.node_labels.keys().map(String::as_str).collect();
    assert_eq!(set, [platform.0, "tier"], "what others set stays");
    let all = [("rack", "9"), ("same", "1"), ("theirs", "1")];
    let ours = [("tier", "gold"), platform];
    assert_eq!(
        agent.spec.node_labels,
        labels(&[&all[..], &ours[..]].concat())
    );
    assert!(rests(&pool, &agent));
    // A new value follows, and a key that is no longer asked for goes.
    let changed = labelled(&[("tier", "silver")]);
    pass(&changed, None, &mut agent);
    let now = [&all[..], &[("tier", "silver")]].concat();
    assert_eq!(agent.spec.node_labels, labels(&now));
    // A person changes the value: then it is theirs.
    agent.spec.node_labels.insert("tier".into(), "mine".into());
    pass(&labelled(&[]), None, &mut agent);
    let now = [&all[..], &[("tier", "mine")]].concat();
    assert_eq!(agent.spec.node_labels, labels(&now));
    assert!(agent.annotations().is_empty(), "nothing is on record");
    assert!(rests(&labelled(&[]), &agent));
}

#[test]
fn one_that_nobody_can_read_the_record_of_is_of_others() {
    let pool = labelled(&[("tier", "gold")]);
    let mut agent = foreign_agent("a");
    pass(&pool, None, &mut agent);
    agent
        .annotations_mut()
        .insert(APPLIED_ANNOTATION.to_owned(), "{".to_owned());
    let nothing = pass(&labelled(&[]), None, &mut agent);
    assert_eq!(nothing.node_labels, BTreeMap::new());
    assert_eq!(agent.spec.node_labels, labels(&[("tier", "gold")]));
}

#[test]
fn the_platform_is_what_the_pool_says_of_it() {
    let key = "node.openshift.io/platform-type";
    let pool = with(labelled(&[(key, "other")]), |p| {
        p.spec.agent.platform_labels = Some(true);
    });
    assert_eq!(belonging::node_labels(&pool), labels(&[(key, "other")]));
    assert_eq!(belonging::node_labels(&labelled(&[])), labels(&[]));
}

#[test]
fn a_label_that_no_node_may_get_is_refused_and_given_to_none() {
    let long = "a".repeat(64);
    let long_domain = format!("{}a/x", "a.".repeat(127));
    for (key, value, refused) in [
        ("example.com/rack", "7", false),
        ("rack", "", false),
        ("my-node-role.kubernetes.io/a", "b", false),
        ("node-role.kubernetes.io/infra", "", true),
        ("team.node-restriction.kubernetes.io/a", "b", true),
        ("not a key", "b", true),
        ("a/b/c", "b", true),
        ("Example.com/a", "b", true),
        ("-a.com/a", "b", true),
        ("example.com/", "b", true),
        ("/a", "b", true),
        ("", "b", true),
        (&long, "b", true),
        (&long_domain, "b", true),
        ("rack", "not a value", true),
        ("rack", &long, true),
    ] {
        let pool = labelled(&[(key, value), ("good", "1")]);
        let sentence = belonging::refused_label(&pool);
        assert_eq!(sentence.is_some(), refused, "{key}={value}");
        assert!(sentence.is_none_or(|s| s.contains(&format!("spec.agent.nodeLabels: {key:?}"))));
        let given = belonging::node_labels(&pool);
        assert_eq!(given.contains_key(key), !refused, "{key}={value}");
        assert!(given.contains_key("good"));
    }
}

/// Every case of one key: what is asked, what is there, what is on record, and whether the service inherits it.
#[test]
fn in_every_case_the_second_pass_writes_nothing() {
    let asked = [None, Some("1"), Some("2")];
    let there = [None, Some("1"), Some("2"), Some("3")];
    let mut all = Vec::new();
    for wanted in asked {
        for now in there {
            for set in asked {
                all.extend([false, true].map(|inherited| (wanted, now, set, inherited)));
            }
        }
    }
    assert_eq!(all.len(), 72);
    let of = |value: Option<&str>| labels(&value.map(|v| ("k", v)).into_iter().collect::<Vec<_>>());
    for case @ (wanted, now, set, inherited) in all {
        let pool = with(pool(POOL), |p| p.spec.agent.node_labels = of(wanted));
        let mut agent = foreign_agent("a");
        agent.spec.node_labels = of(now);
        if let Some(set) = set {
            let record = format!(r#"{{"nodeLabels":{{"k":"{set}"}}}}"#);
            agent
                .annotations_mut()
                .insert(APPLIED_ANNOTATION.to_owned(), record);
        }
        if inherited {
            let key = INHERITED_NODE_LABELS_ANNOTATION.to_owned();
            agent.annotations_mut().insert(key, "x, k".to_owned());
        }
        pass(&pool, None, &mut agent);
        let ours = !inherited && (now.is_none() || now == set);
        let expected = match (ours, wanted) {
            (true, Some(_)) => wanted,
            // Nobody asks for it any more.
            (true, None) => None,
            (false, _) => now,
        };
        assert_eq!(agent.spec.node_labels, of(expected), "{case:?}");
        assert!(rests(&pool, &agent), "{case:?}");
    }
}

/// The service writes what the InfraEnv says again and again, before the operator or after it.
#[test]
fn the_operator_and_the_service_come_to_rest() {
    let infra_env = labels(&[("site", "zurich"), ("rack", "9"), ("tier", "silver")]);
    let pool = labelled(&[("rack", "7"), ("tier", "gold"), ("own", "1")]);
    for service_first in [true, false] {
        let mut agent = foreign_agent("a");
        agent.spec.node_labels = labels(&[("tier", "theirs")]);
        let mut writes = 0;
        for _ in 0..10 {
            let before = writes;
            let turns = if service_first { [0, 1] } else { [1, 0] };
            for turn in turns {
                if turn == 0 {
                    writes += u32::from(service(&infra_env, &mut agent));
                } else {
                    let patch = pass(&pool, None, &mut agent);
                    writes += u32::from(patch != AgentPatch::of(&agent));
                }
            }
            assert!(before == 0 || before == writes, "each writes once");
        }
        let rack = if service_first { "9" } else { "7" };
        let now = labels(&[
            ("site", "zurich"),
            ("rack", rack),
            ("own", "1"),
            ("tier", "theirs"),
        ]);
        assert_eq!(agent.spec.node_labels, now);
        // A new value in the InfraEnv reaches what it passed on, and nothing else.
        let moved = labels(&[("site", "bern"), ("rack", "11")]);
        service(&moved, &mut agent);
        assert!(rests(&pool, &agent));
        let rack = if service_first { "11" } else { "7" };
        assert_eq!(agent.spec.node_labels["rack"], rack);
        assert_eq!(agent.spec.node_labels["site"], "bern");
    }
}

/// A claim and a place in the buffer both give the labels. A host of another pool loses those of that pool.
#[test]
fn each_way_to_a_machine_gives_them() {
    let am = agent_machine("a");
    let child = buffered("b");
    let mut agent = agent_on(&child);
    let child = ManagedVm::read(Arc::new(child));
    let wait = |pool: &VsphereAgentPool, agent: &Agent| {
        buffer::wait(pool, &child, &[Arc::new(am.clone())], false, true, agent)
    };
    let mine = labelled(&[("tier", "gold")]);
    let patch = wait(&mine, &agent).expect("a patch");
    assert!(!buffer::takes_away(&patch));
    patch_agent(&mut agent, &patch);
    assert_eq!(agent.spec.node_labels, labels(&[("tier", "gold")]));
    assert_eq!(wait(&mine, &agent), None);
    let other = labelled(&[("rack", "7")]);
    let patch = prepare::prepare(&other, &am, "a", &agent);
    let patch = patch.expect("satisfiable").expect("a patch");
    patch_agent(&mut agent, &patch);
    assert_eq!(agent.spec.node_labels, labels(&[("rack", "7")]));
    assert_eq!(prepare::prepare(&other, &am, "a", &agent), Ok(None));
}

/// What is different about an Agent and its pool.
type Changes<'a> = &'a dyn Fn(&mut Agent, &mut VsphereAgentPool);

const CLASS: Option<&str> = Some("large");

/// A host that is ready in the buffer of a pool with a class.
fn offered() -> (VsphereAgentPool, ManagedVm, Agent) {
    let pool = with(pool(POOL), |p| {
        p.spec.agent.resource_class = CLASS.map(str::to_owned);
    });
    let child = buffered("b");
    let agent = with(agent_on(&child), |a| {
        a.spec.approved = true;
        a.spec.hostname = Some("b-1".to_owned());
        a.spec.role = "worker".to_owned();
    });
    (pool, ManagedVm::read(Arc::new(child)), agent)
}

#[test]
fn osac_finds_a_host_only_while_it_is_ready_and_free() {
    let (pool, child, mut agent) = offered();
    let wait = |pool: &VsphereAgentPool, proven: bool, agent: &Agent| {
        buffer::wait(pool, &child, &[], false, proven, agent)
    };
    assert_eq!(wait(&pool, false, &agent), None, "nothing proves the VM");
    let patch = wait(&pool, true, &agent).expect("a patch");
    assert!(!buffer::takes_away(&patch), "it needs the proof");
    patch_agent(&mut agent, &patch);
    assert_eq!(agent.resource_class(), CLASS);
    assert_eq!(wait(&pool, true, &agent), None);
    let cases: [(&str, bool, Changes<'_>); 6] = [
        ("unproven", false, &|_, _| {}),
        ("unapproved", true, &|a, p| {
            a.spec.approved = false;
            p.spec.agent.approve = Some(false);
        }),
        ("another name", true, &|a, _| a.spec.hostname = None),
        ("another label", true, &|_, p| {
            p.spec.agent.node_labels = labels(&[("tier", "gold")]);
        }),
        ("disconnected", true, &|a, _| {
            let status = a.status.as_mut().expect("a status");
            status.conditions.retain(|c| c.type_ != "Connected");
        }),
        ("no class", true, &|_, p| p.spec.agent.resource_class = None),
    ];
    for (case, proven, change) in cases {
        let (mut agent, mut pool) = (agent.clone(), pool.clone());
        change(&mut agent, &mut pool);
        let patch = wait(&pool, proven, &agent).expect(case);
        assert!(buffer::takes_away(&patch), "{case}");
        assert!(
            patch.node_labels.is_empty(),
            "that asks for no proof: {case}"
        );
        patch_agent(&mut agent, &patch);
        assert_eq!(agent.resource_class(), None, "{case}");
        assert!(agent.annotations().is_empty(), "{case}");
    }
}

#[test]
fn whatever_else_becomes_of_it_osac_finds_it_no_more() {
    let (pool, child, mut agent) = offered();
    let patch = buffer::wait(&pool, &child, &[], false, true, &agent);
    patch_agent(&mut agent, &patch.expect("a patch"));
    let am = agent_machine("a");
    let (none, nobody) = (labels(&[]), []);
    let prepared = prepare::prepare(&pool, &am, "a", &agent).expect("satisfiable");
    let claimed = with(agent.clone(), |a| claim(a, &am));
    for (case, patch) in [
        ("prepared", prepared),
        ("fenced", prepare::fence(&none, &nobody, false, &agent)),
        ("sealed", prepare::seal(&none, &nobody, true, &agent)),
        ("claimed", withdrawn(&claimed)),
    ] {
        let mut agent = agent.clone();
        patch_agent(&mut agent, &patch.expect(case));
        assert_eq!(agent.resource_class(), None, "{case}");
        assert_eq!(withdrawn(&agent), None, "{case}");
    }
    let alone = withdrawn(&claimed).expect("a patch");
    assert!(withdraws_only(&alone));
    let more = with(alone, |p| drop(p.labels.insert("customer".into(), None)));
    assert!(!withdraws_only(&more), "a Machine may choose by that");
    // OSAC counts the Agents of an order by both labels, and its NodePool chooses by both.
    let order = |a: &mut Agent| {
        a.labels_mut()
            .insert(CLUSTER_ORDER_LABEL.to_owned(), "order".to_owned());
    };
    assert_eq!(withdrawn(&with(claimed, order)), None);
}

#[test]
fn the_class_of_a_person_is_theirs() {
    let (pool, child, agent) = offered();
    let own = |a: &mut Agent| {
        a.labels_mut()
            .insert(RESOURCE_CLASS_LABEL.to_owned(), "small".to_owned());
    };
    let agent = with(agent, own);
    assert_eq!(
        buffer::wait(&pool, &child, &[], false, true, &agent),
        None,
        "it stays"
    );
    assert_eq!(
        (class_of_people(&agent), withdrawn(&agent)),
        (Some("small"), None)
    );
    let mut ours = with(agent, |a| drop(a.labels_mut().remove(RESOURCE_CLASS_LABEL)));
    let patch = buffer::wait(&pool, &child, &[], false, true, &ours);
    patch_agent(&mut ours, &patch.expect("a patch"));
    assert_eq!(class_of_people(&ours), None);
}

/// The provider could take it without an order. Class and approval would come and go in turn.
#[test]
fn while_a_node_pool_chooses_by_the_class_alone_nothing_is_offered() {
    let (pool, child, mut agent) = offered();
    let any = with(agent_machine("c"), |am| {
        let by_class = [(RESOURCE_CLASS_LABEL, "large")];
        am.spec.agent_label_selector = Some(selector(&by_class, &[]));
    });
    let choosers = [Arc::new(any)];
    let wait = |agent: &Agent| buffer::wait(&pool, &child, &choosers, false, true, agent);
    let mut writes = 0;
    while let Some(patch) = wait(&agent) {
        patch_agent(&mut agent, &patch);
        writes += 1;
        assert!(writes < 3, "it comes to rest");
    }
    assert_eq!((agent.spec.approved, agent.resource_class()), (false, None));
}
