//! Which vCenters and ISO caches the pools use. When no pool uses one any more, its series disappear and do not come
//! back.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use agent_forge_actors::domain::names::ObjectKey;
use prometheus::core::{Collector, MetricVec, MetricVecBuilder};

/// What pools use.
#[derive(Debug, Default)]
pub struct Uses(Mutex<UseTable>);

#[derive(Debug, Default)]
struct UseTable {
    /// The vCenter and the ISO cache of each pool.
    by_pool: BTreeMap<ObjectKey, [String; 2]>,
    /// Those that no pool uses any more. A session for one may live on for a while; its metrics are not counted.
    retired: BTreeSet<String>,
}

impl Uses {
    fn known(&self) -> MutexGuard<'_, UseTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what the pool uses from now on; `None` means nothing. Returns the label values that no pool uses any more.
    pub fn change(&self, pool: &ObjectKey, uses: Option<[&str; 2]>) -> Vec<String> {
        let mut known = self.known();
        let uses = uses.map(|both| both.map(str::to_owned));
        if known.by_pool.get(pool) == uses.as_ref() {
            return Vec::new();
        }
        let before = match uses {
            Some(uses) => {
                known.retired.retain(|r| !uses.contains(r));
                known.by_pool.insert(pool.clone(), uses)
            }
            None => known.by_pool.remove(pool),
        };
        let let_go = before.into_iter().flatten();
        let unused = let_go.filter(|u| !known.by_pool.values().any(|used| used.contains(u)));
        let unused: Vec<String> = unused.collect();
        known.retired.extend(unused.iter().cloned());
        unused
    }

    /// Whether the last pool has stopped to use it, and none uses it again.
    pub fn is_retired(&self, value: &str) -> bool {
        self.known().retired.contains(value)
    }
}

/// Removes the series whose `label` has that value.
pub fn drop_series<T: MetricVecBuilder>(family: &MetricVec<T>, label: &str, value: &str)
where
    MetricVec<T>: Collector,
{
    for shown in family.collect() {
        for series in shown.get_metric() {
            let labels = series.get_label().iter().map(|l| (l.name(), l.value()));
            let labels: HashMap<&str, &str> = labels.collect();
            if labels.get(label) == Some(&value) {
                // Another thread may have removed it.
                let _ = family.remove(&labels);
            }
        }
    }
}
