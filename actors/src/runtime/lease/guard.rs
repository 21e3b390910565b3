//! The predecessor's Lease. While another process renews it, the operator does not act. While the operator acts, no other
//! process gets it.
//!
//! Guarantees
//! - Only the process that holds our own Lease asks for it, so at most one of our replicas tries to get it.
//! - If one of our replicas holds it, the new leader takes it at once. That replica has lost our own Lease, and does not act
//!   any more.
//! - Losing it ends leadership, like losing our own Lease.
//!
//! Assumption: no process of the predecessor has a name with the mark of [`Kin`]. Its names begin with a host's name, which
//! has no `/`.

/// Name of the predecessor's Lease.
pub const LEASE: &str = "agent-forge-operator.containeroo.ch";

/// Identifies our own replicas in the predecessor's Lease: a mark with the namespace of our own Lease. Installations in two
/// namespaces are strangers to each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kin(String);

impl Kin {
    /// The replicas whose own Lease is in `namespace`.
    #[must_use]
    pub fn of(namespace: &str) -> Self {
        Self(format!("agent-forge/{namespace}/"))
    }

    /// How `me` is named in the predecessor's Lease.
    #[must_use]
    pub fn named(&self, me: &str) -> String {
        format!("{}{me}", self.0)
    }

    /// Whether `holder` is one of our replicas.
    #[must_use]
    pub fn includes(&self, holder: &str) -> bool {
        holder.starts_with(&self.0)
    }
}

/// How the operator treats a Lease of the predecessor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// Identifies our own replicas in it.
    pub kin: Kin,
    /// Whether the operator holds it while it acts. Else it only looks at it before the first act.
    pub holds: bool,
    /// A user named its namespace. A process that may not read it does not act.
    pub required: bool,
}

/// Why a Lease of the predecessor that the operator does not hold blocks nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clear {
    /// It has no holder, and the operator does not need to hold it.
    Free,
    /// The API server forbade every read for the duration of a lease, and no user asked for a look at it.
    Forbidden,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::runtime::lease::{Election, Lost, Next, Record, Timing};

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn election(holds: bool, required: bool) -> Election {
        let timing = Timing::new(s(45), s(15), s(2)).expect("fits together");
        let guard = Guard {
            kin: Kin::of("ours"),
            holds,
            required,
        };
        Election::guarding("me", timing, guard)
    }

    fn held_by(holder: &str, version: &str) -> Option<Record> {
        Some(Record {
            version: version.to_owned(),
            holder: Some(holder.to_owned()).filter(|h| !h.is_empty()),
            duration: s(15),
        })
    }

    fn replace(version: &str, taken: bool) -> Next {
        Next::Replace {
            version: version.to_owned(),
            taken,
        }
    }

    #[test]
    fn only_what_carries_our_mark_and_our_namespace_is_one_of_us() {
        let kin = Kin::of("ours");
        for (holder, is_kin) in [
            ("agent-forge/ours/agent-forge-5d9f-x_uid", true),
            ("agent-forge/theirs/agent-forge-5d9f-x_uid", false),
            ("agent-forge/ours-too/agent-forge-5d9f-x_uid", false),
            ("agent-forge-operator-6c8d-y_3f2a", false),
            ("agent-forge_3f2a", false),
            ("agent-forge", false),
            ("", false),
        ] {
            assert_eq!(kin.includes(holder), is_kin, "{holder}");
        }
        assert!(kin.includes(&kin.named("me")));
    }

    #[test]
    fn a_predecessor_is_waited_out_and_one_of_us_is_not() {
        for (holder, next) in [
            ("agent-forge-operator-6c8d-y_3f2a", Next::Wait(s(2))),
            ("agent-forge/theirs/x_uid", Next::Wait(s(2))),
            ("agent-forge/ours/x_uid", replace("7", true)),
            ("agent-forge/ours/me", replace("7", false)),
            ("", replace("7", true)),
        ] {
            let mut e = election(true, false);
            e.shown(s(10), held_by(holder, "7"));
            assert_eq!(e.next(s(10)), next, "{holder:?}");
            let waits = next == Next::Wait(s(2));
            assert_eq!(e.stranger(), waits.then_some(holder), "{holder:?}");
        }
        let mut e = election(true, false);
        e.shown(s(10), held_by("predecessor", "7"));
        e.shown(s(24), held_by("predecessor", "7"));
        assert_eq!(e.next(s(24)), Next::Wait(s(2)));
        // Renewed: its time starts again.
        e.shown(s(26), held_by("predecessor", "8"));
        e.shown(s(40), held_by("predecessor", "8"));
        assert_eq!(e.next(s(40)), Next::Wait(s(2)));
        e.shown(s(41), held_by("predecessor", "8"));
        assert_eq!(e.next(s(41)), replace("8", true));
        e.shown(s(42), None);
        assert_eq!(e.next(s(42)), Next::Create);
    }

    #[test]
    fn nothing_is_taken_from_one_of_ours_by_who_slept_past_our_own_lease() {
        use crate::runtime::lease::Leadership;
        let mut e = election(true, false);
        e.shown(s(40), held_by("agent-forge/ours/x_uid", "7"));
        let own = Leadership::Leading { until: s(46) };
        assert_eq!(e.next_beside(s(40), &own), replace("7", true));
        // A call may take 5 s.
        e.shown(s(41), held_by("agent-forge/ours/x_uid", "7"));
        assert_eq!(e.next_beside(s(41), &own), Next::Wait(s(2)));
        assert_eq!(e.next_beside(s(41), &Leadership::Standby), Next::Wait(s(2)));
        // A look needs no lease.
        assert_eq!(e.next_beside(s(60), &own), Next::Read);
    }

    #[test]
    fn a_predecessor_that_takes_it_back_ends_leadership() {
        let mut e = election(true, false);
        e.shown(s(0), None);
        e.written(s(0), "1".to_owned());
        assert_eq!(e.leads_until(), Some(s(45)));
        e.failed(s(3));
        e.shown(s(5), held_by("predecessor", "2"));
        let taken = Lost::Taken("predecessor".to_owned());
        assert_eq!(e.next(s(5)), Next::Lost(taken));
    }

    #[test]
    fn who_only_looks_waits_as_well_and_writes_nothing() {
        let mut e = election(false, false);
        assert_eq!(e.next(s(0)), Next::Read);
        e.shown(s(0), held_by("predecessor", "7"));
        assert_eq!(e.next(s(0)), Next::Wait(s(2)));
        for free in [None, held_by("", "8"), held_by("agent-forge/ours/x", "8")] {
            let mut e = election(false, false);
            e.shown(s(0), free);
            assert_eq!(e.next(s(0)), Next::Clear(Clear::Free));
        }
        e.shown(s(15), held_by("predecessor", "7"));
        assert_eq!(e.next(s(15)), Next::Clear(Clear::Free), "expired");
    }

    #[test]
    fn a_lease_that_nobody_asked_for_and_that_stays_forbidden_is_in_nobodys_way() {
        for (required, holds) in [(false, true), (false, false), (true, true), (true, false)] {
            let mut e = election(holds, required);
            e.forbidden(s(0));
            e.forbidden(s(44));
            assert_eq!(e.next(s(44)), Next::Wait(s(2)));
            e.forbidden(s(46));
            let clear = Next::Clear(Clear::Forbidden);
            let next = if required { Next::Wait(s(2)) } else { clear };
            assert_eq!(e.next(s(46)), next, "required: {required}");
        }
        // Any other answer starts the time again.
        for other in [
            (|e: &mut Election| e.failed(s(30))) as fn(&mut Election),
            |e| e.shown(s(30), held_by("predecessor", "7")),
        ] {
            let mut e = election(true, false);
            e.forbidden(s(0));
            other(&mut e);
            e.forbidden(s(46));
            assert_eq!(e.next(s(46)), Next::Wait(s(2)));
        }
    }
}
