//! How a report of a flight changes the table, and which pools it wakes.

use std::{collections::BTreeSet, time::Duration};

use super::{
    Content, FlightTable, RECHECK, Turn,
    entry::{Input, Look, There, Transfer},
};
use crate::{domain::names::ObjectKey, iso::msg::FlightNews, runtime::backoff::RESYNC};

impl FlightTable {
    /// A flight reports. News of flights that the table does not know is ignored.
    pub fn news(&mut self, id: u64, news: FlightNews, now: Duration) -> Turn {
        if matches!(news, FlightNews::Progress(..) | FlightNews::Publishing(_)) {
            let wake = self.moves(id, news, now);
            return Turn {
                wake,
                start: Vec::new(),
            };
        }
        let look = |(content, entry): (&Content, &mut super::Entry)| {
            let look = entry.look.take_if(|l| l.id == id)?;
            Some((content.clone(), look))
        };
        let wake = match self.running.take_if(|r| r.id == id) {
            Some(ran) => match ran.transfer {
                Some(transfer) => self.transferred(ran.pool, transfer, news, now),
                None => self.pruned(&ran.pool, news, now),
            },
            None => match self.contents.iter_mut().find_map(look) {
                Some((content, look)) => self.looked(&content, look, news, now),
                None => return Turn::default(),
            },
        };
        Turn {
            wake,
            start: self.launch(now).into_iter().collect(),
        }
    }

    /// The transfer under way has moved on.
    fn moves(&mut self, id: u64, news: FlightNews, now: Duration) -> BTreeSet<ObjectKey> {
        let running = self.running.as_mut().filter(|r| r.id == id);
        let Some(transfer) = running.and_then(|r| r.transfer.as_mut()) else {
            return BTreeSet::new();
        };
        transfer.began.get_or_insert(now);
        match news {
            FlightNews::Progress(done, total) => {
                (transfer.done, transfer.total, transfer.seen) = (done, total, now);
                BTreeSet::new()
            }
            // A recalled transfer ends.
            FlightNews::Publishing(place) if !transfer.recalled => {
                transfer.place = Some(place);
                let content = transfer.content.clone();
                self.waiting(&content)
            }
            _ => BTreeSet::new(),
        }
    }

    fn transferred(
        &mut self,
        pool: ObjectKey,
        transfer: Transfer,
        news: FlightNews,
        now: Duration,
    ) -> BTreeSet<ObjectKey> {
        let content = transfer.content;
        let all = self.waiting(&content);
        let asks = self.pools.get(&pool).map(|i| Input::of(&i.want));
        let Some(entry) = self.contents.get_mut(&content) else {
            return BTreeSet::new();
        };
        match news {
            FlightNews::Arrived(mut file, reused) => {
                file.volatile |= entry.changed_often();
                // The file counts for the pool that the transfer was started for. If that pool has left, it counts for
                // the first of the others. So one pool reports it.
                let heir = || all.get(&pool).or_else(|| all.first()).cloned();
                let brought_for = if reused { None } else { heir() };
                entry.arrived(There {
                    file,
                    brought_for,
                    looked: now,
                    due: now + RECHECK,
                    compared: now,
                    tokens: transfer.tokens,
                });
            }
            FlightNews::Failed(trouble) => {
                entry.fail(pool, trouble, &content, now);
                if asks.is_some_and(|input| input != transfer.input) {
                    // The failure does not concern what the pool asks for by now.
                    entry.release();
                }
            }
            _ => return BTreeSet::new(),
        }
        all
    }

    fn looked(
        &mut self,
        content: &Content,
        look: Look,
        news: FlightNews,
        now: Duration,
    ) -> BTreeSet<ObjectKey> {
        let all = self.waiting(content);
        let Some(entry) = self.contents.get_mut(content) else {
            return BTreeSet::new();
        };
        let of_another = |there: &There| there.file.path != look.file.path;
        match (news, &mut entry.there) {
            (FlightNews::Arrived(file, _), Some(there)) if there.file.path == file.path => {
                there.looked = now;
                if there.due <= now {
                    there.due = now + RECHECK;
                }
                if look.compare {
                    (there.compared, entry.changes) = (now, 0);
                }
                return BTreeSet::new();
            }
            (FlightNews::Arrived(file, _), _) => entry.arrived(There {
                file,
                brought_for: None,
                looked: now,
                due: now + RECHECK,
                compared: now,
                tokens: BTreeSet::new(),
            }),
            // A record named a newer file than the one that is there, and the newer one is gone.
            (FlightNews::Missing, Some(there)) if of_another(there) => return BTreeSet::new(),
            (FlightNews::Missing, _) => {
                (entry.there, entry.fetch) = (None, true);
                entry.gone = Some(look.file.path);
            }
            (FlightNews::Outdated, _) => {
                (entry.there, entry.fetch) = (None, true);
                entry.changes += 1;
            }
            // A look that failed is no proof that the file is gone.
            (FlightNews::Failed(_), Some(there)) => {
                (there.looked, there.due) = (now, now + RESYNC);
                entry.failed = Some(look.pool);
                return BTreeSet::new();
            }
            (FlightNews::Failed(trouble), None) => entry.fail(look.pool, trouble, content, now),
            _ => return BTreeSet::new(),
        }
        all
    }

    fn pruned(&mut self, pool: &ObjectKey, news: FlightNews, now: Duration) -> BTreeSet<ObjectKey> {
        let Some(interest) = self.pools.get_mut(pool) else {
            return BTreeSet::new();
        };
        let told = match news {
            FlightNews::Pruned(gone, kept) => {
                let entry = interest
                    .content
                    .as_ref()
                    .and_then(|c| self.contents.get_mut(c));
                if let Some(entry) = entry.filter(|e| e.lacks_space() && !gone.is_empty()) {
                    entry.mended();
                }
                interest.prune.ended(gone, kept, now)
            }
            FlightNews::Failed(trouble) => interest.prune.failed(&trouble.message, now),
            _ => false,
        };
        told.then(|| pool.clone()).into_iter().collect()
    }
}
