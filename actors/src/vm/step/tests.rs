//! The decision about a VM: single steps as tables, guarantees as property tests.

mod boot;
mod edges;
mod reassign;
mod recycle;

use std::time::Duration;

use agent_forge_crds::{agent::VmStatus, conditions::Reason, pool::CleanupPolicy};
use proptest::prelude::*;

use super::{
    AgentState, AgentWork, Attempt, Change, CreateState, Entry, Facts, Finalizer, Lent, Loss,
    MarkState, ObjectState, OwnerState, PlacementCheck, PoolState, Power, ReassignState, Record,
    RecycleState, Resting, Step, VmState, next, wait::hold,
};
use crate::{
    domain::{
        machine_state::MachineState,
        names::{MoRef, ObjectKey},
        reassign::Taking,
        recycle::{Says, Stage},
        vanished::Vanished,
    },
    lifecycle::Policy,
    ports::{
        effect::EffectKind as E,
        vcenter::{BootDevice, Cdrom, PowerState, VmObservation},
    },
    testing::{child, intent, running, shown, with},
    vm::{
        arrival::{Arrival, Cause},
        boot_repair::Repair,
        lost::Lost,
        ownership::{FoundBy, Ownership},
        power_policy::Again,
    },
};

/// Facts of a VsphereAgent that wants its VM, before anything is recorded.
fn wanted<'a>(vm: Option<&'a VmStatus>, seen: &'a Ownership) -> Facts<'a> {
    Facts {
        object: ObjectState {
            has_finalizer: true,
            deleting: false,
            adopted: false,
            adopting: false,
            forced: false,
            cluster_changed: false,
        },
        record: Record {
            vm,
            has_identity: vm.is_some_and(|v| v.bios_uuid.is_some()),
            loss: Loss::None,
            vcenter: Some(true),
            ejecting: false,
        },
        pool: PoolState {
            exists: true,
            policy: DELETE,
            guard: None,
            iso_ready: true,
            credentials_held: true,
            refused: None,
            power_on_after: None,
            start_after: None,
        },
        vm: VmState {
            seen,
            folder_deleted: false,
            stays_suspended: false,
            powered_on_by_us: false,
            switched_off_by_us: false,
            missing_in_scan: false,
            tagged: true,
            eject: false,
            again: Again::Report,
            repair: Repair::NotNeeded,
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
            bound: false,
            has_served: false,
            registered: false,
            answers: false,
            guest_may_be_node: false,
            present: false,
            fenced: true,
        },
        owner: OwnerState {
            vanished: Vanished::No,
            left_bound: false,
            has_another_host: false,
            state: &MachineState::Alive,
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
        now: Duration::from_secs(100),
    }
}

const DELETE: Policy = Policy::Cleanup(Some(CleanupPolicy::Delete));
const RETAIN: Policy = Policy::Cleanup(Some(CleanupPolicy::Retain));
const UNKNOWN: Policy = Policy::Cleanup(None);

fn ours(power: PowerState) -> Ownership {
    Ownership::Ours(Box::new(shown(&child("a"), power)))
}

#[test]
fn without_a_grant_no_host_comes_nearer_and_every_one_may_go() {
    let (absent, off) = (Ownership::Absent { proofs: 2 }, ours(PowerState::Off));
    let c = child("a");
    let (recorded, runs) = (intent(&c, 1), running(&c));
    let made = VmStatus {
        power_state: None,
        ..runs.clone()
    };
    let refused = |f: Facts<'_>| next(&with(f, |f| f.pool.refused = Some("no")));
    for facts in [
        wanted(None, &Ownership::NotAsked),
        wanted(Some(&recorded), &absent),
        with(wanted(Some(&recorded), &absent), |f| {
            f.create.place = PlacementCheck::Doubtful
        }),
        wanted(Some(&made), &off),
    ] {
        assert!(!matches!(next(&facts), Step::Hold { .. }), "{facts:?}");
        assert_eq!(
            refused(facts),
            hold(Reason::NamespaceNotAllowed, "no", None)
        );
    }
    // A recorded VM is still kept, and still removed.
    let lost = with(wanted(None, &Ownership::NotAsked), |f| {
        f.record.loss = Loss::Restorable
    });
    assert_eq!(refused(lost), Step::Attempt(Attempt::Identity));
    let on = ours(PowerState::On);
    let leaving = |seen| {
        with(wanted(Some(&runs), seen), |f| {
            f.object.deleting = true;
            f.owner.state = &MachineState::Gone;
        })
    };
    assert_eq!(refused(leaving(&on)), Step::Power(Power::Off));
    assert_eq!(refused(leaving(&off)), Step::Destroy);
    assert_eq!(refused(wanted(Some(&runs), &on)), Step::Settled);
}

/// A VM that serves is switched on only if its pool wants that, its Machine is alive, and it is time.
#[test]
fn who_decides_about_the_power_of_a_vm_that_served() {
    let (c, off) = (child("a"), ours(PowerState::Off));
    let runs = running(&c);
    let s = Duration::from_secs;
    let decided = |again, state, after| {
        next(&with(wanted(Some(&runs), &off), |f| {
            f.agent.has_served = true;
            f.vm.again = again;
            f.owner.state = state;
            f.pool.power_on_after = after;
        }))
    };
    let reason = |step| match step {
        Step::Hold { reason, again, .. } => Ok((reason, again)),
        other => Err(other),
    };
    let alive = &MachineState::Alive;
    let now = |state, after| reason(decided(Again::Now, state, after));
    let off = |again| Ok((Reason::VmPoweredOff, Some(s(again))));
    assert_eq!(now(alive, None), Err(Step::Power(Power::OnAgain)));
    for (again, expected) in [
        (Again::Report, off(60)),
        (Again::SecondLook(s(7)), off(7)),
        (
            Again::Limited(s(9)),
            Ok((Reason::PowerOnLimited, Some(s(9)))),
        ),
    ] {
        assert_eq!(reason(decided(again, alive, None)), expected, "{again:?}");
    }
    let unknown = MachineState::Unknown("no list".to_owned());
    for state in [&MachineState::Leaving, &MachineState::Gone, &unknown] {
        assert_ne!(
            now(state, None),
            Err(Step::Power(Power::OnAgain)),
            "{state:?}"
        );
    }
    let later = Some((crate::testing::at(0), s(90)));
    let scheduled = Ok((Reason::PowerOnScheduled, Some(s(90))));
    assert_eq!(now(alive, later), scheduled);
}

/// Everything else is done before.
#[test]
fn a_new_vm_is_switched_on_when_it_is_time() {
    let c = child("a");
    let made = VmStatus {
        power_state: None,
        ..running(&c)
    };
    for power in [PowerState::Off, PowerState::Suspended] {
        let seen = ours(power);
        let facts = |tagged, left: u64| {
            with(wanted(Some(&made), &seen), |f| {
                f.vm.tagged = tagged;
                f.pool.power_on_after =
                    (left > 0).then(|| (crate::testing::at(0), Duration::from_secs(left)));
            })
        };
        assert_eq!(next(&facts(false, 5)), Step::Tag);
        assert_eq!(next(&facts(true, 0)), Step::Power(Power::On));
        let held = next(&facts(true, 5));
        let again = Some(Duration::from_secs(5));
        assert!(
            matches!(&held, Step::Hold { reason: Reason::PowerOnScheduled, again: a, .. } if *a == again),
            "{held:?}"
        );
    }
}

#[test]
fn the_way_up_is_one_unmet_step_after_the_other() {
    let c = child("a");
    let (recorded, on) = (intent(&c, 1), running(&c));
    let nothing = Ownership::NotAsked;
    assert_eq!(
        next(&wanted(None, &nothing)),
        Step::Attempt(Attempt::Identity)
    );
    let first = with(wanted(Some(&recorded), &nothing), |f| {
        f.create.not_sent = true
    });
    assert_eq!(next(&first), Step::Create);
    assert_eq!(next(&wanted(Some(&recorded), &nothing)), Step::Look);
    let task = with(recorded.clone(), |v| v.task_id = Some("task-1".to_owned()));
    assert_eq!(
        next(&wanted(Some(&task), &nothing)),
        Step::Await("task-1".to_owned())
    );
    let disordered = with(shown(&c, PowerState::Off), |v| {
        v.boot_order = vec![BootDevice::Cdrom]
    });
    let keys = disordered.disk_keys.clone();
    let seen = Ownership::Ours(Box::new(disordered));
    let disordered = with(wanted(Some(&recorded), &seen), |f| f.vm.tagged = false);
    assert_eq!(next(&disordered), Step::Configure(Change::BootOrder(keys)));
    let off = ours(PowerState::Off);
    let bare = with(wanted(Some(&recorded), &off), |f| f.vm.tagged = false);
    assert_eq!(next(&bare), Step::Tag);
    let missing = with(recorded.clone(), |v| v.tags_missing = Some(true));
    let refused = with(bare, |f| f.record.vm = Some(&missing));
    assert_eq!(next(&refused), Step::Power(Power::On));
    assert_eq!(next(&wanted(Some(&recorded), &off)), Step::Power(Power::On));
    let suspended = ours(PowerState::Suspended);
    assert_eq!(
        next(&wanted(Some(&recorded), &suspended)),
        Step::Power(Power::On)
    );
    let bare = with(wanted(Some(&recorded), &suspended), |f| f.vm.tagged = false);
    assert_eq!(next(&bare), Step::Tag, "before it runs again");
    assert_eq!(
        next(&wanted(Some(&recorded), &ours(PowerState::On))),
        Step::Record(Entry::Seen)
    );
    let untagged = with(wanted(Some(&on), &nothing), |f| f.vm.tagged = false);
    assert_eq!(next(&untagged), Step::Tag);
    assert_eq!(next(&wanted(Some(&on), &nothing)), Step::Settled);
}

#[test]
fn a_vm_that_came_back_under_another_reference_is_recorded_anew_before_it_is_tagged() {
    let on = running(&child("a"));
    for (id, tagged, then) in [
        ("vm-a", false, Step::Tag),
        ("vm-a", true, Step::Settled),
        ("vm-77", false, Step::Record(Entry::Seen)),
        ("vm-77", true, Step::Record(Entry::Seen)),
    ] {
        let found = with(shown(&child("a"), PowerState::On), |v| {
            v.moref = MoRef::new("VirtualMachine", id);
        });
        let seen = Ownership::Ours(Box::new(found));
        let facts = with(wanted(Some(&on), &seen), |f| f.vm.tagged = tagged);
        assert_eq!(next(&facts), then, "{id}, tagged: {tagged}");
    }
}

#[test]
fn the_way_down_ends_with_the_finalizer() {
    let on = running(&child("a"));
    let down = |seen: Ownership, agent_present, agent_fenced| {
        let facts = with(wanted(Some(&on), &seen), |f| {
            f.object.deleting = true;
            f.owner.state = &MachineState::Gone;
            f.agent.present = agent_present;
            f.agent.fenced = agent_fenced;
        });
        next(&facts)
    };
    assert_eq!(
        down(ours(PowerState::On), true, false),
        Step::Agent(AgentWork::Fence)
    );
    assert_eq!(down(Ownership::NotAsked, true, true), Step::Look);
    assert_eq!(
        down(ours(PowerState::On), true, true),
        Step::Power(Power::Off)
    );
    assert_eq!(down(ours(PowerState::Off), true, true), Step::Destroy);
    assert_eq!(
        down(Ownership::Absent { proofs: 1 }, true, true),
        Step::Look
    );
    assert_eq!(
        down(Ownership::Absent { proofs: 2 }, true, true),
        Step::Agent(AgentWork::Delete)
    );
    assert_eq!(
        down(Ownership::Absent { proofs: 2 }, false, true),
        Step::Finalizer(Finalizer::Off)
    );
}

/// The actor died between power-on and the record, and the VM was released before the next start. The Agent that
/// registered meanwhile is recognised by its MAC addresses only. Without them on record it would be left behind for
/// ever.
#[test]
fn a_vm_goes_only_after_its_addresses_are_on_record() {
    let unrecorded = intent(&child("a"), 1);
    for power in [PowerState::On, PowerState::Off] {
        let seen = ours(power);
        let facts = with(wanted(Some(&unrecorded), &seen), |f| {
            f.object.deleting = true;
            f.owner.state = &MachineState::Gone;
        });
        assert_eq!(next(&facts), Step::Record(Entry::Seen), "{power:?}");
    }
}

/// Facts of a VM that runs, and whose Agent has not registered in time.
fn overdue<'a>(vm: &'a VmStatus, seen: &'a Ownership, exhausted: bool) -> Facts<'a> {
    with(wanted(Some(vm), seen), |f| {
        f.arrival = Arrival::Overdue {
            cause: Cause::NotRegistered,
            exhausted,
            allowed: false,
        }
    })
}

fn reason(step: &Step) -> Reason {
    match step {
        Step::Hold { reason, .. } => reason.clone(),
        _ => Reason::default(),
    }
}

#[test]
fn a_vm_whose_agent_does_not_come_is_looked_at_given_up_and_replaced() {
    let vm = running(&child("a"));
    assert_eq!(next(&overdue(&vm, &Ownership::NotAsked, false)), Step::Look);
    assert_eq!(
        next(&overdue(&vm, &ours(PowerState::On), false)),
        Step::Attempt(Attempt::GivenUp)
    );
    let given_up = |seen: Ownership, agent_present, agent_fenced, agent_bound| {
        let facts = with(wanted(Some(&vm), &seen), |f| {
            f.arrival = Arrival::GivenUp;
            f.agent.present = agent_present;
            f.agent.fenced = agent_fenced;
            f.agent.bound = agent_bound;
        });
        next(&facts)
    };
    let gone = Ownership::Absent { proofs: 2 };
    assert_eq!(
        given_up(Ownership::NotAsked, false, true, false),
        Step::Look
    );
    assert_eq!(
        given_up(ours(PowerState::On), false, true, false),
        Step::Power(Power::Off)
    );
    assert_eq!(
        given_up(ours(PowerState::Off), false, true, false),
        Step::Destroy
    );
    assert_eq!(
        given_up(Ownership::Absent { proofs: 1 }, false, true, false),
        Step::Look
    );
    assert_eq!(
        given_up(gone.clone(), false, true, false),
        Step::Attempt(Attempt::Next)
    );
    // An Agent that comes late is fenced. It outlives its VM, and is deleted before the next attempt begins.
    assert_eq!(
        given_up(ours(PowerState::On), true, false, false),
        Step::Agent(AgentWork::Fence)
    );
    assert_eq!(
        given_up(gone, true, true, false),
        Step::Agent(AgentWork::Delete)
    );
    // An Agent that was bound at the last moment keeps its VM.
    assert_eq!(
        reason(&given_up(ours(PowerState::On), true, true, true)),
        Reason::AgentBound
    );
    let resting = with(wanted(None, &Ownership::NotAsked), |f| {
        f.arrival = Arrival::Resting(Duration::from_secs(9))
    });
    assert!(
        matches!(next(&resting), Step::Hold { reason: Reason::ReplacementResting, again: Some(left), .. } if left.as_secs() == 9)
    );
}

#[test]
fn a_guest_that_may_be_a_node_is_left_to_a_person() {
    let vm = running(&child("a"));
    let node = Ownership::Ours(Box::new(with(shown(&child("a"), PowerState::On), |v| {
        v.tools = Some("guestToolsRunning".to_owned());
        v.guest_address = Some("192.0.2.7".to_owned());
        v.guest_host = Some("a".to_owned());
    })));
    let facts = overdue(&vm, &node, false);
    let Step::Hold {
        reason, message, ..
    } = next(&facts)
    else {
        panic!("it was given up");
    };
    assert_eq!(reason, Reason::AgentDiscoveryExpired);
    assert!(message.contains("restored") && message.contains("replace=1"));
    // An actor that switched the VM on, and has watched it since, knows more. A person may decide as well.
    let powered_on_by_us = with(facts, |f| f.vm.powered_on_by_us = true);
    assert_eq!(next(&powered_on_by_us), Step::Attempt(Attempt::GivenUp));
    let allowed = with(facts, |f| {
        f.arrival = Arrival::Overdue {
            cause: Cause::NotRegistered,
            exhausted: true,
            allowed: true,
        }
    });
    assert_eq!(next(&allowed), Step::Attempt(Attempt::GivenUp));
    let dead = ours(PowerState::On);
    assert_eq!(
        reason_of(&overdue(&vm, &dead, true)),
        Reason::ReplacementsExhausted
    );
    let kept = with(overdue(&vm, &dead, false), |f| f.pool.policy = RETAIN);
    assert_eq!(reason_of(&kept), Reason::AgentDiscoveryExpired);
}

fn reason_of(f: &Facts<'_>) -> Reason {
    reason(&next(f))
}

#[test]
fn a_place_that_was_refused_or_mended_is_left_behind_after_proof() {
    let c = child("a");
    let recorded = intent(&c, 1);
    let at = |seen: Ownership, site, create_not_sent| {
        let facts = with(wanted(Some(&recorded), &seen), |f| {
            f.create.place = site;
            f.create.not_sent = create_not_sent;
        });
        next(&facts)
    };
    assert_eq!(
        at(Ownership::NotAsked, PlacementCheck::Doubtful, true),
        Step::Place
    );
    assert_eq!(
        at(Ownership::NotAsked, PlacementCheck::Fits, true),
        Step::Create
    );
    assert_eq!(
        at(Ownership::NotAsked, PlacementCheck::Elsewhere, true),
        Step::Look
    );
    let absent = |proofs| Ownership::Absent { proofs };
    assert_eq!(at(absent(1), PlacementCheck::Elsewhere, true), Step::Look);
    assert_eq!(
        at(absent(2), PlacementCheck::Elsewhere, true),
        Step::Attempt(Attempt::Next)
    );
    // A create whose end is unknown may still be running.
    assert_eq!(at(absent(14), PlacementCheck::Elsewhere, false), Step::Look);
    assert_eq!(
        at(absent(15), PlacementCheck::Elsewhere, false),
        Step::Attempt(Attempt::Next)
    );
    // A VM that exists is not moved.
    assert_eq!(
        at(ours(PowerState::Off), PlacementCheck::Elsewhere, true),
        Step::Power(Power::On)
    );
}

#[test]
fn a_vm_that_serves_is_noticed_when_it_is_gone_or_off() {
    let vm = running(&child("a"));
    // If the cache does not show its Agent, the record says that it served.
    for in_view in [true, false] {
        let serving = |seen: Ownership, missing_in_scan| {
            let facts = with(wanted(Some(&vm), &seen), |f| {
                f.vm.missing_in_scan = missing_in_scan;
                f.agent.bound = in_view;
                f.agent.present = in_view;
                f.agent.has_served = !in_view;
            });
            next(&facts)
        };
        assert_eq!(serving(Ownership::NotAsked, false), Step::Settled);
        assert_eq!(serving(Ownership::NotAsked, true), Step::Look);
        assert_eq!(
            reason(&serving(Ownership::Absent { proofs: 5 }, true)),
            Reason::VmMissing
        );
        assert_eq!(
            reason(&serving(ours(PowerState::Off), true)),
            Reason::VmPoweredOff
        );
        assert_eq!(serving(ours(PowerState::On), true), Step::Settled);
    }
}

#[test]
fn retain_holds_where_the_pool_is_gone() {
    let vm = running(&child("a"));
    let on = ours(PowerState::On);
    let stranger = Ownership::Foreign {
        what: "somebody's".to_owned(),
        met: FoundBy::Uuid,
        at: Duration::ZERO,
    };
    let absent = Ownership::Absent { proofs: 2 };
    let leaving = |seen, policy| {
        with(wanted(Some(&vm), seen), |f| {
            f.object.deleting = true;
            f.pool.exists = false;
            f.owner.state = &MachineState::Gone;
            f.pool.policy = policy;
        })
    };
    for (seen, kept, goes) in [
        (&Ownership::NotAsked, Step::Look, Step::Look),
        (
            &on,
            Step::Configure(Change::Release),
            Step::Power(Power::Off),
        ),
        (
            &absent,
            Step::Finalizer(Finalizer::Off),
            Step::Finalizer(Finalizer::Off),
        ),
    ] {
        let retain = leaving(seen, RETAIN);
        assert_eq!(next(&retain), kept);
        assert_eq!(next(&leaving(seen, UNKNOWN)), goes);
        let forced = with(retain, |f| f.object.forced = true);
        assert_eq!(
            next(&forced),
            Step::Finalizer(Finalizer::Off),
            "vCenter may be gone"
        );
    }
    // It was released by an earlier actor, or by the predecessor: it has no mark of ours.
    let released = leaving(&stranger, RETAIN);
    assert_eq!(next(&released), Step::Finalizer(Finalizer::Off));
    let old = with(vm.clone(), |v| v.attempt = None);
    let predecessors = with(leaving(&Ownership::NotAsked, RETAIN), |f| {
        f.record.vm = Some(&old)
    });
    assert_eq!(next(&predecessors), Step::Finalizer(Finalizer::Off));
}

fn power() -> impl Strategy<Value = PowerState> {
    prop_oneof![
        Just(PowerState::On),
        Just(PowerState::Off),
        Just(PowerState::Suspended)
    ]
}

fn seen() -> impl Strategy<Value = Ownership> {
    prop_oneof![
        Just(Ownership::NotAsked),
        power().prop_map(ours),
        Just(Ownership::Several(vec![])),
        (0..200_u64, any::<bool>()).prop_map(|(at, by_name)| Ownership::Foreign {
            what: "somebody's".to_owned(),
            met: if by_name {
                FoundBy::Name(None)
            } else {
                FoundBy::Uuid
            },
            at: Duration::from_secs(at),
        }),
        (1..20_u8).prop_map(|proofs| Ownership::Absent { proofs }),
    ]
}

fn recorded() -> impl Strategy<Value = Option<VmStatus>> {
    (0..7_u8, any::<bool>()).prop_map(|(kind, task)| {
        let c = child("a");
        let mut vm = match kind {
            0 => return None,
            1 => VmStatus {
                attempt: Some(1),
                ..VmStatus::default()
            },
            2 => with(running(&c), |v| v.attempt = None),
            3 => with(running(&c), |v| {
                v.power_state = Some("poweredOff".to_owned())
            }),
            4 => intent(&c, 2),
            5 => with(intent(&c, 1), |v| v.tags_missing = Some(true)),
            _ => running(&c),
        };
        vm.task_id = task
            .then(|| "task-1".to_owned())
            .filter(|_| vm.moref.is_none());
        Some(vm)
    })
}

#[test]
fn a_record_that_was_taken_away_makes_no_second_vm() {
    let ours = ours(PowerState::On);
    let says = |deleting, forced, loss| {
        let facts = with(wanted(None, &ours), |f| {
            f.record.loss = loss;
            f.object.deleting = deleting;
            f.object.forced = forced;
            f.pool.iso_ready = false;
        });
        match next(&facts) {
            Step::Hold { reason, .. } => reason.to_string(),
            step => step.name().to_owned(),
        }
    };
    for deleting in [false, true] {
        assert_eq!(
            says(deleting, false, Loss::Unrecoverable),
            Reason::RecordLost.as_str()
        );
        let again = says(deleting, false, Loss::Restorable);
        assert_eq!(again, "vm.record_identity", "it leads to the VM");
    }
    assert_eq!(says(true, true, Loss::Unrecoverable), "vm.remove_finalizer");
    assert_eq!(says(true, false, Loss::None), "vm.remove_finalizer");
}

fn retain_holds(f: &Facts<'_>) -> bool {
    f.pool.policy == RETAIN
}

fn site() -> impl Strategy<Value = PlacementCheck> {
    prop_oneof![
        Just(PlacementCheck::Fits),
        Just(PlacementCheck::Doubtful),
        Just(PlacementCheck::Elsewhere)
    ]
}

fn causes() -> impl Strategy<Value = Cause> {
    prop_oneof![
        Just(Cause::NotRegistered),
        Just(Cause::Lost(Lost::Disconnected)),
        Just(Cause::Lost(Lost::Gone)),
        Just(Cause::Lost(Lost::Insufficient)),
        Just(Cause::Asked),
    ]
}

fn arrivals() -> impl Strategy<Value = Arrival> {
    prop_oneof![
        Just(Arrival::Awaited),
        (causes(), any::<bool>(), any::<bool>()).prop_map(|(cause, exhausted, allowed)| {
            Arrival::Overdue {
                cause,
                exhausted,
                allowed,
            }
        }),
        Just(Arrival::GivenUp),
        Just(Arrival::Resting(Duration::from_secs(1))),
    ]
}

fn machine_state() -> impl Strategy<Value = MachineState> {
    prop_oneof![
        Just(MachineState::Nobody),
        Just(MachineState::Alive),
        Just(MachineState::Leaving),
        Just(MachineState::Gone),
        Just(MachineState::Unknown("a reason".to_owned())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn no_step_breaks_a_promise(
        vm in recorded(),
        seen in seen(),
        machine_state in machine_state(),
        flags in proptest::array::uniform17(any::<bool>()),
        retain in any::<bool>(),
        site in site(),
        arrival in arrivals(),
        loss in prop_oneof![Just(Loss::None), Just(Loss::Restorable), Just(Loss::Unrecoverable)],
    ) {
        let none = vm.as_ref().is_none_or(|v| v.bios_uuid.is_none() && v.attempt.is_none());
        let facts = with(wanted(vm.as_ref(), &seen), |f| {
            f.record.loss = if none { loss } else { Loss::None };
            f.object.has_finalizer = flags[0];
            f.object.deleting = flags[1];
            f.object.adopted = flags[2];
            f.object.forced = flags[1] && flags[3];
            f.pool.exists = flags[4];
            f.object.cluster_changed = flags[5];
            f.pool.policy = match (retain, flags[4] || flags[14]) {
                (true, true) => RETAIN,
                (false, true) => DELETE,
                (_, false) => UNKNOWN,
            };
            f.create.place = site;
            f.arrival = arrival;
            f.vm.missing_in_scan = flags[15];
            f.vm.powered_on_by_us = flags[14];
            f.pool.iso_ready = flags[6];
            f.create.not_sent = flags[7];
            f.create.path_taken = flags[8];
            f.vm.tagged = flags[9];
            f.agent.bound = flags[10];
            f.agent.has_served = flags[16];
            f.owner.state = &machine_state;
            f.agent.present = flags[11];
            f.agent.fenced = flags[12];
            f.owner.stuck_on_guest = flags[13];
            f.pool.credentials_held = flags[15];
        });
        let step = next(&facts);
        let is_ours = matches!(seen, Ownership::Ours(_));
        let destructive = matches!(step, Step::Power(Power::Off) | Step::Destroy);
        if destructive || matches!(step, Step::Power(Power::On) | Step::Configure(Change::BootOrder(_))) {
            prop_assert!(is_ours, "{step:?} on what is not proven ours");
        }
        if step == Step::Power(Power::On) {
            let said = vm.as_ref().is_some_and(|v| v.tags_missing == Some(true));
            prop_assert!(facts.vm.tagged || said, "switched on without its tags, and nobody will know");
        }
        if destructive {
            let given_up = arrival == Arrival::GivenUp && !facts.object.cluster_changed && machine_state == MachineState::Alive;
            prop_assert!((facts.object.deleting || given_up) && facts.object.has_finalizer);
            prop_assert!(!facts.agent.bound || facts.object.forced, "{step:?} on a serving host");
            prop_assert!(!facts.agent.has_served || facts.object.deleting, "{step:?} on a host that served, and nobody asked");
            prop_assert!(!facts.agent.present || facts.agent.fenced, "{step:?} before the fence");
            prop_assert!(facts.pool.policy != RETAIN, "{step:?} against Retain");
        }
        if step == Step::Attempt(Attempt::Identity) {
            prop_assert!(facts.pool.credentials_held || facts.object.deleting, "intent without credentials that last");
            prop_assert!(!facts.object.deleting || facts.record.loss == Loss::Restorable);
        }
        if step == Step::Create {
            let vm = facts.record.vm.expect("recorded before it is created");
            prop_assert!(facts.record.has_identity && vm.moref.is_none() && !facts.object.deleting && facts.pool.iso_ready);
            prop_assert!(!is_ours && !facts.object.adopted && facts.pool.exists && !facts.object.cluster_changed);
            prop_assert!(!facts.agent.bound && !facts.agent.has_served, "a second VM beside one that serves");
            let not_beside = matches!(seen, Ownership::Foreign { met: FoundBy::Uuid, .. } | Ownership::Several(_));
            prop_assert!(!not_beside, "a second VM beside one that may be ours");
        }
        if matches!(step, Step::Attempt(Attempt::Next) | Step::Attempt(Attempt::Identity)) {
            prop_assert!(!facts.object.deleting && !facts.agent.bound || step == Step::Attempt(Attempt::Identity));
            let kept = step == Step::Attempt(Attempt::Identity) && !facts.record.has_identity;
            prop_assert!(!is_ours || kept, "a new identity while our VM stands");
            prop_assert!(facts.record.loss != Loss::Unrecoverable || step == Step::Attempt(Attempt::Next));
        }
        if step == Step::Attempt(Attempt::Next) {
            let absent = matches!(seen, Ownership::Absent { proofs } if proofs >= super::PROOFS);
            prop_assert!(absent, "a new identity with {seen:?}");
            prop_assert!(!facts.agent.has_served, "another VM for a Machine that one served");
        }
        if step == Step::Attempt(Attempt::GivenUp) {
            let late = matches!(arrival, Arrival::Overdue { .. });
            prop_assert!(late && is_ours && !facts.object.deleting && !retain_holds(&facts));
            prop_assert!(!facts.agent.bound && !facts.agent.has_served, "what serves is given up");
            prop_assert!(machine_state == MachineState::Alive && !facts.object.adopted && facts.pool.exists && !facts.object.cluster_changed);
        }
        if step == Step::Finalizer(Finalizer::Off) {
            prop_assert!(facts.object.deleting);
            let kept = facts.pool.policy == RETAIN;
            let gone = facts.record.loss != Loss::None && facts.pool.exists && !facts.object.forced;
            let never_made = !facts.record.has_identity && !gone || facts.create.not_sent;
            let absent = matches!(seen, Ownership::Absent { proofs } if proofs >= super::PROOFS);
            let looked = !matches!(seen, Ownership::NotAsked | Ownership::Ours(_));
            let kept = kept && (looked || facts.object.forced || vm.as_ref().is_none_or(|v| v.attempt.is_none()));
            prop_assert!(kept || never_made || absent || facts.object.adopted, "finalizer off with {seen:?}");
        }
        if step == Step::Configure(Change::Release) {
            prop_assert!(is_ours && facts.object.deleting && facts.pool.policy == RETAIN);
            prop_assert!(!facts.agent.bound, "a host that serves is let go");
        }
        if matches!(step, Step::Agent(AgentWork::Delete)) {
            prop_assert!(matches!(seen, Ownership::Absent { proofs } if proofs >= super::PROOFS), "an Agent before its VM");
        }
        if matches!(step, Step::Agent(AgentWork::ReleaseHook)) {
            prop_assert!(facts.owner.stuck_on_guest && !matches!(&seen, Ownership::Ours(vm) if vm.power == PowerState::On));
        }
        if facts.object.adopted && facts.record.vm.is_none() {
            prop_assert!(!destructive && step != Step::Create);
        }
        if let Step::Hold { reason, message, .. } = &step {
            prop_assert!(reason != &Reason::default() && !message.is_empty(), "not now without a reason");
        }
    }
}

fn resting(call: E, reason: &Reason, seconds: u64) -> Resting<'_> {
    Resting {
        call,
        reason,
        why: "busy",
        left: Duration::from_secs(seconds),
    }
}

#[test]
fn a_busy_vm_is_looked_at_and_only_the_call_that_rests_is_not_tried() {
    let c = child("a");
    let (made, on) = (intent(&c, 1), running(&c));
    let disordered = Ownership::Ours(Box::new(with(shown(&c, PowerState::Off), |v| {
        v.boot_order.clear();
    })));
    let predecessors = with(on.clone(), |v| v.attempt = None);
    for (call, vm, seen, deleting) in [
        (E::PowerOn, &made, ours(PowerState::Off), false),
        (E::Reconfigure, &made, disordered, false),
        (E::Reconfigure, &predecessors, Ownership::NotAsked, false),
        (E::PowerOff, &on, ours(PowerState::On), true),
        (E::Destroy, &on, ours(PowerState::Off), true),
    ] {
        let facts = |resting| {
            with(wanted(Some(vm), &seen), |f| {
                f.object.deleting = deleting;
                f.owner.state = if deleting {
                    &MachineState::Gone
                } else {
                    &MachineState::Alive
                };
                f.vm.resting = resting;
            })
        };
        let free = next(&facts(None));
        assert_eq!(free.call(), Some(call), "{free:?}");
        for (left, again) in [(7, 7), (299, 60)] {
            let held = next(&facts(Some(resting(call, &Reason::VmBusy, left))));
            let again = Some(Duration::from_secs(again));
            assert_eq!(held, hold(Reason::VmBusy, "busy", again), "{free:?}");
        }
        let other = next(&facts(Some(resting(E::EjectIso, &Reason::VmBusy, 7))));
        assert_eq!(other, free, "another call rests");
    }
    let unseen = with(wanted(Some(&made), &Ownership::NotAsked), |f| {
        f.vm.resting = Some(resting(E::PowerOn, &Reason::VmBusy, 7))
    });
    assert_eq!(next(&unseen), Step::Look);
}

#[test]
fn the_drive_is_emptied_when_all_else_is_done_and_only_of_a_vm_seen_as_ours() {
    let on = running(&child("a"));
    let facts = |seen| {
        with(wanted(Some(&on), seen), |f| {
            f.vm.eject = true;
            f.agent.bound = true;
        })
    };
    assert_eq!(next(&facts(&Ownership::NotAsked)), Step::Look);
    let seen_on = ours(PowerState::On);
    assert_eq!(next(&facts(&seen_on)), Step::Configure(Change::Eject));
    let disc = Cdrom {
        key: 16000,
        iso: Some("[isos] a.iso".to_owned()),
        connected: true,
        start_connected: true,
    };
    let with_disc = Ownership::Ours(Box::new(VmObservation {
        cdroms: vec![disc],
        ..shown(&child("a"), PowerState::On)
    }));
    let busy = |seen| {
        next(&with(facts(seen), |f| {
            f.vm.resting = Some(resting(E::EjectIso, &Reason::EjectFailed, 7))
        }))
    };
    assert_eq!(busy(&Ownership::NotAsked), Step::Look);
    let held = hold(Reason::EjectFailed, "busy", Some(Duration::from_secs(7)));
    assert_eq!(busy(&with_disc), held, "it is still said, and not tried");
    assert_eq!(
        busy(&seen_on),
        Step::Configure(Change::Eject),
        "what kept it away has done it"
    );
    let untagged = with(facts(&Ownership::NotAsked), |f| f.vm.tagged = false);
    assert_eq!(next(&untagged), Step::Tag);
    let off = ours(PowerState::Off);
    assert!(
        matches!(next(&facts(&off)), Step::Hold { .. }),
        "not switched, not changed"
    );
    let leaving = with(facts(&Ownership::NotAsked), |f| {
        f.owner.state = &MachineState::Leaving
    });
    assert_eq!(next(&leaving), Step::Settled);
}
