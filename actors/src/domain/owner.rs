//! Whose a VM is: the uid in its mark. Pure.

use agent_forge_crds::{agent::VsphereAgent, names::RESTORED_FROM_ANNOTATION};
use kube::ResourceExt as _;

use super::{managed_vm::ManagedVm, marker::Marker, reassign::Source};

/// The uid that the VsphereAgent had before its hub was restored, and the attempt whose VM has it in its mark.
#[must_use]
pub fn restored_from(object: &VsphereAgent) -> Option<(&str, u32)> {
    let told = object.annotations().get(RESTORED_FROM_ANNOTATION)?;
    let (uid, attempt) = told.split_once('/')?;
    (!uid.is_empty()).then_some((uid, attempt.parse().ok()?))
}

impl ManagedVm {
    /// Its VM, as another VsphereAgent that takes it over names it.
    #[must_use]
    pub fn as_source(&self) -> Source {
        let attempt = self.attempt();
        Source {
            key: self.key.clone(),
            uid: self.owner_uid(attempt).to_owned(),
            attempt,
        }
    }

    /// The uid in the mark of its VM of that attempt: its own, or the one that it had before its hub was restored.
    #[must_use]
    pub fn owner_uid(&self, attempt: u32) -> &str {
        let before = restored_from(&self.object).filter(|(_, of)| *of == attempt);
        before.map_or(&self.uid, |(uid, _)| uid)
    }

    /// The mark of its VM.
    #[must_use]
    pub fn marker(&self, cluster_id: String) -> Marker {
        self.as_source().marker(cluster_id)
    }
}
