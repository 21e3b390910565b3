//! Take-over from the predecessor: its objects as they were recorded, and its VMs without a mark.
//!
//! The machines come up normally. Then objects and VMs are changed into what the predecessor left
//! (`both-running.json`), with the names and ids of this world. The recorded addresses of a guest bridge stay, and so
//! does the recorded ISO URL with its token.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use agent_forge_actors::{
    domain::marker::{MARKER_KEY, MAY_SERVE_KEY},
    migration::notes::Notes,
};
use agent_forge_crds::names::{ADOPT_ANNOTATION, CREATED_FOR_ADOPTED, CREATED_FOR_LABEL};
use agent_forge_lab::played::guests::identity;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{Run, disaster::waiting, guests::says};
use crate::{
    kube::{
        kind,
        store::{name_of, remove, text},
    },
    oracles,
    promise::Oracle,
    vcenter::{
        files,
        model::{Inventory, Ref, Vm},
    },
    world::{NAMESPACE, World, at_home},
};

/// A recording of two machines that run.
const RECORDED: &str = include_str!("../../../fixtures/predecessor/both-running.json");
/// A part of the token in the recorded URL.
const TOKEN: &str = "dEL1JTatY-eGdnaH90LAJ0flomQ7gxNQ";
/// Pool and control plane namespace of the record.
const POOL: &str = "demo-worker";
const POOL_UID: &str = "88367111-b460-49f0-b6de-5139ea376f6b";

/// Replaces each text in the mould by its counterpart.
fn press(mould: &Value, stamps: &[(String, String)]) -> Result<Value> {
    let text = stamps
        .iter()
        .fold(mould.to_string(), |text, (old, new)| text.replace(old, new));
    serde_json::from_str(&text).context("a record as JSON")
}

/// Gives our object the recorded fields.
fn become_recorded(object: &mut Value, recorded: &Value) {
    for field in ["labels", "annotations", "finalizers"] {
        object["metadata"][field] = recorded["metadata"][field].clone();
    }
    object["status"] = recorded["status"].clone();
}

/// Another uid. The BIOS uuids of the predecessor's VMs do not follow from the uids of their VsphereAgents.
fn of_another(uid: &Value) -> String {
    let uid = uid.as_str().unwrap_or_default();
    let rest = uid.split_once('-').map_or(uid, |(_, rest)| rest);
    format!("88367111-{rest}")
}

/// The recorded VsphereAgents, each with the name and ids of one of these VMs.
fn children(recorded: &Value, pool_uid: &str, vms: &[Vm]) -> Result<BTreeMap<String, Value>> {
    let moulds = recorded["vsphereagents"].as_array().context("records")?;
    let pairs = moulds.iter().zip(vms);
    pairs
        .map(|(mould, vm)| {
            let text = |pointer: &str| {
                let found = mould.pointer(pointer).and_then(Value::as_str);
                found.map(str::to_owned).context("a record's field")
            };
            let stamps = vec![
                (text("/metadata/name")?, vm.name.clone()),
                (text("/status/vm/biosUUID")?, vm.uuid.clone()),
                (
                    text("/status/vm/agentRef/name")?,
                    identity::swapped(&vm.uuid),
                ),
                (POOL_UID.to_owned(), pool_uid.to_owned()),
                (format!("\"{POOL}\""), "\"w\"".to_owned()),
            ];
            Ok((vm.name.clone(), press(mould, &stamps)?))
        })
        .collect()
}

/// The recorded pool, with the ISO that exists here.
fn pool(recorded: &Value, iso: &Value) -> Value {
    let mut pool = recorded["vsphereagentpools"][0].clone();
    let there = &mut pool["status"]["iso"];
    for field in ["path", "sha256", "sizeBytes"] {
        there[field] = iso[field].clone();
        there["history"][0][field] = iso[field].clone();
    }
    pool
}

/// Changes the VM into what release 1.0.2 of the predecessor made: no mark, no notes, no tags, no boot order, files
/// under its name.
fn unmark(inventory: &mut Inventory, id: &str) {
    inventory.tags.remove(id);
    let Some(vm) = inventory.vms.get_mut(id) else {
        return;
    };
    vm.extra.remove(MARKER_KEY);
    vm.extra.remove(MAY_SERVE_KEY);
    vm.annotation.clear();
    vm.boot_order.clear();
    let Ok(old) = files::split(&vm.path) else {
        return;
    };
    let new = (old.0.clone(), format!("{0}/{0}.vmx", vm.name));
    vm.path = format!("[{}] {}", new.0, new.1);
    if let Some(file) = inventory.files.remove(&old) {
        inventory.files.insert(new, file);
    }
}

impl Run {
    /// Makes the existing objects and VMs look as if the predecessor had made them.
    fn inherit(&mut self, vms: &[Vm]) -> Result<()> {
        let recorded: Value = serde_json::from_str(RECORDED).context("the recorded objects")?;
        let uid = self.world.of_pool("w", "/metadata/uid");
        let children = children(&recorded, uid.as_str().unwrap_or_default(), vms)?;
        let pool = pool(&recorded, &self.world.of_pool("w", "/status/iso"));
        let selector = json!({"matchLabels": {"hypershift.openshift.io/nodepool-role": "w"}});
        // The first VM is as release 1.1.0 left it: that release writes notes and the owner of the VM. The rest of its
        // record is older.
        let mut noted = None;
        self.begins = self.world.director.now();
        self.world.director.line(|| "INHERITED".to_owned());
        self.world.api.write(|s, _| {
            s.rewrite(|kind, object| match kind.1.as_str() {
                "vsphereagents" => {
                    let (_, name) = name_of(object);
                    if let Some(recorded) = children.get(&name) {
                        become_recorded(object, recorded);
                        let uid = of_another(&object["metadata"]["uid"]);
                        if vms.first().is_some_and(|vm| vm.name == name) {
                            object["status"]["vm"]["ownerUID"] = json!(uid);
                            object["status"]["vm"]["source"] = json!("VsphereAgent");
                            noted = Some(uid.clone());
                        }
                        object["metadata"]["uid"] = json!(uid);
                    }
                }
                "vsphereagentpools" => become_recorded(object, &pool),
                "agentmachines" => object["spec"]["agentLabelSelector"] = selector.clone(),
                "secrets" => remove(&mut object["metadata"], "finalizers"),
                _ => {}
            });
        });
        self.world.vcenter.write(|i| {
            vms.iter().for_each(|vm| unmark(i, &vm.object.id));
            let first = vms.first().and_then(|vm| i.vms.get_mut(&vm.object.id));
            if let (Some(vm), Some(uid)) = (first, &noted) {
                vm.annotation = Notes::text(uid);
            }
        });
        Ok(())
    }

    /// Somebody moves a VM into another folder.
    fn move_vm(&self, vm: &Vm, folder: &Ref) {
        self.world.vcenter.write(|i| {
            if let Some(vm) = i.vms.get_mut(&vm.object.id) {
                vm.folder = folder.clone();
            }
        });
    }
}

/// Number of VsphereAgents that record their VM and whose VM has their mark.
fn taken_over(world: &World) -> usize {
    let vms = world.our_vms();
    let marked: BTreeSet<String> = vms
        .iter()
        .filter_map(oracles::marker)
        .map(|m| m.uid)
        .collect();
    let whole = |c: &&Arc<Value>| {
        c.pointer("/status/vm/attempt") == Some(&json!(1))
            && c.pointer("/status/vm/moref").is_some()
            && marked.contains(text(c, "/metadata/uid"))
    };
    world.vsphere_agents().iter().filter(whole).count()
}

/// Both VMs of the predecessor were moved. The notes of the first one prove whose it is. The second one has no notes,
/// and is moved back later. Then both go down.
pub(super) async fn takeover_from_predecessor(run: &mut Run) -> Result<()> {
    run.serving(2).await?;
    let vms = run.world.our_vms();
    run.between_processes().await;
    run.inherit(&vms)?;
    let moved = vms.last().context("two serve")?;
    let elsewhere = Ref::new("Folder", "group-v3");
    run.move_vm(moved, &elsewhere);
    run.move_vm(vms.first().context("two serve")?, &elsewhere);
    run.rest("one is proven", |world| {
        taken_over(world) == 1 && waiting(&world.api, "OwnershipUnproven") == 1
    })
    .await?;
    let is_moved = |vm: &Vm| vm.folder == elsewhere && vm.on && oracles::marker(vm).is_none();
    let there = |i: &Inventory| i.vms.get(&moved.object.id).is_some_and(is_moved);
    ensure!(run.world.vcenter.read(there), "the other VM is as it was");
    run.move_vm(moved, &moved.folder);
    run.rest("both are taken over", |world| taken_over(world) == 2)
        .await?;
    no_token(&run.world)?;
    run.down().await
}

/// Key of the mark with which an administrator gives a VM to a pool.
const ADOPT: &str = "agent-forge.adopt";

/// A VM that a person made serves the Machine, and a VsphereAgent without a record asks to adopt it.
fn made_by_hand(run: &mut Run, vm: &Vm) {
    run.begins = run.world.director.now();
    run.world.director.line(|| "MADE BY HAND".to_owned());
    run.world.api.write(|s, _| {
        s.rewrite(|kind, object| {
            if kind.1 == "vsphereagents" {
                let uid = of_another(&object["metadata"]["uid"]);
                object["metadata"]["uid"] = json!(uid);
                object["metadata"]["labels"][CREATED_FOR_LABEL] = json!(CREATED_FOR_ADOPTED);
                object["metadata"]["annotations"][ADOPT_ANNOTATION] = json!("true");
                remove(object, "status");
            }
        });
    });
    run.world.vcenter.write(|i| {
        unmark(i, &vm.object.id);
        if let Some(vm) = i.vms.get_mut(&vm.object.id) {
            vm.annotation = "ask Ann".to_owned();
        }
    });
}

/// The annotation `adopt` of the only VsphereAgent.
fn say(world: &World, vm: &Vm, word: &str) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {ADOPT_ANNOTATION: word}}});
    let agents = kind("vsphereagents");
    world.api.merge(&agents, &at_home(&vm.name), &patch)?;
    Ok(())
}

/// No VM is touched before all is proven, and nothing but the mark is written then. It outlives its Machine.
pub(super) async fn vm_adopted(run: &mut Run) -> Result<()> {
    run.serving(1).await?;
    let vm = run.world.our_vms().first().cloned().context("one serves")?;
    let hub = oracles::marker(&vm).context("a mark")?.cluster_id;
    run.between_processes().await;
    made_by_hand(run, &vm);
    run.rest("a proof is missing", |world| {
        waiting(&world.api, "AdoptionUnproven") == 1
    })
    .await?;
    run.world.vcenter.write(|i| {
        if let Some(vm) = i.vms.get_mut(&vm.object.id) {
            let ours = format!("{hub}/{NAMESPACE}/w");
            vm.extra.insert(ADOPT.to_owned(), ours);
        }
    });
    run.rest("it is adopted", |world| taken_over(world) == 1)
        .await?;
    let is_as_it_was = |vm: &Vm| vm.on && vm.annotation == "ask Ann";
    let there = |i: &Inventory| i.vms.get(&vm.object.id).is_some_and(is_as_it_was);
    ensure!(run.world.vcenter.read(there), "only the mark is written");
    // Somebody empties the status: all is proven again.
    run.world.api.write(|s, _| {
        s.rewrite(|kind, object| {
            if kind.1 == "vsphereagents" {
                remove(object, "status");
            }
        });
    });
    run.rest("it is adopted again", |world| taken_over(world) == 1)
        .await?;
    run.world.play("w")?.scale(0);
    run.rest("its Machine is gone, and it is kept", |world| {
        world.machines("w") == 0 && says(world, "Retained")
    })
    .await?;
    ensure!(run.world.vcenter.read(there), "it stays as it is");
    say(&run.world, &vm, "own")?;
    run.down().await
}

/// Checks that the token from the predecessor's status is gone.
fn no_token(world: &World) -> Result<()> {
    let pool = world.api.get(&kind("vsphereagentpools"), &at_home("w"));
    let pool = pool.context("a pool")?;
    if pool.to_string().contains(TOKEN) {
        let shown = "a pool's status still shows the token that the predecessor recorded";
        let failure = Oracle::NoSecretInObjects.broken(shown);
        world.director.violated(failure);
    }
    Ok(())
}
