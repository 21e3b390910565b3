//! What a cache knows of its objects beside themselves, so that nobody has to go through all: who says which word, and how
//! many of the counted ones carry which labels.
//!
//! Guarantee: it is brought up to date with each object, under the lock of the objects; nothing is built anew for a question,
//! but for the first count of a set of labels.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use agent_forge_actors::domain::{
    names::ObjectKey,
    selector::Labels,
    tally::Tally,
    words::{Word, Words},
};

/// Sets of labels per namespace that are counted on; of more, the one that was asked for least lately is counted anew when it
/// is asked for again.
const MOST_COUNTS: usize = 1000;

/// What is read of each object for the index.
#[derive(Debug)]
pub struct Reads<K> {
    /// The words by which it is found.
    pub words: fn(&K) -> Words,
    /// What it adds to the count of those that carry the labels.
    pub tally: fn(&K, &Labels) -> Tally,
}

impl<K> Default for Reads<K> {
    fn default() -> Self {
        Self {
            words: |_| Words::new(),
            tally: |_, _| Tally::default(),
        }
    }
}

/// The count of one set of labels.
#[derive(Debug)]
struct Count {
    now: Tally,
    /// Turn of the last question.
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
    words: BTreeSet<(Word, Arc<ObjectKey>)>,
    counts: Mutex<Counts>,
}

impl<K> Index<K> {
    /// That of no objects.
    #[must_use]
    pub fn new(reads: Reads<K>) -> Self {
        Self {
            reads,
            words: BTreeSet::new(),
            counts: Mutex::default(),
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object was so and is so.
    pub fn changed(&mut self, key: &ObjectKey, old: Option<&K>, new: Option<&K>) {
        let words = |k: Option<&K>| k.map(self.reads.words).unwrap_or_default();
        let (was, is) = (words(old), words(new));
        if was != is {
            let key = Arc::new(key.clone());
            for word in was.difference(&is) {
                self.words.remove(&(*word, key.clone()));
            }
            let new = is.difference(&was).map(|word| (*word, key.clone()));
            self.words.extend(new);
        }
        let tally = self.reads.tally;
        let adds = |k: Option<&K>, labels| k.map(|k| tally(k, labels)).unwrap_or_default();
        let mut counts = self.counts();
        for (labels, count) in counts.of.get_mut(&key.namespace).into_iter().flatten() {
            count.now += adds(new, labels);
            count.now -= adds(old, labels);
        }
    }

    /// Keys of those that say the word, in key order; of that namespace alone, where one is given.
    pub fn saying<'a>(
        &'a self,
        namespace: Option<&'a str>,
        word: Word,
    ) -> impl Iterator<Item = &'a ObjectKey> {
        let from = ObjectKey::new(namespace.unwrap_or_default(), "");
        let all = self.words.range((word, Arc::new(from))..);
        all.take_while(move |(w, key)| *w == word && namespace.is_none_or(|n| n == key.namespace))
            .map(|(_, key)| key.as_ref())
    }

    /// How many of that namespace carry the labels; `all` of it are counted where nobody has asked yet.
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
