//! Compares the simulated vCenter with the one of the lab (govmomi's simulator): the same random operations through our
//! own client have to give the same answers.
//!
//! The test compares what the client makes of the replies. It leaves out numbers of objects, instance uuids, MACs,
//! keys, the name of the chosen datastore, and messages. The one runs in virtual time, the other as a process.
//! [`DIFFERENCES`] lists what differs on purpose.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use agent_forge::vsphere::{Options, VsphereConnector};
use agent_forge_actors::{
    domain::{
        hardware::{DiskController, Firmware, Hardware, NetworkAdapter},
        identity::BiosUuid,
        marker::{Mark, Marker, MayServe},
        names::{DatastorePath, MoRef, ObjectKey},
        network::nics,
    },
    placement::{choice::EarlierChoices, search},
    ports::{
        effect::{Effect, EffectKind, Gate, Hold, Settled, Subject},
        permit::Permit,
        vcenter::{
            BootDevice, Connector as _, CreateVm, Credentials, Fault, NewLife, Place, PlaceRequest,
            RenewedDisk, TaskEnd, TaskRef, Trust, VCenter, VcError, VcErrorKind, VcResult, VmAt,
            VmChange, VmObservation,
        },
    },
};
use agent_forge_lab::{
    parts::vcenter::{VCenterOptions, VCenterProcess},
    played::guests::vcenter::VCenter as Admin,
};
use agent_forge_sim::{
    director::{Director, SimGate, life},
    plan::Plan,
    run::in_virtual_time,
    vcenter::{self, model, service::Wire},
};
use async_trait::async_trait;
use fastrand::Rng;
use futures::{FutureExt as _, future::BoxFuture};
use serde_json::{Value, json};

const OPERATIONS: usize = 430;
const SEED: u64 = 11;
const NAMES: [&str; 3] = ["node-0", "node-1", "node-2"];
const FILES: [&str; 4] = [
    "isos/a.iso",
    "isos/b.iso",
    "isos/b.iso.partial",
    "other/a.iso",
];
const DIRECTORIES: [&str; 3] = ["isos", "other", "isos/deeper"];

/// Operations whose answers differ on purpose: how their text and the two answers begin, and why.
const DIFFERENCES: &[(&str, &str, &str, &str)] = &[(
    "StatVm",
    "false",
    "true",
    "a VM's configuration file is empty, and the simulated one leaves a size of 0 out of its replies",
)];

/// One operation, chosen before either side sees it.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Place(&'static str),
    /// Its name, the VM whose configuration file it takes, and its ISO.
    Create(&'static str, &'static str, &'static str),
    /// The VM, and whether the order names a disk that it has.
    BootOrder(&'static str, bool),
    Stamp(&'static str),
    PowerOn(&'static str),
    PowerOff(&'static str),
    Destroy(&'static str),
    Eject(&'static str, &'static str),
    /// The VM, its new ISO, whether it keeps its disk, and whether somebody changed the VM in between.
    Renew(&'static str, &'static str, bool, bool),
    Observe(&'static str),
    FindByUuid(&'static str),
    MarkedVms,
    MountedIsos,
    /// Whether the folder is missing.
    FolderVisible(bool),
    /// Whether the task is unknown.
    WaitAgain(bool),
    MakeDirectory(&'static str),
    Upload(&'static str, &'static str),
    Move(&'static str, &'static str),
    Delete(&'static str),
    Stat(&'static str),
    StatVm(&'static str),
    List(&'static str),
    Datacenter(&'static str),
    KillSessions,
}

fn draw(rng: &mut Rng) -> Operation {
    use Operation as O;
    let name = NAMES[rng.usize(..NAMES.len())];
    let file = FILES[rng.usize(..FILES.len())];
    let directory = DIRECTORIES[rng.usize(..DIRECTORIES.len())];
    let rarely = |rng: &mut Rng| rng.u8(..6) == 0;
    match rng.u8(..43) {
        0..=4 => {
            let file_of = if rarely(rng) { NAMES[0] } else { name };
            O::Create(name, file_of, FILES[rng.usize(..2)])
        }
        5 | 6 => O::BootOrder(name, !rarely(rng)),
        7 => O::Stamp(name),
        8..=11 => O::PowerOn(name),
        12..=14 => O::PowerOff(name),
        15..=17 => O::Destroy(name),
        18 => O::Eject(name, file),
        19..=21 => O::Observe(name),
        22 | 23 => O::FindByUuid(name),
        24 => O::MarkedVms,
        25 => O::MountedIsos,
        26 => O::FolderVisible(rng.bool()),
        27 => O::WaitAgain(rarely(rng)),
        28 | 29 => O::MakeDirectory(directory),
        30..=32 => O::Upload(file, if rng.bool() { "few" } else { "more bytes" }),
        33 => O::Move(file, FILES[rng.usize(..FILES.len())]),
        34 => O::Delete(if rarely(rng) { directory } else { file }),
        35 => O::Stat(file),
        36 => O::StatVm(name),
        37 => O::List(directory),
        38 => O::KillSessions,
        39..=41 => O::Renew(name, FILES[rng.usize(..2)], rng.bool(), rarely(rng)),
        _ if rng.bool() => O::Place(["demo/others", "demo/workers"][usize::from(rng.bool())]),
        _ => O::Datacenter(["dc-none", "dc1"][usize::from(rng.bool())]),
    }
}

/// Operations that both sides begin with, so that later ones can be refused.
fn operations(seed: u64) -> Vec<Operation> {
    let mut rng = Rng::with_seed(seed);
    let renew = |keeps, stale| Operation::Renew(NAMES[0], "isos/a.iso", keeps, stale);
    let beginning = [
        Operation::MakeDirectory("isos"),
        Operation::Upload("isos/a.iso", "few"),
        Operation::Create(NAMES[0], NAMES[0], "isos/a.iso"),
        renew(false, true),
        renew(false, false),
        renew(true, false),
        Operation::Observe(NAMES[0]),
    ];
    let random = (0..OPERATIONS).map(|_| draw(&mut rng));
    beginning.into_iter().chain(random).collect()
}

type Kill = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// One side: its session, and what it needs to get the same operation as the other side.
struct Side {
    vc: Arc<dyn VCenter>,
    kill: Kill,
    place: Place,
    datacenter: MoRef,
    /// The last VM of each name.
    vms: BTreeMap<&'static str, MoRef>,
    /// The names of objects in answers.
    labels: BTreeMap<MoRef, String>,
    last_task: TaskRef,
}

/// A permit for a call on the VM, in whatever version it is.
fn permit(kind: EffectKind, moref: MoRef) -> Permit<VmAt> {
    let at = VmAt {
        moref,
        change_version: None,
    };
    Permit::issue(effect(kind), at)
}

fn effect(kind: EffectKind) -> Effect {
    Effect::new(kind, Subject::Object(ObjectKey::new("ns", "vm")))
}

fn uuid_of(name: &str) -> BiosUuid {
    BiosUuid::derive("cluster-id", &format!("uid-{name}"), 1)
}

fn hardware() -> Hardware {
    Hardware {
        guest_id: "rhel9_64Guest".into(),
        firmware: Firmware::Efi,
        num_cpus: 4,
        memory_mib: 16384,
        disk_gib: 100,
        eagerly_scrub: false,
        disk_controller: DiskController::ParaVirtual,
        network_adapter: NetworkAdapter::Vmxnet3,
    }
}

fn place_request(folder: &str) -> PlaceRequest {
    PlaceRequest {
        datacenter: "dc1".into(),
        folder: folder.into(),
        resource_pool: "cluster/Resources".into(),
        datastore_cluster: "workload-datastore-cluster".into(),
        iso_datastore: "iso-datastore".into(),
        network: "VM Network".into(),
        bytes: 116 << 30,
        hardware: hardware(),
    }
}

async fn place(vc: &dyn VCenter, folder: &str) -> VcResult<Place> {
    let create = effect(EffectKind::CreateFolder);
    let alone = EarlierChoices::default();
    search::find(vc, &create, &place_request(folder), &alone).await
}

fn marker(name: &str, attempt: u32) -> Marker {
    Marker {
        cluster_id: "cluster-id".into(),
        namespace: "ns".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        attempt,
    }
}

fn file(path: &str) -> DatastorePath {
    DatastorePath::new("iso-datastore", path).expect("a path")
}

impl Side {
    async fn new(vc: Arc<dyn VCenter>, kill: Kill) -> Self {
        let place = place(&*vc, "demo/workers").await.expect("a place");
        let labels = BTreeMap::from([(place.folder.clone(), "the folder".to_owned())]);
        Self {
            datacenter: vc.datacenter("dc1").await.expect("dc1"),
            labels,
            place,
            vc,
            kill,
            vms: BTreeMap::new(),
            last_task: TaskRef("task-none".to_owned()),
        }
    }

    fn label(&self, object: &MoRef) -> String {
        let known = self.labels.get(object).cloned();
        known.unwrap_or_else(|| format!("some {}", object.kind))
    }

    /// The last VM of that name. A reference that never existed when there is none.
    fn vm(&self, name: &str) -> MoRef {
        let known = self.vms.get(name).cloned();
        known.unwrap_or_else(|| MoRef::new("VirtualMachine", "vm-987654"))
    }

    /// A path without the name of the chosen datastore.
    fn path(&self, text: &str) -> String {
        text.replace(&format!("[{}]", self.place.datastore.0), "[chosen]")
    }

    fn vm_path(&self, name: &str) -> DatastorePath {
        let path = format!("{name}-12345678-1/{name}.vmx");
        DatastorePath::new(&self.place.datastore.0, &path).expect("a path")
    }

    fn refusal(&self, error: &VcError) -> Value {
        let detail = match &error.kind {
            VcErrorKind::Fault(Fault::DuplicateName { name, holder }) => {
                json!({"name": name, "holder": holder.as_ref().map(|h| self.label(h))})
            }
            VcErrorKind::Fault(Fault::InvalidPowerState { existing }) => json!(existing),
            VcErrorKind::Fault(Fault::ManagedObjectNotFound(object)) => {
                json!(object.as_ref().map(|o| self.label(o)))
            }
            VcErrorKind::Status(status) => json!(status),
            _ => Value::Null,
        };
        json!({"refused": error.reason(), "by": error.operation, "detail": detail})
    }

    fn told<T>(&self, result: VcResult<T>, show: impl FnOnce(T) -> Value) -> Value {
        match result {
            Ok(value) => show(value),
            Err(e) => self.refusal(&e),
        }
    }

    fn observed(&self, seen: &VmObservation) -> Value {
        let cdroms: Vec<Value> = seen
            .cdroms
            .iter()
            .map(|c| json!([c.iso, c.connected, c.start_connected]))
            .collect();
        let order: Vec<&str> = seen
            .boot_order
            .iter()
            .map(|device| match device {
                BootDevice::Disk(key) if seen.disk_keys.contains(key) => "its disk",
                BootDevice::Disk(_) => "another disk",
                BootDevice::Cdrom => "cdrom",
                BootDevice::Other(_) => "other",
            })
            .collect();
        json!({
            "vm": self.label(&seen.moref), "name": seen.name, "uuid": seen.bios_uuid.map(|u| u.to_string()),
            "instance": seen.instance_uuid.is_some(), "folder": seen.folder.as_ref().map(|f| self.label(f)),
            "marker": seen.marker.as_ref().map(ToString::to_string), "power": seen.power.as_str(),
            "gib": seen.hardware.disk_gib, "life": seen.generation, "versioned": seen.change_version.is_some(),
            "connection": seen.connection_state, "macs": seen.macs.len(), "disks": seen.disk_keys.len(),
            "cdroms": cdroms, "order": order, "path": self.path(&seen.vm_path),
        })
    }

    /// Starts a task and waits for its end.
    async fn run(&mut self, started: VcResult<TaskRef>) -> (Value, Option<MoRef>) {
        let task = match started {
            Ok(task) => task,
            Err(e) => return (json!({"call": self.refusal(&e)}), None),
        };
        self.last_task = task.clone();
        match self.vc.wait(&task).await.flatten() {
            Ok(TaskEnd::Success(result)) => (json!({"task": result.is_some()}), result),
            Ok(TaskEnd::Vanished) => (json!("vanished"), None),
            Err(e) => (json!({"task": self.refusal(&e)}), None),
        }
    }

    /// Uploads that ISO if it is missing. It is unknown what a real vCenter does with a drive whose image is missing.
    /// The two sides differ there, because the simulated one refuses.
    async fn provide(&self, iso: &str) {
        let (vc, dc) = (&self.vc, &self.datacenter);
        if vc.stat(dc, &file(iso)).await.expect("a search").is_some() {
            return;
        }
        let directory = file(iso).parent().expect("it is in one");
        let make = effect(EffectKind::MakeDirectory);
        let made = vc.make_directory(&make, dc, &directory).await;
        made.expect("a directory");
        self.upload(iso, "few").await.expect("an upload");
    }

    async fn upload(&self, path: &str, content: &'static str) -> VcResult<()> {
        let bytes = bytes::Bytes::from_static(content.as_bytes());
        let length = bytes.len() as u64;
        let body = Box::pin(futures::stream::iter([Ok(bytes)]));
        let (upload, dc) = (effect(EffectKind::Upload), &self.datacenter);
        let path = file(path);
        self.vc.upload(&upload, dc, &path, length, body).await
    }

    async fn create(
        &mut self,
        number: usize,
        name: &'static str,
        (file_of, iso): (&str, &str),
    ) -> Value {
        self.provide(iso).await;
        let vm = CreateVm {
            name: name.into(),
            uuid: uuid_of(name),
            marker: marker(name, 1),
            may_serve: MayServe::no(1),
            hardware: hardware(),
            nics: nics(&self.place.network),
            place: self.place.clone(),
            vm_path: self.vm_path(file_of),
            iso: file(iso),
            annotation: "made by a test".into(),
        };
        let started = self.vc.create_vm(&effect(EffectKind::CreateVm), &vm).await;
        let (told, made) = self.run(started).await;
        if let Some(made) = made {
            self.labels
                .insert(made.clone(), format!("{name} of operation {number}"));
            self.vms.insert(name, made);
        }
        told
    }

    async fn boot_order(&mut self, name: &str, known_disk: bool) -> Value {
        let disks = match self.vc.observe(&self.vm(name)).await {
            Ok(Some(seen)) if known_disk => seen.disk_keys,
            _ => vec![2999],
        };
        let change = VmChange {
            boot_order: Some(disks),
            ..VmChange::default()
        };
        self.configure(EffectKind::Reconfigure, name, &change).await
    }

    async fn renew(&mut self, name: &str, iso: &str, keeps: bool, stale: bool) -> Value {
        self.provide(iso).await;
        let shown = self.vc.observe(&self.vm(name)).await;
        let shown = shown.ok().flatten();
        let life = shown.as_ref().and_then(|vm| vm.generation).unwrap_or(1);
        let system_disk = shown.as_ref().and_then(|vm| vm.system_disk());
        let version = shown.and_then(|vm| vm.change_version);
        let life = NewLife {
            generation: life + 1,
            iso: file(iso),
            system_disk,
            disk: if keeps {
                RenewedDisk::Kept
            } else {
                RenewedDisk::Replaced {
                    gib: 80,
                    eagerly_scrub: false,
                }
            },
        };
        let change = VmChange {
            life: Some(life),
            ..VmChange::default()
        };
        let at = VmAt {
            moref: self.vm(name),
            change_version: version.map(|seen| if stale { "0".to_owned() } else { seen }),
        };
        let permit = Permit::issue(effect(EffectKind::Renew), at);
        self.configure_by(&permit, &change).await
    }

    async fn configure(&self, kind: EffectKind, name: &str, change: &VmChange) -> Value {
        self.configure_by(&permit(kind, self.vm(name)), change)
            .await
    }

    async fn configure_by(&self, permit: &Permit<VmAt>, change: &VmChange) -> Value {
        match self.vc.configure(permit, change).await {
            Ok(ended) => json!({"task": self.told(ended.await, |_| json!("configured"))}),
            Err(e) => json!({"call": self.refusal(&e)}),
        }
    }

    async fn perform(&mut self, number: usize, operation: Operation) -> Value {
        use Operation as O;
        let vc = self.vc.clone();
        let dc = self.datacenter.clone();
        match operation {
            O::Place(folder) => {
                let place = place(&*vc, folder).await;
                self.told(place, |p| json!(self.label(&p.folder)))
            }
            O::Create(name, file_of, iso) => self.create(number, name, (file_of, iso)).await,
            O::BootOrder(name, known_disk) => self.boot_order(name, known_disk).await,
            O::Stamp(name) => {
                let change = VmChange {
                    annotation: Some("notes of a VM".to_owned()),
                    mark: Some(Mark::Owned(marker(name, 2))),
                    ..VmChange::default()
                };
                self.configure(EffectKind::Reconfigure, name, &change).await
            }
            O::PowerOn(name) => {
                let permit = permit(EffectKind::PowerOn, self.vm(name));
                let started = vc.power_on(&permit).await;
                self.run(started).await.0
            }
            O::PowerOff(name) => {
                let permit = permit(EffectKind::PowerOff, self.vm(name));
                let started = vc.power_off(&permit).await;
                self.run(started).await.0
            }
            O::Destroy(name) => {
                let permit = permit(EffectKind::Destroy, self.vm(name));
                let started = vc.destroy(&permit).await;
                self.run(started).await.0
            }
            O::Eject(name, iso) => {
                let change = VmChange {
                    eject: vec![file(iso).to_string()],
                    ..VmChange::default()
                };
                self.configure(EffectKind::EjectIso, name, &change).await
            }
            O::Renew(name, iso, keeps, stale) => self.renew(name, iso, keeps, stale).await,
            O::Observe(name) => {
                let seen = vc.observe(&self.vm(name)).await;
                self.told(seen, |seen| json!(seen.map(|s| self.observed(&s))))
            }
            O::FindByUuid(name) => {
                let found = vc.find_by_uuid(uuid_of(name)).await;
                self.told(found, |all| all.iter().map(|s| self.observed(s)).collect())
            }
            O::MarkedVms => {
                let found = vc.survey().await;
                self.told(found, |all| {
                    let mut all = all.marked.clone();
                    all.sort_by(|a, b| a.name.cmp(&b.name));
                    let shown = all.iter().map(|vm| {
                        let (label, marker) = (self.label(&vm.moref), vm.marker.to_string());
                        json!([label, marker, vm.power.as_str(), vm.has_boot_order])
                    });
                    shown.collect()
                })
            }
            O::MountedIsos => {
                let found = vc.drives().await;
                self.told(found, |drives| {
                    let all = drives.isos;
                    all.iter().map(|m| json!([m.iso, m.vm])).collect()
                })
            }
            O::FolderVisible(missing) => {
                let gone = MoRef::new("Folder", "group-v987654");
                let folder = if missing { &gone } else { &self.place.folder };
                let sight = vc.folder_sight(folder, &dc).await;
                self.told(sight, |sight| json!(format!("{sight:?}")))
            }
            O::WaitAgain(unknown) => {
                let none = TaskRef("task-987654".to_owned());
                let task = if unknown { &none } else { &self.last_task };
                let end = vc.wait(task).await.flatten();
                self.told(end, |end| match end {
                    TaskEnd::Success(result) => json!(result.map(|r| self.label(&r))),
                    TaskEnd::Vanished => json!("vanished"),
                })
            }
            O::MakeDirectory(path) => {
                let make = effect(EffectKind::MakeDirectory);
                let made = vc.make_directory(&make, &dc, &file(path)).await;
                self.told(made, |()| json!("made"))
            }
            O::Upload(path, content) => {
                let put = self.upload(path, content).await;
                self.told(put, |()| json!("uploaded"))
            }
            O::Move(from, to) => {
                let publish = effect(EffectKind::Publish);
                let moved = vc.move_file(&publish, &dc, &file(from), &file(to)).await;
                self.told(moved, |()| json!("moved"))
            }
            O::Delete(path) => {
                let delete = effect(EffectKind::DeleteFile);
                let deleted = vc.delete_file(&delete, &dc, &file(path)).await;
                self.told(deleted, |()| json!("deleted"))
            }
            O::Stat(path) => self.told(vc.stat(&dc, &file(path)).await, |size| json!(size)),
            O::StatVm(name) => {
                let size = vc.stat(&dc, &self.vm_path(name)).await;
                self.told(size, |size| json!(size.is_some()))
            }
            O::List(path) => {
                let listed = vc.list(&dc, &file(path)).await;
                self.told(listed, |all| {
                    let mut all: Vec<_> = all.into_iter().flatten().collect();
                    all.sort_by_key(|f| f.path.to_string());
                    all.iter()
                        .map(|f| json!([f.path.to_string(), f.size]))
                        .collect()
                })
            }
            O::Datacenter(name) => {
                let found = vc.datacenter(name).await;
                self.told(found, |dc| json!(dc.kind))
            }
            O::KillSessions => {
                (self.kill)().await;
                json!("killed")
            }
        }
    }

    async fn all(mut self, operations: &[Operation]) -> Vec<Value> {
        let mut told = Vec::with_capacity(operations.len());
        for (number, operation) in operations.iter().enumerate() {
            told.push(self.perform(number, *operation).await);
        }
        told
    }
}

struct Open;

#[async_trait]
impl Gate for Open {
    async fn admit(&self, _: &Effect) -> Result<(), Hold> {
        Ok(())
    }

    fn settled(&self, _: &Effect, _: Settled) {}
}

fn credentials(server: &str, username: &str, password: &str, trust: Trust) -> Credentials {
    Credentials {
        server: server.parse().expect("an address"),
        username: username.to_owned(),
        password: password.to_owned().into(),
        trust,
    }
}

async fn played(operations: &[Operation]) -> Vec<Value> {
    let director = Director::new(Plan::default());
    let played = vcenter::VCenter::new(director.clone(), model::furnished("user", "secret"));
    let life = life(1);
    let options = Options {
        transport: Some(Arc::new(Wire {
            vcenter: played.clone(),
            life: life.clone(),
        })),
        ..Options::default()
    };
    let connector = VsphereConnector::new(Arc::new(SimGate { director, life }), options);
    let credentials = credentials("https://vcenter.example", "user", "secret", Trust::Insecure);
    let vc = connector.connect(&credentials).await.expect("a session");
    let kill: Kill = Box::new(move || {
        played.forget_sessions();
        std::future::ready(()).boxed()
    });
    Side::new(vc, kill).await.all(operations).await
}

async fn simulated(operations: &[Operation]) -> Vec<Value> {
    let name = format!("agent-forge-conformance-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&dir).expect("a directory");
    let options = VCenterOptions {
        create_delay: Duration::ZERO,
        power_on_delay: Duration::ZERO,
        power_off_delay: Duration::ZERO,
        reconfigure_delay: Duration::ZERO,
        destroy_delay: Duration::ZERO,
        ..VCenterOptions::default()
    };
    let process = VCenterProcess::start(&dir, options).await.expect("a lab");
    let (options, trust) = (
        process.options(),
        Trust::CaBundle(process.ca_pem().to_owned()),
    );
    let credentials = credentials(process.url(), &options.username, &options.password, trust);
    let connector = VsphereConnector::new(Arc::new(Open), Options::default());
    let vc = connector.connect(&credentials).await.expect("a session");
    let admin = Admin::new(process.url(), process.ca_pem()).expect("an admin");
    let kill: Kill = Box::new(move || {
        let admin = admin.clone();
        async move {
            let killed = admin.post("sessions/kill", &json!({})).await;
            killed.map(drop).expect("sessions killed");
        }
        .boxed()
    });
    let told = Side::new(vc, kill).await.all(operations).await;
    drop(process);
    // Only its log is left.
    let _ = std::fs::remove_dir_all(&dir);
    told
}

fn expected(operation: &str, simulated: &str, played: &str) -> bool {
    DIFFERENCES.iter().any(|(of, theirs, ours, _)| {
        operation.starts_with(of) && simulated.starts_with(theirs) && played.starts_with(ours)
    })
}

#[test]
fn the_played_vcenter_answers_as_the_simulated_one() {
    let seed = std::env::var("AGENT_FORGE_CONFORMANCE_SEED");
    let seed = seed.map_or(SEED, |seed| seed.parse().expect("a number"));
    println!("seed {seed} (AGENT_FORGE_CONFORMANCE_SEED)");
    let operations = operations(seed);
    let (got, panics) = in_virtual_time(played(&operations));
    assert!(panics.is_empty(), "{panics:?}");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let wanted = runtime.block_on(simulated(&operations));
    let (mut met, mut differences) = (BTreeMap::<String, u32>::new(), Vec::<String>::new());
    for ((number, operation), (wanted, got)) in
        operations.iter().enumerate().zip(wanted.iter().zip(&got))
    {
        let text = format!("{operation:?}");
        let (theirs, ours) = (wanted.to_string(), got.to_string());
        if wanted != got && !expected(&text, &theirs, &ours) {
            differences.push(format!(
                "operation {number} {text}\n  simulated {theirs}\n  played    {ours}"
            ));
        }
        let mut parts = ["", "/call", "/task"].iter();
        let refused = parts.find_map(|at| wanted.pointer(at)?.get("refused")?.as_str());
        let kind = refused.unwrap_or("accepted").to_owned();
        *met.entry(kind).or_default() += 1;
    }
    println!("{met:?}");
    let count = differences.len();
    differences.truncate(12);
    assert!(
        count == 0,
        "{count} of {} differ:\n{}",
        operations.len(),
        differences.join("\n")
    );
    // A comparison without refusals would prove little.
    for kind in [
        "accepted",
        "DuplicateName",
        "AlreadyExists",
        "FileNotFound",
        "InvalidPowerState",
        "ManagedObjectNotFound",
        "ConcurrentAccess",
    ] {
        assert!(met.contains_key(kind), "no {kind} among {met:?}");
    }
}
