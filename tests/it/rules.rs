//! RBAC check: during the whole life of a pool and its machines, every verb that `config/` grants is used, and no other
//! verb. The host is recycled and changes its pool. For all namespaces, and for selected namespaces.

use std::{collections::BTreeSet, time::Duration};

use agent_forge_lab::{
    lab::{apply::apply, manifest::rendered},
    parts::audit::Entry,
};
use anyhow::{Context as _, Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::{
    shared::flags,
    world::{POOL, Setup, World},
};

/// Granted for all namespaces, and used for who reads metrics over HTTPS (`https`).
const OF_METRICS: [&str; 2] = [
    "create authentication.k8s.io/tokenreviews",
    "create authorization.k8s.io/subjectaccessreviews",
];

/// Granted, but not used here. An InfraEnv is read live when a watch may lag behind a new ISO. NMStateConfigs are
/// read where an InfraEnv chooses some. An Event's count is updated after five minutes. An admission plugin checks the right to
/// finalizers if it is on (OpenShift).
const ELSEWHERE: [&str; 4] = [
    "get agent-install.openshift.io/infraenvs",
    "list agent-install.openshift.io/nmstateconfigs",
    "patch events.k8s.io/events",
    "update agent-forge.containeroo.ch/vsphereagentpools/finalizers",
];

/// The pool that takes the host of the other one.
const TAKER: &str = "taker";

/// The rights of the operator's account in `objects`, as `verb group/resource`.
fn granted(objects: &[Value], account: &str) -> BTreeSet<String> {
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let bindings = objects.iter().filter(|o| {
        let subjects = o["subjects"].as_array().into_iter().flatten();
        subjects.into_iter().any(|s| s["name"] == account)
    });
    let mut granted = BTreeSet::new();
    for binding in bindings {
        let named = |o: &&Value| {
            ["kind", "name"].map(|key| &binding["roleRef"][key])
                == [&o["kind"], &o["metadata"]["name"]]
        };
        let rules = objects.iter().filter(named);
        for rule in rules.filter_map(|role| role["rules"].as_array()).flatten() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        granted.insert(format!("{verb} {group}/{resource}"));
                    }
                }
            }
        }
    }
    granted
}

/// The rights that `user` used.
fn used(entries: &[Entry], user: &str) -> BTreeSet<String> {
    let ours = entries.iter().filter(|e| e.user.username == user);
    let used = ours.filter_map(|e| {
        let of = e.object_ref.as_ref()?;
        let sub = if of.subresource.is_empty() { "" } else { "/" };
        let (group, resource) = (&of.api_group, &of.resource);
        Some(format!(
            "{} {group}/{resource}{sub}{}",
            e.verb, of.subresource
        ))
    });
    used.collect()
}

/// Runs through everything that can happen to a pool and its machines, and compares.
async fn replayed(mut setup: Setup, folder: &'static str) -> Result<World> {
    let shared = json!({
        "iso": {"caBundleRef": {"name": "image-ca", "key": "ca.pem"}},
        "release": {"policy": "Recycle"}, "reassign": {"group": "lab-a"},
    });
    setup.pool_patch = shared.clone();
    // A guest needs tens of seconds to report. The operator sees it come back by that.
    setup.delays.inventory = Duration::from_secs(3);
    setup.operator_args.extend(flags());
    let mut world = World::start(setup).await?;
    let pem = world.process.ca_pem();
    let bundle = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "image-ca", "namespace": world.namespace()}, "data": {"ca.pem": pem},
    });
    apply(&world.client, &bundle).await?;
    let nodes = world.up(1).await?;
    // The host waits for its next life, which another pool of the group gets.
    nodes.scale(0);
    world.hosts_wait(1, 1).await?;
    let host = world.only_vm().await?.moref;
    world.create_pool(TAKER, &shared).await?;
    let takers = world.node_pool_named(TAKER).await?;
    takers.scale(1);
    world.running(&takers, 1).await?;
    ensure!(world.only_vm().await?.moref == host, "another VM was made");
    takers.scale(0);
    world.machines_left(&takers, 0).await?;
    for pool in [POOL, TAKER] {
        world.pools().delete(pool, &DeleteParams::default()).await?;
    }
    let gone = async || {
        Ok(world
            .pools()
            .list(&Default::default())
            .await?
            .items
            .is_empty())
    };
    world.until("the pools gone", gone).await?;
    world.settled(0).await?;
    world.stop_operator().await?;

    let entries = world.audited().await?;
    let user = &world.access.user;
    let forbidden = world.log.forbidden(user)?;
    ensure!(forbidden.is_empty(), "forbidden: {forbidden:?}");
    let granted = granted(&rendered(folder).await?, &world.access.service_account);
    let used = used(&entries, user);
    let idle = granted.difference(&used).map(String::as_str);
    let idle: Vec<_> = idle.filter(|right| !OF_METRICS.contains(right)).collect();
    ensure!(idle == ELSEWHERE, "granted and never used: {idle:?}");
    let more: Vec<_> = used.difference(&granted).collect();
    ensure!(more.is_empty(), "used and never granted: {more:?}");
    Ok(world)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_verb_of_the_cluster_roles_is_used_and_no_other() -> Result<()> {
    replayed(Setup::own_lab(), "default").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_for_some_namespaces_serves_with_roles_in_them_alone() -> Result<()> {
    let folder = "overlays/namespaced";
    let deployment = rendered(folder).await?.into_iter();
    let mut deployment = deployment.filter(|o| o["kind"] == "Deployment");
    let args = deployment.next().context("a Deployment")?;
    let args = args["spec"]["template"]["spec"]["containers"][0]["args"].clone();
    let args: Vec<String> = serde_json::from_value(args)?;
    let served = args.into_iter().filter(|a| a.starts_with("--namespaces="));
    let setup = Setup {
        operator_args: served.collect(),
        rules: Some(folder),
        ..Setup::default()
    };
    ensure!(setup.operator_args.len() == 1, "{:?}", setup.operator_args);
    let world = replayed(setup, folder).await?;

    // Secrets are in one of the served namespaces, and the operator never reads all namespaces at once.
    let entries = world.audited().await?;
    let ours = entries
        .iter()
        .filter(|e| e.user.username == world.access.user);
    for entry in ours {
        let Some(of) = &entry.object_ref else {
            continue;
        };
        ensure!(!of.namespace.is_empty(), "of all namespaces: {entry:?}");
        ensure!(
            of.resource != "secrets" || of.namespace == world.namespace(),
            "{entry:?}"
        );
    }
    Ok(())
}
