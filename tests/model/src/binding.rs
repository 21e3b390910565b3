//! Hosts that exist before anybody asks for them (`docs/explanation/late-binding.md`): VMs that begin another life, and free
//! hosts that change their pool.
//!
//! A VM's life is the number that its last renewal wrote. An Agent's life is that of the disk in its inventory. No proof of
//! the product reads that, as no VM of these worlds shows the UUID of its disk. So the oracles know what the operator has to
//! find out.

use agent_forge_actors::{
    demand::buffer::Size,
    domain::{managed_vm::ManagedVm, recycle::Stage},
    ports::vcenter::{PowerState, VmObservation},
};
use agent_forge_crds::{
    agent::VsphereAgent,
    external::agent::{Agent, CONNECTED, INVENTORY_ANNOTATION, InventoryDisk},
    pool::{ReassignSpec, ReleasePolicy, ReleaseSpec, ScalingSpec, VsphereAgentPool},
};
use kube::ResourceExt;

use crate::{
    machines::Machines,
    objects::{self, POOL, condition},
    shared::Shared,
    upstream::Deed,
    world::{Fault, List, World, bump, is_ours},
};

/// A host serves that served before.
pub const SERVES_AGAIN: &str = "a machine is served by a VM in its next life";
/// A host serves that was made by another pool.
pub const CHANGED_HANDS: &str = "a machine is served by a host of another pool";

/// Names of the pools that share hosts. The first one has a free host.
pub const GROUP: [&str; 3] = ["p", "q", "r"];

/// The states of the service.
pub mod state {
    /// The guest registers.
    pub const DISCOVERING: &str = "discovering-unbound";
    /// The guest does not answer.
    pub const DISCONNECTED: &str = "disconnected-unbound";
    /// The guest is as it should be.
    pub const KNOWN: &str = "known-unbound";
    /// The guest has to be started again by somebody else.
    pub const PENDING: &str = "unbinding-pending-user-action";
    /// The guest prepares its way back.
    pub const RECLAIMING: &str = "reclaiming";
    /// The guest is on its way back.
    pub const REBOOTING: &str = "reclaiming-rebooting";
}

fn with_buffer(name: &str, (wanted, most): (i32, i32)) -> VsphereAgentPool {
    let mut pool = objects::pool(name);
    pool.spec.scaling = Some(ScalingSpec {
        buffer_agents: Some(wanted),
        buffer_max: Some(most),
        ..ScalingSpec::default()
    });
    pool
}

impl Machines {
    /// A pool that recycles: the VM of machine `b` may serve `c`, which a person creates when that VM is made ready for it. Then the
    /// VM is worn out. With `hurries`, `c` comes at any moment after `b` is being deleted, and may go at any moment.
    pub fn recycle(hurries: bool, faults: &[Fault]) -> Self {
        let mut people = vec![Deed::Leaves("b".to_owned()), Deed::Comes("c".to_owned())];
        people.extend(hurries.then(|| Deed::Leaves("c".to_owned())));
        let mut model = Self::new(&["b"], false, people, 0, faults);
        let mut pool = with_buffer(POOL, (0, 1));
        pool.spec.release = Some(ReleaseSpec {
            policy: Some(ReleasePolicy::Recycle),
            max_uses: Some(2),
            ..ReleaseSpec::default()
        });
        model.set_pools(vec![pool]);
        model.start.lives = true;
        model.start.hurries = hurries;
        model.start.to_come.push("c".to_owned());
        model
    }

    /// A pool that may have one VM. Machine `b` may go at any moment. With `next`, a person then creates `c`. Otherwise the
    /// buffer wants a host.
    pub fn capped(next: bool, faults: &[Fault]) -> Self {
        let mut people = vec![Deed::Leaves("b".to_owned())];
        people.extend(next.then(|| Deed::Comes("c".to_owned())));
        let mut model = Self::new(&["b"], false, people, 0, faults);
        let wanted = i32::from(!next);
        let mut pool = with_buffer(POOL, (wanted, wanted));
        pool.spec.scaling.get_or_insert_default().max_vms = Some(1);
        model.set_pools(vec![pool]);
        model.start.lives = true;
        model.start.hurries = next;
        model.start.to_come.extend(next.then(|| "c".to_owned()));
        model
    }

    /// Pools of one group, each with its NodePool, and a free host in the buffer of the first one. `machines`: name and pool
    /// of each Machine that waits. `refills`: the first pool makes another host when that one is gone.
    pub fn reassign(machines: &[(&str, &str)], refills: bool, faults: &[Fault]) -> Self {
        let leaves = |(name, _): &(&str, &str)| Deed::Leaves((*name).to_owned());
        let people = machines.iter().map(leaves).collect();
        let mut model = Self::new(&[], false, people, 0, faults);
        model.start.lives = true;
        let group = |refills| {
            let pool = |name: &&str| {
                let wanted = i32::from(refills && **name == *GROUP[0]);
                let most = i32::from(**name == *GROUP[0]);
                let mut pool = with_buffer(name, (wanted, most));
                pool.spec.reassign = Some(ReassignSpec {
                    group: "shared".to_owned(),
                    new_disk: None,
                    max_per_namespace: None,
                });
                pool
            };
            let is_used =
                |name: &&&str| **name == GROUP[0] || machines.iter().any(|(_, pool)| pool == *name);
            GROUP.iter().filter(is_used).map(pool).collect()
        };
        model.set_pools(group(true));
        let left = model.start.left;
        let mut rested = model.start.clone();
        loop {
            let next = model.round(&rested);
            if next == rested {
                break;
            }
            rested = next;
        }
        rested.left = left;
        rested.memory.clear();
        for (name, pool) in machines {
            comes_to(&mut rested, name, pool);
        }
        model.set_pools(group(refills));
        model.start = rested;
        model
    }
}

/// The number of the life that a VM was last made ready for.
pub fn life(vm: &VmObservation) -> u32 {
    vm.generation.unwrap_or(1)
}

/// The life in which that Agent's guest reported last.
fn reported(agent: &Agent) -> u32 {
    let inventory = agent.status.as_ref().and_then(|s| s.inventory.as_ref());
    let disk = inventory.and_then(|i| i.disks.first()?.id.as_deref());
    disk.and_then(|id| id.parse().ok()).unwrap_or_default()
}

/// The guest of that Agent runs, in the present life of its VM. Where VMs have no lives, each guest does.
pub fn runs(w: &World, agent: &Agent) -> bool {
    let runs =
        |vm: &Shared<VmObservation>| vm.power == PowerState::On && reported(agent) == life(vm);
    !w.lives || w.vm_of(agent).is_some_and(runs)
}

/// The inventory shows the disk of that life, and when its guest made it. Each life begins a second after the one before.
pub fn show_life(agent: &mut Agent, life: u32, hours: u8) {
    let now = objects::at(599 + 3600 * i64::from(hours) + i64::from(life));
    let time = format!("{{\"timestamp\":{}}}", now.as_second());
    let annotations = agent.annotations_mut();
    annotations.insert(INVENTORY_ANNOTATION.to_owned(), time);
    let status = agent.status.get_or_insert_default();
    status.inventory.get_or_insert_default().disks = vec![InventoryDisk {
        id: Some(life.to_string()),
        ..InventoryDisk::default()
    }];
}

/// The service calls the host's state so.
pub fn set_state(agent: &mut Agent, state: &str) {
    let status = agent.status.get_or_insert_default();
    status.debug_info.get_or_insert_default().state = Some(state.to_owned());
}

/// What the guest of a VM that runs does next.
pub fn of_guest(w: &World, vm: &VmObservation) -> Option<Deed> {
    let id = vm.moref.id.clone();
    let Some(agent) = w.agent_on(vm) else {
        return Some(Deed::Registers(id));
    };
    if !w.lives || agent.is_claimed_or_bound() {
        return None;
    }
    let is_old = reported(agent) < life(vm);
    match agent.state() {
        state::DISCOVERING => Some(Deed::Reports(id)),
        _ if is_old => Some(Deed::Restarts(id)),
        state::REBOOTING => Some(Deed::Restarts(id)),
        state::RECLAIMING => Some(Deed::Reboots(id)),
        _ => None,
    }
}

fn change_agent(w: &mut World, vm: &str, change: impl FnOnce(&mut Agent, u32)) {
    let Some(vm) = w.vms.iter().find(|v| v.moref.id == vm) else {
        return;
    };
    let name = w.agent_on(vm).map(|a| a.name_any());
    let (name, life) = (name.unwrap_or_default(), life(vm));
    if let Some(agent) = w.agents.iter_mut().find(|a| a.name_any() == name) {
        agent.change(|agent| {
            change(agent, life);
            bump(agent);
        });
    }
}

/// The guest boots the system that the service has put on its disk.
pub fn reboots(w: &mut World, vm: &str) {
    change_agent(w, vm, |agent, _| set_state(agent, state::REBOOTING));
}

/// The guest registers again. The service keeps its inventory and its validations.
pub fn restarts(w: &mut World, vm: &str) {
    change_agent(w, vm, |agent, _| {
        set_state(agent, state::DISCOVERING);
        agent.status.get_or_insert_default().conditions = objects::free();
    });
    // No request takes as long as a boot.
    w.late = None;
}

/// The service has the inventory of the present life.
pub fn reports(w: &mut World, vm: &str) {
    let hours = w.hours;
    change_agent(w, vm, |agent, life| {
        set_state(agent, state::KNOWN);
        show_life(agent, life, hours);
    });
    // It may have booted since it registered.
    w.late = None;
}

/// An hour is longer than the service waits for a guest that does not answer.
pub fn fall_silent(w: &mut World) {
    let silent =
        |a: &&Shared<Agent>| w.vm_of(a).is_some() && !a.is_claimed_or_bound() && !runs(w, a);
    let silent: Vec<String> = w
        .agents
        .iter()
        .filter(silent)
        .map(|a| a.name_any())
        .collect();
    for agent in w.agents.iter_mut() {
        if silent.contains(&agent.name_any()) {
            agent.change(|agent| {
                if [state::DISCOVERING, state::KNOWN].contains(&agent.state()) {
                    set_state(agent, state::DISCONNECTED);
                }
                let conditions = &mut agent.status.get_or_insert_default().conditions;
                conditions.retain(|c| c.type_ != CONNECTED);
                conditions.push(condition(CONNECTED, "False", "AgentIsDisconnected"));
                bump(agent);
            });
        }
    }
}

/// The VM that is switched off between two lives.
pub fn rests(w: &World) -> Option<usize> {
    let registered = |vm: &VmObservation| w.agent_on(vm).is_some();
    let rests = |vm: &Shared<VmObservation>| vm.power == PowerState::Off && registered(vm);
    w.vms.iter().position(rests)
}

/// An administrator switches it on.
pub fn switches_on(w: &mut World) {
    if let Some(at) = rests(w) {
        w.vms[at].change(|vm| vm.power = PowerState::On);
    }
}

/// A person creates a Machine of the first pool.
pub fn comes(w: &mut World, name: &str) {
    w.to_come.retain(|waits| waits != name);
    comes_to(w, name, POOL);
}

fn comes_to(w: &mut World, name: &str, pool: &str) {
    w.agent_machines
        .push(Shared::new(objects::agent_machine(name, pool)));
    w.machines.push(Shared::new(objects::machine(name)));
    w.agent_machines.sort_by_key(|am| am.name_any());
    w.machines.sort_by(|a, b| a.key.name.cmp(&b.key.name));
}

/// A Machine comes only after all others are gone, or are being deleted if it hurries.
pub fn may_come(w: &World, name: &str) -> bool {
    let in_time = if w.hurries {
        w.machines.iter().all(|m| m.deleting)
    } else {
        w.machines.is_empty() && w.vms.iter().any(|vm| life(vm) > 1)
    };
    in_time && w.to_come.iter().any(|waits| waits == name)
}

/// Whether that VsphereAgent waits in the buffer, with that Agent ready to serve.
pub fn waits_with(w: &World, child: &Shared<VsphereAgent>, agent: &Agent) -> bool {
    let child = ManagedVm::read(child.arc());
    let own = w.vm_of(agent).and_then(|vm| vm.bios_uuid);
    child.in_buffer
        && !child.deleting
        && !child.given_up
        && child.recycling() == Stage::No
        && own.is_some()
        && own == child.identity.as_ref().map(|i| i.bios_uuid)
        && agent.state() == state::KNOWN
        && agent.spec.approved
        && runs(w, agent)
}

/// Whether that VsphereAgent waits in the buffer, ready to serve.
pub fn waits(w: &World, child: &Shared<VsphereAgent>) -> bool {
    w.agents.iter().any(|agent| waits_with(w, child, agent))
}

/// What is wrong at rest with hosts that are bound late.
pub fn unrest(model: &Machines, w: &World) -> Option<String> {
    if !w.lives {
        return None;
    }
    let read = |all: &List<VsphereAgent>| -> Vec<ManagedVm> {
        all.iter().map(|c| ManagedVm::read(c.arc())).collect()
    };
    let children = read(&w.children);
    for pool in model.pools() {
        let scaling = pool.spec.scaling.clone().unwrap_or_default();
        let (size, _) = Size::read(&scaling, false, objects::at(0));
        let own = children.iter();
        let own = own.filter(|c| c.object.spec.pool_ref.name == pool.name_any());
        let (waiting, others): (Vec<_>, Vec<_>) = own.partition(|c| c.in_buffer);
        let room = scaling.max_vms.map_or(usize::MAX, |max| {
            usize::try_from(max)
                .unwrap_or_default()
                .saturating_sub(others.len())
        });
        let count = waiting.len();
        if count < size.wanted.min(room) || count > size.most {
            return Some(format!(
                "pool {} has {count} hosts that wait",
                pool.name_any()
            ));
        }
    }
    for child in &children {
        let record = child.identity.as_ref().map(|i| i.bios_uuid);
        let mut owned = w.vms.iter().filter(|vm| vm.bios_uuid == record);
        let other =
            |vm: &Shared<VmObservation>| vm.marker.as_ref().is_some_and(|m| m.uid != child.uid);
        if owned.any(other) {
            return Some(format!("{} records a VM of another one", child.key));
        }
    }
    None
}

fn serving(w: &World) -> impl Iterator<Item = &Shared<VmObservation>> {
    let serves = |vm: &&Shared<VmObservation>| {
        let agent = w.agent_on(vm);
        is_ours(vm) && agent.is_some_and(|a| a.is_claimed_or_bound())
    };
    w.vms.iter().filter(serves)
}

/// See [`SERVES_AGAIN`].
pub fn serves_again(w: &World) -> bool {
    w.lives && serving(w).any(|vm| life(vm) > 1)
}

/// See [`CHANGED_HANDS`].
pub fn changed_hands(w: &World) -> bool {
    // The first pool named it.
    let taken = |c: &Shared<VsphereAgent>| {
        c.name_any().starts_with(GROUP[0]) && c.spec.pool_ref.name != GROUP[0]
    };
    let owner = |vm: &VmObservation| vm.marker.as_ref().map(|m| m.uid.clone());
    let took = |uid: &String| {
        let mut all = w.children.iter();
        all.any(|c| c.metadata.uid.as_ref() == Some(uid) && taken(c))
    };
    w.lives && serving(w).any(|vm| owner(vm).is_some_and(|uid| took(&uid)))
}
