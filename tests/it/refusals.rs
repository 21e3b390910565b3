//! Specs with names that do not exist or are not allowed, and pools that claim the same AgentMachine. The condition
//! says which field and value are wrong, or names the other pool. Nothing half-made stays, and correcting the spec is
//! enough.

use std::collections::BTreeMap;

use agent_forge_lab::{parts::vcenter_trouble::ForeignVm, played::HostedClusterPlay};
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::world::{LIMIT, Setup, World};

/// Name, what is wrong in `spec.vsphere`, and the two words that the condition must contain.
fn wrong_specs() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    vec![
        (
            "datacenter",
            json!({"datacenter": "dc-9"}),
            "datacenter",
            "dc-9",
        ),
        ("network", json!({"network": "net-9"}), "network", "net-9"),
        (
            "resource-pool",
            json!({"resourcePool": "cluster/gone"}),
            "resourcePool",
            "cluster/gone",
        ),
        (
            "datastore",
            json!({"datastoreCluster": "store-9"}),
            "datastoreCluster",
            "store-9",
        ),
        (
            "iso-datastore",
            json!({"isoDatastore": "iso-9"}),
            "isoDatastore",
            "iso-9",
        ),
        (
            "iso-cluster",
            json!({"isoDatastore": "workload-datastore-cluster"}),
            "isoDatastore",
            "the ISO lies on one datastore: name one of ",
        ),
        (
            "unmounted",
            json!({"isoDatastore": "unmounted-iso"}),
            "isoDatastore",
            "unmounted-iso",
        ),
        (
            "tag",
            json!({"vmTags": ["urn:vmomi:InventoryServiceTag:00000000-0000-4000-8000-000000000009:GLOBAL"]}),
            "vmTags",
            "000000000009",
        ),
        ("scsi", json!({"scsiType": "floppy"}), "scsiType", "floppy"),
        (
            "nic",
            json!({"networkAdapterType": "token-ring"}),
            "networkAdapterType",
            "token-ring",
        ),
        (
            "guest",
            json!({"guestID": "rhel99_64Guest"}),
            "guestID",
            "rhel99_64Guest",
        ),
        // An object with that name exists, but it is a VM.
        (
            "no-folder",
            json!({"folder": "teams/desk"}),
            "folder",
            "teams/desk",
        ),
    ]
}

/// Values that are only found wrong at the create or later. The folder was created before.
const FOUND_LATE: [&str; 2] = ["tag", "guest"];

/// The value that corrects each of them.
fn mended(wrong: &Value) -> Value {
    let good = json!({
        "datacenter": "dc1", "network": "VM Network", "resourcePool": "cluster/Resources",
        "datastoreCluster": "workload-datastore-cluster", "isoDatastore": "iso-datastore",
        "vmTags": null, "scsiType": null, "networkAdapterType": null, "guestID": null,
        "folder": "teams/mended",
    });
    let fields = wrong.as_object().into_iter().flatten();
    Value::Object(fields.map(|(k, _)| (k.clone(), good[k].clone())).collect())
}

async fn running(world: &World, nodes: &HostedClusterPlay, count: usize) -> Result<()> {
    let outcome = nodes.wait_running(count, LIMIT).await;
    match outcome {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(world.explain().await)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_named_and_nothing_half_made_stays() -> Result<()> {
    let world = World::without_pool(Setup::default()).await?;
    let desk = ForeignVm {
        name: "desk".to_owned(),
        folder: "teams".to_owned(),
        ..ForeignVm::default()
    };
    world.vcenter.create_vm(&desk).await?;
    let mut pools = Vec::new();
    for (name, wrong, field, value) in wrong_specs() {
        let mut vsphere = json!({"folder": name});
        for (key, value) in wrong.as_object().into_iter().flatten() {
            vsphere[key] = value.clone();
        }
        world
            .create_pool(name, &json!({"vsphere": vsphere}))
            .await?;
        let nodes = world.node_pool_named(name).await?;
        nodes.scale(1);
        pools.push((name, wrong, field, value, nodes));
    }
    for (name, _, field, value, _) in &pools {
        let said = world
            .until_pool_says(name, "VsphereReady", field, |[status, _, message]| {
                status == "False" && message.contains(field) && message.contains(value)
            })
            .await?;
        let ready = world.condition(name, "Ready").await?;
        ensure!(
            ready.is_some_and(|[status, ..]| status == "False"),
            "{name} is not ready: {said}"
        );
    }
    let mut seen = world.vcenter.inventory().await?;
    // A tag that cannot be attached does not prevent the VM: it runs completely, and the operator tries the tag again.
    seen.vms
        .retain(|vm| !vm.path.contains("/vm/tag/") && vm.name != desk.name);
    ensure!(seen.vms.is_empty(), "half made: {:?}", seen.vms);
    ensure!(
        seen.folders
            .iter()
            .filter(|f| !FOUND_LATE
                .iter()
                .any(|late| f.ends_with(&format!("/{late}"))))
            .all(|f| !pools.iter().any(|p| f.ends_with(p.0))),
        "half made: {:?}",
        seen.folders
    );
    for (name, .., nodes) in pools.iter().filter(|(name, ..)| *name != "tag") {
        let machines = nodes.agent_machines();
        let machine = machines.first().context("an AgentMachine")?.name_any();
        let left = seen.files.iter().find(|f| f.path.contains(&machine));
        ensure!(left.is_none(), "{name}: half made: {left:?}");
    }
    for (name, wrong, ..) in &pools {
        world
            .patch_pool(name, &json!({"vsphere": mended(wrong)}))
            .await?;
    }
    for (name, .., nodes) in &pools {
        running(&world, nodes, 1)
            .await
            .with_context(|| format!("{name} after it was mended"))?;
        world.until_true(name, "VsphereReady").await?;
    }
    let all = world.vms().await?;
    ensure!(all.len() == pools.len() + 1 && all.contains(&desk.name));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_privilege_is_named_with_its_object() -> Result<()> {
    let world = World::without_pool(Setup::default()).await?;
    // Create these folders, so that each can have a different missing privilege.
    for folder in ["no-create", "no-power"] {
        let foreign = ForeignVm {
            name: format!("in-{folder}"),
            folder: folder.to_owned(),
            ..ForeignVm::default()
        };
        world.vcenter.create_vm(&foreign).await?;
    }
    world
        .vcenter
        .deny(&[
            ("VirtualMachine.Inventory.Create", "no-create"),
            ("VirtualMachine.Interact.PowerOn", "no-power"),
            ("Datastore.FileManagement", "local-only"),
        ])
        .await?;
    let mut nodes = BTreeMap::new();
    for (name, patch) in [
        ("no-create", json!({"vsphere": {"folder": "no-create"}})),
        ("no-power", json!({"vsphere": {"folder": "no-power"}})),
        (
            "no-files",
            json!({"vsphere": {"folder": "no-files", "isoDatastore": "local-only"}}),
        ),
    ] {
        world.create_pool(name, &patch).await?;
        let play = world.node_pool_named(name).await?;
        play.scale(1);
        nodes.insert(name, play);
    }
    for (name, privilege, object) in [
        ("no-create", "VirtualMachine.Inventory.Create", "no-create"),
        ("no-power", "VirtualMachine.Interact.PowerOn", "no-power"),
        ("no-files", "Datastore.FileManagement", "local-only"),
    ] {
        let said = world
            .until_refused(name, "VsphereReady", "NoPermission")
            .await?;
        ensure!(
            said.contains(privilege) && said.contains(object),
            "{name}: {said}"
        );
    }
    let ours = world
        .vms()
        .await?
        .into_iter()
        .filter(|vm| !vm.starts_with("in-"))
        .count();
    ensure!(ours == 1, "only the VM that may not be powered on is there");
    world.vcenter.deny(&[]).await?;
    for (name, play) in &nodes {
        running(&world, play, 1)
            .await
            .with_context(|| format!("{name} with the privilege"))?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pools_for_one_agent_machine_make_nothing_and_name_each_other() -> Result<()> {
    let world = World::without_pool(Setup::default()).await?;
    // Both pools name the same NodePool.
    for name in ["left", "right"] {
        world
            .create_pool(name, &json!({"nodePoolRef": {"name": "contested"}}))
            .await?;
    }
    // Wait until the operator knows both: as long as it knows only one pool, that pool serves the NodePool.
    for name in ["left", "right"] {
        world
            .until(&format!("a status of {name}"), async || {
                let status = world.pools().get(name).await?.status;
                Ok(status.is_some_and(|s| s.observed_generation.is_some()))
            })
            .await?;
    }
    let nodes = world.node_pool_named("contested").await?;
    nodes.scale(1);
    for (pool, other) in [("left", "right"), ("right", "left")] {
        let other = format!("{}/{other}", world.namespace());
        let said = world
            .until_refused(pool, "AgentMachineDemandFound", "PoolConflict")
            .await?;
        let machine = nodes
            .agent_machines()
            .first()
            .and_then(|am| am.metadata.name.clone());
        let machine = machine.context("an AgentMachine")?;
        ensure!(
            said.contains(&other) && said.contains(&machine),
            "{pool}: {said}"
        );
    }
    ensure!(
        world.phases().await?.is_empty() && world.vms().await?.is_empty(),
        "nothing is made"
    );
    world.pools().delete("right", &Default::default()).await?;
    world.until_true("left", "AgentMachineDemandFound").await?;
    running(&world, &nodes, 1).await?;
    ensure!(world.vms().await?.len() == 1);
    Ok(())
}
