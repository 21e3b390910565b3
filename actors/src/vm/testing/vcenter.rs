//! A vCenter in memory that holds VMs. Tasks end at once, and a create ends as the test set it.

// The port's own error type; a fake returns it as the adapters do.
#![allow(clippy::result_large_err)]

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use agent_forge_crds::{conditions::Reason, pool::RefusedCredentials};
use async_trait::async_trait;
use tokio::time::Instant;

use crate::{
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        hardware::{Hardware, Link, ShownCard, ShownHardware, ShownNow},
        identity::{BiosUuid, MacAddress},
        marker::{Marker, MayServe},
        names::{DatastorePath, MoRef, ObjectKey},
        network::NicPlan,
    },
    placement::Placer,
    ports::{
        effect::{Effect, EffectKind},
        permit::Permit,
        sessions::Sessions,
        slots::{Slots, turns::Limits},
        vcenter::{
            self, BareVm, BootDevice, ByteStream, Cdrom, ComputeTopology, CreateVm, Datastore,
            Datastores, Drives, Ended, Fault, FileInfo, FolderSight, Host, Listener, Machines,
            MarkedVm, NewLife, News, Place, PlaceCandidates, PlaceRequest, PowerState,
            Recommendation, RenewedDisk, Survey, TaskEnd, TaskRef, Tasks, VCenter, VcError,
            VcErrorKind, VcResult, VmAt, VmChange, VmObservation,
        },
    },
};

/// UUID of the disk that a VM is made with.
pub const FIRST_DISK: &str = "6000c29000000000000000000000abc1";
/// UUID of the disk in its place after a renewal.
pub const SECOND_DISK: &str = "6000c29000000000000000000000abc2";
/// Tasks that may be in flight.
pub const SLOTS: usize = 8;
/// A task that vCenter does not know any more.
const FORGOTTEN: &str = "forgotten";
/// A task whose end is never observed.
const ENDLESS: &str = "endless";

/// What a task does.
type Work = Box<dyn FnOnce(&mut Inventory) + Send>;

/// What vCenter holds, and how it behaves.
#[derive(Default)]
pub struct Inventory {
    pub vms: Vec<VmObservation>,
    /// Results of the next creates. Without any, they succeed.
    pub creates: VecDeque<VcErrorKind>,
    /// A create that fails with a lost reply is carried out all the same.
    pub lost_but_done: bool,
    /// Free bytes by datastore id, as candidates for a place.
    pub free: BTreeMap<&'static str, u64>,
    /// The cluster has no DRS, and has these hosts.
    pub hosts_without_drs: Option<Vec<&'static str>>,
    /// Datastores that the next placements choose. The last one stays.
    pub datastores: VecDeque<&'static str>,
    pub tags_fail: bool,
    /// Tags of each request that attached some.
    pub tagged: Vec<Vec<String>>,
    /// Every mark that was written to an existing VM.
    pub marks: Vec<String>,
    /// What VMs were made ready for another life with.
    pub renewals: Vec<NewLife>,
    /// Somebody changes each VM right before the operator does.
    pub always_changed: bool,
    /// Changes that came too late.
    pub refused_changes: u32,
    /// Somebody changes the VM right before it is made ready for another life.
    pub changed_before_renewal: bool,
    /// Another VsphereAgent writes this mark right before one is written.
    pub marked_before: Option<Marker>,
    /// How often a restart of a VM was asked for.
    pub resets: usize,
    /// How the next one fails.
    pub reset_fails: Option<VcErrorKind>,
    /// An administrator marks the VM like this before a look at its reference.
    pub marks_at_observe: Option<crate::domain::holds::VmMarks>,
    pub scan_fails: bool,
    /// vCenter forgets the next task of that kind. The flag says whether the task was carried out.
    pub vanishes: Option<(EffectKind, bool)>,
    /// The next task of that kind hangs.
    pub hangs: Option<EffectKind>,
    /// The user lacks the right to observe the end of the next task.
    pub deaf: bool,
    /// The task that hangs, or another that blocks ours.
    pub under_way: Option<Work>,
    /// Tasks that run.
    pub slots: Option<Slots>,
    /// How long a create takes.
    pub create_takes: Duration,
    /// When (virtual) the creates end, by task.
    pub creates_end: BTreeMap<String, Instant>,
    /// The highest number of creates that ran at once.
    pub most_creates: usize,
    /// How many logouts are never answered.
    pub silent_logouts: usize,
    /// Logouts that were answered.
    pub logouts: usize,
    /// The task that empties a drive does not end.
    pub eject_hangs: bool,
    /// A create with a name that is taken fails as in vCenter.
    pub names_are_unique: bool,
    /// The list of marked VMs shows them as they were when they were made.
    pub list_is_old: bool,
    pub folder_hidden: bool,
    /// The placement does not end.
    pub placing_hangs: bool,
    /// The placement panics.
    pub placing_panics: bool,
    /// How often the folder was deleted. It has another reference when it is made again.
    pub folders_deleted: usize,
    /// References of the VMs whose configuration vCenter does not show.
    pub inaccessible: Vec<MoRef>,
    /// No VM is switched on.
    pub power_on_refused: Option<Fault>,
    /// No VM is switched off.
    pub power_off_fails: bool,
    /// vCenter does not switch a suspended VM off.
    pub suspended_stays: bool,
    /// The user may not destroy the VM with that reference.
    pub destroy_refused: Option<&'static str>,
    /// The VMs that are followed, and who is told.
    pub followed: Option<(BTreeSet<String>, Listener)>,
    /// How often it was said which VMs to follow.
    pub follows: usize,
    /// Secrets whose login does not end.
    pub hanging_secrets: Vec<ObjectKey>,
    /// Secrets whose login is refused.
    pub refused_secrets: Vec<ObjectKey>,
    /// What is to be recorded of those refusals.
    pub refusal: Option<RefusedCredentials>,
    /// Open sessions have lost their login.
    pub login_refused: bool,
    pub sessions_by: Vec<ObjectKey>,
    pub effects: Vec<EffectKind>,
    pub reads: usize,
    pub born: usize,
}

/// What vCenter shows of a VM with this hardware, and with one card on each of these networks.
pub fn as_made(hardware: &Hardware, nics: &[NicPlan]) -> ShownHardware {
    let card = |nic: &NicPlan| ShownCard {
        network_ref: Some(format!("id-{}", nic.network)),
        network: Some(nic.network.clone()),
        link: Some(Link::Connected),
    };
    ShownHardware {
        num_cpus: Some(hardware.num_cpus),
        memory_mib: Some(hardware.memory_mib),
        disk_gib: Some(hardware.disk_gib),
        disk_uuid: Some(FIRST_DISK.to_owned()),
        firmware: Some(hardware.firmware.as_str().to_owned()),
        disk_controller: Some(hardware.disk_controller.as_str().to_owned()),
        network_adapter: Some(hardware.network_adapter.as_str().to_owned()),
        cards: Some(nics.iter().map(card).collect()),
        version: Some(19),
        now: ShownNow {
            host: Some("esx-1".to_owned()),
            used_bytes: Some(5 << 30),
            has_snapshot: Some(false),
        },
    }
}

fn folder_of(inventory: &Inventory) -> MoRef {
    MoRef::new(
        "Folder",
        format!("group-v{}", 1 + inventory.folders_deleted),
    )
}

impl Inventory {
    /// The VM as vCenter shows it now.
    fn as_shown(&self, vm: &VmObservation) -> VmObservation {
        if !self.inaccessible.contains(&vm.moref) {
            return vm.clone();
        }
        VmObservation {
            bios_uuid: None,
            instance_uuid: None,
            marker: None,
            may_serve: None,
            generation: None,
            disk: None,
            change_version: None,
            marks: crate::domain::holds::VmMarks::default(),
            connection_state: "inaccessible".to_owned(),
            macs: Vec::new(),
            disk_keys: Vec::new(),
            cdroms: Vec::new(),
            boot_order: Vec::new(),
            hardware: ShownHardware::default(),
            vm_path: String::new(),
            ..vm.clone()
        }
    }

    fn begin_create(&mut self, task: &str) {
        let now = Instant::now();
        self.creates_end
            .insert(task.to_owned(), now + self.create_takes);
        let running = self.creates_end.values().filter(|end| **end > now).count();
        self.most_creates = self.most_creates.max(running);
    }
}

/// The vCenter, and its sessions.
#[derive(Clone, Default)]
pub struct Site(pub Arc<Mutex<Inventory>>);

pub fn fault(kind: VcErrorKind) -> VcError {
    VcError {
        kind,
        operation: "CreateVM_Task",
        subject: "it".to_owned(),
        message: "as told".to_owned(),
        concealed: false,
    }
}

impl Site {
    pub fn with<T>(&self, f: impl FnOnce(&mut Inventory) -> T) -> T {
        f(&mut self.0.lock().expect("lock"))
    }

    async fn eject(&self, e: &Effect, vm: &MoRef, isos: &[String]) -> VcResult<Ended<'_>> {
        if self.with(|i| i.eject_hangs) {
            return std::future::pending().await;
        }
        self.with(|i| {
            i.effects.push(e.kind);
            let drives = i.vms.iter_mut().filter(|v| v.moref == *vm);
            let ours = |iso: &Option<String>| iso.as_ref().is_some_and(|iso| isos.contains(iso));
            drives.for_each(|v| {
                v.cdroms.retain(|c| !ours(&c.iso));
                v.change_version = v.change_version.take().map(|version| version + "+");
            });
        });
        Ok(Box::pin(async { Ok(TaskEnd::Success(None)) }))
    }

    /// Begins a task on the VM. `work` is carried out when the task ends: at once, unless the test set it otherwise.
    fn task(
        &self,
        effect: &Effect,
        vm: &MoRef,
        work: impl FnOnce(&mut Inventory) + Send + 'static,
    ) -> VcResult<TaskRef> {
        self.with(|i| {
            i.effects.push(effect.kind);
            if !i.vms.iter().any(|v| v.moref == *vm) {
                let gone = Fault::ManagedObjectNotFound(Some(vm.clone()));
                return Err(fault(VcErrorKind::Fault(gone)));
            }
            if i.under_way.is_some() {
                return Err(fault(VcErrorKind::Fault(Fault::TaskInProgress)));
            }
            if i.hangs.take_if(|kind| *kind == effect.kind).is_some() {
                i.under_way = Some(Box::new(work));
                return Ok(TaskRef(ENDLESS.to_owned()));
            }
            let forgotten = i.vanishes.take_if(|(kind, _)| *kind == effect.kind);
            if forgotten.is_none_or(|(_, done)| done) {
                work(i);
            }
            let task = if forgotten.is_some() {
                FORGOTTEN
            } else {
                "done"
            };
            Ok(TaskRef(task.to_owned()))
        })
    }

    /// A task that changes the VM.
    fn change(
        &self,
        effect: &Effect,
        vm: &MoRef,
        f: impl FnOnce(&mut VmObservation) + Send + 'static,
    ) -> VcResult<TaskRef> {
        let changed = vm.clone();
        self.task(effect, vm, move |i| {
            if let Some(found) = i.vms.iter_mut().find(|v| v.moref == changed) {
                f(found);
            }
        })
    }

    /// A foreign task blocks ours.
    pub fn occupy(&self) {
        self.with(|i| i.under_way = Some(Box::new(|_: &mut Inventory| {})));
    }

    /// Ends the task that hangs or blocks ours.
    pub fn end_task(&self) {
        self.with(|i| {
            if let Some(work) = i.under_way.take() {
                work(i);
            }
        });
    }
}

#[async_trait]
impl Sessions for Site {
    async fn session(
        &self,
        secret: &ObjectKey,
        namespace: &str,
    ) -> Result<Arc<dyn VCenter>, ReconcileError> {
        crate::sessions::secret_ref::admit(
            crate::sessions::secret_ref::CREDENTIALS,
            secret,
            None,
            namespace,
        )?;
        if self.with(|i| i.hanging_secrets.contains(secret)) {
            std::future::pending::<()>().await;
        }
        self.with(|i| {
            i.sessions_by.push(secret.clone());
            if i.refused_secrets.contains(secret) {
                return Err(ReconcileError {
                    side: ErrorSource::Vsphere,
                    reason: Reason::InvalidCredentials,
                    message: "as told".to_owned(),
                    class: Class::Blocked,
                });
            }
            Ok(())
        })?;
        Ok(Arc::new(self.clone()))
    }

    async fn refusal(&self, secret: &ObjectKey) -> Option<RefusedCredentials> {
        self.with(|i| {
            let known = i.refusal.clone();
            known.filter(|_| i.refused_secrets.contains(secret))
        })
    }
}

#[async_trait]
impl Placer for Site {
    async fn place(
        &self,
        _: Arc<dyn VCenter>,
        _: Effect,
        request: PlaceRequest,
    ) -> Result<Place, ReconcileError> {
        Ok(self.with(|i| {
            let datastore = match i.datastores.len() {
                0 => "ds1",
                1 => i.datastores[0],
                _ => i.datastores.pop_front().expect("not empty"),
            };
            place_on(
                datastore,
                &format!("id-{datastore}"),
                folder_of(i),
                &request,
            )
        }))
    }
}

fn place_on(datastore: &str, id: &str, folder: MoRef, request: &PlaceRequest) -> Place {
    Place {
        datacenter: MoRef::new("Datacenter", "datacenter-1"),
        folder,
        resource_pool: MoRef::new("ResourcePool", "resgroup-1"),
        datastore: (datastore.to_owned(), MoRef::new("Datastore", id)),
        host: None,
        network: request.network.clone(),
    }
}

/// Hosts that reach all datastores, and the datastores of `free`.
fn candidates(inventory: &Inventory, request: &PlaceRequest) -> PlaceCandidates {
    let hosts: Vec<&str> = match &inventory.hosts_without_drs {
        Some(hosts) => hosts.clone(),
        None => vec!["host-1"],
    };
    let network = MoRef::new("Network", "network-1");
    let host = |name: &&str| Host {
        moref: MoRef::new("HostSystem", *name),
        name: (*name).to_owned(),
        connected: true,
        in_maintenance: false,
        networks: [network.clone()].into(),
    };
    let datastore = |(id, free): (&&str, &u64)| Datastore {
        moref: MoRef::new("Datastore", *id),
        name: (*id).to_owned(),
        free: *free,
        accessible: true,
        in_maintenance: false,
        hosts: hosts.iter().map(|h| (*h).to_owned()).collect(),
        storage_drs: false,
    };
    let compute = ComputeTopology {
        resource_pool: MoRef::new("ResourcePool", &request.resource_pool),
        chooses_host: inventory.hosts_without_drs.is_none(),
        hosts: hosts.iter().map(host).collect(),
    };
    PlaceCandidates {
        datacenter: MoRef::new("Datacenter", "datacenter-1"),
        compute: Arc::new(compute),
        store: MoRef::new("StoragePod", "group-p1"),
        datastores: Arc::new(inventory.free.iter().map(datastore).collect()),
        iso_datastores: Arc::new(vec![datastore((&"datastore-iso", &0))]),
        network,
    }
}

#[async_trait]
impl VCenter for Site {
    fn server(&self) -> &str {
        "vc.example"
    }
    fn instance(&self) -> Option<String> {
        Some(crate::testing::INSTANCE.to_owned())
    }
    fn insecure(&self) -> bool {
        false
    }
    fn login_refused(&self) -> bool {
        self.with(|i| i.login_refused)
    }
    async fn reachable(&self) -> VcResult<()> {
        Ok(())
    }
    async fn logout(&self, _: &Effect) {
        let silent = self.with(|i| {
            let left = i.silent_logouts.checked_sub(1);
            i.silent_logouts = left.unwrap_or_default();
            i.logouts += usize::from(left.is_none());
            left.is_some()
        });
        if silent {
            std::future::pending::<()>().await;
        }
    }
}

/// Changes the VM as vCenter does.
fn configured(v: &mut VmObservation, change: VmChange) {
    if let Some(mark) = &change.mark {
        v.marker = mark.read().cloned();
    }
    v.may_serve = change.may_serve.or(v.may_serve.take());
    v.annotation = change
        .annotation
        .unwrap_or(std::mem::take(&mut v.annotation));
    v.change_version = v.change_version.take().map(|version| version + "+");
    if let Some(keys) = change.boot_order {
        let order = keys.into_iter().map(BootDevice::Disk);
        v.boot_order = order.chain([BootDevice::Cdrom]).collect();
    }
    let Some(life) = change.life else {
        return;
    };
    v.generation = Some(life.generation);
    v.may_serve = Some(MayServe::no(life.generation));
    v.disk = Some(life.disk_mark());
    v.cdroms = vec![Cdrom {
        key: 16000,
        iso: Some(life.iso.to_string()),
        connected: true,
        start_connected: true,
    }];
    let disks = v.disk_keys.iter().map(|k| BootDevice::Disk(*k));
    match life.disk {
        RenewedDisk::Replaced { .. } => {
            v.disk_keys = vec![2001];
            v.hardware.disk_uuid = Some(SECOND_DISK.to_owned());
        }
        RenewedDisk::Kept => {
            v.boot_order = std::iter::once(BootDevice::Cdrom).chain(disks).collect();
        }
    }
}

#[async_trait]
impl Machines for Site {
    async fn find_by_uuid(&self, uuid: BiosUuid) -> VcResult<Vec<VmObservation>> {
        Ok(self.with(|i| {
            i.reads += 1;
            let shown = i.vms.iter().map(|v| i.as_shown(v));
            shown.filter(|v| v.bios_uuid == Some(uuid)).collect()
        }))
    }
    async fn observe(&self, vm: &MoRef) -> VcResult<Option<VmObservation>> {
        Ok(self.with(|i| {
            i.reads += 1;
            let marks = i.marks_at_observe;
            for marked in i.vms.iter_mut().filter(|v| v.moref == *vm) {
                marked.marks = marks.unwrap_or(marked.marks);
            }
            let found = i.vms.iter().find(|v| v.moref == *vm);
            found.map(|v| i.as_shown(v))
        }))
    }
    async fn create_vm(&self, effect: &Effect, vm: &CreateVm) -> VcResult<TaskRef> {
        self.with(|i| {
            i.effects.push(effect.kind);
            let holder = i
                .vms
                .iter()
                .find(|v| i.names_are_unique && v.name == vm.name);
            if let Some(holder) = holder {
                return Err(fault(VcErrorKind::Fault(Fault::DuplicateName {
                    name: vm.name.clone(),
                    holder: Some(holder.moref.clone()),
                })));
            }
            if vm.place.folder != folder_of(i) {
                let gone = Fault::ManagedObjectNotFound(Some(vm.place.folder.clone()));
                return Err(fault(VcErrorKind::Fault(gone)));
            }
            let told = i.creates.pop_front();
            if let Some(kind) = &told
                && !i.lost_but_done
            {
                return Err(fault(kind.clone()));
            }
            i.lost_but_done = false;
            i.born += 1;
            let id = format!("vm-{}", i.born);
            i.begin_create(&id);
            i.vms.push(VmObservation {
                moref: MoRef::new("VirtualMachine", &id),
                name: vm.name.clone(),
                bios_uuid: Some(vm.uuid),
                instance_uuid: Some(format!("instance-{id}")),
                folder: Some(vm.place.folder.clone()),
                marker: Some(vm.marker.clone()),
                may_serve: Some(vm.may_serve.clone()),
                generation: None,
                disk: None,
                change_version: Some("1".to_owned()),
                marks: crate::domain::holds::VmMarks::default(),
                adopt: None,
                annotation: vm.annotation.clone(),
                power: PowerState::Off,
                connection_state: "connected".to_owned(),
                macs: MacAddress::parse(&format!("00:50:56:00:00:{:02x}", i.born))
                    .into_iter()
                    .collect(),
                disk_keys: vec![2000],
                cdroms: vec![],
                boot_order: vec![],
                vm_path: vm.vm_path.to_string(),
                tools: None,
                guest_address: None,
                guest_host: None,
                hardware: as_made(&vm.hardware, &vm.nics),
            });
            match told {
                Some(kind) => Err(fault(kind)),
                None => Ok(TaskRef(id)),
            }
        })
    }
    async fn configure<'a>(
        &'a self,
        permit: &Permit<VmAt>,
        change: &VmChange,
    ) -> VcResult<Ended<'a>> {
        let (e, vm) = (permit.effect(), &permit.of().moref);
        let now = self.with(|i| {
            let rival = change.mark.as_ref().and_then(|_| i.marked_before.take());
            let changed = change.life.is_some() && std::mem::take(&mut i.changed_before_renewal);
            let changed = changed || i.always_changed;
            let vm = i.vms.iter_mut().find(|v| v.moref == *vm)?;
            if changed || rival.is_some() {
                vm.change_version = vm.change_version.take().map(|version| version + "theirs");
                vm.marker = rival.or(vm.marker.take());
            }
            vm.change_version.clone()
        });
        if permit.of().change_version != now {
            self.with(|i| i.refused_changes += 1);
            return Err(fault(VcErrorKind::Fault(Fault::ConcurrentAccess)));
        }
        if !change.eject.is_empty() {
            return self.eject(e, vm, &change.eject).await;
        }
        self.with(|i| {
            i.marks
                .extend(change.mark.as_ref().map(ToString::to_string));
            i.renewals.extend(change.life.clone());
        });
        let change = change.clone();
        let task = self.change(e, vm, move |v| configured(v, change))?;
        Ok(Box::pin(async move { self.wait(&task).await.flatten() }))
    }
    async fn reset(&self, permit: &Permit<VmAt>) -> VcResult<TaskRef> {
        let (e, vm) = (permit.effect(), &permit.of().moref);
        let fails = self.with(|i| {
            i.resets += 1;
            i.reset_fails.take()
        });
        match fails {
            Some(kind) => Err(fault(kind)),
            None => self.change(e, vm, |_| {}),
        }
    }
    async fn power_on(&self, permit: &Permit<VmAt>) -> VcResult<TaskRef> {
        let (e, vm) = (permit.effect(), &permit.of().moref);
        if let Some(why) = self.with(|i| i.power_on_refused.clone()) {
            self.with(|i| i.effects.push(e.kind));
            return Err(fault(VcErrorKind::Fault(why)));
        }
        self.change(e, vm, |v| v.power = PowerState::On)
    }
    async fn power_off(&self, permit: &Permit<VmAt>) -> VcResult<TaskRef> {
        let (e, vm) = (permit.effect(), &permit.of().moref);
        if self.with(|i| i.power_off_fails) {
            return Err(fault(VcErrorKind::Unreachable));
        }
        let stays = |i: &mut Inventory| {
            let mut all = i.vms.iter();
            let suspended = all.any(|v| v.moref == *vm && v.power == PowerState::Suspended);
            let refused = i.suspended_stays && suspended;
            if refused {
                i.effects.push(e.kind);
            }
            refused
        };
        if self.with(stays) {
            return Err(fault(VcErrorKind::Fault(Fault::InvalidPowerState {
                existing: "suspended".to_owned(),
            })));
        }
        self.change(e, vm, |v| v.power = PowerState::Off)
    }
    async fn destroy(&self, permit: &Permit<VmAt>) -> VcResult<TaskRef> {
        let (e, vm) = (permit.effect(), &permit.of().moref);
        if self.with(|i| i.destroy_refused == Some(vm.id.as_str())) {
            return Err(fault(VcErrorKind::Fault(Fault::NoPermission {
                object: Some(vm.clone()),
                privilege: "VirtualMachine.Inventory.Delete".to_owned(),
            })));
        }
        let gone = vm.clone();
        self.task(e, vm, move |i| i.vms.retain(|v| v.moref != gone))
    }
    async fn attach_tags(&self, e: &Effect, vm: &MoRef, tags: &[String]) -> VcResult<()> {
        self.with(|i| {
            i.effects.push(e.kind);
            i.tagged.push(tags.to_vec());
            if !i.vms.iter().any(|v| v.moref == *vm) {
                return Err(fault(VcErrorKind::Unresolved {
                    field: "vmTags",
                    value: "urn:tag".to_owned(),
                }));
            }
            if i.tags_fail {
                let property = "tag".to_owned();
                return Err(fault(VcErrorKind::Fault(Fault::InvalidArgument {
                    property,
                })));
            }
            Ok(())
        })
    }
}

#[async_trait]
impl vcenter::Inventory for Site {
    async fn place_candidates(&self, request: &PlaceRequest) -> VcResult<PlaceCandidates> {
        tracing::debug!("a place is looked for");
        assert!(!self.with(|i| i.placing_panics), "as told");
        if self.with(|i| i.placing_hangs) {
            std::future::pending::<()>().await;
        }
        Ok(self.with(|i| candidates(i, request)))
    }
    async fn ensure_folder(&self, _: &Effect, _: &MoRef, _: &str) -> VcResult<MoRef> {
        Ok(self.with(|i| folder_of(i)))
    }
    async fn recommend_datastores(
        &self,
        _: &PlaceCandidates,
        _: &MoRef,
        _: &Hardware,
    ) -> VcResult<Vec<Recommendation>> {
        unreachable!("no Storage DRS here")
    }
    async fn survey(&self) -> VcResult<Arc<Survey>> {
        self.with(|i| {
            if i.scan_fails {
                return Err(fault(VcErrorKind::Unreachable));
            }
            let marked = |v: &VmObservation| {
                Some(MarkedVm {
                    moref: v.moref.clone(),
                    name: v.name.clone(),
                    marker: v.marker.clone()?,
                    power: if i.list_is_old {
                        PowerState::Off
                    } else {
                        v.power
                    },
                    has_boot_order: !i.list_is_old && !v.boot_order.is_empty(),
                    marks: v.marks,
                    num_cpus: v.hardware.num_cpus,
                    memory_mib: v.hardware.memory_mib,
                })
            };
            let all: Vec<VmObservation> = i.vms.iter().map(|v| i.as_shown(v)).collect();
            let bare = |v: &VmObservation| BareVm {
                moref: v.moref.clone(),
                name: v.name.clone(),
                vm_path: None,
                connection_state: v.connection_state.clone(),
            };
            Ok(Arc::new(Survey {
                marked: all.iter().filter_map(marked).collect(),
                bare: all.iter().filter(|v| !v.shows_config()).map(bare).collect(),
            }))
        })
    }
    async fn folder_sight(&self, folder: &MoRef, _: &MoRef) -> VcResult<FolderSight> {
        Ok(self.with(|i| {
            if i.folder_hidden {
                FolderSight::Hidden
            } else if *folder != folder_of(i) {
                FolderSight::Deleted
            } else {
                FolderSight::Visible
            }
        }))
    }
}

#[async_trait]
impl Datastores for Site {
    async fn datacenter(&self, _: &str) -> VcResult<MoRef> {
        unreachable!("no files here")
    }
    async fn stat(&self, _: &MoRef, _: &DatastorePath) -> VcResult<Option<u64>> {
        unreachable!("no files here")
    }
    async fn list(&self, _: &MoRef, _: &DatastorePath) -> VcResult<Option<Vec<FileInfo>>> {
        unreachable!("no files here")
    }
    async fn make_directory(&self, _: &Effect, _: &MoRef, _: &DatastorePath) -> VcResult<()> {
        unreachable!("no files here")
    }
    async fn upload(
        &self,
        _: &Effect,
        _: &MoRef,
        _: &DatastorePath,
        _: u64,
        _: ByteStream,
    ) -> VcResult<()> {
        unreachable!("no files here")
    }
    async fn move_file(
        &self,
        _: &Effect,
        _: &MoRef,
        _: &DatastorePath,
        _: &DatastorePath,
    ) -> VcResult<()> {
        unreachable!("no files here")
    }
    async fn delete_file(&self, _: &Effect, _: &MoRef, _: &DatastorePath) -> VcResult<()> {
        unreachable!("no files here")
    }
    async fn drives(&self) -> VcResult<Drives> {
        unreachable!("no files here")
    }
}

impl News for Site {
    /// The test tells the listener.
    fn follow(&self, vms: BTreeSet<String>, listener: Listener) {
        self.with(|i| {
            i.follows += 1;
            i.followed = Some((vms, listener));
        });
    }
}

#[async_trait]
impl Tasks for Site {
    fn slots(&self) -> Slots {
        self.with(|i| {
            let slots = i
                .slots
                .get_or_insert_with(|| Slots::new(Limits::tasks(SLOTS)));
            slots.clone()
        })
    }
    async fn wait(&self, task: &TaskRef) -> VcResult<VcResult<TaskEnd>> {
        if self.with(|i| std::mem::take(&mut i.deaf)) {
            return Err(fault(VcErrorKind::Fault(Fault::NoPermission {
                object: None,
                privilege: "System.View".to_owned(),
            })));
        }
        if task.0 == FORGOTTEN {
            return Ok(Ok(TaskEnd::Vanished));
        }
        if task.0 == ENDLESS {
            return std::future::pending().await;
        }
        let end = self.with(|i| i.creates_end.get(&task.0).copied());
        if let Some(end) = end {
            tokio::time::sleep_until(end).await;
        }
        let created = Some(&task.0).filter(|t| t.starts_with("vm-"));
        let result = created.map(|id| MoRef::new("VirtualMachine", id));
        Ok(Ok(TaskEnd::Success(result)))
    }
}
