use serde_json::{Value, json};

use super::*;
use crate::{cluster::view::Caches, testing::World};

fn found(world: &World) -> Vec<Check> {
    found_in(&world.caches())
}

fn found_in(caches: &Caches) -> Vec<Check> {
    let key = ObjectKey::new("demo", "workers");
    let now = "2026-01-01T01:00:00Z".parse().expect("a time");
    let (observed, plan) = crate::machines::decide::decide(caches, &key, &[], now).expect("a pool");
    pool::checks("pool demo/workers", &observed, &plan)
}

#[test]
fn a_healthy_pool_is_green_and_each_plant_is_named() {
    for healthy in [World::serving(), World::waiting()] {
        let all = found(&healthy);
        assert!(all.iter().all(|c| c.color == Color::Green), "{all:#?}");
    }
    type Change = fn(&mut World);
    let table: [(Change, &str, Color, &str); 8] = [
        (
            |w| w.pool["spec"]["vsphere"]["scsiType"] = json!("ide"),
            "spec",
            Color::Red,
            "scsiType",
        ),
        (
            |w| w.pool["spec"]["agent"]["labels"] = json!({"agentMachineRef": "x"}),
            "spec",
            Color::Red,
            "agentMachineRef",
        ),
        (
            |w| w.infra_env = Value::Null,
            "infraenv",
            Color::Red,
            "InfraEnvNotFound",
        ),
        (
            |w| w.infra_env["status"] = json!({}),
            "infraenv",
            Color::Red,
            "ISOURLPending",
        ),
        (
            |w| w.infra_env["spec"] = json!({"clusterRef": {"name": "c", "namespace": "n"}}),
            "infraenv",
            Color::Red,
            "LateBinding",
        ),
        (
            |w| {
                w.pool["metadata"]["annotations"] =
                    json!({"agent-forge.containeroo.ch/paused": "true"})
            },
            "holds",
            Color::Yellow,
            "paused by annotation",
        ),
        (
            |w| w.agent_machine["metadata"]["finalizers"] = json!([]),
            "demand",
            Color::Red,
            "ProviderNotAccepting",
        ),
        (|w| w.machine = None, "demand", Color::Red, "MachinePending"),
    ];
    for (change, check, color, word) in table {
        let mut world = World::waiting();
        change(&mut world);
        let all = found(&world);
        let hit = |c: &&Check| c.check == check && c.color == color && c.says.contains(word);
        let one = all
            .iter()
            .find(hit)
            .unwrap_or_else(|| panic!("{check} {word}: {all:#?}"));
        assert!(
            !one.todo.is_empty() && one.page.starts_with("docs/"),
            "{one:?}"
        );
    }
}

#[test]
fn an_iso_over_plain_http_is_named_without_its_token() {
    let named = |url: &str| {
        let url = agent_forge_actors::ports::iso_source::IsoUrl::parse(url).expect("a URL");
        iso::transport("pool demo/workers", &url)
    };
    assert_eq!(named("https://images.example/byapikey/S3CRET/x.iso"), None);
    // Nobody is on the way there.
    assert_eq!(named("http://127.0.0.1:8080/byapikey/S3CRET/x.iso"), None);
    let check = named("http://images.example/byapikey/S3CRET/x.iso").expect("a check");
    assert_eq!((check.check, check.color), ("transport", Color::Yellow));
    assert!(check.says.contains("http://images.example/") && check.says.contains("plain http"));
    assert!(
        !check.says.contains("S3CRET") && !check.todo.is_empty(),
        "{check:?}"
    );
}

#[test]
fn failed_steps_and_an_invalid_pause_are_yellow_and_a_standing_veto_is_green() {
    let mut world = World::serving();
    world.pool["metadata"]["annotations"] =
        json!({"delete.check.agent-forge.containeroo.ch/backup": "always"});
    let color = |all: &[Check], check: &str, word: &str| {
        let one = all
            .iter()
            .find(|c| c.check == check && c.says.contains(word));
        one.map(|c| c.color)
    };
    assert_eq!(color(&found(&world), "holds", "backup"), Some(Color::Green));
    world.child["status"]["conditions"] = json!([{
        "type": "StepsFailed", "status": "True", "reason": "TaggingFailed", "message": "AttachTags: no such tag",
        "lastTransitionTime": "2026-01-01T00:30:00Z",
    }]);
    world.child["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:50:00Z");
    let caches = world.caches();
    crate::testing::pause_until(&caches, "tomorrow");
    let all = found_in(&caches);
    for (check, word) in [
        ("holds", "backup"),
        ("holds", "tomorrow"),
        ("steps", "no such tag"),
    ] {
        assert_eq!(
            color(&all, check, word),
            Some(Color::Yellow),
            "{word}: {all:#?}"
        );
    }
}

/// The pool's own annotations hold nothing: the operator told what holds the VM.
#[test]
fn what_holds_a_single_vm_is_yellow() {
    let mut world = World::serving();
    world.pool["status"]["waitingOn"] = json!([{
        "subject": "VsphereAgent demo/w-1", "reason": "Vetoed",
        "message": "delete_child waits: backup on VsphereAgent demo/w-1 forbids deletion: always",
    }]);
    let all = found(&world);
    let is_told =
        |c: &&Check| c.check == "holds" && c.says.contains("backup on VsphereAgent demo/w-1");
    let one = all
        .iter()
        .find(is_told)
        .unwrap_or_else(|| panic!("{all:#?}"));
    assert_eq!(one.color, Color::Yellow);
    assert!(!one.todo.is_empty(), "{one:?}");
}

#[test]
fn two_pools_of_one_node_pool_are_red_for_both() {
    let mut world = World::waiting();
    let mut twin = world.pool.clone();
    twin["metadata"]["name"] = json!("twin");
    world.pool = json!([world.pool, twin]);
    assert!(
        found(&world)
            .iter()
            .any(|c| c.check == "neighbours" && c.says.contains("demo/twin"))
    );
}

#[test]
fn the_worst_color_decides_and_what_to_do_is_printed() {
    let good = Check::green("a", "x", "fine");
    let odd = Check::yellow("b", "x", "odd").todo("Look.", "docs/how-to/observe.md");
    let also = Check::green("c", "x", "fine");
    let all = Diagnosis::of(vec![good.clone(), also], FailOn::Warning);
    assert_eq!(all.verdict(), Verdict::Nothing);
    assert_eq!(all.text(), "green   x: a, c\n\n2 green, 0 yellow, 0 red\n");
    let bad = Check::red("d", "y", "broken");
    let mut checks = vec![good, odd];
    for (fail_on, verdict) in [
        (FailOn::Warning, Verdict::Findings),
        (FailOn::Error, Verdict::Nothing),
    ] {
        let all = Diagnosis::of(checks.clone(), fail_on);
        assert_eq!(all.verdict(), verdict, "{fail_on:?}");
    }
    checks.push(bad);
    let all = Diagnosis::of(checks, FailOn::Error);
    assert_eq!(all.verdict(), Verdict::Findings);
    let text = all.text();
    assert!(
        text.starts_with(
            "RED     d (y): broken\n        What to do: \n        See docs/how-to/find-out-what-is-wrong.md\n\
             YELLOW  b (x): odd\n        What to do: Look.\n        See docs/how-to/observe.md\n\
             green   x: a\n"
        ),
        "{text}"
    );
    assert!(text.ends_with("1 green, 1 yellow, 1 red\n"), "{text}");
    let painted = all.painted(text);
    assert!(
        painted.starts_with("\u{1b}[31mRED   \u{1b}[0m  d"),
        "{painted}"
    );
}

#[test]
fn each_rule_of_the_roles_is_asked_for_where_it_is_needed() {
    let args = |flags: &[&str]| {
        let line = [&["agent-forge"], flags].concat();
        <Args as clap::Parser>::try_parse_from(line).expect("accepted")
    };
    let secrets = BTreeSet::from(["demo".to_owned(), "shared".to_owned()]);
    let places = |flags: &[&str], group: &str, resource: &str| {
        let all = rights::wanted(&args(flags), "own", &secrets).into_iter();
        let found = all.filter(|(_, right)| right.is_on(group, resource));
        let found: BTreeSet<Option<String>> = found.map(|(place, _)| place).collect();
        found
    };
    let named = |names: &[&str]| -> BTreeSet<Option<String>> {
        names.iter().map(|n| Some((*n).to_owned())).collect()
    };
    let everywhere = BTreeSet::from([None]);
    let agents = ("agent-install.openshift.io", "agents");
    let leases = ("coordination.k8s.io", "leases");
    let hosts = ("infrastructure.cluster.x-k8s.io", "byohosts");
    for (flags, (group, resource), wanted) in [
        (&[][..], agents, everywhere.clone()),
        (&["--namespaces=a,b"], agents, named(&["a", "b"])),
        (&[], ("", "namespaces"), everywhere.clone()),
        (&["--namespaces=a,b"], ("", "namespaces"), named(&[])),
        (&[], ("", "secrets"), named(&["demo", "shared"])),
        (
            &["--namespaces=a,b"],
            ("", "secrets"),
            named(&["demo", "shared"]),
        ),
        (&[], leases, named(&["own"])),
        (&["--leader-election-namespace=x"], leases, named(&["x"])),
        (&[], hosts, named(&[])),
        (&["--byoh-installer"], hosts, everywhere.clone()),
    ] {
        assert_eq!(
            places(flags, group, resource),
            wanted,
            "{flags:?} {resource}"
        );
    }
    assert!(rights::wanted(&args(&[]), "own", &secrets).len() > 30);
}
