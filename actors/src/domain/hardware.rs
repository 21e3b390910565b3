//! Virtual hardware: the spellings that `spec.vsphere` allows, mapped to what vSphere knows.

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Controller of the system disk (`spec.vsphere.scsiType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskController {
    /// `ParaVirtualSCSIController`
    ParaVirtual,
    /// `VirtualLsiLogicController`
    LsiLogic,
    /// `VirtualLsiLogicSASController`
    LsiLogicSas,
    /// `VirtualBusLogicController`
    BusLogic,
    /// `VirtualNVMEController`
    Nvme,
    /// `VirtualAHCIController`, shared with the CD-ROM
    Sata,
}

impl DiskController {
    /// Accepted spellings, for error messages.
    pub const ACCEPTED: &str = "pvscsi, scsi, lsilogic, lsilogic-sas, buslogic, nvme, sata";

    /// Parses the field's value (case is ignored); `None` for a controller that does not exist.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text.to_ascii_lowercase().as_str() {
            "pvscsi" | "paravirtual" => Self::ParaVirtual,
            "scsi" | "lsilogic" => Self::LsiLogic,
            "lsilogic-sas" | "lsilogicsas" => Self::LsiLogicSas,
            "buslogic" => Self::BusLogic,
            "nvme" => Self::Nvme,
            "sata" | "ahci" => Self::Sata,
            _ => return None,
        })
    }

    /// The spelling that records have.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ParaVirtual => "pvscsi",
            Self::LsiLogic => "lsilogic",
            Self::LsiLogicSas => "lsilogic-sas",
            Self::BusLogic => "buslogic",
            Self::Nvme => "nvme",
            Self::Sata => "sata",
        }
    }

    /// The controller whose device has that type in vSphere; `None` for any other device.
    #[must_use]
    pub fn of_device(type_name: &str) -> Option<Self> {
        Some(match type_name {
            "ParaVirtualSCSIController" => Self::ParaVirtual,
            "VirtualLsiLogicController" => Self::LsiLogic,
            "VirtualLsiLogicSASController" => Self::LsiLogicSas,
            "VirtualBusLogicController" => Self::BusLogic,
            "VirtualNVMEController" => Self::Nvme,
            "VirtualAHCIController" => Self::Sata,
            _ => return None,
        })
    }
}

/// Network adapter (`spec.vsphere.networkAdapterType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkAdapter {
    /// `VirtualVmxnet3`
    Vmxnet3,
    /// `VirtualVmxnet2`
    Vmxnet2,
    /// `VirtualE1000`
    E1000,
    /// `VirtualE1000e`
    E1000e,
    /// `VirtualPCNet32`
    PcNet32,
}

impl NetworkAdapter {
    /// Accepted spellings, for error messages.
    pub const ACCEPTED: &str = "vmxnet3, vmxnet2, e1000, e1000e, pcnet32";

    /// Parses the field's value (case is ignored); `None` for an adapter that does not exist.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text.to_ascii_lowercase().as_str() {
            "vmxnet3" => Self::Vmxnet3,
            "vmxnet2" => Self::Vmxnet2,
            "e1000" => Self::E1000,
            "e1000e" => Self::E1000e,
            "pcnet32" | "flexible" => Self::PcNet32,
            _ => return None,
        })
    }

    /// The spelling that records have.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Vmxnet3 => "vmxnet3",
            Self::Vmxnet2 => "vmxnet2",
            Self::E1000 => "e1000",
            Self::E1000e => "e1000e",
            Self::PcNet32 => "pcnet32",
        }
    }

    /// The adapter whose device has that type in vSphere; `None` for any other device.
    #[must_use]
    pub fn of_device(type_name: &str) -> Option<Self> {
        Some(match type_name {
            "VirtualVmxnet3" => Self::Vmxnet3,
            "VirtualVmxnet2" => Self::Vmxnet2,
            "VirtualE1000" => Self::E1000,
            "VirtualE1000e" => Self::E1000e,
            "VirtualPCNet32" => Self::PcNet32,
            _ => return None,
        })
    }
}

/// Firmware (`spec.vsphere.firmware`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// UEFI.
    Efi,
    /// Legacy BIOS.
    Bios,
}

impl Firmware {
    /// The word in records and in vSphere.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Efi => "efi",
            Self::Bios => "bios",
        }
    }

    /// Reads that word; `None` for any other.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Efi, Self::Bios]
            .into_iter()
            .find(|firmware| firmware.as_str() == text)
    }
}

/// Everything that shapes the VM's hardware, parsed from the pool's spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// vSphere guest OS identifier, passed as it is (`rhel9_64Guest`).
    pub guest_id: String,
    /// Firmware.
    pub firmware: Firmware,
    /// Number of virtual CPUs.
    pub num_cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// System disk in GiB.
    pub disk_gib: u64,
    /// Disk is eagerly zeroed thick instead of thin.
    pub eagerly_scrub: bool,
    /// Controller of the system disk.
    pub disk_controller: DiskController,
    /// Network adapter.
    pub network_adapter: NetworkAdapter,
}

impl Hardware {
    /// Space on its datastore in bytes: the disk, full, and the swap file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let disk = self.disk_gib.saturating_mul(GIB);
        disk.saturating_add(self.memory_mib.saturating_mul(MIB))
    }
}

/// The hardware of a VM as vCenter shows it, in the words of records. `None`: vCenter did not show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownHardware {
    /// Number of virtual CPUs.
    pub num_cpus: Option<u32>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// The first disk in GiB; 0 if the VM has none.
    pub disk_gib: Option<u64>,
    /// Firmware.
    pub firmware: Option<String>,
    /// UUID of the first disk, as [`disk_uuid`] reads it.
    pub disk_uuid: Option<String>,
    /// Controller of the first disk, or `none`.
    pub disk_controller: Option<String>,
    /// The first network adapter, or `none`.
    pub network_adapter: Option<String>,
    /// All network cards, in the order of their keys.
    pub cards: Option<Vec<ShownCard>>,
    /// Hardware version, as [`hardware_version`] reads it.
    pub version: Option<i32>,
    /// Where it runs and what it uses.
    pub now: ShownNow,
}

/// What changes of a VM without anybody changing its configuration. `None`: vCenter did not show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownNow {
    /// ESXi host: its name, or its id where the user may not read the name.
    pub host: Option<String>,
    /// Storage that it uses, in bytes.
    pub used_bytes: Option<u64>,
    /// Whether it has a snapshot.
    pub has_snapshot: Option<bool>,
}

/// The used storage to record, in GiB and rounded up. A record stays until the storage differs from it by 10 %, and by 1 GiB at
/// least: each look would write the status otherwise.
#[must_use]
pub fn used_gib(recorded: Option<i32>, bytes: Option<u64>) -> Option<i32> {
    let Some(bytes) = bytes else {
        return recorded;
    };
    let before = recorded.and_then(|gib| u64::try_from(gib).ok());
    let is_near = before.is_some_and(|gib| {
        let before = gib.saturating_mul(GIB);
        bytes.abs_diff(before) < GIB.max(before / 10)
    });
    match is_near {
        true => recorded,
        false => i32::try_from(bytes.div_ceil(GIB)).ok(),
    }
}

/// Reads a hardware version: 19 from `vmx-19`. `None` for anything else.
#[must_use]
pub fn hardware_version(text: &str) -> Option<i32> {
    let number = text.strip_prefix("vmx-")?.parse().ok()?;
    (1..=999).contains(&number).then_some(number)
}

/// Reads the UUID of a disk: 32 hexadecimal digits in small letters, without hyphens. `None` for anything else.
#[must_use]
pub fn disk_uuid(text: &str) -> Option<String> {
    let digits = text.replace('-', "").to_ascii_lowercase();
    let is_uuid = digits.len() == 32 && digits.chars().all(|c| c.is_ascii_hexdigit());
    is_uuid.then_some(digits)
}

/// A network card as vCenter shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownCard {
    /// Id of its network. `None`: vCenter did not show it.
    pub network_ref: Option<String>,
    /// Name of that network. `None`: vCenter shows none with the card, as for a distributed port group.
    pub network: Option<String>,
    /// How it is connected. `None`: the VM does not run, or vCenter did not show it.
    pub link: Option<Link>,
}

/// How a network card of a running VM is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Now and at the next power-on.
    Connected,
    /// Now, and not at the next power-on.
    OnlyNow,
    /// Not now.
    Disconnected,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_storage_is_recorded_again_only_after_a_tenth_and_a_gibibyte() {
        let half = GIB / 2;
        for (recorded, bytes, expected) in [
            (None, None, None),
            (None, Some(0), Some(0)),
            (None, Some(1), Some(1)),
            (None, Some(5 * GIB), Some(5)),
            (Some(5), None, Some(5)),
            (Some(5), Some(4 * GIB + 1), Some(5)),
            (Some(5), Some(5 * GIB + half), Some(5)),
            (Some(5), Some(6 * GIB), Some(6)),
            (Some(5), Some(4 * GIB), Some(4)),
            (Some(100), Some(109 * GIB), Some(100)),
            (Some(100), Some(110 * GIB), Some(110)),
            (Some(100), Some(90 * GIB - half), Some(90)),
            (Some(0), Some(half), Some(0)),
            (Some(3), Some(u64::MAX), None),
        ] {
            assert_eq!(
                used_gib(recorded, bytes),
                expected,
                "{recorded:?} {bytes:?}"
            );
        }
    }
}
