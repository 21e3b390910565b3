//! Specs with names that do not exist or are not allowed. The condition says which field and value are wrong. Nothing
//! half-made stays, and correcting the spec is enough.

use agent_forge_lab::parts::vcenter_trouble::ForeignVm;
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::world::{Setup, World};

/// Name, the wrong field of `spec.vsphere` with its value, and a word that the condition has beside the field's name.
fn wrong_specs() -> Vec<(&'static str, Value, &'static str)> {
    let wrong = |name, field: &str, value| (name, json!({field: value}), value);
    let tag = "urn:vmomi:InventoryServiceTag:00000000-0000-4000-8000-000000000009:GLOBAL";
    let cluster = json!({"isoDatastore": "workload-datastore-cluster"});
    let one_datastore = "the ISO is on one datastore: name one of ";
    vec![
        wrong("datacenter", "datacenter", "dc-9"),
        wrong("network", "network", "net-9"),
        wrong("resource-pool", "resourcePool", "cluster/gone"),
        wrong("datastore", "datastoreCluster", "store-9"),
        wrong("unmounted", "datastoreCluster", "unmounted-iso"),
        wrong("iso-datastore", "isoDatastore", "iso-9"),
        wrong("unmounted-iso", "isoDatastore", "unmounted-iso"),
        ("iso-cluster", cluster, one_datastore),
        ("tag", json!({"vmTags": [tag]}), "000000000009"),
        wrong("scsi", "scsiType", "floppy"),
        wrong("nic", "networkAdapterType", "token-ring"),
        wrong("guest", "guestID", "rhel99_64Guest"),
        // An object with that name exists, but it is a VM.
        wrong("no-folder", "folder", "teams/desk"),
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
    for (name, wrong, word) in wrong_specs() {
        let mut vsphere = json!({"folder": name});
        for (key, value) in wrong.as_object().into_iter().flatten() {
            vsphere[key] = value.clone();
        }
        world
            .create_pool(name, &json!({"vsphere": vsphere}))
            .await?;
        let nodes = world.node_pool_named(name).await?;
        nodes.scale(1);
        pools.push((name, wrong, word, nodes));
    }
    for (name, wrong, word, _) in &pools {
        let field = wrong.as_object().and_then(|fields| fields.keys().next());
        let field = field.context("a field")?;
        let said = world
            .until_pool_says(name, "VsphereReady", field, |[status, _, message]| {
                status == "False" && message.contains(field) && message.contains(word)
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
        world
            .running(nodes, 1)
            .await
            .with_context(|| format!("{name} after it was mended"))?;
        world.until_true(name, "VsphereReady").await?;
    }
    let all = world.vms().await?;
    ensure!(all.len() == pools.len() + 1 && all.contains(&desk.name));
    Ok(())
}
