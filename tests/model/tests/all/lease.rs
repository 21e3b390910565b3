//! Two operators and one Lease, explored completely: with each fault, and with each defect that matters.

use std::{collections::BTreeSet, sync::Mutex, time::Duration};

use agent_forge_actors::runtime::lease::Timing;
use agent_forge_model::{
    explore::{self, Spare},
    lease::{Defect, LED, Label, Leases, ONE_ACTS, ONE_LEADS, PROMISES, TAKEN, World},
    world::Fault,
};
use stateright::Model;

fn world(faults: &[Fault]) -> Leases {
    let s = Duration::from_secs;
    let timing = Timing::new(s(5), s(3), s(1)).expect("fits together");
    Leases::new(timing, faults)
}

/// Explores everything, or until one of these promises is broken.
fn explore(what: &str, model: Leases, promises: &[&'static str]) -> BTreeSet<&'static str> {
    explore::explore(&model, 2, promises, |_, _| true).told(what, &PROMISES)
}

fn keeps_all(what: &str, faults: &[Fault]) {
    let found = explore(what, world(faults), &PROMISES);
    assert_eq!(found, BTreeSet::from([TAKEN]));
}

#[test]
fn without_faults_one_leads_and_hands_over() {
    keeps_all("no faults", &[]);
}

#[test]
fn an_operator_that_dies_is_waited_out() {
    keeps_all("crash", &[Fault::Crash]);
}

#[test]
fn an_operator_that_stands_still_is_waited_out() {
    keeps_all("lag", &[Fault::Lag]);
}

#[test]
fn a_lost_call_breaks_no_promise() {
    keeps_all("loss", &[Fault::Loss]);
}

#[test]
fn a_write_that_arrives_twice_breaks_no_promise() {
    keeps_all("duplicate", &[Fault::Duplicate]);
}

#[test]
fn a_write_whose_outcome_is_unknown_breaks_no_promise() {
    keeps_all("unknown outcome", &[Fault::Unknown]);
}

/// Records all worlds that the search reaches, after everything without an effect is forgotten.
struct Remembering {
    model: Leases,
    prints: Mutex<BTreeSet<u64>>,
}

impl Model for Remembering {
    type State = World;
    type Action = Label;

    fn init_states(&self) -> Vec<World> {
        self.model.init_states()
    }

    fn actions(&self, w: &World, actions: &mut Vec<Label>) {
        let mut tidy = w.clone();
        self.model.forget(&mut tidy);
        let mut prints = self.prints.lock().expect("nobody panics with it");
        prints.insert(self.model.print(&tidy));
        self.model.actions(w, actions);
    }

    fn next_state(&self, w: &World, label: Label) -> Option<World> {
        self.model.next_state(w, label)
    }
}

impl Spare for Remembering {
    fn spare(&self, w: &World) -> u8 {
        self.model.spare(w)
    }

    fn print(&self, w: &World) -> u64 {
        self.model.print(w)
    }
}

/// Forgetting during the search and forgetting at its end give the same worlds.
#[test]
fn nothing_comes_of_what_is_forgotten() {
    for fault in Fault::ALL {
        let [on_the_way, at_the_end] = [true, false].map(|forgets| {
            let mut model = world(&[fault]);
            model.forgets = forgets;
            let prints = Mutex::default();
            let remembering = Remembering { model, prints };
            explore::explore(&remembering, 2, &[], |_, _| true);
            remembering.prints.into_inner().expect("as above")
        });
        println!("{fault:?}: {} worlds", at_the_end.len());
        assert!(on_the_way == at_the_end, "{fault:?}: {}", on_the_way.len());
    }
}

/// Each defect is found with the fewest faults that it needs.
#[test]
fn planted_defects_are_found() {
    for (defect, faults, broken) in [
        (Defect::CountsFromAnswer, &[Fault::Lag][..], ONE_LEADS),
        (Defect::Impatient, &[], ONE_LEADS),
        (Defect::BlindWrites, &[], ONE_LEADS),
        (Defect::NoFence, &[Fault::Lag], ONE_ACTS),
        (Defect::LetsGoEarly, &[], ONE_ACTS),
        (Defect::Shy, &[Fault::Crash], LED),
        (Defect::KeepsIt, &[], LED),
    ] {
        let mut model = world(faults);
        model.defect = Some(defect);
        let found = explore(&format!("planted: {defect:?}"), model, &[broken]);
        assert!(found.contains(broken), "{defect:?}: {found:?}");
    }
}
