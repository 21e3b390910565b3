//! From a pool's spec to hardware and to the names that placement looks up. A value without meaning is a
//! [`ReconcileError`] that names the field.

use agent_forge_crds::{
    agent::{HardwareDifference, VmStatus},
    conditions::Reason,
    pool::{Firmware as WireFirmware, VsphereAgentPool},
};

use crate::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        hardware::{DiskController, Firmware, Hardware, NetworkAdapter},
        template,
    },
    ports::vcenter::PlaceRequest,
};

fn invalid(field: &str, value: &str, must: &str) -> ReconcileError {
    ReconcileError::blocked(
        ErrorSource::Vsphere,
        Reason::InvalidSpec,
        format!("{field}: {value:?} {must}"),
    )
}

fn positive(field: &str, value: i32) -> Result<u64, ReconcileError> {
    u64::try_from(value)
        .ok()
        .filter(|v| *v > 0)
        .ok_or_else(|| invalid(field, &value.to_string(), "must be positive"))
}

/// The field of the spec behind a property of vCenter's creation, and its value. `None`: no single field, or one whose value
/// is checked here.
#[must_use]
pub fn field_of(pool: &VsphereAgentPool, property: &str) -> Option<(&'static str, String)> {
    let (vsphere, template) = (&pool.spec.vsphere, &pool.spec.template);
    match property.rsplit('.').next()? {
        "guestId" => Some(("spec.vsphere.guestID", vsphere.guest_id().to_owned())),
        "numCPUs" => Some(("spec.template.numCPUs", template.num_cpus().to_string())),
        "memoryMB" => Some(("spec.template.memoryMiB", template.memory_mib().to_string())),
        _ => None,
    }
}

/// Hardware by `spec.template` and `spec.vsphere`.
///
/// # Errors
/// `InvalidSpec` names field, value and what is accepted.
pub fn hardware(pool: &VsphereAgentPool) -> Result<Hardware, ReconcileError> {
    let (vsphere, template) = (&pool.spec.vsphere, &pool.spec.template);
    let scsi = vsphere.scsi_type();
    let nic = vsphere.network_adapter_type();
    Ok(Hardware {
        guest_id: vsphere.guest_id().to_owned(),
        firmware: match vsphere.firmware() {
            WireFirmware::Efi => Firmware::Efi,
            WireFirmware::Bios => Firmware::Bios,
        },
        num_cpus: u32::try_from(positive("spec.template.numCPUs", template.num_cpus())?)
            .unwrap_or(u32::MAX),
        memory_mib: positive("spec.template.memoryMiB", template.memory_mib())?,
        disk_gib: positive("spec.template.diskGiB", template.disk_gib())?,
        eagerly_scrub: vsphere.disk_eagerly_scrub(),
        disk_controller: DiskController::parse(scsi).ok_or_else(|| {
            invalid(
                "spec.vsphere.scsiType",
                scsi,
                &format!("is unknown; use one of {}", DiskController::ACCEPTED),
            )
        })?,
        network_adapter: NetworkAdapter::parse(nic).ok_or_else(|| {
            invalid(
                "spec.vsphere.networkAdapterType",
                nic,
                &format!("is unknown; use one of {}", NetworkAdapter::ACCEPTED),
            )
        })?,
    })
}

/// In what the hardware that the pool wants now differs from that of a VM as it was made. Empty if one of them is unknown.
#[must_use]
pub fn template_changes(pool: &VsphereAgentPool, vm: &VmStatus) -> Vec<HardwareDifference> {
    let both = template::recorded(vm).zip(hardware(pool).ok());
    both.map(|(made, wanted)| template::changes(&made, &wanted))
        .unwrap_or_default()
}

/// Folder path below the datacenter's `vm` folder: `spec.vsphere.folder`, else the hosted cluster's name.
#[must_use]
pub fn folder(pool: &VsphereAgentPool) -> String {
    let given = pool
        .spec
        .vsphere
        .folder
        .as_deref()
        .unwrap_or_default()
        .trim_matches('/');
    if given.is_empty() {
        pool.spec.hosted_cluster_ref.name.clone()
    } else {
        given.to_owned()
    }
}

/// What placement looks up in vCenter.
///
/// # Errors
/// `InvalidSpec`, as for [`hardware`].
pub fn place_request(pool: &VsphereAgentPool) -> Result<PlaceRequest, ReconcileError> {
    let hardware = hardware(pool)?;
    let vsphere = &pool.spec.vsphere;
    Ok(PlaceRequest {
        datacenter: vsphere.datacenter().to_owned(),
        folder: folder(pool),
        resource_pool: vsphere.resource_pool.clone(),
        datastore_cluster: vsphere.datastore_cluster.clone(),
        iso_datastore: vsphere.iso_datastore.clone(),
        network: vsphere.network.clone(),
        bytes: hardware.bytes(),
        hardware,
    })
}
