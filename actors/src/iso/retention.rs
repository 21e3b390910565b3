//! Which files of a pool's retention list are tried, and what the pool is told of it.
//!
//! Guarantees: only files that carry the cache's own kind of name (`<sha256>.iso`) are tried, none that a pool relies
//! on; each at most once per [`AGAIN`]; a reason that did not change is told once, so that an ISO that stays mounted for
//! months is no stream of events; that a file is gone is told until the pool lists it no more, since the write that takes
//! it off the list may fail.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::domain::names::{DatastorePath, ObjectKey};

/// Least time between two tries of the same file.
pub(super) const AGAIN: Duration = Duration::from_secs(600);

/// Files that are gone, and files kept with the reason.
pub type PruneNews = (Vec<DatastorePath>, Vec<(DatastorePath, String)>);

/// One pool's retention.
#[derive(Clone, Debug, Default)]
pub(super) struct PruneLog {
    /// A prune waits for the lane.
    pub(super) queued: bool,
    trying: Vec<DatastorePath>,
    tried: BTreeMap<DatastorePath, (Duration, Option<String>)>,
    /// Removed, and still on the pool's list.
    gone: BTreeSet<DatastorePath>,
    /// Kept, and the pool has not heard why.
    stayed: Vec<(DatastorePath, String)>,
}

impl PruneLog {
    /// Takes in what the pool lists: what it lists no more is forgotten.
    pub(super) fn listed(&mut self, prunable: &[DatastorePath]) {
        let listed: BTreeSet<_> = prunable.iter().collect();
        self.tried.retain(|path, _| listed.contains(path));
        self.gone.retain(|path| listed.contains(path));
    }

    /// Is there a file to try, and no try under way?
    pub(super) fn due(&self, prunable: &[DatastorePath], now: Duration) -> bool {
        !self.queued && prunable.iter().any(|p| self.is_due(p, now))
    }

    fn is_due(&self, path: &DatastorePath, now: Duration) -> bool {
        self.tried
            .get(path)
            .is_none_or(|(at, _)| now.saturating_sub(*at) >= AGAIN)
    }

    /// The files to try now; those that must stay are noted with the reason.
    pub(super) fn begin(
        &mut self,
        prunable: &[DatastorePath],
        used: &BTreeMap<DatastorePath, ObjectKey>,
        now: Duration,
    ) -> Vec<DatastorePath> {
        let mut tries = Vec::new();
        for path in prunable {
            if !self.is_due(path, now) {
                continue;
            }
            if let Some(pool) = used.get(path) {
                self.kept(path.clone(), format!("pool {pool} uses it"), now);
            } else if !is_ours(path) {
                self.kept(
                    path.clone(),
                    "its name is not `<sha256>.iso`, so it is not ours to remove".to_owned(),
                    now,
                );
            } else {
                let reason = self.tried.remove(path).and_then(|(_, reason)| reason);
                self.tried.insert(path.clone(), (now, reason));
                tries.push(path.clone());
            }
        }
        self.trying.clone_from(&tries);
        tries
    }

    /// Takes in a result; `true` when the pool has something to hear.
    pub(super) fn ended(
        &mut self,
        gone: Vec<DatastorePath>,
        kept: Vec<(DatastorePath, String)>,
        now: Duration,
    ) -> bool {
        self.trying.clear();
        let removed = !gone.is_empty();
        for path in gone {
            self.tried.insert(path.clone(), (now, None));
            self.gone.insert(path);
        }
        for (path, reason) in kept {
            self.kept(path, reason, now);
        }
        removed || !self.stayed.is_empty()
    }

    /// The whole try failed.
    pub(super) fn failed(&mut self, reason: &str, now: Duration) -> bool {
        for path in std::mem::take(&mut self.trying) {
            self.kept(path, reason.to_owned(), now);
        }
        !self.stayed.is_empty()
    }

    /// Other moments.
    pub(super) fn retell(&mut self, moment: &dyn Fn(Duration) -> Duration) {
        for (at, _) in self.tried.values_mut() {
            *at = moment(*at);
        }
    }

    fn kept(&mut self, path: DatastorePath, reason: String, now: Duration) {
        let before = self.tried.insert(path.clone(), (now, Some(reason.clone())));
        if before.and_then(|(_, r)| r).as_ref() != Some(&reason) {
            self.stayed.push((path, reason));
        }
    }

    /// What is gone of the pool's list, and what it has not been told yet of the rest.
    pub(super) fn take_news(&mut self) -> PruneNews {
        let gone = self.gone.iter().cloned().collect();
        (gone, std::mem::take(&mut self.stayed))
    }
}

/// Does the name look like one that the cache gives (`<sha256>.iso`)?
pub(crate) fn is_ours(path: &DatastorePath) -> bool {
    path.file_name().strip_suffix(".iso").is_some_and(|stem| {
        stem.len() == 64 && stem.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(digit: char) -> DatastorePath {
        let name = digit.to_string().repeat(64);
        DatastorePath::new("ds", &format!("agent-forge/{name}.iso")).expect("a path")
    }

    #[test]
    fn what_is_gone_is_told_until_it_is_listed_no_more() {
        let (a, b, now) = (path('a'), path('b'), Duration::ZERO);
        let list = [a.clone(), b.clone()];
        let mut log = PruneLog::default();
        log.listed(&list);
        assert!(log.due(&list, now));
        assert_eq!(log.begin(&list, &BTreeMap::new(), now), list);
        assert!(log.ended(
            vec![a.clone()],
            vec![(b.clone(), "mounted".to_owned())],
            now
        ));
        // The write that follows fails: the list stays as it is.
        for kept in [vec![(b.clone(), "mounted".to_owned())], vec![], vec![]] {
            log.listed(&list);
            assert!(!log.due(&list, now), "once in ten minutes");
            assert_eq!(log.take_news(), (vec![a.clone()], kept));
        }
        let left = [b];
        log.listed(&left);
        assert_eq!(log.take_news(), (vec![], vec![]));
        // Listed once more, it is looked for once more.
        log.listed(&list);
        assert!(log.due(&list, now));
    }

    #[test]
    fn a_file_is_tried_once_in_a_while_and_a_reason_told_once() {
        let list = [path('a')];
        let mut log = PruneLog {
            queued: true,
            ..PruneLog::default()
        };
        assert!(!log.due(&list, Duration::ZERO), "it waits for the lane");
        log.queued = false;
        for (after, tried, reason, news) in [
            (0, true, "mounted", true),
            (599, false, "", false),
            (600, true, "mounted", false),
            (1200, true, "locked", true),
        ] {
            let now = Duration::from_secs(after);
            assert_eq!(log.due(&list, now), tried, "{after}");
            let tries = log.begin(&list, &BTreeMap::new(), now);
            assert_eq!(!tries.is_empty(), tried, "{after}");
            assert_eq!(log.failed(reason, now), news, "{after}");
            let told = news.then(|| (list[0].clone(), reason.to_owned()));
            assert_eq!(log.take_news().1, Vec::from_iter(told), "{after}");
        }
    }

    #[test]
    fn what_is_used_or_not_ours_stays_with_its_reason() {
        let (used, named) = (path('a'), DatastorePath::new("ds", "agent-forge/x.iso"));
        let list = [used.clone(), named.expect("a path"), path('b')];
        let by = BTreeMap::from([(used, ObjectKey::new("ns", "w"))]);
        let mut log = PruneLog::default();
        assert_eq!(log.begin(&list, &by, Duration::ZERO), list[2..]);
        assert!(log.ended(vec![], vec![], Duration::ZERO));
        let (gone, kept) = log.take_news();
        let kept: Vec<_> = kept.iter().map(|(path, _)| path).collect();
        assert_eq!((gone, kept), (vec![], vec![&list[0], &list[1]]));
        assert!(!log.ended(vec![], vec![], Duration::ZERO), "told");
    }

    #[test]
    fn ours_are_named_after_their_digest() {
        for (stem, ours) in [
            ("0af9".repeat(16), true),
            ("0af9".repeat(15) + "0af", false),
            ("0af9".repeat(16) + "0", false),
            ("0AF9".repeat(16), false),
            ("0ag9".repeat(16), false),
        ] {
            for (ending, ours) in [(".iso", ours), (".img", false), ("", false)] {
                let path = DatastorePath::new("ds", &format!("d/{stem}{ending}"));
                assert_eq!(is_ours(&path.expect("a path")), ours, "{stem}{ending}");
            }
        }
    }
}
