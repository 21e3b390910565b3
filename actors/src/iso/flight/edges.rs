//! The table's times: a moment before, and then.

use super::*;
use crate::{
    domain::failure::{Class, ReconcileError},
    iso::{
        msg::ShareGroup,
        testing::bench::{path, pool, want},
    },
};

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn file(digit: char) -> IsoFile {
    let sha256 = digit.to_string().repeat(64);
    IsoFile {
        path: path(&format!("{sha256}.iso")),
        sha256,
        size: 1,
        uploaded_at: jiff::Timestamp::UNIX_EPOCH,
        validators: Default::default(),
        volatile: false,
    }
}

/// Pool `a` has asked, and its transfer has begun.
fn flying() -> (FlightTable, Start) {
    let mut table = FlightTable::default();
    let (_, mut started) = table.ask(want("a"), Duration::ZERO);
    let start = started.pop().expect("a transfer");
    assert_eq!((&start.task, started.len()), (&Task::Transfer, 0));
    (table, start)
}

/// Its ISO has come at once.
fn ready() -> FlightTable {
    let (mut table, start) = flying();
    let news = FlightNews::Arrived(file('a'), false);
    table.news(start.id, news, Duration::ZERO);
    table
}

fn tasks(started: &[Start]) -> Vec<Task> {
    started.iter().map(|start| start.task.clone()).collect()
}

#[test]
fn a_file_is_looked_at_when_it_is_time() {
    let (hundred, fifty) = (Some(s(100)), Some(s(50)));
    for (check_every, look_within, after, looks) in [
        (None, None, 599, None),
        (None, None, 600, Some(false)),
        (hundred, None, 99, None),
        (hundred, None, 100, Some(true)),
        (None, fifty, 49, None),
        (None, fifty, 50, Some(false)),
    ] {
        let want = IsoWant {
            check_every,
            look_within,
            ..want("a")
        };
        let (_, started) = ready().ask(want, s(after));
        let expected = looks.map(|source| Task::Check(file('a'), source));
        let what = format!("{check_every:?}, {look_within:?}, {after} s");
        assert_eq!(tasks(&started), Vec::from_iter(expected), "{what}");
    }
}

#[test]
fn who_asks_no_more_is_forgotten_after_a_while() {
    for (after, over) in [(599, false), (600, true)] {
        let (mut table, start) = flying();
        table.ask(another(), s(after));
        assert_eq!(start.wanted.is_over(), over, "by who asks, {after} s");

        let (mut table, start) = flying();
        table.clear(want("b"), s(after));
        assert_eq!(start.wanted.is_over(), over, "by who leaves, {after} s");

        let mut table = FlightTable::default();
        table.clear(want("a"), Duration::ZERO);
        table.clear(want("b"), s(after));
        let known = table.left.contains_key(&pool("a"));
        assert_eq!(!known, over, "who has left, {after} s");
    }
}

#[test]
fn progress_wakes_once_a_second() {
    let (mut table, start) = flying();
    for (after, wakes) in [(0, true), (999, false), (1000, true), (1999, false)] {
        let now = Duration::from_millis(after);
        let turn = table.news(start.id, FlightNews::Progress(1, None), now);
        let expected = wakes.then(|| pool("a"));
        assert_eq!(turn.wake, BTreeSet::from_iter(expected), "{after} ms");
    }
}

#[test]
fn nothing_is_removed_before_all_had_time_to_ask() {
    let old = IsoWant {
        prunable: vec![file('0').path],
        ..want("a")
    };
    for (after, removes) in [(59, false), (60, true)] {
        let (_, started) = ready().ask(old.clone(), s(after));
        let expected = removes.then(|| Task::Prune(old.prunable.clone()));
        assert_eq!(tasks(&started), Vec::from_iter(expected), "{after} s");

        let mut table = ready();
        let leaves = IsoWant {
            pool: pool("b"),
            ..old.clone()
        };
        let (_, started) = table.clear(leaves, s(after));
        let expected = removes.then(|| Task::Clear(old.prunable.clone()));
        assert_eq!(tasks(&started), Vec::from_iter(expected), "{after} s");
    }
}

#[test]
fn a_failure_holds_until_it_is_over_and_that_is_said_once() {
    let (mut table, start) = flying();
    let trouble = ReconcileError {
        side: ErrorSource::Iso,
        reason: "Told".to_owned(),
        message: "as told".to_owned(),
        class: Class::Throttled(s(10)),
    };
    table.news(
        start.id,
        FlightNews::Failed(trouble.clone()),
        Duration::ZERO,
    );
    assert_eq!(table.next_due(), Some(s(10)));
    let before = Duration::from_millis(9999);
    assert_eq!(table.due(before), BTreeSet::new());
    let (state, started) = table.ask(want("a"), before);
    assert_eq!(
        (state, tasks(&started)),
        (IsoState::Failed(trouble), vec![])
    );
    assert_eq!(table.due(s(10)), BTreeSet::from([pool("a")]));
    assert_eq!(table.due(s(10)), BTreeSet::new());
    assert_eq!(table.next_due(), None);
    let (_, started) = table.ask(want("a"), s(10));
    assert_eq!(tasks(&started), [Task::Transfer]);
}

/// `b` wants what has another key.
fn another() -> IsoWant {
    IsoWant {
        source_key: "another".to_owned(),
        ..want("b")
    }
}

#[test]
fn a_failure_is_told_to_who_wants_that_source_and_lacks_it() {
    let (mut table, start) = flying();
    table.ask(another(), Duration::ZERO);
    let trouble = ReconcileError::blocked(ErrorSource::Iso, "Told", "as told");
    let turn = table.news(start.id, FlightNews::Failed(trouble), Duration::ZERO);
    assert_eq!(turn.wake, BTreeSet::from([pool("a")]));
}

#[test]
fn trouble_of_what_is_there_is_not_waited_on() {
    let mut table = ready();
    let anew = IsoWant {
        force_token: Some("1".to_owned()),
        ..want("b")
    };
    let (_, started) = table.ask(anew, Duration::ZERO);
    let trouble = ReconcileError::blocked(ErrorSource::Iso, "Told", "as told");
    table.news(started[0].id, FlightNews::Failed(trouble), Duration::ZERO);
    let (waits, failures) = table.waiting_on();
    let reasons: Vec<_> = waits.iter().map(|(reason, _)| reason.as_str()).collect();
    assert_eq!((reasons, failures), (vec!["Told"], 1));
}

#[test]
fn content_is_shared_with_who_has_the_same() {
    let at = |name: &str, directory: &str| IsoWant {
        directory: DatastorePath::new("ds1", directory).expect("path"),
        shareable: Some(ShareGroup::Default),
        ..want(name)
    };
    let other = IsoWant {
        source_key: "another".to_owned(),
        ..at("b", "of-b")
    };
    for (want, home) in [(at("b", "of-b"), "of-a"), (other, "of-b")] {
        let mut table = FlightTable::default();
        table.ask(at("a", "of-a"), Duration::ZERO);
        assert_eq!(table.home(&want).path, home);
    }
    // Of two that are as far, one's own.
    for own in ["of-a", "of-b"] {
        let mut table = FlightTable::default();
        for (name, directory) in [("a", "of-a"), ("b", "of-b")] {
            let want = at(name, directory);
            let entry = table.entries.entry(Content::of(&want)).or_default();
            entry.asked(want, Duration::ZERO);
        }
        assert_eq!(table.home(&at("c", own)).path, own);
    }
}

#[test]
fn each_task_has_its_name() {
    let paths = vec![file('0').path];
    for (task, name) in [
        (Task::Check(file('a'), false), "check"),
        (Task::Transfer, "transfer"),
        (Task::Prune(paths.clone()), "prune"),
        (Task::Clear(paths), "clear"),
    ] {
        assert_eq!(task.name(), name);
    }
}
