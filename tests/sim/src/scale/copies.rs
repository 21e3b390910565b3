//! Machines that serve, without the hundreds of steps of each: one comes up normally, and the others are its copies.

use agent_forge_lab::played::stamps::{Stamps, unborn};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{
    kube::{
        kind,
        store::{name_of, text},
    },
    vcenter::model::{Inventory, Ref, Vm},
    world::World,
};

/// The kinds of a machine's objects, owners first. The Agent comes last, because its name differs from the others.
const KINDS: [&str; 4] = ["machines", "agentmachines", "vsphereagents", "agents"];
const UID: &str = "/metadata/uid";

/// Copies the only machine, all copies in one moment.
///
/// # Errors
/// There is not exactly one machine, or the API server refuses.
pub fn make(world: &World, copies: usize) -> Result<()> {
    let moulds = KINDS.map(|plural| world.api.list(&kind(plural), ""));
    let vm = world.vm_of_ours()?;
    let macs = macs(&vm);
    for number in 0..copies {
        let uuid = format!("42aa0000-0000-4000-8000-{number:012x}");
        let macs = macs.iter().map(String::as_str);
        let mut stamps = Stamps::new((&vm.name, &vm.uuid), macs, number, &uuid);
        world.api.write(|store, now| -> Result<()> {
            let mut born = Vec::new();
            for (kind, mould) in KINDS.map(kind).into_iter().zip(&moulds) {
                let [mould] = mould.as_slice() else {
                    anyhow::bail!("{} objects of {}", mould.len(), kind.1);
                };
                let object = stamps.press(&unborn(mould.as_ref().clone()))?;
                let new = store.create(&kind, &name_of(&object).0, object, now)?;
                stamps.uid(text(mould, UID), text(&new, UID));
                born.push((kind, mould, name_of(&new)));
            }
            // The VM's own ids are known only now. They occur only in the status.
            world.vcenter.write(|i| copy_vm(i, &vm, &mut stamps))?;
            for (kind, mould, name) in born {
                let status = stamps.press(&mould["status"])?;
                store.set_status(&kind, &name, &status, now)?;
            }
            Ok(())
        })?;
    }
    Ok(())
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
