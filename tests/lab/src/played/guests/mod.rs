//! The guests: what happens inside the VMs of a simulated vCenter.
//!
//! The guests follow the vCenter's inventory with a long poll. A powered-on VM boots after a while. If it boots a CD
//! with a discovery image, its agent process registers with the service of the image's InfraEnv. An install writes the
//! disk. A VM that is powered off or destroyed stops to answer.
//!
//! What is on a disk belongs to the disk, not to the VM: a new disk is empty. After a reclaim a disk starts discovery by
//! itself, until the next install.
//!
//! Guarantees: a guest registers only after it has booted an image that is in the datastore and names an InfraEnv of
//! this upstream. So several upstreams can share a vCenter. A guest whose Agent is deleted does nothing until its next
//! boot. Assumptions: a new `poweredOnAt` means a new boot. A resumed VM keeps the value from before its suspension.

mod boot;
pub mod identity;
pub mod vcenter;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{
    assisted::{
        Answer, Assisted,
        host::{Content, NextBoot},
        image,
    },
    options::PlayedOptions,
    task::Task,
};
use boot::Boot;
use identity::Quirk;
use vcenter::{Hypervisor, Inventory, Vm};

/// Pause before a guest tries again to register, and before a broken poll is repeated.
const RETRY: Duration = Duration::from_millis(500);

/// See the module's contract. Ends when dropped.
#[derive(Debug)]
pub struct Guests {
    world: Arc<World>,
    _task: Task,
}

/// What all guests share.
#[derive(Debug)]
struct World {
    vcenter: Arc<dyn Hypervisor>,
    /// Services by Agent namespace.
    services: BTreeMap<String, Assisted>,
    boot: Duration,
    quirks: Mutex<Vec<(String, Quirk)>>,
    /// Guests by managed object id.
    guests: Mutex<BTreeMap<String, Guest>>,
}

/// The guest in one VM.
#[derive(Debug)]
struct Guest {
    vm: Vm,
    /// The running boot. It ends with the guest or with the next boot.
    boot: Option<Task>,
    /// Where its agent process registered: Agent namespace and host id.
    host: Option<(String, String)>,
}

impl World {
    fn guests(&self) -> MutexGuard<'_, BTreeMap<String, Guest>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn quirks_of(&self, vm: &Vm) -> Vec<Quirk> {
        let rules = self.quirks.lock().unwrap_or_else(PoisonError::into_inner);
        rules
            .iter()
            .filter(|(part, _)| vm.path.contains(part))
            .map(|(_, quirk)| *quirk)
            .collect()
    }

    fn service(&self, guest: &Guest) -> Option<(&Assisted, String)> {
        let (namespace, id) = guest.host.as_ref()?;
        Some((self.services.get(namespace)?, id.clone()))
    }

    /// What is on the VM's first disk, and the Agent namespace whose service knows.
    fn content(&self, vm: &Vm) -> Option<(String, Content)> {
        let disk = vm.disk_id();
        let mut all = self.services.iter();
        all.find_map(|(namespace, service)| Some((namespace.clone(), service.content(&disk)?)))
    }

    /// Updates the guests after a change of the inventory.
    fn follow(self: &Arc<Self>, inventory: Inventory) {
        let mut guests = self.guests();
        let seen = inventory.vms.into_iter();
        let mut seen: BTreeMap<String, Vm> = seen.map(|vm| (vm.moref.clone(), vm)).collect();
        guests.retain(|moref, guest| {
            let stays = match &inventory.gone {
                Some(gone) => !gone.contains(moref),
                None => seen.contains_key(moref),
            };
            if !stays && let Some((service, id)) = self.service(guest) {
                service.set_power(&id, false);
            }
            stays
        });
        while let Some((moref, vm)) = seen.pop_first() {
            let guest = guests.entry(moref.clone()).or_insert_with(|| Guest {
                vm: Vm {
                    power: "poweredOff".to_owned(),
                    powered_on_at: None,
                    ..vm.clone()
                },
                boot: None,
                host: None,
            });
            let before = std::mem::replace(&mut guest.vm, vm);
            self.update(guest, &before, &moref);
        }
    }

    fn update(self: &Arc<Self>, guest: &mut Guest, before: &Vm, moref: &str) {
        if let Some((service, id)) = self.service(guest) {
            let next = match boot::decide(&guest.vm, true) {
                Boot::Cd(_) => NextBoot::Image,
                Boot::Disk | Boot::Nothing => NextBoot::Disk,
            };
            service.set_next_boot(&id, next);
        }
        if !guest.vm.is_on() {
            guest.boot = None;
            if before.is_on()
                && let Some((service, id)) = self.service(guest)
            {
                service.set_power(&id, false);
            }
            return;
        }
        if before.is_on() && before.powered_on_at == guest.vm.powered_on_at {
            return;
        }
        let resumed = before.is_suspended() && before.powered_on_at == guest.vm.powered_on_at;
        if resumed && let Some((service, id)) = self.service(guest) {
            service.resume(&id);
            return;
        }
        let (world, moref) = (Arc::downgrade(self), moref.to_owned());
        let wait = self.boot;
        guest.boot = Some(Task::spawn(async move {
            tokio::time::sleep(wait).await;
            loop {
                let Some(world) = world.upgrade() else { return };
                match world.boot(&moref).await {
                    Ok(()) => return,
                    Err(error) => {
                        tracing::debug!(%moref, error = %format!("{error:#}"), "guest tries again")
                    }
                }
                drop(world);
                tokio::time::sleep(RETRY).await;
            }
        }));
    }

    /// Agent namespace and InfraEnv of the discovery image on this medium, if it is one.
    async fn image_on(&self, vm: &Vm, path: &str) -> Result<Option<(String, String)>> {
        let medium = self.vcenter.read(path, image::head_length()).await?;
        let found = medium.as_deref().and_then(image::infra_env);
        if found.is_none() {
            tracing::debug!(vm = vm.name, %path, "no discovery image on the CD; the guest does nothing");
        }
        Ok(found)
    }

    /// The end of a boot: registers if the VM booted discovery.
    async fn boot(&self, moref: &str) -> Result<()> {
        let known = self.guests().get(moref).map(|guest| guest.vm.clone());
        let Some(vm) = known else { return Ok(()) };
        let quirks = self.quirks_of(&vm);
        let content = self.content(&vm);
        let booted = boot::decide(&vm, content.is_some());
        tracing::debug!(vm = vm.name, ?booted, ?content, ?quirks, "guest boots");
        let (namespace, infra_env) = match (booted, content) {
            (Boot::Disk, Some((_, Content::System))) => {
                if let Some((service, id)) = self
                    .guests()
                    .get(moref)
                    .and_then(|guest| self.service(guest))
                {
                    service.booted_disk(&id);
                }
                return Ok(());
            }
            _ if quirks.contains(&Quirk::DeadOnArrival) => return Ok(()),
            (Boot::Disk, Some((namespace, Content::Discovery(infra_env)))) => {
                (namespace, infra_env)
            }
            (Boot::Cd(path), _) => match self.image_on(&vm, &path).await? {
                Some(found) => found,
                None => return Ok(()),
            },
            _ => return Ok(()),
        };
        // An image of another upstream on the same vCenter, which has its own guests.
        let Some(service) = self.services.get(&namespace) else {
            return Ok(());
        };
        let facts = identity::facts(&vm);
        let id = facts.id.clone();
        let answer = service
            .register(&infra_env, facts)
            .await
            .with_context(|| format!("{} registers", vm.name))?;
        if answer == Answer::Forbidden {
            return Ok(());
        }
        let mut guests = self.guests();
        if let Some(guest) = guests.get_mut(moref) {
            guest.host = Some((namespace, id.clone()));
            let next = match boot::decide(&guest.vm, true) {
                Boot::Cd(_) => NextBoot::Image,
                Boot::Disk | Boot::Nothing => NextBoot::Disk,
            };
            service.set_next_boot(&id, next);
            // The VM may have been powered off during the registration.
            service.set_power(&id, guest.vm.is_on());
            if quirks.contains(&Quirk::FallsSilent) {
                service.silence(&id);
            }
        } else {
            service.set_power(&id, false);
        }
        Ok(())
    }
}

impl Guests {
    /// Starts the guests of the vCenter. `services` are the assisted services by Agent namespace.
    ///
    /// # Errors
    /// The vCenter's admin endpoint does not answer.
    pub async fn start(
        vcenter: impl Hypervisor + 'static,
        services: BTreeMap<String, Assisted>,
        options: &PlayedOptions,
    ) -> Result<Self> {
        let vcenter: Arc<dyn Hypervisor> = Arc::new(vcenter);
        let first = vcenter
            .inventory(None)
            .await
            .context("follow the vCenter's inventory")?;
        let world = Arc::new(World {
            vcenter,
            services,
            boot: options.delays.boot,
            quirks: Mutex::default(),
            guests: Mutex::default(),
        });
        let task = Task::spawn(follow(world.clone(), first));
        Ok(Self { world, _task: task })
    }

    /// From now on, every guest that boots has this quirk if its VM's inventory path contains `path_part`.
    pub fn add_quirk(&self, path_part: &str, quirk: Quirk) {
        self.world
            .quirks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((path_part.to_owned(), quirk));
    }

    /// Guests that boot from now on have no quirks.
    pub fn clear_quirks(&self) {
        self.world
            .quirks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

async fn follow(world: Arc<World>, first: Inventory) {
    let mut version = first.version;
    world.follow(first);
    loop {
        match world.vcenter.inventory(Some(version)).await {
            Ok(inventory) => {
                version = inventory.version;
                world.follow(inventory);
            }
            Err(error) => {
                tracing::debug!(%error, "inventory poll failed");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
