//! Values that states share: cloned by reference, compared and hashed by a digest that is worked out once.

use std::{
    collections::hash_map::DefaultHasher,
    fmt::{self, Debug, Write},
    hash::{Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

/// A value in a state. Its digest covers all that `Debug` shows, 128 bits wide.
pub struct Shared<T> {
    value: Arc<T>,
    digest: (u64, u64),
}

struct Digest(DefaultHasher, DefaultHasher);

impl Write for Digest {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.0.write(s.as_bytes());
        self.1.write(s.as_bytes());
        Ok(())
    }
}

impl<T: Debug> Shared<T> {
    /// Takes the value.
    pub fn new(value: T) -> Self {
        let mut digest = Digest(DefaultHasher::new(), DefaultHasher::new());
        digest.1.write_u8(1);
        // Writing into a hasher does not fail.
        let _ = write!(digest, "{value:?}");
        Self {
            digest: (digest.0.finish(), digest.1.finish()),
            value: Arc::new(value),
        }
    }

    /// The value.
    pub fn arc(&self) -> Arc<T> {
        self.value.clone()
    }
}

impl<T: Debug + Clone> Shared<T> {
    /// Changes it.
    pub fn change<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        let mut value = self.value.as_ref().clone();
        let result = f(&mut value);
        *self = Self::new(value);
        result
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
