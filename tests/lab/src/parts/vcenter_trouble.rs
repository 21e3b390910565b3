//! Changes and faults of the simulated vCenter that its clients do not cause.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// A rule that makes calls of clients fail.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    method: String,
    at: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    count: u32,
}

impl Rule {
    fn new(method: &str, at: &'static str) -> Self {
        Self {
            method: method.into(),
            at,
            fault: None,
            status: None,
            count: 0,
        }
    }

    /// The call answers with `fault`, an object with `_typeName`. Methods have the names of
    /// [`super::vcenter_inventory::Calls::by_method`]; `*` means any method.
    pub fn call_fails(method: &str, fault: Value) -> Self {
        Self {
            fault: Some(fault),
            ..Self::new(method, "call")
        }
    }

    /// The task that the call starts ends with `fault`.
    pub fn task_fails(method: &str, fault: Value) -> Self {
        Self {
            fault: Some(fault),
            ..Self::new(method, "task")
        }
    }

    /// The call is accepted and not answered until the rule is removed.
    pub fn hangs(method: &str) -> Self {
        Self::new(method, "hang")
    }

    /// The call is carried out, and its connection breaks before the answer.
    pub fn loses_reply(method: &str) -> Self {
        Self::new(method, "lostReply")
    }

    /// The call answers with an HTTP status from 400 to 599 and nothing else.
    pub fn answers(method: &str, status: u16) -> Self {
        Self {
            status: Some(status),
            ..Self::new(method, "http")
        }
    }

    /// Only for the next `count` calls. By default for all.
    #[must_use]
    pub fn times(mut self, count: u32) -> Self {
        self.count = count;
        self
    }
}

/// How a vCenter is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Connections break at once.
    Refuse,
    /// Every request is answered with 503.
    Unavailable,
    /// Requests are accepted and never answered.
    Hang,
}

/// A VM that no client created.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignVm {
    /// Name.
    pub name: String,
    /// Folder below the datacenter's VM folder. It is created if it is missing. Empty means the VM folder itself.
    pub folder: String,
    /// Datastore; empty means the datastore of the images.
    pub datastore: String,
    /// BIOS uuid; empty means a new one.
    pub uuid: String,
    /// Extra configuration.
    pub extra_config: BTreeMap<String, String>,
    /// Whether it is powered on.
    pub power_on: bool,
    /// The image in its CD-ROM drive, as `[datastore] path`; empty means a VM without a drive.
    pub iso: String,
}

/// The state that a datastore shows; `None` does not change a value.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DatastoreState {
    /// Free bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<i64>,
    /// Whether it is in maintenance mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<bool>,
    /// Whether its hosts can reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accessible: Option<bool>,
}

/// What another person does to a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmAction<'a> {
    /// Power it on.
    PowerOn,
    /// Power it off.
    PowerOff,
    /// Suspend it.
    Suspend,
    /// Destroy it.
    Destroy,
    /// Its guest locks the tray of its CD-ROM drive.
    LockTray,
    /// Put the disks first in its boot order.
    BootFromDisk,
    /// Put its CD-ROM alone in its boot order.
    BootFromCd,
    /// Set this key of its extra configuration to this value; an empty value removes the key.
    SetOption(&'a str, &'a str),
    /// Write these notes.
    SetNotes(&'a str),
    /// Give it that many processors.
    SetCpus(u32),
    /// Give it that hardware version, such as `vmx-13`.
    SetHardwareVersion(&'a str),
    /// Take a snapshot of it.
    TakeSnapshot,
    /// Delete all its snapshots.
    DropSnapshots,
    /// Connect its first network card to the network of that name.
    SetNetwork(&'a str),
    /// Disconnect its network cards, now and at power-on.
    UnplugNic,
    /// Connect them again.
    PlugNic,
}
