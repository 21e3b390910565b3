//! The users of vCenters: the credentials that pools and records name. Each vCenter user may see other folders and VMs.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;

use super::secret_ref;
use crate::{domain::names::ObjectKey, ports::cluster::View};

/// Credentials that a namespace may use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct User {
    /// Secret with the credentials.
    pub secret: ObjectKey,
    /// Namespace of a pool or record that names it.
    pub namespace: String,
    /// Servers of the vCenters where VMs are on record under this Secret.
    pub servers: BTreeSet<String>,
}

impl User {
    /// Whether VMs are on record under this Secret at that vCenter.
    #[must_use]
    pub fn has_vms_at(&self, server: &str) -> bool {
        self.servers.contains(server)
    }
}

/// All credentials that pools or records name, in order, without those that may not be used.
#[must_use]
pub fn all(view: &dyn View, allowed: &[String]) -> Vec<User> {
    let mut found: BTreeMap<(ObjectKey, String), BTreeSet<String>> = BTreeMap::new();
    for pool in view.pools() {
        if let Ok(secret) = secret_ref::secret(&pool, allowed) {
            let key = (secret, pool.namespace().unwrap_or_default());
            found.entry(key).or_default();
        }
    }
    for child in view.all_children() {
        let namespace = child.namespace().unwrap_or_default();
        let vm = child.status.as_ref().and_then(|s| s.vm.as_ref());
        let reference = vm.and_then(|vm| vm.credentials_ref.as_ref());
        let secret = reference.and_then(|r| secret_ref::secret_at(r, &namespace, allowed).ok());
        let Some(secret) = secret else {
            continue;
        };
        let servers = found.entry((secret, namespace)).or_default();
        servers.extend(vm.and_then(|vm| vm.server.clone()));
    }
    let user = |((secret, namespace), servers)| User {
        secret,
        namespace,
        servers,
    };
    found.into_iter().map(user).collect()
}
