//! Decides when the status of one object is written. Pure: the caller sends the request.
//!
//! Guarantees
//! - A status is written only when it changed.
//! - A written status counts until the watch shows it: a pass never works from an older one. After a restore of the API server
//!   from a backup the watch never shows it. So it is forgotten once all kinds were listed again.
//! - A change that can wait is written together with the changes that follow soon.
//! - A pass that could not write does not try again. The next pass tries after the backoff.
//!
//! Assumption: resourceVersions of one resource are growing numbers (etcd revisions). If they are not, the writer trusts the
//! watch.

use std::{sync::Arc, time::Duration};

use kube::{ResourceExt, core::object::HasStatus};

use crate::{
    domain::failure::Class,
    ports::cluster::{ClusterError, ClusterResult, View},
};

/// What the writer remembers of one object between passes.
#[derive(Clone, Debug)]
pub struct StatusWriter<S> {
    /// The last write, until the watch shows it.
    pub written: Option<Written<S>>,
    /// Why the last write of this pass failed, if time alone may help.
    failed: Option<Class>,
    /// Since when (monotonic) a change waits to be written.
    waiting_since: Option<Duration>,
}

/// A status that was written.
#[derive(Clone, Debug)]
pub struct Written<S> {
    uid: String,
    /// resourceVersion of the object since.
    pub resource_version: String,
    /// The status.
    pub status: S,
    /// How often the caches were in doubt when the answer came ([`View::history`]).
    history: u64,
}

impl<S> Written<S> {
    fn is_newer_than<K: ResourceExt>(&self, shown: &K) -> bool {
        let same = shown.uid().as_deref() == Some(self.uid.as_str());
        let at = shown.resource_version();
        same && matches!((number(at.as_deref()), number(Some(&self.resource_version))), (Some(shown), Some(ours)) if ours > shown)
    }
}

/// What to do with a status that was rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publish {
    /// Nothing to write: it did not change.
    Unchanged,
    /// Nothing in this pass: the API server has just refused a status.
    Failed(Class),
    /// Nothing yet: the change may wait that long for others.
    Later(Duration),
    /// Write it.
    Now,
}

impl<S> Default for StatusWriter<S> {
    fn default() -> Self {
        Self {
            written: None,
            failed: None,
            waiting_since: None,
        }
    }
}

impl<S: Clone> StatusWriter<S> {
    /// A pass begins with the object that the watch shows. Returns the object as it is known now, and forgets a write that
    /// the watch shows, and one that the present history of the API server may not have.
    pub fn begin<K>(&mut self, view: &dyn View, shown: &Arc<K>) -> Arc<K>
    where
        K: ResourceExt + HasStatus<Status = S> + Clone,
    {
        self.failed = None;
        if !view.is_in_doubt() {
            // The list that ended the doubt was read after that write.
            self.written.take_if(|w| w.history != view.history());
        }
        self.newest(shown)
    }

    /// The object as it is known now. Forgets a write that the watch shows.
    pub fn newest<K>(&mut self, shown: &Arc<K>) -> Arc<K>
    where
        K: ResourceExt + HasStatus<Status = S> + Clone,
    {
        self.written.take_if(|w| !w.is_newer_than(shown.as_ref()));
        self.over(shown)
    }

    /// `object`, with the written status if that is newer.
    #[must_use]
    pub fn over<K>(&self, object: &Arc<K>) -> Arc<K>
    where
        K: ResourceExt + HasStatus<Status = S> + Clone,
    {
        let written = self.written.as_ref();
        let Some(written) = written.filter(|w| w.is_newer_than(object.as_ref())) else {
            return object.clone();
        };
        let version = written.resource_version.clone();
        with_status(object.as_ref(), written.status.clone(), version)
    }

    /// What to do at monotonic time `now` with a status that was rendered. `window`: how long the change may wait; `None`:
    /// it must not wait.
    pub fn next(
        &mut self,
        changed: bool,
        now: Duration,
        window: impl FnOnce() -> Option<Duration>,
    ) -> Publish {
        if !changed {
            self.waiting_since = None;
            return Publish::Unchanged;
        }
        if let Some(class) = self.failed {
            return Publish::Failed(class);
        }
        let Some(window) = window() else {
            return Publish::Now;
        };
        let since = *self.waiting_since.get_or_insert(now);
        let left = window.saturating_sub(now.saturating_sub(since));
        if left.is_zero() {
            Publish::Now
        } else {
            Publish::Later(left)
        }
    }

    /// Records the result of writing `status` to `object`. Returns the object after that.
    ///
    /// # Errors
    /// The failure of the write.
    pub fn record<K>(
        &mut self,
        view: &dyn View,
        object: &Arc<K>,
        status: S,
        version: ClusterResult<String>,
    ) -> ClusterResult<Arc<K>>
    where
        K: ResourceExt + HasStatus<Status = S> + Clone,
    {
        // The server may refuse a status because of its content. Another status is then not held back: it may show the
        // reason.
        let failed = version.as_ref().err().map(ClusterError::class);
        self.failed = failed.filter(|class| class.passes());
        let version = version?;
        self.waiting_since = None;
        self.written = Some(Written {
            uid: object.uid().unwrap_or_default(),
            resource_version: version.clone(),
            status: status.clone(),
            history: view.history(),
        });
        Ok(with_status(object.as_ref(), status, version))
    }

    /// The rest of the memory for another VM of the same object: only the last write.
    #[must_use]
    pub fn with_write_only(&mut self) -> Self {
        Self {
            written: self.written.take(),
            ..Self::default()
        }
    }

    /// The resourceVersion of the last write, while the watch does not show it.
    #[must_use]
    pub fn pending(&self) -> Option<&str> {
        self.written.as_ref().map(|w| w.resource_version.as_str())
    }
}

fn with_status<K>(object: &K, status: K::Status, version: String) -> Arc<K>
where
    K: ResourceExt + HasStatus + Clone,
{
    let mut object = object.clone();
    *object.status_mut() = Some(status);
    object.meta_mut().resource_version = Some(version);
    Arc::new(object)
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

#[cfg(test)]
mod tests {
    use agent_forge_crds::pool::VsphereAgentPoolStatus;

    use super::*;
    use crate::{ports::cluster::ClusterErrorKind, testing, vm::testing::hub::Hub};

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_window_begins_with_the_first_change() {
        let mut writer = StatusWriter::<VsphereAgentPoolStatus>::default();
        let window = || Some(s(2));
        for (now, due) in [
            (10, Publish::Later(s(2))),
            // Another change does not delay it.
            (11, Publish::Later(s(1))),
            (12, Publish::Now),
            // A write that failed is due at once.
            (13, Publish::Now),
        ] {
            assert_eq!(writer.next(true, s(now), window), due, "at {now}");
        }
        assert_eq!(writer.next(false, s(14), window), Publish::Unchanged);
        assert_eq!(writer.next(true, s(20), window), Publish::Later(s(2)));
        assert_eq!(writer.next(true, s(21), || None), Publish::Now);
        let mut other = StatusWriter::<VsphereAgentPoolStatus>::default();
        assert_eq!(other.next(true, s(1), || Some(s(0))), Publish::Now);
    }

    #[test]
    fn what_was_written_counts_until_the_watch_shows_it() {
        let mut shown = testing::pool("w");
        shown.metadata.resource_version = Some("7".to_owned());
        let mut writer = StatusWriter::default();
        let status = VsphereAgentPoolStatus {
            closed: Some(true),
            ..VsphereAgentPoolStatus::default()
        };
        let written = writer.record(
            &Hub::default(),
            &Arc::new(shown.clone()),
            status,
            Ok("9".to_owned()),
        );
        let closed = |pool: &Arc<agent_forge_crds::pool::VsphereAgentPool>| {
            pool.status.as_ref().and_then(|s| s.closed) == Some(true)
        };
        assert!(written.is_ok_and(|pool| closed(&pool)));
        for (version, counts) in [("7", true), ("8", true), ("9", false), ("odd", false)] {
            shown.metadata.resource_version = Some(version.to_owned());
            let over = writer.over(&Arc::new(shown.clone()));
            assert_eq!(closed(&over), counts, "{version}");
        }
        shown.metadata.resource_version = Some("9".to_owned());
        writer.newest(&Arc::new(shown.clone()));
        shown.metadata.resource_version = Some("8".to_owned());
        assert!(!closed(&writer.newest(&Arc::new(shown))), "it was shown");
    }

    /// The API server was restored from a backup: no version that it shows from then on reaches the one that was written.
    #[test]
    fn what_was_written_before_a_restore_is_forgotten_once_all_was_listed_again() {
        let mut pool = testing::pool("w");
        pool.metadata.resource_version = Some("7".to_owned());
        let pool = Arc::new(pool);
        let hub = Hub::default();
        let mut writer = StatusWriter::default();
        let status = VsphereAgentPoolStatus {
            closed: Some(true),
            ..VsphereAgentPoolStatus::default()
        };
        let write = |writer: &mut StatusWriter<_>, version: &str| {
            let version = Ok(version.to_owned());
            let written = writer.record(&hub, &pool, status.clone(), version);
            assert!(written.is_ok());
        };
        let counts = |writer: &mut StatusWriter<VsphereAgentPoolStatus>| {
            let known = writer.begin(&hub, &pool);
            known.status.as_ref().and_then(|s| s.closed) == Some(true)
        };
        write(&mut writer, "9");
        hub.with(|o| (o.history, o.in_doubt) = (1, true));
        assert!(counts(&mut writer), "not before all kinds were listed");
        hub.with(|o| o.in_doubt = false);
        assert!(!counts(&mut writer));
        write(&mut writer, "8");
        assert!(counts(&mut writer), "written since");
    }

    #[test]
    fn a_pass_that_could_not_write_does_not_try_again() {
        let pool = Arc::new(testing::pool("w"));
        for (kind, holds) in [
            (ClusterErrorKind::Unavailable, true),
            (ClusterErrorKind::Conflict, true),
            (ClusterErrorKind::Invalid, false),
        ] {
            let mut writer = StatusWriter::default();
            let failed = Err(ClusterError {
                kind: kind.clone(),
                operation: "status",
                subject: "pool".to_owned(),
                message: "as the test wants it".to_owned(),
            });
            let class = failed.as_ref().err().map(ClusterError::class);
            let came = writer.record(
                &Hub::default(),
                &pool,
                VsphereAgentPoolStatus::default(),
                failed,
            );
            assert!(came.is_err());
            let next = writer.next(true, s(1), || None);
            let held = class.filter(|_| holds).map(Publish::Failed);
            assert_eq!(next, held.unwrap_or(Publish::Now), "{kind:?}");
            writer.begin(&Hub::default(), &pool);
            assert_eq!(writer.next(true, s(1), || None), Publish::Now);
        }
    }
}
