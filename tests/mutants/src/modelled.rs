//! The small worlds of the model checker that find mutants.

use std::collections::BTreeSet;

use agent_forge_actors::mutants;
use agent_forge_model::{
    explore,
    machines::{Machines, Planted},
    upstream::Deed,
    verdict::PROMISES,
    world::Fault,
};

use crate::{Mutant, cases::Modelled};

/// A world, small enough to be explored in seconds.
type World = (&'static str, fn() -> Machines);

fn one_machine(faults: &[Fault]) -> Machines {
    Machines::new(&["b"], false, vec![Deed::Leaves("b".to_owned())], 0, faults)
}

/// The worlds in which mutants are hunted, by name. They break no promise without a mutant
/// (tests/model/tests/all/machines.rs and binding.rs).
pub const WORLDS: [World; 3] = [
    ("one machine", || one_machine(&[])),
    ("a lagging watch", || one_machine(&[Fault::Lag])),
    ("a host that is recycled", || Machines::recycle(false, &[])),
];

/// A mutant can make a world endless.
const MOST: usize = 20_000;

/// The promises that break in that world with that mutant. The search ends at the promise of the case.
///
/// # Panics
/// There is no such world.
#[must_use]
pub fn hunt(case: &Modelled) -> BTreeSet<&'static str> {
    let found = WORLDS.iter().find(|(name, _)| *name == case.world);
    let (_, world) = found.unwrap_or_else(|| panic!("no world {}", case.world));
    let mutant: Mutant = case.mutant;
    let mut model = world();
    model.planted = Some(Planted {
        number: mutant as usize,
        switch_on: Box::new(move || mutants::set(Some(mutant))),
    });
    let explored = explore::explore(&model, 1, &[case.promise], |states, _| states < MOST);
    mutants::set(None);
    let broken = explored.found.into_keys();
    broken.filter(|name| PROMISES.contains(name)).collect()
}
