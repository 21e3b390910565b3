//! CAPI Machines by their metadata alone, in the version that the API server serves.

use agent_forge_actors::{
    domain::{names::ObjectKey, upstream::MachineFacts},
    ports::cluster::{ClusterError, ClusterErrorKind, ClusterResult},
};
use agent_forge_crds::external::{
    agent_machine::PAUSED_ANNOTATION,
    machine::{self, MachineVersion},
};
use kube::{Client, ResourceExt};

/// What decisions need of a Machine.
pub fn facts<K: ResourceExt>(object: &K, version: MachineVersion) -> MachineFacts {
    MachineFacts {
        key: ObjectKey::of(object),
        uid: object.uid().unwrap_or_default(),
        deleting: object.meta().deletion_timestamp.is_some(),
        paused: object.annotations().contains_key(PAUSED_ANNOTATION),
        api_version: version.api_version(),
    }
}

/// The newest Machine version that discovery reports. If none is served, that is an error. It must never look like "no
/// Machines", because VMs of deleted Machines are destroyed.
///
/// # Errors
/// No version is served, or discovery does not answer.
pub async fn served_version(client: &Client) -> ClusterResult<MachineVersion> {
    let failed = |kind, message: String| ClusterError {
        kind,
        operation: "discover",
        subject: format!("{}/{}", machine::GROUP, machine::PLURAL),
        message,
    };
    for version in MachineVersion::NEWEST_FIRST {
        match client
            .list_api_group_resources(&version.api_version())
            .await
        {
            Ok(list) if list.resources.iter().any(|r| r.name == machine::PLURAL) => {
                return Ok(version);
            }
            Ok(_) => {}
            Err(kube::Error::Api(s)) if s.code == 404 => {}
            Err(e) => return Err(failed(ClusterErrorKind::Unavailable, e.to_string())),
        }
    }
    Err(failed(
        ClusterErrorKind::Unavailable,
        "the API server serves no known version of this kind".to_owned(),
    ))
}
