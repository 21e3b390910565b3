use serde_json::{Value, json};

use super::*;
use crate::testing::World;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().expect("a time")
}

fn key() -> ObjectKey {
    ObjectKey::new("demo", "workers")
}

fn planned(world: &World) -> Planned {
    plan(&world.caches(), &key(), None, &[], now()).expect("a plan")
}

fn document(pool: &Value) -> Document {
    let mut pool = pool.clone();
    pool["status"] = json!({});
    manifest_file::parse(&pool.to_string())
        .expect("a file")
        .remove(0)
}

#[test]
fn a_machine_that_waits_costs_one_vm_of_the_template() {
    let planned = planned(&World::waiting());
    let does: Vec<_> = planned.actions.iter().map(|a| a.does.as_str()).collect();
    assert!(does.contains(&"create VsphereAgent and VM w-1"), "{does:?}");
    let need = planned.costs.made;
    assert_eq!(
        [
            need.vms,
            need.cpus,
            need.memory_mib,
            need.disk_gib,
            need.addresses
        ],
        [1, 4, 16384, 120, 1]
    );
    assert_eq!(planned.costs.now.vms, 0);
    assert_eq!(planned.costs.after, need);
    assert_eq!(planned.verdict(), Verdict::Findings);
    let text = planned.text();
    assert!(
        text.contains("AgentMachine w-1 waits for an Agent") && text.contains("16.0 GiB"),
        "{text}"
    );
}

/// A person reads the cause, although it is no wait of the pool itself.
#[test]
fn an_invalid_pause_and_failed_steps_are_told_and_a_standing_veto_is_not() {
    let mut world = World::serving();
    world.pool["metadata"]["annotations"] =
        json!({"delete.check.agent-forge.containeroo.ch/backup": "always"});
    assert_eq!(planned(&world).waits, []);
    world.child["status"]["conditions"] = json!([{
        "type": "StepsFailed", "status": "True", "reason": "EjectFailed", "message": "EjectIso: locked",
        "lastTransitionTime": "2026-01-01T00:30:00Z",
    }]);
    let caches = world.caches();
    crate::testing::pause_until(&caches, "tomorrow");
    let planned = plan(&caches, &key(), None, &[], now()).expect("a plan");
    let told: Vec<_> = planned.waits.iter().map(|w| w.reason.as_str()).collect();
    assert_eq!(told, ["PausedUntilInvalid", "EjectFailed"]);
}

#[test]
fn a_pool_that_serves_has_nothing_to_do() {
    let planned = planned(&World::serving());
    assert_eq!(planned.actions, [], "{}", planned.text());
    assert_eq!(planned.waits, []);
    assert_eq!(planned.costs.now.vms, 1);
    assert_eq!(planned.verdict(), Verdict::Nothing);
}

#[test]
fn a_pause_shows_what_would_be_done_and_who_holds_it_back() {
    let mut world = World::waiting();
    world.pool["metadata"]["annotations"] = json!({"agent-forge.containeroo.ch/paused": "true"});
    let planned = planned(&world);
    let held = planned
        .actions
        .iter()
        .filter(|a| a.does.starts_with("create"))
        .all(|a| a.held.is_some());
    assert!(
        held && planned.waits.iter().any(|w| w.reason == Reason::Paused),
        "{}",
        planned.text()
    );
}

#[test]
fn a_file_is_compared_with_the_cluster_and_planned_before_it_is_applied() {
    let world = World::waiting();
    let mut file = world.pool.clone();
    file["spec"]["template"] = json!({"numCPUs": 8, "diskGiB": 120});
    file["spec"]["vsphere"]["vmTags"] = json!(["t"]);
    let planned =
        plan(&world.caches(), &key(), Some(&document(&file)), &[], now()).expect("a plan");
    let change = |field: &str| planned.changes.iter().find(|c| c.field == field);
    let cpus = change("spec.template.numCPUs").expect("a change");
    assert_eq!(
        (&cpus.before, &cpus.after),
        (&Some(json!(4)), &Some(json!(8)))
    );
    assert!(cpus.effect.starts_with("new VMs; one whose Agent"));
    // The API server fills in the default, which is what the cluster has.
    assert!(
        change("spec.template.memoryMiB").is_none(),
        "{:?}",
        planned.changes
    );
    assert_eq!(planned.costs.made.cpus, 8);
    assert!(planned.exists && planned.text().contains("spec.vsphere.vmTags"));
    // A pool that does not exist yet serves no Machine of another one.
    let mut new = file.clone();
    new["metadata"] = json!({"name": "second", "namespace": "demo"});
    new["spec"]["nodePoolRef"]["name"] = json!("second");
    let key = ObjectKey::new("demo", "second");
    let planned = plan(&world.caches(), &key, Some(&document(&new)), &[], now()).expect("a plan");
    let does: Vec<_> = planned.actions.iter().map(|a| a.does.as_str()).collect();
    assert_eq!(does, ["put the finalizer on the pool"]);
    assert!(!planned.exists && planned.costs.made.vms == 0);
}

#[test]
fn a_missing_infra_env_and_false_conditions_are_told() {
    let mut world = World::waiting();
    world.infra_env = Value::Null;
    world.pool["status"]["conditions"] = json!([{"type": "VsphereReady", "status": "False", "reason": "NoPermission",
        "message": "Folder.Create", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let planned = planned(&world);
    let reasons: Vec<_> = planned.waits.iter().map(|w| w.reason.as_str()).collect();
    assert_eq!(
        reasons,
        ["InfraEnvNotFound", "NoPermission"],
        "{}",
        planned.text()
    );
}

#[test]
fn a_file_that_is_not_valid_or_not_clear_is_refused() {
    let args = |pool: Option<&str>, namespace: Option<&str>| PlanArgs {
        pool: pool.map(str::to_owned),
        file: None,
        asked: Asked {
            place: crate::commands::Place {
                namespace: namespace.map(str::to_owned),
                ..crate::commands::Place::default()
            },
            output: report::Output::Table,
        },
    };
    let world = World::waiting();
    let good = document(&world.pool);
    let mut bad = world.pool.clone();
    bad["spec"]["template"]["numCPUs"] = json!(0);
    for (files, pool, said) in [
        (
            vec![document(&bad)],
            None,
            "spec.template.numCPUs: 0 is too small",
        ),
        (vec![good.clone(), good.clone()], None, "exactly one"),
        (vec![good.clone()], Some("other"), "exactly one"),
    ] {
        let error = the_pool(&files, &args(pool, None))
            .expect_err(said)
            .to_string();
        assert!(error.contains(said), "{error}");
    }
    let caches = world.caches();
    let error = |pool, namespace| {
        find(&caches, None, &args(Some(pool), namespace))
            .expect_err("none")
            .to_string()
    };
    assert!(error("other", None).contains("there is no VsphereAgentPool other"));
    assert!(error("workers", Some("x")).contains("there is no"));
    assert_eq!(
        find(&caches, None, &args(Some("workers"), None)).expect("one"),
        key()
    );
}
