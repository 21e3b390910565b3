//! The predecessor's Lease: while somebody else renews it we do not act, and while we act nobody else gets it.
//!
//! Guarantees
//! - It is asked for only by who holds our own Lease, so of our replicas one strives for it.
//! - A hold of one of our replicas is taken at once: whoever left it there has lost our own Lease, and acts no more.
//! - Losing it ends leadership as losing our own does.
//!
//! Assumption: no process of the predecessor's has a name with [`Kin`]'s mark; its names begin with a host's, which has
//! no `/`.

/// Name of the predecessor's Lease.
pub const LEASE: &str = "agent-forge-operator.containeroo.ch";

/// Who is one of us in the predecessor's Lease: a mark with the namespace of our own Lease. Installations in two
/// namespaces are strangers to each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kin(String);

impl Kin {
    /// Those whose own Lease lies in `namespace`.
    #[must_use]
    pub fn of(namespace: &str) -> Self {
        Self(format!("agent-forge/{namespace}/"))
    }

    /// How `me` is named in the predecessor's Lease.
    #[must_use]
    pub fn named(&self, me: &str) -> String {
        format!("{}{me}", self.0)
    }

    /// Whether `holder` is one of us.
    #[must_use]
    pub fn includes(&self, holder: &str) -> bool {
        holder.starts_with(&self.0)
    }
}

/// How a Lease of the predecessor's is treated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// Who is one of us in it.
    pub kin: Kin,
    /// It is held as long as we act; else it is only looked at before the first act.
    pub holds: bool,
    /// Its namespace was named by a person: nobody acts who may not look at it.
    pub required: bool,
}

/// Why a Lease of the predecessor's that we do not hold is in nobody's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clear {
    /// Nobody holds it, and it is not to be held.
    Free,
    /// The API server forbade every look for as long as a lease lasts. Nobody asked for it to be looked at.
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
        // Renewed: its time begins anew.
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
        // To look is free.
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
        // Any other answer begins anew.
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
