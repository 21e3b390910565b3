//! The identity rule: whether an Agent runs on one of our VMs. It compares all that the Agent shows with all that is on
//! record. Pure.
//!
//! A guest writes its own inventory and chooses its own host id, so a single fact of it proves nothing. An Agent is the VM's
//! only if all of this fits: the uuid, a MAC, the InfraEnv that the VM boots from, and the age. And no BareMetalHost may own
//! it. The rule does not ask for evidence that was never recorded, as for a VM of an earlier release or one that was taken
//! over. An Agent that may run on the VM makes the operator wait ([`AgentMatch::may_run_there`]). The operator acts only on
//! [`AgentMatch::Same`].

use std::fmt;

use agent_forge_crds::external::{
    agent::{Agent, SystemVendor},
    infra_env::InfraEnv,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt;

use super::hardware_ids::{BiosUuid, MacAddress};

/// How much older than the VM's first start its Agent may look. Two clocks give the two times, and they may differ.
pub const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// The InfraEnv whose ISO a VM boots from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootSource {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// uid; `None` if it is not known, or if it comes from another hub.
    pub uid: Option<String>,
}

impl BootSource {
    /// The InfraEnv that such a reference means.
    #[must_use]
    pub fn read(reference: &ObjectReference) -> Option<Self> {
        let filled = |text: &Option<String>| text.clone().filter(|t| !t.is_empty());
        Some(Self {
            namespace: filled(&reference.namespace)?,
            name: filled(&reference.name)?,
            uid: filled(&reference.uid),
        })
    }

    /// That InfraEnv.
    #[must_use]
    pub fn of(infra_env: &InfraEnv) -> Self {
        Self {
            namespace: infra_env.namespace().unwrap_or_default(),
            name: infra_env.name_any(),
            uid: infra_env.uid(),
        }
    }

    /// Whether both mean one InfraEnv. An unknown uid matches every uid.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let uids = self.uid.as_ref().zip(other.uid.as_ref());
        self.namespace == other.namespace
            && self.name == other.name
            && uids.is_none_or(|(a, b)| a == b)
    }
}

impl fmt::Display for BootSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InfraEnv {}/{}", self.namespace, self.name)?;
        match &self.uid {
            Some(uid) => write!(f, " (uid {uid})"),
            None => Ok(()),
        }
    }
}

/// What is known of one of our VMs, for the comparison with Agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmIdentity {
    /// BIOS uuid, vSphere order.
    pub bios_uuid: BiosUuid,
    /// MACs of its virtual NICs as vCenter reported them. Empty: nothing can match yet.
    pub macs: Vec<MacAddress>,
    /// The InfraEnv that it boots from; `None`: never recorded.
    pub infra_env: Option<BootSource>,
    /// When it was first switched on, or a moment before; `None`: never recorded.
    pub first_powered_on: Option<Timestamp>,
}

/// The fact that differs, of an Agent that names the VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// Its name is the uuid of another machine.
    Name,
    /// Its serial number is another machine's.
    Serial,
    /// A BareMetalHost owns it.
    BareMetal,
    /// It belongs to another InfraEnv than the one that the VM boots from.
    InfraEnv,
    /// It was created before the VM was first switched on.
    Age,
    /// No MAC of the VM is among its interfaces.
    Mac,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "its name is the uuid of another machine",
            Self::Serial => "its serial number is another machine's",
            Self::BareMetal => "a BareMetalHost owns it",
            Self::InfraEnv => "it belongs to another InfraEnv than the one that the VM boots from",
            Self::Age => "it was created before the VM was first switched on",
            Self::Mac => "it has no MAC address of the VM",
        })
    }
}

/// Answer of the identity rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentMatch {
    /// The Agent runs on that VM.
    Same,
    /// It names the VM, and another fact differs: the operator does not trust it.
    Partly(Misfit),
    /// No fact differs, but some evidence is still missing: wait.
    NotYet,
    /// Another machine.
    Other,
}

impl AgentMatch {
    /// Whether it may run on the VM: enough to wait, never enough to act.
    #[must_use]
    pub fn may_run_there(self) -> bool {
        self != Self::Other
    }
}

/// What an Agent shows of the machine that it runs on.
struct Words {
    /// Its name, if that is a uuid.
    name: Option<BiosUuid>,
    /// Its serial number, if that is one of VMware's.
    serial: Option<BiosUuid>,
    /// It has a serial number.
    has_serial: bool,
}

impl Words {
    fn of(agent: &Agent) -> Self {
        let vendor = agent.inventory().and_then(|i| i.system_vendor.as_ref());
        let serial = vendor
            .and_then(|v| v.serial_number.as_deref())
            .map(str::trim)
            .unwrap_or_default();
        let is_vmware = vendor
            .and_then(|v| v.manufacturer.as_deref())
            .is_some_and(|m| m.starts_with("VMware"));
        Self {
            name: BiosUuid::parse(agent.metadata.name.as_deref().unwrap_or_default()),
            serial: BiosUuid::from_vmware_serial(serial).filter(|_| is_vmware),
            has_serial: !serial.is_empty(),
        }
    }
}

/// The machines that an Agent names by its name and by its serial number. The byte order of each is not fixed. An Agent that
/// does not name a VM does not run on it.
#[must_use]
pub fn named_machines(agent: &Agent) -> Vec<BiosUuid> {
    let words = Words::of(agent);
    let mut all: Vec<BiosUuid> = words.name.into_iter().chain(words.serial).collect();
    all.dedup_by_key(|uuid| uuid.in_one_order());
    all
}

/// The machine that an Agent's inventory shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownMachine {
    /// A VM of VMware.
    Vm(BiosUuid),
    /// Another machine, such as bare metal.
    Other,
    /// There is no inventory, or it says VMware without a serial number that can be read.
    Unknown,
}

/// Whether the inventory says VMware. Either sign is enough: a guest whose firmware hides its serial number still names the
/// manufacturer.
#[must_use]
pub fn is_vmware(vendor: &SystemVendor) -> bool {
    let starts = |text: &Option<String>, with| text.as_ref().is_some_and(|t| t.starts_with(with));
    starts(&vendor.serial_number, "VMware-") || starts(&vendor.manufacturer, "VMware")
}

/// The machine that an Agent's inventory shows. The owner BareMetalHost says more than that.
#[must_use]
pub fn shown_machine(agent: &Agent) -> ShownMachine {
    let vendor = agent.inventory().and_then(|i| i.system_vendor.as_ref());
    let named = |v: &&SystemVendor| {
        v.manufacturer
            .as_deref()
            .is_some_and(|m| !m.trim().is_empty())
    };
    let vendor = vendor.filter(named);
    match (agent.is_bare_metal_host(), Words::of(agent).serial, vendor) {
        (true, ..) => ShownMachine::Other,
        (_, Some(uuid), _) => ShownMachine::Vm(uuid),
        (_, None, Some(vendor)) if !is_vmware(vendor) => ShownMachine::Other,
        _ => ShownMachine::Unknown,
    }
}

/// The identity rule. See the module's text.
#[must_use]
pub fn agent_runs_on(agent: &Agent, vm: &VmIdentity) -> AgentMatch {
    let words = Words::of(agent);
    let ours = |uuid: Option<BiosUuid>| uuid.is_some_and(|u| u.same_machine(vm.bios_uuid));
    if !ours(words.name) && !ours(words.serial) {
        return AgentMatch::Other;
    }
    let misfit = if words.name.is_some() && !ours(words.name) {
        Some(Misfit::Name)
    } else if words.has_serial && !ours(words.serial) {
        Some(Misfit::Serial)
    } else if agent.is_bare_metal_host() {
        Some(Misfit::BareMetal)
    } else if is_of_another(agent, vm) {
        Some(Misfit::InfraEnv)
    } else if is_too_old(agent, vm) {
        Some(Misfit::Age)
    } else {
        None
    };
    match misfit {
        Some(misfit) => AgentMatch::Partly(misfit),
        None => by_what_may_come(agent, vm),
    }
}

/// Checks the evidence that arrives later than the Agent: its inventory, and the label of its InfraEnv.
fn by_what_may_come(agent: &Agent, vm: &VmIdentity) -> AgentMatch {
    let interfaces = agent.inventory().map(|i| i.interfaces.as_slice());
    let seen: Vec<MacAddress> = interfaces
        .unwrap_or_default()
        .iter()
        .filter_map(|n| n.mac_address.as_deref().and_then(MacAddress::parse))
        .collect();
    let unlabelled = agent.infra_env().is_none_or(str::is_empty) && vm.infra_env.is_some();
    if seen.is_empty() || vm.macs.is_empty() {
        AgentMatch::NotYet
    } else if !vm.macs.iter().any(|m| seen.contains(m)) {
        AgentMatch::Partly(Misfit::Mac)
    } else if unlabelled {
        AgentMatch::NotYet
    } else {
        AgentMatch::Same
    }
}

/// Its namespace, its label or its owner names another InfraEnv. A missing label decides nothing yet. An InfraEnv that was
/// created again under the same name is another one: no guest of the old ISO registers with it.
fn is_of_another(agent: &Agent, vm: &VmIdentity) -> bool {
    let Some(source) = &vm.infra_env else {
        return false;
    };
    let labelled = agent.infra_env().filter(|name| !name.is_empty());
    let owner = agent.infra_env_uid(&source.name);
    agent.metadata.namespace.as_ref() != Some(&source.namespace)
        || labelled.is_some_and(|name| name != source.name)
        || owner
            .zip(source.uid.as_deref())
            .is_some_and(|(a, b)| a != b)
}

/// It was created before the VM ran. An Agent without a creation time does not come from the API server.
fn is_too_old(agent: &Agent, vm: &VmIdentity) -> bool {
    let Some(first) = vm.first_powered_on else {
        return false;
    };
    let created = agent.metadata.creation_timestamp.as_ref();
    created.is_none_or(|t| first.duration_since(t.0) > CLOCK_SKEW)
}

#[cfg(test)]
mod tests;
