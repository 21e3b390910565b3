//! The table's times: a moment before, and then.

use super::*;
use crate::{
    error::{Class, Trouble},
    iso_cache::testing::bench::{path, pool, want},
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
        let other = IsoWant {
            source_key: "another".to_owned(),
            ..want("b")
        };
        table.ask(other, s(after));
        assert_eq!(start.wanted.is_over(), over, "by who asks, {after} s");

        let (mut table, start) = flying();
        table.clear(want("b"), s(after));
        assert_eq!(start.wanted.is_over(), over, "by who leaves, {after} s");
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
    let trouble = Trouble {
        side: Side::Iso,
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
