use super::*;

const DELETE: Policy = Policy::Cleanup(Some(CleanupPolicy::Delete));
const RETAIN: Policy = Policy::Cleanup(Some(CleanupPolicy::Retain));
const UNKNOWN: Policy = Policy::Cleanup(None);

const FREE: FreeVm = FreeVm {
    why: ReleaseReason::MachineGone,
    pool_deleting: false,
    pool_recycles: false,
    may_recycle: false,
    renewal: None,
    outdated_with_data: false,
    serves_elsewhere: false,
    is_bound: false,
    machine_remains: false,
    offer_left: None,
    wait_left: None,
};

/// Each cause, each disk, each way to keep a VM.
#[test]
fn a_vm_that_people_keep_is_left_to_them_whatever_the_cause() {
    let late = |keeps_disk| Renewal {
        overdue: true,
        keeps_disk,
    };
    let next = Renewal::default();
    let kept_disk = Renewal {
        keeps_disk: true,
        ..next
    };
    let certain = OrphanVm {
        is_ownerless: true,
        never_ran: true,
        is_confirmed: true,
    };
    for (vm, unkept) in [
        (Unneeded::RecordDeleted, End::Remove),
        (Unneeded::GivenUp, End::Remove),
        (Unneeded::Spare, End::NextLife),
        (Unneeded::Renewal(next), End::NextLife),
        (Unneeded::Renewal(kept_disk), End::NextLife),
        (Unneeded::Renewal(late(false)), End::Remove),
        (Unneeded::Renewal(late(true)), End::Hold),
        (Unneeded::AgentOverdue { keeps_disk: false }, End::Remove),
        (Unneeded::AgentOverdue { keeps_disk: true }, End::Hold),
        (Unneeded::Outdated { keeps_disk: false }, End::Remove),
        (Unneeded::Outdated { keeps_disk: true }, End::Hold),
        (Unneeded::Orphan(certain), End::Remove),
    ] {
        for policy in [DELETE, UNKNOWN] {
            assert_eq!(end(vm, policy), unkept, "{vm:?}");
        }
        for policy in [RETAIN, Policy::SkipDelete] {
            assert_eq!(end(vm, policy), End::LeaveToPeople, "{vm:?} {policy}");
        }
    }
}

#[test]
fn a_mark_on_the_vm_wins_over_what_its_pool_wants() {
    for cleanup in [
        None,
        Some(CleanupPolicy::Delete),
        Some(CleanupPolicy::Retain),
    ] {
        assert_eq!(Policy::of(true, cleanup), Policy::SkipDelete);
        assert_eq!(Policy::of(false, cleanup), Policy::Cleanup(cleanup));
    }
}

/// What becomes of the record: it stays with a VM that is kept, unless nothing but `skip-delete` keeps that and its pool has no
/// other life for it.
#[test]
fn a_free_vm_has_another_life_goes_or_is_kept() {
    let recycles = FreeVm {
        pool_recycles: true,
        may_recycle: true,
        ..FREE
    };
    let late = |keeps_disk| FreeVm {
        renewal: Some(Renewal {
            overdue: true,
            keeps_disk,
        }),
        may_recycle: false,
        ..recycles
    };
    let deleted = |vm: FreeVm| FreeVm {
        pool_deleting: true,
        may_recycle: false,
        ..vm
    };
    let outdated = FreeVm {
        outdated_with_data: true,
        may_recycle: false,
        ..recycles
    };
    let (kept, left) = (Fate::Stay(Stay::Kept), Fate::End(End::LeaveToPeople));
    let removed = Fate::End(End::Remove);
    for (vm, delete, retain, skip_delete) in [
        (FREE, removed, kept, left),
        (recycles, Fate::End(End::NextLife), kept, kept),
        (late(false), removed, kept, kept),
        (late(true), Fate::Stay(Stay::HasData), kept, kept),
        (deleted(recycles), removed, left, left),
        (deleted(late(true)), removed, left, left),
        (outdated, Fate::Stay(Stay::HasData), kept, kept),
        (deleted(outdated), removed, left, left),
    ] {
        assert_eq!(vm.fate(DELETE), delete, "{vm:?}");
        assert_eq!(vm.fate(UNKNOWN), delete, "{vm:?}");
        assert_eq!(vm.fate(RETAIN), retain, "{vm:?}");
        assert_eq!(vm.fate(Policy::SkipDelete), skip_delete, "{vm:?}");
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
            Fate::Stay(Stay::Kept),
        ),
        (
            FreeVm {
                offer_left: Some(left),
                ..FREE
            },
            Fate::Stay(Stay::Offered(left)),
            Fate::Stay(Stay::Kept),
        ),
        (
            FreeVm {
                offer_left: Some(left),
                ..surplus
            },
            Fate::End(End::Remove),
            Fate::Stay(Stay::Kept),
        ),
        (
            FreeVm {
                wait_left: Some(left),
                ..surplus
            },
            Fate::Stay(Stay::Awaited(left)),
            Fate::Stay(Stay::Kept),
        ),
        (
            FreeVm {
                wait_left: Some(left),
                ..FREE
            },
            Fate::End(End::Remove),
            Fate::Stay(Stay::Kept),
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
