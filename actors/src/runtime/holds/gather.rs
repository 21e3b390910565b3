//! Gathers from the cached view what people have written on a pool or a VM, and on everything that it belongs to, and whether
//! a part of what it depends on is unknown.

use std::collections::BTreeSet;

use agent_forge_crds::{external::agent_machine::PAUSED_ANNOTATION, pool::VsphereAgentPool};
use kube::ResourceExt;

use crate::{
    domain::{
        goal::{self, Recorded},
        grants,
        holds::{self, DryRun, Holds, Mode, Pause, Veto},
        managed_vm::ManagedVm,
        names::ObjectKey,
        upstream::PausableKind,
    },
    ports::{cluster::View, effect::Subject},
};

/// What holds the effects for `subject`.
#[must_use]
pub fn of(view: &dyn View, subject: &Subject) -> Holds {
    match subject {
        Subject::Server(_) | Subject::Object(_) => of_operator(view),
        Subject::Pool(key) => of_pool(view, key),
        Subject::Vm { key, pool } => match (view.child(key), pool) {
            (Some(child), _) => of_vm(view, &ManagedVm::read(child)),
            (None, Some(pool)) => of_future_vm(view, key, pool),
            (None, None) => of_orphan(view, &key.namespace),
        },
    }
}

/// What holds everything that the operator does.
fn of_operator(view: &dyn View) -> Holds {
    let mode = view.mode();
    let dry_run = (mode != Mode::Earnest).then(|| DryRun {
        source: "--dry-run".to_owned(),
        silent: mode == Mode::Silent,
    });
    Holds {
        dry_run,
        in_doubt: view.is_in_doubt(),
        ..Holds::default()
    }
}

/// What holds a pool: its own annotations, and what pauses the cluster that it works for.
#[must_use]
pub fn of_pool(view: &dyn View, key: &ObjectKey) -> Holds {
    let mut holds = of_operator(view);
    let pool = view.pool(key);
    if let Some(pool) = &pool {
        add_pool(&mut holds, view, pool, is_admitted(view, pool));
    }
    holds.over_bound = over_bound(view, &key.namespace, pool.as_deref(), None);
    holds
}

/// What holds a VM: its own annotations and marks, those of its Machine, and what holds its pool.
#[must_use]
pub fn of_vm(view: &dyn View, child: &ManagedVm) -> Holds {
    let mut holds = Holds {
        forced: child.forced,
        ..of_operator(view)
    };
    let object = format!("VsphereAgent {}", child.key);
    add_own(&mut holds, child.object.annotations(), &object);
    if child.marks().paused {
        let source = format!("extraConfig {} of VM {}", holds::PAUSE_KEY, child.vm_name);
        holds.pauses.push(Pause {
            in_vcenter: true,
            ..Pause::by(source)
        });
    }
    let pool = view.pool(&child.pool);
    let home = match &pool {
        Some(pool) => Some(child.home(pool)),
        None => child.control_plane.as_deref(),
    };
    if let Some(home) = home {
        if let Some(am) = &child.agent_machine {
            add_agent_machine(&mut holds, view, home, am);
        }
        if let Some(machine) = &child.machine {
            add_machine(&mut holds, view, home, machine);
        }
        let is_pools = |pool: &VsphereAgentPool| pool.control_plane() == home;
        if !pool.as_deref().is_some_and(is_pools) {
            add_cluster(&mut holds, view, home);
        }
    }
    if let Some(pool) = &pool {
        // A VM that was made stays held, also if the grant was taken back.
        let above = child.identity.is_some() || is_admitted(view, pool);
        add_pool(&mut holds, view, pool, above);
    }
    add_sharing(&mut holds, view, child);
    holds.over_bound = over_bound(view, &child.key.namespace, pool.as_deref(), Some(child));
    holds
}

/// What holds a host that a pool of another namespace uses: the annotations of the pool that made it, and a namespace that does not
/// admit the other one's pools any more.
fn add_sharing(holds: &mut Holds, view: &dyn View, child: &ManagedVm) {
    let maker = child.maker();
    if maker == child.pool {
        return;
    }
    if let Some(maker) = view.pool(&maker) {
        add_pool(holds, view, &maker, false);
    }
    let refusing = goal::refusing(&child.object, |name| view.namespace_grant(name));
    if let Some((namespace, other)) = refusing {
        let source = format!("Namespace {namespace} (it admits no pools of {other} any more)");
        holds.pauses.push(Pause::by(source));
    }
}

/// What holds a VM whose VsphereAgent is not there yet: that has the name of its AgentMachine.
fn of_future_vm(view: &dyn View, key: &ObjectKey, pool: &ObjectKey) -> Holds {
    let mut holds = of_operator(view);
    let pool = view.pool(pool);
    holds.over_bound = over_bound(view, &key.namespace, pool.as_deref(), None);
    let Some(pool) = pool else {
        return holds;
    };
    let home = pool.control_plane();
    let named = |name: &str, uid| Recorded {
        name: name.to_owned(),
        uid,
    };
    add_agent_machine(&mut holds, view, home, &named(&key.name, None));
    let owner = view.agent_machine(&ObjectKey::new(home, &key.name));
    if let Some(machine) = owner.as_ref().and_then(|am| am.owner_machine()) {
        let machine = named(&machine.name, Some(machine.uid.clone()));
        add_machine(&mut holds, view, home, &machine);
    }
    add_pool(&mut holds, view, &pool, is_admitted(view, &pool));
    holds
}

/// What holds a VM without a VsphereAgent. Each pool of its namespace may have made it.
fn of_orphan(view: &dyn View, namespace: &str) -> Holds {
    let mut holds = of_operator(view);
    holds.over_bound = over_bound(view, namespace, None, None);
    let pools = view.pools().into_iter();
    for pool in pools.filter(|p| p.metadata.namespace.as_deref() == Some(namespace)) {
        add_pool(&mut holds, view, &pool, true);
        holds
            .over_bound
            .extend(over_bound(view, namespace, Some(&pool), None));
    }
    holds
}

/// Why a part of what they depend on is unknown. They depend on the namespaces of the pool and its VM, of their control planes,
/// InfraEnvs and Agents, of the HostedCluster, and of a VM that is taken over. They also depend on each namespace whose pools
/// one of these admits: a VsphereAgent there may be for the same AgentMachine, or have the same host.
fn over_bound(
    view: &dyn View,
    own: &str,
    pool: Option<&VsphereAgentPool>,
    child: Option<&ManagedVm>,
) -> BTreeSet<String> {
    let over = view.all_over_bound();
    if over.is_empty() {
        return BTreeSet::new();
    }
    let mut near = BTreeSet::from([own.to_owned()]);
    if let Some(pool) = pool {
        near.insert(pool.control_plane().to_owned());
        near.extend(pool.spec.infra_env_ref.namespace.clone());
        near.extend(home_of_hosted_cluster(pool));
    }
    if let Some(child) = child {
        let source = child.identity.as_ref().and_then(|i| i.infra_env.as_ref());
        near.extend(child.control_plane.clone());
        near.extend(source.map(|source| source.namespace.clone()));
        near.extend(child.agent.as_ref().map(|key| key.namespace.clone()));
        near.extend([child.pool.namespace.clone()]);
        near.extend(child.taken_from.as_ref().map(|s| s.key.namespace.clone()));
    }
    let concerns = |over: &&String| {
        let admits = |near: &String| {
            let grant = view.namespace_grant(near);
            near == *over || grants::allows(grant.as_deref(), over)
        };
        near.iter().any(admits)
    };
    let concerned = over.iter().filter(concerns);
    concerned.filter_map(|name| view.over_bound(name)).collect()
}

fn add_own(holds: &mut Holds, annotations: &holds::Annotations, object: &str) {
    if holds::is_paused(annotations) {
        let key = agent_forge_crds::names::PAUSED_ANNOTATION;
        let source = format!("annotation {key} of {object}");
        holds.pauses.push(Pause::by(source));
    }
    holds.vetoes.extend(Veto::read(annotations, object));
}

fn add_capi(holds: &mut Holds, paused: bool, object: &str) {
    if paused {
        let source = format!("annotation {PAUSED_ANNOTATION} of {object}");
        holds.pauses.push(Pause::by(source));
    }
}

fn add_agent_machine(holds: &mut Holds, view: &dyn View, home: &str, record: &Recorded) {
    let key = ObjectKey::new(home, &record.name);
    let found = view.agent_machine(&key);
    let paused = found.is_some_and(|am| record.is_object(&am.metadata) && am.is_paused());
    add_capi(holds, paused, &format!("AgentMachine {key}"));
}

fn add_machine(holds: &mut Holds, view: &dyn View, home: &str, record: &Recorded) {
    let key = ObjectKey::new(home, &record.name);
    let found = view.machine(&key);
    let paused = found.is_some_and(|m| record.is(&m.key.name, &m.uid) && m.paused);
    add_capi(holds, paused, &format!("Machine {key}"));
}

/// The Cluster of a control plane namespace. There is one.
fn add_cluster(holds: &mut Holds, view: &dyn View, namespace: &str) {
    for cluster in view.pausables(PausableKind::Cluster, namespace) {
        let object = format!("Cluster {}", cluster.key);
        if cluster.paused {
            holds
                .pauses
                .push(Pause::by(format!("spec.paused of {object}")));
        }
        add_capi(holds, cluster.annotated, &object);
    }
}

/// The namespace of the pool's NodePool admits the pool: only then does the pool show whether it is paused there. A pool that is
/// refused makes nothing, so nothing of it has to be held.
fn is_admitted(view: &dyn View, pool: &VsphereAgentPool) -> bool {
    let own = pool.metadata.namespace.as_deref().unwrap_or_default();
    let home = home_of_hosted_cluster(pool);
    let home = home.as_deref().unwrap_or(pool.control_plane());
    home == own || grants::allows(view.namespace_grant(home).as_deref(), own)
}

/// The annotations of the pool and its dry run; with `above` also its Cluster, its NodePool and its HostedCluster.
fn add_pool(holds: &mut Holds, view: &dyn View, pool: &VsphereAgentPool, above: bool) {
    let object = format!("VsphereAgentPool {}", ObjectKey::of(pool));
    if pool.spec.dry_run() {
        holds.dry_run.get_or_insert_with(|| DryRun {
            source: format!("spec.dryRun of {object}"),
            silent: false,
        });
    }
    add_own(holds, pool.annotations(), &object);
    if !above || !pool.has_node_pool() {
        return;
    }
    add_cluster(holds, view, pool.control_plane());
    let Some(home) = home_of_hosted_cluster(pool) else {
        return;
    };
    for kind in [PausableKind::NodePool, PausableKind::HostedCluster] {
        let found = view.pausables(kind, &home);
        let of_pool = found.iter().filter(|found| {
            let other = kind == PausableKind::NodePool
                && found.cluster.as_ref() != Some(&pool.spec.hosted_cluster_ref.name);
            covers(kind, &found.key, pool) && !other
        });
        for found in of_pool {
            let object = format!("{} {}", kind.as_str(), found.key);
            if let Some(text) = &found.paused_until {
                holds.add_paused_until(text, &object);
            }
        }
    }
}

/// Whether a pause of the object with that key concerns the pool.
#[must_use]
pub fn covers(kind: PausableKind, key: &ObjectKey, pool: &VsphereAgentPool) -> bool {
    if !pool.has_node_pool() {
        return false;
    }
    let spec = &pool.spec;
    let name = match kind {
        PausableKind::Cluster => return key.namespace == pool.control_plane(),
        PausableKind::NodePool => &spec.node_pool_ref.name,
        PausableKind::HostedCluster => &spec.hosted_cluster_ref.name,
    };
    key.name == *name && home_of_hosted_cluster(pool).as_ref() == Some(&key.namespace)
}

/// The namespace of the HostedCluster and its NodePools. HyperShift names the control plane's namespace after it and the
/// HostedCluster: `<namespace>-<name>`, with `-` for each dot of the name. A pool without a NodePool has none.
#[must_use]
pub fn home_of_hosted_cluster(pool: &VsphereAgentPool) -> Option<String> {
    if !pool.has_node_pool() {
        return None;
    }
    let name = pool.spec.hosted_cluster_ref.name.replace('.', "-");
    let home = pool
        .control_plane()
        .strip_suffix(&name)?
        .strip_suffix('-')?;
    (!home.is_empty()).then(|| home.to_owned())
}
