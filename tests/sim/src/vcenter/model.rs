//! What a vCenter stores: inventory, VMs, tasks, files, tags, sessions. This is data only; [`super::calls`] changes it.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    ops::Deref,
};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::restored::Drift;
use crate::kube::store::text;

/// Type and id of a managed object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ref {
    /// For example `VirtualMachine`.
    pub kind: String,
    /// For example `vm-7`.
    pub id: String,
}

impl Ref {
    /// A reference.
    pub fn new(kind: &str, id: impl Into<String>) -> Self {
        Self {
            kind: kind.to_owned(),
            id: id.into(),
        }
    }

    /// The reference in its JSON form.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({"_typeName": "ManagedObjectReference", "type": self.kind, "value": self.id})
    }

    /// Reads the JSON form.
    #[must_use]
    pub fn read(value: &Value) -> Option<Self> {
        Some(Self::new(
            value.get("type")?.as_str()?,
            value.get("value")?.as_str()?,
        ))
    }
}

/// A fault in its JSON form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(pub Value);

impl Fault {
    /// A fault of that type with these fields.
    #[must_use]
    pub fn new(kind: &str, fields: Value) -> Self {
        let mut fault = json!({"_typeName": kind, "faultstring": format!("{kind} (played)")});
        if let (Some(to), Some(from)) = (fault.as_object_mut(), fields.as_object()) {
            to.extend(from.clone());
        }
        Self(fault)
    }

    /// The fault for an object that does not exist.
    #[must_use]
    pub fn not_found(object: &Ref) -> Self {
        Self::new("ManagedObjectNotFound", json!({"obj": object.json()}))
    }

    /// The fault for an argument that is not valid.
    #[must_use]
    pub fn argument(name: &str) -> Self {
        Self::new("InvalidArgument", json!({"invalidProperty": name}))
    }

    /// The fault for a task that needs the VM in another power state.
    #[must_use]
    pub fn power(vm: &Vm, requested: &str) -> Self {
        let states = json!({"requestedState": requested, "existingState": vm.power()});
        Self::new("InvalidPowerState", states)
    }

    /// The fault for a name that another object of the folder has.
    #[must_use]
    pub fn duplicate(name: &str, holder: &Ref) -> Self {
        let taken = json!({"name": name, "object": holder.json()});
        Self::new("DuplicateName", taken)
    }

    /// Its type.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0["_typeName"].as_str().unwrap_or_default()
    }
}

/// Any object of the inventory that is not a VM.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Parent. `None` for the root.
    pub parent: Option<Ref>,
    /// Further properties. Values of any type are wrapped.
    pub properties: BTreeMap<&'static str, Value>,
}

/// A VM.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vm {
    /// Its reference.
    pub object: Ref,
    /// Name.
    pub name: String,
    /// Folder.
    pub folder: Ref,
    /// BIOS uuid.
    pub uuid: String,
    /// The id that vCenter gives.
    pub instance_uuid: String,
    /// Notes.
    pub annotation: String,
    /// `extraConfig`.
    pub extra: BTreeMap<String, String>,
    /// Devices as the API shows them.
    pub devices: Vec<Value>,
    /// Boot order as the API shows it.
    pub boot_order: Vec<Value>,
    /// Path of its configuration file, `[datastore] path`.
    pub path: String,
    /// vCenter shows no configuration of the VM, as when its datastore is unreachable. A search by uuid then misses it.
    pub hidden: bool,
    /// Whether it runs.
    pub on: bool,
    /// Whether it is suspended: it does not run, and continues where it was when it is switched on.
    pub suspended: bool,
    /// Whether it refuses to be switched off while it is suspended.
    pub stiff: bool,
    /// How often it was switched on or reset.
    pub boots: u64,
    /// How often it was reset.
    pub resets: u64,
    /// Whether a task works on it.
    pub busy: bool,
    /// Whether its guest has mounted the medium in the drive.
    pub tray_locked: bool,
    /// The question that it asks, in the API's form. The task that needs the answer waits.
    pub question: Option<Value>,
    /// Number of CPUs.
    pub cpus: u64,
    /// Memory in MiB.
    pub memory: u64,
    /// Firmware: `efi` or `bios`.
    pub firmware: String,
    /// The node that its guest is, as VMware Tools report it. Workloads set this before a hub loses its data about the
    /// VM. From then on nothing may touch the VM until a person decides.
    pub node: Option<String>,
    /// Its former power states, each with the moment of its end.
    pub formerly: Vec<(Instant, &'static str)>,
}

impl Vm {
    /// Another text with each change of its configuration.
    #[must_use]
    pub fn version(&self) -> String {
        let mut hasher = DefaultHasher::new();
        let shown = (&self.name, &self.annotation, &self.extra, &self.path);
        shown.hash(&mut hasher);
        (self.cpus, self.memory, &self.firmware, &self.boot_order).hash(&mut hasher);
        self.devices.hash(&mut hasher);
        format!("{:x}", hasher.finish())
    }

    /// Whether a reconfiguration by this spec is refused, because the VM changed since its `changeVersion`.
    #[must_use]
    pub fn is_refused(&self, spec: &Value) -> bool {
        let seen = spec["changeVersion"].as_str();
        seen.is_some_and(|seen| seen != self.version())
    }

    /// The database VM of somebody else, in the root folder of VMs.
    #[must_use]
    pub fn somebodys() -> Self {
        Self {
            object: Ref::new("VirtualMachine", "vm-1"),
            name: "somebody-elses-database".to_owned(),
            folder: Ref::new("Folder", "group-v3"),
            uuid: "42310000-0000-4000-8000-000000000001".to_owned(),
            instance_uuid: "50310000-0000-4000-8000-000000000001".to_owned(),
            // A VM without any device would count as one whose configuration is unknown.
            devices: vec![json!({"_typeName": "VirtualDisk", "key": 2000})],
            path: "[ds-0] somebody-elses-database/somebody-elses-database.vmx".to_owned(),
            on: true,
            boots: 1,
            cpus: 8,
            memory: 65536,
            firmware: "bios".to_owned(),
            ..Self::default()
        }
    }

    /// Its power state in the API's form.
    #[must_use]
    pub fn power(&self) -> &'static str {
        match (self.on, self.suspended) {
            (true, _) => "poweredOn",
            (false, true) => "suspended",
            (false, false) => "poweredOff",
        }
    }

    /// Its power state at that moment. `None` asks for the present one.
    #[must_use]
    pub fn power_at(&self, then: Option<Instant>) -> &'static str {
        let later = |(end, _): &&(Instant, &str)| then.is_some_and(|then| *end > then);
        let former = self.formerly.iter().find(later);
        former.map_or_else(|| self.power(), |(_, power)| power)
    }

    /// Notes that its power state is about to change.
    pub fn remember_power(&mut self) {
        self.formerly.push((Instant::now(), self.power()));
    }

    /// Somebody suspends the VM.
    pub fn suspend(&mut self) {
        self.remember_power();
        self.suspended = self.on;
        self.on = false;
    }

    /// Gives its network card another address. Returns the former one.
    pub fn replace_card(&mut self, mac: &str) -> Option<String> {
        let mut devices = self.devices.iter_mut();
        let card = devices.find(|d| d["macAddress"].is_string())?;
        let before = card["macAddress"].as_str().map(str::to_owned);
        card["macAddress"] = json!(mac);
        before
    }

    /// Number of drives that contain an ISO.
    #[must_use]
    pub fn discs(&self) -> usize {
        let is_full = |d: &&Value| text(d, "/backing/fileName").ends_with(".iso");
        self.devices.iter().filter(is_full).count()
    }
}

/// VMs by id, and which of them may have changed, in the order of the changes.
#[derive(Debug, Default)]
pub struct Vms {
    all: BTreeMap<String, Vm>,
    log: Vec<String>,
}

impl Vms {
    /// One VM, to change it.
    pub fn get_mut(&mut self, id: &str) -> Option<&mut Vm> {
        let found = self.all.get_mut(id)?;
        self.log.push(id.to_owned());
        Some(found)
    }

    /// All VMs, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Vm> {
        self.log.extend(self.all.keys().cloned());
        self.all.values_mut()
    }

    /// Adds a VM.
    pub fn insert(&mut self, id: String, vm: Vm) -> Option<Vm> {
        self.log.push(id.clone());
        self.all.insert(id, vm)
    }

    /// Removes a VM.
    pub fn remove(&mut self, id: &str) -> Option<Vm> {
        self.log.push(id.to_owned());
        self.all.remove(id)
    }

    /// A number that grows with each change.
    #[must_use]
    pub fn version(&self) -> usize {
        self.log.len()
    }

    /// Ids of the VMs that may have changed since that version, including those that were removed.
    #[must_use]
    pub fn since(&self, version: usize) -> BTreeSet<String> {
        let news = self.log.get(version..).unwrap_or_default();
        news.iter().cloned().collect()
    }
}

impl Deref for Vms {
    type Target = BTreeMap<String, Vm>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

/// A task.
#[derive(Clone, Debug)]
pub struct Task {
    /// `running`, `success` or `error`.
    pub state: &'static str,
    /// Wrapped result.
    pub result: Option<Value>,
    /// Error of a failed task.
    pub error: Option<Value>,
}

/// A file.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// Content.
    pub bytes: Bytes,
    /// Time in RFC 3339 format.
    pub modified: String,
}

/// A session with the objects that end with it.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// User.
    pub user: String,
    /// The operator's process that opened it.
    pub life: u32,
    /// Whether it is valid for the Automation API only.
    pub automation: bool,
    /// List views.
    pub views: BTreeMap<String, BTreeSet<Ref>>,
    /// Container views. Their content is computed at each read.
    pub containers: BTreeSet<String>,
    /// Property collectors with their filters.
    pub collectors: BTreeMap<String, Collector>,
}

/// What a filter reported, by object and property.
pub type Told = BTreeMap<Ref, BTreeMap<String, Value>>;

/// A property collector.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    /// Filters: their specs and what they reported.
    pub filters: Vec<(Value, Told)>,
    /// The last version.
    pub version: u64,
    /// Number of waits so far. A new wait ends the former one.
    pub waits: u64,
}

/// The whole inventory.
#[derive(Debug, Default)]
pub struct Inventory {
    /// A number that grows with each change.
    pub version: u64,
    /// All objects except VMs.
    pub nodes: BTreeMap<Ref, Node>,
    /// VMs by id.
    pub vms: Vms,
    /// Tasks by id.
    pub tasks: BTreeMap<String, Task>,
    /// Files by datastore and path.
    pub files: BTreeMap<(String, String), File>,
    /// Directories by datastore and path.
    pub directories: BTreeSet<(String, String)>,
    /// Tags by VM.
    pub tags: BTreeMap<String, BTreeSet<String>>,
    /// Sessions by token.
    pub sessions: BTreeMap<String, Session>,
    /// Pages of large answers, by token.
    pub pages: BTreeMap<String, Vec<Value>>,
    /// The user and password that are accepted.
    pub login: (String, String),
    /// What a backup of vCenter would not contain.
    pub drift: Drift,
    /// The moment whose power states are shown. `None` for the present.
    pub shows: Option<Instant>,
    serial: u64,
}

/// A value wrapped with its type.
#[must_use]
pub fn boxed(kind: &str, value: impl Into<Value>) -> Value {
    json!({"_typeName": kind, "_value": value.into()})
}

impl Inventory {
    /// The next number for ids.
    pub fn number(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Removes a VM with its tags. Its files stay.
    pub fn remove_vm(&mut self, id: &str) {
        self.vms.remove(id);
        self.tags.remove(id);
    }

    /// Adds a node.
    pub fn add(&mut self, kind: &str, id: &str, name: &str, parent: Option<&Ref>) -> Ref {
        let object = Ref::new(kind, id);
        let node = Node {
            name: name.to_owned(),
            parent: parent.cloned(),
            properties: BTreeMap::new(),
        };
        self.nodes.insert(object.clone(), node);
        object
    }

    /// Sets a property.
    pub fn set(&mut self, object: &Ref, property: &'static str, value: Value) {
        if let Some(node) = self.nodes.get_mut(object) {
            node.properties.insert(property, value);
        }
    }

    /// Name and parent of any object.
    #[must_use]
    pub fn place(&self, object: &Ref) -> Option<(&str, Option<&Ref>)> {
        if object.kind == "VirtualMachine" {
            let vm = self.vms.get(&object.id)?;
            return Some((&vm.name, Some(&vm.folder)));
        }
        let node = self.nodes.get(object)?;
        Some((&node.name, node.parent.as_ref()))
    }

    /// The objects directly below.
    #[must_use]
    pub fn children(&self, parent: &Ref) -> Vec<Ref> {
        let nodes = self
            .nodes
            .iter()
            .filter(|(_, n)| n.parent.as_ref() == Some(parent))
            .map(|(r, _)| r.clone());
        let vms = self
            .vms
            .values()
            .filter(|v| v.folder == *parent)
            .map(|v| v.object.clone());
        nodes.chain(vms).collect()
    }

    /// The child with that name.
    #[must_use]
    pub fn child(&self, parent: &Ref, name: &str) -> Option<Ref> {
        let mut nodes = self.nodes.iter();
        let node = nodes.find(|(_, n)| n.parent.as_ref() == Some(parent) && n.name == name);
        let vm = || {
            let mut vms = self.vms.values();
            vms.find(|v| v.folder == *parent && v.name == name)
        };
        node.map(|(r, _)| r.clone())
            .or_else(|| vm().map(|v| v.object.clone()))
    }

    /// Path from the root, e.g. `/dc1/vm/demo/a`.
    #[must_use]
    pub fn path(&self, object: &Ref) -> String {
        match self.place(object) {
            Some((name, Some(parent))) => format!("{}/{name}", self.path(parent)),
            _ => String::new(),
        }
    }

    /// Whether an object exists.
    #[must_use]
    pub fn exists(&self, session: &Session, object: &Ref) -> bool {
        match object.kind.as_str() {
            "VirtualMachine" => self.vms.contains_key(&object.id),
            "Task" => self.tasks.contains_key(&object.id),
            "ListView" => session.views.contains_key(&object.id),
            "ContainerView" => session.containers.contains(&object.id),
            _ => self.nodes.contains_key(object),
        }
    }

    /// A property in its JSON form. `None` when it is not set, a fault when there is no such property.
    ///
    /// # Errors
    /// `InvalidProperty`.
    pub fn property(&self, object: &Ref, path: &str) -> Result<Option<Value>, Fault> {
        let text = |t: &str| Some(boxed("string", t));
        let invalid = || Fault::new("InvalidProperty", json!({"name": path}));
        if object.kind == "Task" {
            let task = self.tasks.get(&object.id);
            return Ok(match (path, task) {
                (_, None) => None,
                ("info.state", Some(t)) => Some(boxed("TaskInfoState", t.state)),
                ("info.error", Some(t)) => t.error.clone(),
                ("info.result", Some(t)) => t.result.clone(),
                _ => return Err(invalid()),
            });
        }
        let is_vm = object.kind == "VirtualMachine";
        if let Some(vm) = self.vms.get(&object.id).filter(|_| is_vm) {
            return Ok(match path {
                "name" => text(&vm.name),
                "parent" => Some(vm.folder.json()),
                "datastore" => {
                    let names = self.stores_of(vm);
                    let is_one = |(r, n): &(&Ref, &Node)| {
                        r.kind == "Datastore" && names.contains(n.name.as_str())
                    };
                    let stores = self.nodes.iter().filter(is_one);
                    let all: Vec<Value> = stores.map(|(r, _)| r.json()).collect();
                    Some(boxed("ArrayOfManagedObjectReference", all))
                }
                "summary.config.vmPathName" => text(&vm.path),
                hidden if vm.hidden && hidden.starts_with("config.") => None,
                "config.uuid" => text(&vm.uuid),
                "config.instanceUuid" => text(&vm.instance_uuid),
                "config.annotation" => text(&vm.annotation),
                "config.extraConfig" => {
                    let option = |(k, v): (&String, &String)| json!({"_typeName": "OptionValue", "key": k, "value": boxed("string", v.as_str())});
                    let all: Vec<Value> = vm.extra.iter().map(option).collect();
                    Some(boxed("ArrayOfOptionValue", all))
                }
                "config.hardware.numCPU" => Some(boxed("int", vm.cpus)),
                "config.hardware.memoryMB" => Some(boxed("int", vm.memory)),
                "config.firmware" => text(&vm.firmware),
                "config.version" => text("vmx-19"),
                "config.hardware.device" => Some(boxed("ArrayOfVirtualDevice", vm.devices.clone())),
                "config.changeVersion" => text(&vm.version()),
                "config.bootOptions" => {
                    let mut options = json!({"_typeName": "VirtualMachineBootOptions"});
                    if !vm.boot_order.is_empty() {
                        options["bootOrder"] = json!(vm.boot_order);
                    }
                    Some(options)
                }
                "config.files.vmPathName" => text(&vm.path),
                "runtime.powerState" => {
                    let power = vm.power_at(self.shows);
                    Some(boxed("VirtualMachinePowerState", power))
                }
                "runtime.connectionState" => {
                    let state = if vm.hidden {
                        "inaccessible"
                    } else {
                        "connected"
                    };
                    Some(boxed("VirtualMachineConnectionState", state))
                }
                "guest.toolsRunningStatus" => {
                    let state = if vm.power_at(self.shows) == "poweredOn" {
                        "guestToolsRunning"
                    } else {
                        "guestToolsNotRunning"
                    };
                    text(state)
                }
                "guest.ipAddress" => vm.node.as_ref().map(|_| boxed("string", "10.173.0.7")),
                "guest.hostName" => vm.node.as_deref().and_then(text),
                "runtime.question" => vm.question.clone(),
                "runtime.host" | "summary.storage.committed" | "rootSnapshot" => None,
                _ => return Err(invalid()),
            });
        }
        let Some(node) = self.nodes.get(object) else {
            return Ok(None);
        };
        Ok(match path {
            "name" => text(&node.name),
            "parent" => node.parent.as_ref().map(Ref::json),
            _ => match node.properties.get(path) {
                Some(Value::Null) => None,
                Some(value) => Some(value.clone()),
                None => return Err(invalid()),
            },
        })
    }

    /// Names of the datastores of the VM's files and of the media in its drives.
    fn stores_of<'a>(&self, vm: &'a Vm) -> BTreeSet<&'a str> {
        let files = vm.devices.iter().map(|d| text(d, "/backing/fileName"));
        let stores = files.chain([vm.path.as_str()]);
        let name = |path: &'a str| Some(path.strip_prefix('[')?.split_once(']')?.0);
        stores.filter_map(name).collect()
    }

    /// The objects that a property refers to.
    #[must_use]
    pub fn follow(&self, session: &Session, object: &Ref, path: &str) -> Vec<Ref> {
        match (object.kind.as_str(), path) {
            ("ListView", "view") => session
                .views
                .get(&object.id)
                .into_iter()
                .flatten()
                .cloned()
                .collect(),
            ("ContainerView", "view") => self.vms.values().map(|v| v.object.clone()).collect(),
            ("Folder" | "StoragePod", "childEntity") => self.children(object),
            (_, "parent") => self
                .place(object)
                .and_then(|(_, p)| p.cloned())
                .into_iter()
                .collect(),
            _ => {
                let value = self.nodes.get(object).and_then(|n| n.properties.get(path));
                let found = value.map(|v| v.get("_value").unwrap_or(v));
                match found {
                    Some(Value::Array(all)) => all.iter().filter_map(Ref::read).collect(),
                    Some(one) => Ref::read(one).into_iter().collect(),
                    None => Vec::new(),
                }
            }
        }
    }
}

/// Whether an object of type `kind` is also a `wanted`.
#[must_use]
pub fn is_a(kind: &str, wanted: &str) -> bool {
    let entity = || !matches!(kind, "Task" | "ListView" | "ContainerView");
    kind == wanted
        || match wanted {
            "ManagedEntity" => entity(),
            "ComputeResource" => kind == "ClusterComputeResource",
            "Network" => matches!(kind, "DistributedVirtualPortgroup" | "OpaqueNetwork"),
            "Folder" => kind == "StoragePod",
            _ => false,
        }
}

/// A vCenter with one datacenter. It has a cluster with DRS and two hosts, a datastore cluster with two datastores, an
/// ISO datastore, one network, and a foreign VM.
#[must_use]
pub fn furnished(user: &str, password: &str) -> Inventory {
    let mut i = Inventory {
        login: (user.to_owned(), password.to_owned()),
        ..Inventory::default()
    };
    let root = i.add("Folder", "group-d1", "Datacenters", None);
    let dc = i.add("Datacenter", "datacenter-2", "dc1", Some(&root));
    i.add("Folder", "group-v3", "vm", Some(&dc));
    let host_folder = i.add("Folder", "group-h4", "host", Some(&dc));
    let stores = i.add("Folder", "group-s5", "datastore", Some(&dc));
    let networks = i.add("Folder", "group-n6", "network", Some(&dc));
    let kind = "ClusterComputeResource";
    let cluster = i.add(kind, "domain-c7", "cluster", Some(&host_folder));
    let pool = i.add("ResourcePool", "resgroup-8", "Resources", Some(&cluster));
    let hosts = [("host-0", "esx0"), ("host-1", "esx1")]
        .map(|(id, name)| i.add("HostSystem", id, name, Some(&cluster)));
    let name = "workload-datastore-cluster";
    let pod = i.add("StoragePod", "group-p9", name, Some(&stores));
    let all_stores = [
        i.add("Datastore", "datastore-10", "ds-0", Some(&pod)),
        i.add("Datastore", "datastore-11", "ds-1", Some(&pod)),
        i.add("Datastore", "datastore-12", "iso-datastore", Some(&stores)),
    ];
    let network = i.add("Network", "network-13", "VM Network", Some(&networks));
    let refs = |all: &[Ref]| {
        let all: Vec<Value> = all.iter().map(Ref::json).collect();
        boxed("ArrayOfManagedObjectReference", all)
    };
    i.set(&dc, "datastore", refs(&all_stores));
    i.set(&dc, "network", refs(std::slice::from_ref(&network)));
    i.set(&cluster, "host", refs(&hosts));
    i.set(&cluster, "resourcePool", pool.json());
    i.set(&cluster, "configurationEx", json!({"_typeName": "ClusterConfigInfoEx", "drsConfig": {"_typeName": "ClusterDrsConfigInfo", "enabled": true}}));
    i.set(&pool, "owner", cluster.json());
    i.set(&pod, "podStorageDrsEntry", json!({"_typeName": "PodStorageDrsEntry", "storageDrsConfig": {"podConfig": {"enabled": false}}}));
    for host in &hosts {
        i.set(host, "network", refs(std::slice::from_ref(&network)));
        let connected = boxed("HostSystemConnectionState", "connected");
        i.set(host, "runtime.connectionState", connected);
        i.set(host, "runtime.inMaintenanceMode", boxed("boolean", false));
    }
    let mounts: Vec<Value> = hosts
        .iter()
        .map(|h| json!({"_typeName": "DatastoreHostMount", "key": h.json(), "mountInfo": {"accessMode": "readWrite", "mounted": true, "accessible": true}}))
        .collect();
    for store in &all_stores {
        let name = i.nodes[store].name.clone();
        let free = (1_u64 << 46) + if name == "ds-0" { 1 << 30 } else { 0 };
        i.set(store, "summary", json!({"_typeName": "DatastoreSummary", "name": name, "accessible": true, "freeSpace": free, "maintenanceMode": "normal"}));
        let mounted = boxed("ArrayOfDatastoreHostMount", mounts.clone());
        i.set(store, "host", mounted);
        let browser = Ref::new("HostDatastoreBrowser", format!("browser-{}", store.id));
        i.set(store, "browser", browser.json());
    }
    i.vms.insert("vm-1".to_owned(), Vm::somebodys());
    i.serial = 100;
    i
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stale_answer_shows_the_power_of_that_moment() {
        let mut inventory = furnished("u", "p");
        let vm = inventory.vms.get_mut("vm-1").expect("vm-1");
        let began = Instant::now();
        tokio::time::advance(Duration::from_secs(10)).await;
        vm.suspend();
        tokio::time::advance(Duration::from_secs(10)).await;
        let then = |seconds| Some(began + Duration::from_secs(seconds));
        assert_eq!(vm.power_at(then(5)), "poweredOn");
        assert_eq!(vm.power_at(then(15)), "suspended");
        let object = vm.object.clone();
        let shown = |i: &Inventory| i.property(&object, "runtime.powerState").expect("property");
        assert_eq!(shown(&inventory).expect("value")["_value"], "suspended");
        inventory.shows = then(5);
        assert_eq!(shown(&inventory).expect("value")["_value"], "poweredOn");
    }
}
