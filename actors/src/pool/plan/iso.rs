//! What the pool asks the ISO cache for. Pure.

use std::collections::BTreeMap;

use crate::{
    iso::{
        msg::{IsoKey, IsoWant},
        of_pool::{self, NoSource, held::HeldBack},
    },
    pool::{observed::Observed, vcenter::VcenterObserved},
};

/// The actions for the ISO.
#[derive(Clone, Debug, Default)]
pub struct IsoPlan {
    /// Provide the ISO on the datastore.
    pub ensure: Option<(IsoKey, IsoWant)>,
    /// Remove old versions from datastores that the pool has left, once the ISO is there.
    pub clear: BTreeMap<IsoKey, IsoWant>,
    /// Why no ISO is wanted.
    pub no_source: Option<NoSource>,
    /// Old versions that are kept while a VM is in the making. The outer `None`: no ISO is wanted.
    pub held_back: Option<Option<HeldBack>>,
}

/// Decides.
#[must_use]
pub fn plan_iso(s: &Observed, seen: &VcenterObserved) -> IsoPlan {
    let nothing = |no: Option<NoSource>| IsoPlan {
        no_source: s.refused_source().or(no),
        ..IsoPlan::default()
    };
    let Some(facts) = &seen.iso else {
        return nothing(of_pool::source(s.infra_env.as_deref()).err());
    };
    let mut want = match &facts.want {
        Ok(want) => want.clone(),
        Err(no) => return nothing(Some(no.clone())),
    };
    let by = facts.making.as_ref().filter(|_| !facts.old.is_empty());
    let held_back = by.map(|by| HeldBack {
        by: by.clone(),
        files: facts.old.len(),
    });
    let stopped = s.stop().is_some();
    if held_back.is_none() && !stopped {
        want.prunable.clone_from(&facts.old);
    }
    if !want.prunable.is_empty() {
        want.users.clone_from(&facts.users);
    }
    let mut plan = IsoPlan {
        held_back: Some(held_back),
        ..IsoPlan::default()
    };
    let deleting = s.pool.metadata.deletion_timestamp.is_some();
    // Nothing is fetched for a pool that is paused, or in a dry run. The ISO on record is only looked at.
    let asks = !deleting && (!stopped || want.known.is_some());
    if let Some(server) = seen.server.as_ref().filter(|_| asks) {
        let key = of_pool::cache_key(&s.pool, server);
        plan.clear = of_pool::left_behind(&key, &mut want);
        if stopped {
            plan.clear.clear();
        }
        plan.ensure = Some((key, want));
    }
    plan
}
