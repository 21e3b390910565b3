//! Space that VMs in the making will need. Pure.
//!
//! A VM is in the making while its VsphereAgent records a place and no VM. That holds for any time, and after a restart.
//! Memory bridges two gaps: the record of a new place appears late, and so do the files of a new VM in the figures of a
//! datastore.

use std::{collections::BTreeMap, time::Duration};

use agent_forge_crds::agent::VsphereAgent;

use crate::ports::effect::Subject;

/// How long a reservation outlives its last reason. By then the view shows the record, and the datastore's figures show the
/// VM.
pub const LAG: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Reservation {
    /// Id of the datastore.
    datastore: String,
    bytes: u64,
    /// When (monotonic) it last had a reason.
    at: Duration,
}

/// Reservations at one vCenter: one per VsphereAgent, by the subject of its effects.
#[derive(Debug, Default)]
pub struct Reservations(BTreeMap<Subject, Reservation>);

/// What a VsphereAgent's VM means for space.
enum SpaceUse<'a> {
    /// The operator will create it on this datastore (id).
    Making(&'a str),
    /// The operator will not create it.
    Dropped,
    /// It exists, or has no place yet.
    Other,
}

impl Reservations {
    /// Reserves the space of a place that was found.
    pub fn answered(&mut self, whose: Subject, datastore: String, bytes: u64, now: Duration) {
        let reservation = Reservation {
            datastore,
            bytes,
            at: now,
        };
        self.0.insert(whose, reservation);
    }

    /// Compares the reservations with the records of `server`. `space`: bytes that a VM needs, if known.
    pub fn look<'a>(
        &mut self,
        server: &str,
        children: impl IntoIterator<Item = &'a VsphereAgent>,
        space: impl Fn(&VsphereAgent) -> Option<u64>,
        now: Duration,
    ) {
        let mut before = std::mem::take(&mut self.0);
        for child in children {
            let key = Subject::vm(child);
            let old = before.remove(&key);
            let kept = match stage(child, server) {
                SpaceUse::Dropped => None,
                SpaceUse::Other => old.filter(|r| now.saturating_sub(r.at) < LAG),
                SpaceUse::Making(datastore) => space(child).or(old.map(|r| r.bytes)).map(|bytes| {
                    let datastore = datastore.to_owned();
                    Reservation {
                        datastore,
                        bytes,
                        at: now,
                    }
                }),
            };
            self.0.extend(kept.map(|reservation| (key, reservation)));
        }
        // The rest of `before` has no VsphereAgent any more.
    }

    /// Bytes by datastore id, without those of `asking`: a VM that is placed again needs its space once.
    #[must_use]
    pub fn beside(&self, asking: &Subject) -> BTreeMap<String, u64> {
        let mut reserved = BTreeMap::<String, u64>::new();
        for (_, reservation) in self.0.iter().filter(|(whose, _)| *whose != asking) {
            let bytes = reserved.entry(reservation.datastore.clone()).or_default();
            *bytes = bytes.saturating_add(reservation.bytes);
        }
        reserved
    }
}

fn stage<'a>(child: &'a VsphereAgent, server: &str) -> SpaceUse<'a> {
    let vm = child.status.as_ref().and_then(|s| s.vm.as_ref());
    if vm.is_some_and(|vm| vm.moref.is_some()) {
        return SpaceUse::Other;
    }
    if child.metadata.deletion_timestamp.is_some() {
        return SpaceUse::Dropped;
    }
    let here = vm.filter(|vm| vm.server.as_deref() == Some(server));
    let place = here.and_then(|vm| vm.placement.as_ref());
    match place.and_then(|p| p.datastore_ref.as_deref()) {
        Some(datastore) => SpaceUse::Making(datastore),
        None => SpaceUse::Other,
    }
}

#[cfg(test)]
mod tests {
    use agent_forge_crds::agent::VsphereAgentStatus;

    use super::*;
    use crate::testing::{child, child_with_vm, delete, intent, with};

    const SERVER: &str = "vc.example";
    const DATASTORE: &str = "datastore-1";

    fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn key(name: &str) -> Subject {
        Subject::vm(&child(name))
    }

    /// Its place is recorded.
    fn making(name: &str) -> VsphereAgent {
        with(child(name), |c| {
            let vm = intent(c, 1);
            c.status = Some(VsphereAgentStatus {
                vm: Some(vm),
                ..VsphereAgentStatus::default()
            });
        })
    }

    struct Desk(Reservations);

    impl Desk {
        /// Bytes that are reserved beside `asking` when these are the VsphereAgents.
        fn reserved(&mut self, asking: &str, children: &[VsphereAgent], now: Duration) -> u64 {
            self.0.look(SERVER, children, |_| Some(100), now);
            let reserved = self.0.beside(&key(asking));
            reserved.values().sum()
        }
    }

    fn desk() -> Desk {
        Desk(Reservations::default())
    }

    #[test]
    fn a_vm_in_the_making_holds_its_space_however_long_it_takes() {
        let mut desk = desk();
        // No place was found since the start: the record is enough.
        for now in [0, 60, 3600, 7200] {
            let all = [making("a"), making("b")];
            assert_eq!(desk.reserved("x", &all, s(now)), 200, "{now}");
            let by_store = desk.0.beside(&key("b"));
            assert_eq!(by_store, BTreeMap::from([(DATASTORE.to_owned(), 100)]));
        }
    }

    #[test]
    fn an_answer_counts_before_it_is_recorded_and_once_when_it_is() {
        let mut desk = desk();
        desk.0
            .answered(key("a"), DATASTORE.to_owned(), 70, Duration::ZERO);
        assert_eq!(desk.reserved("x", &[child("a")], s(119)), 70);
        assert_eq!(desk.reserved("x", &[making("a")], s(119)), 100);
        // A reservation whose VM was never created.
        let mut desk = Desk(Reservations::default());
        desk.0
            .answered(key("a"), DATASTORE.to_owned(), 70, Duration::ZERO);
        assert_eq!(desk.reserved("x", &[child("a")], s(120)), 0);
    }

    #[test]
    fn a_vm_that_is_there_is_left_to_the_datastores_figures_after_a_while() {
        let mut desk = desk();
        assert_eq!(desk.reserved("x", &[making("a")], s(300)), 100);
        let made = [child_with_vm("a")];
        assert_eq!(desk.reserved("x", &made, s(419)), 100);
        assert_eq!(desk.reserved("x", &made, s(420)), 0);
    }

    #[test]
    fn a_vm_that_will_not_be_made_holds_nothing() {
        let mut desk = desk();
        assert_eq!(desk.reserved("x", &[making("a")], s(0)), 100);
        let leaving = with(making("a"), delete);
        assert_eq!(desk.reserved("x", &[leaving], s(1)), 0);
        assert_eq!(desk.reserved("x", &[making("a")], s(2)), 100);
        assert_eq!(desk.reserved("x", &[], s(3)), 0, "it is gone");
    }

    #[test]
    fn space_elsewhere_is_none_here_and_what_it_takes_is_remembered() {
        let mut desk = desk();
        let elsewhere = with(making("a"), |c| {
            let vm = c.status.as_mut().and_then(|s| s.vm.as_mut());
            vm.expect("recorded").server = Some("other.example".to_owned());
        });
        assert_eq!(desk.reserved("x", &[elsewhere], s(0)), 0);
        assert_eq!(desk.reserved("x", &[making("a")], s(1)), 100);
        // Its pool is gone, or asks for impossible values.
        desk.0.look(SERVER, &[making("a")], |_| None, s(2));
        assert_eq!(desk.0.beside(&key("x"))[DATASTORE], 100);
    }
}
