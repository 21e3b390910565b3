use serde_json::{Value, json};

use super::*;
use crate::commands::testing::World;

fn found(world: &World) -> Vec<Check> {
    let caches = world.caches();
    let key = ObjectKey::new("demo", "workers");
    let now = "2026-01-01T01:00:00Z".parse().expect("a time");
    let (observed, plan) =
        crate::commands::decide::decide(&caches, &key, &[], now).expect("a pool");
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
    let all = Diagnosis::of(vec![good.clone()]);
    assert_eq!(
        (all.verdict(), all.text().lines().count()),
        (Verdict::Nothing, 3)
    );
    let all = Diagnosis::of(vec![good, odd]);
    let text = all.text();
    assert_eq!(all.verdict(), Verdict::Findings);
    for said in [
        "green   a (x): fine",
        "YELLOW  b (x): odd",
        "What to do: Look.",
        "See docs/how-to/observe.md",
        "1 green, 1 yellow, 0 red",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn each_rule_of_the_roles_is_asked_for() {
    let all = rights::wanted();
    assert!(all.len() > 30, "{}", all.len());
}
