//! THE rule: whether an Agent runs on a VM of ours, from all that it says against all that is on record. Pure.
//!
//! A guest writes its own inventory and chooses its own host id, so that none of it alone proves anything. An Agent is
//! the VM's only with the uuid, a MAC, the InfraEnv that the VM boots from, an age that fits, and no BareMetalHost behind
//! it. Evidence that was never recorded (a VM of an earlier release, or one that was taken over) is not asked for.
//! Whatever may be the VM's holds back ([`AgentMatch::may_run_there`]); only [`AgentMatch::Same`] is ever acted on.

use std::fmt;

use agent_forge_crds::external::{agent::Agent, infra_env::InfraEnv};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt;

use super::{BiosUuid, MacAddress};

/// How much older than the VM's first start its Agent may look: two clocks tell of the two moments.
pub const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

/// The InfraEnv whose ISO a VM boots from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootSource {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// uid; `None` where it is not known, or of another hub.
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

    /// Whether both mean one InfraEnv. A uid that is not known tells nothing apart.
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

/// What is known of one VM of ours, for the comparison with Agents.
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

/// What an Agent that names the VM says that speaks against it.
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

/// Answer of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentMatch {
    /// The Agent runs on that VM.
    Same,
    /// It names the VM, and something else speaks against it: not to be trusted.
    Partly(Misfit),
    /// Nothing speaks against it, and not all of the evidence is there yet: wait.
    NotYet,
    /// Another machine.
    Other,
}

impl AgentMatch {
    /// Enough to hold back, never enough to act.
    #[must_use]
    pub fn may_run_there(self) -> bool {
        self != Self::Other
    }
}

/// What an Agent says of the machine that it runs on.
struct Words {
    /// Its name, where that is a uuid.
    name: Option<BiosUuid>,
    /// Its serial number, where that is one of VMware's.
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

/// The machines that an Agent names, each in one byte order or the other: by its own name, and by its serial number. Who
/// does not name a VM does not run there.
#[must_use]
pub fn named_machines(agent: &Agent) -> Vec<BiosUuid> {
    let words = Words::of(agent);
    let mut all: Vec<BiosUuid> = words.name.into_iter().chain(words.serial).collect();
    all.dedup_by_key(|uuid| uuid.in_one_order());
    all
}

/// THE rule. See the module's contract.
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

/// What speaks for it and is not there from the beginning: its inventory, and the label of its InfraEnv.
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

/// It lives with another InfraEnv, or its label or its owner says so. A missing label says nothing yet; an InfraEnv that was
/// made anew under the same name is another one, and no guest of the old one's ISO registers there.
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

/// It was there before the VM ran. Without a time of its creation it is no Agent that the API server made.
fn is_too_old(agent: &Agent, vm: &VmIdentity) -> bool {
    let Some(first) = vm.first_powered_on else {
        return false;
    };
    let created = agent.metadata.creation_timestamp.as_ref();
    created.is_none_or(|t| first.duration_since(t.0) > CLOCK_SKEW)
}

#[cfg(test)]
mod tests;
