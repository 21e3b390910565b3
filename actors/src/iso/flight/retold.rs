//! A copy of the table that shares nothing with it.

use std::time::Duration;

use tokio::sync::watch;

use super::{FlightTable, Keep, Phase};
use crate::iso::msg::{PublishPermit, Wanted};

impl FlightTable {
    /// The same table with other moments and other flight numbers in it, and with channels of its own to the flight under
    /// way: where that hears that it is for nobody, and that it may publish. When a pool asked last stays as it is.
    pub(in crate::iso) fn retold(
        &self,
        moment: &dyn Fn(Duration) -> Duration,
        id: &dyn Fn(u64) -> u64,
    ) -> (Self, Wanted, Option<watch::Receiver<bool>>) {
        let (mut table, mut leaves, mut wanted) = (self.clone(), None, Wanted::default());
        for entry in table.entries.values_mut() {
            for interest in entry.wants.values_mut() {
                interest.prune.retell(moment);
            }
            match &mut entry.phase {
                Phase::Flying {
                    began,
                    seen,
                    woken,
                    publishes,
                    ..
                } => {
                    (*began, *woken) = (began.map(moment), woken.map(moment));
                    *seen = moment(*seen);
                    if let Some((_, leave)) = publishes {
                        let (fresh, wait) = PublishPermit::pair();
                        (*leave, leaves) = (fresh, Some(wait));
                    }
                }
                Phase::Ready {
                    looked,
                    check_at,
                    compared,
                    ..
                } => {
                    for at in [looked, check_at, compared] {
                        *at = moment(*at);
                    }
                }
                Phase::Idle | Phase::Checking | Phase::Queued => {}
            }
        }
        for interest in table.left.values_mut() {
            interest.prune.retell(moment);
        }
        table.backoffs.retell(moment);
        table.first_ask = table.first_ask.map(moment);
        if let Some(running) = &mut table.running {
            running.id = id(running.id);
            let (keep, fresh) = Wanted::pair();
            wanted = fresh;
            running.wanted = running.wanted.is_some().then(|| Keep::new(keep));
        }
        let checks = std::mem::take(&mut table.checks);
        table.checks = checks.into_iter().map(|(n, look)| (id(n), look)).collect();
        let running = table.running.as_ref().map(|r| r.id);
        table.last_id = table
            .checks
            .keys()
            .copied()
            .chain(running)
            .max()
            .unwrap_or(0);
        (table, wanted, leaves)
    }
}
