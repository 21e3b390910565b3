//! Hosts about which nothing is decided: something about them is unknown, or a person decides. Pure.

use agent_forge_crds::conditions::Reason;

use super::planned::Plan;
use crate::{
    domain::{
        machine_state::MachineState,
        managed_vm::ManagedVm,
        vanished::{STAYS, Vanished, vanished},
    },
    guard,
    pool::observed::Observed,
    world::host::Host,
};

/// It is unknown whether its Machine exists: nothing is decided until that is known.
pub(super) fn is_unknown(child: &ManagedVm, machine_state: &MachineState, plan: &mut Plan) -> bool {
    let MachineState::Unknown(why) = machine_state else {
        return false;
    };
    let message = format!("{why}; nothing is fenced or released until that is settled");
    plan.wait(child.key.name.clone(), Reason::MachineStateUnknown, message);
    true
}

/// The VM says in vCenter that it may serve an AgentMachine that the record does not know of: it may be a node, and a person
/// decides.
pub(super) fn is_outdated(child: &ManagedVm, plan: &mut Plan) -> bool {
    let outdated = child.is_outdated();
    if outdated {
        plan.wait(
            child.key.name.clone(),
            Reason::RecordOutdated,
            guard::OUTDATED,
        );
    }
    outdated
}

/// Its Machine lives in another control plane than the pool's current one: it is neither prepared nor released.
pub(super) fn is_elsewhere(
    s: &Observed,
    child: &ManagedVm,
    machine_state: &MachineState,
    plan: &mut Plan,
) -> bool {
    let (home, own) = (child.home(&s.pool), s.pool.control_plane());
    let lives = *machine_state == MachineState::Alive && home != own;
    if lives {
        let message = format!(
            "its Machine lives in namespace {home}, spec.controlPlaneNamespace of the pool says {own}: it is kept as it is \
             until that Machine goes, and not prepared for it"
        );
        plan.wait(child.key.name.clone(), Reason::MachineStateUnknown, message);
    }
    lives
}

/// Its Machine disappeared and left its Agent bound: it is neither fenced nor released, unless a person forces that.
pub(super) fn has_vanished(child: &ManagedVm, host: &Host, plan: &mut Plan) -> bool {
    let own = host.own.as_deref();
    let paused = child
        .vm()
        .is_some_and(|vm| vm.agent_machine_paused == Some(true));
    let node = child.has_served(&[]) || child.guest_may_be_node();
    let held = vanished(child, &host.machine, own, paused, node) == Vanished::Held && !child.forced;
    if held {
        plan.wait(child.key.name.clone(), Reason::MachineVanishedPaused, STAYS);
    }
    held
}
