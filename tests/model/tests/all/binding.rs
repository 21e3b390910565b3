//! Hosts that exist before anybody asks: a VM that begins another life, and free hosts that change their pool. Each world is
//! explored completely, with each fault.

use std::collections::BTreeSet;

use agent_forge_model::{
    binding::{CHANGED_HANDS, SERVES_AGAIN},
    explore,
    machines::Machines,
    upstream::Deed,
    verdict::PROMISES,
    world::Fault,
};

use crate::machines::is_drawn;

const SERVED: &str = "a machine is served";
const GONE: &str = "a machine is gone with all that was its";

fn explore(what: &str, model: &Machines) -> BTreeSet<&'static str> {
    explore::explore(model, 2, &PROMISES, |_, _| true).told(what, &PROMISES)
}

/// That state was met, and no promise is broken.
fn keeps_all(found: &BTreeSet<&'static str>, met: &'static str) {
    let broken = PROMISES.iter().any(|promise| found.contains(promise));
    assert!(found.contains(met) && !broken, "{found:?}");
}

fn each_fault() -> impl Iterator<Item = (String, Vec<Fault>)> {
    let one = |fault: &Fault| (format!("{fault:?}").to_lowercase(), vec![*fault]);
    let none = ("no faults".to_owned(), Vec::new());
    std::iter::once(none).chain(Fault::ALL.iter().map(one))
}

/// The same VM serves twice, or the second machine gets another one. No promise is broken.
#[test]
fn a_vm_that_begins_another_life_keeps_all_promises() {
    for (what, faults) in each_fault() {
        let found = explore(
            &format!("recycle, {what}"),
            &Machines::recycle(false, &faults),
        );
        assert_eq!(found, BTreeSet::from([SERVED, SERVES_AGAIN]), "{what}");
    }
}

/// What a next life adds to the decisions of the VM actor, arrow by arrow.
#[test]
fn the_chart_of_a_next_life_is_what_the_code_does() {
    let drawn = |mut model: Machines| {
        model.draws = true;
        explore("a chart", &model);
        model.chart()
    };
    let mut reclaims = Machines::recycle(false, &[]);
    reclaims.start.reclaims = true;
    let mut switched_on = Machines::recycle(false, &[]);
    switched_on.people.push(Deed::SwitchesOn);
    let all = &drawn(reclaims) | &drawn(switched_on);
    let once = drawn(Machines::capped(true, &[]));
    let page = include_str!("../../../../docs/explanation/late-binding.md");
    is_drawn(page, 1, &(&all - &once));
}

/// The service reclaims the host, and its guest returns by itself. The operator waits, and then starts it anew.
#[test]
fn a_host_that_the_service_reclaims_keeps_all_promises() {
    for (what, faults) in [
        ("no faults", &[][..]),
        ("crash", &[Fault::Crash]),
        ("lag", &[Fault::Lag]),
    ] {
        let mut model = Machines::recycle(false, faults);
        model.start.reclaims = true;
        let found = explore(&format!("recycle, reclaims, {what}"), &model);
        assert_eq!(found, BTreeSet::from([SERVED, SERVES_AGAIN]), "{what}");
    }
}

/// An administrator switches the VM on before it is ready, or before that is recorded.
#[test]
fn a_vm_that_somebody_switches_on_between_its_lives_keeps_all_promises() {
    for (what, faults) in [("no faults", &[][..]), ("crash", &[Fault::Crash])] {
        let mut model = Machines::recycle(false, faults);
        model.people.push(Deed::SwitchesOn);
        let found = explore(&format!("recycle, switched on, {what}"), &model);
        keeps_all(&found, SERVES_AGAIN);
    }
}

/// A VM whose machine goes before its guest registers is for the buffer. One that may serve is not, whatever a late watch
/// shows.
#[test]
fn a_vm_in_the_making_that_nobody_needs_keeps_all_promises() {
    for (what, faults) in each_fault() {
        let model = Machines::capped(false, &faults);
        let found = explore(&format!("buffer, one VM, {what}"), &model);
        keeps_all(&found, SERVED);
    }
}

/// The same, and another machine waits for that VM.
#[test]
fn a_vm_in_the_making_that_another_machine_gets_keeps_all_promises() {
    for (what, faults) in each_fault() {
        let model = Machines::capped(true, &faults);
        let found = explore(&format!("two machines, one VM, {what}"), &model);
        keeps_all(&found, SERVED);
    }
}

/// A free host goes to a machine of another pool, or that one gets a VM of its own. It has one owner whatever happens.
#[test]
fn a_host_that_changes_its_pool_keeps_all_promises() {
    for (what, faults) in each_fault() {
        let model = Machines::reassign(&[("b", "q")], false, &faults);
        let found = explore(&format!("reassign, {what}"), &model);
        assert_eq!(
            found,
            BTreeSet::from([SERVED, GONE, CHANGED_HANDS]),
            "{what}"
        );
    }
}

/// The operator looks, somebody else acts, and only then the operator's request arrives.
#[test]
fn what_happens_between_a_look_and_its_effect_breaks_no_promise() {
    let worlds = [
        ("recycle", Machines::recycle(false, &[])),
        ("reassign", Machines::reassign(&[("b", "q")], false, &[])),
        ("buffer, one VM", Machines::capped(false, &[])),
        ("two machines, one VM", Machines::capped(true, &[])),
    ];
    for (what, mut model) in worlds {
        model.interleaved = true;
        let found = explore(&format!("{what}, interleaved"), &model);
        keeps_all(&found, SERVED);
    }
}

/// Two pools want the free host of a third one: one of them gets it, and the other makes a VM.
#[test]
fn of_two_that_want_a_host_one_gets_it() {
    for (what, faults) in [("no faults", &[][..]), ("crash", &[Fault::Crash])] {
        let mut model = Machines::reassign(&[("b", "q"), ("c", "r")], false, faults);
        model.people.clear();
        let found = explore(&format!("reassign, two takers that stay, {what}"), &model);
        keeps_all(&found, CHANGED_HANDS);
    }
}

/// A machine of the pool that has the host wants it too.
#[test]
fn the_pool_that_has_the_host_may_want_it_too() {
    let mut model = Machines::reassign(&[("a", "p"), ("b", "q")], false, &[]);
    model.people.clear();
    let found = explore("reassign, the lender wants it too, both stay", &model);
    keeps_all(&found, CHANGED_HANDS);
}
