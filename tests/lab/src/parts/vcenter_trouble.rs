//! What can be done to the simulated vCenter behind its clients' backs.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// A fault that strikes calls of clients.
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
    skip: u32,
    vm_name: String,
}

impl Rule {
    fn new(method: &str, at: &'static str) -> Self {
        Self {
            method: method.into(),
            at,
            fault: None,
            status: None,
            count: 0,
            skip: 0,
            vm_name: String::new(),
        }
    }

    /// The call answers with `fault`, an object with `_typeName`. A method is named as in [`super::vcenter_inventory::Calls::by_method`]; `*` is any.
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

    /// The call is taken and never answered, until the rule goes.
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

    /// Only for the next `count` calls; without this for all.
    #[must_use]
    pub fn times(mut self, count: u32) -> Self {
        self.count = count;
        self
    }

    /// Lets `skip` calls pass before the first that is struck.
    #[must_use]
    pub fn after(mut self, skip: u32) -> Self {
        self.skip = skip;
        self
    }

    /// Only for the VM of this name.
    #[must_use]
    pub fn vm(mut self, name: &str) -> Self {
        self.vm_name = name.into();
        self
    }
}

/// How a vCenter is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Connections break at once.
    Refuse,
    /// Every request is answered with 503.
    Unavailable,
    /// Requests are taken and never answered.
    Hang,
}

/// A VM that no client asked for.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignVm {
    /// Name.
    pub name: String,
    /// Folder below the datacenter's VM folder, made when missing; empty is that folder itself.
    pub folder: String,
    /// Datastore; empty is the one of the images.
    pub datastore: String,
    /// BIOS uuid; empty takes a new one.
    pub uuid: String,
    /// Extra configuration.
    pub extra_config: BTreeMap<String, String>,
    /// Whether it runs.
    pub power_on: bool,
    /// What lies in its CD-ROM drive, as `[datastore] path`; empty is a VM without a drive.
    pub iso: String,
}

/// What a datastore says of itself; `None` leaves it as it is.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DatastoreState {
    /// Free bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<i64>,
    /// Whether it is in maintenance mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<bool>,
    /// Whether its hosts reach it.
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
    /// Have its files out of reach: no configuration of it is shown.
    Hide,
    /// Have them in reach again.
    Show,
    /// Destroy it.
    Destroy,
    /// Take the media out of its CD-ROM drives.
    Eject,
    /// Its guest locks the tray of its CD-ROM drive.
    LockTray,
    /// Put the disks first in its boot order.
    BootFromDisk,
    /// Copy it, with its BIOS uuid and extra configuration, under this name (empty: its own with a suffix).
    Clone(&'a str),
}
