//! Reading one's own writes: the watch lags behind them.

use kube::ResourceExt;

/// A status write that the watch may not have shown yet.
#[derive(Clone, Debug)]
pub struct Written<S> {
    uid: String,
    /// resourceVersion that the write returned.
    pub resource_version: String,
    /// The status written.
    pub status: S,
}

impl<S> Written<S> {
    /// A write to `object`.
    pub fn new<K: ResourceExt>(object: &K, resource_version: String, status: S) -> Self {
        Self {
            uid: object.uid().unwrap_or_default(),
            resource_version,
            status,
        }
    }

    /// Whether the write is newer than what the watch shows. resourceVersions of one resource are compared as numbers
    /// (they are etcd revisions); where they are none, the watch is believed.
    pub fn newer_than<K: ResourceExt>(&self, shown: &K) -> bool {
        let same = shown.uid().as_deref() == Some(self.uid.as_str());
        let at = shown.resource_version();
        same && matches!((number(at.as_deref()), number(Some(&self.resource_version))), (Some(shown), Some(ours)) if ours > shown)
    }
}

/// Whether `a` is a later state of the same object than `b`.
#[must_use]
pub fn is_newer<K: ResourceExt>(a: &K, b: &K) -> bool {
    let version = |k: &K| number(k.resource_version().as_deref());
    a.uid() == b.uid() && matches!((version(a), version(b)), (Some(a), Some(b)) if a > b)
}

fn number(resource_version: Option<&str>) -> Option<u64> {
    resource_version?.parse().ok()
}
