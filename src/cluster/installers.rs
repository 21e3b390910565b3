//! Caches and watches of the installer for BYOH. Only `--byoh-installer` makes them.
//!
//! The operator's readiness does not depend on them: without BYOH's definitions only the installer waits. Their lists end no doubt
//! either, because each write of the installer is decided from live reads.

use std::sync::Arc;

use agent_forge_actors::{domain::names::ObjectKey, supervisor::routing::Change};
use agent_forge_crds::{
    AgentForgeInstallerConfig,
    external::{ByoHost, ByoMachine},
};
use kube::{Client, Resource};

use super::{
    bound::{self, Meter},
    cache::Cache,
    scope::Part,
    trim,
    watches::{Shown, follow},
};

/// The caches. They cover all namespaces: a ByoHost may be in any.
#[derive(Debug)]
pub struct InstallerCaches {
    /// Configs.
    pub configs: Arc<Cache<AgentForgeInstallerConfig>>,
    /// ByoMachines.
    pub machines: Arc<Cache<ByoMachine>>,
    /// ByoHosts.
    pub hosts: Arc<Cache<ByoHost>>,
}

impl InstallerCaches {
    /// Caches whose objects count in `meter`.
    #[must_use]
    pub fn of(meter: &Arc<Meter>) -> Self {
        fn make<K: Resource<DynamicType = ()> + serde::Serialize>(
            meter: &Arc<Meter>,
            kind: &'static str,
        ) -> Arc<Cache<K>> {
            Arc::new(Cache::of(&[None]).metered(meter, kind, bound::json))
        }
        Self {
            configs: make(meter, "AgentForgeInstallerConfig"),
            machines: make(meter, "ByoMachine"),
            hosts: make(meter, "ByoHost"),
        }
    }

    /// Whether the first lists are complete.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.configs.ready() && self.machines.ready() && self.hosts.ready()
    }
}

/// Runs the watches until the task is dropped.
pub async fn watch(client: &Client, caches: &InstallerCaches, tell: &impl Fn(Change)) {
    let everywhere: Part = None;
    let of = (client, &everywhere);
    tokio::join!(
        follow(of, &caches.configs, trim::metadata, changed, tell),
        follow(of, &caches.machines, trim::metadata, changed, tell),
        follow(of, &caches.hosts, trim::metadata, changed, tell),
    );
}

/// All that is kept of these kinds is read, except the version.
fn changed<K>(_: ObjectKey, old: Shown<'_, K>, new: Shown<'_, K>) -> Option<Change>
where
    K: Resource<DynamicType = ()> + Clone + PartialEq,
{
    let read = |object: &Arc<K>| {
        let mut object = object.as_ref().clone();
        object.meta_mut().resource_version = None;
        object
    };
    let same = match (old, new) {
        (Some(old), Some(new)) => read(old) == read(new),
        (None, None) => true,
        _ => false,
    };
    (!same).then_some(Change::Byoh)
}
