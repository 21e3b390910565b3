//! How a host's inventory appears on the Agent: status, labels and annotations.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::host::{HostFacts, Interface};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const PREFIX: &str = "inventory.agent-install.openshift.io";
/// How the id of a disk begins that shows its UUID.
pub const DISK_BY_ID: &str = "/dev/disk/by-id/wwn-0x";

/// `status.inventory`.
#[must_use]
pub fn status(facts: &HostFacts) -> Value {
    json!({
        "hostname": facts.own_hostname(),
        "bmcAddress": "0.0.0.0",
        "memory": {"physicalBytes": facts.memory_mib * MIB, "usableBytes": (facts.memory_mib * MIB) / 100 * 98},
        "cpu": {
            "count": facts.cpus, "architecture": "x86_64", "clockMegahertz": 2600,
            "modelName": "Intel(R) Xeon(R) Gold 6242 CPU @ 2.80GHz", "flags": ["fpu", "sse4_2", "avx2"],
        },
        "interfaces": facts.interfaces.iter().map(interface).collect::<Vec<_>>(),
        "disks": disks(facts),
        "boot": {"currentBootMode": "uefi"},
        "systemVendor": {
            "manufacturer": facts.manufacturer, "productName": facts.product,
            "serialNumber": facts.serial, "virtual": facts.is_virtual,
        },
    })
}

fn interface(interface: &Interface) -> Value {
    let mut shown = json!({
        "name": interface.name,
        "macAddress": interface.mac,
        "hasCarrier": interface.carrier,
        "flags": ["up", "broadcast", "multicast"],
        "ipV4Addresses": interface.ipv4.iter().collect::<Vec<_>>(),
        "ipV6Addresses": [],
    });
    if interface.carrier {
        shown["mtu"] = json!(1500);
        shown["speedMbps"] = json!(10_000);
    }
    shown
}

fn disks(facts: &HostFacts) -> Value {
    if facts.disk_gib == 0 {
        return json!([]);
    }
    let id = if facts.disk_uuid {
        format!("{DISK_BY_ID}{}", facts.disk_id)
    } else {
        "/dev/disk/by-path/pci-0000:03:00.0".to_owned()
    };
    json!([{
        "id": id, "name": "sda", "path": "/dev/sda", "driveType": "SSD", "bootable": false,
        "sizeBytes": facts.disk_gib * GIB,
        "installationEligibility": {"eligible": facts.disk_gib >= 100, "notEligibleReasons": []},
    }])
}

/// The inventory labels. Characters that a label value may not contain are dropped. A value that is still not valid is
/// left out.
#[must_use]
pub fn labels(facts: &HostFacts) -> BTreeMap<String, String> {
    let yes_no = |yes: bool| if yes { "true" } else { "false" };
    let wanted = [
        ("storage-hasnonrotationaldisk", yes_no(facts.disk_gib > 0)),
        ("cpu-architecture", "x86_64"),
        ("cpu-virtenabled", "false"),
        ("host-manufacturer", &facts.manufacturer),
        ("host-productname", &facts.product),
        ("host-isvirtual", yes_no(facts.is_virtual)),
    ];
    let mut labels = BTreeMap::new();
    for (key, value) in wanted {
        let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let value: String = value.chars().filter(allowed).collect();
        let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
        if value.len() <= 63 && edge(value.chars().next()) && edge(value.chars().last()) {
            labels.insert(format!("{PREFIX}/{key}"), value);
        }
    }
    labels
}
