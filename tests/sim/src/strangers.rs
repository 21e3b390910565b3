//! Strangers: what belongs to somebody else and stands beside our objects. Workloads call [`enter`], so that each fault
//! of theirs hits an operator with strangers around it.
//!
//! - From the beginning: a second tenant with a pool and a VM that serves, a foreign host with our pool's labels, and
//!   an Agent without inventory.
//! - When an AgentMachine of ours appears: a VM with its name, in another folder.
//! - When the VM runs: an admin's clone of it, and a VM of a similar name in its folder. Then Agents that match it in all
//!   but one thing each (`rogue.rs`). Then a host of another cluster whose serial number is its BIOS uuid.
//!
//! Promise (`foreign_and_serving_untouched`): the operator writes, powers, destroys and deletes nothing of this. The API
//! server and vCenter check each request; [`Strangers::changed`] compares VMs and files at each rest.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agent_forge_lab::played::{
    HostedClusterPlay, Upstream,
    assisted::{INFRA_ENV_LABEL, host::HostFacts},
    nature,
    task::Task,
};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{
    kube::{ApiServer, kind},
    oracles,
    promise::{Failure, Oracle},
    rogue,
    vcenter::{
        VCenter,
        model::{Inventory, Ref, Vm},
    },
    workloads::{ANY_OUTAGE, Run},
    world::{NAMESPACE, World},
};

/// Namespace of the second tenant, and name of its hosted cluster.
pub const TENANT: &str = "tenant";
/// Seed of the tenant's random values. Those of the workload stay as they are without a tenant.
const SEED: u64 = 1 << 33;
/// The tenant's VM is older than any backup that a vCenter comes back from.
const SETTLED: Duration = Duration::from_secs(180);

/// VMs and files of strangers as they have to stay. VMs have their tags with them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Theirs {
    vms: BTreeMap<String, (Vm, usize)>,
    files: Vec<(String, String)>,
    /// The VsphereAgent in the marker of the admin's clone, as `namespace/name`.
    cloned: Option<String>,
}

impl Theirs {
    fn add(&mut self, inventory: &Inventory, id: &str) {
        self.vms
            .extend(shown(inventory, id).map(|vm| (id.to_owned(), vm)));
    }

    /// What differs in that inventory.
    fn changed(&self, inventory: &Inventory) -> Vec<Failure> {
        let changed = self
            .vms
            .iter()
            .filter(|(id, vm)| shown(inventory, id).as_ref() != Some(vm))
            .map(|(id, (vm, _))| format!("foreign: the VM {} ({id}) is not as it was", vm.name));
        let gone = self
            .files
            .iter()
            .filter(|file| !inventory.files.contains_key(*file))
            .map(|(store, path)| format!("foreign: the file [{store}] {path} is gone"));
        let all = changed.chain(gone);
        all.map(|what| Oracle::ForeignAndServingUntouched.broken(what))
            .collect()
    }
}

fn shown(inventory: &Inventory, id: &str) -> Option<(Vm, usize)> {
    let tags = inventory.tags.get(id).map_or(0, |tags| tags.len());
    inventory.vms.get(id).map(|vm| (vm.clone(), tags))
}

/// The strangers of a world. What they do ends when this is dropped.
pub struct Strangers {
    theirs: Arc<Mutex<Theirs>>,
    _tenant: (Upstream, HostedClusterPlay),
    _guests: Task,
}

impl Strangers {
    /// Whether the operator reports the admin's clone with an Event for that object. It does so every 50 minutes.
    #[must_use]
    pub fn is_reported(&self, key: &str) -> bool {
        lock(&self.theirs).cloned.as_deref() == Some(key)
    }

    /// Checks `foreign_and_serving_untouched` for VMs and files.
    #[must_use]
    pub fn changed(&self, inventory: &Inventory) -> Vec<Failure> {
        lock(&self.theirs).changed(inventory)
    }
}

fn lock(theirs: &Mutex<Theirs>) -> MutexGuard<'_, Theirs> {
    theirs.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts all strangers into the world. Afterwards the second tenant is at rest, and the workload's own part begins.
///
/// # Errors
/// The tenant's machine does not come up, or the API server refuses.
pub async fn enter(run: &mut Run) -> Result<()> {
    let theirs = Arc::<Mutex<Theirs>>::default();
    hosts(&run.world).await?;
    let tenant = tenant(&mut run.world, run.patience + ANY_OUTAGE).await?;
    run.quiet().await?;
    tokio::time::sleep(SETTLED).await;
    own(&run.world, &theirs);
    let (api, vcenter) = (run.world.api.clone(), run.world.vcenter.clone());
    let guests = Task::spawn(impostors(api, vcenter, theirs.clone()));
    run.world.strangers = Some(Strangers {
        theirs,
        _tenant: tenant,
        _guests: guests,
    });
    run.begins = run.world.director.now();
    Ok(())
}

/// A free host that nobody has approved and that carries our pool's labels, and an Agent that shows no inventory yet.
async fn hosts(world: &World) -> Result<()> {
    let labels = json!({
        "customer": "example", "hypershift.openshift.io/nodepool-role": "w", INFRA_ENV_LABEL: "demo",
    });
    let facts = HostFacts::bare_metal(1);
    let metal = (NAMESPACE.to_owned(), facts.id.clone());
    let service = world.upstream.service(NAMESPACE)?;
    service.register("demo", facts).await?;
    let agents = kind("agents");
    let patch = json!({"metadata": {"labels": labels}, "spec": {"hostname": "metal"}});
    world.api.merge(&agents, &metal, &patch)?;
    world.api.write(|s, _| s.foreign.insert((agents, metal)));
    let bare = "0a000000-0000-4000-8000-0000000000f3";
    rogue::put(&world.api, bare, labels, &json!({}))
}

/// A second tenant whose only machine serves.
async fn tenant(world: &mut World, patience: Duration) -> Result<(Upstream, HostedClusterPlay)> {
    let (seed, drawn) = nature::draw_from(SEED, 0).context("a simulation")?;
    let (upstream, play) = world.another_tenant(TENANT, "w").await?;
    play.scale(1);
    let serves = || play.running().len() == 1;
    world
        .patiently("the tenant's machine", patience, serves)
        .await?;
    nature::draw_from(seed, drawn);
    Ok((upstream, play))
}

/// From now on, everything of the tenant has to stay as it is.
fn own(world: &World, theirs: &Mutex<Theirs>) {
    world.api.write(|s, _| {
        let all = s.objects.iter().flat_map(|(kind, objects)| {
            let of_tenant = objects.keys().filter(|name| name.0.starts_with(TENANT));
            of_tenant.map(|name| (kind.clone(), name.clone()))
        });
        let all: Vec<_> = all.collect();
        s.foreign.extend(all);
    });
    let mut theirs = lock(theirs);
    world.vcenter.read(|i| {
        for id in i.vms.keys() {
            theirs.add(i, id);
        }
        theirs.files = i.files.keys().cloned().collect();
    });
}

/// Adds what looks like the first machine of ours, once there is one.
async fn impostors(api: ApiServer, vcenter: VCenter, theirs: Arc<Mutex<Theirs>>) {
    let wanted = || {
        let all = api.list(&kind("agentmachines"), "");
        let mut ours = all.iter().filter(|m| !of_tenant(m));
        ours.next().map(|m| m["metadata"]["name"].clone())
    };
    let name = until(wanted).await;
    let root = Ref::new("Folder", "group-v3");
    let namesake = foreign(name.as_str().unwrap_or_default(), &root, 1);
    let runs = || {
        let ours = |vm: &&Vm| oracles::marker(vm).is_some_and(|m| m.namespace != TENANT) && vm.on;
        vcenter.read(|i| i.vms.values().find(ours).cloned())
    };
    add(&vcenter, &theirs, namesake);
    let vm = until(runs).await;
    let similar = foreign(&format!("{}-old", vm.name), &vm.folder, 2);
    let clone = Vm {
        extra: vm.extra.clone(),
        devices: vm.devices.clone(),
        on: false,
        boots: 0,
        ..foreign(&format!("{}-clone", vm.name), &vm.folder, 3)
    };
    add(&vcenter, &theirs, similar);
    let owner = oracles::marker(&vm).map(|m| format!("{}/{}", m.namespace, m.name));
    lock(&theirs).cloned = owner;
    add(&vcenter, &theirs, marked_as_copy(clone));
    let serial = vm.uuid.replace('-', "");
    let labels = json!({INFRA_ENV_LABEL: "demo", "agentMachineRef": "somebodys"});
    let elsewhere = rogue::host("HPE", &serial, "94:40:c9:00:00:07");
    let registered = rogue::all_but_one_thing(&api, &vm).and_then(|()| {
        rogue::put(
            &api,
            "0a000000-0000-4000-8000-0000000000f8",
            labels,
            &elsewhere,
        )
    });
    // A namespace that is being deleted takes no Agents.
    if let Err(e) = registered {
        api.director.line(|| format!("no rogue Agents: {e:#}"));
    }
}

/// Whether an object belongs to the second tenant.
fn of_tenant(object: &Value) -> bool {
    let namespace = object["metadata"]["namespace"].as_str();
    namespace.is_some_and(|n| n.starts_with(TENANT))
}

async fn until<T>(look: impl Fn() -> Option<T>) -> T {
    loop {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// A VM of somebody else, with that number in its ids.
fn foreign(name: &str, folder: &Ref, number: u8) -> Vm {
    Vm {
        object: Ref::new("VirtualMachine", format!("vm-theirs-{number}")),
        name: name.to_owned(),
        folder: folder.clone(),
        uuid: format!("42310000-0000-4000-8000-0000000000f{number}"),
        instance_uuid: format!("50310000-0000-4000-8000-0000000000f{number}"),
        path: format!("[ds-0] {name}-theirs/{name}.vmx"),
        ..Vm::somebodys()
    }
}

fn marked_as_copy(mut vm: Vm) -> Vm {
    vm.extra.insert(oracles::COPY.to_owned(), "true".to_owned());
    vm
}

fn add(vcenter: &VCenter, theirs: &Mutex<Theirs>, vm: Vm) {
    let id = vm.object.id.clone();
    vcenter.write(|i| {
        i.vms.insert(id.clone(), vm);
        lock(theirs).add(i, &id);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vcenter::model::{File, furnished};

    #[test]
    fn each_change_of_a_vm_or_file_is_found() {
        let mut inventory = furnished("u", "p");
        let file = ("ds-0".to_owned(), "agent-forge/tenant/w/a.iso".to_owned());
        inventory.files.insert(file.clone(), File::default());
        let mut theirs = Theirs {
            files: vec![file.clone()],
            ..Theirs::default()
        };
        theirs.add(&inventory, "vm-1");
        let mut found = vec![theirs.changed(&inventory)];
        let mut change = |change: &dyn Fn(&mut Inventory)| {
            change(&mut inventory);
            found.push(theirs.changed(&inventory));
        };
        change(&|i| i.vms.get_mut("vm-1").expect("a VM").on = false);
        change(&|i| i.vms.get_mut("vm-1").expect("a VM").on = true);
        change(&|i| drop(i.tags.insert("vm-1".into(), ["tag".to_owned()].into())));
        change(&|i| drop(i.files.remove(&file)));
        change(&|i| drop(i.vms.remove("vm-1")));
        let counts: Vec<usize> = found.iter().map(Vec::len).collect();
        assert_eq!(counts, [0, 1, 0, 1, 2, 2]);
    }
}
