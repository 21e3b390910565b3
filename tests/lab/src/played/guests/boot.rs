//! What a VM boots, decided from its devices and from whether its disk has a system. No side effects.

use super::{super::options::DefaultBoot, vcenter::Vm};

/// The first bootable device in the firmware's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Boot {
    /// The installed disk.
    Disk,
    /// The medium in a CD drive, by its datastore path.
    Cd(String),
    /// Nothing: the firmware waits for ever.
    Nothing,
}

/// Decides by the boot order. An empty disk and a drive without a medium are skipped.
#[must_use]
pub fn decide(vm: &Vm, disk_written: bool, default: DefaultBoot) -> Boot {
    let disk = || (disk_written && !vm.disks.is_empty()).then_some(Boot::Disk);
    let cd = || {
        let ready = |drive: &&super::vcenter::Cdrom| {
            !drive.path.is_empty() && drive.connected && drive.start_connected
        };
        vm.cdroms
            .iter()
            .find(ready)
            .map(|drive| Boot::Cd(drive.path.clone()))
    };
    // Only the first disk has the system.
    let system_disk = vm.disks.first().map(|disk| format!("disk:{}", disk.key));
    for device in &vm.boot_order {
        let found = match device.as_str() {
            "cdrom" => cd(),
            other if Some(other) == system_disk.as_deref() => disk(),
            _ => None,
        };
        if let Some(boot) = found {
            return boot;
        }
    }
    // After the devices of the order, the firmware tries the others.
    let rest = match default {
        DefaultBoot::CdFirst => cd().or_else(disk),
        DefaultBoot::DiskFirst => disk().or_else(cd),
    };
    rest.unwrap_or(Boot::Nothing)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vm(order: &[&str], connected: bool) -> Vm {
        let value = json!({
            "moref": "vm-1", "name": "n", "path": "/dc1/vm/n", "uuid": "u", "power": "poweredOn",
            "cdroms": [{"path": "[iso] a.iso", "connected": connected, "startConnected": connected}],
            "disks": [{"key": 2000, "gb": 100}],
            "bootOrder": order,
        });
        serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn order_medium_and_an_empty_disk_decide() {
        let cd = Boot::Cd("[iso] a.iso".to_owned());
        let first = DefaultBoot::CdFirst;
        let rows = [
            (vm(&["disk:2000", "cdrom"], true), false, cd.clone()),
            (vm(&["disk:2000", "cdrom"], true), true, Boot::Disk),
            (vm(&["cdrom", "disk:2000"], true), true, cd.clone()),
            (vm(&[], true), true, cd),
            (vm(&[], false), true, Boot::Disk),
            (vm(&["disk:2000", "cdrom"], false), false, Boot::Nothing),
        ];
        for (vm, written, wanted) in rows {
            assert_eq!(
                decide(&vm, written, first),
                wanted,
                "{:?} {written}",
                vm.boot_order
            );
        }
        assert_eq!(
            decide(&vm(&[], true), true, DefaultBoot::DiskFirst),
            Boot::Disk
        );
    }
}
