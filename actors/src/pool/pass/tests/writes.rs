//! Which differences of a pool's status are written at once, and how long the others wait.

use agent_forge_crds::{
    Time,
    conditions::{ConditionStatus, ConditionUpdate, set_condition},
};

use super::*;

/// A status that says of one condition that it holds or does not.
fn saying(type_: &str, holds: bool) -> VsphereAgentPoolStatus {
    let mut status = VsphereAgentPoolStatus::default();
    let update = ConditionUpdate {
        type_,
        status: ConditionStatus::from(holds),
        reason: if holds { "Fine" } else { "Wrong" },
        message: "as told",
        observed_generation: None,
    };
    set_condition(&mut status.conditions, &update, &Time(at(0)));
    status
}

#[test]
fn a_changed_condition_is_written_at_once_but_for_hosts_that_suffice() {
    for type_ in POOL_CONDITIONS {
        let (no, yes) = (saying(type_, false), saying(type_, true));
        assert!(urgent(&yes, &no), "{type_}");
        assert_eq!(urgent(&no, &yes), type_ != CAPACITY_SATISFIED, "{type_}");
        assert!(!urgent(&no, &no) && !urgent(&yes, &yes), "{type_}");
    }
}

#[test]
fn counts_wait_the_longer_the_more_vsphere_agents_there_are() {
    let waits = [0, 1, 4, 6, 10, 50, 60, 100, 5000].map(|n| quiet(n).as_millis());
    let expected = [2000, 2000, 2000, 3000, 5000, 5000, 6000, 10_000, 10_000];
    assert_eq!(waits, expected);
}
