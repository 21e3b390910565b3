//! Two pools that share one ISO, explored completely: with each fault, and with each defect that matters.

use std::collections::BTreeSet;

use agent_forge_model::{
    explore,
    flight::{Defect, ENDS, Flights, NOT_IN_USE, ONE_UPLOAD, PROMISES, WHOLE},
    world::Fault,
};

/// Explores everything, or until one of these promises is broken.
fn explore(what: &str, model: Flights, promises: &[&'static str]) -> BTreeSet<&'static str> {
    explore::explore(&model, 2, promises, |_, _| true).told(what, &PROMISES)
}

/// With a second image and a VM that boots, where the world stays small.
fn keeps_all(what: &str, faults: &[Fault], changes: bool, vm: bool) {
    let mut model = Flights::new(faults);
    (model.changes, model.vm) = (changes, vm);
    let met = model.vm.then_some("a VM boots from it");
    let found = explore(what, model, &PROMISES);
    assert_eq!(found, met.into_iter().collect());
}

#[test]
fn without_faults_both_pools_get_one_file_and_the_old_one_goes() {
    keeps_all("no faults, a VM", &[], false, true);
    let mut model = Flights::new(&[]);
    model.from_rest = true;
    let found = explore("no faults, a VM, another image", model, &PROMISES);
    assert_eq!(found, BTreeSet::from(["a VM boots from it"]));
}

#[test]
fn a_cache_that_dies_leaves_nothing_behind() {
    keeps_all("crash", &[Fault::Crash], false, false);
}

#[test]
fn a_watch_that_lags_breaks_no_promise() {
    keeps_all("lag", &[Fault::Lag], false, true);
}

#[test]
fn a_lost_request_breaks_no_promise() {
    keeps_all("loss", &[Fault::Loss], false, false);
}

#[test]
fn a_request_that_arrives_twice_breaks_no_promise() {
    keeps_all("duplicate", &[Fault::Duplicate], false, true);
}

#[test]
fn a_request_whose_outcome_is_unknown_breaks_no_promise() {
    keeps_all("unknown outcome", &[Fault::Unknown], false, false);
}

/// Each defect is found with the fewest faults that it needs.
#[test]
fn planted_defects_are_found() {
    for (defect, faults, changes, broken) in [
        (Defect::Truncates, &[][..], false, WHOLE),
        (Defect::FlightsLiveOn, &[Fault::Crash], false, ONE_UPLOAD),
        (Defect::BlindToDrives, &[], true, NOT_IN_USE),
        (Defect::LeaveAtOnce, &[Fault::Crash], true, ENDS),
        (Defect::NoSweep, &[Fault::Crash], false, ENDS),
    ] {
        let mut model = Flights::new(faults);
        model.changes = changes;
        model.vm = defect == Defect::BlindToDrives;
        model.from_rest = model.vm;
        model.defect = Some(defect);
        let found = explore(&format!("planted: {defect:?}"), model, &[broken]);
        assert!(found.contains(broken), "{defect:?}: {found:?}");
    }
}
