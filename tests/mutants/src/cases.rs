//! What finds each mutant, as its page says.

use agent_forge_sim::promise::Oracle;

use crate::Mutant;

/// A plan of the simulation that finds a mutant.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The mutant.
    pub mutant: Mutant,
    /// The workload, by name.
    pub workload: &'static str,
    /// The fault that it needs, as `CALL=FAULT`. It hits the first occurrence of the effect, or of the live read among
    /// those that guard an effect. Many mutants need none.
    pub fault: Option<&'static str>,
    /// The oracle that has to fail, among others.
    pub oracle: Oracle,
}

/// A small world of the model checker that finds a mutant.
#[derive(Clone, Copy, Debug)]
pub struct Modelled {
    /// The mutant.
    pub mutant: Mutant,
    /// The world of [`crate::modelled::WORLDS`], by name.
    pub world: &'static str,
    /// The promise that has to break.
    pub promise: &'static str,
}

/// The oracles of safety. A mutant that breaks none of them is planted only to see that another oracle can fail.
pub const SAFETY: [Oracle; 8] = [
    Oracle::NothingLeaks,
    Oracle::OneVmPerAgentMachine,
    Oracle::ForeignAndServingUntouched,
    Oracle::SameNumberOfVms,
    Oracle::RecordsAreKept,
    Oracle::NoSecretInObjects,
    Oracle::PausesHold,
    Oracle::VetoesHold,
];

/// All sentences of all pages: the mutant, whether the model finds it, and the names in the sentence.
fn sentences() -> impl Iterator<Item = (Mutant, bool, Vec<&'static str>)> {
    Mutant::ALL.iter().flat_map(|mutant| {
        mutant.found().iter().map(|sentence| {
            let names = sentence.split('`').skip(1).step_by(2).collect();
            (*mutant, sentence.starts_with("Found by the model"), names)
        })
    })
}

/// The plans that find mutants.
///
/// # Panics
/// A page does not name a workload and an oracle.
#[must_use]
pub fn plans() -> Vec<Case> {
    let plans = sentences().filter(|(_, by_model, _)| !by_model);
    plans
        .map(|(mutant, _, names)| {
            let (workload, fault, oracle) = match names[..] {
                [workload, oracle] => (workload, None, oracle),
                [workload, fault, oracle] => (workload, Some(fault), oracle),
                _ => panic!("{mutant:?}: {names:?}"),
            };
            Case {
                mutant,
                workload,
                fault,
                oracle: oracle
                    .parse()
                    .unwrap_or_else(|e| panic!("{mutant:?}: {e:#}")),
            }
        })
        .collect()
}

/// The small worlds that find mutants.
///
/// # Panics
/// A page does not name a world and a promise.
#[must_use]
pub fn modelled() -> Vec<Modelled> {
    let worlds = sentences().filter(|(_, by_model, _)| *by_model);
    worlds
        .map(|(mutant, _, names)| match names[..] {
            [world, promise] => Modelled {
                mutant,
                world,
                promise,
            },
            _ => panic!("{mutant:?}: {names:?}"),
        })
        .collect()
}
