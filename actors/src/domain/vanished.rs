//! A Machine that is gone while its Agent is still bound. This happens when the provider releases a paused AgentMachine.
//! "Gone" does not mean "free" then: the cluster may have moved to another hub, and the VM may be a node there. Pure.

use agent_forge_crds::external::agent::Agent;

use super::{machine_state::MachineState, managed_vm::ManagedVm};

/// What the end of a Machine means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vanished {
    /// The Machine did not end in this way.
    No,
    /// It ended in this way, and the operator has not seen its Agent unbound since.
    Held,
    /// The record shows such an end and is out of date: the Agent was unbound, or the Machine exists.
    Over,
}

/// Why the operator keeps such a VM, for messages.
pub const STAYS: &str = "its Machine went and its Agent was not unbound, as where a paused AgentMachine is deleted: the VM may be \
     a node of another hub, and stays until its Agent is seen unbound. If it may go, set the annotation \
     agent-forge.containeroo.ch/force-delete=true here and delete this VsphereAgent; to keep the VM without its record, set \
     cleanupPolicy Retain in the pool and delete this VsphereAgent";

/// Decides from the record of `child` and from the state of its Machine. `own`: the Agent that runs on the VM. `paused`: its
/// AgentMachine was paused when last seen. `may_be_node`: the VM has served, or its guest may be a node.
#[must_use]
pub fn vanished(
    child: &ManagedVm,
    machine_state: &MachineState,
    own: Option<&Agent>,
    paused: bool,
    may_be_node: bool,
) -> Vanished {
    let vm = child.vm();
    let marked = vm.is_some_and(|vm| vm.machine_vanished_paused == Some(true));
    let is_free = || own.is_some_and(|a| !a.is_claimed_or_bound());
    match machine_state {
        MachineState::Alive | MachineState::Leaving if marked => Vanished::Over,
        MachineState::Alive | MachineState::Leaving => Vanished::No,
        MachineState::Gone if !marked && !paused => Vanished::No,
        MachineState::Unknown(_) | MachineState::Nobody | MachineState::Buffer if !marked => {
            Vanished::No
        }
        _ if is_free() => Vanished::Over,
        _ if may_be_node => Vanished::Held,
        _ => Vanished::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, claim, with};

    #[test]
    fn only_a_free_agent_or_a_machine_that_is_there_ends_it() {
        use MachineState::{Alive, Gone, Leaving, Nobody};
        use Vanished::{Held, No, Over};
        let unknown = MachineState::Unknown("why".to_owned());
        let world = World::discovered("a");
        let free = world.agents[0].clone();
        let bound = with(free.clone(), |a| claim(a, &world.agent_machines[0]));
        let child = |marked: bool| {
            let world = with(World::discovered("a"), |w| {
                let vm = w.children[0].status.as_mut().and_then(|s| s.vm.as_mut());
                vm.expect("vm").machine_vanished_paused = marked.then_some(true);
            });
            world.observed().children[0].clone()
        };
        let (plain, marked) = (child(false), child(true));
        for (what, child, machine_state, own, paused, node, expected) in [
            ("it lives", &plain, &Alive, Some(&bound), true, true, No),
            ("it goes", &plain, &Leaving, Some(&bound), true, true, No),
            ("gone, never paused", &plain, &Gone, None, false, true, No),
            ("gone, Agent gone", &plain, &Gone, None, true, true, Held),
            ("Agent bound", &plain, &Gone, Some(&bound), true, true, Held),
            ("set free", &plain, &Gone, Some(&free), true, true, Over),
            ("never served", &plain, &Gone, None, true, false, No),
            ("on record", &marked, &Gone, None, false, true, Held),
            ("free since", &marked, &Gone, Some(&free), false, true, Over),
            ("unknown", &plain, &unknown, None, true, true, No),
            ("unknown now", &marked, &unknown, None, false, true, Held),
            ("nobody's now", &marked, &Nobody, None, false, true, Held),
            ("back again", &marked, &Alive, None, false, true, Over),
        ] {
            let is = vanished(child, machine_state, own, paused, node);
            assert_eq!(is, expected, "{what}");
        }
    }
}
