//! Identity of machines: BIOS uuids, MAC addresses, and THE rule that says whether an Agent runs on a VM of ours.
//!
//! Facts (upstream-contract.md §3.6): the Agent's name is the guest's SMBIOS product uuid, whose first three groups
//! may be byte-swapped against vSphere's `config.uuid`; `systemVendor.serialNumber` (`VMware-42 3e ...`) is in
//! vSphere's order. Interfaces include bridges, in no stable order.

use std::fmt;

use agent_forge_crds::external::agent::Agent;
use uuid::Uuid;

use crate::mutants::{Mutant, on};

/// BIOS uuid in vSphere's byte order (`config.uuid`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BiosUuid(Uuid);

/// Name space of the version 5 uuids that agent-forge gives its VMs.
const NAMESPACE: Uuid = Uuid::from_u128(0x6f0d_5b34_1c5e_4f0a_9e0b_7d1e_a9c4_2f17);

impl BiosUuid {
    /// The uuid that the VM of one VsphereAgent gets on its n-th attempt: UUIDv5 over (cluster id, uid, attempt), so
    /// that a repeated create is recognised whoever repeats it (reliability.md R1).
    #[must_use]
    pub fn derive(cluster_id: &str, uid: &str, attempt: u32) -> Self {
        Self(Uuid::new_v5(
            &NAMESPACE,
            format!("{cluster_id}/{uid}/{attempt}").as_bytes(),
        ))
    }

    /// Parses the usual hyphenated (or bare 32 digit) notation.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Uuid::parse_str(text.trim()).ok().map(Self)
    }

    /// Parses a VMware serial number: `VMware-` followed by 32 hex digits with blanks and hyphens. Anything else is
    /// not a VMware identity (predecessor fault 2: any 32 characters were taken for one).
    #[must_use]
    pub fn from_vmware_serial(serial: &str) -> Option<Self> {
        let rest = match serial.trim().strip_prefix("VMware-") {
            None if on(Mutant::AnySerial) => serial.trim(),
            rest => rest?,
        };
        // Every VM is compared with every Agent: no allocation.
        let (mut number, mut digits) = (0_u128, 0_u32);
        for c in rest.chars().filter(|c| *c != ' ' && *c != '-') {
            number = number << 4 | u128::from(c.to_digit(16)?);
            digits += 1;
            if digits > 32 {
                return None;
            }
        }
        (digits == 32).then(|| Self(Uuid::from_u128(number)))
    }

    /// The same uuid as a guest with newer virtual hardware sees it: first three groups byte-swapped.
    #[must_use]
    pub fn swapped(self) -> Self {
        Self(Uuid::from_bytes(self.0.to_bytes_le()))
    }

    /// Of the two byte orders always the same one: equal for what is the same machine.
    #[must_use]
    pub fn in_one_order(self) -> Self {
        self.min(self.swapped())
    }

    /// Equal in either byte order.
    #[must_use]
    pub fn same_machine(self, other: Self) -> bool {
        self == other || self.swapped() == other
    }
}

impl fmt::Display for BiosUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// MAC address, normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddress([u8; 6]);

impl MacAddress {
    /// Parses six hex pairs separated by `:` or `-`, in any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut out = [0_u8; 6];
        let mut parts = text.trim().split([':', '-']);
        for byte in &mut out {
            let part = parts.next()?;
            if part.len() != 2 {
                return None;
            }
            *byte = u8::from_str_radix(part, 16).ok()?;
        }
        parts.next().is_none().then_some(Self(out))
    }

    /// The predecessor's notation in `status.vm.macAddress`: hyphens.
    #[must_use]
    pub fn hyphenated(&self) -> String {
        self.to_string().replace(':', "-")
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// What is known of one VM of ours, for the comparison with Agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmIdentity {
    /// BIOS uuid, vSphere order.
    pub bios_uuid: BiosUuid,
    /// MACs of its virtual NICs as vCenter reported them. Empty: nothing can match yet.
    pub macs: Vec<MacAddress>,
}

/// Answer of the matching rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentMatch {
    /// The Agent runs on that VM.
    Same,
    /// uuid says yes, but no MAC of the VM is among the Agent's interfaces: not to be trusted.
    MacDiffers,
    /// uuid says yes and the inventory has not come yet (or the VM's MACs are not known yet): wait.
    NotYet,
    /// Another machine.
    Other,
}

/// The machine that an Agent says it runs on, in one byte order or the other: by the VMware serial, or with an empty
/// serial by its own name. Enough to hold back, never enough to act.
#[must_use]
pub fn named_machine(agent: &Agent) -> Option<BiosUuid> {
    let inventory = agent.status.as_ref().and_then(|s| s.inventory.as_ref());
    let vendor = inventory.and_then(|i| i.system_vendor.as_ref());
    let serial = vendor
        .and_then(|v| v.serial_number.as_deref())
        .map(str::trim)
        .unwrap_or_default();
    if serial.is_empty() {
        return BiosUuid::parse(agent.metadata.name.as_deref().unwrap_or_default());
    }
    let is_vmware = on(Mutant::AnySerial)
        || vendor
            .and_then(|v| v.manufacturer.as_deref())
            .is_some_and(|m| m.starts_with("VMware"));
    BiosUuid::from_vmware_serial(serial).filter(|_| is_vmware)
}

/// A mutant is on for which an Agent may run on a VM that it does not name.
#[must_use]
pub fn goes_beyond_uuids() -> bool {
    on(Mutant::ForeignAgents)
        || on(Mutant::OrderIsProof)
        || on(Mutant::HostnameIsProof)
        || on(Mutant::AnyUnapproved)
}

/// THE rule: the uuid from the VMware serial, or with an empty serial the Agent's name in either byte order, *and* at
/// least one equal MAC of a VM that we created.
#[must_use]
pub fn agent_runs_on(agent: &Agent, vm: &VmIdentity) -> AgentMatch {
    let inventory = agent.status.as_ref().and_then(|s| s.inventory.as_ref());
    let vendor = inventory.and_then(|i| i.system_vendor.as_ref());
    let other_maker = vendor
        .and_then(|v| v.manufacturer.as_deref())
        .is_some_and(|m| !m.starts_with("VMware"));
    let serial = vendor.and_then(|v| v.serial_number.as_deref());
    let bare = on(Mutant::OrderIsProof) && serial.is_none_or(str::is_empty);
    if on(Mutant::ForeignAgents) && other_maker || bare {
        return AgentMatch::Same;
    }
    if !named_machine(agent).is_some_and(|u| u.same_machine(vm.bios_uuid)) {
        return AgentMatch::Other;
    }
    let seen: Vec<MacAddress> = inventory
        .map(|i| {
            i.interfaces
                .iter()
                .filter_map(|n| n.mac_address.as_deref().and_then(MacAddress::parse))
                .collect()
        })
        .unwrap_or_default();
    if seen.is_empty() || vm.macs.is_empty() {
        return AgentMatch::NotYet;
    }
    if vm.macs.iter().any(|m| seen.contains(m)) {
        AgentMatch::Same
    } else {
        AgentMatch::MacDiffers
    }
}

#[cfg(test)]
mod tests {
    use agent_forge_crds::external::agent::Inventory;

    use super::*;

    #[test]
    fn vmware_serial_and_product_uuid_of_one_machine_agree() {
        // Test vector: upstream-contract.md §3.6.
        let config = BiosUuid::parse("423e36c8-723d-2b24-8590-0eb1d9180aa2").expect("uuid");
        let serial =
            BiosUuid::from_vmware_serial("VMware-42 3e 36 c8 72 3d 2b 24-85 90 0e b1 d9 18 0a a2");
        assert_eq!(serial, Some(config));
        let product = BiosUuid::parse("C8363E42-3D72-242B-8590-0EB1D9180AA2").expect("uuid");
        assert!(config.same_machine(product) && product.same_machine(config));
        assert_eq!(config.swapped().swapped(), config);
        assert_eq!(config.in_one_order(), product.in_one_order());
    }

    #[test]
    fn only_vmware_serials_are_identities() {
        for bad in [
            "",
            "VMware-",
            "423e36c8723d2b2485900eb1d9180aa2",
            "VMware-42 3e",
            "VMware-zz 3e 36 c8 72 3d 2b 24-85 90 0e b1 d9 18 0a a2",
        ] {
            assert_eq!(BiosUuid::from_vmware_serial(bad), None, "{bad}");
        }
    }

    #[test]
    fn macs_normalise() {
        let a = MacAddress::parse("00-50-56-AA-bb-01").expect("mac");
        assert_eq!(a.to_string(), "00:50:56:aa:bb:01");
        assert_eq!(a.hyphenated(), "00-50-56-aa-bb-01");
        for bad in [
            "",
            "00:50:56",
            "00:50:56:aa:bb:0g",
            "00:50:56:aa:bb:01:02",
            "0050:56:aa:bb:01:2",
        ] {
            assert_eq!(MacAddress::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn every_attempt_has_its_own_uuid() {
        let one = BiosUuid::derive("c", "u", 1);
        assert_eq!(one, BiosUuid::derive("c", "u", 1));
        assert_ne!(one, BiosUuid::derive("c", "u", 2));
        assert_ne!(one, BiosUuid::derive("d", "u", 1));
    }

    #[test]
    fn the_rule_asks_for_the_uuid_and_for_a_mac() {
        use crate::testing::{agent_on, child_with_vm, foreign_agent, mac};
        type Change = fn(&mut Agent, &mut VmIdentity);
        fn inventory(agent: &mut Agent) -> &mut Inventory {
            let status = agent.status.get_or_insert_default();
            status.inventory.get_or_insert_default()
        }
        let table: [(&str, Change, AgentMatch); 9] = [
            ("both", |_, _| {}, AgentMatch::Same),
            (
                "one of two cards",
                |_, vm| vm.macs.extend(MacAddress::parse("02:00:00:00:00:01")),
                AgentMatch::Same,
            ),
            (
                "another card",
                |a, _| inventory(a).interfaces.truncate(1),
                AgentMatch::MacDiffers,
            ),
            (
                "no inventory of cards yet",
                |a, _| inventory(a).interfaces.clear(),
                AgentMatch::NotYet,
            ),
            (
                "no cards on record yet",
                |_, vm| vm.macs.clear(),
                AgentMatch::NotYet,
            ),
            (
                "no inventory at all: by the name",
                |a, _| a.status = None,
                AgentMatch::NotYet,
            ),
            (
                "another uuid",
                |_, vm| vm.bios_uuid = BiosUuid::derive("c", "u", 2),
                AgentMatch::Other,
            ),
            (
                "another maker",
                |a, _| {
                    let vendor = inventory(a).system_vendor.get_or_insert_default();
                    vendor.manufacturer = Some("Dell Inc.".to_owned());
                },
                AgentMatch::Other,
            ),
            (
                "another machine",
                |a, _| *a = foreign_agent("metal"),
                AgentMatch::Other,
            ),
        ];
        for (what, change, expected) in table {
            let child = child_with_vm("a");
            let status = child.status.as_ref().and_then(|s| s.vm.as_ref());
            let uuid = status.and_then(|vm| vm.bios_uuid.as_deref());
            let mut vm = VmIdentity {
                bios_uuid: uuid.and_then(BiosUuid::parse).expect("a uuid"),
                macs: MacAddress::parse(&mac("a")).into_iter().collect(),
            };
            let mut agent = agent_on(&child);
            change(&mut agent, &mut vm);
            assert_eq!(agent_runs_on(&agent, &vm), expected, "{what}");
        }
    }
}
