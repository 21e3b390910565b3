//! Checks `nothing_leaks` and `one_vm_per_agent_machine` after each change in vCenter, without a look at all VMs. A
//! thousand machines make five thousand changes.

use std::collections::{BTreeMap, BTreeSet};

use agent_forge_actors::domain::marker::Marker;
use agent_forge_crds::names::AGENT_MACHINE_UID_ANNOTATION;
use agent_forge_lab::played::guests::identity;

use serde_json::Value;

use super::{ASSISTED, OURS, is_answered_for, is_known, leak, marker, owner, text};
use crate::{
    kube::{
        kind,
        store::{Name, Store},
    },
    promise::{Failure, Oracle},
    vcenter::model::Inventory,
};

/// Whether the Agent of that VsphereAgent's VM is claimed by an AgentMachine of another control plane than the recorded
/// one.
fn serves_elsewhere(store: &Store, child: &Value) -> bool {
    let host = identity::swapped(text(child, "/status/vm/biosUUID"));
    let home = text(child, "/status/vm/agentMachineRef/namespace");
    let agents = store.objects.get(&kind(ASSISTED, "agents"));
    let mut agents = agents.into_iter().flatten();
    let agent = agents.find(|((_, name), _)| *name == host);
    agent.is_some_and(|(_, agent)| {
        let claimed = text(agent, "/metadata/annotations/agentMachineRefNamespace");
        !claimed.is_empty() && claimed != home
    })
}

/// Which VsphereAgent each marked VM belongs to, and whether that one holds it. The result equals a look at all VMs,
/// but only VMs and VsphereAgents that changed are looked at.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// How many changes of VMs, and lines of the API server's log, were read so far.
    read: (usize, usize),
    /// Number of backups of the API server that were restored. They bring objects that are not in its log.
    disasters: usize,
    markers: BTreeMap<String, Marker>,
    /// The VMs of each VsphereAgent.
    vms: BTreeMap<Name, BTreeSet<String>>,
    leaking: BTreeSet<String>,
}

impl Ledger {
    pub(super) fn keep_up(&mut self, store: &Store, inventory: &Inventory) {
        let (vms, lines) = self.read;
        self.read = (inventory.vms.version(), store.log.len());
        let mut suspects = inventory.vms.since(vms);
        for id in &suspects {
            self.forget(id);
            if let Some(marker) = inventory.vms.get(id).and_then(marker) {
                let all = self.vms.entry(owner(&marker)).or_default();
                all.insert(id.clone());
                self.markers.insert(id.clone(), marker);
            }
        }
        if store.disasters.len() != self.disasters {
            self.disasters = store.disasters.len();
            suspects.extend(self.markers.keys().cloned());
        }
        let children = kind(OURS, "vsphereagents");
        for entry in store.log[lines..].iter().filter(|e| e.kind == children) {
            let name = text(&entry.object, "/metadata/name").to_owned();
            let vms = self.vms.get(&(entry.namespace.clone(), name));
            suspects.extend(vms.into_iter().flatten().cloned());
        }
        for id in suspects {
            let known = inventory
                .vms
                .get(&id)
                .is_none_or(|vm| is_known(inventory, vm));
            match self.markers.get(&id) {
                Some(marker) if !known && !is_answered_for(store, marker) => {
                    self.leaking.insert(id)
                }
                _ => self.leaking.remove(&id),
            };
        }
    }

    fn forget(&mut self, id: &str) {
        let Some(marker) = self.markers.remove(id) else {
            return;
        };
        let owner = owner(&marker);
        if let Some(all) = self.vms.get_mut(&owner) {
            all.remove(id);
            if all.is_empty() {
                self.vms.remove(&owner);
            }
        }
    }

    /// Checks `nothing_leaks`: every marked VM has its VsphereAgent, which its finalizer holds.
    pub(super) fn no_leak(&self, broken: &mut Vec<Failure>) {
        let leaking = self.leaking.iter();
        let known = leaking.filter_map(|id| Some((id, self.markers.get(id)?)));
        broken.extend(known.map(|(id, marker)| leak(id, marker)));
    }

    /// Checks `one_vm_per_agent_machine`, over all VsphereAgents of an AgentMachine.
    pub(super) fn one_each(&self, store: &Store, broken: &mut Vec<Failure>) {
        for ((namespace, name), all) in self.vms.iter().filter(|(_, all)| all.len() > 1) {
            let count = all.len();
            broken.push(
                Oracle::OneVmPerAgentMachine.broken(format!("{namespace}/{name} has {count} VMs")),
            );
        }
        let children = kind(OURS, "vsphereagents");
        let mut hosts: BTreeMap<String, Vec<&Name>> = BTreeMap::new();
        for owner in self.vms.keys() {
            let child = store.get(&children, owner);
            let annotations = child
                .as_ref()
                .and_then(|c| c.pointer("/metadata/annotations"));
            let wanted_by = annotations.and_then(|a| a[AGENT_MACHINE_UID_ANNOTATION].as_str());
            let elsewhere = child.as_ref().is_some_and(|c| serves_elsewhere(store, c));
            if let Some(uid) = wanted_by.filter(|_| !elsewhere) {
                hosts.entry(uid.to_owned()).or_default().push(owner);
            }
        }
        for (uid, owners) in hosts.iter().filter(|(_, owners)| owners.len() > 1) {
            broken.push(
                Oracle::OneVmPerAgentMachine
                    .broken(format!("{owners:?} have a VM each for AgentMachine {uid}")),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_forge_actors::domain::marker::MARKER_KEY;
    use agent_forge_crds::names::AGENT_FINALIZER;
    use serde_json::json;

    use super::*;
    use crate::{
        kube::store::{Moment, Served, Via},
        vcenter::model::{Ref, Vm, furnished},
    };

    const NAMES: [&str; 3] = ["a", "b", "c"];

    fn now() -> Moment {
        Moment {
            wall: jiff::Timestamp::UNIX_EPOCH,
            since: std::time::Duration::ZERO,
        }
    }

    fn store() -> Store {
        let mut store = Store::default();
        let served = |kind: &str, namespaced| Served {
            kind: kind.into(),
            versions: vec!["v1".into()],
            namespaced,
            status: namespaced,
        };
        store.serve("", "namespaces", served("Namespace", false));
        store.serve(OURS, "vsphereagents", served("VsphereAgent", true));
        let namespace = json!({"metadata": {"name": "n"}});
        let made = store.create(&kind("", "namespaces"), "", namespace, now());
        assert!(made.is_ok(), "{made:?}");
        store
    }

    fn name(chance: &mut fastrand::Rng) -> Name {
        let name = NAMES[chance.usize(..NAMES.len())];
        ("n".to_owned(), name.to_owned())
    }

    /// A random change. A VsphereAgent is created, loses its finalizer, or is deleted. Or all objects get new uids,
    /// which the log does not show. Or a VM is created, deleted, marked again, or becomes a node or no longer is one.
    fn happen(store: &mut Store, inventory: &mut Inventory, chance: &mut fastrand::Rng) {
        let (children, name) = (kind(OURS, "vsphereagents"), name(chance));
        let uid = |store: &Store| {
            let child = store.get(&children, &name);
            child.map_or_else(
                || "gone".to_owned(),
                |c| text(&c, "/metadata/uid").to_owned(),
            )
        };
        let marked = |uid: &str| {
            let marker = Marker {
                cluster_id: "c".to_owned(),
                namespace: name.0.clone(),
                name: name.1.clone(),
                uid: uid.to_owned(),
                attempt: 1,
            };
            BTreeMap::from([(MARKER_KEY.to_owned(), marker.to_string())])
        };
        let ids: Vec<String> = inventory.vms.keys().cloned().collect();
        let id = ids[chance.usize(..ids.len())].clone();
        match chance.u8(..8) {
            0 => {
                let finalizers = [AGENT_FINALIZER];
                let child = json!({"metadata": {"name": name.1, "finalizers": finalizers}});
                // The object may exist already.
                let _ = store.create(&children, &name.0, child, now());
            }
            1 => {
                let bare = |mut child: Value| {
                    child["metadata"]["finalizers"] = json!([]);
                    child
                };
                // The object may be missing.
                let _ = store.update(&children, &name, (Via::Put, false), now(), bare);
            }
            2 => store.evict(&children, &name, now()),
            3 => {
                let id = format!("vm-{}", inventory.number());
                let made = Vm {
                    object: Ref::new("VirtualMachine", &id),
                    extra: marked(&uid(store)),
                    ..inventory.vms["vm-1"].clone()
                };
                inventory.vms.insert(id, made);
            }
            4 => store.rebear(&["n"], &[]),
            5 if id != "vm-1" => {
                if let Some(vm) = inventory.vms.get_mut(&id) {
                    vm.node = vm.node.is_none().then(|| vm.name.clone());
                }
            }
            6 if id != "vm-1" => drop(inventory.vms.remove(&id)),
            _ if id != "vm-1" => {
                let extra = marked(&uid(store));
                if let Some(vm) = inventory.vms.get_mut(&id) {
                    vm.extra = extra;
                }
            }
            _ => {}
        }
    }

    #[test]
    fn two_vsphere_agents_for_one_agent_machine_have_no_two_vms() {
        let (mut store, mut inventory) = (store(), furnished("u", "p"));
        let mut ledger = Ledger::default();
        for (n, (name, wanted_by)) in [("a", "x"), ("b", "y"), ("c", "x")].into_iter().enumerate() {
            let made = json!({"metadata": {"name": name, "finalizers": [AGENT_FINALIZER],
                "annotations": {AGENT_MACHINE_UID_ANNOTATION: wanted_by}}});
            let made = store.create(&kind(OURS, "vsphereagents"), "n", made, now());
            let made = made.expect("it is new");
            let marker = Marker {
                cluster_id: "c".to_owned(),
                namespace: "n".to_owned(),
                name: name.to_owned(),
                uid: text(&made, "/metadata/uid").to_owned(),
                attempt: 1,
            };
            let id = format!("vm-{name}");
            let vm = Vm {
                object: Ref::new("VirtualMachine", &id),
                extra: BTreeMap::from([(MARKER_KEY.to_owned(), marker.to_string())]),
                ..inventory.vms["vm-1"].clone()
            };
            inventory.vms.insert(id, vm);
            ledger.keep_up(&store, &inventory);
            let mut broken = Vec::new();
            ledger.one_each(&store, &mut broken);
            assert_eq!(broken.len(), usize::from(n == 2), "{broken:?}");
        }
    }

    #[test]
    fn the_ledger_finds_what_a_look_at_all_finds() {
        let (mut leaks, mut doubles) = (0, 0);
        for seed in 0..40 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let (mut store, mut inventory) = (store(), furnished("u", "p"));
            let mut ledger = Ledger::default();
            for _ in 0..60 {
                happen(&mut store, &mut inventory, &mut chance);
                if chance.bool() {
                    continue;
                }
                ledger.keep_up(&store, &inventory);
                let (mut all, mut kept) = (Vec::new(), Vec::new());
                super::super::no_leak(&store, &inventory, &mut all);
                ledger.no_leak(&mut kept);
                assert_eq!(kept, all, "seed {seed}");
                leaks += all.len();
                let mut kept = Vec::new();
                ledger.one_each(&store, &mut kept);
                let mut counts: BTreeMap<Name, u32> = BTreeMap::new();
                for marker in inventory.vms.values().filter_map(marker) {
                    *counts.entry(owner(&marker)).or_default() += 1;
                }
                assert_eq!(kept.len(), counts.values().filter(|n| **n > 1).count());
                doubles += kept.len();
            }
        }
        assert!(
            leaks > 100 && doubles > 100,
            "{leaks} leaks, {doubles} doubles"
        );
    }
}
