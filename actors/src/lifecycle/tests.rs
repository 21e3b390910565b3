use super::*;

const DELETE: Policy = Policy::Cleanup(Some(CleanupPolicy::Delete));
const RETAIN: Policy = Policy::Cleanup(Some(CleanupPolicy::Retain));
const UNKNOWN: Policy = Policy::Cleanup(None);

const FREE: FreeVm = FreeVm {
    why: ReleaseReason::MachineGone,
    pool_deleting: false,
    serves_elsewhere: false,
    is_bound: false,
    machine_remains: false,
    offer_left: None,
    wait_left: None,
};

#[test]
fn a_vm_ends_as_the_policy_says() {
    for (policy, end) in [
        (DELETE, End::Remove),
        (UNKNOWN, End::Remove),
        (RETAIN, End::LeaveToPeople),
    ] {
        for vm in [Unneeded::RecordDeleted, Unneeded::AgentOverdue] {
            assert_eq!(super::end(vm, policy), end, "{vm:?}");
        }
        assert_eq!(FREE.fate(policy), Fate::End(end));
        let given_up = super::end(Unneeded::GivenUp, policy);
        assert_eq!(given_up, End::Remove, "the next attempt follows");
    }
    use Unneeded::{AgentOverdue, GivenUp, RecordDeleted};
    for vm in [RecordDeleted, AgentOverdue, GivenUp] {
        let end = super::end(vm, Policy::SkipDelete);
        assert_eq!(end, End::LeaveToPeople, "{vm:?}");
    }
}

#[test]
fn a_vm_stays_while_a_machine_has_it_or_may_need_it() {
    let left = Duration::from_secs(7);
    let deleted = FreeVm {
        why: ReleaseReason::PoolDeleting,
        pool_deleting: true,
        ..FREE
    };
    let surplus = FreeVm {
        why: ReleaseReason::Surplus,
        ..FREE
    };
    for (vm, delete, retain) in [
        (
            FreeVm {
                serves_elsewhere: true,
                is_bound: true,
                ..FREE
            },
            Fate::Stay(Stay::ServesElsewhere),
            Fate::Stay(Stay::ServesElsewhere),
        ),
        (
            FreeVm {
                is_bound: true,
                machine_remains: true,
                ..deleted
            },
            Fate::Stay(Stay::Bound),
            Fate::Stay(Stay::Bound),
        ),
        (
            FreeVm {
                machine_remains: true,
                ..deleted
            },
            Fate::Stay(Stay::MachineRemains),
            Fate::Stay(Stay::MachineRemains),
        ),
        (
            FreeVm {
                machine_remains: true,
                ..surplus
            },
            Fate::End(End::Remove),
            Fate::End(End::LeaveToPeople),
        ),
        (
            FreeVm {
                offer_left: Some(left),
                ..FREE
            },
            Fate::Stay(Stay::Offered(left)),
            Fate::End(End::LeaveToPeople),
        ),
        (
            FreeVm {
                offer_left: Some(left),
                ..surplus
            },
            Fate::End(End::Remove),
            Fate::End(End::LeaveToPeople),
        ),
        (
            FreeVm {
                wait_left: Some(left),
                ..surplus
            },
            Fate::Stay(Stay::Awaited(left)),
            Fate::End(End::LeaveToPeople),
        ),
        (
            FreeVm {
                wait_left: Some(left),
                ..FREE
            },
            Fate::End(End::Remove),
            Fate::End(End::LeaveToPeople),
        ),
        (
            FreeVm {
                pool_deleting: true,
                offer_left: Some(left),
                ..FREE
            },
            Fate::Stay(Stay::Offered(left)),
            Fate::Stay(Stay::Offered(left)),
        ),
        (
            deleted,
            Fate::End(End::Remove),
            Fate::End(End::LeaveToPeople),
        ),
    ] {
        assert_eq!(vm.fate(DELETE), delete, "{vm:?}");
        assert_eq!(vm.fate(RETAIN), retain, "{vm:?}");
    }
}

#[test]
fn an_orphan_is_removed_only_with_certainty() {
    for bits in 0..8_u8 {
        let vm = Unneeded::Orphan(OrphanVm {
            is_ownerless: bits & 1 > 0,
            never_ran: bits & 2 > 0,
            is_confirmed: bits & 4 > 0,
        });
        let expected = if bits == 7 {
            End::Remove
        } else {
            End::LeaveToPeople
        };
        assert_eq!(end(vm, DELETE), expected, "{vm:?}");
        assert_eq!(end(vm, RETAIN), End::LeaveToPeople, "{vm:?}");
    }
}
