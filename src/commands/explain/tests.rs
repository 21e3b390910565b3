mod next;

use agent_forge_actors::{
    domain::marker::Marker,
    ports::vcenter::{PowerState, VmObservation},
};
use agent_forge_crds::conditions::Reason;
use serde_json::json;

use super::*;
use crate::{
    commands::report::Output,
    machines::{chain::Proof, found::Kind},
    testing::{CHILD_UID, CLUSTER, World, uuid},
};

fn asked(subject: &str) -> ExplainArgs {
    ExplainArgs {
        subject: subject.parse().expect("a subject"),
        asked: Asked {
            place: crate::commands::Place::default(),
            output: Output::Table,
        },
        vcenter: AskVcenter { offline: true },
        console: None,
        trace_url: Some("https://traces.example/trace/{}".to_owned()),
    }
}

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().expect("a time")
}

fn explained(world: &World, subject: &str, live: &Live) -> Explanation {
    let caches = world.caches();
    let asked = asked(subject);
    let found = subject::find(&caches, &asked.subject, None).expect(subject);
    let words = (asked.subject.to_string(), asked.trace_url.as_deref());
    let plan = plan(&caches, &found, &[], now());
    explain(&caches, &found, (live, plan.as_ref()), words, now())
}

fn shown(uid: &str) -> Live {
    Live::Shown(Box::new(VmObservation {
        moref: MoRef::new("VirtualMachine", "vm-42"),
        name: "w-1".to_owned(),
        bios_uuid: Some(uuid()),
        instance_uuid: None,
        folder: None,
        marker: Some(Marker {
            cluster_id: CLUSTER.to_owned(),
            namespace: "demo".to_owned(),
            name: "w-1".to_owned(),
            uid: uid.to_owned(),
            attempt: 1,
        }),
        may_serve: None,
        generation: None,
        disk: None,
        change_version: None,
        marks: Default::default(),
        adopt: None,
        annotation: String::new(),
        power: PowerState::On,
        connection_state: "connected".to_owned(),
        macs: Vec::new(),
        disk_keys: Vec::new(),
        cdroms: Vec::new(),
        boot_order: Vec::new(),
        vm_path: String::new(),
        tools: None,
        guest_address: None,
        hardware: Default::default(),
        guest_host: None,
    }))
}

#[test]
fn each_object_of_a_machine_leads_to_the_whole_chain() {
    let world = World::serving();
    let host = uuid().swapped();
    for subject in [
        "AgentMachine/w-1",
        "machine/w-1",
        "va/w-1",
        "vm/w-1",
        "vm/vm-42",
        &format!("vm/{}", uuid()),
        &format!("Agent/{host}"),
        "node/w-1",
    ] {
        let e = explained(&world, subject, &shown(CHILD_UID));
        let names: Vec<_> = e
            .chain
            .iter()
            .map(|m| m.name.as_deref().unwrap_or("-"))
            .collect();
        let host = format!("demo/{host}");
        let wanted = [
            "demo-demo/w-1",
            "demo-demo/w-1",
            "demo/w-1",
            "w-1",
            &host,
            "w-1",
        ];
        assert_eq!(names, wanted, "{subject}");
        assert_eq!(e.proofs.len(), 8, "{subject}: {:#?}", e.proofs);
        assert!(
            e.proofs.iter().all(|p| p.holds == Some(true)),
            "{subject}: {:#?}",
            e.proofs
        );
        assert_eq!(e.waits, [], "{subject}");
        assert_eq!(e.verdict(), Verdict::Nothing, "{subject}");
        assert_eq!(e.pool.as_deref(), Some("demo/workers"));
        let text = e.text();
        for said in [
            "+90s",
            "poweredOn now; vm-42",
            "ready, by status.ready",
            "https://traces.example/trace/98744f92c8a4463eb1500dd1e087aa09",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }
}

#[test]
fn a_host_in_the_buffer_has_no_agent_machine_yet() {
    let mut world = World::serving();
    world.child["metadata"]["labels"] = json!({"agent-forge.containeroo.ch/created-for": "buffer"});
    world.child["metadata"]["annotations"] = json!({});
    world.agent["metadata"]["labels"] = json!({"infraenvs.agent-install.openshift.io": "infra"});
    world.agent["spec"]["clusterDeploymentName"] = json!(null);
    let text = explained(&world, "va/w-1", &shown(CHILD_UID)).text();
    assert!(
        text.contains("the host waits in the buffer of its pool"),
        "{text}"
    );
}

#[test]
fn what_does_not_belong_together_is_a_finding() {
    type Change = fn(&mut World);
    let table: [(&str, Change, Live, &str); 6] = [
        (
            "the marker is another's",
            |_| {},
            shown("u-other"),
            "VsphereAgent - VM: marker",
        ),
        (
            "vCenter lacks the VM",
            |_| {},
            Live::Absent,
            "VsphereAgent - VM: vCenter has no VM",
        ),
        (
            "another MAC",
            |w| w.child["status"]["vm"]["macAddresses"] = json!(["00:50:56:00:00:99"]),
            Live::NotAsked,
            "VM - Agent: it has no MAC address",
        ),
        (
            "another AgentMachine of that name",
            |w| w.agent_machine["metadata"]["uid"] = json!("u-new"),
            Live::NotAsked,
            "AgentMachine - VsphereAgent: the VsphereAgent is for",
        ),
        (
            "another Machine of that name",
            |w| w.machine.as_mut().expect("one").uid = "u-new".to_owned(),
            Live::NotAsked,
            "AgentMachine - Machine: owner reference",
        ),
        (
            "another provider id",
            |w| w.agent_machine["spec"]["providerID"] = json!("agent://other"),
            Live::NotAsked,
            "Agent - Node: spec.providerID",
        ),
    ];
    for (what, change, live, fact) in table {
        let mut world = World::serving();
        change(&mut world);
        let e = explained(&world, "va/w-1", &live);
        let broken = |p: &&Proof| p.holds == Some(false);
        let text = e.text();
        assert_eq!(e.proofs.iter().filter(broken).count(), 1, "{what}: {text}");
        assert!(text.contains(&format!("NO   {fact}")), "{what}: {text}");
        assert_eq!(e.verdict(), Verdict::Findings, "{what}");
    }
}

/// Each reason that the operator can give is explained: meaning, person, remedy and page.
#[test]
fn every_reason_is_explained_wherever_it_stands() {
    for reason in Reason::ALL {
        let about = reason.about();
        let row = json!([{"subject": "w-1", "reason": reason, "message": "the sentence", "since": "2026-01-01T00:30:00Z"}]);
        let condition = |type_: &str| {
            json!([{"type": type_, "status": "False", "reason": reason, "message": "the sentence",
                "lastTransitionTime": "2026-01-01T00:30:00Z"}])
        };
        let mut of_machine = World::serving();
        of_machine.child["status"]["waitingOn"] = row.clone();
        let mut of_child = World::serving();
        of_child.child["status"]["conditions"] = condition("Ready");
        let mut of_pool = World::serving();
        of_pool.pool["status"]["waitingOn"] = row;
        let mut of_iso = World::waiting();
        of_iso.pool["status"]["conditions"] = condition("ISOReady");
        for (world, subject) in [
            (of_machine, "va/w-1"),
            (of_child, "va/w-1"),
            (of_pool, "va/w-1"),
            (of_iso, "AgentMachine/w-1"),
        ] {
            let e = explained(&world, subject, &Live::NotAsked);
            let text = e.text();
            for said in [
                reason.as_str(),
                about.meaning,
                about.who.words(),
                about.remedy,
                about.section.page(),
                "the sentence",
                "for 30m",
            ] {
                assert!(text.contains(said), "{reason}: {said:?} is missing: {text}");
            }
            assert_eq!(e.verdict(), Verdict::Findings, "{reason}");
        }
    }
}

#[test]
fn an_agent_machine_without_a_vm_says_what_the_operator_would_decide() {
    type Change = fn(&mut World);
    let table: [(&str, Change, &str); 5] = [
        (
            "paused",
            |w| {
                w.agent_machine["metadata"]["annotations"]["cluster.x-k8s.io/paused"] =
                    json!("true")
            },
            "Paused",
        ),
        ("no Machine", |w| w.machine = None, "MachinePending"),
        (
            "no finalizer",
            |w| w.agent_machine["metadata"]["finalizers"] = json!([]),
            "ProviderNotAccepting",
        ),
        (
            "clusterRef",
            |w| w.infra_env["spec"] = json!({"clusterRef": {"name": "c", "namespace": "demo"}}),
            "LateBindingUnavailable",
        ),
        (
            "deleting",
            |w| w.machine.as_mut().expect("one").deleting = true,
            "Deleting",
        ),
    ];
    for (what, change, reason) in table {
        let mut world = World::waiting();
        change(&mut world);
        let e = explained(&world, "agentmachine/w-1", &Live::NotAsked);
        let reasons: Vec<_> = e.waits.iter().map(|w| w.reason.as_str()).collect();
        assert!(reasons.contains(&reason), "{what}: {reasons:?}");
    }
    // Nothing holds it: a VsphereAgent would be made at once.
    let e = explained(&World::waiting(), "agentmachine/w-1", &Live::NotAsked);
    assert_eq!(e.waits, []);
    let mut alone = World::waiting();
    alone.pool["spec"]["nodePoolRef"]["name"] = json!("others");
    let e = explained(&alone, "agentmachine/w-1", &Live::NotAsked);
    assert!(
        e.text().contains("no VsphereAgentPool serves"),
        "{}",
        e.text()
    );
    assert_eq!(e.verdict(), Verdict::Findings);
}

#[test]
fn holds_and_failures_are_told() {
    let mut world = World::serving();
    world.child["metadata"]["annotations"]["delete.check.agent-forge.containeroo.ch/backup"] =
        json!("runs");
    world.child["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:50:00Z");
    world.child["status"]["lastFailure"] = json!({"attempt": 1, "class": "NoGuest", "count": 2});
    let e = explained(&world, "va/w-1", &Live::NotAsked);
    let text = e.text();
    for said in [
        "Vetoed (backup)",
        "the person who set it",
        "it came as far as NoGuest (in a row: 2)",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    world.child["spec"]["poolRef"]["name"] = json!("gone");
    let e = explained(&world, "va/w-1", &Live::NotAsked);
    assert!(
        e.waits.iter().any(|w| w.reason == Reason::PoolNotFound),
        "{:?}",
        e.waits
    );
}

#[test]
fn what_is_not_there_or_not_unique_is_an_error_that_says_what_to_do() {
    let caches = World::serving().caches();
    let error = |subject: &str, namespace| {
        let subject = subject.parse().expect("a subject");
        let found = subject::find(&caches, &subject, namespace);
        found.expect_err("none").to_string()
    };
    assert!(error("va/none", None).contains("no VsphereAgent/none in any namespace"));
    assert!(error("va/w-1", Some("x")).contains("in namespace x"));
    assert!(error("vm/none", None).contains("agent-forge orphans"));
    let mut twice = World::serving();
    let mut second = twice.child.clone();
    second["metadata"]["namespace"] = json!("other");
    twice.child = json!([twice.child, second]);
    let caches = twice.caches();
    let subject = "va/w-1".parse().expect("a subject");
    let said = subject::find(&caches, &subject, None)
        .expect_err("two")
        .to_string();
    assert!(
        said.contains("demo/w-1, other/w-1; add -n NAMESPACE"),
        "{said}"
    );
    assert!(subject::find(&caches, &subject, Some("other")).is_ok());
    for bad in ["w-1", "pod/w-1", "va/", ""] {
        assert!(bad.parse::<Subject>().is_err(), "{bad}");
    }
}

#[test]
fn a_refused_pool_leads_to_nothing_of_others_and_is_named() {
    let mut world = World::serving();
    world.pool["metadata"]["namespace"] = json!("other");
    world.child["metadata"]["namespace"] = json!("other");
    let of_child = |world: &World| {
        let found = subject::find(&world.caches(), &"va/w-1".parse().expect("a subject"), None);
        let found = found.expect("found");
        (found.agent_machine.is_some(), found.machine.is_some())
    };
    assert_eq!(of_child(&world), (true, true));
    world.admits = Some("another");
    assert_eq!(of_child(&world), (false, false));
    // The AgentMachine leads neither to that VsphereAgent nor to its pool. It says who asks for the grant.
    let e = explained(&world, "AgentMachine/w-1", &Live::NotAsked);
    assert_eq!(e.pool, None);
    let child = e.chain.iter().find(|m| m.kind == Kind::VsphereAgent);
    assert_eq!(child.and_then(|m| m.name.as_ref()), None);
    let mut waits = e.waits.iter();
    let wait = waits.find(|w| w.reason == Reason::NamespaceNotAllowed);
    let said = &wait.expect("a wait").message;
    for word in [
        "VsphereAgentPool other/workers",
        "namespace demo does not admit",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(
        !e.notes
            .iter()
            .any(|n| n.contains("no VsphereAgentPool serves")),
        "{:?}",
        e.notes
    );
}

#[test]
fn each_life_of_a_recycled_vm_is_shown_and_a_first_life_is_not() {
    let mut world = World::serving();
    let first = explained(&world, "va/w-1", &Live::NotAsked);
    assert!(!first.text().contains("Lives of the VM"));
    let vm = &mut world.child["status"]["vm"];
    vm["generation"] = json!(2);
    vm["generationSince"] = json!("2026-01-02T00:00:00Z");
    vm["machineRef"] = json!({"name": "m-2"});
    vm["lives"] = json!([{
        "generation": 1, "since": "2026-01-01T00:00:00Z", "until": "2026-01-01T12:00:00Z", "machine": "m-1",
        "hostName": "host-1", "traceID": "0123456789abcdef0123456789abcdef",
    }]);
    let second = explained(&world, "va/w-1", &Live::NotAsked);
    let text = second.text();
    let row = |life: &str| {
        let line = text.lines().find(|l| l.trim_start().starts_with(life));
        let words = line.unwrap_or_default().split_whitespace();
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        row("1 "),
        [
            "1",
            "2026-01-01T00:00:00Z",
            "2026-01-01T12:00:00Z",
            "m-1",
            "host-1",
            "https://traces.example/trace/0123456789abcdef0123456789abcdef"
        ]
    );
    assert_eq!(row("2 ")[..4], ["2", "2026-01-02T00:00:00Z", "now", "m-2"]);
    // The end of the present life is on record, and the next one has not begun.
    world.child["status"]["vm"]["generation"] = json!(null);
    let ends = serde_json::to_value(explained(&world, "va/w-1", &Live::NotAsked)).expect("JSON");
    assert_eq!(ends["lives"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_vm_of_another_pool_is_shown_with_its_origin_until_and_after_its_mark_names_the_new_one() {
    let mut world = World::serving();
    world.child["metadata"]["uid"] = json!("u-taker");
    world.child["status"]["vm"]["takenFrom"] =
        json!({"namespace": "blue", "name": "w-1", "uid": CHILD_UID, "attempt": 1});
    let facts = |world: &World, live: &Live| {
        let e = explained(world, "va/w-1", live);
        let vm = e.chain.iter().find(|m| m.kind == Kind::VM).expect("a VM");
        let between = [Kind::VsphereAgent, Kind::VM];
        let proofs = e.proofs.iter().filter(|p| p.between == between);
        let holds: Vec<_> = proofs.map(|p| p.holds).collect();
        (vm.state.clone(), holds)
    };
    let (state, holds) = facts(&world, &shown(CHILD_UID));
    assert!(
        state.ends_with("; being taken from VsphereAgent blue/w-1"),
        "{state}"
    );
    assert_eq!(holds, [Some(true), None]);
    // Nobody else's mark is accepted.
    let (_, holds) = facts(&world, &shown("u-other"));
    assert_eq!(holds, [Some(true), Some(false)]);
    world.child["status"]["vm"]["takenFrom"]["stamped"] = json!(true);
    let (state, holds) = facts(&world, &shown("u-taker"));
    assert!(
        state.ends_with("; taken from VsphereAgent blue/w-1"),
        "{state}"
    );
    assert_eq!(holds, [Some(true), Some(true)]);
    // Once it is its own, the lender's mark is a contradiction.
    let (_, holds) = facts(&world, &shown(CHILD_UID));
    assert_eq!(holds, [Some(true), Some(false)]);
    // The lender had it from somebody else.
    world.child["status"]["vm"]["takenFrom"]["uid"] = json!("u-lender");
    let (_, holds) = facts(&world, &Live::NotAsked);
    assert_eq!(holds, [None]);
}

#[test]
fn a_pool_is_explained_with_its_conditions_its_waits_and_its_machines() {
    let mut world = World::serving();
    world.pool["status"] = json!({
        "conditions": [{"type": "VsphereReady", "status": "False", "reason": "InvalidCredentials", "message": "refused",
            "lastTransitionTime": "2026-01-01T00:50:00Z"}, {"type": "Ready", "status": "False", "reason": "ISONotReady", "message": "no ISO\nyet",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "waitingOn": [{"subject": "ISO", "reason": "ISOUploading", "message": "40 of 100", "since": "2026-01-01T00:30:00Z"}],
    });
    let caches = world.caches();
    let subject = "vap/workers"
        .parse::<subject::Subject>()
        .expect("a subject");
    let found = subject::find(&caches, &subject, None).expect("the pool");
    let key = ObjectKey::of(found.pool.as_deref().expect("a pool"));
    let explained = pool::explain(&caches, &key, &[], now());
    let text = explained.text();
    for said in [
        "VsphereAgentPool demo/workers\n",
        "ISONotReady         no ISO yet\n",
        "InvalidCredentials (pool: VsphereReady, for 10m)",
        "ISOUploading (ISO, for 30m)",
        "w-1",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert_eq!(explained.verdict(), Verdict::Findings);
    assert!(!text.contains("Hosts of its InfraEnv"), "{text}");
    let metal = json!({
        "apiVersion": "agent-install.openshift.io/v1beta1", "kind": "Agent",
        "metadata": {
            "name": "metal", "namespace": "demo", "uid": "metal",
            "labels": {"infraenvs.agent-install.openshift.io": "infra"},
        },
        "spec": {"approved": false},
        "status": {"inventory": {"systemVendor": {"manufacturer": "HPE", "serialNumber": "CZ1"}}},
    });
    world.agent = json!([world.agent, metal]);
    let text = pool::explain(&world.caches(), &key, &[], now()).text();
    let line =
        "Hosts of its InfraEnv that are not VMs of agent-forge: 1 (bare metal: 1), 0 of them free";
    assert!(text.contains(line), "{text}");
    let missing = "vap/none".parse::<subject::Subject>().expect("a subject");
    let said = subject::find(&caches, &missing, None)
        .expect_err("none")
        .to_string();
    assert!(said.contains("there is no VsphereAgentPool/none"), "{said}");
}

#[test]
fn host_and_storage_of_a_vm_are_shown_and_a_snapshot_is_a_warning() {
    let mut world = World::serving();
    let vm = &mut world.child["status"]["vm"];
    vm["esxiHost"] = json!("esx-1.example");
    vm["usedStorageGiB"] = json!(12);
    let calm = explained(&world, "va/w-1", &Live::NotAsked);
    let text = calm.text();
    assert!(
        text.contains("on host esx-1.example, uses 12 GiB"),
        "{text}"
    );
    assert_eq!(calm.verdict(), Verdict::Nothing);
    world.child["status"]["vm"]["hasSnapshot"] = json!(true);
    let warned = explained(&world, "va/w-1", &Live::NotAsked);
    let text = warned.text();
    assert!(
        text.contains("Note: VM w-1 has a snapshot in vCenter"),
        "{text}"
    );
    assert_eq!(warned.verdict(), Verdict::Findings);
}
