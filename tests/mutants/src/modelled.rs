//! The mutants that the model checker finds: in which small world, and which promise breaks.

use std::collections::BTreeSet;

use agent_forge_actors::mutants;
use agent_forge_model::{
    explore,
    machines::{Machines, Planted},
    upstream::Deed,
    verdict::{ENDS, NO_HARM, NO_LEAK, PROMISES},
    world::Fault,
};

use crate::Mutant;

/// A world of the model checker, small enough to be explored in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallWorld {
    /// Its name in the table.
    pub name: &'static str,
    /// Machines that wait. A person may delete `b` at any moment.
    pub machines: &'static [&'static str],
    /// A foreign VM has the first machine's name until a person renames it.
    pub foreign: bool,
    /// Hours that may pass while a guest does not register.
    pub hours: u8,
    /// What may go wrong, each once.
    pub faults: &'static [Fault],
    /// Hosts are there before anybody asks. Then machines, foreign VMs and hours are as that world has them.
    pub late_binding: Option<LateBinding>,
}

/// How hosts come to be there before anybody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateBinding {
    /// VMs begin another life.
    Recycle,
    /// They change their pool.
    Reassign,
}

const fn world(name: &'static str, faults: &'static [Fault]) -> SmallWorld {
    SmallWorld {
        name,
        machines: &["b"],
        foreign: false,
        hours: 0,
        faults,
        late_binding: None,
    }
}

const fn late_binding(name: &'static str, kind: LateBinding) -> SmallWorld {
    SmallWorld {
        late_binding: Some(kind),
        ..world(name, &[])
    }
}

/// The worlds in which mutants are hunted.
pub const WORLDS: &[SmallWorld] = &[
    world("one machine", &[]),
    SmallWorld {
        foreign: true,
        ..world("a foreign VM of that name", &[])
    },
    SmallWorld {
        hours: 2,
        ..world("guests that never come", &[])
    },
    world("a lost request", &[Fault::Loss]),
    world("a crash", &[Fault::Crash]),
    world("an unknown outcome", &[Fault::Unknown]),
    world("a lagging watch", &[Fault::Lag]),
    world(
        "a crash and an unknown outcome",
        &[Fault::Crash, Fault::Unknown],
    ),
    SmallWorld {
        machines: &["a", "b"],
        ..world("two machines", &[])
    },
    late_binding("a host that is recycled", LateBinding::Recycle),
    late_binding("a host of another pool", LateBinding::Reassign),
];

/// A mutant can make a world endless.
const MOST: usize = 20_000;

/// A mutant, the world of [`WORLDS`] that finds it, and the promise that breaks there.
pub type Modelled = (Mutant, &'static str, &'static str);

/// The mutants that the model checker finds. The others need what the small worlds do not have.
pub const CASES: &[Modelled] = &[
    (Mutant::OffIsGone, "one machine", NO_LEAK),
    (Mutant::OrderIsProof, "one machine", NO_HARM),
    (Mutant::AnyUnapproved, "one machine", NO_HARM),
    (Mutant::RandomNames, "a lagging watch", NO_HARM),
    (Mutant::GoneMustBeSeen, "one machine", ENDS),
    (Mutant::ReadyOnly, "one machine", ENDS),
    (Mutant::LabelsFirst, "one machine", ENDS),
    (Mutant::AgentFirst, "one machine", ENDS),
    (Mutant::NameIsProof, "a foreign VM of that name", ENDS),
    (Mutant::NotResumed, "a lost request", ENDS),
    (Mutant::UnseenIsUnmade, "a lost request", ENDS),
    (Mutant::WaitingIsSurplus, "two machines", ENDS),
    (Mutant::LifeUnread, "a host that is recycled", ENDS),
    (Mutant::StaleIsBack, "a host that is recycled", NO_HARM),
    (Mutant::LentStays, "a host of another pool", ENDS),
    (Mutant::UnmarkedIsTaken, "a host of another pool", NO_LEAK),
];

/// The world of that name.
///
/// # Panics
/// There is none.
#[must_use]
pub fn named(name: &str) -> &'static SmallWorld {
    let found = WORLDS.iter().find(|w| w.name == name);
    found.unwrap_or_else(|| panic!("no world {name}"))
}

/// The promises that break in that world with that mutant. The search ends at the first one of `until`. Empty: the model
/// does not find the mutant there.
#[must_use]
pub fn hunt(mutant: Mutant, world: &SmallWorld, until: &[&'static str]) -> BTreeSet<&'static str> {
    let mut people = vec![Deed::Leaves("b".to_owned())];
    people.extend(world.foreign.then_some(Deed::Renames));
    let (names, faults) = (world.machines, world.faults);
    let mut model = match world.late_binding {
        None => Machines::new(names, world.foreign, people, world.hours, faults),
        Some(LateBinding::Recycle) => Machines::recycle(false, faults),
        Some(LateBinding::Reassign) => Machines::reassign(&[("b", "q")], false, faults),
    };
    model.planted = Some(Planted {
        number: mutant as usize,
        switch_on: Box::new(move || mutants::set(Some(mutant))),
    });
    let explored = explore::explore(&model, 1, until, |states, _| states < MOST);
    mutants::set(None);
    let broken = explored.found.into_keys();
    broken.filter(|name| PROMISES.contains(name)).collect()
}
