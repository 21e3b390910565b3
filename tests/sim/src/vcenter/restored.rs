//! A vCenter that comes back from its backup (g12): the inventory of some minutes ago.
//!
//! Facts: the backup is vCenter's own. Hosts run on, datastores are as they are, and what both sides know is shown as the
//! hosts have it. A VM made since then is adrift: it runs, its files lie there, and the inventory has nothing of it until
//! somebody registers it again, under another reference. One destroyed since then is a ghost: in the inventory, switched
//! off, without files. Sessions and tasks are gone. Folders and tags stay as they are, which a backup would not give.

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
    oracles::{self, OURS},
};

/// How old the backup is.
const AGE: Duration = Duration::from_secs(180);
/// How long the vCenter is away meanwhile.
const AWAY: Duration = Duration::from_secs(60);
/// When a person has put the inventory right: after two scans for VMs that are nobody's.
pub const MENDED: Duration = Duration::from_secs(1500);

/// What a backup does not know, and what it knows too much of.
#[derive(Debug, Default)]
pub struct Drift {
    /// Whether the vCenter ever came back from a backup.
    pub restored: bool,
    /// VMs that were made, and when.
    made: Vec<(Duration, String)>,
    /// VMs that were destroyed, and when.
    destroyed: Vec<(Duration, Vm)>,
    /// VMs that run and are not in the inventory.
    pub adrift: Vec<Vm>,
    /// VMs in the inventory that are nowhere else.
    pub ghosts: BTreeSet<String>,
    /// What guests knew a VM by that was registered again, by its present id.
    pub former: BTreeMap<String, String>,
}

impl Drift {
    /// A VM came into being.
    pub fn note_made(&mut self, vm: &Ref, now: Duration) {
        self.made.push((now, vm.id.clone()));
    }

    /// A VM was destroyed.
    pub fn note_destroyed(&mut self, vm: Vm, now: Duration) {
        self.destroyed.push((now, vm));
    }
}

impl VCenter {
    /// Comes back from a backup; a while later a person, who knows the hub, puts the inventory right.
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
    /// Becomes what it was then; how many VMs it has lost.
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

    /// A person registers what is adrift and still somebody's, removes what is not, and the ghosts.
    fn mend(&mut self, store: &Store) -> (usize, usize) {
        for id in std::mem::take(&mut self.drift.ghosts) {
            self.vms.remove(&id);
            self.tags.remove(&id);
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
            // They go with the reference.
            self.tags.remove(&old);
            self.drift.former.insert(id.clone(), old);
            self.vms.insert(id, vm);
        }
        for vm in others {
            // It is not there; its guest hears of it.
            self.vms.remove(&vm.object.id);
            self.tags.remove(&vm.object.id);
            if let Ok(file) = files::split(&vm.path) {
                self.files.remove(&file);
            }
        }
        counts
    }
}

/// Whether a VsphereAgent has that VM on record, or it is a node, which a person knows although a hub lost its record.
fn is_recorded(store: &Store, vm: &Vm) -> bool {
    if vm.node.is_some() {
        return true;
    }
    let Some(marker) = oracles::marker(vm) else {
        return true;
    };
    let children = kind(OURS, "vsphereagents");
    let child = store.get(&children, &(marker.namespace.clone(), marker.name.clone()));
    child.is_some_and(|c| {
        let attempt = c.pointer("/status/vm/attempt").and_then(Value::as_u64);
        let uuid = c.pointer("/status/vm/biosUUID").and_then(Value::as_str);
        c["metadata"]["uid"] == marker.uid.as_str()
            && attempt == Some(u64::from(marker.attempt))
            && uuid == Some(vm.uuid.as_str())
    })
}
