//! Machines that serve, without the hundreds of steps of each: one comes up normally, and the others are its copies.

use agent_forge_lab::played::stamps::{Stamps, unborn};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{
    kube::{
        kind,
        store::{Kind, Moment, Name, Refusal, Store, Via},
    },
    oracles,
    vcenter::model::{Inventory, Ref, Vm},
    world::World,
};

/// The kinds of a machine's objects, owners first. The Agent comes last, because its name differs from the others.
fn kinds() -> [Kind; 4] {
    [
        kind("cluster.x-k8s.io", "machines"),
        kind("capi-provider.agent-install.openshift.io", "agentmachines"),
        kind(oracles::OURS, "vsphereagents"),
        kind(oracles::ASSISTED, "agents"),
    ]
}

/// Copies the only machine, all copies in one moment.
///
/// # Errors
/// There is not exactly one machine, or the API server refuses.
pub fn make(world: &World, copies: usize) -> Result<()> {
    let moulds = kinds().map(|kind| world.api.read(|s| s.list(&kind, "")));
    let vm = world.vcenter.read(|i| {
        i.vms
            .values()
            .find(|v| oracles::marker(v).is_some())
            .cloned()
    });
    let vm = vm.context("a VM of ours")?;
    let macs = macs(&vm);
    for number in 0..copies {
        let uuid = format!("42aa0000-0000-4000-8000-{number:012x}");
        let macs = macs.iter().map(String::as_str);
        let mut stamps = Stamps::new((&vm.name, &vm.uuid), macs, number, &uuid);
        world.api.write(|store, now| -> Result<()> {
            let mut born = Vec::new();
            for (kind, mould) in kinds().into_iter().zip(&moulds) {
                let [mould] = mould.as_slice() else {
                    anyhow::bail!("{} objects of {}", mould.len(), kind.1);
                };
                let new = bear(
                    store,
                    &kind,
                    stamps.press(&unborn(mould.as_ref().clone()))?,
                    now,
                )?;
                let uid = |o: &Value| o["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                stamps.uid(&uid(mould), &uid(&new));
                born.push((kind, mould, name(&new)));
            }
            // The VM's own ids are known only now. They occur only in the status.
            world.vcenter.write(|i| copy_vm(i, &vm, &mut stamps))?;
            for (kind, mould, name) in born {
                let status = stamps.press(&mould["status"])?;
                let change = |mut o: Value| {
                    o["status"] = status;
                    o
                };
                let written = store.update(&kind, &name, (Via::Patch, true), now, change);
                written.map_err(|r| refused(&r))?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn refused(refusal: &Refusal) -> anyhow::Error {
    anyhow::anyhow!("{refusal:?}")
}

fn name(object: &Value) -> Name {
    let text = |key: &str| {
        object["metadata"][key]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    (text("namespace"), text("name"))
}

fn bear(store: &mut Store, kind: &Kind, object: Value, now: Moment) -> Result<Value> {
    let (namespace, _) = name(&object);
    let created = store.create(kind, &namespace, object, now);
    Ok(created.map_err(|r| refused(&r))?.as_ref().clone())
}

fn macs(vm: &Vm) -> Vec<String> {
    let all = vm.devices.iter().filter_map(|d| d["macAddress"].as_str());
    all.map(str::to_owned).collect()
}

fn copy_vm(inventory: &mut Inventory, mould: &Vm, stamps: &mut Stamps) -> Result<()> {
    let id = format!("vm-{}", inventory.number());
    let instance_uuid = stamps
        .press(&json!(mould.uuid))?
        .as_str()
        .map(|uuid| uuid.replacen("42", "50", 1))
        .context("a uuid")?;
    stamps.replace(&mould.instance_uuid, &instance_uuid);
    stamps.reference(&mould.object.id, &id);
    let press = |value: Value| stamps.press(&value);
    let text = |value: &str| -> Result<String> {
        let pressed = press(json!(value))?;
        Ok(pressed.as_str().unwrap_or_default().to_owned())
    };
    let copy = Vm {
        object: Ref::new("VirtualMachine", &id),
        name: text(&mould.name)?,
        uuid: text(&mould.uuid)?,
        instance_uuid,
        extra: serde_json::from_value(press(json!(mould.extra))?)?,
        devices: serde_json::from_value(press(json!(mould.devices))?)?,
        path: text(&mould.path)?,
        ..mould.clone()
    };
    let tags = inventory.tags.get(&mould.object.id).cloned();
    inventory.tags.extend(tags.map(|tags| (id.clone(), tags)));
    inventory.vms.insert(id, copy);
    Ok(())
}
