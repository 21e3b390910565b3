//! What a pool sees of hosts that change their pool: its own that others take over, and reservations that mean nothing any
//! more.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    memory::keep_clocks,
    observed::{Lent, Observed, RESERVED},
};
use crate::{
    demand::lending,
    domain::{managed_vm::ManagedVm, names::ObjectKey},
    ports::cluster::View,
    runtime::holds,
};

/// Reads which of the pool's own hosts change their pool. `clocks`: since when (monotonic) each reservation without a VsphereAgent is seen, by uid of the host's own
/// VsphereAgent.
pub fn lent(view: &dyn View, s: &Observed, clocks: &mut BTreeMap<String, Duration>) -> Lent {
    let mut lent = Lent::default();
    let (mut waits, mut reserved) = (BTreeSet::new(), BTreeMap::new());
    for child in &s.children {
        if let Some(taker) = lending::taker(view, child) {
            lent.to.insert(child.uid.clone(), taker.key);
            continue;
        }
        let agent = s
            .host(child)
            .own
            .as_ref()
            .filter(|a| !a.is_claimed_or_bound());
        let Some(agent) = agent.filter(|a| lending::reservation(a).is_some()) else {
            continue;
        };
        match lending::reserved_for(view, child, agent) {
            Some((pool, key)) if is_asked(view, &key, child) || is_stopped(view, &pool, s) => {
                lent.to.insert(child.uid.clone(), key);
            }
            Some((_, key)) if view.child(&key).is_none() => {
                waits.insert(child.uid.clone());
                reserved.insert(child.uid.clone(), key);
            }
            None if is_under_way(view, child) => {}
            // The other pool is gone, or its VsphereAgent has another VM by now.
            _ => {
                lent.stale.insert(child.uid.clone());
            }
        }
    }
    keep_clocks(clocks, &waits, s.now);
    for (uid, key) in reserved {
        let since = clocks.get(&uid).copied().unwrap_or(s.now);
        if s.now.saturating_sub(since) < RESERVED {
            lent.to.insert(uid, key);
        } else {
            lent.stale.insert(uid);
        }
    }
    lent
}

/// The VsphereAgent at `key` is there to take over that host.
fn is_asked(view: &dyn View, key: &ObjectKey, child: &ManagedVm) -> bool {
    let there = view.child(key).map(ManagedVm::read);
    // One that let go of the host keeps the annotation.
    let there = there.filter(ManagedVm::is_taking);
    let source = there.and_then(|there| there.taken_from);
    source.is_some_and(|source| source.uid == child.uid)
}

/// People hold back the pool of the VsphereAgent that is to come, so that it does not come now.
fn is_stopped(view: &dyn View, pool: &ObjectKey, s: &Observed) -> bool {
    holds::stop(&holds::of_pool(view, pool), s.wall).is_some()
}

/// The reservation is the pool's own, and still needed.
fn is_under_way(view: &dyn View, child: &ManagedVm) -> bool {
    child.is_taking() || !is_over(view, child)
}

/// No VsphereAgent of another pool has the VM of `child` on record any more.
#[must_use]
pub fn is_over(view: &dyn View, child: &ManagedVm) -> bool {
    child.taken_from.as_ref().is_none_or(|source| {
        let there = view.child(&source.key);
        // What is unknown may have it.
        let is_known = view.over_bound(&source.key.namespace).is_none();
        (is_known || there.is_some())
            && there.is_none_or(|there| there.metadata.uid.as_ref() != Some(&source.uid))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{domain::reassign::Source, testing::child_with_vm, vm::testing::hub::Hub};

    #[test]
    fn a_lender_that_may_be_left_out_may_still_have_the_vm() {
        let hub = Hub::default();
        let mut child = ManagedVm::read(Arc::new(child_with_vm("a")));
        child.taken_from = Some(Source {
            key: ObjectKey::new("elsewhere", "b"),
            uid: "uid-b".to_owned(),
            attempt: 1,
        });
        for (over, is_known_to_be_over) in [("others", true), ("elsewhere", false)] {
            hub.with(|o| o.over_bound = vec![over.to_owned()]);
            assert_eq!(is_over(&hub, &child), is_known_to_be_over, "{over}");
        }
    }
}
