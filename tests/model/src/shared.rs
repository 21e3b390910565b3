//! Values that states share. They are cloned by reference, and compared and hashed by a digest that is computed once.

use std::{
    any::{Any, TypeId},
    cell::RefCell,
    fmt::{self, Debug, Write},
    hash::{Hash, Hasher},
    ops::{Deref, DerefMut},
    sync::Arc,
};

use ahash::AHashMap;

use crate::explore::{Digest, wide_digest};

/// A value in a state. Its digest of 128 bits covers everything that `Debug` shows.
pub struct Shared<T> {
    value: Arc<T>,
    digest: Digest,
}

type Known = AHashMap<(TypeId, Digest), Arc<dyn Any + Send + Sync>>;
type Changed = AHashMap<(TypeId, Digest, u64), Box<dyn Any>>;

/// Number of values that each thread knows.
const MOST: usize = 100_000;

thread_local! {
    /// Values by their digests. States that were reached in different ways share equal values.
    static KNOWN: RefCell<Known> = RefCell::default();
    /// Results of small changes to values.
    static CHANGED: RefCell<Changed> = RefCell::default();
    /// Buffer for the text of a value.
    static WORDS: RefCell<String> = RefCell::default();
}

fn digest_of(value: &impl Debug) -> Digest {
    WORDS.with_borrow_mut(|words| {
        words.clear();
        // A write into a string cannot fail.
        let _ = write!(words, "{value:?}");
        wide_digest(words.as_bytes())
    })
}

impl<T: Debug + Send + Sync + 'static> Shared<T> {
    /// A shared value.
    pub fn new(value: T) -> Self {
        let digest = digest_of(&value);
        let key = (TypeId::of::<T>(), digest);
        let known = KNOWN.with_borrow(|all| all.get(&key).cloned());
        let known = known.and_then(|any| any.downcast().ok());
        let value = known.unwrap_or_else(|| {
            let value = Arc::new(value);
            KNOWN.with_borrow_mut(|all| {
                if all.len() >= MOST {
                    all.clear();
                }
                all.insert(key, value.clone());
            });
            value
        });
        Self { value, digest }
    }
}

impl<T> Shared<T> {
    /// The value.
    pub fn arc(&self) -> Arc<T> {
        self.value.clone()
    }
}

impl<T: Debug + Clone + Send + Sync + 'static> Shared<T> {
    /// Changes the value.
    pub fn change<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self.value.as_ref().clone();
        let result = f(&mut value);
        *self = Self::new(value);
        result
    }

    /// Changes the value. `how` identifies the change completely.
    pub fn change_so(&mut self, how: u64, f: impl FnOnce(&mut T)) {
        let key = (TypeId::of::<T>(), self.digest, how);
        let known = CHANGED.with_borrow(|all| {
            let known = all.get(&key)?.downcast_ref::<Self>();
            known.cloned()
        });
        *self = known.unwrap_or_else(|| {
            let mut changed = self.clone();
            changed.change(f);
            CHANGED.with_borrow_mut(|all| {
                if all.len() >= MOST {
                    all.clear();
                }
                all.insert(key, Box::new(changed.clone()));
            });
            changed
        });
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self {
            value: self.value.clone(),
            digest: self.digest,
        }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl<T> Eq for Shared<T> {}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl<T: Debug> Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// A part of a state. States share it until one of them changes it. Most transitions change one part of many, and most
/// resulting states are known and dropped.
#[derive(Default, Eq)]
pub struct Held<T>(Arc<T>);

impl<T> Held<T> {
    /// A shared part.
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T: Debug + Send + Sync + 'static> FromIterator<T> for Held<Vec<Shared<T>>> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        Self::new(all.into_iter().map(Shared::new).collect())
    }
}

impl<T> Clone for Held<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Held<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Copies the part when it is shared.
impl<T: Clone> DerefMut for Held<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T: PartialEq> PartialEq for Held<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || *self.0 == *other.0
    }
}

impl<T: Hash> Hash for Held<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T: Debug> Debug for Held<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
