//! What the agent process in a VM finds out about it, and guests with an unusual behaviour.

use super::{
    super::assisted::host::{HostFacts, Interface, VMWARE},
    vcenter::Vm,
};

/// A guest with an unusual behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quirk {
    /// The guest never registers.
    DeadOnArrival,
    /// The guest registers, and then never answers again.
    FallsSilent,
}

/// The SMBIOS product uuid of a VM with this BIOS uuid: its first three groups have the opposite byte order.
#[must_use]
pub fn swapped(uuid: &str) -> String {
    let Ok(parsed) = uuid::Uuid::parse_str(uuid) else {
        return uuid.to_ascii_lowercase();
    };
    uuid::Uuid::from_bytes(parsed.to_bytes_le()).to_string()
}

/// The serial number that VMware's firmware derives from a BIOS uuid.
#[must_use]
pub fn serial(uuid: &str) -> String {
    let digits: Vec<char> = uuid
        .chars()
        .filter(char::is_ascii_hexdigit)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let bytes: Vec<String> = digits.chunks(2).map(|pair| pair.iter().collect()).collect();
    let (front, back) = bytes.split_at(bytes.len().min(8));
    format!("VMware-{}-{}", front.join(" "), back.join(" "))
}

/// The facts of a VM as its guest sees them.
#[must_use]
pub fn facts(vm: &Vm) -> HostFacts {
    let uuid = vm.uuid.to_ascii_lowercase();
    let bridge = Interface {
        name: "docker0".to_owned(),
        mac: "02:42:ac:11:00:02".to_owned(),
        ipv4: None,
        carrier: false,
    };
    let cards = vm.nics.iter().enumerate().map(|(index, nic)| {
        let mac = nic.mac.to_ascii_lowercase();
        Interface {
            name: format!("ens{}", 192 + 32 * index),
            ipv4: Some(address(&mac)),
            mac,
            carrier: true,
        }
    });
    let shows_disks = vm.extra_config.iter().any(|(key, value)| {
        key.eq_ignore_ascii_case("disk.EnableUUID") && value.eq_ignore_ascii_case("TRUE")
    });
    HostFacts {
        id: swapped(&uuid),
        serial: serial(&uuid),
        manufacturer: VMWARE.to_owned(),
        product: "VMware20,1".to_owned(),
        is_virtual: true,
        interfaces: std::iter::once(bridge).chain(cards).collect(),
        cpus: vm.cpus,
        memory_mib: vm.memory_mib,
        disk_gib: vm.disks.first().map(|disk| disk.gb).unwrap_or_default(),
        disk_uuid: shows_disks,
        disk_id: vm.disk_id(),
    }
}

/// A private address that differs between network cards.
fn address(mac: &str) -> String {
    let mut bytes = mac
        .split(':')
        .rev()
        .map(|byte| u8::from_str_radix(byte, 16).unwrap_or_default());
    let mut next = || bytes.next().unwrap_or_default();
    let (low, high) = (next(), next());
    format!("10.{}.{high}.{low}/16", 173)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A uuid that was observed on a real vCenter.
    const UUID: &str = "423e36c8-723d-2b24-8590-0eb1d9180aa2";

    fn vm() -> Vm {
        let value = json!({
            "moref": "vm-1", "name": "n", "path": "/dc1/vm/n", "uuid": UUID, "power": "poweredOn",
            "nics": [{"key": 4000, "type": "VirtualVmxnet3", "mac": "00:50:56:AA:bb:01", "network": "VM Network"}],
            "disks": [{"key": 2000, "gb": 100}], "numCPU": 4, "memoryMB": 16384,
            "extraConfig": {"disk.enableUUID": "TRUE"},
        });
        serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn identity_is_byte_swapped_and_the_serial_is_not() {
        let facts = facts(&vm());
        assert_eq!(facts.id, "c8363e42-3d72-242b-8590-0eb1d9180aa2");
        assert_eq!(
            facts.serial,
            "VMware-42 3e 36 c8 72 3d 2b 24-85 90 0e b1 d9 18 0a a2"
        );
        let names: Vec<&str> = facts
            .interfaces
            .iter()
            .map(|interface| interface.name.as_str())
            .collect();
        assert_eq!(names, ["docker0", "ens192"]);
        assert_eq!(facts.interfaces[1].mac, "00:50:56:aa:bb:01");
        assert!(facts.disk_uuid);
        assert_eq!(facts.own_hostname(), "00-50-56-aa-bb-01");
    }
}
