//! Small worlds, each explored completely: one machine that comes and may go at any moment, and one thing that goes
//! wrong.

use std::collections::BTreeSet;

use agent_forge_model::{
    explore,
    machines::{Arrows, Machines},
    upstream::Deed,
    verdict::{NO_DOUBLE, PROMISES},
    world::Fault,
};
use stateright::{Checker, Model};

/// Explores everything. Returns the names of the properties that were met.
fn explore(what: &str, model: &Machines) -> BTreeSet<&'static str> {
    explore::explore(model, 2, &PROMISES, |_, _| true).told(what, &PROMISES)
}

fn one(faults: &[Fault]) -> Machines {
    Machines::new(&["b"], false, vec![Deed::Leaves("b".to_owned())], 0, faults)
}

/// Both ways out were met, and no promise was broken. A broken promise would have ended the search early.
fn keeps_all(what: &str, model: &Machines) {
    let found = explore(what, model);
    let met = BTreeSet::from([
        "a machine is gone with all that was its",
        "a machine is served",
    ]);
    assert_eq!(found, met);
}

#[test]
fn a_crash_at_any_moment_breaks_no_promise() {
    keeps_all("crash", &one(&[Fault::Crash]));
}

#[test]
fn a_lost_request_breaks_no_promise() {
    keeps_all("loss", &one(&[Fault::Loss]));
}

#[test]
fn a_request_that_arrives_twice_breaks_no_promise() {
    keeps_all("duplicate", &one(&[Fault::Duplicate]));
}

#[test]
fn a_request_whose_outcome_is_unknown_breaks_no_promise() {
    keeps_all("unknown outcome", &one(&[Fault::Unknown]));
}

/// The operator waits for a foreign VM that has the name, and never touches it. It replaces a VM whose guest never
/// registers. The decisions of VM actor and pool in these worlds equal the charts of docs/explanation/actors.md, arrow
/// by arrow.
#[test]
fn the_charts_in_the_docs_are_what_the_code_does() {
    let leaves = || Deed::Leaves("b".to_owned());
    let mut foreign = Machines::new(&["b"], true, vec![leaves(), Deed::Renames], 0, &[]);
    foreign.draws = true;
    keeps_all("foreign VM", &foreign);
    let mut attempts = Machines::new(&["b"], false, vec![leaves()], 2, &[]);
    attempts.draws = true;
    keeps_all("two attempts", &attempts);
    let of_vm = &foreign.chart() | &attempts.chart();
    let of_pool = &foreign.pool_chart() | &attempts.pool_chart();
    let page = include_str!("../../../../docs/explanation/actors.md");
    is_drawn(page, 0, &of_vm);
    is_drawn(page, 1, &of_pool);
}

/// The n-th chart of that page has these arrows.
pub fn is_drawn(page: &str, n: usize, arrows: &Arrows) {
    let drawn: Arrows = page
        .split("```mermaid\nstateDiagram-v2\n")
        .nth(n + 1)
        .and_then(|rest| rest.split("```").next())
        .into_iter()
        .flat_map(str::lines)
        .filter_map(|line| line.trim().split_once(" --> "))
        .map(|(from, to)| (from.to_owned(), to.to_owned()))
        .collect();
    let text = |arrows: Vec<&(String, String)>| {
        let lines = arrows
            .iter()
            .map(|(from, to)| format!("    {from} --> {to}\n"));
        lines.collect::<String>()
    };
    assert!(
        *arrows == drawn,
        "a chart in docs/explanation is another one than the code's.\nmissing there:\n{}not in the code:\n{}",
        text(arrows.difference(&drawn).collect()),
        text(drawn.difference(arrows).collect()),
    );
}

/// Where all faults are explored, both searches see the same states. Otherwise ours sees fewer states, and no other
/// promise breaks.
#[test]
fn stateright_sees_the_same_world() {
    for (faults, fewer) in [(&[][..], false), (&[Fault::Loss][..], true)] {
        let theirs = one(faults).checker().threads(2).spawn_bfs().join();
        let ours = explore::explore(&one(faults), 2, &PROMISES, |_, _| true);
        let states = theirs.unique_state_count();
        assert_eq!(ours.states < states, fewer, "{} of {states}", ours.states);
        assert!(ours.states <= states && ours.whole);
        let found: BTreeSet<_> = theirs.discoveries().into_keys().collect();
        assert_eq!(ours.found.into_keys().collect::<BTreeSet<_>>(), found);
    }
}

/// A pass that ran before does not run again. Here each pass also runs on the whole world and has to give the same
/// result.
#[test]
fn passes_depend_on_their_part_of_the_world_alone() {
    let leaves = vec![Deed::Leaves("b".to_owned()), Deed::Renames];
    let mut two = Machines::new(&["a", "b"], true, leaves, 0, &[]);
    two.verify = true;
    keeps_all("two machines, a foreign VM", &two);
    let mut fault = Machines::new(&["a", "b"], true, vec![], 0, &[Fault::Loss, Fault::Lag]);
    fault.verify = true;
    let found = explore("two machines that stay, a foreign VM, loss and lag", &fault);
    assert_eq!(found, BTreeSet::from(["a machine is served"]));
    let mut all = one(&[Fault::Crash, Fault::Lag, Fault::Unknown]);
    all.verify = true;
    keeps_all("crash, lag and unknown outcome", &all);
}

#[test]
fn a_lag_breaks_no_promise() {
    keeps_all("lag", &one(&[Fault::Lag]));
}

/// The operator looks, somebody else acts, and only then the operator's request arrives.
#[test]
fn what_happens_between_a_look_and_its_effect_breaks_no_promise() {
    let interleaved = |mut model: Machines| {
        model.interleaved = true;
        model
    };
    let leaves = || Deed::Leaves("b".to_owned());
    keeps_all("interleaved", &interleaved(one(&[])));
    let foreign = Machines::new(&["b"], true, vec![leaves(), Deed::Renames], 0, &[]);
    keeps_all("interleaved, foreign VM", &interleaved(foreign));
    let attempts = Machines::new(&["b"], false, vec![leaves()], 2, &[]);
    keeps_all("interleaved, two attempts", &interleaved(attempts));
    keeps_all(
        "interleaved, unknown outcome",
        &interleaved(one(&[Fault::Unknown])),
    );
    keeps_all("interleaved, lag", &interleaved(one(&[Fault::Lag])));
}

/// Acts between a look and its effect lead to states that whole passes never reach.
#[test]
fn an_act_between_a_look_and_its_effect_leads_elsewhere() {
    let states = |interleaved| {
        let mut model = one(&[]);
        model.interleaved = interleaved;
        explore::explore(&model, 2, &PROMISES, |_, _| true).states
    };
    assert!(states(true) > states(false));
}

/// A server that checks neither versions nor names makes a second VM from a late request. So the oracle can fail, and the
/// product relies on that check.
#[test]
fn a_server_that_checks_nothing_makes_a_double() {
    let mut model = one(&[Fault::Unknown]);
    model.start.lenient = true;
    let found = explore::explore(&model, 2, &[NO_DOUBLE], |_, _| true).found;
    assert!(found.contains_key(NO_DOUBLE));
}
