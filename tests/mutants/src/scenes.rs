//! Parts of the workloads: what other people do, and checks.

use std::time::Duration;

use agent_forge_actors::ports::effect::EffectKind;
use agent_forge_lab::played::guests::identity::{serial, swapped};
use agent_forge_sim::{
    kube::{
        kind,
        store::{name_of, text},
    },
    oracles::{COPY, marker},
    promise::Oracle,
    vcenter::model::{Ref, Vm},
    world::World,
};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Virtual time that is long for a step and short for a rest.
pub const SOON: Duration = Duration::from_secs(600);

/// The first VM of ours, once it exists.
///
/// # Errors
/// None appears in time.
pub async fn our_vm(world: &World) -> Result<Vm> {
    let is_there = || world.vm_of_ours().is_ok();
    world.until("a VM of ours", SOON, is_there).await?;
    world.vm_of_ours()
}

/// The name of the first AgentMachine, once it exists.
///
/// # Errors
/// None appears in time.
pub async fn wanted_name(world: &World) -> Result<String> {
    let play = world.play("w")?;
    let first = || play.agent_machines().into_iter().next();
    let is_there = || first().is_some();
    world.until("an AgentMachine", SOON, is_there).await?;
    let found = first().context("it went again")?;
    Ok(found.metadata.name.clone().unwrap_or_default())
}

/// Waits until the operator has asked for that effect.
///
/// # Errors
/// It does not ask in time.
pub async fn until_effect(world: &World, effect: EffectKind) -> Result<()> {
    let seen = || world.director.times(effect) > 0;
    world.until(effect.name(), SOON, seen).await
}

/// Adds a foreign VM. Returns its id.
pub fn foreign_vm(world: &World, name: &str, folder: &Ref, uuid: &str) -> String {
    world.vcenter.write(|i| {
        let number = i.number();
        let model = i.vms["vm-1"].clone();
        let id = format!("vm-{number}");
        let vm = Vm {
            object: Ref::new("VirtualMachine", id.clone()),
            name: name.to_owned(),
            folder: folder.clone(),
            uuid: uuid.to_owned(),
            instance_uuid: format!("50310000-0000-4000-8000-{number:012x}"),
            path: format!("[ds-0] {name}-theirs/{name}.vmx"),
            ..model
        };
        i.vms.insert(id.clone(), vm);
        id
    })
}

/// Adds an admin's copy of a VM. It has the same BIOS uuid and `extraConfig`, but another reference, instance uuid and
/// name. It is on. The oracles recognise it as a copy.
pub fn clone_vm(world: &World, vm: &Vm) -> String {
    let id = foreign_vm(world, &format!("{}-copy", vm.name), &vm.folder, &vm.uuid);
    world.vcenter.write(|i| {
        if let Some(copy) = i.vms.get_mut(&id) {
            copy.extra = vm.extra.clone();
            copy.extra.insert(COPY.to_owned(), "true".to_owned());
        }
    });
    id
}

/// Labels that the pool puts on its Agents.
#[must_use]
pub fn pool_labels(pool: &str) -> Value {
    json!({"customer": "example", "hypershift.openshift.io/nodepool-role": pool})
}

/// Checks `one_vm_per_agent_machine`: the VM's VsphereAgent, the Agent on the VM and the AgentMachine that claims it
/// belong together.
pub fn pairs_agree(world: &World) {
    let agents = world.api.list(&kind("agents"), "");
    let children = world.vsphere_agents();
    for vm in &world.our_vms() {
        let Some(marker) = marker(vm) else { continue };
        let mut of_it = children.iter().filter(|c| name_of(c).1 == marker.name);
        let label = "/metadata/labels/agent-forge.containeroo.ch~1agent-machine";
        let wanted = of_it.next().map_or("", |c| text(c, label));
        let host = swapped(&vm.uuid);
        let agent = agents.iter().find(|a| name_of(a).1 == host);
        let claimed = agent.map_or("", |a| text(a, "/metadata/labels/agentMachineRef"));
        let hostname = agent.map_or("", |a| text(a, "/spec/hostname"));
        if claimed != wanted || hostname != wanted {
            world.director.violated(Oracle::OneVmPerAgentMachine.broken(format!(
                "VM {} was made for {wanted}, its Agent is {hostname:?} and serves {claimed:?} ({})",
                vm.name,
                serial(&vm.uuid)
            )));
        }
    }
}

/// Checks `no_secret_in_objects`: no object of ours shows the token of the ISO's URL.
pub fn no_token(world: &World) {
    let infra_envs = world.api.list(&kind("infraenvs"), "");
    let mut urls = infra_envs.iter().map(|i| text(i, "/status/isoDownloadURL"));
    let url = urls.find(|url| !url.is_empty()).unwrap_or_default();
    let tokens: Vec<&str> = url
        .split(['/', '?', '&', '='])
        .filter(|part| part.len() >= 32)
        .collect();
    if tokens.is_empty() {
        let none = format!("the ISO's URL has no token to look for: {url:?}");
        world.director.violated(Oracle::PlanFitsTheRun.broken(none));
    }
    for plural in ["vsphereagents", "vsphereagentpools"] {
        for object in world.api.list(&kind(plural), "") {
            let shown = object.to_string();
            if tokens.iter().any(|t| shown.contains(t)) {
                let (_, name) = name_of(&object);
                let shows = format!("{plural} {name} shows the token of the ISO's URL");
                world
                    .director
                    .violated(Oracle::NoSecretInObjects.broken(shows));
            }
        }
    }
}
