//! How the API server identifies the operator: in its audit log, and in each object that the operator writes.

use anyhow::{Result, ensure};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Secret, events::v1::Event};
use kube::{Api, Resource, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;

use crate::{
    shared,
    world::{Setup, World},
};

const AGENT: &str = concat!("agent-forge/", env!("CARGO_PKG_VERSION"));
const MANAGER: &str = "agent-forge";

/// Managers of the objects of one kind in a namespace.
async fn managers<K>(api: Api<K>) -> Result<Vec<String>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let all = api.list(&ListParams::default()).await?;
    let managers = all.iter().flat_map(|object| object.managed_fields());
    Ok(managers.filter_map(|entry| entry.manager.clone()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_managed_fields_say_who_we_are() -> Result<()> {
    let world = World::start(Setup::args(shared::flags())).await?;
    let _nodes = world.up(1).await?;
    let told = async || Ok(!world.told("PlanApplied").await?.is_empty());
    world.until("an Event", told).await?;

    let user = &world.access.user;
    let entries = world.audited().await?;
    let ours: Vec<_> = entries
        .iter()
        .filter(|e| e.user.username == *user)
        .collect();
    ensure!(ours.iter().any(|e| e.verb == "watch"), "no watch");
    for entry in &ours {
        ensure!(entry.user_agent == AGENT, "{entry:?}");
        let takes_name = ["create", "update", "patch"].contains(&entry.verb.as_str());
        let named = entry.uri.contains("fieldManager=agent-forge");
        ensure!(takes_name == named, "{entry:?}");
    }

    let client = &world.client;
    for (kind, managers) in [
        ("pools", managers(world.pools()).await?),
        ("VsphereAgents", managers(world.children()).await?),
        ("Agents", managers(world.agents()).await?),
        (
            "Secrets",
            managers::<Secret>(Api::namespaced(client.clone(), world.namespace())).await?,
        ),
        (
            "Events",
            managers::<Event>(Api::namespaced(client.clone(), world.namespace())).await?,
        ),
        (
            "Leases",
            managers::<Lease>(Api::namespaced(client.clone(), world.operator_namespace())).await?,
        ),
    ] {
        ensure!(
            managers.iter().any(|m| m == MANAGER),
            "{kind}: {managers:?}"
        );
        // Only the operator writes these kinds. The lab's upstream and people set no field manager.
        let ours = ["VsphereAgents", "Events", "Leases"].contains(&kind);
        ensure!(
            !ours || managers.iter().all(|m| m == MANAGER),
            "{kind}: {managers:?}"
        );
    }
    Ok(())
}
