//! One kind's objects as the watch last showed them.
//!
//! Our own instead of kube's reflector store: a relist there emits nothing for objects that vanished meanwhile, and
//! both lookups that decisions make (by key, by namespace) are range reads here.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use agent_forge_actors::model::names::ObjectKey;
use kube::runtime::watcher::Event;

/// A cache of objects of kind `K`.
#[derive(Debug)]
pub struct Cache<K> {
    objects: RwLock<BTreeMap<ObjectKey, Arc<K>>>,
    listed: AtomicBool,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self {
            objects: RwLock::default(),
            listed: AtomicBool::new(false),
        }
    }
}

/// One object's change: what it was, what it is.
pub type Difference<K> = (ObjectKey, Option<Arc<K>>, Option<Arc<K>>);

impl<K> Cache<K> {
    /// The first list is complete.
    pub fn ready(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }

    /// One object.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.read(|all| all.get(key).cloned())
    }

    /// All objects, in key order.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read(|all| all.values().cloned().collect())
    }

    /// The objects of a namespace, in name order.
    pub fn of_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let from = ObjectKey::new(namespace, "");
        self.read(|all| {
            all.range(from..)
                .take_while(|(k, _)| k.namespace == namespace)
                .map(|(_, v)| v.clone())
                .collect()
        })
    }

    fn read<T>(&self, f: impl FnOnce(&BTreeMap<ObjectKey, Arc<K>>) -> T) -> T {
        f(&self.objects.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, key: ObjectKey, object: K) -> Difference<K> {
        let object = Arc::new(object);
        let mut all = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let old = all.insert(key.clone(), object.clone());
        (key, old, Some(object))
    }

    fn remove(&self, key: ObjectKey) -> Difference<K> {
        let mut all = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let old = all.remove(&key);
        (key, old, None)
    }

    fn replace(&self, listed: BTreeMap<ObjectKey, Arc<K>>) -> Vec<Difference<K>> {
        let mut all = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let mut old = std::mem::replace(&mut *all, listed);
        let mut differences: Vec<_> = all
            .iter()
            .map(|(k, new)| (k.clone(), old.remove(k), Some(new.clone())))
            .collect();
        differences.extend(old.into_iter().map(|(k, gone)| (k, Some(gone), None)));
        self.listed.store(true, Ordering::Release);
        differences
    }
}

/// Feeds watch events into a cache; a relist is collected and swapped in at its end, so that a reader never sees half
/// a list.
#[derive(Debug)]
pub struct Feed<K> {
    cache: Arc<Cache<K>>,
    listing: BTreeMap<ObjectKey, Arc<K>>,
}

impl<K> Feed<K> {
    /// A feed for `cache`.
    #[must_use]
    pub fn new(cache: Arc<Cache<K>>) -> Self {
        Self {
            cache,
            listing: BTreeMap::new(),
        }
    }

    /// Takes an event in; returns what changed by it.
    pub fn take(&mut self, event: Event<K>, key: impl Fn(&K) -> ObjectKey) -> Vec<Difference<K>> {
        match event {
            Event::Apply(object) => vec![self.cache.put(key(&object), object)],
            Event::Delete(object) => vec![self.cache.remove(key(&object))],
            Event::Init => {
                self.listing.clear();
                vec![]
            }
            Event::InitApply(object) => {
                self.listing.insert(key(&object), Arc::new(object));
                vec![]
            }
            Event::InitDone => self.cache.replace(std::mem::take(&mut self.listing)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: &u32) -> ObjectKey {
        ObjectKey::new(if *n < 10 { "a" } else { "b" }, n.to_string())
    }

    #[test]
    fn a_relist_reports_what_vanished_meanwhile() {
        let cache = Arc::new(Cache::default());
        let mut feed = Feed::new(cache.clone());
        feed.take(Event::Init, key);
        feed.take(Event::InitApply(1), key);
        assert!(
            !cache.ready() && cache.all().is_empty(),
            "half a list is not shown"
        );
        feed.take(Event::InitDone, key);
        feed.take(Event::Apply(2), key);
        feed.take(Event::Apply(11), key);
        assert_eq!(cache.of_namespace("a").len(), 2);
        feed.take(Event::Init, key);
        feed.take(Event::InitApply(2), key);
        assert_eq!(
            cache.all().len(),
            3,
            "the old list holds until the new one is complete"
        );
        let mut gone: Vec<_> = feed
            .take(Event::InitDone, key)
            .into_iter()
            .filter(|d| d.2.is_none())
            .map(|d| d.0.name)
            .collect();
        gone.sort();
        assert_eq!(gone, ["1", "11"]);
        assert_eq!(cache.all().len(), 1);
    }
}
