use std::collections::BTreeSet;

use agent_forge_crds::{
    WaitingOn,
    conditions::Reason,
    external::{ForeignCondition, NamespacedName, agent::INSTALLED},
};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;

use super::*;
use crate::testing::{agent_on, at, child_with_vm, intent, running, with};
use crate::{ports::tracer::PhaseSpan, report::spans::*};

fn about() -> SpanSubject<'static> {
    SpanSubject {
        trace: TraceId::of_machine("am-a"),
        namespace: "demo",
        name: "a",
        pool: "workers",
        before: None,
    }
}

fn bound(agent: Agent) -> Agent {
    with(agent, |a| {
        a.spec.cluster_deployment_name = Some(NamespacedName::default());
    })
}

/// One machine from its demand to its installed Agent, a moment every ten seconds.
fn life() -> (Vec<Milestone>, Agent) {
    let child = child_with_vm("a");
    let (planned, on) = (intent(&child, 1), running(&child));
    let agent = with(agent_on(&child), |a| {
        a.metadata.creation_timestamp = Some(Time(at(55)));
    });
    let serving = with(bound(agent.clone()), |a| {
        let status = a.status.get_or_insert_default();
        status.conditions.push(ForeignCondition {
            type_: INSTALLED.to_owned(),
            status: "True".to_owned(),
            last_transition_time: Some(Time(at(600))),
            ..ForeignCondition::default()
        });
    });
    let start = Moments {
        demanded: Some(at(0)),
        accepted: Some(at(2)),
        ..Moments::default()
    };
    let mut timeline = Vec::new();
    for moments in [
        Moments {
            now: at(10),
            ..start
        },
        Moments {
            now: at(20),
            iso_ready: true,
            ..start
        },
        Moments {
            now: at(30),
            iso_ready: true,
            vm: Some(&planned),
            ..start
        },
        Moments {
            now: at(40),
            iso_ready: true,
            vm: Some(&planned),
            shown: Some(false),
            ..start
        },
        Moments {
            now: at(50),
            iso_ready: true,
            vm: Some(&on),
            ..start
        },
        Moments {
            now: at(60),
            iso_ready: true,
            vm: Some(&on),
            agent: Some(&agent),
            ..start
        },
        Moments {
            now: at(70),
            vm: Some(&on),
            agent: Some(&agent),
            prepared: true,
            ..start
        },
        Moments {
            now: at(80),
            vm: Some(&on),
            agent: Some(&serving),
            prepared: true,
            ..start
        },
    ] {
        timeline = extend(&timeline, &moments);
    }
    (timeline, serving)
}

#[test]
fn a_life_is_a_row_of_phases_under_one_root() {
    let (timeline, agent) = life();
    let mut spans = phases(&about(), &timeline);
    spans.extend(installation(&about(), &timeline, &agent));
    spans.extend(readiness(&about(), &timeline, &agent, at(640)));
    let told: Vec<(&str, i64, i64)> = spans
        .iter()
        .map(|s| {
            let second = |t: Timestamp| t.duration_since(at(0)).as_secs();
            (s.name, second(s.start), second(s.end))
        })
        .collect();
    assert_eq!(
        told,
        [
            ("machine.demand", 0, 2),
            ("iso.wait", 2, 20),
            ("vm.place", 20, 30),
            ("vm.create", 30, 40),
            ("vm.power_on", 40, 50),
            ("agent.discovery", 50, 55),
            ("agent.prepare", 55, 70),
            ("agent.bind", 70, 80),
            ("agent.install", 80, 600),
            ("node.ready", 600, 640),
        ]
    );
    let root = about().trace.phase(ROOT, 1);
    for span in &spans {
        let parent = (span.name != ROOT).then_some(root);
        assert_eq!(
            (span.trace, span.parent),
            (about().trace, parent),
            "{}",
            span.name
        );
        assert!(!span.abandoned, "{}", span.name);
    }
    let ids: BTreeSet<_> = spans.iter().map(|s| s.id).collect();
    assert_eq!(ids.len(), spans.len());
}

#[test]
fn a_node_is_ready_after_the_installation_and_not_without() {
    let (timeline, agent) = life();
    let bare = with(agent.clone(), |a| a.status = None);
    assert_eq!(readiness(&about(), &timeline, &bare, at(640)), None);
    // Two clocks with whole seconds: a phase does not end before it begins.
    let early = readiness(&about(), &timeline, &agent, at(599)).expect("a phase");
    assert_eq!((early.start, early.end), (at(600), at(600)));
    let [once, again] = [(); 2].map(|()| readiness(&about(), &timeline, &agent, at(640)));
    assert_eq!(once, again);
}

#[test]
fn an_end_that_is_recorded_is_told_alike_by_whoever_reads_it() {
    let (timeline, _) = life();
    assert_eq!(ended(&timeline, at(300)), None, "nobody deletes it");
    let deleting = Moments {
        accepted: Some(at(2)),
        deleting: Some(at(700)),
        now: at(701),
        ..Moments::default()
    };
    let leaves = extend(&timeline, &deleting);
    let over = ended(&leaves, at(720)).expect("an end");
    assert!(has_ended(&over) && !has_ended(&leaves));
    assert_eq!(ended(&over, at(730)), None, "once");
    let later = Moments {
        now: at(740),
        ..deleting
    };
    assert_eq!(extend(&over, &later), over, "nothing follows");
    let told = phases(&about(), &over).pop().expect("phases");
    assert_eq!(
        (told.name, told.start, told.end, told.abandoned),
        (DESTROY, at(700), at(720), false)
    );
    assert_eq!(destruction(&about(), &over, at(800)), None, "told already");
}

#[test]
fn however_many_attempts_came_before_whom_a_vm_serves_is_recorded() {
    let child = child_with_vm("a");
    let mut timeline = Vec::new();
    let (mut vm, agent) = (running(&child), agent_on(&child));
    for n in 1..=100 {
        vm.attempt = Some(n);
        let moments = Moments {
            accepted: Some(at(2)),
            iso_ready: true,
            vm: Some(&vm),
            now: at(i64::from(n) * 10),
            ..Moments::default()
        };
        timeline = extend(&timeline, &moments);
    }
    assert!(timeline.len() < MAX_TIMELINE_ROWS, "{}", timeline.len());
    let serving = bound(agent);
    let last = Moments {
        vm: Some(&vm),
        agent: Some(&serving),
        installing: true,
        now: at(2000),
        ..Moments::default()
    };
    timeline = extend(&timeline, &last);
    let record = with(child, |c| {
        let status = c.status.as_mut().expect("recorded");
        status.vm = Some(vm.clone());
        status.timeline.clone_from(&timeline);
    });
    assert!(crate::domain::managed_vm::ManagedVm::read(record.into()).has_served(&[]));
    let leaves = Moments {
        deleting: Some(at(3000)),
        now: at(3000),
        ..last
    };
    let over = ended(&extend(&timeline, &leaves), at(3010)).expect("room for the end");
    assert!(has_ended(&over) && over.len() <= MAX_TIMELINE_ROWS);
}

#[test]
fn what_is_recorded_is_never_told_differently() {
    let (timeline, _) = life();
    let all = phases(&about(), &timeline);
    for known in 0..=timeline.len() {
        let some = phases(&about(), &timeline[..known]);
        assert_eq!(some, all[..some.len()], "after {known} entries");
    }
    // A repeated observation does not change a time either.
    let child = child_with_vm("a");
    let vm = running(&child);
    let again = Moments {
        demanded: Some(at(500)),
        accepted: Some(at(500)),
        iso_ready: true,
        vm: Some(&vm),
        shown: Some(true),
        now: at(900),
        ..Moments::default()
    };
    assert_eq!(extend(&timeline, &again), timeline);
}

#[test]
fn an_installation_that_a_deletion_overtakes_is_told_as_abandoned() {
    let (timeline, _) = life();
    let end = Moments {
        accepted: Some(at(2)),
        deleting: Some(at(300)),
        now: at(301),
        ..Moments::default()
    };
    let overtaken = Moments {
        installing: true,
        ..end
    };
    let over = extend(&timeline, &overtaken);
    assert_eq!(over.last().map(|e| e.event.as_str()), Some(DELETING));
    assert_eq!(extend(&over, &overtaken), over, "once");
    let told = |timeline: &[Milestone]| {
        let all = phases(&about(), timeline).into_iter();
        let of_it = all.filter(|s| s.name == INSTALL);
        of_it
            .map(|s| (s.start, s.end, s.abandoned))
            .collect::<Vec<_>>()
    };
    assert_eq!(told(&over), [(at(80), at(300), true)]);
    assert_eq!(
        destruction(&about(), &over, at(310)).map(|s| s.start),
        Some(at(300))
    );
    // A complete installation was sent before.
    assert_eq!(told(&extend(&timeline, &end)), []);
}

#[test]
fn what_comes_to_nothing_is_said_so() {
    let child = child_with_vm("a");
    let planned = intent(&child, 1);
    let second = VmStatus {
        attempt: Some(1),
        ..VmStatus::default()
    };
    let start = Moments {
        accepted: Some(at(0)),
        iso_ready: true,
        now: at(10),
        ..Moments::default()
    };
    let first = extend(
        &[],
        &Moments {
            vm: Some(&planned),
            ..start
        },
    );
    let next = extend(
        &first,
        &Moments {
            vm: Some(&second),
            now: at(20),
            ..start
        },
    );
    let told = |timeline: &[Milestone]| -> Vec<(&str, String, bool)> {
        let value = |s: &PhaseSpan| {
            s.attributes
                .last()
                .map(|(_, v)| v.clone())
                .unwrap_or_default()
        };
        let spans = phases(&about(), timeline).into_iter();
        spans
            .map(|s| (s.name, value(&s), s.abandoned))
            .skip(3)
            .collect()
    };
    assert_eq!(told(&next), [("vm.create", "1".to_owned(), true)]);
    let end = Moments {
        vm: Some(&second),
        deleting: Some(at(25)),
        now: at(30),
        ..start
    };
    let over = extend(&next, &end);
    assert_eq!(
        told(&over),
        [
            ("vm.create", "1".to_owned(), true),
            ("vm.place", "2".to_owned(), true)
        ]
    );
    let last = destruction(&about(), &over, at(40)).expect("deleting");
    assert_eq!((last.name, last.start, last.end), (DESTROY, at(25), at(40)));
}

fn facts() -> impl Strategy<Value = (i32, bool, bool, Option<bool>, u8)> {
    (
        0..3,
        any::<bool>(),
        any::<bool>(),
        any::<Option<bool>>(),
        0_u8..4,
    )
}

proptest! {
    /// For every order of observations: work is only under spans that are sent in the end, each once.
    #[test]
    fn no_work_is_left_without_its_phase(seen in proptest::collection::vec(facts(), 0..12)) {
        let child = child_with_vm("a");
        let agent = agent_on(&child);
        let serving = bound(agent.clone());
        let mut timeline = Vec::new();
        let mut places = BTreeSet::from([under(about().trace, &timeline).span]);
        let mut clock = 10;
        let (mut attempts, mut identity) = (0, false);
        for (raise, has_identity, iso_ready, shown, agent_stage) in seen {
            clock += 10;
            // An attempt begins and gets its identity. It never moves back.
            if identity && raise == 2 { attempts += 1; identity = false; }
            identity |= has_identity;
            let vm = VmStatus {
                attempt: Some(attempts + i32::from(identity)),
                bios_uuid: identity.then(String::new),
                moref: shown.filter(|_| identity).map(|_| "vm-1".to_owned()),
                ..VmStatus::default()
            };
            timeline = extend(&timeline, &Moments {
                demanded: Some(at(0)),
                accepted: Some(at(1)),
                iso_ready,
                vm: Some(&vm),
                shown,
                agent: [None, Some(&agent), Some(&agent), Some(&serving)][usize::from(agent_stage)],
                prepared: agent_stage >= 2,
                installing: agent_stage == 3,
                deleting: None,
                now: at(clock),
            });
            places.insert(under(about().trace, &timeline).span);
        }
        timeline = extend(&timeline, &Moments {
            demanded: Some(at(0)), accepted: Some(at(1)), deleting: Some(at(clock)), now: at(clock + 5), installing: true,
            ..Moments::default()
        });
        places.insert(under(about().trace, &timeline).span);
        let mut told = phases(&about(), &timeline);
        told.extend(destruction(&about(), &timeline, at(clock + 9)));
        let ids: BTreeSet<_> = told.iter().map(|s| s.id).collect();
        prop_assert_eq!(ids.len(), told.len(), "told twice: {:?}", told);
        let untold: Vec<_> = places.difference(&ids).collect();
        prop_assert!(untold.is_empty(), "{:?} of {:?}", untold, timeline);
    }
}

fn row(reason: Reason, since: i64) -> WaitingOn {
    WaitingOn {
        subject: "vSphere".to_owned(),
        reason,
        message: "https://vcenter/ says no".to_owned(),
        since: Some(Time(at(since))),
    }
}

#[test]
fn a_wait_that_is_over_lies_in_the_phase_of_that_time() {
    let (timeline, _) = life();
    let until_placed = &timeline[..4];
    let (full, scarce) = (row("NoSpace".into(), 31), row(Reason::NoPermission, 33));
    let over =
        |old: &[WaitingOn], new: &[WaitingOn]| waits_over(&about(), until_placed, old, new, at(38));
    assert_eq!(
        over(std::slice::from_ref(&full), std::slice::from_ref(&full)),
        []
    );
    assert_eq!(over(&[], std::slice::from_ref(&full)), [], "it only begins");
    let spans = over(
        &[full.clone(), scarce.clone()],
        std::slice::from_ref(&scarce),
    );
    let [span] = &spans[..] else {
        panic!("{spans:?}")
    };
    assert_eq!((span.name, span.start, span.end), (WAIT, at(31), at(38)));
    assert_eq!(span.parent, Some(about().trace.phase("vm.create", 1)));
    assert!(
        span.attributes
            .contains(&("agent_forge.waiting_on", "NoSpace".to_owned()))
    );
    assert!(!format!("{span:?}").contains("https://"), "no sentence");
    // The same reason since another time is another wait with its own id.
    let again = over(std::slice::from_ref(&full), &[row("NoSpace".into(), 36)]);
    assert_eq!(again[0].id, span.id);
    assert_ne!(over(&[scarce], &[])[0].id, span.id);
}

/// Start and end in seconds.
fn times(spans: &[PhaseSpan]) -> Vec<(i64, i64)> {
    let second = |t: Timestamp| t.duration_since(at(0)).as_secs();
    let both = |s: &PhaseSpan| (second(s.start), second(s.end));
    spans.iter().map(both).collect()
}

#[test]
fn a_wait_that_lasts_is_told_piece_by_piece_by_whoever_is_there() {
    let (timeline, _) = life();
    let until_placed = &timeline[..4];
    let rows = [row(Reason::NoPermission, 25)];
    let lasting = |timeline: &[Milestone], now| waits_lasting(&about(), timeline, &rows, at(now));
    assert_eq!(lasting(until_placed, 324), [], "nothing is over yet");
    let early = lasting(until_placed, 625);
    assert_eq!(times(&early), [(25, 325), (325, 625)]);
    // The first piece began while the VM was placed, the second while it was created. Hours later another process sends the
    // same pieces.
    let parents: Vec<_> = early.iter().map(|s| s.parent).collect();
    let phases = ["vm.place", "vm.create"].map(|p| Some(about().trace.phase(p, 1)));
    assert_eq!(parents, phases);
    assert_eq!(lasting(&timeline, 700)[0], early[0]);
    // At its end the rest follows, with the pieces that may not have been sent.
    let over = waits_over(&about(), until_placed, &rows, &[], at(700));
    assert_eq!(over[..2], early);
    assert_eq!(times(&over[2..]), [(625, 700)]);
    let at_the_end_of_a_piece = waits_over(&about(), until_placed, &rows, &[], at(625));
    assert_eq!(at_the_end_of_a_piece, early);
    let ids: BTreeSet<_> = over.iter().map(|s| s.id).collect();
    assert_eq!(ids.len(), 3);
}

#[test]
fn of_a_wait_of_days_the_last_hour_is_told() {
    let rows = [row(Reason::NoPermission, 0)];
    let told = waits_lasting(&about(), &[], &rows, at(2 * 86_400 + 7));
    assert_eq!(told.len(), 12);
    assert_eq!(times(&told)[11], (2 * 86_400 - 300, 2 * 86_400));
    let root = Some(about().trace.phase(ROOT, 1));
    assert!(told.iter().all(|s| s.parent == root));
}

#[test]
fn a_wait_begins_at_a_whole_second_however_it_is_remembered() {
    let moment = at(10)
        .checked_add(SignedDuration::from_millis(700))
        .expect("in range");
    let what = ("AgentMachine/a", "PoolConflict");
    let told = |since| wait(&about(), &[], what, since, Until::Lasts(at(400)));
    assert_eq!(told(moment), told(at(10)));
    assert_eq!(times(&told(moment)), [(10, 310)]);
    // Two pools wait for each other: each sends its own wait.
    let other = SpanSubject {
        pool: "other",
        ..about()
    };
    let theirs = wait(&other, &[], what, moment, Until::Lasts(at(400)));
    assert_ne!(theirs[0].id, told(moment)[0].id);
}

#[test]
fn news_say_whether_an_earlier_vm_had_come_that_far() {
    let row = |event: &str, attempt, second| Milestone {
        event: event.to_owned(),
        attempt,
        at: Some(MicroTime(at(second))),
    };
    let all = [
        row(DEMANDED, 1, 0),
        row("Placed", 1, 30),
        row(REPLACED, 2, 100),
        row("Placed", 2, 110),
        row("Created", 2, 120),
    ];
    let told = |known: usize| -> Vec<(&str, f64, bool)> {
        let news = news(&all[..known], &all);
        news.map(|n| (n.event, n.seconds, n.first)).collect()
    };
    let latest = [
        (REPLACED, 100.0, true),
        ("Placed", 110.0, false),
        ("Created", 120.0, true),
    ];
    assert_eq!(told(2), latest);
    assert_eq!(told(0)[2..], latest, "in one write with the first");
    assert_eq!(told(5), []);
}

#[test]
fn the_first_phase_links_to_the_life_before_and_no_other_does() {
    let before = TraceId::of_machine("am-before");
    let about = SpanSubject {
        before: Some(before),
        ..about()
    };
    let row = |event: &str, at: i64| Milestone {
        event: event.to_owned(),
        attempt: 1,
        at: Some(MicroTime(Timestamp::from_second(at).expect("a time"))),
    };
    let spans = phases(
        &about,
        &[row("Demanded", 1), row("Accepted", 2), row("ISOReady", 3)],
    );
    let links: Vec<_> = spans.iter().map(|span| (span.name, span.link)).collect();
    let there = Under {
        trace: before,
        span: before.phase(ROOT, 1),
    };
    assert_eq!(links, [(ROOT, Some(there)), ("iso.wait", None)]);
    assert_eq!(spans[0].parent, None, "a link, and no parent");
}
