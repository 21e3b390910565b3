//! Which VMs are followed, and what is news. Pure.

use std::collections::BTreeSet;

use agent_forge_crds::agent::VsphereAgent;
use kube::ResourceExt;

use crate::{
    domain::names::ObjectKey,
    ports::{
        cluster::View,
        vcenter::{PowerState, VmNews},
    },
    sessions::secret_ref,
};

/// A VM that is followed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Followed {
    /// Its VsphereAgent.
    pub(super) key: ObjectKey,
    /// The Secret with the credentials on its record.
    pub(super) secret: ObjectKey,
    /// The vCenter on its record.
    pub(super) server: String,
    /// Its reference there.
    pub(super) moref: String,
}

/// All VMs that are recorded as running.
pub(super) fn followed(view: &dyn View, secret_namespaces: &[String]) -> BTreeSet<Followed> {
    let of = |child: &VsphereAgent| {
        let vm = child.status.as_ref()?.vm.as_ref()?;
        let runs = vm.power_state.as_deref() == Some(PowerState::On.as_str());
        if !runs || child.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let namespace = child.namespace()?;
        let reference = vm.credentials_ref.as_ref()?;
        Some(Followed {
            key: ObjectKey::of(child),
            // A Secret that may not be used is reported where the VM is looked at.
            secret: secret_ref::secret_at(reference, &namespace, secret_namespaces).ok()?,
            server: vm.server.clone()?,
            moref: vm.moref.clone()?,
        })
    };
    let children = view.all_children();
    children.iter().filter_map(|c| of(c)).collect()
}

/// Whether the actor of a running VM has to look, if `before` was told of the VM last. While a VM is gone, its actor looks by
/// itself.
pub(super) fn is_news(before: Option<&VmNews>, news: &VmNews) -> bool {
    match (before, news) {
        (None, VmNews::There(now)) => !now.runs(),
        (before, now) => before != Some(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ports::vcenter::VmSight,
        testing::{child_with_vm, with},
        vm::testing::hub::Hub,
    };

    fn sight(power: PowerState, connected: bool, version: &str) -> VmSight {
        VmSight {
            power,
            connected,
            version: version.to_owned(),
        }
    }

    #[test]
    fn only_a_vm_that_is_not_as_recorded_or_changes_is_news() {
        let runs = sight(PowerState::On, true, "1");
        let off = sight(PowerState::Off, true, "1");
        let there = |s: &VmSight| VmNews::There(s.clone());
        assert!(!is_news(None, &there(&runs)), "as recorded");
        assert!(is_news(None, &there(&off)), "off while nobody listened");
        let away = sight(PowerState::On, false, "");
        assert!(is_news(None, &there(&away)), "its host is away");
        assert!(is_news(None, &VmNews::Gone));
        assert!(!is_news(Some(&there(&runs)), &there(&runs)), "told again");
        assert!(is_news(Some(&there(&runs)), &there(&off)));
        assert!(is_news(Some(&there(&off)), &there(&runs)), "on again");
        let edited = sight(PowerState::On, true, "2");
        assert!(
            is_news(Some(&there(&runs)), &there(&edited)),
            "reconfigured"
        );
        assert!(is_news(Some(&there(&runs)), &VmNews::Gone));
        assert!(!is_news(Some(&VmNews::Gone), &VmNews::Gone), "still gone");
        assert!(is_news(Some(&VmNews::Gone), &there(&runs)), "it is back");
    }

    #[test]
    fn only_vms_that_are_recorded_as_running_are_followed() {
        let running = with(child_with_vm("a"), |c| {
            let vm = c.status.as_mut().and_then(|s| s.vm.as_mut());
            let vm = vm.expect("a record");
            vm.power_state = Some("poweredOn".to_owned());
            vm.moref = Some("vm-1".to_owned());
            vm.server = Some("vcenter.example".to_owned());
            vm.credentials_ref = Some(agent_forge_crds::pool::CredentialsSecretRef {
                name: "vcenter".to_owned(),
                namespace: None,
            });
        });
        let follows = |child: VsphereAgent| {
            let hub = Hub::default();
            hub.with(|o| o.child = Some(child));
            followed(&hub, &[]).len()
        };
        assert_eq!(follows(running.clone()), 1);
        let off = with(running.clone(), |c| {
            let vm = c.status.as_mut().and_then(|s| s.vm.as_mut());
            vm.expect("a record").power_state = Some("poweredOff".to_owned());
        });
        assert_eq!(follows(off), 0, "it is being made, or was switched off");
        let leaving = with(running, |c| {
            let now = jiff::Timestamp::UNIX_EPOCH;
            c.metadata.deletion_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
        });
        assert_eq!(follows(leaving), 0);
    }
}
