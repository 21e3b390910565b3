//! A simulated vCenter under the vSphere client's transport: it receives real requests and sends real replies.
//!
//! Flow: [`service::Wire`] is the transport. It applies the planned fault to a request and passes it to [`calls`].
//! Tasks end by virtual time. [`VCenter`] is also the hypervisor of the simulated guests.
//! Assumption: a request that is not simulated causes a panic, never a wrong answer.
//! Not simulated: privileges, hosts without DRS, Storage DRS, distributed switches, several datacenters.

pub mod calls;
pub mod collector;
pub mod files;
pub mod model;
mod reconfigure;
pub mod restored;
pub mod service;
pub mod tasks;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agent_forge_lab::played::guests::vcenter as guests;
use anyhow::Result;
use async_trait::async_trait;
use serde_json::{Value, json};

use self::{
    model::{Fault, Inventory, Ref, Task},
    tasks::Work,
};
use crate::{director::Director, kube::store::text, news::News};

/// A change to a VM, for the oracles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A VM was created.
    Created(Ref),
    /// A VM is about to be reconfigured, switched on or off, or destroyed.
    Touches(&'static str, Ref),
    /// A VM was destroyed.
    Destroyed(Ref),
}

/// Is called with each change: before a VM is touched, and after it was created or destroyed.
pub type Witness = Box<dyn Fn(&Inventory, &Deed) + Send + Sync>;

/// The simulated vCenter. Cheap to clone.
#[derive(Clone)]
pub struct VCenter {
    inventory: Arc<Mutex<Inventory>>,
    changed: News,
    witness: Arc<Mutex<Option<Witness>>>,
    tempo: Arc<Mutex<Tempo>>,
    /// Time and faults.
    pub director: Director,
}

impl std::fmt::Debug for VCenter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VCenter")
    }
}

/// How long a task takes, in milliseconds. `None` for the usual time.
pub type Takes = fn(&Work) -> Option<u64>;

/// How long tasks, requests and answers take, and when VMs were switched on.
#[derive(Default)]
struct Tempo {
    takes: Option<Takes>,
    /// How long a request and its answer take, each, instead of the usual time.
    slow: Option<Duration>,
    on: Vec<(Duration, String)>,
}

/// How a task ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// After the usual time, with the usual result.
    Usual,
    /// With a failure.
    Fails,
    /// Ten minutes late.
    Hangs,
}

impl VCenter {
    /// A vCenter with that inventory.
    #[must_use]
    pub fn new(director: Director, inventory: Inventory) -> Self {
        Self {
            inventory: Arc::new(Mutex::new(inventory)),
            changed: News::default(),
            witness: Arc::default(),
            tempo: Arc::default(),
            director,
        }
    }

    /// Sets the function that is called with each change.
    pub fn set_witness(&self, witness: Witness) {
        *self.witness.lock().unwrap_or_else(PoisonError::into_inner) = Some(witness);
    }

    /// Sets how long tasks take from now on.
    pub fn set_tempo(&self, takes: Takes) {
        self.tempo().takes = Some(takes);
    }

    /// Sets how long a request and its answer take from now on, each. `None` for the usual time.
    pub fn slow_down(&self, each: Option<Duration>) {
        self.tempo().slow = each;
    }

    /// How long a request or its answer takes now if it usually takes `usual`.
    fn latency(&self, usual: Duration) -> Duration {
        let slow = self.tempo().slow;
        slow.unwrap_or_else(|| self.director.latency(usual))
    }

    /// When VMs were switched on, in that order, with their names.
    #[must_use]
    pub fn switched_on(&self) -> Vec<(Duration, String)> {
        self.tempo().on.clone()
    }

    fn tempo(&self) -> MutexGuard<'_, Tempo> {
        self.tempo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn takes(&self, work: &Work) -> u64 {
        let told = self.tempo().takes.and_then(|takes| takes(work));
        told.unwrap_or_else(|| work.takes())
    }

    fn lock(&self) -> MutexGuard<'_, Inventory> {
        self.inventory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the inventory.
    pub fn read<T>(&self, look: impl FnOnce(&Inventory) -> T) -> T {
        look(&self.lock())
    }

    /// Changes the inventory and wakes long polls.
    pub fn write<T>(&self, change: impl FnOnce(&mut Inventory) -> T) -> T {
        let mut inventory = self.lock();
        let result = change(&mut inventory);
        inventory.version += 1;
        drop(inventory);
        self.changed.tell();
        result
    }

    fn tell(&self, inventory: &Inventory, deed: &Deed) {
        if let Some(witness) = &*self.witness.lock().unwrap_or_else(PoisonError::into_inner) {
            witness(inventory, deed);
        }
    }

    /// Ends all sessions.
    pub fn forget_sessions(&self) {
        self.write(|i| i.sessions.clear());
    }

    /// Accepts a task, which then runs by itself.
    pub fn start(&self, work: Work, course: Course) -> Ref {
        let task = self.write_quietly(|i| {
            let id = format!("task-{}", i.number());
            let running = Task {
                state: "running",
                result: None,
                error: None,
            };
            i.tasks.insert(id.clone(), running);
            id
        });
        let (me, id) = (self.clone(), task.clone());
        tokio::spawn(async move {
            let mut takes = me.director.paced(Duration::from_millis(me.takes(&work)));
            if course == Course::Hangs {
                takes += Duration::from_secs(600);
            }
            let begun = me.begin(&work);
            tokio::time::sleep(takes).await;
            let end = match (begun, course) {
                (Err(fault), _) => Err(fault),
                (Ok(()), Course::Fails) => {
                    me.free(&work);
                    let reason = json!({"reason": "failed on request"});
                    Err(Fault::new("SystemError", reason))
                }
                (Ok(()), _) => {
                    me.wait_for_answer(&work).await;
                    me.finish(&work)
                }
            };
            me.director.line(|| {
                let kind = format!("{work:?}");
                let kind = kind.split(['(', '{']).next().unwrap_or_default();
                let end = end.as_ref().err().map_or("ok", |f| f.name());
                format!("    {id} {kind}: {end}")
            });
            me.write(|i| {
                if let Some(task) = i.tasks.get_mut(&id) {
                    match end {
                        Ok(result) => (task.state, task.result) = ("success", result),
                        Err(fault) => (task.state, task.error) = ("error", Some(fault.0)),
                    }
                }
            });
        });
        Ref::new("Task", task)
    }

    /// Waits until somebody answers the question that the VM asks before this work can continue. Without an answer it
    /// waits for ever.
    async fn wait_for_answer(&self, work: &Work) {
        let (Some(vm), true) = (work.vm(), self.read(|i| i.is_locked(work))) else {
            return;
        };
        self.write(|i| i.ask(vm));
        self.director.line(|| format!("    {} asks", vm.id));
        let mut changed = self.changed.listener();
        let asks = |i: &Inventory| i.vms.get(&vm.id).is_some_and(|vm| vm.question.is_some());
        while self.read(asks) {
            changed.news().await;
        }
    }

    /// Reports that a VM is about to be touched.
    fn touch(&self, what: &'static str, vm: &Ref) {
        self.tell(&self.lock(), &Deed::Touches(what, vm.clone()));
    }

    /// Reserves the VM for this task.
    fn begin(&self, work: &Work) -> Result<(), Fault> {
        let Some(vm) = work.vm() else { return Ok(()) };
        self.write_quietly(|i| match i.vms.get_mut(&vm.id) {
            None => Err(Fault::not_found(vm)),
            Some(found) if found.busy => Err(Fault::new("TaskInProgress", json!({}))),
            Some(found) => {
                found.busy = true;
                Ok(())
            }
        })
    }

    fn free(&self, work: &Work) {
        if let Some(vm) = work.vm() {
            self.write_quietly(|i| {
                if let Some(found) = i.vms.get_mut(&vm.id) {
                    found.busy = false;
                }
            });
        }
    }

    fn finish(&self, work: &Work) -> Result<Option<Value>, Fault> {
        self.free(work);
        // A late request that sets what is set already changes nothing.
        if let Some(vm) = work.vm()
            && !self.read(|i| work.changes_nothing(i))
        {
            self.touch(work.verb(), vm);
        }
        let mut created = None;
        let now = self.director.now();
        let result = self.write(|i| {
            let goes = match work {
                Work::Destroy(vm) => i.vms.get(&vm.id).cloned(),
                _ => None,
            };
            let result = i.work(work, &mut created);
            if let Some(vm) = goes.filter(|_| result.is_ok()) {
                i.drift.note_destroyed(vm, now);
            }
            if let Some(vm) = &created {
                i.drift.note_made(vm, now);
            }
            result
        });
        if let (Work::PowerOn(vm), Ok(_)) = (work, &result) {
            let name = self.read(|i| i.vms.get(&vm.id).map(|vm| vm.name.clone()));
            self.tempo().on.extend(name.map(|name| (now, name)));
        }
        if let Some(vm) = created {
            self.tell(&self.lock(), &Deed::Created(vm));
        }
        if let (Work::Destroy(vm), Ok(_)) = (work, &result) {
            self.tell(&self.lock(), &Deed::Destroyed(vm.clone()));
        }
        result
    }
}

#[async_trait]
impl guests::Hypervisor for VCenter {
    async fn inventory(&self, newer_than: Option<u64>) -> Result<guests::Inventory> {
        let version = |i: &Inventory| u64::try_from(i.vms.version()).unwrap_or(u64::MAX);
        let Some(known) = newer_than else {
            return Ok(self.read(|i| all_guests(i, version(i))));
        };
        let mut changed = self.changed.listener();
        let waited = async {
            while self.read(version) <= known {
                changed.news().await;
            }
        };
        // An unchanged inventory is also an answer.
        let _ = tokio::time::timeout(Duration::from_secs(600), waited).await;
        Ok(self.read(|i| {
            // Guests keep running when the inventory of a restored vCenter differs.
            if i.drift.restored {
                return all_guests(i, version(i));
            }
            let news = i.vms.since(usize::try_from(known).unwrap_or(usize::MAX));
            let (there, gone): (Vec<_>, Vec<_>) =
                news.into_iter().partition(|id| i.vms.contains_key(id));
            let there = there.iter().filter_map(|id| i.vms.get(id));
            guests::Inventory {
                version: version(i),
                vms: there.map(|vm| seen_by_guests(i, vm)).collect(),
                gone: Some(gone),
            }
        }))
    }

    async fn read(&self, path: &str, length: usize) -> Result<Option<Vec<u8>>> {
        let Ok(key) = files::split(path) else {
            return Ok(None);
        };
        Ok(Self::read(self, |i| {
            i.files
                .get(&key)
                .map(|f| f.bytes[..f.bytes.len().min(length)].to_vec())
        }))
    }
}

/// All running guests, even if the inventory does not show their VMs.
fn all_guests(inventory: &Inventory, version: u64) -> guests::Inventory {
    let there = inventory.vms.values();
    let there = there.filter(|vm| !inventory.drift.ghosts.contains(&vm.object.id));
    guests::Inventory {
        version,
        vms: there
            .chain(&inventory.drift.adrift)
            .map(|vm| seen_by_guests(inventory, vm))
            .collect(),
        gone: None,
    }
}

fn seen_by_guests(inventory: &Inventory, vm: &model::Vm) -> guests::Vm {
    let of = |kind: &'static str| vm.devices.iter().filter(move |d| d["_typeName"] == kind);
    let order = vm.boot_order.iter().map(|d| match d["deviceKey"].as_i64() {
        Some(key) => format!("disk:{key}"),
        None => "cdrom".to_owned(),
    });
    let former = inventory.drift.former.get(&vm.object.id);
    guests::Vm {
        moref: former.unwrap_or(&vm.object.id).clone(),
        name: vm.name.clone(),
        path: inventory.path(&vm.object),
        uuid: vm.uuid.clone(),
        power: vm.power().to_owned(),
        cdroms: of("VirtualCdrom")
            .map(|d| guests::Cdrom {
                path: text(d, "/backing/fileName").to_owned(),
                connected: d["connectable"]["connected"] == true,
                start_connected: d["connectable"]["startConnected"] == true,
            })
            .collect(),
        nics: of("VirtualVmxnet3")
            .filter_map(|d| {
                Some(guests::Nic {
                    mac: d["macAddress"].as_str()?.to_owned(),
                })
            })
            .collect(),
        disks: of("VirtualDisk")
            .map(|d| guests::Disk {
                key: serde_json::from_value(d["key"].clone()).unwrap_or_default(),
                gb: d["capacityInKB"].as_u64().unwrap_or_default() >> 20,
                uuid: text(d, "/backing/uuid").to_owned(),
            })
            .collect(),
        extra_config: vm.extra.clone(),
        boot_order: order.collect(),
        cpus: u32::try_from(vm.cpus).unwrap_or(1),
        memory_mib: vm.memory,
        powered_on_at: (vm.on || vm.suspended).then(|| vm.boots.to_string()),
    }
}
