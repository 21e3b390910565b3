//! Tests of a VsphereAgent that is being deleted while its Machine is still there.

use std::time::Duration;

use agent_forge_crds::pool::CleanupPolicy;

use crate::{
    domain::{machine_state::MachineState, vanished::Vanished},
    ports::vcenter::PowerState,
    testing::{child_with_vm, running, shown},
    vm::{
        arrival::Arrival,
        ownership::Ownership,
        step::{self, Facts, Loss, PlacementCheck, Step},
    },
};

fn reason(step: &Step) -> Option<&'static str> {
    match step {
        Step::Hold { reason, .. } => Some(reason),
        _ => None,
    }
}

#[test]
fn a_vm_outlives_the_machine_it_served() {
    let child = child_with_vm("a");
    let vm = running(&child);
    let on = Ownership::Ours(Box::new(shown(&child, PowerState::On)));
    let off = Ownership::Ours(Box::new(shown(&child, PowerState::Off)));
    let facts = Facts {
        vm: Some(&vm),
        has_identity: true,
        loss: Loss::None,
        has_finalizer: true,
        deleting: true,
        adopted: false,
        forced: false,
        pool_exists: true,
        cluster_changed: false,
        policy: Some(CleanupPolicy::Delete),
        guard: None,
        unproven: None,
        early: None,
        iso_ready: true,
        credentials_held: true,
        seen: &on,
        vcenter_recorded: Some(true),
        create_not_sent: false,
        path_taken: false,
        folder_deleted: false,
        stays_suspended: false,
        site: PlacementCheck::Fits,
        arrival: Arrival::Awaited,
        powered_on_by_us: false,
        missing_in_scan: false,
        tagged: true,
        agent_bound: true,
        has_served: false,
        guest_may_be_node: false,
        vanished: Vanished::No,
        left_bound: false,
        machine_has_another: false,
        refused: None,
        machine_state: &MachineState::Leaving,
        ejecting: false,
        eject: true,
        resting: None,
        agent_present: true,
        agent_fenced: true,
        stuck_on_guest: false,
        now: Duration::ZERO,
    };
    assert_eq!(reason(&step::next(&facts)), Some("AgentBound"));
    let unbound = Facts {
        agent_bound: false,
        ..facts
    };
    assert_eq!(reason(&step::next(&unbound)), Some("MachineRemains"));
    // A hook that waits for a dead guest is released all the same: else neither would ever go.
    let stuck = Facts {
        stuck_on_guest: true,
        seen: &off,
        ..unbound
    };
    assert_eq!(step::next(&stuck), Step::ReleaseHook);
    let forced = Facts {
        forced: true,
        ..facts
    };
    assert_eq!(step::next(&forced), Step::PowerOff);
    let gone = Facts {
        machine_state: &MachineState::Gone,
        has_served: true,
        ..unbound
    };
    assert_eq!(step::next(&gone), Step::PowerOff);
    // One in the making is nobody's node; what was given to a Machine that lives may be, although its Agent is gone.
    let awaited = Facts {
        machine_state: &MachineState::Alive,
        ..unbound
    };
    assert_eq!(step::next(&awaited), Step::PowerOff);
    let node = Facts {
        has_served: true,
        agent_present: false,
        ..awaited
    };
    assert_eq!(reason(&step::next(&node)), Some("MachineRemains"));
    // It served another control plane and is free again, and its own AgentMachine has another host since.
    let spare = Facts {
        machine_has_another: true,
        agent_present: true,
        ..node
    };
    assert_eq!(step::next(&spare), Step::PowerOff);
    // Where its Agent is not there to say so, it may still be somebody's node, unless it is gone itself.
    let silent = Facts {
        agent_present: false,
        ..spare
    };
    assert_eq!(reason(&step::next(&silent)), Some("MachineRemains"));
    let absent = Ownership::Absent {
        proofs: step::PROOFS,
    };
    let over = Facts {
        seen: &absent,
        ..silent
    };
    assert_eq!(step::next(&over), Step::RemoveFinalizer);
    let given_up = Facts {
        forced: true,
        ..node
    };
    assert_eq!(step::next(&given_up), Step::PowerOff);
}
