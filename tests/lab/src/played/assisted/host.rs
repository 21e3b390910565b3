//! What the service knows about a host, and where it keeps that.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;
use tokio::time::Instant;

use super::state::HostState;

/// Manufacturer of every VMware VM. The service checks the disk UUID only for exactly this manufacturer.
pub const VMWARE: &str = "VMware, Inc.";

/// One network interface of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name in the guest.
    pub name: String,
    /// Its address, lower-case with colons.
    pub mac: String,
    /// Its IPv4 address with prefix length; `None` if it has none.
    pub ipv4: Option<String>,
    /// Whether there is a link.
    pub carrier: bool,
}

/// What the agent process finds out about the machine it runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    /// Host id, which is the Agent's name.
    pub id: String,
    /// Serial number of the system; may be empty.
    pub serial: String,
    /// Manufacturer of the system.
    pub manufacturer: String,
    /// Product name of the system.
    pub product: String,
    /// Whether the system is a virtual machine.
    pub is_virtual: bool,
    /// Interfaces in the order the guest lists them.
    pub interfaces: Vec<Interface>,
    /// Number of CPUs.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Size of the first disk in GiB; 0 for no disk.
    pub disk_gib: u64,
    /// Whether disks show their UUID to the guest (`disk.EnableUUID`).
    pub disk_uuid: bool,
    /// Tells the first disk from all others; empty if nothing does. The guest reports it only if disks show their UUID.
    pub disk_id: String,
}

impl HostFacts {
    /// A bare-metal host that satisfies every requirement. Hosts with different `number` are different.
    #[must_use]
    pub fn bare_metal(number: u8) -> Self {
        let id = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, &[number]);
        Self {
            id: id.to_string(),
            serial: format!("CZ3{number:07}"),
            manufacturer: "HPE".to_owned(),
            product: "ProLiant DL360 Gen10".to_owned(),
            is_virtual: false,
            interfaces: vec![Interface {
                name: "eno1".to_owned(),
                mac: format!("94:40:c9:00:00:{number:02x}"),
                ipv4: Some(format!("192.0.2.{number}/24")),
                carrier: true,
            }],
            cpus: 16,
            memory_mib: 65_536,
            disk_gib: 480,
            disk_uuid: true,
            disk_id: format!("6000c2900000{number:04x}"),
        }
    }

    /// The hostname that a guest without a name reports: the MAC address of its first interface with an IP address.
    #[must_use]
    pub fn own_hostname(&self) -> String {
        let addressed = self
            .interfaces
            .iter()
            .find(|interface| interface.carrier && interface.ipv4.is_some());
        addressed.map_or_else(
            || "localhost".to_owned(),
            |interface| interface.mac.replace(':', "-"),
        )
    }
}

/// What the firmware will do at the next boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextBoot {
    /// Boot the installed disk.
    Disk,
    /// Boot the discovery image again.
    Image,
}

/// What a disk starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// The system that an install wrote.
    System,
    /// Discovery for this InfraEnv, which a reclaim put before the system. It stays until the next install.
    Discovery(String),
}

/// How the last validation ended. An unbound host keeps it while it is discovered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validation {
    /// There was none.
    Never,
    /// All checks passed.
    Passing,
    /// Some checks failed.
    Failing,
}

/// The service's record of a host.
#[derive(Debug, Clone)]
pub struct Host {
    /// InfraEnv it registered with, in the Agents' namespace.
    pub infra_env: String,
    /// Facts about the machine.
    pub facts: HostFacts,
    /// Its state.
    pub state: HostState,
    /// When it entered that state.
    pub since: Instant,
    /// The service's sentence about that state, where it has one.
    pub info: Option<&'static str>,
    /// Whether its agent process answers.
    pub agent_runs: bool,
    /// When the agent process started or stopped to answer.
    pub heard: Instant,
    /// Whether the machine is powered on.
    pub powered: bool,
    /// Whether its agent process has the service's version. The one in a discovery image has an older one.
    pub upgraded: bool,
    /// Whether it has reported its inventory since it registered.
    pub reported: bool,
    /// Whether it has checked what only a host in a cluster needs. Until then the validation fails there.
    pub checked: bool,
    /// When it has, by the clock of its guest.
    pub reported_at: Option<Timestamp>,
    /// What the last inventory said. The Agent keeps showing it until there is a new one.
    pub shown: Option<HostFacts>,
    /// Result of the last validation.
    pub validation: Validation,
    /// Cluster it belongs to, as (namespace, name).
    pub cluster: Option<(String, String)>,
    /// Cluster that it last had to leave.
    pub left: Option<(String, String)>,
    /// Stages of its install that have begun.
    pub stage: usize,
    /// The disk that its install or its reclaim wrote last, and what it starts since then.
    pub written: Option<(String, Content)>,
    /// Its reclaim never comes to an end by itself.
    pub reclaim_stalls: bool,
    /// When the last of them began, as a wall clock shows it.
    pub stage_at: Option<Timestamp>,
    /// `spec.hostname` as the service accepted it.
    pub hostname: String,
    /// `spec.role` as the service accepted it.
    pub role: String,
    /// `spec.approved` as the service accepted it.
    pub approved: bool,
    /// What the firmware will do after the install.
    pub next_boot: NextBoot,
    /// Since when the guest runs from its disk, while the service waits for somebody to boot that.
    pub on_disk: Option<Instant>,
    /// Why the last bind or unbind was refused.
    pub refused: Option<String>,
    /// The service could not let it leave its cluster.
    pub kept: bool,
    /// When the service tries that again.
    pub kept_until: Option<Instant>,
    /// Until when its changes are on record. A pass that comes later shows only the last of them.
    pub looked: Instant,
    /// Whether its Agent was created. Until then a missing Agent means nothing.
    pub has_agent: bool,
    /// When the deletion of its Agent began.
    pub leaving_since: Option<Instant>,
}

impl Host {
    /// A host that has just registered.
    #[must_use]
    pub fn new(infra_env: &str, facts: HostFacts, now: Instant) -> Self {
        Self {
            infra_env: infra_env.to_owned(),
            facts,
            state: HostState::DiscoveringUnbound,
            since: now,
            info: None,
            agent_runs: true,
            heard: now,
            powered: true,
            upgraded: false,
            reported: false,
            reported_at: None,
            checked: false,
            shown: None,
            validation: Validation::Never,
            cluster: None,
            left: None,
            stage: 0,
            written: None,
            reclaim_stalls: false,
            stage_at: None,
            hostname: String::new(),
            role: String::new(),
            approved: false,
            next_boot: NextBoot::Disk,
            on_disk: None,
            refused: None,
            kept: false,
            kept_until: None,
            looked: now,
            has_agent: false,
            leaving_since: None,
        }
    }

    /// Moves the host to another state.
    pub fn enter(&mut self, state: HostState, now: Instant) {
        if self.state != state {
            tracing::debug!(
                host = self.facts.id,
                from = self.state.name(),
                to = state.name(),
                "host state"
            );
            self.state = state;
            self.since = now;
            self.info = None;
            self.on_disk = None;
            self.kept_until = None;
        }
    }

    /// Moves the host to another state, of which the service says that.
    pub fn enter_as(&mut self, state: HostState, info: &'static str, now: Instant) {
        self.enter(state, now);
        self.info = Some(info);
    }

    /// Records whether the agent process answers.
    pub fn set_agent(&mut self, runs: bool, now: Instant) {
        if self.agent_runs != runs {
            self.agent_runs = runs;
            self.heard = now;
        }
    }

    /// The name that the service checks: the requested one, otherwise the guest's own.
    #[must_use]
    pub fn effective_hostname(&self) -> String {
        if self.hostname.is_empty() {
            self.facts.own_hostname()
        } else {
            self.hostname.clone()
        }
    }
}

/// All hosts of one Agent namespace, by host id. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    records: Arc<Mutex<BTreeMap<String, Host>>>,
    disks: Arc<Mutex<BTreeMap<String, Content>>>,
}

impl Hosts {
    /// Exclusive access; never held across an await.
    pub fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Host>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what is on the disk that the host wrote. Unlike the host's record, this stays when the Agent is gone.
    pub fn note_disk(&self, host: &Host) {
        if let Some((disk, content)) = &host.written {
            let mut disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
            disks.insert(disk.clone(), content.clone());
        }
    }

    /// What this disk starts; `None` if nothing ever wrote it.
    #[must_use]
    pub fn content(&self, disk: &str) -> Option<Content> {
        let disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        disks.get(disk).cloned()
    }
}
