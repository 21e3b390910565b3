//! Parts of the workloads: what other people do, and checks.

use std::time::Duration;

use agent_forge_actors::ports::effect::EffectKind;
use agent_forge_lab::played::guests::identity::{serial, swapped};
use agent_forge_sim::{
    kube::kind,
    oracles::{ASSISTED, OURS, marker},
    promise::Oracle,
    vcenter::model::{Ref, Vm},
    world::{NAMESPACE, World},
};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Virtual time that is long for a step and short for a rest.
pub const SOON: Duration = Duration::from_secs(600);

/// The text at a JSON pointer. Empty if there is none.
#[must_use]
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

/// Namespace and name of an object in the namespace of the pools.
#[must_use]
pub fn at_home(name: &str) -> (String, String) {
    (NAMESPACE.to_owned(), name.to_owned())
}

/// All objects of a kind.
#[must_use]
pub fn all(world: &World, group: &str, plural: &str) -> Vec<Value> {
    let list = world.api.read(|s| s.list(&kind(group, plural), ""));
    list.iter().map(|o| o.as_ref().clone()).collect()
}

/// The first VM of ours, once it exists.
///
/// # Errors
/// None appears in time.
pub async fn our_vm(world: &World) -> Result<Vm> {
    let find = || {
        world
            .vcenter
            .read(|i| i.vms.values().find(|v| marker(v).is_some()).cloned())
    };
    world
        .until("a VM of ours", SOON, || find().is_some())
        .await?;
    find().context("it went again")
}

/// The name of the first AgentMachine, once it exists.
///
/// # Errors
/// None appears in time.
pub async fn wanted_name(world: &World, pool: &str) -> Result<String> {
    let play = world.play(pool)?;
    let names = || {
        play.agent_machines()
            .first()
            .map(|o| text_of_name(&o.metadata.name))
    };
    world
        .until("an AgentMachine", SOON, || names().is_some())
        .await?;
    names().context("it went again")
}

fn text_of_name(name: &Option<String>) -> String {
    name.clone().unwrap_or_default()
}

/// Waits until the operator has asked for that effect so many times.
///
/// # Errors
/// It does not ask in time.
pub async fn until_effect(world: &World, effect: EffectKind, times: usize) -> Result<()> {
    let seen = || world.director.times(effect) >= times;
    world
        .until(&format!("{} {times} times", effect.name()), SOON, seen)
        .await
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
            copy.extra
                .insert(agent_forge_sim::oracles::COPY.to_owned(), "true".to_owned());
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
    let agents = all(world, ASSISTED, "agents");
    let children = all(world, OURS, "vsphereagents");
    let vms: Vec<Vm> = world.vcenter.read(|i| i.vms.values().cloned().collect());
    for vm in &vms {
        let Some(marker) = marker(vm) else { continue };
        let child = children
            .iter()
            .find(|c| text(c, "/metadata/name") == marker.name);
        let wanted = child
            .and_then(|c| {
                c["metadata"]["labels"]["agent-forge.containeroo.ch/agent-machine"].as_str()
            })
            .unwrap_or_default();
        let host = swapped(&vm.uuid);
        let agent = agents.iter().find(|a| text(a, "/metadata/name") == host);
        let claimed = agent
            .and_then(|a| a["metadata"]["labels"]["agentMachineRef"].as_str())
            .unwrap_or_default();
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
    let infra_envs = all(world, ASSISTED, "infraenvs");
    let url = infra_envs
        .iter()
        .map(|i| text(i, "/status/isoDownloadURL"))
        .find(|u| !u.is_empty())
        .unwrap_or_default()
        .to_owned();
    let tokens: Vec<&str> = url
        .split(['/', '?', '&', '='])
        .filter(|part| part.len() >= 32)
        .collect();
    if tokens.is_empty() {
        world.director.violated(
            Oracle::PlanFitsTheRun
                .broken(format!("the ISO's URL has no token to look for: {url:?}")),
        );
    }
    for plural in ["vsphereagents", "vsphereagentpools"] {
        for object in all(world, OURS, plural) {
            let shown = object.to_string();
            if tokens.iter().any(|t| shown.contains(t)) {
                world
                    .director
                    .violated(Oracle::NoSecretInObjects.broken(format!(
                        "{plural} {} shows the token of the ISO's URL",
                        text(&object, "/metadata/name")
                    )));
            }
        }
    }
}
