//! The index of a cache, so that lookups do not go through all objects. It knows which objects have which wanted, and how
//! many objects carry which labels.
//!
//! Guarantee: the index is updated with each object, under the lock of the objects. No question rebuilds it, except for
//! the first count of a set of labels.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use agent_forge_actors::domain::{
    index_keys::{IndexKey, IndexKeys},
    names::ObjectKey,
    selector::Labels,
    tally::Tally,
};

/// How many sets of labels per namespace have a running count. Beyond that, the set that was asked for longest ago is
/// dropped, and counted again at the next question.
const MOST_COUNTS: usize = 1000;

/// What the index reads of each object.
#[derive(Debug)]
pub struct Reads<K> {
    /// The keys by which the object is found.
    pub keys: fn(&K) -> IndexKeys,
    /// What the object adds to the count of objects with the labels.
    pub tally: fn(&K, &Labels) -> Tally,
}

impl<K> Default for Reads<K> {
    fn default() -> Self {
        Self {
            keys: |_| IndexKeys::new(),
            tally: |_, _| Tally::default(),
        }
    }
}

/// The count of one set of labels.
#[derive(Debug)]
struct Count {
    now: Tally,
    /// Number of the last question for it.
    asked: u64,
}

#[derive(Debug, Default)]
struct Counts {
    of: BTreeMap<String, BTreeMap<Labels, Count>>,
    turn: u64,
}

/// See the module's contract.
#[derive(Debug)]
pub struct Index<K> {
    reads: Reads<K>,
    keys: BTreeSet<(IndexKey, Arc<ObjectKey>)>,
    counts: Mutex<Counts>,
}

impl<K> Index<K> {
    /// An index of no objects.
    #[must_use]
    pub fn new(reads: Reads<K>) -> Self {
        Self {
            reads,
            keys: BTreeSet::new(),
            counts: Mutex::default(),
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the index for an object that changed from `old` to `new`.
    pub fn changed(&mut self, key: &ObjectKey, old: Option<&K>, new: Option<&K>) {
        let keys = |k: Option<&K>| k.map(self.reads.keys).unwrap_or_default();
        let (was, is) = (keys(old), keys(new));
        if was != is {
            let key = Arc::new(key.clone());
            for wanted in was.difference(&is) {
                self.keys.remove(&(*wanted, key.clone()));
            }
            let new = is.difference(&was).map(|wanted| (*wanted, key.clone()));
            self.keys.extend(new);
        }
        let tally = self.reads.tally;
        let adds = |k: Option<&K>, labels| k.map(|k| tally(k, labels)).unwrap_or_default();
        let mut counts = self.counts();
        for (labels, count) in counts.of.get_mut(&key.namespace).into_iter().flatten() {
            count.now += adds(new, labels);
            count.now -= adds(old, labels);
        }
    }

    /// The keys of the objects that have the index key, in key order. With a namespace, only the objects in it.
    pub fn with_key<'a>(
        &'a self,
        namespace: Option<&'a str>,
        wanted: IndexKey,
    ) -> impl Iterator<Item = &'a ObjectKey> {
        let from = ObjectKey::new(namespace.unwrap_or_default(), "");
        let all = self.keys.range((wanted, Arc::new(from))..);
        all.take_while(move |(w, key)| *w == wanted && namespace.is_none_or(|n| n == key.namespace))
            .map(|(_, key)| key.as_ref())
    }

    /// How many objects of that namespace carry the labels. The first question counts `all`, the objects of the
    /// namespace.
    pub fn count<'a>(
        &self,
        namespace: &str,
        labels: &Labels,
        all: impl Iterator<Item = &'a K>,
    ) -> Tally
    where
        K: 'a,
    {
        let mut counts = self.counts();
        counts.turn += 1;
        let asked = counts.turn;
        let there = counts.of.entry(namespace.to_owned()).or_default();
        if let Some(known) = there.get_mut(labels) {
            known.asked = asked;
            return known.now;
        }
        if there.len() >= MOST_COUNTS {
            let oldest = there.iter().min_by_key(|(_, count)| count.asked);
            if let Some(oldest) = oldest.map(|(labels, _)| labels.clone()) {
                there.remove(&oldest);
            }
        }
        let now = all.map(|k| (self.reads.tally)(k, labels)).sum();
        there.insert(labels.clone(), Count { now, asked });
        now
    }
}

#[cfg(test)]
mod tests;
