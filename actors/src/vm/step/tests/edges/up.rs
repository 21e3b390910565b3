//! A VM that is wanted.

use super::*;
use crate::vm::step::{PROOFS, PROOFS_AFTER_LOST_CREATE};

#[test]
fn before_a_vm_is_thought_of() {
    let vm = running(&child("a"));
    let alive = wanted(Some(&vm), &Ownership::NotAsked);
    let first = wanted(None, &Ownership::NotAsked);
    let ours = ours(PowerState::Off);
    let lost = |seen| with(wanted(None, seen), |f| f.record.loss = Loss::Unrecoverable);
    each([
        ("nothing", first, Does("vm.record_identity")),
        (
            "no finalizer",
            with(alive, |f| f.object.has_finalizer = false),
            Does("vm.add_finalizer"),
        ),
        (
            "nor a pool",
            with(alive, |f| {
                (f.object.has_finalizer, f.pool.exists) = (false, false)
            }),
            Waits(Reason::PoolNotFound, None),
        ),
        (
            "another cluster",
            with(alive, |f| f.object.cluster_changed = true),
            Waits(Reason::ClusterIdChanged, None),
        ),
        (
            "adopted",
            with(alive, |f| f.object.adopted = true),
            Waits(Reason::OwnershipUnproven, None),
        ),
        (
            "no hold on the Secret",
            with(first, |f| f.pool.credentials_held = false),
            Waits(Reason::CredentialsNotHeld, None),
        ),
        (
            "nor an ISO",
            with(first, |f| {
                (f.pool.credentials_held, f.pool.iso_ready) = (false, false);
            }),
            Waits(Reason::IsoNotReady, None),
        ),
        (
            "the record is gone, the VM is not",
            lost(&ours),
            Waits(Reason::RecordLost, Some(30)),
        ),
        (
            "nor are its copies",
            lost(&two()),
            Waits(Reason::RecordLost, Some(30)),
        ),
    ]);
}

#[test]
fn nobody_gets_a_vm_and_one_that_runs_is_left() {
    let (off, unaddressed) = (off_on_record(), unaddressed());
    let (recorded, on) = (intent(&child("a"), 1), running(&child("a")));
    let unlinked = with(on.clone(), |v| v.moref = None);
    let unknown = MachineState::Unknown("a reason".to_owned());
    for (machine_state, reason) in [
        (&MachineState::Nobody, Reason::NoAgentMachine),
        (&MachineState::Leaving, Reason::MachineDeleting),
        (&MachineState::Gone, Reason::MachineDeleted),
        (&unknown, Reason::MachineStateUnknown),
    ] {
        let of = |vm| {
            with(wanted(Some(vm), &Ownership::NotAsked), |f| {
                f.owner.state = machine_state
            })
        };
        each([
            ("recorded", of(&recorded), Waits(reason.clone(), None)),
            ("off", of(&off), Waits(reason.clone(), None)),
            (
                "without addresses",
                of(&unaddressed),
                Waits(reason.clone(), None),
            ),
            ("without reference", of(&unlinked), Waits(reason, None)),
            ("it runs", of(&on), SETTLED),
        ]);
    }
}

#[test]
fn a_vm_that_may_be_made() {
    let vm = intent(&child("a"), 1);
    let create = Does("vm.submit_create");
    let see = |seen| wanted(Some(&vm), seen);
    let fresh = |facts| with(facts, |f: &mut Facts<'_>| f.create.not_sent = true);
    let bound = |seen| with(see(seen), |f| f.agent.bound = true);
    let taken = |seen| with(see(seen), |f| f.create.path_taken = true);
    let moved = |seen| with(see(seen), |f| f.create.place = PlacementCheck::Elsewhere);
    let unseen = see(&Ownership::NotAsked);
    each([
        ("unseen", unseen, LOOKUP),
        ("never asked for", fresh(unseen), create.clone()),
        (
            "never asked for, no ISO",
            with(fresh(unseen), |f| f.pool.iso_ready = false),
            Waits(Reason::IsoNotReady, None),
        ),
        ("but it serves", fresh(bound(&Ownership::NotAsked)), LOOKUP),
        ("elsewhere", fresh(moved(&Ownership::NotAsked)), LOOKUP),
    ]);
    let (once, twice) = (absent(PROOFS - 1), absent(PROOFS));
    let nearly = absent(PROOFS_AFTER_LOST_CREATE - 1);
    let proven = absent(PROOFS_AFTER_LOST_CREATE);
    each([
        ("once", see(&once), LOOKUP),
        ("twice", see(&twice), create),
        ("serves, once", bound(&once), LOOKUP),
        (
            "serves, twice",
            bound(&twice),
            Waits(Reason::VmMissing, Some(60)),
        ),
        ("taken, nearly", taken(&nearly), LOOKUP),
        ("taken, proven", taken(&proven), AGAIN),
        ("taken, fresh, once", fresh(taken(&once)), LOOKUP),
        ("taken, fresh, twice", fresh(taken(&twice)), AGAIN),
        ("moved, nearly", moved(&nearly), LOOKUP),
        ("moved, proven", moved(&proven), AGAIN),
        (
            "a doubtful place",
            with(see(&twice), |f| f.create.place = PlacementCheck::Doubtful),
            Does("vm.place_again"),
        ),
    ]);
    each([
        ("copies", see(&two()), AMBIGUOUS),
        (
            "name, now",
            see(&namesake(0)),
            Waits(Reason::NameConflict, Some(30)),
        ),
        (
            "name",
            see(&namesake(29)),
            Waits(Reason::NameConflict, Some(1)),
        ),
        ("name, long ago", see(&namesake(30)), LOOKUP),
        (
            "uuid",
            see(&twin(29)),
            Waits(Reason::OwnershipUnproven, Some(1)),
        ),
        ("uuid, long ago", see(&twin(30)), LOOKUP),
    ]);
}

#[test]
fn the_boot_order_of_a_vm_is_every_disk_then_cd() {
    use BootDevice::{Cdrom, Disk};
    let vm = intent(&child("a"), 1);
    let order = "vm.set_boot_order";
    for (disks, shown_order, expected) in [
        (vec![], vec![], "vm.submit_power_on"),
        (vec![1], vec![Disk(1), Cdrom], "vm.submit_power_on"),
        (vec![1], vec![Disk(1)], order),
        (vec![1], vec![Cdrom], order),
        (vec![1], vec![Cdrom, Disk(1)], order),
        (vec![1], vec![Disk(2), Cdrom], order),
        (vec![1, 2], vec![Disk(1), Cdrom], order),
    ] {
        let what = format!("{disks:?} {shown_order:?}");
        let found = with(shown(&child("a"), PowerState::Off), |v| {
            (v.disk_keys, v.boot_order) = (disks, shown_order);
        });
        let seen = Ownership::Ours(Box::new(found));
        assert_eq!(said(&wanted(Some(&vm), &seen)), Does(expected), "{what}");
    }
}

#[test]
fn a_vm_that_was_made() {
    let (off, unaddressed) = (off_on_record(), unaddressed());
    let vm = running(&child("a"));
    let see = |seen| wanted(Some(&vm), seen);
    let serving = |seen| with(see(seen), |f| f.agent.bound = true);
    let unseen = see(&Ownership::NotAsked);
    let is = |power| ours(power);
    let power_on = Does("vm.submit_power_on");
    let powered_off = Waits(Reason::VmPoweredOff, Some(60));
    use PowerState::{Off, On, Suspended};
    each([
        ("unseen", unseen, SETTLED),
        (
            "doubted",
            with(unseen, |f| f.vm.missing_in_scan = true),
            LOOKUP,
        ),
        (
            "recorded as off",
            with(unseen, |f| f.record.vm = Some(&off)),
            LOOKUP,
        ),
        (
            "recorded without addresses",
            with(unseen, |f| f.record.vm = Some(&unaddressed)),
            LOOKUP,
        ),
        ("on", see(&is(On)), SETTLED),
        ("on by now", wanted(Some(&off), &is(On)), RECORD),
        ("off", see(&is(Off)), power_on.clone()),
        ("asleep", see(&is(Suspended)), power_on),
        ("serves, off", serving(&is(Off)), powered_off),
        (
            "serves, asleep",
            serving(&is(Suspended)),
            Waits(Reason::VmSuspended, Some(60)),
        ),
        (
            "serves, gone",
            serving(&absent(1)),
            Waits(Reason::VmMissing, Some(60)),
        ),
        ("gone, once", see(&absent(PROOFS - 1)), LOOKUP),
        ("gone", see(&absent(PROOFS)), AGAIN),
        (
            "gone, its Agent is not",
            with(see(&absent(PROOFS)), |f| f.agent.present = true),
            Does("agent.delete"),
        ),
        ("copies", see(&two()), AMBIGUOUS),
        (
            "another",
            see(&twin(99)),
            Waits(Reason::OwnershipUnproven, Some(30)),
        ),
        (
            "not shown",
            see(&bare(99)),
            Waits(Reason::VmInaccessible, Some(29)),
        ),
        ("not shown for long", see(&bare(70)), LOOKUP),
    ]);
}

/// A VM without configuration, seen at that second.
fn bare(at: u64) -> Ownership {
    Ownership::Bare {
        what: "VM a (vm-a), connection state inaccessible,".to_owned(),
        at: Duration::from_secs(at),
    }
}

#[test]
fn a_vm_that_is_late_or_given_up() {
    let (vm, off) = (running(&child("a")), off_on_record());
    let on = ours(PowerState::On);
    let late = |exhausted, allowed| {
        with(wanted(Some(&vm), &on), |f| {
            f.arrival = Arrival::Overdue {
                cause: Cause::NotRegistered,
                exhausted,
                allowed,
            }
        })
    };
    let given_up = |seen| with(wanted(Some(&vm), seen), |f| f.arrival = Arrival::GivenUp);
    let exhausted = Waits(Reason::ReplacementsExhausted, Some(30));
    each([
        ("late", late(false, false), Does("vm.give_up")),
        ("not the first", late(true, false), exhausted),
        ("allowed", late(true, true), Does("vm.give_up")),
        (
            "kept, whatever is allowed",
            with(late(false, true), |f| f.pool.policy = RETAIN),
            Waits(Reason::AgentDiscoveryExpired, Some(30)),
        ),
        (
            "not on record as running",
            with(late(false, false), |f| f.record.vm = Some(&off)),
            RECORD,
        ),
    ]);
    let (off, asleep) = (ours(PowerState::Off), ours(PowerState::Suspended));
    let unfenced = |seen| with(given_up(seen), |f| f.agent.fenced = false);
    each([
        ("asleep", given_up(&asleep), POWER_OFF),
        ("off", given_up(&off), DESTROY),
        ("no Agent to fence", unfenced(&off), DESTROY),
        ("copies", given_up(&two()), AMBIGUOUS),
        (
            "another",
            given_up(&twin(0)),
            Waits(Reason::OwnershipUnproven, Some(30)),
        ),
    ]);
}
