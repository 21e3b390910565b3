//! Tests of a VsphereAgent that is being deleted while its Machine is still there.

use std::time::Duration;

use agent_forge_crds::{conditions::Reason, pool::CleanupPolicy};

use crate::{
    domain::{
        machine_state::MachineState,
        reassign::Taking,
        recycle::{Says, Stage},
        vanished::Vanished,
    },
    lifecycle::Policy,
    ports::vcenter::PowerState,
    testing::{child_with_vm, running, shown, with},
    vm::{
        arrival::Arrival,
        ownership::Ownership,
        step::{
            self, AgentState, AgentWork, CreateState, Facts, Finalizer, Lent, Loss, MarkState,
            ObjectState, OwnerState, PlacementCheck, PoolState, Power, ReassignState, Record,
            RecycleState, Step, VmState,
        },
    },
};

fn reason(step: &Step) -> Option<Reason> {
    match step {
        Step::Hold { reason, .. } => Some(reason.clone()),
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
        object: ObjectState {
            has_finalizer: true,
            deleting: true,
            adopted: false,
            adopting: false,
            forced: false,
            cluster_changed: false,
        },
        record: Record {
            vm: Some(&vm),
            has_identity: true,
            loss: Loss::None,
            vcenter: Some(true),
            ejecting: false,
        },
        pool: PoolState {
            exists: true,
            policy: Policy::Cleanup(Some(CleanupPolicy::Delete)),
            guard: None,
            iso_ready: true,
            credentials_held: true,
            refused: None,
            power_on_after: None,
            start_after: None,
        },
        vm: VmState {
            seen: &on,
            folder_deleted: false,
            stays_suspended: false,
            powered_on_by_us: false,
            switched_off_by_us: false,
            missing_in_scan: false,
            tagged: true,
            eject: true,
            repair: crate::vm::boot_repair::Repair::NotNeeded,
            again: crate::vm::power_policy::Again::Report,
            resting: None,
        },
        create: CreateState {
            not_sent: false,
            path_taken: false,
            place: PlacementCheck::Fits,
        },
        agent: AgentState {
            unproven: None,
            early: None,
            bound: true,
            has_served: false,
            registered: true,
            answers: true,
            guest_may_be_node: false,
            present: true,
            fenced: true,
        },
        owner: OwnerState {
            vanished: Vanished::No,
            left_bound: false,
            has_another_host: false,
            state: &MachineState::Leaving,
            stuck_on_guest: false,
        },
        arrival: Arrival::Awaited,
        recycle: RecycleState {
            stage: Stage::No,
            overdue: false,
            says: Says::Free,
            back: false,
            claimed: false,
            restarted: false,
            cleanup_hangs: false,
            keeps_disk: false,
            frees_hook: false,
        },
        mark: MarkState {
            recorded: true,
            ..MarkState::default()
        },
        reassign: ReassignState {
            taking: Taking::No,
            may_change: false,
            lent: &Lent::No,
        },
        now: Duration::ZERO,
    };
    assert_eq!(reason(&step::next(&facts)), Some(Reason::AgentBound));
    let unbound = with(facts, |f| f.agent.bound = false);
    assert_eq!(reason(&step::next(&unbound)), Some(Reason::MachineRemains));
    // A hook that waits for a dead guest is released all the same. Otherwise Machine and VsphereAgent would wait for
    // each other.
    let stuck = with(unbound, |f| {
        f.owner.stuck_on_guest = true;
        f.vm.seen = &off;
    });
    assert_eq!(step::next(&stuck), Step::Agent(AgentWork::ReleaseHook));
    let forced = with(facts, |f| f.object.forced = true);
    assert_eq!(step::next(&forced), Step::Power(Power::Off));
    let gone = with(unbound, |f| {
        f.owner.state = &MachineState::Gone;
        f.agent.has_served = true;
    });
    assert_eq!(step::next(&gone), Step::Power(Power::Off));
    // A VM in the making is no node. A VM that was given to a living Machine may be one, even if its Agent is gone.
    let awaited = with(unbound, |f| f.owner.state = &MachineState::Alive);
    assert_eq!(step::next(&awaited), Step::Power(Power::Off));
    let node = with(awaited, |f| {
        f.agent.has_served = true;
        f.agent.present = false;
    });
    assert_eq!(reason(&step::next(&node)), Some(Reason::MachineRemains));
    // It served another control plane and is free again. Its own AgentMachine has another host since.
    let spare = with(node, |f| {
        f.owner.has_another_host = true;
        f.agent.present = true;
    });
    assert_eq!(step::next(&spare), Step::Power(Power::Off));
    // If its Agent is missing, the VM may still be a node, unless the VM itself is gone.
    let silent = with(spare, |f| f.agent.present = false);
    assert_eq!(reason(&step::next(&silent)), Some(Reason::MachineRemains));
    let absent = Ownership::Absent {
        proofs: step::PROOFS,
    };
    let over = with(silent, |f| f.vm.seen = &absent);
    assert_eq!(step::next(&over), Step::Finalizer(Finalizer::Off));
    let given_up = with(node, |f| f.object.forced = true);
    assert_eq!(step::next(&given_up), Step::Power(Power::Off));
}
