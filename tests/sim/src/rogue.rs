//! Foreign hosts: each registers with everything that identifies one of our VMs, except for one thing.
//!
//! Promise (`foreign_and_serving_untouched`): the operator never approves, labels or deletes one of them, whatever goes
//! wrong. Our own machine comes up beside them, or waits and reports which Agent it waits for.

use agent_forge_lab::played::{assisted::INFRA_ENV_LABEL, guests::identity};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{
    kube::{ApiServer, kind},
    oracles::{marker, serves},
    vcenter::model::Vm,
    world::{NAMESPACE, World},
};

/// The first VM of ours that is on, once there is one.
///
/// # Errors
/// There is none in time.
pub async fn running(world: &World, patience: std::time::Duration) -> Result<Vm> {
    let find = || {
        let ours = |vm: &&Vm| marker(vm).is_some() && vm.on;
        world.vcenter.read(|i| i.vms.values().find(ours).cloned())
    };
    world
        .patiently("a VM of ours runs", patience, || find().is_some())
        .await?;
    find().context("it went again")
}

fn inventory(vm: &Vm, mac: &str) -> Value {
    host("VMware, Inc.", &identity::serial(&vm.uuid), mac)
}

/// The status of an Agent on a host with that manufacturer, serial number and MAC address.
#[must_use]
pub fn host(manufacturer: &str, serial: &str, mac: &str) -> Value {
    json!({"inventory": {
        "hostname": "rogue", "bmcAddress": "0.0.0.0", "boot": {}, "cpu": {}, "memory": {},
        "interfaces": [{"name": "ens1", "macAddress": mac, "flags": [], "ipV4Addresses": [], "ipV6Addresses": []}],
        "systemVendor": {
            "manufacturer": manufacturer, "productName": "VMware20,1", "serialNumber": serial,
        },
    }})
}

fn mac(vm: &Vm) -> String {
    let found = vm.devices.iter().find_map(|d| d["macAddress"].as_str());
    found.unwrap_or_default().to_owned()
}

/// Adds a foreign Agent with that labels and status. From then on the operator may not write it.
///
/// # Errors
/// The API server refuses.
pub fn put(api: &ApiServer, name: &str, labels: Value, status: &Value) -> Result<()> {
    let agents = kind("agents");
    let object = json!({
        "apiVersion": "agent-install.openshift.io/v1beta1", "kind": "Agent",
        "metadata": {"name": name, "labels": labels},
        "spec": {"approved": false, "role": ""},
    });
    let key = (NAMESPACE.to_owned(), name.to_owned());
    api.write(|s, now| {
        s.create(&agents, NAMESPACE, object, now)?;
        s.foreign.insert((agents.clone(), key.clone()));
        s.set_status(&agents, &key, status, now)
    })?;
    Ok(())
}

/// Makes the Agent look as if it had existed long before.
fn age(api: &ApiServer, name: &str) {
    let agents = kind("agents");
    let key = (NAMESPACE.to_owned(), name.to_owned());
    api.write(|s, now| {
        if let Some(agent) = s.get(&agents, &key) {
            let mut agent = agent.as_ref().clone();
            agent["metadata"]["creationTimestamp"] = json!("2025-12-31T00:00:00Z");
            s.replace(&agents, &key, agent, now);
        }
    });
}

/// Registers one foreign host of each kind, for that VM of ours.
///
/// # Errors
/// The API server refuses.
pub fn all_but_one_thing(api: &ApiServer, vm: &Vm) -> Result<()> {
    let label = |infra_env: &str| json!({INFRA_ENV_LABEL: infra_env});
    let mut metal = label("demo");
    metal["agent-install.openshift.io/bmh"] = json!("host-7");
    let other = inventory(vm, "02:00:00:00:00:07");
    let ours = inventory(vm, &mac(vm));
    let elsewhere = "0a000000-0000-4000-8000-0000000000f7";
    // No real host has such names, so each of these Agents matches in all but one thing.
    put(api, elsewhere, label("demo"), &ours)?;
    put(api, "rogue-mac", label("demo"), &other)?;
    put(api, "rogue-infra", label("other"), &ours)?;
    put(api, "rogue-metal", metal, &ours)?;
    put(api, "rogue-early", label("demo"), &ours)?;
    age(api, "rogue-early");
    Ok(())
}

/// Registers a host that matches our VM completely, under the VM's other name, when the VM's own Agent registers.
/// Returns its name, and whether the VM's own Agent serves already. It serves already when vCenter hid the VM for a
/// while.
///
/// # Errors
/// No VM or no Agent comes in time, or the API server refuses.
pub async fn rival(world: &World, patience: std::time::Duration) -> Result<(String, bool)> {
    let vm = running(world, patience).await?;
    let own = (NAMESPACE.to_owned(), identity::swapped(&vm.uuid));
    let agents = kind("agents");
    let there = || world.api.get(&agents, &own).is_some();
    world
        .patiently("its Agent registers", patience, there)
        .await?;
    let own = world.api.get(&agents, &own);
    let late = own.is_some_and(|a| serves(&a));
    let labels = json!({INFRA_ENV_LABEL: "demo"});
    put(&world.api, &vm.uuid, labels, &inventory(&vm, &mac(&vm)))?;
    Ok((vm.uuid, late))
}

/// A person deletes the foreign Agent.
pub fn remove(world: &World, name: &str) {
    let key = (NAMESPACE.to_owned(), name.to_owned());
    let agents = kind("agents");
    world.api.write(|s, now| {
        s.foreign.remove(&(agents.clone(), key.clone()));
        s.evict(&agents, &key, now);
    });
}
