//! What the simulated vCenter's admin endpoint shows.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

/// The whole content of the simulated vCenter.
#[derive(Clone, Debug, Deserialize)]
pub struct Inventory {
    /// Grows with each change; for [`super::VCenterAdmin::changed_since`].
    pub version: u64,
    /// All VMs, ordered by inventory path.
    pub vms: Vec<Vm>,
    /// Files of all datastores; empty if they were not requested.
    pub files: Vec<File>,
    /// Inventory paths of the VM folders.
    pub folders: Vec<String>,
    /// All tags.
    pub tags: Vec<Tag>,
}

impl Inventory {
    /// The VM with this name.
    pub fn vm(&self, name: &str) -> Option<&Vm> {
        self.vms.iter().find(|vm| vm.name == name)
    }

    /// The file at `path` of `datastore`, if it exists.
    pub fn file(&self, datastore: &str, path: &str) -> Option<&File> {
        self.files
            .iter()
            .find(|file| file.datastore == datastore && file.path == path)
    }
}

/// A VM.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Vm {
    /// Managed object id, for instance `vm-42`.
    pub moref: String,
    /// Name.
    pub name: String,
    /// Inventory path, for instance `/dc1/vm/folder/name`.
    pub path: String,
    /// BIOS uuid (`config.uuid`).
    pub uuid: String,
    /// vCenter's own uuid (`config.instanceUuid`).
    pub instance_uuid: String,
    /// `poweredOn`, `poweredOff` or `suspended`.
    pub power: String,
    /// CD-ROM drives.
    pub cdroms: Vec<Cdrom>,
    /// Network cards.
    pub nics: Vec<Nic>,
    /// Disks.
    pub disks: Vec<Disk>,
    /// Extra configuration.
    pub extra_config: BTreeMap<String, String>,
    /// Notes.
    pub annotation: String,
    /// Virtual processors.
    #[serde(rename = "numCPU")]
    pub num_cpu: i32,
    /// Memory in MiB.
    #[serde(rename = "memoryMB")]
    pub memory_mb: i32,
    /// `bios` or `efi`.
    pub firmware: String,
    /// Guest operating system identifier.
    pub guest_id: String,
    /// Devices in boot order: `disk:<key>`, `ethernet:<key>`, `cdrom` or `floppy`.
    pub boot_order: Vec<String>,
    /// `[datastore] directory/name.vmx`.
    pub vm_path_name: String,
    /// Name of its host.
    pub host: String,
    /// Inventory path of its resource pool.
    pub pool: String,
    /// Ids of its tags.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub tags: Vec<String>,
    /// When it was powered on last; `None` while it is off.
    pub powered_on_at: Option<Timestamp>,
}

impl Vm {
    /// Whether it is powered on.
    pub fn is_on(&self) -> bool {
        self.power == "poweredOn"
    }
}

/// A CD-ROM drive.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cdrom {
    /// Device key.
    pub key: i32,
    /// `[datastore] path` of the image; empty if there is none.
    pub path: String,
    /// Whether it is connected.
    pub connected: bool,
    /// Whether it is connected at power-on.
    pub start_connected: bool,
}

/// A network card.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Nic {
    /// Device key.
    pub key: i32,
    /// Type name, for instance `VirtualVmxnet3`.
    #[serde(rename = "type")]
    pub kind: String,
    /// MAC address, lower case with colons.
    pub mac: String,
    /// Name of its network.
    pub network: String,
}

/// A disk.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Device key.
    pub key: i32,
    /// Size in GiB.
    pub gb: i64,
    /// `[datastore] path` of its file.
    pub file: String,
    /// Whether it is thin.
    pub thin: bool,
    /// Whether its blocks were zeroed when it was created.
    #[serde(rename = "eagerlyScrub")]
    pub eagerly_scrub: bool,
    /// Type name of its controller, for instance `ParaVirtualSCSIController`.
    pub controller: String,
}

/// A file of a datastore.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct File {
    /// Name of the datastore.
    pub datastore: String,
    /// Path in it.
    pub path: String,
    /// Bytes.
    pub size: u64,
}

/// A tag.
#[derive(Clone, Debug, Deserialize)]
pub struct Tag {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
}

/// How often clients called, since the start or the last reset.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Calls {
    /// All calls of clients.
    pub total: u64,
    /// By method (`CreateVM_Task`), or verb and path of other requests (`PUT /folder`).
    pub by_method: BTreeMap<String, u64>,
    /// Logins by kind (`vim`, `rest`), and `refused` ones.
    pub logins: BTreeMap<String, u64>,
}

impl Calls {
    /// Calls of one method.
    pub fn of(&self, method: &str) -> u64 {
        self.by_method.get(method).copied().unwrap_or_default()
    }

    /// Logins of one kind: `vim`, `rest` or `refused`.
    pub fn logins(&self, kind: &str) -> u64 {
        self.logins.get(kind).copied().unwrap_or_default()
    }
}

fn null_is_empty<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
