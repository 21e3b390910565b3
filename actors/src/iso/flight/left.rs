//! Pools that have left this datastore: nothing is wanted here but that their files go.

use std::{collections::BTreeSet, time::Duration};

use super::{FORGET, FlightTable, Interest, Start, Task, Work};
use crate::{
    domain::names::ObjectKey,
    iso::{
        msg::{FlightNews, IsoWant},
        retention::{PruneLog, PruneNews},
    },
};

impl FlightTable {
    /// A pool lets its `prunable` files go, all that it has here. Answers with what came of it so far.
    pub(in crate::iso) fn clear(
        &mut self,
        want: IsoWant,
        now: Duration,
    ) -> (PruneNews, Vec<Start>) {
        self.first_ask.get_or_insert(now);
        let settled = self.is_settled(now);
        let pool = want.pool.clone();
        self.left
            .retain(|_, i| now.saturating_sub(i.asked) < FORGET);
        // What it wanted here itself would hold its files back for ever; so would who asks no more, where nobody else asks.
        for entry in self.entries.values_mut() {
            entry
                .wants
                .retain(|key, i| *key != pool && now.saturating_sub(i.asked) < FORGET);
        }
        self.let_go(None, now);
        let interest = self.left.entry(pool.clone()).or_insert_with(|| Interest {
            asked: now,
            prune: PruneLog::default(),
            want: want.clone(),
        });
        (interest.want, interest.asked) = (want, now);
        interest.prune.listed(&interest.want.prunable);
        if settled && interest.prune.due(&interest.want.prunable, now) {
            interest.prune.queued = true;
            self.queue.push_back(Work::Clear(pool));
        }
        let news = interest.prune.take_news();
        (news, self.launch(now).into_iter().collect())
    }

    pub(super) fn launch_clear(
        &mut self,
        pool: &ObjectKey,
        now: Duration,
    ) -> Option<(IsoWant, Task)> {
        let used = self.paths_in_use();
        let Interest { want, prune, .. } = self.left.get_mut(pool)?;
        prune.queued = false;
        let paths = prune.begin(&want.prunable, &used, now);
        (!paths.is_empty()).then(|| (want.clone(), Task::Clear(paths)))
    }

    pub(super) fn cleared(
        &mut self,
        pool: &ObjectKey,
        news: FlightNews,
        now: Duration,
    ) -> BTreeSet<ObjectKey> {
        let Some(interest) = self.left.get_mut(pool) else {
            return BTreeSet::new();
        };
        let told = match news {
            FlightNews::Pruned(gone, kept) => interest.prune.ended(gone, kept, now),
            FlightNews::Failed(trouble) => interest.prune.failed(&trouble.message, now),
            _ => false,
        };
        if told {
            BTreeSet::from([pool.clone()])
        } else {
            BTreeSet::new()
        }
    }
}
