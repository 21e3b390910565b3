//! The objects of one kind, as the watch last showed them.
//!
//! This is not kube's reflector store for two reasons. That store reports nothing about objects that vanished before a
//! relist. And the lookups of the actors (by key, by namespace, by [index_key](agent_forge_actors::domain::index_keys)) are range
//! reads here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use agent_forge_actors::domain::{
    index_keys::{IndexKey, IndexKeys},
    names::ObjectKey,
    selector::Labels,
    tally::Tally,
};
use kube::runtime::watcher::Event;
use tokio::time::Instant;

use super::{
    bound::Meter,
    doubt::Doubt,
    index::{Index, Reads},
    scope::Part,
};

/// How long a watch goes on at least before its kind is listed again because left out objects may fit. Somebody may make and
/// remove objects all the time.
const BETWEEN_LISTS: Duration = Duration::from_secs(30);

/// A cache of objects of kind `K`.
#[derive(Debug)]
pub struct Cache<K> {
    objects: RwLock<Objects<K>>,
    metered: Metered<K>,
    /// The parts that are not listed yet.
    unlisted: RwLock<BTreeSet<Part>>,
    /// The parts that are to be listed again, because what was seen may be of another history of the API server.
    doubted: RwLock<BTreeSet<Part>>,
    /// The parts that are to be listed again, because what was left out may fit.
    refilled: RwLock<BTreeSet<Part>>,
    /// Is told of a list that nobody asked for.
    doubt: Arc<Doubt>,
    /// Rises with each change.
    version: AtomicU64,
}

/// What bounds a cache.
#[derive(Debug)]
struct Metered<K> {
    kind: &'static str,
    meter: Arc<Meter>,
    /// Bytes of an object.
    weigh: fn(&K) -> u64,
}

#[derive(Debug)]
struct Objects<K> {
    all: BTreeMap<ObjectKey, Arc<K>>,
    index: Index<K>,
}

impl<K> Objects<K> {
    fn of_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<K>> {
        let from = ObjectKey::new(namespace, "");
        let all = self.all.range(from..);
        all.take_while(move |(k, _)| k.namespace == namespace)
            .map(|(_, v)| v)
    }
}

/// One object's change: its key, the object before, the object now.
pub type Difference<K> = (ObjectKey, Option<Arc<K>>, Option<Arc<K>>);

impl<K> Cache<K> {
    /// A cache that watches of these parts fill.
    #[must_use]
    pub fn of(parts: &[Part]) -> Self {
        Self::indexed(parts, Reads::default())
    }

    /// A cache with an index.
    #[must_use]
    pub fn indexed(parts: &[Part], reads: Reads<K>) -> Self {
        let index = Index::new(reads);
        Self {
            objects: RwLock::new(Objects {
                all: BTreeMap::new(),
                index,
            }),
            unlisted: RwLock::new(parts.iter().cloned().collect()),
            doubted: RwLock::default(),
            refilled: RwLock::default(),
            metered: Metered {
                kind: "",
                meter: Arc::default(),
                weigh: |_| 0,
            },
            doubt: Arc::default(),
            version: AtomicU64::new(0),
        }
    }

    /// The same cache, which tells `doubt` of each list that nobody asked for.
    #[must_use]
    pub fn telling(mut self, doubt: &Arc<Doubt>) -> Self {
        self.doubt = doubt.clone();
        self
    }

    /// The same cache, whose objects count in `meter`, as that kind and as many bytes as `weigh` says.
    #[must_use]
    pub fn metered(mut self, meter: &Arc<Meter>, kind: &'static str, weigh: fn(&K) -> u64) -> Self {
        self.metered = Metered {
            kind,
            meter: meter.clone(),
            weigh,
        };
        self
    }

    /// A number that rises with each change of an object. It starts again with the process.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether the first list of each part is complete.
    pub fn ready(&self) -> bool {
        let unlisted = self.unlisted.read();
        unlisted.unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Marks these parts as not listed. Their objects stay visible until the new list is complete.
    pub fn list_again(&self, parts: &[Part]) {
        let unlisted = self.unlisted.write();
        unlisted
            .unwrap_or_else(PoisonError::into_inner)
            .extend(parts.iter().cloned());
    }

    /// Marks these parts as to be listed again, while everything goes on.
    pub fn mistrust(&self, parts: &[Part]) {
        let doubted = self.doubted.write();
        doubted
            .unwrap_or_else(PoisonError::into_inner)
            .extend(parts.iter().cloned());
    }

    /// Whether a part is still to be listed again.
    pub fn is_in_doubt(&self) -> bool {
        let doubted = self.doubted.read();
        !doubted.unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The API server knows only earlier versions than this cache has.
    pub fn is_ahead(&self) {
        self.doubt.begin();
    }

    /// A list of that part begins. If nobody asked for it, its watch has lost its place: the API server may have another
    /// history by now.
    fn lists(&self, part: &Part) {
        let awaits = |parts: &RwLock<BTreeSet<Part>>| {
            let parts = parts.read().unwrap_or_else(PoisonError::into_inner);
            parts.contains(part)
        };
        if !awaits(&self.unlisted) && !awaits(&self.doubted) && !awaits(&self.refilled) {
            self.doubt.begin();
        }
    }

    /// Ends when a new list of that part would bring an object that is left out, and marks the part as to be listed again.
    pub async fn is_to_be_refilled(&self, part: &Part) {
        let from = Instant::now();
        let Metered { kind, meter, .. } = &self.metered;
        meter.fits_again(kind, part).await;
        tokio::time::sleep_until(from + BETWEEN_LISTS).await;
        // There may be less space by now. Then the list brings less.
        let refilled = self.refilled.write();
        refilled
            .unwrap_or_else(PoisonError::into_inner)
            .insert(part.clone());
    }

    /// One object.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.read(|o| o.all.get(key).cloned())
    }

    /// All objects, in key order.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.read(|o| o.all.values().cloned().collect())
    }

    /// The objects of a namespace, in name order.
    pub fn of_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        self.read(|o| o.of_namespace(namespace).cloned().collect())
    }

    /// The objects that have one of the index keys, in key order. With a namespace, only the objects in it.
    pub fn with_keys(&self, namespace: Option<&str>, wanted: &IndexKeys) -> Vec<Arc<K>> {
        self.read(|o| {
            let wanted = wanted.iter();
            let keys: BTreeSet<&ObjectKey> = wanted
                .flat_map(|index_key| o.index.with_key(namespace, *index_key))
                .collect();
            let found = keys.into_iter().filter_map(|key| o.all.get(key));
            found.cloned().collect()
        })
    }

    /// The first object of a namespace, in name order, that has the index key and that `wanted` accepts.
    pub fn first(
        &self,
        namespace: &str,
        index_key: IndexKey,
        wanted: &dyn Fn(&K) -> bool,
    ) -> Option<Arc<K>> {
        self.read(|o| {
            let keys = o.index.with_key(Some(namespace), index_key);
            let mut all = keys.filter_map(|key| o.all.get(key));
            all.find(|object| wanted(object)).cloned()
        })
    }

    /// How many objects of a namespace carry the labels.
    pub fn count(&self, namespace: &str, labels: &Labels) -> Tally {
        self.read(|o| {
            let all = o.of_namespace(namespace).map(AsRef::as_ref);
            o.index.count(namespace, labels, all)
        })
    }

    fn read<T>(&self, f: impl FnOnce(&Objects<K>) -> T) -> T {
        f(&self.objects.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, f: impl FnOnce(&mut Objects<K>) -> T) -> T {
        let written = f(&mut self.objects.write().unwrap_or_else(PoisonError::into_inner));
        self.version.fetch_add(1, Ordering::Release);
        written
    }

    /// Bytes of the object that is shown for the key.
    fn weight(&self, o: &Objects<K>, key: &ObjectKey) -> Option<u64> {
        o.all.get(key).map(|shown| (self.metered.weigh)(shown))
    }

    /// An object that does not fit is left out. What was shown of it before is outdated and goes.
    fn put(&self, key: ObjectKey, object: K) -> Difference<K> {
        let Metered { kind, meter, weigh } = &self.metered;
        let object = Arc::new(object);
        self.write(|o| {
            let before = self.weight(o, &key);
            let fits = meter.put(kind, &key, before, weigh(&object));
            let new = fits.then_some(object);
            let old = match &new {
                Some(new) => o.all.insert(key.clone(), new.clone()),
                None => o.all.remove(&key),
            };
            o.index.changed(&key, old.as_deref(), new.as_deref());
            (key, old, new)
        })
    }

    fn remove(&self, key: ObjectKey) -> Difference<K> {
        self.write(|o| {
            let before = self.weight(o, &key);
            self.metered.meter.remove(self.metered.kind, &key, before);
            let old = o.all.remove(&key);
            o.index.changed(&key, old.as_deref(), None);
            (key, old, None)
        })
    }

    fn replace(&self, part: &Part, listed: BTreeMap<ObjectKey, Arc<K>>) -> Vec<Difference<K>> {
        let differences = self.write(|o| {
            let mut old = take(&mut o.all, part);
            let mut differences: Vec<_> = listed
                .iter()
                .map(|(k, new)| (k.clone(), old.remove(k), Some(new.clone())))
                .collect();
            o.all.extend(listed);
            differences.extend(old.into_iter().map(|(k, gone)| (k, Some(gone), None)));
            for (key, old, new) in &differences {
                o.index.changed(key, old.as_deref(), new.as_deref());
            }
            // Only now: nobody may take for absent what was left out before.
            self.metered.meter.listed(self.metered.kind, part);
            differences
        });
        let mut unlisted = self
            .unlisted
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        unlisted.remove(part);
        let mut doubted = self.doubted.write().unwrap_or_else(PoisonError::into_inner);
        doubted.remove(part);
        let mut refilled = self
            .refilled
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        refilled.remove(part);
        differences
    }
}

/// Removes and returns the objects of that part.
fn take<K>(all: &mut BTreeMap<ObjectKey, Arc<K>>, part: &Part) -> BTreeMap<ObjectKey, Arc<K>> {
    let Some(namespace) = part else {
        return std::mem::take(all);
    };
    let mut old = all.split_off(&ObjectKey::new(namespace.clone(), ""));
    let after = old.keys().find(|k| k.namespace != *namespace).cloned();
    if let Some(after) = after {
        all.append(&mut old.split_off(&after));
    }
    old
}

/// Feeds watch events into a cache. It collects a relist and swaps it in at its end, so that a reader never sees half a
/// list.
#[derive(Debug)]
pub struct Feed<K> {
    cache: Arc<Cache<K>>,
    part: Part,
    listing: BTreeMap<ObjectKey, Arc<K>>,
    /// It is fed by a watch, which lists again only if it has lost its place.
    watches: bool,
}

impl<K> Feed<K> {
    /// A feed for that part of `cache`.
    #[must_use]
    pub fn new(cache: Arc<Cache<K>>, part: Part) -> Self {
        Self {
            cache,
            part,
            listing: BTreeMap::new(),
            watches: true,
        }
    }

    /// A feed that is fed by lists alone.
    #[must_use]
    pub fn of_lists(cache: Arc<Cache<K>>, part: Part) -> Self {
        Self {
            watches: false,
            ..Self::new(cache, part)
        }
    }

    fn list(&mut self, key: ObjectKey, object: K) {
        let Metered { kind, meter, weigh } = &self.cache.metered;
        let before = self.listing.get(&key).map(|listed| weigh(listed));
        if meter.list(kind, &key, before, weigh(&object)) {
            self.listing.insert(key, Arc::new(object));
        } else {
            self.listing.remove(&key);
        }
    }

    /// Applies an event and returns what it changed.
    pub fn take(&mut self, event: Event<K>, key: impl Fn(&K) -> ObjectKey) -> Vec<Difference<K>> {
        match event {
            Event::Apply(object) => vec![self.cache.put(key(&object), object)],
            Event::Delete(object) => vec![self.cache.remove(key(&object))],
            Event::Init => {
                if self.watches {
                    self.cache.lists(&self.part);
                }
                self.listing.clear();
                let metered = &self.cache.metered;
                metered.meter.list_begins(metered.kind, &self.part);
                vec![]
            }
            Event::InitApply(object) => {
                self.list(key(&object), object);
                vec![]
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listing);
                self.cache.replace(&self.part, listed)
            }
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
        let cache = Arc::new(Cache::of(&[None]));
        let mut feed = Feed::new(cache.clone(), None);
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

    #[test]
    fn a_list_of_one_namespace_leaves_the_others_as_they_are() {
        let name = |(namespace, name): &(&str, &str)| ObjectKey::new(*namespace, *name);
        let parts = ["a", "b", "c"].map(|n| Some(n.to_owned()));
        let cache = Arc::new(Cache::of(&parts));
        let list = |part: &Part, listed: &[&'static str]| {
            let namespace = ["a", "b", "c"]
                .into_iter()
                .find(|n| part.as_deref() == Some(n));
            let mut feed = Feed::new(cache.clone(), part.clone());
            feed.take(Event::Init, name);
            for listed in listed {
                feed.take(
                    Event::InitApply((namespace.expect("one of them"), *listed)),
                    name,
                );
            }
            let gone = feed.take(Event::InitDone, name).into_iter();
            let gone = gone.filter(|d| d.2.is_none()).map(|d| d.0.name);
            gone.collect::<Vec<_>>()
        };
        list(&parts[0], &["1"]);
        list(&parts[0], &["1", "2"]);
        list(&parts[2], &["3"]);
        assert!(!cache.ready(), "one was never listed");
        list(&parts[1], &["4", "5"]);
        assert!(cache.ready());
        assert_eq!(list(&parts[1], &["5"]), ["4"]);
        let all = cache.all();
        let all: Vec<_> = all.iter().map(|o| o.1).collect();
        assert_eq!(all, ["1", "2", "5", "3"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_fit_is_left_out_until_a_new_list_can_bring_it() {
        /// An object: its name and its bytes.
        type Object = (&'static str, u64);
        let key = |(name, _): &Object| ObjectKey::new("a", *name);
        let bound = crate::cluster::bound::Bound {
            bytes: 100,
            objects: 10,
        };
        let meter = Arc::new(Meter::of(bound));
        let doubt = Arc::new(Doubt::default());
        let cache = Cache::<Object>::of(&[None]).telling(&doubt);
        let cache = Arc::new(cache.metered(&meter, "Object", |o| o.1));
        let mut feed = Feed::new(cache.clone(), None);
        let names = || cache.all().iter().map(|o| o.0).collect::<Vec<_>>();
        feed.take(Event::Init, key);
        for object in [("1", 60), ("2", 50), ("3", 40)] {
            feed.take(Event::InitApply(object), key);
        }
        feed.take(Event::InitDone, key);
        assert_eq!(names(), ["1", "3"]);
        assert!(meter.over("a").is_some());
        // It grows beyond the bound: what was shown of it is outdated.
        let changed = feed.take(Event::Apply(("3", 41)), key);
        assert!(changed[0].1.is_some() && changed[0].2.is_none());
        assert_eq!(names(), ["1"]);
        // Another one takes its space.
        feed.take(Event::Apply(("4", 40)), key);
        assert_eq!(names(), ["1", "4"]);
        {
            let refilled = cache.is_to_be_refilled(&None);
            tokio::pin!(refilled);
            let early = tokio::time::timeout(BETWEEN_LISTS * 2, &mut refilled).await;
            assert!(early.is_err(), "there is no space");
            feed.take(Event::Delete(("1", 60)), key);
            refilled.await;
        }
        feed.take(Event::Init, key);
        assert!(!doubt.has_begun(), "that list was asked for");
        for object in [("2", 50), ("3", 10), ("4", 40)] {
            feed.take(Event::InitApply(object), key);
        }
        assert!(meter.over("a").is_some());
        feed.take(Event::InitDone, key);
        assert_eq!(names(), ["2", "3", "4"]);
        meter.turned().await;
        meter.turned().await;
        assert_eq!(meter.over("a"), None);
        feed.take(Event::Init, key);
        assert!(doubt.has_begun(), "nobody asked for this one");
    }
}
