//! Both sides of each edge: the step, or the reason to hold, and after how many seconds the actor looks again.

use super::*;

use Said::{Does, Waits};

mod down;
mod up;

/// A step's name, or the reason of a hold and when it ends.
#[derive(Clone, Debug, PartialEq)]
enum Said {
    /// The name of the step.
    Does(&'static str),
    /// Why, and after how many seconds it is looked at again.
    Waits(Reason, Option<u64>),
}

const LOOKUP: Said = Does("vm.lookup");
const RECORD: Said = Does("vm.record");
const SETTLED: Said = Does("vm.settled");
const POWER_OFF: Said = Does("vm.power_off");
const DESTROY: Said = Does("vm.submit_destroy");
const AGAIN: Said = Does("vm.next_attempt");
const ENDED: Said = Does("vm.remove_finalizer");
const AMBIGUOUS: Said = Waits(Reason::AmbiguousVm, Some(30));

fn said(f: &Facts<'_>) -> Said {
    match next(f) {
        Step::Hold { reason, again, .. } => Waits(reason, again.map(|left| left.as_secs())),
        step => Does(step.name()),
    }
}

fn each<const N: usize>(rows: [(&str, Facts<'_>, Said); N]) {
    for (what, facts, expected) in rows {
        assert_eq!(said(&facts), expected, "{what}");
    }
}

fn absent(proofs: u8) -> Ownership {
    Ownership::Absent { proofs }
}

/// A VM with the name that ours was to get, seen that many seconds ago.
fn namesake(ago: u64) -> Ownership {
    foreign(FoundBy::Name(None), ago)
}

/// A VM with our uuid, seen that many seconds ago.
fn twin(ago: u64) -> Ownership {
    foreign(FoundBy::Uuid, ago)
}

fn foreign(met: FoundBy, ago: u64) -> Ownership {
    Ownership::Foreign {
        what: "somebody's (vm-9)".to_owned(),
        met,
        at: Duration::from_secs(100 - ago),
    }
}

fn two() -> Ownership {
    let copy = |id| MoRef::new("VirtualMachine", id);
    Ownership::Several(vec![copy("vm-1"), copy("vm-2")])
}

fn off_on_record() -> VmStatus {
    with(running(&child("a")), |v| {
        v.power_state = Some("poweredOff".to_owned());
    })
}

/// A record without MAC addresses.
fn unaddressed() -> VmStatus {
    with(running(&child("a")), |v| v.mac_addresses.clear())
}

fn predecessors() -> VmStatus {
    with(running(&child("a")), |v| v.attempt = None)
}

fn unreadable() -> VmStatus {
    with(running(&child("a")), |v| v.bios_uuid = Some("?".to_owned()))
}
