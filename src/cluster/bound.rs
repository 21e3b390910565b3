//! How much of each namespace the caches keep, in bytes and in objects, over all kinds together. Whoever may write objects in a
//! namespace must not fill the memory with them.
//!
//! An object that does not fit is left out: it is unknown, not absent. Its namespace is over its bound until nothing is left out
//! any more, and then for [`CALM`]. So a decision that has read a cache before ends before it counts.
//!
//! While a kind is listed again, what was listed before stays visible until the end. For that time the kind takes its space
//! twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agent_forge_actors::domain::names::ObjectKey;
use serde::Serialize;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::scope::Part;

/// How long a namespace still counts as over its bound when all of it is known again.
pub const CALM: Duration = Duration::from_secs(10);

/// Objects of one kind and namespace that are remembered one by one when they are left out. Of the others only their existence
/// is, until the next list.
const MOST_REMEMBERED: usize = 1000;

/// Objects of one namespace that are named in the log when they are left out.
const MOST_TOLD: usize = 20;

/// The most that is kept of one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Bytes of the trimmed objects as JSON.
    pub bytes: u64,
    /// Number of objects.
    pub objects: u64,
}

impl Bound {
    /// The bound by default, in MiB.
    pub const MIB: u32 = 64;
    /// The bound by default, in objects.
    pub const OBJECTS: u32 = 20_000;

    /// A bound of that many MiB and objects.
    #[must_use]
    pub fn of(mib: u32, objects: u32) -> Self {
        Self {
            bytes: u64::from(mib) << 20,
            objects: objects.into(),
        }
    }

    fn admits(&self, size: Size) -> bool {
        size.bytes <= self.bytes && size.objects <= self.objects
    }
}

impl Default for Bound {
    fn default() -> Self {
        Self::of(Self::MIB, Self::OBJECTS)
    }
}

/// Bytes of the object as JSON.
pub fn json<K: Serialize>(object: &K) -> u64 {
    struct Counter(u64);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    match serde_json::to_writer(&mut counter, object) {
        Ok(()) => counter.0,
        // What cannot be measured does not fit.
        Err(_) => u64::MAX,
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    bytes: u64,
    objects: u64,
}

impl Size {
    const fn one(bytes: u64) -> Self {
        Self { bytes, objects: 1 }
    }

    const fn and(self, more: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(more.bytes),
            objects: self.objects.saturating_add(more.objects),
        }
    }

    const fn without(self, less: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(less.bytes),
            objects: self.objects.saturating_sub(less.objects),
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.max(other.bytes),
            objects: self.objects.max(other.objects),
        }
    }
}

/// The objects that are left out.
#[derive(Debug, Default)]
struct LeftOut {
    /// Their sizes, by name.
    named: BTreeMap<String, u64>,
    /// There are others.
    more: bool,
    /// The smallest one since the last list.
    smallest: Option<u64>,
}

impl LeftOut {
    /// Whether it is one that was not remembered before.
    fn add(&mut self, name: &str, bytes: u64) -> bool {
        self.smallest = Some(self.smallest.map_or(bytes, |least| least.min(bytes)));
        if let Some(known) = self.named.get_mut(name) {
            *known = bytes;
            return false;
        }
        if self.named.len() < MOST_REMEMBERED {
            self.named.insert(name.to_owned(), bytes);
        } else {
            self.more = true;
        }
        true
    }

    fn is_empty(&self) -> bool {
        self.named.is_empty() && !self.more
    }
}

/// What is kept of one kind in one namespace.
#[derive(Debug, Default)]
struct Kept {
    shown: Size,
    left_out: LeftOut,
    /// What a list has brought so far, if one is under way.
    listed: Size,
    left_out_of_list: LeftOut,
}

impl Kept {
    fn is_empty(&self) -> bool {
        self.shown.or(self.listed) == Size::default()
            && self.left_out.is_empty()
            && self.left_out_of_list.is_empty()
    }
}

#[derive(Debug, Default)]
struct Namespace {
    kinds: BTreeMap<&'static str, Kept>,
    /// Since when nothing of it is left out, if it still counts as over its bound.
    calm_since: Option<Instant>,
    /// Objects that the log has named since it is over its bound.
    told: usize,
}

impl Namespace {
    /// What all kinds but that one take.
    fn beside(&self, kind: &str) -> Size {
        let others = self.kinds.iter().filter(|(other, _)| **other != kind);
        others.fold(Size::default(), |sum, (_, kept)| {
            sum.and(kept.shown.or(kept.listed))
        })
    }

    /// Whether an object is left out, or is while a list is under way.
    fn lacks(&self) -> bool {
        let mut all = self.kinds.values();
        all.any(|kept| !kept.left_out.is_empty() || !kept.left_out_of_list.is_empty())
    }
}

#[derive(Debug, Default)]
struct Tally {
    namespaces: BTreeMap<String, Namespace>,
    /// Those over their bound.
    over: BTreeSet<String>,
    /// The lists under way.
    lists: BTreeSet<(&'static str, Part)>,
    /// Namespaces that have come over their bound, or below it, and nobody was told.
    turned: BTreeSet<String>,
}

/// Counts what the caches keep.
#[derive(Debug)]
pub struct Meter {
    bound: Bound,
    state: Mutex<Tally>,
    /// Told when a namespace has come over its bound, or when nothing of one is left out any more.
    turns: Notify,
    /// Told when something went from a namespace that is over its bound.
    freed: watch::Sender<()>,
}

impl Default for Meter {
    fn default() -> Self {
        Self::of(Bound::default())
    }
}

/// The namespace that an object counts for. A Namespace counts for itself.
fn home(key: &ObjectKey) -> &str {
    if key.namespace.is_empty() {
        &key.name
    } else {
        &key.namespace
    }
}

impl Meter {
    /// A meter with that bound.
    #[must_use]
    pub fn of(bound: Bound) -> Self {
        Self {
            bound,
            state: Mutex::default(),
            turns: Notify::new(),
            freed: watch::Sender::new(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, Tally> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object of `kind` is now `new` bytes instead of `old`. Returns whether it is kept. If not, its old version is not kept
    /// either.
    pub fn put(&self, kind: &'static str, key: &ObjectKey, old: Option<u64>, new: u64) -> bool {
        let mut state = self.state();
        let namespace = state.namespaces.entry(home(key).to_owned()).or_default();
        let beside = namespace.beside(kind);
        let kept = namespace.kinds.entry(kind).or_default();
        let others = old.map_or(kept.shown, |old| kept.shown.without(Size::one(old)));
        let with = others.and(Size::one(new));
        let fits = self.bound.admits(beside.and(with));
        if fits {
            kept.shown = with;
            kept.left_out.named.remove(&key.name);
        } else {
            kept.shown = others;
            let is_new = kept.left_out.add(&key.name, new);
            self.leave_out(&mut state, (kind, key, new), is_new);
        }
        self.look(
            &mut state,
            home(key),
            old.is_none_or(|old| fits && old <= new),
        );
        fits
    }

    /// An object of `kind` is gone. `old`: its bytes, if it was kept.
    pub fn remove(&self, kind: &'static str, key: &ObjectKey, old: Option<u64>) {
        let mut state = self.state();
        let found = state.namespaces.get_mut(home(key));
        let Some(kept) = found.and_then(|namespace| namespace.kinds.get_mut(kind)) else {
            return;
        };
        if let Some(old) = old {
            kept.shown = kept.shown.without(Size::one(old));
        }
        kept.left_out.named.remove(&key.name);
        self.look(&mut state, home(key), false);
    }

    /// A list of `kind` begins.
    pub fn list_begins(&self, kind: &'static str, part: &Part) {
        let mut state = self.state();
        state.lists.insert((kind, part.clone()));
        for (_, namespace) in of_part(&mut state, part) {
            if let Some(kept) = namespace.kinds.get_mut(kind) {
                kept.listed = Size::default();
                kept.left_out_of_list = LeftOut::default();
            }
        }
    }

    /// The list brings an object, of `new` bytes, or instead of one of `old` bytes. Returns whether it is kept.
    pub fn list(&self, kind: &'static str, key: &ObjectKey, old: Option<u64>, new: u64) -> bool {
        let mut state = self.state();
        let namespace = state.namespaces.entry(home(key).to_owned()).or_default();
        let beside = namespace.beside(kind);
        let kept = namespace.kinds.entry(kind).or_default();
        let others = old.map_or(kept.listed, |old| kept.listed.without(Size::one(old)));
        let with = others.and(Size::one(new));
        if self.bound.admits(beside.and(with)) {
            kept.listed = with;
            return true;
        }
        kept.listed = others;
        let is_new = kept.left_out_of_list.add(&key.name, new)
            && !kept.left_out.named.contains_key(&key.name);
        self.leave_out(&mut state, (kind, key, new), is_new);
        false
    }

    /// The list of `kind` is complete, and what it brought is shown.
    pub fn listed(&self, kind: &'static str, part: &Part) {
        let mut state = self.state();
        state.lists.remove(&(kind, part.clone()));
        let mut names = Vec::new();
        for (name, namespace) in of_part(&mut state, part) {
            if let Some(kept) = namespace.kinds.get_mut(kind) {
                kept.shown = std::mem::take(&mut kept.listed);
                kept.left_out = std::mem::take(&mut kept.left_out_of_list);
                names.push(name.clone());
            }
        }
        for name in names {
            self.look(&mut state, &name, false);
        }
    }

    /// The object is left out: its namespace is over its bound from now on.
    fn leave_out(
        &self,
        state: &mut Tally,
        (kind, key, bytes): (&'static str, &ObjectKey, u64),
        is_new: bool,
    ) {
        let name = home(key);
        let Some(namespace) = state.namespaces.get_mut(name) else {
            return;
        };
        namespace.calm_since = None;
        if state.over.insert(name.to_owned()) {
            state.turned.insert(name.to_owned());
            self.turns.notify_one();
        }
        if is_new && namespace.told < MOST_TOLD {
            namespace.told += 1;
            tracing::warn!(
                kind, object = %key, bytes,
                "{}; this object is left out{}",
                self.sentence(name),
                if namespace.told == MOST_TOLD { ", and so are others, which are not named" } else { "" },
            );
        }
    }

    /// After a change: tells who waits. `grew`: there is no more space than before.
    fn look(&self, state: &mut Tally, name: &str, grew: bool) {
        let Some(namespace) = state.namespaces.get_mut(name) else {
            return;
        };
        namespace.kinds.retain(|_, kept| !kept.is_empty());
        let is_over = state.over.contains(name);
        if is_over && namespace.lacks() {
            if !grew {
                self.freed.send_replace(());
            }
        } else if is_over {
            namespace.calm_since.get_or_insert_with(Instant::now);
            self.turns.notify_one();
        } else if namespace.kinds.is_empty() {
            state.namespaces.remove(name);
        }
    }

    /// The sentence about a namespace that is over its bound. It does not change while that lasts.
    fn sentence(&self, namespace: &str) -> String {
        format!(
            "namespace {namespace} has more than the {} MiB or {} objects that the operator keeps of one (VsphereAgentPools, \
             VsphereAgents, AgentMachines, Machines, Agents, InfraEnvs, Clusters, NodePools, HostedClusters), so a part of it is \
             unknown: remove what nobody needs there, or raise --max-namespace-cache-mib or --max-namespace-objects",
            self.bound.bytes >> 20,
            self.bound.objects,
        )
    }

    /// Why a part of that namespace is unknown. `None`: all of it is known.
    #[must_use]
    pub fn over(&self, namespace: &str) -> Option<String> {
        let is_over = self.state().over.contains(namespace);
        is_over.then(|| self.sentence(namespace))
    }

    /// The namespaces that are over their bound.
    #[must_use]
    pub fn all_over(&self) -> Vec<String> {
        self.state().over.iter().cloned().collect()
    }

    /// Ends when a namespace has come over its bound, or when nothing of one is left out for [`CALM`]. Returns such
    /// namespaces. Only where somebody waits here does a namespace come below its bound again.
    pub async fn turned(&self) -> BTreeSet<String> {
        loop {
            let mut turned = self.settle(Instant::now());
            turned.append(&mut self.state().turned);
            if !turned.is_empty() {
                return turned;
            }
            let since = self.calm_since();
            tokio::select! {
                () = self.turns.notified() => {}
                () = tokio::time::sleep_until(since.unwrap_or_else(Instant::now) + CALM), if since.is_some() => {}
            }
        }
    }

    /// Since when the calmest namespace is calm.
    fn calm_since(&self) -> Option<Instant> {
        let state = self.state();
        let all = state.namespaces.values();
        all.filter_map(|found| found.calm_since).min()
    }

    /// Takes the namespaces that were calm for long enough out of their state.
    fn settle(&self, now: Instant) -> BTreeSet<String> {
        let mut settled = BTreeSet::new();
        let mut state = self.state();
        let Tally {
            namespaces, over, ..
        } = &mut *state;
        namespaces.retain(|name, found| {
            if found.calm_since.is_none_or(|since| now < since + CALM) {
                return true;
            }
            tracing::info!(
                namespace = name,
                "all of the namespace fits its bound again"
            );
            over.remove(name);
            settled.insert(name.clone());
            let kinds = std::mem::take(&mut found.kinds);
            *found = Namespace {
                kinds,
                ..Namespace::default()
            };
            !found.kinds.is_empty()
        });
        settled
    }

    /// Whether a new list of `kind` would bring an object that is left out.
    fn may_fit(&self, kind: &'static str, part: &Part) -> bool {
        let mut state = self.state();
        // That is known at its end only.
        if state.lists.contains(&(kind, part.clone())) {
            return false;
        }
        of_part(&mut state, part).any(|(_, namespace)| {
            let Some(kept) = namespace.kinds.get(kind) else {
                return false;
            };
            let smallest = kept.left_out.smallest.filter(|_| !kept.left_out.is_empty());
            let all = namespace.beside(kind).and(kept.shown);
            smallest.is_some_and(|bytes| self.bound.admits(all.and(Size::one(bytes))))
        })
    }

    /// Ends when a new list of `kind` would bring an object that is left out.
    pub async fn fits_again(&self, kind: &'static str, part: &Part) {
        let mut freed = self.freed.subscribe();
        while !self.may_fit(kind, part) {
            if freed.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

/// The namespaces of that part.
fn of_part<'a>(
    state: &'a mut Tally,
    part: &'a Part,
) -> impl Iterator<Item = (&'a String, &'a mut Namespace)> {
    let all = state.namespaces.iter_mut();
    all.filter(|(name, _)| part.as_ref().is_none_or(|part| part == *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: &str = "Agent";
    const OTHER: &str = "Machine";

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("a", name)
    }

    fn meter(bytes: u64, objects: u64) -> Meter {
        Meter::of(Bound { bytes, objects })
    }

    #[test]
    fn an_object_is_as_large_as_its_json() {
        assert_eq!(json(&serde_json::json!({"a": "bc", "d": [1, 2]})), 20);
        assert_eq!(json(&"x".repeat(100)), 102);
    }

    #[test]
    fn all_kinds_of_a_namespace_share_its_bytes_and_others_have_their_own() {
        let meter = meter(100, 10);
        assert!(meter.put(KIND, &key("1"), None, 60));
        assert!(!meter.put(OTHER, &key("1"), None, 41));
        assert!(meter.put(OTHER, &key("2"), None, 40));
        let said = meter.over("a").expect("one is left out");
        assert!(said.contains("namespace a "), "{said}");
        assert!(said.contains("--max-namespace-cache-mib"), "{said}");
        assert!(meter.put(KIND, &ObjectKey::new("b", "1"), None, 100));
        assert_eq!(meter.over("b"), None);
        assert_eq!(meter.all_over(), ["a"]);
        // A Namespace counts for itself.
        assert!(!meter.put("Namespace", &ObjectKey::new("", "b"), None, 1));
        assert_eq!(meter.all_over(), ["a", "b"]);
    }

    #[test]
    fn there_is_a_bound_of_objects_as_well() {
        let meter = meter(100, 2);
        assert!(meter.put(KIND, &key("1"), None, 1));
        assert!(meter.put(OTHER, &key("1"), None, 1));
        assert!(!meter.put(KIND, &key("2"), None, 1));
        assert!(meter.over("a").is_some());
        assert!(
            meter.put(KIND, &key("1"), Some(1), 2),
            "it is there already"
        );
    }

    #[test]
    fn an_update_that_grows_beyond_the_bound_takes_its_old_version_along() {
        let meter = meter(100, 10);
        assert!(meter.put(KIND, &key("1"), None, 50));
        assert!(meter.put(KIND, &key("2"), None, 50));
        assert!(!meter.put(KIND, &key("1"), Some(50), 51));
        assert!(meter.put(KIND, &key("3"), None, 50), "its space is free");
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_recovers_when_what_is_left_out_goes_or_fits() {
        let meter = meter(100, 10);
        let turned = async || meter.turned().await.into_iter().collect::<Vec<_>>();
        for recover in [
            // It is gone.
            &(|| meter.remove(KIND, &key("2"), None)) as &dyn Fn(),
            // It shrinks.
            &|| assert!(meter.put(KIND, &key("2"), None, 40)),
        ] {
            assert!(meter.put(KIND, &key("1"), None, 60));
            assert!(!meter.put(KIND, &key("2"), None, 41));
            assert_eq!(turned().await, ["a"]);
            assert!(meter.over("a").is_some());
            recover();
            assert!(meter.over("a").is_some(), "who has read before, ends first");
            assert_eq!(turned().await, ["a"]);
            assert_eq!(meter.over("a"), None);
            meter.remove(KIND, &key("1"), Some(60));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_list_is_asked_for_once_it_could_bring_something() {
        let meter = meter(100, 10);
        assert!(meter.put(KIND, &key("1"), None, 60));
        assert!(meter.put(OTHER, &key("1"), None, 20));
        assert!(!meter.put(KIND, &key("2"), None, 50));
        assert!(!meter.may_fit(KIND, &None));
        assert!(!meter.may_fit(OTHER, &None), "nothing of it is left out");
        // Also by space that another kind leaves, but not by too little.
        meter.remove(OTHER, &key("1"), Some(20));
        assert!(!meter.may_fit(KIND, &None));
        assert!(meter.put(KIND, &key("1"), Some(60), 50));
        assert!(meter.may_fit(KIND, &None));
        assert!(meter.may_fit(KIND, &Some("a".to_owned())));
        assert!(!meter.may_fit(KIND, &Some("b".to_owned())));
        meter.fits_again(KIND, &None).await;
        meter.list_begins(KIND, &None);
        assert!(!meter.may_fit(KIND, &None), "one is under way");
        assert!(meter.list(KIND, &key("1"), None, 50));
        assert!(meter.list(KIND, &key("2"), None, 50));
        meter.listed(KIND, &None);
        assert_eq!(meter.turned().await.len(), 1, "it came over its bound");
        assert_eq!(meter.turned().await.len(), 1, "and is below it");
        assert_eq!(meter.over("a"), None);
    }

    #[test]
    fn a_list_is_bounded_while_it_comes_and_counts_alone_at_its_end() {
        let meter = meter(100, 10);
        assert!(meter.put(KIND, &key("1"), None, 60));
        meter.list_begins(KIND, &None);
        assert!(meter.list(KIND, &key("2"), None, 90), "the old one goes");
        assert!(!meter.list(KIND, &key("3"), None, 20));
        assert!(
            !meter.put(OTHER, &key("1"), None, 20),
            "the list takes its space"
        );
        meter.listed(KIND, &None);
        assert!(!meter.put(KIND, &key("4"), None, 20));
        assert!(meter.put(KIND, &key("4"), None, 10));
        // A list that ends before its end counts no more when the next one begins.
        meter.list_begins(KIND, &None);
        assert!(meter.list(KIND, &key("2"), None, 90));
        meter.list_begins(KIND, &None);
        assert!(meter.list(KIND, &key("2"), None, 90));
        meter.listed(KIND, &None);
        assert!(meter.put(OTHER, &key("2"), None, 10));
    }

    #[test]
    fn of_very_many_that_are_left_out_few_are_remembered_and_none_is_forgotten() {
        let meter = meter(10, 10);
        assert!(meter.put(KIND, &key("kept"), None, 10));
        let names: Vec<_> = (0..=MOST_REMEMBERED).map(|n| n.to_string()).collect();
        for name in &names {
            assert!(!meter.put(KIND, &key(name), None, 5));
        }
        for name in &names {
            meter.remove(KIND, &key(name), None);
        }
        assert_eq!(meter.calm_since(), None, "one is not known by its name");
        meter.remove(KIND, &key("kept"), Some(10));
        assert!(meter.may_fit(KIND, &None));
        meter.list_begins(KIND, &None);
        meter.listed(KIND, &None);
        assert!(meter.calm_since().is_some());
    }
}
