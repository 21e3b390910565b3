//! What the table says: to a pool, to the flights, and to people.

use std::time::Duration;

use agent_forge_crds::conditions::Reason;

use super::{
    FlightTable,
    entry::{Content, Entry, refuses},
};
use crate::{
    domain::{failure::ErrorSource, names::ObjectKey},
    iso::msg::{IsoState, Lane},
};
impl FlightTable {
    /// The state of the transfer under way, for all flights.
    #[must_use]
    pub fn lane(&self) -> Lane {
        let Some((id, transfer)) = self.transfer() else {
            return Lane::default();
        };
        let lists = |path| {
            let mut wants = self.wants(&transfer.content);
            wants.any(|(_, i)| i.want.listed.contains(path))
        };
        Lane {
            transfer: Some(id),
            wanted: !transfer.recalled,
            listed: transfer.place.as_ref().is_some_and(|p| lists(&p.path)),
        }
    }

    /// Bytes per second of the transfer under way, once that is known.
    pub(in crate::iso) fn speed(&self) -> Option<u64> {
        self.transfer()?.1.speed()
    }

    /// Whether any work is under way.
    pub(in crate::iso) fn is_flying(&self) -> bool {
        self.running.is_some() || self.contents.values().any(|e| e.look.is_some())
    }

    /// Why files are not there yet, as reason and sentence. Also the highest number of failures in a row.
    pub(in crate::iso) fn waiting_on(&self) -> (Vec<(Reason, String)>, u32) {
        let say = |(content, entry): (&Content, &Entry)| {
            let flies = self.transfer().filter(|(_, t)| t.content == *content);
            let (reason, text) = match (&entry.there, flies, &entry.backoff) {
                (Some(_), ..) => return None,
                (_, Some((_, transfer)), _) => transfer.waiting_on(),
                _ if entry.look.is_some() => (
                    Reason::IsoChecking,
                    "looking for the recorded file".to_owned(),
                ),
                (.., Some(backoff)) => {
                    let trouble = &backoff.trouble;
                    (trouble.reason.clone(), trouble.message.clone())
                }
                _ => {
                    let text = "another flight to this datastore runs";
                    (Reason::IsoQueued, text.to_owned())
                }
            };
            Some((reason, format!("{}: {text}", content.directory)))
        };
        let failures = self.contents.values().filter_map(|e| e.backoff.as_ref());
        let most = failures.map(|b| b.failures).max();
        (
            self.contents.iter().filter_map(say).collect(),
            most.unwrap_or_default(),
        )
    }

    /// A failure of vCenter stays the answer until bytes of the next try arrive there. Otherwise each try in an outage
    /// would look like its end.
    pub(super) fn answer(
        &mut self,
        content: &Content,
        pool: &ObjectKey,
        now: Duration,
    ) -> IsoState {
        let listed = self.lane().listed;
        let nothing = IsoState::Fetching {
            done: 0,
            total: None,
            rate: None,
        };
        let transfer = self
            .running
            .as_ref()
            .and_then(|r| Some((&r.pool, r.transfer.as_ref()?)));
        let transfer = transfer.filter(|(_, t)| !t.recalled);
        let (Some(entry), Some(interest)) = (self.contents.get(content), self.pools.get_mut(pool))
        else {
            return nothing;
        };
        if let Some(gone) = entry.lost_by(&interest.want) {
            return IsoState::Lost(gone);
        }
        if let Some(there) = &entry.there
            && !refuses(&interest.want, &there.tokens)
        {
            let (pruned, prune_failures) = interest.prune.news();
            return IsoState::Ready {
                file: there.file.clone(),
                reused: there.brought_for.as_ref() != Some(pool),
                pruned,
                prune_failures,
            };
        }
        let own = transfer
            .filter(|(_, t)| t.content == *content)
            .map(|(_, t)| t);
        let brings = own.is_some_and(|t| t.began.is_some());
        let trouble = entry.backoff.as_ref().map(|b| &b.trouble);
        match (own, transfer, trouble) {
            (_, _, Some(trouble)) if trouble.side == ErrorSource::Vsphere && !brings => {
                IsoState::Failed(trouble.clone())
            }
            (Some(own), ..) => own.state(listed),
            (_, _, Some(trouble)) if entry.holds(now) => IsoState::Failed(trouble.clone()),
            (_, Some((first, _)), _) if entry.look.is_none() && first != pool => {
                IsoState::Queued(first.clone())
            }
            _ => nothing,
        }
    }
}
