//! What a flight's news changes, and whom it wakes.

use std::{collections::BTreeSet, time::Duration};

use super::{
    Content, FlightTable, Input, PROGRESS_WAKE, Phase, RECHECK, Running, Work, backoff::delay,
};
use crate::{
    domain::{failure::ReconcileError, names::ObjectKey},
    iso::msg::{FlightNews, IsoFile, IsoPlace, PublishPermit},
};

impl FlightTable {
    pub(super) fn progress(
        &mut self,
        id: u64,
        bytes: u64,
        of: Option<u64>,
        now: Duration,
    ) -> BTreeSet<ObjectKey> {
        let Some(Running {
            work: Work::Transfer(content),
            ..
        }) = self.running.as_ref().filter(|r| r.id == id)
        else {
            return BTreeSet::new();
        };
        let Some(entry) = self.entries.get_mut(content) else {
            return BTreeSet::new();
        };
        if let Phase::Flying {
            done,
            total,
            began,
            seen,
            woken,
            ..
        } = &mut entry.phase
        {
            (*done, *total, *seen) = (bytes, of, now);
            began.get_or_insert(now);
            if woken.is_none_or(|at| now.saturating_sub(at) >= PROGRESS_WAKE) {
                *woken = Some(now);
                return entry.pools();
            }
        }
        BTreeSet::new()
    }

    /// All bytes of the running transfer have come.
    pub(super) fn publishing(
        &mut self,
        id: u64,
        place: IsoPlace,
        leave: PublishPermit,
        now: Duration,
    ) -> BTreeSet<ObjectKey> {
        // One that was recalled ends: what asks for the same now gets another one.
        let running = self.running.as_ref().filter(|r| r.id == id);
        let running = running.filter(|r| r.wanted.is_some());
        let Some(Work::Transfer(content)) = running.map(|r| &r.work) else {
            return BTreeSet::new();
        };
        let Some(entry) = self.entries.get_mut(content) else {
            return BTreeSet::new();
        };
        if let Phase::Flying {
            began, publishes, ..
        } = &mut entry.phase
        {
            began.get_or_insert(now);
            *publishes = Some((place, leave));
        }
        entry.settle_leave();
        entry.pools()
    }

    pub(super) fn arrived(
        &mut self,
        content: &Content,
        file: IsoFile,
        uploaded_for: Option<ObjectKey>,
        asked_source: bool,
        now: Duration,
    ) -> BTreeSet<ObjectKey> {
        let mut wake = BTreeSet::new();
        if self.backoffs.succeeded(&content.source()) {
            // Others of this source may have been told the failure, and no backoff will wake them any more.
            wake = self.pools_without(&content.source());
        }
        let Some(entry) = self.entries.get_mut(content) else {
            return wake;
        };
        entry.last_failed = None;
        entry.failed_with.clear();
        entry.gone = None;
        // What was uploaded and is seen again stays "uploaded"; nobody needs to be woken for it.
        let (brought_for, before) = match &entry.phase {
            Phase::Ready {
                brought_for,
                compared,
                ..
            } => (brought_for.clone(), *compared),
            _ => {
                wake.extend(entry.pools());
                (uploaded_for.and_then(|pool| entry.heir(pool)), now)
            }
        };
        entry.phase = Phase::Ready {
            file,
            brought_for,
            checking: false,
            looked: now,
            check_at: now + RECHECK,
            check_failures: 0,
            compared: if asked_source { now } else { before },
        };
        wake
    }

    pub(super) fn missing(&mut self, content: &Content, now: Duration) -> BTreeSet<ObjectKey> {
        let held = self.backoffs.holds(&content.source(), now);
        let Some(entry) = self.entries.get_mut(content) else {
            return BTreeSet::new();
        };
        let wake = if held || entry.is_ready() || entry.gone.is_some() {
            entry.pools()
        } else {
            BTreeSet::new()
        };
        if held {
            entry.phase = Phase::Idle;
        } else {
            self.enqueue(content);
        }
        wake
    }

    pub(super) fn failed(
        &mut self,
        content: &Content,
        (pool, input): (ObjectKey, Input),
        trouble: ReconcileError,
        now: Duration,
    ) -> BTreeSet<ObjectKey> {
        let source = content.source();
        if let Some(entry) = self.entries.get_mut(content) {
            entry.failed_with.insert(pool.clone(), input);
            entry.last_failed = Some(pool);
            // A look that failed is no proof that the file is gone: the answer stays, the look is repeated.
            if let Phase::Ready {
                checking,
                looked,
                check_at,
                check_failures,
                ..
            } = &mut entry.phase
            {
                (*checking, *looked) = (false, now);
                *check_failures = check_failures.saturating_add(1);
                *check_at = now + delay(&trouble, *check_failures, &source);
                return BTreeSet::new();
            }
            entry.phase = Phase::Idle;
        }
        // What waits in the queue for the same source is not tried either.
        for (other, entry) in &mut self.entries {
            if entry.is_queued() && other.source() == source {
                entry.phase = Phase::Idle;
            }
        }
        let wake = self.pools_without(&source);
        self.backoffs.failed(source, trouble, now);
        wake
    }

    pub(super) fn prune_ended(
        &mut self,
        content: &Content,
        pool: &ObjectKey,
        news: FlightNews,
        now: Duration,
    ) -> BTreeSet<ObjectKey> {
        let full = self.is_short_of_space(content);
        let Some(entry) = self.entries.get_mut(content) else {
            return BTreeSet::new();
        };
        let all = entry.pools();
        let Some(interest) = entry.wants.get_mut(pool) else {
            return BTreeSet::new();
        };
        let freed = matches!(&news, FlightNews::Pruned(gone, _) if !gone.is_empty());
        let told = match news {
            FlightNews::Pruned(gone, kept) => interest.prune.ended(gone, kept, now),
            FlightNews::Failed(trouble) => interest.prune.failed(&trouble.message, now),
            _ => false,
        };
        if full && freed {
            self.backoffs.end(&content.source());
            all
        } else if told {
            BTreeSet::from([pool.clone()])
        } else {
            BTreeSet::new()
        }
    }
}
