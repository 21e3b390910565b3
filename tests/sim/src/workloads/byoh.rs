//! A workload with a host of BYOH, which is played here.

use agent_forge_actors::byoh::secret;
use agent_forge_crds::{
    AgentForgeInstallerConfig,
    external::byoh::{CLUSTER_NAME_LABEL, K8S_VERSION_ANNOTATION},
};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::Run;
use crate::{
    kube::{
        kind,
        store::{Name, is_deleting, list},
    },
    promise::Oracle,
    world::World,
};

/// Name of the ByoMachine and of its config.
const NAME: &str = "byo-1";
/// Group and version of BYOH's kinds.
const BYOH: &str = "infrastructure.cluster.x-k8s.io/v1beta1";

fn at(world: &World, name: &str) -> Name {
    let home = &world.cluster.control_plane_namespace;
    (home.clone(), name.to_owned())
}

fn config(world: &World) -> Option<AgentForgeInstallerConfig> {
    let configs = kind("agentforgeinstallerconfigs");
    let found = world.api.get(&configs, &at(world, NAME))?;
    serde_json::from_value(found.as_ref().clone()).ok()
}

/// The Secrets with scripts.
fn scripts(world: &World) -> Vec<Value> {
    let all = world.api.list(&kind("secrets"), "").into_iter();
    let all = all.map(|secret| secret.as_ref().clone());
    all.filter(|s| s["type"] == "cluster.x-k8s.io/secret")
        .collect()
}

fn is_ready(world: &World) -> bool {
    config(world).is_some_and(|c| c.status.is_some_and(|s| s.ready))
}

fn pause(world: &World, paused: bool) -> Result<()> {
    let cluster = at(world, &world.cluster.name);
    let patch = json!({"spec": {"paused": paused}});
    world.api.merge(&kind("clusters"), &cluster, &patch)?;
    Ok(())
}

/// BYOH makes a ByoMachine that waits for its scripts, and a config.
fn asks(world: &World) -> Result<()> {
    let (home, machines) = (
        world.cluster.control_plane_namespace.clone(),
        kind("byomachines"),
    );
    let labels = json!({CLUSTER_NAME_LABEL: world.cluster.name});
    let machine = json!({
        "apiVersion": BYOH, "kind": "ByoMachine", "metadata": {"name": NAME, "labels": labels}, "spec": {},
    });
    let machine = world.api.create(&machines, &home, machine)?;
    let status = json!({
        "hostinfo": {"osname": "linux", "osimage": "Ubuntu 22.04.4 LTS", "architecture": "amd64"},
        "conditions": [{
            "type": "BYOHostReady", "status": "False", "reason": "InstallationSecretNotAvailable",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    });
    world.api.set_status(&machines, &at(world, NAME), &status)?;
    let config = json!({
        "kind": "AgentForgeInstallerConfig",
        "metadata": {
            "name": NAME, "labels": labels, "annotations": {K8S_VERSION_ANNOTATION: "v1.30.2"},
            "ownerReferences": [{
                "apiVersion": BYOH, "kind": "ByoMachine", "name": NAME, "uid": machine["metadata"]["uid"],
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"bundle": {
            "repository": "registry.example.com/byoh/bundle", "digest": format!("sha256:{}", "5".repeat(64)),
        }},
    });
    let configs = kind("agentforgeinstallerconfigs");
    world.api.create(&configs, &home, config)?;
    Ok(())
}

/// Checks that nothing was written of the config since.
fn unchanged_since(world: &World, before: Option<&str>) {
    let now = config(world).and_then(|c| c.metadata.resource_version);
    if now.as_deref() != before || !scripts(world).is_empty() {
        let what = "an installer config was written while its Cluster was paused".to_owned();
        world.director.violated(Oracle::PausesHold.broken(what));
    }
}

/// See `workloads!`.
pub async fn host_of_byoh(run: &mut Run) -> Result<()> {
    pause(&run.world, true)?;
    asks(&run.world)?;
    let version = config(&run.world).and_then(|c| c.metadata.resource_version);
    run.rest("paused", |_| true).await?;
    unchanged_since(&run.world, version.as_deref());
    pause(&run.world, false)?;
    run.rest("supplied", is_ready).await?;
    let made = scripts(&run.world);
    let config_now = config(&run.world).context("a config")?;
    let is_its = made.len() == 1 && made[0]["metadata"]["name"] == secret::name(&config_now);
    if !is_its {
        let what = format!("{} Secrets with scripts for one config", made.len());
        run.world
            .director
            .violated(Oracle::NothingLeaks.broken(what));
    }
    // BYOH copies the reference, and the machine goes.
    let reference = secret::reference(&config_now);
    let host = json!({
        "apiVersion": BYOH, "kind": "ByoHost", "metadata": {"name": "host-1"},
        "spec": {"installationSecret": reference},
    });
    let (hosts, home) = (kind("byohosts"), run.world.cluster.namespace.clone());
    run.world.api.create(&hosts, &home, host)?;
    run.world
        .api
        .delete(&kind("byomachines"), &at(&run.world, NAME))?;
    run.rest("held", |world| {
        let object = world
            .api
            .get(&kind("agentforgeinstallerconfigs"), &at(world, NAME));
        object.is_some_and(|o| {
            let mut conditions = list(&o, "/status/conditions").iter();
            is_deleting(&o) && conditions.any(|c| c["reason"] == "HostNamesSecret")
        })
    })
    .await?;
    if scripts(&run.world) != made {
        let what = "the scripts changed or went while a host named them".to_owned();
        run.world
            .director
            .violated(Oracle::ForeignAndServingUntouched.broken(what));
    }
    // The host has left.
    let left = json!({"spec": {"installationSecret": null}});
    let host = (home, "host-1".to_owned());
    run.world.api.merge(&hosts, &host, &left)?;
    run.rest("gone", |world| {
        config(world).is_none() && scripts(world).is_empty()
    })
    .await
}
