//! One content of the flight table: who wants it, and how far it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    domain::{
        failure::ReconcileError,
        names::{DatastorePath, ObjectKey},
    },
    iso::{
        msg::{FlightNews, IsoFile, IsoPlace, IsoState, IsoWant, PublishPermit},
        retention::PruneLog,
    },
    ports::iso_source::IsoUrl,
};

/// Too early to tell a speed before that.
const RATE_AFTER: Duration = Duration::from_millis(500);

/// What makes two wants the same transfer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Content {
    pub(super) directory: DatastorePath,
    source_key: String,
    force_token: Option<String>,
}

/// What failures are counted by.
pub(super) type Source = (DatastorePath, String);

impl Content {
    pub(super) fn of(want: &IsoWant) -> Self {
        Self {
            directory: want.directory.clone(),
            source_key: want.source_key.clone(),
            force_token: want.force_token.clone(),
        }
    }

    /// Would this want be served by it, were it not for the directory?
    pub(super) fn is_same_content(&self, want: &IsoWant) -> bool {
        self.source_key == want.source_key && self.force_token == want.force_token
    }

    pub(super) fn source(&self) -> Source {
        (self.directory.clone(), self.source_key.clone())
    }
}

/// How far a content is.
#[derive(Clone, Debug, Default)]
pub(super) enum Phase {
    /// Nothing known, or failed and backing off.
    #[default]
    Idle,
    /// A recorded file is being looked for.
    Checking,
    /// Waits for the one lane of mutating flights.
    Queued,
    /// On its way; `began`: when the first byte came; `woken`: when its pools last heard of progress; `publishes`: all of
    /// it has come, and no record lists its final name yet.
    Flying {
        done: u64,
        total: Option<u64>,
        began: Option<Duration>,
        seen: Duration,
        woken: Option<Duration>,
        publishes: Option<(IsoPlace, PublishPermit)>,
    },
    /// There. `brought_for`: the pool that it was uploaded for, none where it was found. Looked at when `looked` says, well or
    /// in vain, and again after `check_at`; `checking` while that is under way; `compared` with the source then.
    Ready {
        file: IsoFile,
        brought_for: Option<ObjectKey>,
        checking: bool,
        looked: Duration,
        check_at: Duration,
        check_failures: u32,
        compared: Duration,
    },
}

/// One pool's interest.
#[derive(Clone, Debug)]
pub(super) struct Interest {
    /// What it asked for last.
    pub(super) want: IsoWant,
    /// When it asked last.
    pub(super) asked: Duration,
    /// Its retention.
    pub(super) prune: PruneLog,
}

/// A content that somebody wants, or that still flies.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    pub(super) wants: BTreeMap<ObjectKey, Interest>,
    pub(super) phase: Phase,
    /// Pool whose Secret and URL the last failed flight used: the next one is another's turn.
    pub(super) last_failed: Option<ObjectKey>,
    /// What each pool's last flight that failed was begun with, since one succeeded.
    pub(super) failed_with: BTreeMap<ObjectKey, Input>,
    /// Whether its source's word tells anything.
    pub(super) evidence: Evidence,
    /// Where it was looked for last and not found, until it is there.
    pub(super) gone: Option<DatastorePath>,
}

/// What came of fetching again because the source said that it has other bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    /// Digest of what it said that of, until that is fetched again.
    outdated: Option<String>,
    /// How often in a row it said so when it was asked.
    changes: u32,
}

/// A source that has other bytes each time it is asked, so often in a row, is fetched no more.
const CHANGES: u32 = 2;

impl Evidence {
    /// A flight ended with this news; `looked_at`: it was a look at a file of that digest, else a transfer. The same bytes
    /// although the source said that it has others, or others at each question, are evidence: the file is volatile then.
    pub(super) fn note(
        &mut self,
        looked_at: Option<String>,
        asked_source: bool,
        news: &mut FlightNews,
    ) {
        match (news, looked_at) {
            (FlightNews::Outdated, had) => (self.outdated, self.changes) = (had, self.changes + 1),
            (FlightNews::Arrived(..), Some(_)) if asked_source => *self = Self::default(),
            (FlightNews::Arrived(file, _), None) => {
                if let Some(had) = self.outdated.take() {
                    file.volatile |= had == file.sha256 || self.changes >= CHANGES;
                }
            }
            _ => {}
        }
    }
}

/// What people mend when a transfer fails: URL and certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Input {
    url: IsoUrl,
    ca: Result<Option<String>, ReconcileError>,
}

impl Input {
    pub(super) fn of(want: &IsoWant) -> Self {
        Self {
            url: want.source.clone(),
            ca: want.ca_pem.clone(),
        }
    }
}

impl Entry {
    pub(super) fn asked(&mut self, want: IsoWant, now: Duration) {
        match self.wants.get_mut(&want.pool) {
            Some(interest) => {
                interest.prune.listed(&want.prunable);
                (interest.want, interest.asked) = (want, now);
            }
            None => {
                let interest = Interest {
                    asked: now,
                    prune: PruneLog::default(),
                    want,
                };
                self.wants.insert(interest.want.pool.clone(), interest);
            }
        }
        self.settle_leave();
    }

    /// Lets the flight publish if a record lists the name; ends its waiting where nobody wants it any more.
    pub(super) fn settle_leave(&mut self) {
        let Phase::Flying { publishes, .. } = &mut self.phase else {
            return;
        };
        let wants = &self.wants;
        let waits = publishes.take_if(|(place, _)| {
            wants.is_empty() || wants.values().any(|i| i.want.listed.contains(&place.path))
        });
        if let Some((_, leave)) = waits
            && !wants.is_empty()
        {
            leave.give();
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready { .. })
    }

    /// That file is what it has, or was until it was found missing.
    pub(super) fn is_of(&self, path: &DatastorePath) -> bool {
        match &self.phase {
            Phase::Ready { file, .. } => file.path == *path,
            _ => self.gone.as_ref() == Some(path),
        }
    }

    /// That pool asked for this last, with that file in its record.
    pub(super) fn was_asked(&self, pool: &ObjectKey, path: &DatastorePath) -> bool {
        let asked = self.wants.get(pool).and_then(|i| i.want.known.as_ref());
        asked.is_some_and(|known| known.path == *path)
    }

    /// Bytes of it are on their way.
    pub(super) fn brings(&self) -> bool {
        matches!(self.phase, Phase::Flying { began: Some(_), .. })
    }

    /// Something failed, and not with this. Of pools that name different certificates each has its chance once: were only
    /// the last failure compared, they would take turns without a pause.
    pub(super) fn is_another_chance(&self, input: &Input) -> bool {
        !self.failed_with.is_empty() && !self.failed_with.values().any(|failed| failed == input)
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self.phase, Phase::Queued)
    }

    /// What that pool's retention lets go, less what has just come: its record does not call that the current one yet.
    pub(super) fn lets_go(&self, pool: &ObjectKey) -> Vec<DatastorePath> {
        let here = match &self.phase {
            Phase::Ready { file, .. } => Some(&file.path),
            _ => None,
        };
        let listed = self.wants.get(pool).into_iter();
        let listed = listed.flat_map(|interest| &interest.want.prunable);
        listed.filter(|path| Some(*path) != here).cloned().collect()
    }

    /// Nobody wants it, and nothing will report on it.
    pub(super) fn is_forgotten(&self) -> bool {
        self.wants.is_empty() && !matches!(self.phase, Phase::Flying { .. } | Phase::Checking)
    }

    pub(super) fn pools(&self) -> BTreeSet<ObjectKey> {
        self.wants.keys().cloned().collect()
    }

    /// For whom an upload counts that was begun for `pool`: for that one, or, where it has left, for the first of those
    /// who stayed. So each upload is told as one once.
    pub(super) fn heir(&self, pool: ObjectKey) -> Option<ObjectKey> {
        if self.wants.contains_key(&pool) {
            return Some(pool);
        }
        self.wants.keys().next().cloned()
    }

    /// What the next flight is begun with: one pool's want, and the directories of all of them. A pool that is served from
    /// another one's directory begins no flight, and a dead one of its own may have left something in its own.
    pub(super) fn next_flight(&self) -> Option<IsoWant> {
        let mut want = self.next_want()?.clone();
        let all = self.wants.values().flat_map(|i| &i.want.directories);
        want.directories = all.cloned().collect();
        Some(want)
    }

    /// The want that the next flight uses: in turn after the pool of the last failure, so that one pool's bad Secret
    /// does not keep the others from trying theirs.
    fn next_want(&self) -> Option<&IsoWant> {
        let after = |last: &ObjectKey| self.wants.iter().find(|(key, _)| *key > last);
        let next = self
            .last_failed
            .as_ref()
            .and_then(after)
            .or_else(|| self.wants.iter().next());
        next.map(|(_, interest)| &interest.want)
    }

    /// What that pool's VMs would get and does not lie there.
    pub(super) fn lost_by(&self, pool: &ObjectKey) -> Option<DatastorePath> {
        let gone = self.gone.as_ref().filter(|_| !self.is_ready())?;
        let used = self.wants.get(pool)?.want.used.as_ref()?;
        (used == gone).then(|| gone.clone())
    }

    /// What that pool is told; `None` while nothing is known or it failed.
    pub(super) fn answer(&mut self, pool: &ObjectKey) -> Option<IsoState> {
        match &self.phase {
            Phase::Idle => None,
            Phase::Checking | Phase::Queued => Some(IsoState::Fetching {
                done: 0,
                total: None,
                rate: None,
            }),
            Phase::Flying {
                publishes: Some((place, _)),
                ..
            } => Some(IsoState::Publishing(place.clone())),
            Phase::Flying {
                done,
                total,
                began,
                seen,
                ..
            } => Some(IsoState::Fetching {
                done: *done,
                total: *total,
                rate: began.and_then(|began| rate(*done, seen.saturating_sub(began))),
            }),
            Phase::Ready {
                file, brought_for, ..
            } => {
                let news = self
                    .wants
                    .get_mut(pool)
                    .map(|interest| interest.prune.take_news());
                let (pruned, prune_failures) = news.unwrap_or_default();
                Some(IsoState::Ready {
                    file: file.clone(),
                    reused: brought_for.as_ref() != Some(pool),
                    pruned,
                    prune_failures,
                })
            }
        }
    }

    /// Bytes per second of what is on its way, once that can be told.
    pub(super) fn speed(&self) -> Option<u64> {
        match &self.phase {
            Phase::Flying {
                done, began, seen, ..
            } => began.and_then(|began| rate(*done, seen.saturating_sub(began))),
            _ => None,
        }
    }

    /// Reason and sentence while it is not there; `None` when it is, or when nothing but a failure is known.
    pub(super) fn waiting_on(&self) -> Option<(&'static str, String)> {
        match &self.phase {
            Phase::Idle | Phase::Ready { .. } => None,
            Phase::Checking => Some(("ISOChecking", "looking for the recorded file".to_owned())),
            Phase::Queued => Some((
                "ISOQueued",
                "another flight to this datastore runs".to_owned(),
            )),
            Phase::Flying {
                publishes: Some((place, _)),
                ..
            } => Some((
                "ISOPublishing",
                format!("{} is to stand in a pool's status first", place.path),
            )),
            Phase::Flying {
                done,
                total: Some(total),
                ..
            } => Some(("ISOFetching", format!("{done} of {total} bytes are there"))),
            Phase::Flying { total: None, .. } => {
                Some(("ISOFetching", "waiting for the source".to_owned()))
            }
        }
    }
}

/// Bytes per second.
fn rate(bytes: u64, time: Duration) -> Option<u64> {
    let milliseconds = u64::try_from(time.as_millis()).ok()?;
    (time >= RATE_AFTER).then(|| bytes.saturating_mul(1000) / milliseconds.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_come_again_although_the_source_has_others_are_volatile() {
        let file = |sha256: &str| IsoFile {
            path: DatastorePath::new("ds", "x.iso").expect("path"),
            sha256: sha256.to_owned(),
            size: 1,
            uploaded_at: jiff::Timestamp::UNIX_EPOCH,
            validators: Default::default(),
            volatile: false,
        };
        let look = Some("a".to_owned());
        // Each line: a look said that the source has others; a second look found the file, and asked the source or not.
        for (second, bytes, volatile) in [
            (None, "a", true),
            (None, "b", false),
            (Some(false), "a", true),
            (Some(true), "a", false),
        ] {
            let mut evidence = Evidence::default();
            evidence.note(look.clone(), true, &mut FlightNews::Outdated);
            if let Some(asked) = second {
                let mut there = FlightNews::Arrived(file("a"), true);
                evidence.note(look.clone(), asked, &mut there);
            }
            let mut came = FlightNews::Arrived(file(bytes), false);
            evidence.note(None, true, &mut came);
            let told = matches!(came, FlightNews::Arrived(file, _) if file.volatile);
            assert_eq!(told, volatile, "{second:?} {bytes}");
        }
        // Others at each question.
        let mut evidence = Evidence::default();
        for (bytes, volatile) in [("b", false), ("c", true)] {
            evidence.note(look.clone(), true, &mut FlightNews::Outdated);
            let mut came = FlightNews::Arrived(file(bytes), false);
            evidence.note(None, true, &mut came);
            let told = matches!(came, FlightNews::Arrived(file, _) if file.volatile);
            assert_eq!(told, volatile, "{bytes}");
        }
    }

    #[test]
    fn a_speed_is_told_once_there_is_one() {
        for (bytes, milliseconds, wanted) in [
            (1_000_000, 499, None),
            (1_000_000, 500, Some(2_000_000)),
            (0, 5000, Some(0)),
            (u64::MAX, 60_000, Some(u64::MAX / 60_000)),
        ] {
            assert_eq!(rate(bytes, Duration::from_millis(milliseconds)), wanted);
        }
    }
}
