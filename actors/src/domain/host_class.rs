//! What kind of host an Agent runs on, and how many there are of each kind. Pure.

use std::{
    fmt,
    ops::{Add, AddAssign, SubAssign},
};

use agent_forge_crds::external::agent::{Agent, SystemVendor};

use super::{identity::is_vmware, upstream};

/// The kind of a host, for people. No decision about a VM goes by it: a guest writes its own inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostClass {
    /// A physical machine without a BareMetalHost.
    BareMetal,
    /// A BareMetalHost owns it.
    BareMetalHost,
    /// A VM of another hypervisor.
    OtherHypervisor,
    /// A VM on vSphere.
    Vsphere,
    /// OSAC has reserved it for a cluster order.
    ReservedByOsac,
    /// It has not reported its hardware.
    Unknown,
}

impl HostClass {
    /// Every class.
    pub const ALL: [Self; 6] = [
        Self::BareMetal,
        Self::BareMetalHost,
        Self::OtherHypervisor,
        Self::Vsphere,
        Self::ReservedByOsac,
        Self::Unknown,
    ];

    /// The class of an Agent's host. A reservation and an owner count before what the host reports of itself.
    #[must_use]
    pub fn of(agent: &Agent) -> Self {
        if agent.cluster_order().is_some() {
            return Self::ReservedByOsac;
        }
        if agent.is_bare_metal_host() {
            return Self::BareMetalHost;
        }
        let vendor = agent.inventory().and_then(|i| i.system_vendor.as_ref());
        match vendor.filter(|v| **v != SystemVendor::default()) {
            None => Self::Unknown,
            Some(vendor) if is_vmware(vendor) => Self::Vsphere,
            Some(vendor) if vendor.is_virtual == Some(true) => Self::OtherHypervisor,
            Some(_) => Self::BareMetal,
        }
    }

    /// The word in metrics and on the web page.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BareMetal => "bare_metal",
            Self::BareMetalHost => "bare_metal_host",
            Self::OtherHypervisor => "other_hypervisor",
            Self::Vsphere => "vsphere",
            Self::ReservedByOsac => "reserved_by_osac",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for HostClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BareMetal => "bare metal",
            Self::BareMetalHost => "owned by a BareMetalHost",
            Self::OtherHypervisor => "VM of another hypervisor",
            Self::Vsphere => "VM on vSphere",
            Self::ReservedByOsac => "reserved by OSAC",
            Self::Unknown => "hardware not reported",
        })
    }
}

/// How many hosts there are of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// All of them.
    pub all: usize,
    /// Those that the agent provider could bind now.
    pub free: usize,
}

/// How many hosts there are of each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByClass([Hosts; HostClass::ALL.len()]);

impl ByClass {
    /// What one Agent adds.
    #[must_use]
    pub fn of(agent: &Agent) -> Self {
        let mut counts = Self::default();
        counts.0[HostClass::of(agent) as usize] = Hosts {
            all: 1,
            free: usize::from(upstream::claimable(agent)),
        };
        counts
    }

    /// The hosts of a class.
    #[must_use]
    pub fn get(&self, class: HostClass) -> Hosts {
        self.0[class as usize]
    }

    /// The hosts of all classes.
    #[must_use]
    pub fn total(&self) -> Hosts {
        let all = self.0.iter();
        all.fold(Hosts::default(), |sum, hosts| Hosts {
            all: sum.all + hosts.all,
            free: sum.free + hosts.free,
        })
    }
}

impl fmt::Display for ByClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hosts { all, free } = self.total();
        write!(f, "{all}")?;
        let mut before = " (";
        for class in HostClass::ALL {
            let n = self.get(class).all;
            if n > 0 {
                write!(f, "{before}{class}: {n}")?;
                before = ", ";
            }
        }
        if all > 0 {
            write!(f, "), {free} of them free")?;
        }
        Ok(())
    }
}

impl AddAssign for ByClass {
    fn add_assign(&mut self, other: Self) {
        for (hosts, more) in self.0.iter_mut().zip(other.0) {
            hosts.all += more.all;
            hosts.free += more.free;
        }
    }
}

impl Add for ByClass {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

/// Two reads of a cache may see two moments, so a count never falls below zero.
impl SubAssign for ByClass {
    fn sub_assign(&mut self, other: Self) {
        for (hosts, less) in self.0.iter_mut().zip(other.0) {
            hosts.all = hosts.all.saturating_sub(less.all);
            hosts.free = hosts.free.saturating_sub(less.free);
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_forge_crds::external::agent::{
        BARE_METAL_HOST_LABEL, CLUSTER_ORDER_LABEL, Inventory,
    };
    use kube::ResourceExt;

    use super::*;
    use crate::testing::{foreign_agent, with};

    fn host(serial: &str, manufacturer: &str, is_virtual: Option<bool>) -> Agent {
        let text = |t: &str| Some(t.to_owned()).filter(|t| !t.is_empty());
        with(foreign_agent("x"), |a| {
            let status = a.status.get_or_insert_default();
            status.inventory = Some(Inventory {
                system_vendor: Some(SystemVendor {
                    serial_number: text(serial),
                    manufacturer: text(manufacturer),
                    is_virtual,
                    ..SystemVendor::default()
                }),
                ..Inventory::default()
            });
        })
    }

    fn labelled(agent: Agent, label: &str) -> Agent {
        with(agent, |a| {
            a.labels_mut().insert(label.to_owned(), "one".to_owned());
        })
    }

    #[test]
    fn the_class_follows_from_labels_and_inventory() {
        let vm = || host("VMware-42 3e", "VMware, Inc.", Some(true));
        let table = [
            ("nothing reported", foreign_agent("x"), HostClass::Unknown),
            ("an empty report", host("", "", None), HostClass::Unknown),
            ("a server", host("CZ1", "HPE", None), HostClass::BareMetal),
            (
                "a server that says so",
                host("CZ1", "HPE", Some(false)),
                HostClass::BareMetal,
            ),
            (
                "KVM",
                host("", "Red Hat", Some(true)),
                HostClass::OtherHypervisor,
            ),
            ("vSphere", vm(), HostClass::Vsphere),
            (
                "vSphere without a serial number",
                host("", "VMware, Inc.", Some(true)),
                HostClass::Vsphere,
            ),
            (
                "vSphere by the serial number alone",
                host("VMware-42 3e", "", None),
                HostClass::Vsphere,
            ),
            (
                "owned by a BareMetalHost",
                labelled(vm(), BARE_METAL_HOST_LABEL),
                HostClass::BareMetalHost,
            ),
            (
                "reserved and owned",
                labelled(labelled(vm(), BARE_METAL_HOST_LABEL), CLUSTER_ORDER_LABEL),
                HostClass::ReservedByOsac,
            ),
        ];
        for (what, agent, class) in table {
            assert_eq!(HostClass::of(&agent), class, "{what}");
            let counts = ByClass::of(&agent);
            assert_eq!(
                (counts.get(class).all, counts.total().all),
                (1, 1),
                "{what}"
            );
        }
    }

    #[test]
    fn each_class_has_its_own_place_and_word() {
        for (place, class) in HostClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, place);
            let mut named = HostClass::ALL
                .iter()
                .filter(|c| c.as_str() == class.as_str());
            assert_eq!((named.next(), named.next()), (Some(&class), None));
        }
    }

    #[test]
    fn the_counts_read_as_a_sentence() {
        let of = |agents: &[Agent]| {
            agents
                .iter()
                .map(ByClass::of)
                .fold(ByClass::default(), Add::add)
        };
        let approved = with(foreign_agent("x"), |a| a.spec.approved = true);
        let metal = host("CZ1", "HPE", None);
        assert_eq!(of(&[]).to_string(), "0");
        assert_eq!(
            of(&[metal.clone(), approved, metal]).to_string(),
            "3 (bare metal: 2, hardware not reported: 1), 1 of them free"
        );
    }

    #[test]
    fn only_what_could_be_bound_is_free() {
        let approved = with(foreign_agent("x"), |a| a.spec.approved = true);
        let reserved = labelled(approved.clone(), CLUSTER_ORDER_LABEL);
        for (agent, free) in [(foreign_agent("x"), 0), (approved, 1), (reserved, 0)] {
            assert_eq!(ByClass::of(&agent).total(), Hosts { all: 1, free });
        }
    }
}
