//! The hardware that a VM was made with: how it is recorded, and what differs from it. Pure.
//!
//! What counts: processors, memory, disk, guest id, firmware, disk controller, network adapter, eager zeroing. Where a VM
//! stands (datacenter, cluster, datastore, folder, network) and its tags are no hardware. What its network cards are connected to
//! is compared with vCenter only: see [`super::network`].

use agent_forge_crds::agent::{HardwareDifference, VmStatus, VmTemplate};

use super::hardware::{DiskController, Firmware, Hardware, NetworkAdapter, ShownHardware};

/// How a VM with this hardware is recorded.
#[must_use]
pub fn record(hardware: &Hardware) -> VmTemplate {
    VmTemplate {
        num_cpus: i32::try_from(hardware.num_cpus).ok(),
        memory_mib: i32::try_from(hardware.memory_mib).ok(),
        disk_gib: i32::try_from(hardware.disk_gib).ok(),
        guest_id: Some(hardware.guest_id.clone()),
        firmware: Some(hardware.firmware.as_str().to_owned()),
        scsi_type: Some(hardware.disk_controller.as_str().to_owned()),
        network_adapter_type: Some(hardware.network_adapter.as_str().to_owned()),
        disk_eagerly_scrub: Some(hardware.eagerly_scrub),
        // They are known when the VM first runs: see `network`.
        network_cards: Vec::new(),
    }
}

/// The recorded hardware; `None` where the record is missing or incomplete.
#[must_use]
pub fn recorded(vm: &VmStatus) -> Option<Hardware> {
    let template = vm.template.as_ref()?;
    Some(Hardware {
        guest_id: template.guest_id.clone()?,
        firmware: Firmware::parse(template.firmware.as_deref()?)?,
        num_cpus: u32::try_from(template.num_cpus?).ok()?,
        memory_mib: u64::try_from(template.memory_mib?).ok()?,
        disk_gib: u64::try_from(template.disk_gib?).ok()?,
        eagerly_scrub: template.disk_eagerly_scrub?,
        disk_controller: DiskController::parse(template.scsi_type.as_deref()?)?,
        network_adapter: NetworkAdapter::parse(template.network_adapter_type.as_deref()?)?,
    })
}

/// The fields of some hardware, as in the pool's spec.
fn fields(hardware: &Hardware) -> [(&'static str, String); 8] {
    [
        ("numCPUs", hardware.num_cpus.to_string()),
        ("memoryMiB", hardware.memory_mib.to_string()),
        ("diskGiB", hardware.disk_gib.to_string()),
        ("guestID", hardware.guest_id.clone()),
        ("firmware", hardware.firmware.as_str().to_owned()),
        ("scsiType", hardware.disk_controller.as_str().to_owned()),
        (
            "networkAdapterType",
            hardware.network_adapter.as_str().to_owned(),
        ),
        ("diskEagerlyScrub", hardware.eagerly_scrub.to_string()),
    ]
}

pub(super) fn difference(field: &str, want: String, have: String) -> HardwareDifference {
    HardwareDifference {
        field: field.to_owned(),
        want,
        have,
    }
}

/// In what the hardware that the pool wants now differs from that of a VM as it was made.
#[must_use]
pub fn changes(made: &Hardware, wanted: &Hardware) -> Vec<HardwareDifference> {
    let both = fields(made).into_iter().zip(fields(wanted));
    let differ = both.filter(|((_, have), (_, want))| have != want);
    differ
        .map(|((field, have), (_, want))| difference(field, want, have))
        .collect()
}

/// In what a VM differs from how it was made. A larger disk is no difference: a disk grows and cannot shrink.
#[must_use]
pub fn drift(made: &Hardware, shown: &ShownHardware) -> Vec<HardwareDifference> {
    let have = |field: &str| match field {
        "numCPUs" => shown.num_cpus.map(|n| n.to_string()),
        "memoryMiB" => shown.memory_mib.map(|n| n.to_string()),
        "diskGiB" => {
            let smaller = shown.disk_gib.filter(|gib| *gib < made.disk_gib);
            smaller.map(|n| n.to_string())
        }
        "firmware" => shown.firmware.clone(),
        "scsiType" => shown.disk_controller.clone(),
        "networkAdapterType" => shown.network_adapter.clone(),
        // No device shows them.
        _ => None,
    };
    let known = fields(made)
        .into_iter()
        .filter_map(|(field, want)| Some((field, want, have(field)?)));
    known
        .filter(|(_, want, have)| want != have)
        .map(|(field, want, have)| difference(field, want, have))
        .collect()
}

/// Whether a list of VMs shows another number of processors or other memory than the record does.
#[must_use]
pub fn is_news(vm: &VmStatus, num_cpus: Option<u32>, memory_mib: Option<u64>) -> bool {
    let Some(made) = recorded(vm) else {
        return false;
    };
    let expected = |field: &str, made: String| {
        let known = vm.hardware_drift.iter().find(|row| row.field == field);
        known.map_or(made, |row| row.have.clone())
    };
    let differs = |field, made, shown: Option<String>| {
        shown.is_some_and(|shown| shown != expected(field, made))
    };
    let [cpus, memory, ..] = fields(&made);
    differs(cpus.0, cpus.1, num_cpus.map(|n| n.to_string()))
        || differs(memory.0, memory.1, memory_mib.map(|n| n.to_string()))
}

/// The differences as a phrase for people.
#[must_use]
pub fn explain(rows: &[HardwareDifference]) -> String {
    let rows = rows
        .iter()
        .map(|row| format!("{}: want {}, have {}", row.field, row.want, row.have));
    rows.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with;

    /// A change, and the phrase about it.
    type Case<T> = (fn(&mut T), &'static str);

    fn hardware() -> Hardware {
        Hardware {
            guest_id: "rhel9_64Guest".to_owned(),
            firmware: Firmware::Efi,
            num_cpus: 4,
            memory_mib: 16384,
            disk_gib: 100,
            eagerly_scrub: false,
            disk_controller: DiskController::ParaVirtual,
            network_adapter: NetworkAdapter::Vmxnet3,
        }
    }

    fn as_made() -> ShownHardware {
        ShownHardware {
            num_cpus: Some(4),
            memory_mib: Some(16384),
            disk_gib: Some(100),
            disk_uuid: None,
            firmware: Some("efi".to_owned()),
            disk_controller: Some("pvscsi".to_owned()),
            network_adapter: Some("vmxnet3".to_owned()),
            cards: None,
            version: None,
            now: Default::default(),
        }
    }

    #[test]
    fn what_is_recorded_is_read_again_and_an_incomplete_record_is_none() {
        let vm = VmStatus {
            template: Some(record(&hardware())),
            ..VmStatus::default()
        };
        assert_eq!(recorded(&vm), Some(hardware()));
        assert_eq!(recorded(&VmStatus::default()), None);
        let torn = with(vm, |vm| {
            vm.template.as_mut().expect("a template").memory_mib = None;
        });
        assert_eq!(recorded(&torn), None);
    }

    #[test]
    fn each_field_that_the_pool_changes_is_named() {
        let edits: [Case<Hardware>; 8] = [
            (|h| h.num_cpus = 8, "numCPUs: want 8, have 4"),
            (|h| h.memory_mib = 1, "memoryMiB: want 1, have 16384"),
            (|h| h.disk_gib = 200, "diskGiB: want 200, have 100"),
            (
                |h| h.guest_id = "other".to_owned(),
                "guestID: want other, have rhel9_64Guest",
            ),
            (
                |h| h.firmware = Firmware::Bios,
                "firmware: want bios, have efi",
            ),
            (
                |h| h.disk_controller = DiskController::Nvme,
                "scsiType: want nvme, have pvscsi",
            ),
            (
                |h| h.network_adapter = NetworkAdapter::E1000e,
                "networkAdapterType: want e1000e, have vmxnet3",
            ),
            (
                |h| h.eagerly_scrub = true,
                "diskEagerlyScrub: want true, have false",
            ),
        ];
        assert_eq!(changes(&hardware(), &hardware()), []);
        for (edit, words) in edits {
            assert_eq!(
                explain(&changes(&hardware(), &with(hardware(), edit))),
                words
            );
        }
    }

    #[test]
    fn only_what_vcenter_shows_otherwise_is_drift() {
        let cases: [Case<ShownHardware>; 8] = [
            (|_| {}, ""),
            (|s| s.num_cpus = Some(8), "numCPUs: want 4, have 8"),
            (
                |s| s.memory_mib = Some(8192),
                "memoryMiB: want 16384, have 8192",
            ),
            (|s| s.disk_gib = Some(200), ""),
            (|s| s.disk_gib = Some(0), "diskGiB: want 100, have 0"),
            (
                |s| s.network_adapter = Some("none".to_owned()),
                "networkAdapterType: want vmxnet3, have none",
            ),
            (
                |s| {
                    s.firmware = Some("bios".to_owned());
                    s.disk_controller = Some("lsilogic".to_owned());
                },
                "firmware: want efi, have bios; scsiType: want pvscsi, have lsilogic",
            ),
            (|s| *s = ShownHardware::default(), ""),
        ];
        for (change, words) in cases {
            let shown = with(as_made(), change);
            assert_eq!(explain(&drift(&hardware(), &shown)), words);
        }
    }

    #[test]
    fn a_scan_has_news_only_of_what_is_not_on_record() {
        let made = VmStatus {
            template: Some(record(&hardware())),
            ..VmStatus::default()
        };
        let edited = with(made.clone(), |vm| {
            vm.hardware_drift = drift(&hardware(), &with(as_made(), |s| s.num_cpus = Some(8)));
        });
        for (vm, cpus, memory, news) in [
            (&made, Some(4), Some(16384), false),
            (&made, Some(8), Some(16384), true),
            (&made, Some(4), Some(8192), true),
            (&made, None, None, false),
            (&edited, Some(8), Some(16384), false),
            (&edited, Some(4), Some(16384), true),
            (&VmStatus::default(), Some(8), Some(1), false),
        ] {
            assert_eq!(is_news(vm, cpus, memory), news, "{cpus:?} {memory:?}");
        }
    }

    #[test]
    fn each_device_has_one_word() {
        for word in DiskController::ACCEPTED.split(", ") {
            let read = DiskController::parse(word).expect("accepted");
            assert_eq!(DiskController::parse(read.as_str()), Some(read));
        }
        for word in NetworkAdapter::ACCEPTED.split(", ") {
            let read = NetworkAdapter::parse(word).expect("accepted");
            assert_eq!(NetworkAdapter::parse(read.as_str()), Some(read));
        }
    }
}
