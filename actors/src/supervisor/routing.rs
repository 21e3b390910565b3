//! From what changed to who looks again. Pure; a wake carries no data.

use std::{fmt, sync::Arc};

use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool, external::agent_machine::AgentMachine,
    names::AGENT_MACHINE_LABEL,
};
use kube::ResourceExt;

use crate::{
    iso_cache::msg::IsoKey,
    model::{
        child::{recorded_identity, recorded_machine},
        identity::agent_runs_on,
        names::ObjectKey,
    },
    pool::agents_home,
    ports::cluster::View,
};

/// An actor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ActorKey {
    /// Session actor.
    Sessions,
    /// Placement actor.
    Placement,
    /// Orphan scan.
    Orphans,
    /// ISO cache of a datastore.
    IsoCache(IsoKey),
    /// Pool actor.
    Pool(ObjectKey),
    /// VM actor.
    Vm(ObjectKey),
}

impl ActorKey {
    /// Every kind that [`ActorKey::kind`] names.
    pub const KINDS: [&str; 6] = [
        "sessions",
        "placement",
        "orphans",
        "iso_cache",
        "pool",
        "vm",
    ];

    /// Kind, for metrics and descriptions.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Placement => "placement",
            Self::Orphans => "orphans",
            Self::IsoCache(_) => "iso_cache",
            Self::Pool(_) => "pool",
            Self::Vm(_) => "vm",
        }
    }

    /// The object that it is about, where there is one.
    #[must_use]
    pub const fn object(&self) -> Option<&ObjectKey> {
        match self {
            Self::Pool(key) | Self::Vm(key) => Some(key),
            Self::Sessions | Self::Placement | Self::Orphans | Self::IsoCache(_) => None,
        }
    }
}

impl fmt::Display for ActorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sessions | Self::Placement | Self::Orphans => f.write_str(self.kind()),
            Self::IsoCache(key) => write!(f, "iso_cache/{key}"),
            Self::Pool(key) => write!(f, "pool/{key}"),
            Self::Vm(key) => write!(f, "vm/{key}"),
        }
    }
}

/// What a watch saw. `deep` says whether more than counts and rows of the status changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A pool.
    Pool {
        /// Which.
        key: ObjectKey,
        /// Spec, metadata or `status.iso` changed: its VMs look again as well.
        deep: bool,
    },
    /// A VsphereAgent of that pool.
    Child {
        /// Which.
        key: ObjectKey,
        /// `spec.poolRef`.
        pool: ObjectKey,
        /// Spec or metadata changed. The status is the VM actor's own writing: it knows it.
        deep: bool,
    },
    /// An AgentMachine or a Machine.
    Machine(ObjectKey),
    /// An Agent.
    Agent(ObjectKey),
    /// An InfraEnv.
    InfraEnv(ObjectKey),
    /// What the Namespace of that name lets pools of other namespaces do.
    Namespace(String),
}

/// Who looks again, and why.
#[must_use]
pub fn route(change: &Change, view: &dyn View) -> Vec<(ActorKey, &'static str)> {
    let mut out = Vec::new();
    match change {
        Change::Pool { key, deep } => {
            out.push((ActorKey::Pool(key.clone()), "pool"));
            if *deep {
                out.extend(
                    view.children(key)
                        .iter()
                        .map(|c| (ActorKey::Vm(ObjectKey::of(c.as_ref())), "pool")),
                );
                // A pool that came, went or moved may end or begin a conflict with its neighbours.
                out.extend(
                    view.pools()
                        .iter()
                        .map(|p| ObjectKey::of(p.as_ref()))
                        .filter(|k| k != key)
                        .map(|k| (ActorKey::Pool(k), "neighbour")),
                );
            }
        }
        Change::Child { key, pool, deep } => {
            if *deep {
                out.push((ActorKey::Vm(key.clone()), "vsphereagent"));
            }
            out.push((ActorKey::Pool(pool.clone()), "vsphereagent"));
        }
        Change::Machine(key) => {
            for pool in view
                .pools()
                .iter()
                .filter(|p| p.spec.control_plane_namespace == key.namespace)
            {
                let pool_key = ObjectKey::of(pool.as_ref());
                for child in view.children(&pool_key) {
                    let named = child.labels().get(AGENT_MACHINE_LABEL) == Some(&key.name);
                    if named || recorded_machine(&child).is_some_and(|m| m.name == key.name) {
                        out.push((ActorKey::Vm(ObjectKey::of(child.as_ref())), "machine"));
                    }
                }
                out.push((ActorKey::Pool(pool_key), "machine"));
            }
        }
        Change::Agent(key) => {
            let agents = view.agents(&key.namespace);
            let shown = agents
                .iter()
                .find(|a| a.metadata.name.as_ref() == Some(&key.name));
            for pool in view.pools() {
                let pool_key = ObjectKey::of(pool.as_ref());
                let children = view.children(&pool_key);
                if !has_agents_in(&pool, &children, &key.namespace) {
                    continue;
                }
                for child in children {
                    let vm = child.status.as_ref().and_then(|s| s.vm.as_ref());
                    let recorded = vm
                        .and_then(|vm| vm.agent_ref.as_ref()?.name.as_ref())
                        .map(|name| *name == key.name);
                    let may_run_there = match (shown, &vm.and_then(recorded_identity)) {
                        (Some(agent), Some(vm)) => agent_runs_on(agent, vm).may_run_there(),
                        (Some(_), None) => false,
                        // Gone: where none is recorded, it may have been the one.
                        (None, _) => recorded.is_none(),
                    };
                    if may_run_there || recorded == Some(true) {
                        out.push((ActorKey::Vm(ObjectKey::of(child.as_ref())), "agent"));
                    }
                }
                out.push((ActorKey::Pool(pool_key), "agent"));
            }
        }
        Change::InfraEnv(key) => {
            let of = |p: &VsphereAgentPool| agents_home::candidates(p).contains(key);
            for pool in view.pools().iter().filter(|p| of(p)) {
                let key = ObjectKey::of(pool.as_ref());
                // It may keep a VM from being made, or not any more.
                let made = |c: &VsphereAgent| {
                    let status = c.status.as_ref();
                    status.is_some_and(|s| s.vm.as_ref().is_some_and(|vm| vm.moref.is_some()))
                };
                for child in view.children(&key).iter().filter(|c| !made(c)) {
                    out.push((ActorKey::Vm(ObjectKey::of(child.as_ref())), "infraenv"));
                }
                out.push((ActorKey::Pool(key), "infraenv"));
            }
        }
        Change::Namespace(name) => {
            for pool in view.pools().iter().filter(|p| is_near(view, p, name)) {
                let key = ObjectKey::of(pool.as_ref());
                let children = view.children(&key).into_iter();
                out.extend(
                    children.map(|c| (ActorKey::Vm(ObjectKey::of(c.as_ref())), "namespace")),
                );
                out.push((ActorKey::Pool(key), "namespace"));
            }
        }
    }
    out
}

/// Agents of the pool's VMs may be in that namespace: one of its InfraEnv, or of the InfraEnv that a VM boots from, whatever
/// the spec says now.
fn has_agents_in(pool: &VsphereAgentPool, children: &[Arc<VsphereAgent>], namespace: &str) -> bool {
    let boots_from_there = |child: &Arc<VsphereAgent>| {
        let vm = child.status.as_ref().and_then(|s| s.vm.as_ref());
        let source = vm.and_then(|vm| vm.infra_env_ref.as_ref());
        source.is_some_and(|s| s.namespace.as_deref() == Some(namespace))
    };
    let homes = agents_home::candidates(pool);
    homes.iter().any(|home| home.namespace == namespace) || children.iter().any(boots_from_there)
}

/// The pool lies in that namespace, or has to do with what lies there.
fn is_near(view: &dyn View, pool: &VsphereAgentPool, name: &str) -> bool {
    let control_plane = &pool.spec.control_plane_namespace;
    let homes = agents_home::candidates(pool);
    let of_node_pool = |am: &Arc<AgentMachine>| am.node_pool().is_some_and(|(ns, _)| ns == name);
    pool.metadata.namespace.as_deref() == Some(name)
        || control_plane == name
        || homes.iter().any(|home| home.namespace == name)
        || view.agent_machines(control_plane).iter().any(of_node_pool)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;
    use crate::{
        testing::{POOL, agent_on, child_with_vm, pool, with},
        vm::bench::hub::Hub,
    };

    /// The pool's spec names another InfraEnv by now.
    #[test]
    fn an_agent_where_a_vm_boots_from_is_told_to_that_vm() {
        let child = with(child_with_vm("a"), |c| {
            let vm = c.status.as_mut().and_then(|s| s.vm.as_mut());
            vm.expect("recorded").infra_env_ref = Some(ObjectReference {
                namespace: Some("old-home".to_owned()),
                name: Some("infra".to_owned()),
                ..ObjectReference::default()
            });
        });
        let agent = with(agent_on(&child), |a| {
            a.metadata.namespace = Some("old-home".to_owned());
        });
        let change = Change::Agent(ObjectKey::of(&agent));
        let hub = Hub::default();
        hub.with(|o| {
            o.pool = Some(pool(POOL));
            o.child = Some(child);
            o.agents = vec![agent];
        });
        let told: Vec<ActorKey> = route(&change, &hub)
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        let vm = told.iter().any(|key| matches!(key, ActorKey::Vm(_)));
        let pool = told.iter().any(|key| matches!(key, ActorKey::Pool(_)));
        assert!(vm && pool, "{told:?}");
    }
}
