//! Nodes, Agents and VMs in each constellation, and what is said of them.

use super::*;

const NOW: i64 = 1_700_000_000;

fn at(seconds_ago: i64) -> Timestamp {
    Timestamp::from_second(NOW - seconds_ago).expect("in range")
}

fn uuid(n: u8) -> BiosUuid {
    let text = format!("423e36c8-723d-2b24-8590-0eb1d9180a{n:02x}");
    BiosUuid::parse(&text).expect("a uuid")
}

/// The name of the Agent on that VM: its uuid as the guest sees it.
fn agent(n: u8) -> String {
    uuid(n).swapped().to_string()
}

fn vm(n: u8) -> HostVm {
    HostVm {
        name: format!("vm-{n}"),
        uuid: uuid(n),
        judged: true,
        gone: false,
        agent: Some(agent(n)),
        installed: Some(at(3600)),
        hardware_version: Some(LOWEST_HARDWARE_VERSION),
    }
}

fn node(n: u8) -> NodeFacts {
    NodeFacts {
        name: format!("node-{n}"),
        provider_id: Some(format!("agent://{}", agent(n))),
        system_uuid: Some(uuid(n).swapped().to_string()),
        ..NodeFacts::default()
    }
}

fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}

fn known(vms: &[HostVm]) -> Known {
    let agents = vms.iter().map(|vm| {
        let name = vm.agent.clone().expect("an Agent");
        (name, ShownMachine::Vm(vm.uuid))
    });
    Known {
        agents: agents.collect(),
        vms: vms.to_vec(),
    }
}

fn judged(nodes: &[NodeFacts], known: &Known) -> Judgement {
    judge(nodes, known, at(0))
}

/// Kind, Node and VM of each finding.
fn rows(judged: &Judgement) -> Vec<(&str, Option<&str>, Option<&str>)> {
    let all = judged.status.findings.iter();
    all.map(|f| (f.kind.as_str(), f.node.as_deref(), f.vm.as_deref()))
        .collect()
}

fn classes(judged: &Judgement) -> [i32; 4] {
    let s = &judged.status;
    [s.ours, s.foreign, s.ignored, s.unknown]
}

fn metal(n: u8) -> NodeFacts {
    with(node(n), |node| {
        node.system_uuid = Some("4c4c4544-0042-3510-8053-b4c04f4a4231".to_owned());
    })
}

#[test]
fn four_kinds_of_nodes_are_told_apart_and_storage_checks_two_of_them() {
    let ours = with(node(1), |n| n.platform_type = Some("vsphere".to_owned()));
    let foreign = NodeFacts {
        name: "foreign".to_owned(),
        provider_id: Some(format!("vsphere://{}", uuid(9))),
        platform_type: Some("vsphere".to_owned()),
        instance_type: Some("vsphere-vm.cpu-4.mem-16gb.os-rhel".to_owned()),
        ..NodeFacts::default()
    };
    let other = NodeFacts {
        name: "other".to_owned(),
        provider_id: Some("metal3://x".to_owned()),
        ..NodeFacts::default()
    };
    let mut known = known(&[vm(1)]);
    known.agents.insert(agent(7), ShownMachine::Other);
    let judged = judged(&[ours, foreign, metal(7), other], &known);
    assert_eq!(classes(&judged), [1, 1, 2, 0]);
    assert_eq!(rows(&judged), []);
    let storage = &judged.status.storage;
    assert_eq!((storage.by_label, storage.by_provider_id), (2, 1));
    assert_eq!((storage.by_both_signs, storage.by_one_sign), (1, 0));
}

#[test]
fn a_bare_metal_node_is_never_a_finding() {
    let recorded = [vm(1)];
    let mut with_agent = known(&recorded);
    with_agent.agents.insert(agent(7), ShownMachine::Other);
    let lies = with(metal(7), |n| n.system_uuid = node(1).system_uuid);
    for (so, node, known) in [
        ("as it is", metal(7), &with_agent),
        ("it shows the UUID of a VM", lies, &with_agent),
        ("its Agent is gone", metal(8), &known(&recorded)),
    ] {
        let judged = judged(&[super::tests::node(1), node], known);
        assert_eq!(rows(&judged), [], "{so}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let gone = |n| with(vm(n), |v| v.gone = true);
    let no_agent = |n: u8| with(known(&[vm(n)]), |k| k.agents.clear());
    let moved = with(known(&[vm(1)]), |k| {
        k.agents.insert(agent(1), ShownMachine::Vm(uuid(9)));
    });
    let (one, two) = (Some("node-1"), Some("vm-1"));
    for (so, nodes, known, wanted) in [
        ("all fits", vec![node(1)], known(&[vm(1)]), vec![]),
        (
            "the VM was destroyed",
            vec![node(1)],
            known(&[gone(1)]),
            vec![(NODE_WITHOUT_VM, one, two)],
        ),
        (
            "the Agent was deleted",
            vec![node(1)],
            no_agent(1),
            vec![(NODE_WITHOUT_AGENT, one, two)],
        ),
        (
            "the Agent was deleted, and only the Node knows of vSphere",
            vec![with(metal(5), |n| {
                n.platform_type = Some("vsphere".to_owned())
            })],
            Known::default(),
            vec![(NODE_WITHOUT_AGENT, Some("node-5"), None)],
        ),
        (
            "no Node came",
            vec![],
            known(&[vm(1)]),
            vec![(VM_WITHOUT_NODE, None, two)],
        ),
        (
            "two Nodes",
            vec![node(1), with(node(1), |n| n.name = "node-2".to_owned())],
            known(&[vm(1)]),
            vec![(TWO_NODES, one, two)],
        ),
        (
            "the guest shows another UUID",
            vec![with(node(1), |n| n.system_uuid = Some(uuid(2).to_string()))],
            known(&[vm(1)]),
            vec![(UUID_MISMATCH, one, two)],
        ),
        (
            "the VM has an old hardware version",
            vec![node(1)],
            known(&[with(vm(1), |v| v.hardware_version = Some(14))]),
            vec![(OLD_HARDWARE_VERSION, one, two)],
        ),
        (
            "its hardware version is unknown",
            vec![node(1)],
            known(&[with(vm(1), |v| v.hardware_version = None)]),
            vec![],
        ),
        (
            "it was old, and is gone",
            vec![node(1)],
            known(&[with(gone(1), |v| v.hardware_version = Some(14))]),
            vec![(NODE_WITHOUT_VM, one, two)],
        ),
        (
            "the Agent shows another VM",
            vec![node(1)],
            moved,
            vec![(UUID_MISMATCH, one, two), (VM_WITHOUT_NODE, None, two)],
        ),
    ] {
        let judged = judged(&nodes, &known);
        assert_eq!(rows(&judged), wanted, "{so}");
        let told: i64 = judged.kinds.values().sum();
        assert_eq!(told, i64::try_from(wanted.len()).expect("few"), "{so}");
        let few = judged.status.findings.iter().all(|f| f.message.len() < 300);
        assert!(few, "{so}");
    }
}

#[test]
fn a_vm_has_twenty_minutes_until_its_node_is_missed() {
    for (so, seconds, missed) in [("just before", 1199, false), ("then", 1200, true)] {
        let known = known(&[with(vm(1), |v| v.installed = Some(at(seconds)))]);
        assert_eq!(!rows(&judged(&[], &known)).is_empty(), missed, "{so}");
    }
    let installs = with(vm(1), |v| v.installed = None);
    assert_eq!(rows(&judged(&[], &known(&[installs]))), []);
}

#[test]
fn what_goes_or_is_of_another_pool_is_no_finding() {
    let not_judged = |gone| {
        with(vm(1), |v| {
            v.judged = false;
            v.gone = gone;
        })
    };
    let twice = [node(1), with(node(1), |n| n.name = "node-2".to_owned())];
    assert_eq!(rows(&judged(&twice, &known(&[not_judged(true)]))), []);
    assert_eq!(rows(&judged(&[], &known(&[not_judged(false)]))), []);
    let leaves = with(node(1), |n| n.deleting = true);
    let destroyed = with(vm(1), |v| v.gone = true);
    assert_eq!(
        rows(&judged(std::slice::from_ref(&leaves), &known(&[destroyed]))),
        []
    );
    let replaced = [leaves, with(node(1), |n| n.name = "node-2".to_owned())];
    assert_eq!(rows(&judged(&replaced, &known(&[vm(1)]))), []);
}

#[test]
fn without_proof_a_node_is_unknown_and_its_vm_is_not_missed() {
    let unread = with(known(&[vm(1)]), |k| {
        k.agents.insert(agent(1), ShownMachine::Unknown);
    });
    let new = with(node(1), |n| n.provider_id = None);
    let one_sign = with(node(3), |n| {
        n.provider_id = Some(format!("vsphere://{}", uuid(3)));
    });
    for (so, node, known, wanted) in [
        ("no inventory", node(1), unread, [0, 0, 0, 1]),
        ("no provider id yet", new, known(&[vm(1)]), [0, 0, 0, 1]),
        ("one sign", one_sign, Known::default(), [0, 0, 0, 1]),
        (
            "a provider id of vSphere on a VM of ours",
            with(node(1), |n| {
                n.provider_id = Some(format!("vsphere://{}", uuid(1)))
            }),
            known(&[vm(1)]),
            [1, 0, 0, 0],
        ),
        (
            "an Agent on a VM that is not ours",
            node(4),
            with(Known::default(), |k| {
                k.agents.insert(agent(4), ShownMachine::Vm(uuid(4)));
            }),
            [0, 1, 0, 0],
        ),
    ] {
        let judged = judged(&[node], &known);
        assert_eq!(classes(&judged), wanted, "{so}");
        assert_eq!(rows(&judged), [], "{so}");
    }
}

#[test]
fn many_findings_are_counted_and_the_first_are_listed() {
    let gone: Vec<HostVm> = (0..40).map(|n| with(vm(n), |v| v.gone = true)).collect();
    let nodes: Vec<NodeFacts> = (0..40).map(node).collect();
    let judged = judged(&nodes, &known(&gone));
    assert_eq!(judged.status.findings.len(), MAX_NODE_FINDINGS);
    assert_eq!(judged.status.finding_count, 40);
    assert_eq!(judged.kinds[NODE_WITHOUT_VM], 40);
}
