//! What the table knows of one content, one pool and one transfer.

use std::{collections::BTreeSet, time::Duration};

use agent_forge_crds::conditions::Reason;

use crate::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        names::{DatastorePath, ObjectKey},
    },
    iso::{
        msg::{IsoFile, IsoPlace, IsoState, IsoWant},
        retention::PruneLog,
    },
    ports::iso_source::IsoUrl,
    runtime::backoff,
};

/// Before that time no speed is known.
const RATE_AFTER: Duration = Duration::from_millis(500);
/// How long a failure holds at least: pools have to ask before the next try hides it.
pub(super) const HEARD: Duration = Duration::from_secs(2);
/// A source that has other bytes at this many checks in a row is volatile.
const CHANGES: u32 = 2;

/// What makes two wants the same transfer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Content {
    pub(super) directory: DatastorePath,
    pub(super) source_key: String,
}

impl Content {
    pub(super) fn of(want: &IsoWant) -> Self {
        Self {
            directory: want.directory.clone(),
            source_key: want.source_key.clone(),
        }
    }
}

/// What people can correct when a transfer fails: URL and certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Input(IsoUrl, Result<Option<String>, ReconcileError>);

impl Input {
    pub(super) fn of(want: &IsoWant) -> Self {
        Self(want.source.clone(), want.ca_pem.clone())
    }
}

/// What one pool wants.
#[derive(Clone, Debug)]
pub(super) struct Interest {
    /// As in its last request.
    pub(super) want: IsoWant,
    /// `None`: it only wants its files removed.
    pub(super) content: Option<Content>,
    /// When it last asked.
    pub(super) asked: Duration,
    pub(super) prune: PruneLog,
}

/// Values of the force-refresh annotation that a fetch has served, with their pools.
pub(super) type Tokens = BTreeSet<(ObjectKey, String)>;

/// The want asks for a fetch of its own, and no fetch has served it yet.
pub(super) fn refuses(want: &IsoWant, tokens: &Tokens) -> bool {
    let token = want.force_token.as_ref();
    token.is_some_and(|t| !tokens.contains(&(want.pool.clone(), t.clone())))
}

/// The flight in the lane. Without a transfer it is a prune.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) id: u64,
    pub(super) pool: ObjectKey,
    pub(super) transfer: Option<Transfer>,
}

/// A transfer under way.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub(super) content: Content,
    /// What it was started with.
    pub(super) input: Input,
    /// The tokens that it is fetched for.
    pub(super) tokens: Tokens,
    pub(super) done: u64,
    pub(super) total: Option<u64>,
    /// When the first byte came.
    pub(super) began: Option<Duration>,
    /// When the last one did.
    pub(super) seen: Duration,
    /// All bytes have come, and the file is to get that name.
    pub(super) place: Option<IsoPlace>,
    /// There was a time when no pool wanted it.
    pub(super) recalled: bool,
}

impl Transfer {
    pub(super) fn new(content: Content, input: Input, tokens: Tokens) -> Self {
        Self {
            content,
            input,
            tokens,
            done: 0,
            total: None,
            began: None,
            seen: Duration::ZERO,
            place: None,
            recalled: false,
        }
    }

    /// Bytes per second, once that is known.
    pub(super) fn speed(&self) -> Option<u64> {
        rate(self.done, self.seen.saturating_sub(self.began?))
    }

    /// `listed`: some record lists the final name.
    pub(super) fn state(&self, listed: bool) -> IsoState {
        match &self.place {
            Some(place) if !listed => IsoState::Publishing(place.clone()),
            _ => IsoState::Fetching {
                done: self.done,
                total: self.total,
                rate: self.speed(),
            },
        }
    }

    /// Reason and sentence.
    pub(super) fn waiting_on(&self) -> (Reason, String) {
        let (reason, text) = match (&self.place, self.total) {
            (Some(place), _) => (
                Reason::IsoPublishing,
                format!("a pool's status has to list {} first", place.path),
            ),
            (_, Some(total)) => (
                Reason::IsoFetching,
                format!("{} of {total} bytes are there", self.done),
            ),
            _ => (Reason::IsoFetching, "waiting for the source".to_owned()),
        };
        (reason, text)
    }
}

/// A look at a file that is under way.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) id: u64,
    pub(super) pool: ObjectKey,
    pub(super) file: IsoFile,
    /// The source is asked too.
    pub(super) compare: bool,
}

/// A file that is there, complete.
#[derive(Clone, Debug)]
pub(super) struct There {
    pub(super) file: IsoFile,
    /// The pool that it was uploaded for. `None`: it was found.
    pub(super) brought_for: Option<ObjectKey>,
    /// When it was last looked at, successfully or not.
    pub(super) looked: Duration,
    /// When it is to be looked at next.
    pub(super) due: Duration,
    /// When the source was asked last.
    pub(super) compared: Duration,
    /// The tokens that it was fetched for.
    pub(super) tokens: Tokens,
}

impl There {
    /// The file to look at, and whether to ask the source too, if it is time. A record that names a later upload takes
    /// precedence.
    pub(super) fn due(&self, want: &IsoWant, now: Duration) -> Option<(IsoFile, bool)> {
        let later = |known: &&IsoFile| {
            known.path != self.file.path && known.uploaded_at > self.file.uploaded_at
        };
        if let Some(known) = want.known.as_ref().filter(later) {
            return Some((known.clone(), want.check_every.is_some()));
        }
        let over = |at: Duration, span: Option<Duration>| {
            span.is_some_and(|span| now.saturating_sub(at) >= span)
        };
        let compare = over(self.compared, want.check_every);
        let due = compare || over(self.looked, want.look_within) || self.due <= now;
        due.then(|| (self.file.clone(), compare))
    }
}

/// Failures in a row.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    pub(super) failures: u32,
    pub(super) until: Duration,
    pub(super) trouble: ReconcileError,
}

/// A content that some pool wants.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    pub(super) there: Option<There>,
    pub(super) look: Option<Look>,
    /// It has to be fetched, whatever the records name.
    pub(super) fetch: bool,
    /// Where it was last looked for and not found, until it is there.
    pub(super) gone: Option<DatastorePath>,
    pub(super) backoff: Option<Backoff>,
    /// The pool of the last failure. The next flight is for another one.
    pub(super) failed: Option<ObjectKey>,
    /// How often in a row the source reported other bytes.
    pub(super) changes: u32,
}

impl Entry {
    pub(super) fn arrived(&mut self, there: There) {
        *self = Self {
            there: Some(there),
            changes: self.changes,
            look: self.look.take(),
            ..Self::default()
        };
    }

    pub(super) fn changed_often(&self) -> bool {
        self.changes >= CHANGES
    }

    /// It must not be tried yet.
    pub(super) fn holds(&self, now: Duration) -> bool {
        self.backoff.as_ref().is_some_and(|b| b.until > now)
    }

    pub(super) fn fail(
        &mut self,
        pool: ObjectKey,
        trouble: ReconcileError,
        content: &Content,
        now: Duration,
    ) {
        let failures = self.backoff.as_ref().map_or(0, |b| b.failures) + 1;
        let seed = format!("{}/{}", content.directory, content.source_key);
        let delay = backoff::delay(trouble.class, failures, &seed).max(HEARD);
        self.failed = Some(pool);
        self.backoff = Some(Backoff {
            failures,
            until: now + delay,
            trouble,
        });
    }

    /// It may be tried again.
    pub(super) fn mended(&mut self) {
        if let Some(backoff) = &mut self.backoff {
            backoff.until = Duration::ZERO;
        }
    }

    /// It may be tried again, if the last failure was the ISO source's.
    pub(super) fn release(&mut self) {
        let backoff = self.backoff.as_ref();
        if backoff.is_some_and(|b| b.trouble.side == ErrorSource::Iso) {
            self.mended();
        }
    }

    /// It failed because there was not enough space.
    pub(super) fn lacks_space(&self) -> bool {
        let backoff = self.backoff.as_ref();
        backoff.is_some_and(|b| b.trouble.reason == Reason::NoDiskSpace)
    }

    /// The file that the pool's VMs would get, if it is gone.
    pub(super) fn lost_by(&self, want: &IsoWant) -> Option<DatastorePath> {
        let gone = self.gone.as_ref().filter(|_| self.there.is_none())?;
        (want.used.as_ref() == Some(gone)).then(|| gone.clone())
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
