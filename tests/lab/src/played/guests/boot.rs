//! What a VM boots, decided from its devices and from whether its disk has a system. No side effects.

use super::vcenter::Vm;

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
pub fn decide(vm: &Vm, disk_written: bool) -> Boot {
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
    // After the devices of the order, the firmware tries the others, a CD first.
    cd().or_else(disk).unwrap_or(Boot::Nothing)
}
