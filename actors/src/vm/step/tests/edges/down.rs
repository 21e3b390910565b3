//! A VM that is being removed, and records that cannot be used.

use super::*;
use crate::vm::step::{PROOFS, PROOFS_AFTER_LOST_CREATE};

fn leaving<'a>(vm: Option<&'a VmStatus>, seen: &'a Ownership) -> Facts<'a> {
    with(wanted(vm, seen), |f| {
        f.object.deleting = true;
        f.owner.state = &MachineState::Gone;
    })
}

#[test]
fn before_a_vm_goes() {
    let made = intent(&child("a"), 1);
    let on = running(&child("a"));
    let started = with(made.clone(), |v| v.task_id = Some("task-1".to_owned()));
    let done = with(on.clone(), |v| v.task_id = Some("task-1".to_owned()));
    let of = |vm| leaving(Some(vm), &Ownership::NotAsked);
    let fresh = |vm| with(of(vm), |f| f.create.not_sent = true);
    let fenced = |present, fenced, policy| {
        with(of(&on), |f| {
            f.agent.present = present;
            f.agent.fenced = fenced;
            f.pool.policy = policy;
        })
    };
    let fence = Does("agent.fence");
    each([
        ("no record", leaving(None, &Ownership::NotAsked), ENDED),
        (
            "ours no more",
            with(of(&on), |f| f.object.has_finalizer = false),
            SETTLED,
        ),
        (
            "adopted",
            with(fenced(true, false, DELETE), |f| f.object.adopted = true),
            ENDED,
        ),
        ("never asked for", fresh(&made), ENDED),
        ("there, so asked for", fresh(&on), LOOKUP),
        ("being made", of(&started), Does("vm.finish_task")),
        ("made", of(&done), LOOKUP),
        (
            "its Agent first",
            fenced(true, false, DELETE),
            fence.clone(),
        ),
        ("fenced", fenced(true, true, DELETE), LOOKUP),
        ("no Agent", fenced(false, false, DELETE), LOOKUP),
        ("kept, not its Agent", fenced(true, false, RETAIN), fence),
        ("kept, its mark first", fenced(true, true, RETAIN), LOOKUP),
    ]);
}

#[test]
fn a_vm_that_goes() {
    use PowerState::{Off, On, Suspended};
    let (made, on) = (intent(&child("a"), 1), running(&child("a")));
    let unaddressed = unaddressed();
    let nameless = with(shown(&child("a"), Off), |v| v.macs.clear());
    let nameless = Ownership::Ours(Box::new(nameless));
    let see = |seen| leaving(Some(&on), seen);
    let lost = |seen| leaving(Some(&made), seen);
    each([
        ("on", see(&ours(On)), POWER_OFF),
        ("asleep", see(&ours(Suspended)), POWER_OFF),
        ("off", see(&ours(Off)), DESTROY),
        (
            "its addresses first",
            leaving(Some(&unaddressed), &ours(Off)),
            RECORD,
        ),
        ("none", leaving(Some(&unaddressed), &nameless), DESTROY),
        ("gone, once", see(&absent(PROOFS - 1)), LOOKUP),
        ("gone", see(&absent(PROOFS)), ENDED),
        (
            "a create may still land",
            lost(&absent(PROOFS_AFTER_LOST_CREATE - 1)),
            LOOKUP,
        ),
        ("none will", lost(&absent(PROOFS_AFTER_LOST_CREATE)), ENDED),
        ("copies", see(&two()), AMBIGUOUS),
        ("its name is taken", see(&namesake(0)), LOOKUP),
        (
            "a twin",
            see(&twin(0)),
            Waits(Reason::OwnershipUnproven, Some(30)),
        ),
    ]);
}

#[test]
fn a_host_of_the_buffer_that_served_another_control_plane_goes_once_its_agent_is_free() {
    let (vm, on) = (running(&child("a")), ours(PowerState::On));
    let free = with(leaving(Some(&vm), &on), |f| {
        f.owner.state = &MachineState::Buffer;
        f.agent.has_served = true;
        f.agent.present = true;
        f.agent.answers = true;
        f.agent.fenced = true;
    });
    let silent = with(free, |f| f.agent.answers = false);
    let nameless = with(free, |f| f.owner.state = &MachineState::Nobody);
    let bound = with(free, |f| f.agent.bound = true);
    each([
        ("free", free, POWER_OFF),
        (
            "free and silent: a restored record shows a node like that",
            silent,
            Waits(Reason::MachineStateUnknown, Some(60)),
        ),
        ("bound", bound, Waits(Reason::AgentBound, None)),
        (
            "of nobody",
            nameless,
            Waits(Reason::MachineStateUnknown, Some(60)),
        ),
    ]);
}

#[test]
fn whose_machine_holds_a_vm_that_goes() {
    let (vm, on) = (running(&child("a")), ours(PowerState::On));
    let held = Waits(Reason::MachineRemains, None);
    for (machine_state, has_served, expected) in [
        (&MachineState::Leaving, false, held.clone()),
        (&MachineState::Alive, true, held),
        (&MachineState::Alive, false, POWER_OFF),
        (&MachineState::Gone, true, POWER_OFF),
        (
            &MachineState::Nobody,
            true,
            Waits(Reason::MachineStateUnknown, Some(60)),
        ),
        (&MachineState::Nobody, false, POWER_OFF),
        (
            &MachineState::Buffer,
            true,
            Waits(Reason::MachineStateUnknown, Some(60)),
        ),
        (&MachineState::Buffer, false, POWER_OFF),
    ] {
        let free = with(leaving(Some(&vm), &on), |f| {
            f.owner.state = machine_state;
            f.agent.has_served = has_served;
        });
        let bound = with(free, |f| f.agent.bound = true);
        each([
            ("free", free, expected),
            ("bound", bound, Waits(Reason::AgentBound, None)),
            ("forced", with(free, |f| f.object.forced = true), POWER_OFF),
            (
                "bound, forced",
                with(bound, |f| f.object.forced = true),
                POWER_OFF,
            ),
        ]);
    }
}

#[test]
fn a_hook_that_waits_for_a_guest() {
    let vm = running(&child("a"));
    let released = Does("agent.release_hook");
    for (seen, expected) in [
        (Ownership::NotAsked, LOOKUP),
        (absent(PROOFS - 1), LOOKUP),
        (absent(PROOFS), released.clone()),
        (ours(PowerState::Off), released.clone()),
        (ours(PowerState::Suspended), released),
        (
            ours(PowerState::On),
            Waits(Reason::WaitingForGuest, Some(30)),
        ),
        (two(), AMBIGUOUS),
        (twin(0), Waits(Reason::OwnershipUnproven, Some(30))),
    ] {
        let stuck = with(wanted(Some(&vm), &seen), |f| {
            f.owner.state = &MachineState::Leaving;
            f.owner.stuck_on_guest = true;
        });
        assert_eq!(said(&stuck), expected, "{seen:?}");
        let leaving = with(stuck, |f| f.object.deleting = true);
        assert_eq!(said(&leaving), expected, "{seen:?}, and it goes");
    }
}

#[test]
fn a_record_that_cannot_be_gone_by() {
    let (garbled, old) = (unreadable(), predecessors());
    let unread = wanted(Some(&garbled), &Ownership::NotAsked);
    let unread = with(unread, |f| f.record.has_identity = false);
    let unreadable = Waits(Reason::RecordUnreadable, None);
    let see = |seen| wanted(Some(&old), seen);
    let poolless = |seen| with(leaving(Some(&old), seen), |f| f.pool.exists = false);
    let unproven = Waits(Reason::OwnershipUnproven, None);
    let take_over = Does("vm.take_over");
    let (once, twice) = (absent(PROOFS - 1), absent(PROOFS));
    each([
        ("no uuid", unread, unreadable.clone()),
        (
            "no uuid, and it goes",
            with(unread, |f| {
                (f.object.deleting, f.owner.state) = (true, &MachineState::Gone);
            }),
            unreadable,
        ),
        ("unseen", see(&Ownership::NotAsked), take_over.clone()),
        (
            "unseen, no pool",
            poolless(&Ownership::NotAsked),
            unproven.clone(),
        ),
        ("once", see(&once), take_over),
        ("once, no pool", poolless(&once), unproven),
        ("gone", see(&twice), Waits(Reason::VmMissing, Some(60))),
        ("gone, and it goes", poolless(&twice), ENDED),
        ("proven", see(&ours(PowerState::Off)), RECORD),
        ("copies", see(&two()), AMBIGUOUS),
        (
            "foreign",
            see(&twin(0)),
            Waits(Reason::OwnershipUnproven, Some(60)),
        ),
    ]);
}
