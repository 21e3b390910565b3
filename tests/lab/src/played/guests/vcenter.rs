//! The part of the simulated vCenter's admin endpoint that guests use: the inventory, reported at each change.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use reqwest::{Client, StatusCode};
use serde::Deserialize;
use serde_json::Value;

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
        Self::inventory(self, newer_than).await
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

/// Client of the admin endpoint. Cheap to clone.
#[derive(Debug, Clone)]
pub struct VCenter {
    http: Client,
    url: String,
}

impl VCenter {
    /// A client of the vCenter at `url` that trusts `ca_pem`, which may be empty without TLS.
    ///
    /// # Errors
    /// The certificate cannot be read.
    pub fn new(url: &str, ca_pem: &str) -> Result<Self> {
        // Fails if a provider is already installed, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder().no_proxy().timeout(POLL + ANSWER);
        if !ca_pem.is_empty() {
            let trusted = reqwest::Certificate::from_pem(ca_pem.as_bytes())
                .context("certificate of the vCenter")?;
            builder = builder.tls_certs_only([trusted]);
        }
        Ok(Self {
            http: builder.build()?,
            url: url.trim_end_matches('/').to_owned(),
        })
    }

    /// The inventory once it is newer than `newer_than`, or as it is after a while. Without a version it returns at
    /// once.
    ///
    /// # Errors
    /// There is no answer, or not the expected one.
    pub async fn inventory(&self, newer_than: Option<u64>) -> Result<Inventory> {
        let mut url = format!("{}/_admin/inventory?files=false", self.url);
        if let Some(version) = newer_than {
            url = format!("{url}&waitVersion={version}&timeoutMs={}", POLL.as_millis());
        }
        Ok(self
            .http
            .get(url)
            .send()
            .await?
            .error_for_status()?
            .json()
            .await?)
    }

    /// A VM with everything that the endpoint shows of it; `None` if it is gone.
    ///
    /// # Errors
    /// There is no answer, or not the expected one.
    pub async fn shown(&self, moref: &str) -> Result<Option<Value>> {
        let url = format!("{}/_admin/inventory?files=false", self.url);
        let all: Value = self
            .http
            .get(url)
            .send()
            .await?
            .error_for_status()?
            .json()
            .await?;
        let vms = all["vms"].as_array().into_iter().flatten();
        Ok(vms.into_iter().find(|vm| vm["moref"] == moref).cloned())
    }

    /// The first `length` bytes of a datastore file; `None` if there is no such file.
    ///
    /// # Errors
    /// The path is no datastore path, or the endpoint does not answer.
    pub async fn read(&self, path: &str, length: usize) -> Result<Option<Vec<u8>>> {
        let (datastore, file) = path
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
            .with_context(|| format!("{path:?} is not of the form \"[datastore] file\""))?;
        let mut url = url::Url::parse(&self.url)?;
        url.path_segments_mut()
            .map_err(|()| anyhow::anyhow!("{} cannot have a path", self.url))?
            .extend(["_admin", "datastores", datastore, "files"])
            .extend(file.trim_start().split('/'));
        let range = format!("bytes=0-{}", length.saturating_sub(1));
        let answer = self.http.get(url).header("Range", range).send().await?;
        if answer.status() == StatusCode::NOT_FOUND
            || answer.status() == StatusCode::RANGE_NOT_SATISFIABLE
        {
            return Ok(None);
        }
        Ok(Some(answer.error_for_status()?.bytes().await?.to_vec()))
    }

    /// Does to a VM what another person could do: `power-on`, `power-off`, `destroy`, `clone`, `eject`,
    /// `boot-from-disk`.
    ///
    /// # Errors
    /// There is no such VM, or vCenter refuses.
    pub async fn act(&self, moref: &str, action: &str) -> Result<()> {
        self.post(&format!("vms/{moref}/{action}"), &serde_json::json!({}))
            .await
            .map(drop)
    }

    /// Posts `body` to an admin path. Returns the JSON of the answer; null for an empty one.
    ///
    /// # Errors
    /// The endpoint refuses; the text says why.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let answer = self
            .http
            .post(format!("{}/_admin/{path}", self.url))
            .json(body)
            .send()
            .await?;
        let (status, text) = (answer.status(), answer.text().await?);
        anyhow::ensure!(
            status.is_success(),
            "vCenter admin {path}: {status}: {text}"
        );
        if text.is_empty() {
            Ok(Value::Null)
        } else {
            serde_json::from_str(&text).context("vCenter admin answer")
        }
    }
}
