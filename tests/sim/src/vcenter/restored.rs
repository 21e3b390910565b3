//! A vCenter that comes back from its backup (fault `vcenter_restored`): its inventory is some minutes old.
//!
//! Facts: the backup is vCenter's own. Hosts and datastores are not restored, so hosts keep running, and vCenter shows
//! their state for what both know.
//! - A VM that was created after the backup is adrift. It runs and its files exist, but the inventory does not contain
//!   it until somebody registers it under another reference.
//! - A VM that was destroyed after the backup is a ghost. It is in the inventory, switched off and without files.
//! - Sessions and tasks are gone.
//! - Folders and tags stay as they are. A real backup would restore them too.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;

use super::{
    VCenter, files,
    model::{Inventory, Ref, Vm},
};
use crate::{
    kube::{ApiServer, kind, store::Store},
    oracles,
};

/// How old the backup is.
const AGE: Duration = Duration::from_secs(180);
/// How long the vCenter is unreachable in the meantime.
const AWAY: Duration = Duration::from_secs(60);
/// When a person has corrected the inventory: after two orphan scans.
pub const MENDED: Duration = Duration::from_secs(1500);

/// What a backup does not contain, and what it contains although it is gone.
#[derive(Debug, Default)]
pub struct Drift {
    /// Whether the vCenter was ever restored.
    pub restored: bool,
    /// VMs that were created, and when.
    made: Vec<(Duration, String)>,
    /// VMs that were destroyed, and when.
    destroyed: Vec<(Duration, Vm)>,
    /// VMs that run but are not in the inventory.
    pub adrift: Vec<Vm>,
    /// VMs that are in the inventory but do not exist.
    pub ghosts: BTreeSet<String>,
    /// For a VM that was registered again: the id by which its guest knew it, by its present id.
    pub former: BTreeMap<String, String>,
}

impl Drift {
    /// Notes that a VM was created.
    pub fn note_made(&mut self, vm: &Ref, now: Duration) {
        self.made.push((now, vm.id.clone()));
    }

    /// Notes that a VM was destroyed.
    pub fn note_destroyed(&mut self, vm: Vm, now: Duration) {
        self.destroyed.push((now, vm));
    }
}

impl VCenter {
    /// Restores the vCenter from its backup. Some time later, a person who knows the hub corrects the inventory.
    pub fn come_back(&self, api: &ApiServer) {
        let director = self.director.clone();
        let since = director.now().saturating_sub(AGE);
        director.take_vcenter(AWAY);
        director.mend(MENDED);
        let lost = self.write(|i| i.lose(since));
        director.note_lost(lost);
        director.line(|| format!("vCenter of {AGE:?} ago: {lost} VMs are adrift"));
        let (me, api) = (self.clone(), api.clone());
        tokio::spawn(async move {
            tokio::time::sleep(MENDED).await;
            let mended = api.read(|store| me.write(|i| i.mend(store)));
            me.director
                .line(|| format!("the inventory is put right: {mended:?}"));
        });
    }
}

impl Inventory {
    /// Restores the inventory of that time. Returns how many VMs it lost.
    fn lose(&mut self, since: Duration) -> u32 {
        self.drift.restored = true;
        self.sessions.clear();
        self.tasks.clear();
        self.pages.clear();
        let made = std::mem::take(&mut self.drift.made);
        let mut lost = 0;
        for (_, id) in made.iter().filter(|(at, _)| *at >= since) {
            if let Some(vm) = self.vms.remove(id) {
                self.drift.adrift.push(vm);
                lost += 1;
            }
        }
        for (at, vm) in std::mem::take(&mut self.drift.destroyed) {
            let new = made
                .iter()
                .any(|(at, id)| *at >= since && *id == vm.object.id);
            if at >= since && !new {
                self.drift.ghosts.insert(vm.object.id.clone());
                self.vms.insert(vm.object.id.clone(), vm);
            }
        }
        lost
    }

    /// A person registers the VMs that are adrift and still recorded. The person removes the others, and the ghosts.
    fn mend(&mut self, store: &Store) -> (usize, usize) {
        for id in std::mem::take(&mut self.drift.ghosts) {
            self.remove_vm(&id);
        }
        let adrift = std::mem::take(&mut self.drift.adrift);
        let (wanted, others): (Vec<Vm>, Vec<Vm>) =
            adrift.into_iter().partition(|vm| is_recorded(store, vm));
        let counts = (wanted.len(), others.len());
        for mut vm in wanted {
            let old = vm.object.id.clone();
            let id = format!("vm-{}", self.number());
            vm.object = Ref::new("VirtualMachine", id.clone());
            vm.busy = false;
            // Tags belong to the reference and are lost with it.
            self.tags.remove(&old);
            self.drift.former.insert(id.clone(), old);
            self.vms.insert(id, vm);
        }
        for vm in others {
            // The VM does not exist. Its guest notices that.
            self.remove_vm(&vm.object.id);
            if let Ok(file) = files::split(&vm.path) {
                self.files.remove(&file);
            }
        }
        counts
    }
}

/// Whether a VsphereAgent records that VM, or it is a node. A person knows a node even if a hub lost its record.
fn is_recorded(store: &Store, vm: &Vm) -> bool {
    if vm.node.is_some() {
        return true;
    }
    let Some(marker) = oracles::marker(vm) else {
        return true;
    };
    let children = kind("vsphereagents");
    let child = store.get(&children, &(marker.namespace.clone(), marker.name.clone()));
    child.is_some_and(|c| {
        let attempt = c.pointer("/status/vm/attempt").and_then(Value::as_u64);
        let uuid = c.pointer("/status/vm/biosUUID").and_then(Value::as_str);
        c["metadata"]["uid"] == marker.uid.as_str()
            && attempt == Some(u64::from(marker.attempt))
            && uuid == Some(vm.uuid.as_str())
    })
}
