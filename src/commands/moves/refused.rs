//! Why a host cannot go to another pool. Pure but for the cache.

use std::sync::Arc;

use agent_forge_actors::{
    demand::{buffer::Size, lending},
    domain::{goal, moving, names::ObjectKey, recycle, sizes::Sizes},
    ports::cluster::View as _,
    runtime::holds,
};
use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool,
    pool::{CleanupPolicy, ReleaseSpec, ReleasedDisk},
};
use jiff::Timestamp;

use super::Case;
use crate::cluster::view::Caches;

/// Why the host cannot go there, by what the cluster shows.
pub(super) fn refusals(
    caches: &Caches,
    case: &Case,
    now: Timestamp,
    secret_namespaces: &[String],
) -> Vec<String> {
    let Case { child, from, to } = case;
    let Some(to) = to else {
        return Vec::new();
    };
    let (there, here) = (ObjectKey::of(to.as_ref()), &child.pool);
    if there == *here {
        return vec![format!("pool {here} has the host")];
    }
    let mut found = Vec::new();
    let still = lending::still(
        caches,
        (to.as_ref(), from.as_ref()),
        child,
        secret_namespaces,
    );
    found.extend(still.map(|why| format!("pool {here} gives pool {there} nothing: {why}")));
    for (pool, key) in [(from, here), (to, &there)] {
        let stop = holds::stop(&holds::of_pool(caches, key), now);
        found.extend(stop.map(|hold| format!("pool {key} does nothing now: {}", hold.why)));
        if pool.metadata.deletion_timestamp.is_some() {
            found.push(format!("pool {key} is being deleted"));
        }
    }
    if child.deleting || child.given_up {
        found.push("the host is being removed".to_owned());
    }
    if child.adopted {
        found.push("the operator did not make this VM, and does not recycle it".to_owned());
    }
    if !child.in_buffer {
        found.extend(not_recycled(case, to));
    }
    found.extend(no_place(caches, case, to, now));
    if let Ok(Some(wish)) = moving::read(&child.object)
        && wish.to != there
        && now < wish.until
    {
        found.push(format!(
            "somebody gives the host to pool {} until {:.0}; take that back first, with --cancel",
            wish.to, wish.until
        ));
    }
    found
}

/// Why a host that serves would not come back from its Machine.
fn not_recycled(case: &Case, to: &VsphereAgentPool) -> Option<String> {
    let Case { child, from, .. } = case;
    let here = &child.pool;
    let release = from.spec.release.clone().unwrap_or_default();
    if !release.recycles() || from.spec.cleanup_policy() == CleanupPolicy::Retain {
        return Some(format!(
            "pool {here} does not recycle: the host would not come back from its Machine. Set spec.release.policy to Recycle, and \
             spec.cleanupPolicy to Delete"
        ));
    }
    let uses = child
        .vm()
        .map(recycle::generation)
        .and_then(|n| i32::try_from(n).ok());
    if uses >= release.max_uses && release.max_uses.is_some() {
        return Some(format!(
            "the VM has served as often as spec.release.maxUses of pool {here} admits: it is removed when its Machine goes"
        ));
    }
    let keeps = release.disk == Some(ReleasedDisk::Keep);
    (keeps && child.home(from) != to.control_plane()).then(|| {
        format!("pool {here} keeps the disk (spec.release.disk), and data does not go to another hosted cluster")
    })
}

/// Why the other pool could not keep the host.
fn no_place(
    caches: &Caches,
    case: &Case,
    to: &Arc<VsphereAgentPool>,
    now: Timestamp,
) -> Vec<String> {
    let (child, there) = (&case.child, ObjectKey::of(to.as_ref()));
    let mut found = Vec::new();
    let sizes = Sizes::of(to);
    match lending::class_for(&sizes, child) {
        Err(why) => found.push(format!("pool {there} cannot keep the host: {why}")),
        Ok(class) => {
            let scaling = sizes.pool(class).spec.scaling.clone().unwrap_or_default();
            let recycles = to.spec.release.as_ref().is_some_and(ReleaseSpec::recycles);
            if Size::read(&scaling, recycles, now).0.most == 0 {
                found.push(format!(
                    "the buffer of pool {there} has no place for such a host: set spec.release.policy to Recycle, or bufferAgents"
                ));
            }
        }
    }
    let most = to.spec.scaling.as_ref().and_then(|scaling| scaling.max_vms);
    let own = |c: &Arc<VsphereAgent>| goal::user(c) == there || goal::maker(c) == there;
    let counted = caches.all_children().into_iter().filter(own).count();
    // One that it made and lends counts already.
    let more = usize::from(!own(&child.object));
    if most.is_some_and(|most| counted + more > usize::try_from(most).unwrap_or_default()) {
        found.push(format!(
            "pool {there} has as many VMs as spec.scaling.maxVMs admits"
        ));
    }
    found
}
