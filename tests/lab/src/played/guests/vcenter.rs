//! The part of a vCenter that guests use: the inventory, reported at each change, and files.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use async_trait::async_trait;
use reqwest::Method;
use serde::Deserialize;

pub use crate::parts::VCenterAdmin as VCenter;
use crate::patience::ANSWER;

/// How long a poll stays open without a change.
const POLL: Duration = Duration::from_secs(20);

/// The vCenter, as far as guests need it.
#[async_trait]
pub trait Hypervisor: std::fmt::Debug + Send + Sync {
    /// The inventory once it is newer than `newer_than`, or as it is after a while. Without a version it returns at
    /// once.
    ///
    /// # Errors
    /// There is no answer, or not the expected one.
    async fn inventory(&self, newer_than: Option<u64>) -> Result<Inventory>;

    /// The first `length` bytes of a datastore file; `None` if there is no such file.
    ///
    /// # Errors
    /// The path is no datastore path, or there is no answer.
    async fn read(&self, path: &str, length: usize) -> Result<Option<Vec<u8>>>;
}

#[async_trait]
impl Hypervisor for VCenter {
    async fn inventory(&self, newer_than: Option<u64>) -> Result<Inventory> {
        let mut path = "inventory?files=false".to_owned();
        if let Some(version) = newer_than {
            path += &format!("&waitVersion={version}&timeoutMs={}", POLL.as_millis());
        }
        self.call(Method::GET, &path, None, POLL + ANSWER).await
    }

    async fn read(&self, path: &str, length: usize) -> Result<Option<Vec<u8>>> {
        Self::read(self, path, length).await
    }
}

/// One state of the inventory.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Inventory {
    /// Grows with every change.
    pub version: u64,
    /// All VMs. If `gone` is set, only those that changed.
    pub vms: Vec<Vm>,
    /// Managed object ids of VMs that are gone since the version of the request. If it is not set, `vms` has all VMs.
    #[serde(default)]
    pub gone: Option<Vec<String>>,
}

/// A VM as the admin endpoint shows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Vm {
    /// Managed object id.
    pub moref: String,
    /// Its name.
    pub name: String,
    /// Its inventory path.
    pub path: String,
    /// BIOS uuid in vSphere's byte order.
    pub uuid: String,
    /// `poweredOn`, `poweredOff` or `suspended`.
    pub power: String,
    /// CD drives.
    #[serde(default)]
    pub cdroms: Vec<Cdrom>,
    /// Network cards.
    #[serde(default)]
    pub nics: Vec<Nic>,
    /// Disks.
    #[serde(default)]
    pub disks: Vec<Disk>,
    /// `extraConfig` by key.
    #[serde(default)]
    pub extra_config: BTreeMap<String, String>,
    /// Boot devices in order: `disk:<key>`, `cdrom`, `ethernet:<key>`, `floppy`. Empty means the firmware's own order.
    #[serde(default)]
    pub boot_order: Vec<String>,
    /// Number of CPUs.
    #[serde(default, rename = "numCPU")]
    pub cpus: u32,
    /// Memory in MiB.
    #[serde(default, rename = "memoryMB")]
    pub memory_mib: u64,
    /// When it was last powered on. A new value means a new boot.
    #[serde(default)]
    pub powered_on_at: Option<String>,
}

/// A CD drive.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cdrom {
    /// Datastore path of its medium, `[datastore] path`; empty if there is none.
    #[serde(default)]
    pub path: String,
    /// Whether it is connected now.
    #[serde(default)]
    pub connected: bool,
    /// Whether it is connected at power-on.
    #[serde(default)]
    pub start_connected: bool,
}

/// A network card.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Nic {
    /// Its address, lower-case with colons.
    pub mac: String,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Disk {
    /// Device key.
    pub key: i32,
    /// Size in GiB.
    pub gb: u64,
    /// Tells it from every other disk, also from one that was in its place before.
    #[serde(default)]
    pub uuid: String,
}

impl Vm {
    /// Tells its first disk from all others; empty for none. Its content belongs to the disk and not to the VM.
    #[must_use]
    pub fn disk_id(&self) -> String {
        let id = self.disks.first().map(|disk| match disk.uuid.as_str() {
            "" => format!("{}{}", self.uuid, disk.key),
            uuid => uuid.to_owned(),
        });
        id.unwrap_or_default().replace('-', "").to_ascii_lowercase()
    }

    /// Whether it is powered on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.power == "poweredOn"
    }

    /// Whether it is suspended.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.power == "suspended"
    }
}
