//! Which files of a pool's retention list are tried, and what is reported to the pool.
//!
//! Guarantees
//! - Only files with the cache's own kind of name (`<sha256>.iso`) are tried, and none that a pool needs.
//! - Each is tried at most once per [`AGAIN`].
//! - A reason that did not change is reported once: an ISO that stays mounted for months causes no stream of Events.
//! - A removed file is reported until the pool no longer lists it, because the write that removes it from the list may
//!   fail.

use std::{collections::BTreeMap, time::Duration};

use crate::domain::names::{DatastorePath, ObjectKey};

/// Least time between two tries of the same file.
pub(super) const AGAIN: Duration = Duration::from_secs(600);

/// Files that are gone, and files kept with the reason.
pub type PruneNews = (Vec<DatastorePath>, Vec<(DatastorePath, String)>);

/// The result of the last try.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LastTry {
    /// Not known yet. With the earlier reason why it stayed, and whether that was reported.
    Tried(Option<(String, bool)>),
    /// Removed, and still on the pool's list.
    Gone,
    /// Kept for that reason. The flag says whether that was reported.
    Kept(String, bool),
}

/// One pool's retention: when each listed file was last tried, and the result.
#[derive(Clone, Debug, Default)]
pub(super) struct PruneLog(BTreeMap<DatastorePath, (Duration, LastTry)>);

impl PruneLog {
    /// Takes in the pool's list, and forgets files that are no longer on it.
    pub(super) fn listed(&mut self, prunable: &[DatastorePath]) {
        self.0.retain(|path, _| prunable.contains(path));
    }

    /// The files to try now. Files that must stay are noted with the reason.
    pub(super) fn begin(
        &mut self,
        prunable: &[DatastorePath],
        used: &BTreeMap<DatastorePath, ObjectKey>,
        now: Duration,
    ) -> Vec<DatastorePath> {
        let mut tries = Vec::new();
        for path in prunable {
            let tried = self.0.get(path).map(|(at, _)| *at);
            if tried.is_some_and(|at| now.saturating_sub(at) < AGAIN) {
                continue;
            }
            if let Some(pool) = used.get(path) {
                self.kept(path.clone(), format!("pool {pool} uses it"), now);
            } else if !is_ours(path) {
                let why = "its name is not `<sha256>.iso`, so it is not ours to remove";
                self.kept(path.clone(), why.to_owned(), now);
            } else {
                let before = self.reason(path);
                self.0.insert(path.clone(), (now, LastTry::Tried(before)));
                tries.push(path.clone());
            }
        }
        tries
    }

    /// Takes in a result. `true`: there is something to report to the pool.
    pub(super) fn ended(
        &mut self,
        gone: Vec<DatastorePath>,
        kept: Vec<(DatastorePath, String)>,
        now: Duration,
    ) -> bool {
        for path in gone {
            self.0.insert(path, (now, LastTry::Gone));
        }
        for (path, reason) in kept {
            self.kept(path, reason, now);
        }
        let news = |outcome: &LastTry| matches!(outcome, LastTry::Gone | LastTry::Kept(_, false));
        self.0.values().any(|(_, outcome)| news(outcome))
    }

    /// The whole try failed.
    pub(super) fn failed(&mut self, reason: &str, now: Duration) -> bool {
        let tried = |(path, (_, outcome)): (&DatastorePath, &(Duration, LastTry))| {
            matches!(outcome, LastTry::Tried(_)).then(|| (path.clone(), reason.to_owned()))
        };
        let kept = self.0.iter().filter_map(tried).collect();
        self.ended(Vec::new(), kept, now)
    }

    /// Why it stayed the last time, and whether that was reported.
    fn reason(&self, path: &DatastorePath) -> Option<(String, bool)> {
        match &self.0.get(path)?.1 {
            LastTry::Tried(before) => before.clone(),
            LastTry::Kept(reason, heard) => Some((reason.clone(), *heard)),
            LastTry::Gone => None,
        }
    }

    fn kept(&mut self, path: DatastorePath, reason: String, now: Duration) {
        let before = self.reason(&path).filter(|(why, _)| *why == reason);
        let heard = before.is_some_and(|(_, heard)| heard);
        self.0.insert(path, (now, LastTry::Kept(reason, heard)));
    }

    /// The removed files of the pool's list, and what was not reported yet of the others.
    pub(super) fn news(&mut self) -> PruneNews {
        let (mut gone, mut kept) = PruneNews::default();
        for (path, (_, outcome)) in &mut self.0 {
            match outcome {
                LastTry::Gone => gone.push(path.clone()),
                LastTry::Kept(reason, heard @ false) => {
                    *heard = true;
                    kept.push((path.clone(), reason.clone()));
                }
                _ => {}
            }
        }
        (gone, kept)
    }
}

/// Whether the name looks like one that the cache gives (`<sha256>.iso`).
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
        assert_eq!(log.begin(&list, &BTreeMap::new(), now), list);
        assert!(log.ended(
            vec![a.clone()],
            vec![(b.clone(), "mounted".to_owned())],
            now
        ));
        // The write that follows fails: the list stays as it is.
        for kept in [vec![(b.clone(), "mounted".to_owned())], vec![], vec![]] {
            log.listed(&list);
            let tries = log.begin(&list, &BTreeMap::new(), now);
            assert!(tries.is_empty(), "once in ten minutes");
            assert_eq!(log.news(), (vec![a.clone()], kept));
        }
        let left = [b];
        log.listed(&left);
        assert_eq!(log.news(), (vec![], vec![]));
        // If it is listed once more, it is looked for once more.
        log.listed(&list);
        assert_eq!(log.begin(&list, &BTreeMap::new(), now), list[..1]);
    }

    #[test]
    fn a_file_is_tried_once_in_a_while_and_a_reason_told_once() {
        let list = [path('a')];
        let mut log = PruneLog::default();
        for (after, tried, reason, news) in [
            (0, true, "mounted", true),
            (599, false, "", false),
            (600, true, "mounted", false),
            (1200, true, "locked", true),
        ] {
            let now = Duration::from_secs(after);
            let tries = log.begin(&list, &BTreeMap::new(), now);
            assert_eq!(!tries.is_empty(), tried, "{after}");
            assert_eq!(log.failed(reason, now), news, "{after}");
            let told = news.then(|| (list[0].clone(), reason.to_owned()));
            assert_eq!(log.news().1, Vec::from_iter(told), "{after}");
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
        let (gone, kept) = log.news();
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
