//! The times of the table: the moment before each limit, and the limit.

use super::*;
use crate::{
    domain::failure::{Class, ErrorSource, ReconcileError},
    iso::{
        msg::{FlightNews, IsoFile},
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

/// Its ISO arrived at once.
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
        let (mut table, _) = flying();
        table.ask(another(), s(after));
        assert_eq!(!table.lane().wanted, over, "by who asks, {after} s");

        let (mut table, _) = flying();
        table.clear(want("b"), s(after));
        assert_eq!(!table.lane().wanted, over, "by who leaves, {after} s");

        let mut table = FlightTable::default();
        table.clear(want("a"), Duration::ZERO);
        table.clear(want("b"), s(after));
        let known = table.pools.contains_key(&pool("a"));
        assert_eq!(!known, over, "who has left, {after} s");
    }
}

#[test]
fn who_wants_it_is_woken_when_it_comes_and_not_for_each_byte() {
    let (mut table, start) = flying();
    table.ask(another(), Duration::ZERO);
    let turn = table.news(start.id, FlightNews::Progress(1, None), s(1));
    assert_eq!(turn.wake, BTreeSet::new());
    let turn = table.news(start.id, FlightNews::Arrived(file('a'), false), s(2));
    assert_eq!(turn.wake, BTreeSet::from([pool("a")]));
    assert_eq!(tasks(&turn.start), [Task::Transfer], "the next one's turn");
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
        let expected = removes.then(|| Task::Prune(old.prunable.clone()));
        assert_eq!(tasks(&started), Vec::from_iter(expected), "{after} s");
    }
}

#[test]
fn a_failure_holds_until_it_is_over() {
    let (mut table, start) = flying();
    let trouble = ReconcileError {
        side: ErrorSource::Iso,
        reason: "Told".into(),
        message: "as told".to_owned(),
        class: Class::Throttled(s(10)),
    };
    table.news(
        start.id,
        FlightNews::Failed(trouble.clone()),
        Duration::ZERO,
    );
    let before = Duration::from_millis(9999);
    let (state, started) = table.ask(want("a"), before);
    assert_eq!(
        (state, tasks(&started)),
        (IsoState::Failed(trouble), vec![])
    );
    let (_, started) = table.ask(want("a"), s(10));
    assert_eq!(tasks(&started), [Task::Transfer]);
}

/// `b` wants content with another key.
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
    let trouble = ReconcileError::blocked(ErrorSource::Iso, "Told".into(), "as told");
    let turn = table.news(start.id, FlightNews::Failed(trouble), Duration::ZERO);
    assert_eq!(turn.wake, BTreeSet::from([pool("a")]));
}

#[test]
fn a_forced_fetch_leaves_others_with_what_is_there_until_it_comes() {
    let mut table = ready();
    let forced = || IsoWant {
        force_token: Some("1".to_owned()),
        ..want("b")
    };
    let (state, started) = table.ask(forced(), s(1));
    assert_eq!(tasks(&started), [Task::Transfer]);
    assert!(matches!(state, IsoState::Fetching { .. }), "{state:?}");
    let has = |table: &mut FlightTable, want: IsoWant| match table.ask(want, s(2)).0 {
        IsoState::Ready { file, .. } => Some(file),
        _ => None,
    };
    assert_eq!(has(&mut table, want("a")), Some(file('a')));
    assert_eq!(has(&mut table, forced()), None);
    let news = FlightNews::Arrived(file('b'), false);
    let turn = table.news(started[0].id, news, s(3));
    assert_eq!(turn.wake, BTreeSet::from([pool("a"), pool("b")]));
    for want in [want("a"), forced(), want("b")] {
        assert_eq!(has(&mut table, want), Some(file('b')), "once, for all");
    }
}

#[test]
fn the_later_of_two_recorded_files_wins() {
    let mut table = ready();
    let mut later = file('b');
    later.uploaded_at = jiff::Timestamp::from_second(1).expect("a time");
    let knows = |file: &IsoFile| IsoWant {
        known: Some(file.clone()),
        ..want("b")
    };
    let (_, started) = table.ask(knows(&later), s(1));
    assert_eq!(tasks(&started), [Task::Check(later.clone(), false)]);
    table.news(started[0].id, FlightNews::Missing, s(1));
    let answer = table.ask(want("a"), s(2)).0;
    let kept = matches!(answer, IsoState::Ready { file: there, .. } if there == file('a'));
    assert!(kept, "that one is gone");
    let (_, started) = table.ask(knows(&later), s(2));
    let news = FlightNews::Arrived(later.clone(), true);
    table.news(started[0].id, news, s(2));
    let answer = table.ask(want("a"), s(3)).0;
    assert!(matches!(answer, IsoState::Ready { file, .. } if file == later));
}

#[test]
fn content_is_shared_with_who_has_the_same() {
    let at = |name: &str, directory: &str| IsoWant {
        directory: DatastorePath::new("ds1", directory).expect("path"),
        shares: true,
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
    // If two are equally far, the pool gets its own.
    for own in ["of-a", "of-b"] {
        let mut table = FlightTable::default();
        for (name, directory) in [("a", "of-a"), ("b", "of-b")] {
            let want = at(name, directory);
            let content = Content::of(&want);
            table.contents.entry(content.clone()).or_default();
            let interest = Interest {
                want,
                content: Some(content),
                asked: Duration::ZERO,
                prune: PruneLog::default(),
            };
            table.pools.insert(pool(name), interest);
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
        (Task::Prune(paths), "prune"),
    ] {
        assert_eq!(task.name(), name);
    }
}
