//! Every field of `spec.vsphere` and `spec.template`, as vCenter shows it on the VM.

use agent_forge_crds::{
    VsphereAgent,
    conditions::{CONFIG_SYNCED, find_condition},
    names::{AGENT_FINALIZER, AGENT_MACHINE_LABEL, POOL_LABEL},
};
use agent_forge_lab::{
    parts::{
        vcenter_inventory::{Inventory, Vm},
        vcenter_trouble::VmAction,
    },
    played::guests::identity,
};
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt;
use serde_json::json;

use crate::{
    look::pinned_to,
    world::{POOL, Setup, World, pool_labels},
};

/// One machine with these settings: its VM, the whole inventory, and its VsphereAgent.
async fn one(world: &World) -> Result<(Vm, Inventory, VsphereAgent)> {
    let nodes = world.up(1).await?;
    let inventory = world.vcenter.inventory().await?;
    let name = nodes.running().pop().context("one runs")?;
    let vm = inventory.vm(&name).cloned().context("its VM")?;
    let mut child = world.children().get(&name).await?;
    // The last change may not be in the status yet.
    world
        .until("a complete record", async || {
            child = world.children().get(&name).await?;
            let vm = child.status.as_ref().and_then(|s| s.vm.as_ref());
            Ok(vm.is_some_and(|vm| vm.agent_ref.is_some() && vm.machine_ref.is_some()))
        })
        .await?;
    Ok((vm, inventory, child))
}

/// The VM boots from its disk first, then from the ISO in its drive.
fn boots(vm: &Vm, inventory: &Inventory, prefix: &str) -> Result<()> {
    let [disk] = vm.disks.as_slice() else {
        anyhow::bail!("one disk, not {:?}", vm.disks)
    };
    let order = [format!("disk:{}", disk.key), "cdrom".to_owned()];
    ensure!(vm.boot_order == order, "{:?}", vm.boot_order);
    let [cd] = vm.cdroms.as_slice() else {
        anyhow::bail!("one drive, not {:?}", vm.cdroms)
    };
    let file = cd
        .path
        .strip_prefix("[iso-datastore] ")
        .with_context(|| format!("{:?} is not on iso-datastore", cd.path))?;
    ensure!(file.starts_with(prefix) && file.ends_with(".iso"), "{file}");
    ensure!(inventory.file("iso-datastore", file).is_some(), "no {file}");
    ensure!(cd.connected && cd.start_connected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_made_and_handed_over_whole_and_each_later_change_is_reported() -> Result<()> {
    let mut world = World::start(Setup::default()).await?;
    let (vm, inventory, child) = one(&world).await?;
    is_whole(&world, &vm, &inventory, child).await?;
    a_changed_vm_and_a_changed_template_are_reported_and_a_serving_vm_stays(&mut world, vm).await
}

/// It has the default hardware and one identity, and was handed over.
async fn is_whole(
    world: &World,
    vm: &Vm,
    inventory: &Inventory,
    child: VsphereAgent,
) -> Result<()> {
    ensure!(
        vm.path == format!("/dc1/vm/demo/{}", vm.name),
        "{}",
        vm.path
    );
    ensure!(vm.guest_id == "rhel9_64Guest" && vm.firmware == "efi");
    ensure!((vm.num_cpu, vm.memory_mb) == (4, 16384));
    ensure!(vm.pool.ends_with("cluster/Resources"), "{}", vm.pool);
    ensure!(vm.tags.is_empty());
    let iso = format!("agent-forge/{}/{POOL}/", world.namespace());
    boots(vm, inventory, &iso)?;
    let (disk, nic) = (&vm.disks[0], &vm.nics[0]);
    ensure!(disk.gb == 100 && disk.thin && !disk.eagerly_scrub);
    ensure!(disk.controller == "ParaVirtualSCSIController", "{disk:?}");
    ensure!(
        disk.file.starts_with("[ds-"),
        "not in the cluster: {disk:?}"
    );
    ensure!(vm.nics.len() == 1 && nic.kind == "VirtualVmxnet3" && nic.network == "VM Network");
    ensure!(vm.extra_config.get("disk.EnableUUID").map(String::as_str) == Some("TRUE"));

    // Identity: in the record, in the mark, and in the path of the VM's file.
    let uid = child.uid().context("uid")?;
    let status = child.status.clone().unwrap_or_default();
    let record = status.vm.context("a recorded VM")?;
    let cluster = status.cluster_id.context("a recorded cluster")?;
    let namespace = world.namespace();
    let marker = format!("v1/{cluster}/{namespace}/{}/{uid}/1", vm.name);
    ensure!(vm.extra_config.get("agent-forge.owner") == Some(&marker));
    ensure!(record.bios_uuid.as_ref() == Some(&vm.uuid) && record.attempt == Some(1));
    ensure!(record.moref.as_ref() == Some(&vm.moref));
    ensure!(record.instance_uuid.as_ref() == Some(&vm.instance_uuid));
    ensure!(record.mac_addresses.iter().eq([&nic.mac]));
    ensure!(record.vm_path.as_ref() == Some(&vm.vm_path_name));
    let directory = format!("{}-{}-1/{}.vmx", vm.name, &uid[..8], vm.name);
    ensure!(vm.vm_path_name.ends_with(&directory), "{}", vm.vm_path_name);
    let placement = record.placement.context("a recorded place")?;
    ensure!(placement.folder.as_deref() == Some("demo"), "{placement:?}");
    ensure!(placement.network.as_deref() == Some("VM Network"));
    ensure!(
        placement
            .datastore
            .is_some_and(|ds| disk.file.starts_with(&format!("[{ds}]")))
    );
    ensure!(child.finalizers().iter().any(|f| f == AGENT_FINALIZER));
    ensure!(child.labels().get(POOL_LABEL).map(String::as_str) == Some(POOL));
    let owner = child.owner_references().first().context("an owner")?;
    ensure!(owner.kind == "VsphereAgentPool" && owner.name == POOL);

    // Hand-over: pin on both sides, labels, role, hostname, approval.
    let agent = world.agents().get(&identity::swapped(&vm.uuid)).await?;
    ensure!(agent.spec.approved && agent.spec.role == "worker");
    ensure!(agent.spec.hostname.as_ref() == Some(&vm.name));
    for (key, value) in pool_labels() {
        ensure!(agent.labels().get(&key) == Some(&value), "label {key}");
    }
    ensure!(agent.labels().get(AGENT_MACHINE_LABEL) == Some(&vm.name));
    let am = world.agent_machines().get(&vm.name).await?;
    ensure!(pinned_to(&am) == Some(vm.name.as_str()), "{:?}", am.data);
    ensure!(record.agent_ref.and_then(|r| r.name) == Some(agent.name_any()));
    let machine = world.machines().get(&vm.name).await?;
    let recorded = record.machine_ref.context("the Machine")?;
    ensure!(recorded.uid == machine.uid() && recorded.name.as_ref() == Some(&vm.name));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_of_the_template_is_in_the_vm() -> Result<()> {
    let world = World::without_pool(Setup::default()).await?;
    let tags = world.vcenter.inventory().await?.tags;
    let ids: Vec<&str> = tags.iter().map(|tag| tag.id.as_str()).collect();
    let patch = json!({
        "vsphere": {
            "datastoreCluster": "ds-1",
            "resourcePool": "/dc1/host/cluster/Resources",
            "folder": "customers/example/workers",
            "network": "dvpg-0",
            "vmTags": ids,
            "guestID": "rhel8_64Guest",
            "scsiType": "lsilogic-sas",
            "firmware": "bios",
            "networkAdapterType": "e1000e",
            "diskEagerlyScrub": true,
        },
        "template": {"numCPUs": 6, "memoryMiB": 24576, "diskGiB": 132},
        "iso": {"pathPrefix": "images/discovery"},
    });
    world.create_pool(POOL, &patch).await?;
    let (vm, inventory, _) = one(&world).await?;
    // The tags were attached before the VM was powered on.
    ensure!(vm.tags.len() == ids.len(), "{:?}", vm.tags);
    let folder = "/dc1/vm/customers/example/workers";
    ensure!(vm.path == format!("{folder}/{}", vm.name), "{}", vm.path);
    ensure!(inventory.folders.iter().any(|path| path == folder));
    ensure!(vm.guest_id == "rhel8_64Guest" && vm.firmware == "bios");
    ensure!((vm.num_cpu, vm.memory_mb) == (6, 24576));
    boots(&vm, &inventory, "images/discovery/")?;
    let (disk, nic) = (&vm.disks[0], &vm.nics[0]);
    ensure!(
        disk.gb == 132 && !disk.thin && disk.eagerly_scrub,
        "{disk:?}"
    );
    ensure!(
        disk.controller == "VirtualLsiLogicSASController",
        "{disk:?}"
    );
    ensure!(disk.file.starts_with("[ds-1]"), "{disk:?}");
    ensure!(vm.vm_path_name.starts_with("[ds-1]"), "{}", vm.vm_path_name);
    ensure!(
        nic.kind == "VirtualE1000e" && nic.network == "dvpg-0",
        "{nic:?}"
    );
    let (mut tagged, mut wanted) = (vm.tags.clone(), ids);
    tagged.sort();
    wanted.sort_unstable();
    ensure!(!wanted.is_empty() && tagged == wanted, "{tagged:?}");
    Ok(())
}

async fn a_changed_vm_and_a_changed_template_are_reported_and_a_serving_vm_stays(
    world: &mut World,
    vm: Vm,
) -> Result<()> {
    let synced = async |world: &World, status: &str, reason: &str, words: &str| {
        let about = format!("ConfigSynced {status} {reason} {words:?}");
        world
            .until(&about, async || {
                let child = world.children().get(&vm.name).await?;
                let status_of = child.status.unwrap_or_default();
                let found = find_condition(&status_of.conditions, CONFIG_SYNCED);
                Ok(found.is_some_and(|c| {
                    let same = (c.status.as_str(), c.reason.as_str()) == (status, reason);
                    same && c.message.contains(words)
                }))
            })
            .await
    };
    synced(world, "True", "Synced", "").await?;
    world.vcenter.act(&vm.moref, VmAction::SetCpus(8)).await?;
    synced(world, "False", "HardwareDrift", "numCPUs: want 4, have 8").await?;
    world.vcenter.act(&vm.moref, VmAction::SetCpus(4)).await?;
    synced(world, "True", "Synced", "").await?;
    // Also while no operator runs: the scan shows it.
    world.stop_operator().await?;
    world.vcenter.act(&vm.moref, VmAction::SetCpus(2)).await?;
    world.start_operator().await?;
    synced(world, "False", "HardwareDrift", "numCPUs: want 4, have 2").await?;
    world.vcenter.act(&vm.moref, VmAction::SetCpus(4)).await?;
    synced(world, "True", "Synced", "").await?;
    // Its network: disconnected, and connected to another one.
    world.vcenter.act(&vm.moref, VmAction::UnplugNic).await?;
    let words = "networkConnection: want connected, have disconnected";
    synced(world, "False", "HardwareDrift", words).await?;
    world.vcenter.act(&vm.moref, VmAction::PlugNic).await?;
    synced(world, "True", "Synced", "").await?;
    let (moref, home) = (&vm.moref, VmAction::SetNetwork("VM Network"));
    world
        .vcenter
        .act(moref, VmAction::SetNetwork("dvpg-0"))
        .await?;
    synced(
        world,
        "False",
        "HardwareDrift",
        "network: want VM Network (",
    )
    .await?;
    world.vcenter.act(moref, home).await?;
    synced(world, "True", "Synced", "").await?;
    let patch = json!({"template": {"memoryMiB": 24576}});
    world.patch_pool(POOL, &patch).await?;
    let words = "memoryMiB: want 24576, have 16384";
    synced(world, "False", "TemplateChanged", words).await?;
    let inventory = world.vcenter.inventory().await?;
    let same = inventory.vm(&vm.name).context("its VM")?;
    ensure!(
        same.moref == vm.moref && same.memory_mb == 16384,
        "{same:?}"
    );
    Ok(())
}
