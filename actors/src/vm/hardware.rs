//! From a pool's spec to what is built: hardware, names, places to look up. A value that cannot be mapped is a
//! [`ReconcileError`] that names the field.

use agent_forge_crds::{
    conditions::reason,
    names::ALLOW_POOLS_FROM_ANNOTATION,
    pool::{CredentialsSecretRef, Firmware as WireFirmware, VsphereAgentPool},
};
use kube::ResourceExt;

use crate::{
    error::{ErrorSource, ReconcileError},
    model::{
        grants,
        hardware::{DiskController, Firmware, Hardware, NetworkAdapter},
        names::ObjectKey,
    },
    mutants::{Mutant, on},
    ports::vcenter::PlaceRequest,
};

fn invalid(field: &str, value: &str, must: &str) -> ReconcileError {
    ReconcileError::blocked(
        ErrorSource::Vsphere,
        reason::INVALID_SPEC,
        format!("{field}: {value:?} {must}"),
    )
}

fn positive(field: &str, value: i32) -> Result<u64, ReconcileError> {
    u64::try_from(value)
        .ok()
        .filter(|v| *v > 0)
        .ok_or_else(|| invalid(field, &value.to_string(), "must be positive"))
}

/// The field of the spec that a property of vCenter's creation is made from, and its value; `None`: of no single one, or
/// of one whose value is checked here.
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

/// What to look up in vCenter.
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
        reserved: std::collections::BTreeMap::new(),
        hardware,
    })
}

/// The Secret with the pool's credentials.
///
/// # Errors
/// `SecretNamespaceRefused` when it lies in another namespace that the operator's flag excludes. Whether the Secret itself
/// admits the pool is asked when it is read ([`admit`]).
pub fn secret(
    pool: &VsphereAgentPool,
    allowed_namespaces: &[String],
) -> Result<ObjectKey, ReconcileError> {
    let own = pool.namespace().unwrap_or_default();
    secret_at(
        &pool.spec.vsphere.credentials_secret_ref,
        &own,
        allowed_namespaces,
    )
}

/// Whether pools of that namespace may use this Secret, by its annotation `allow-pools-from`. One that is not there admits
/// nobody from elsewhere, so that nobody learns from the answer whether it is.
///
/// # Errors
/// `SecretNamespaceRefused` names the annotation.
pub fn admit(
    secret: &ObjectKey,
    pools_from: Option<&str>,
    namespace: &str,
) -> Result<(), ReconcileError> {
    let own = secret.namespace == namespace;
    if own || grants::allows(pools_from, namespace) || on(Mutant::AnySecret) {
        return Ok(());
    }
    Err(ReconcileError::blocked(
        ErrorSource::Vsphere,
        reason::SECRET_NAMESPACE_REFUSED,
        format!(
            "spec.vsphere.credentialsSecretRef: Secret {secret} does not exist, or does not admit pools of namespace \
             {namespace:?}; annotate it with {ALLOW_POOLS_FROM_ANNOTATION}: {namespace}, or put a Secret into the pool's \
             namespace"
        ),
    ))
}

/// The Secret that a reference in namespace `own` means.
///
/// # Errors
/// As [`secret`].
pub fn secret_at(
    reference: &CredentialsSecretRef,
    own: &str,
    allowed_namespaces: &[String],
) -> Result<ObjectKey, ReconcileError> {
    let namespace = reference
        .namespace
        .as_deref()
        .filter(|n| !n.is_empty())
        .unwrap_or(own);
    let bounded = !allowed_namespaces.is_empty();
    if namespace != own && bounded && !allowed_namespaces.iter().any(|n| n == namespace) {
        return Err(ReconcileError::blocked(
            ErrorSource::Vsphere,
            reason::SECRET_NAMESPACE_REFUSED,
            format!(
                "spec.vsphere.credentialsSecretRef.namespace: {namespace:?} is neither the pool's own namespace nor among \
                 --secret-namespaces of the operator; put the Secret into the pool's namespace"
            ),
        ));
    }
    Ok(ObjectKey::new(namespace, &reference.name))
}
