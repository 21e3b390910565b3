//! Which session leads to the vCenter of a VM, which vCenter it led to, and whether that is the recorded one.
//!
//! A vCenter keeps `about.instanceUuid` when its address changes, and after a restore from its backup. A new
//! installation has another one, whatever its address. Two Secrets that lead to one vCenter stay two: this module only
//! finds out whether a record belongs to this vCenter.

use std::sync::Arc;

use agent_forge_crds::{agent::VmStatus, conditions::Reason, pool::VsphereAgentPool};

use super::secret_ref;
use crate::{
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        managed_vm::ManagedVm,
    },
    ports::{sessions::Sessions, vcenter::VCenter},
};

/// A session in the vCenter of `child`, by the Secret on its record, else by that of its pool.
///
/// # Errors
/// Neither leads there, or another vCenter than the recorded one answers.
pub async fn session(
    sessions: &dyn Sessions,
    secret_namespaces: &[String],
    child: &ManagedVm,
    pool: Option<&VsphereAgentPool>,
) -> Result<(Arc<dyn VCenter>, Reached), ReconcileError> {
    let vm = child.vm().cloned().unwrap_or_default();
    // Who uses the host asks for the credentials.
    let own = pool.map_or(&child.key.namespace, |_| &child.pool.namespace);
    let recorded = vm.credentials_ref.as_ref();
    let recorded =
        recorded.map(|r| secret_ref::secret_at(r, &child.key.namespace, secret_namespaces));
    let current = pool.map(|pool| secret_ref::secret(pool, secret_namespaces));
    let (session, by_record) = match (recorded, current) {
        (Some(Ok(recorded)), Some(Ok(current))) if recorded != current => {
            match sessions.session(&recorded, own).await {
                Err(t) if t.class == Class::Blocked => {
                    (sessions.session(&current, own).await?, false)
                }
                other => (other?, true),
            }
        }
        (Some(Ok(recorded)), _) => (sessions.session(&recorded, own).await?, true),
        // The recorded Secret cannot be read any more.
        (Some(Err(_)) | None, Some(current)) => (sessions.session(&current?, own).await?, false),
        (Some(Err(refused)), None) => return Err(refused),
        (None, None) => {
            return Err(ReconcileError {
                side: ErrorSource::Kubernetes,
                reason: Reason::InternalError,
                message: "neither the record nor a pool names credentials".to_owned(),
                class: Class::Defect,
            });
        }
    };
    let reached = Reached::by(session.as_ref());
    reached.judged(&vm, by_record).map_err(|why| {
        ReconcileError::blocked(ErrorSource::Vsphere, Reason::ServerMismatch, why)
    })?;
    Ok((session, reached))
}

/// A vCenter, as it calls itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    server: String,
    instance: Option<String>,
}

impl Reached {
    /// The vCenter that `session` led to.
    #[must_use]
    pub fn by(session: &dyn VCenter) -> Self {
        Self {
            server: session.server().to_owned(),
            instance: session.instance(),
        }
    }

    /// The recorded vCenter, if this actor could not ask.
    #[must_use]
    pub fn as_recorded(vm: &VmStatus) -> Self {
        Self {
            server: vm.server.clone().unwrap_or_default(),
            instance: None,
        }
    }

    /// Puts it on the record.
    pub fn record(&self, vm: &mut VmStatus) {
        vm.server = Some(self.server.clone());
        vm.server_instance_uuid.clone_from(&self.instance);
    }

    /// Whether the record has everything that is known of it.
    #[must_use]
    pub fn is_recorded(&self, vm: &VmStatus) -> bool {
        vm.server.as_deref() == Some(self.server.as_str())
            && (self.instance.is_none() || vm.server_instance_uuid == self.instance)
    }

    /// Whether the VM was made in this vCenter. `by_record`: the recorded Secret led there, and not the Secret that the
    /// pool names now.
    ///
    /// # Errors
    /// Why not, and what a person can do.
    pub fn judged(&self, vm: &VmStatus, by_record: bool) -> Result<(), String> {
        let Some(server) = vm.server.as_deref() else {
            return Ok(());
        };
        let here = &self.server;
        let known = vm.server_instance_uuid.as_ref().zip(self.instance.as_ref());
        match known {
            Some((then, now)) if then == now && (server == here || by_record) => return Ok(()),
            Some((then, now)) if then != now => {
                return Err(format!(
                    "the VM was made on {server}, which called itself {then}; the credentials lead to {here}, which calls itself \
                     {now} and is another vCenter. Let the Secret lead to the first one. Where that is gone and the other one \
                     shows the same hosts, remove status.vm.serverInstanceUUID of this VsphereAgent and set status.vm.server \
                     to {here}"
                ));
            }
            None if server == here => return Ok(()),
            _ => {}
        }
        Err(format!(
            "the VM was made on {server}, the credentials lead to {here}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(server: &str, instance: Option<&str>) -> Reached {
        Reached {
            server: server.to_owned(),
            instance: instance.map(str::to_owned),
        }
    }

    #[test]
    fn a_vcenter_is_known_again_by_its_instance_and_through_the_recorded_secret_alone() {
        let first = reached("old.example", Some("i-1"));
        let renamed = reached("new.example", Some("i-1"));
        let rebuilt = reached("old.example", Some("i-2"));
        let other = reached("new.example", Some("i-2"));
        let silent = reached("new.example", None);
        let mut vm = VmStatus::default();
        first.record(&mut vm);
        let unnamed = VmStatus {
            server: Some("old.example".to_owned()),
            ..VmStatus::default()
        };
        for (what, record, now, by_record, fits) in [
            (
                "nothing is on record",
                &VmStatus::default(),
                &other,
                false,
                true,
            ),
            ("the same", &vm, &first, true, true),
            ("the same, by the pool's Secret", &vm, &first, false, true),
            ("renamed", &vm, &renamed, true, true),
            ("renamed, by the pool's Secret", &vm, &renamed, false, false),
            ("another one under the name", &vm, &rebuilt, true, false),
            ("another one", &vm, &other, true, false),
            ("one that does not say", &vm, &silent, true, false),
            ("of an earlier release", &unnamed, &first, true, true),
            (
                "of an earlier release, and renamed",
                &unnamed,
                &renamed,
                true,
                false,
            ),
        ] {
            assert_eq!(now.judged(record, by_record).is_ok(), fits, "{what}");
        }
        assert!(first.is_recorded(&vm));
        assert!(
            !renamed.is_recorded(&vm),
            "its new address is to be recorded"
        );
        assert!(!first.is_recorded(&unnamed), "and its instance is");
        assert!(reached("old.example", None).is_recorded(&unnamed));
    }
}
