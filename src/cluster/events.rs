//! Records Kubernetes Events without delaying the work.
//!
//! Guarantees:
//!
//! - Recording never blocks.
//! - An unchanged Event about one object is recorded at most every five minutes, as part of its series.
//! - An Event with another note is a new Event.
//! - At most `AT_MOST` Events about one object are sent in five minutes.
//! - When too many wait, the newest is dropped and the log names it.
//! - An Event that the API server did not answer, or could not store, is sent again for five minutes ([`AGAIN`]).
//!
//! Assumption: there is one sender, so each Event's outcome is known before the next notice is handled. Caveat: an
//! Event whose answer was lost counts as not recorded. It is sent again, so it may exist twice.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    sync::Arc,
    time::Duration,
};

use agent_forge_actors::{
    domain::text,
    ports::{
        cluster::Notice,
        effect::{Effect, EffectKind, Gate, Settled, Subject},
    },
};
use agent_forge_crds::conditions::event;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    time::Instant,
};

use crate::deadline;

const QUEUE: usize = 256;
const REPEAT_AFTER: Duration = Duration::from_secs(300);
/// Events about one object within [`REPEAT_AFTER`].
const AT_MOST: usize = 30;
/// Bytes of a note. The API server accepts 1024.
const NOTE: usize = 1000;
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Seconds from a failed attempt to the next one. After that a lost Event only comes again with its cause.
const AGAIN: [u64; 6] = [5, 10, 20, 40, 80, 160];

/// Accepts notices and sends them in the background.
#[derive(Clone)]
pub struct EventSink(mpsc::Sender<Notice>);

impl EventSink {
    /// Starts the sender. Each of its calls takes at most `write_within`. It ends when the last sink is dropped.
    #[must_use]
    pub fn start(
        client: Client,
        gate: Arc<dyn Gate>,
        instance: Option<String>,
        write_within: Duration,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let within = write_within.min(SEND_TIMEOUT);
        tokio::spawn(send_all(client, gate, instance, within, receiver));
        Self(sender)
    }

    /// Records a notice.
    pub fn record(&self, notice: Notice) {
        debug_assert!(event::ALL.contains(&notice.reason), "{}", notice.reason);
        if let Err(why) = self.0.try_send(notice) {
            let (TrySendError::Full(lost) | TrySendError::Closed(lost)) = &why;
            tell(lost, format_args!("event dropped: {why}"));
        }
    }
}

/// Logs what happened to a notice, with the object that the notice is about.
fn tell(notice: &Notice, what: fmt::Arguments<'_>) {
    let of = &notice.regarding;
    tracing::warn!(
        object = %of.key,
        uid = %of.uid,
        trace_id = trace_of(&notice.note),
        reason = notice.reason,
        "{what}"
    );
}

/// The trace id at the end of a note about one machine.
fn trace_of(note: &str) -> Option<&str> {
    let (_, named) = note.rsplit_once("(trace ")?;
    Some(named.split_once(')')?.0)
}

/// The Events that were recorded, and when. Decides whether a notice is sent now. `T` is the recorder of a note, which
/// is kept for repeats of the same note.
struct Book<T> {
    recorded: HashMap<Note, (Instant, T)>,
    /// When Events about an object were sent, recorded or not.
    recent: HashMap<String, VecDeque<Instant>>,
}

/// uid of the object, reason, note.
type Note = [String; 3];

fn note(notice: &Notice) -> Note {
    [&notice.regarding.uid, notice.reason, &notice.note].map(str::to_owned)
}

impl<T> Default for Book<T> {
    fn default() -> Self {
        Self {
            recorded: HashMap::new(),
            recent: HashMap::new(),
        }
    }
}

impl<T: Clone> Book<T> {
    /// The recorder for this notice; `None` if the notice is not to be sent.
    fn admit(&mut self, notice: &Notice, now: Instant, fresh: impl FnOnce() -> T) -> Option<T> {
        // After twice this time a repeat no longer belongs to its series.
        self.recorded
            .retain(|_, (at, _)| now.duration_since(*at) < REPEAT_AFTER * 2);
        for times in self.recent.values_mut() {
            times.retain(|at| now.duration_since(*at) < REPEAT_AFTER);
        }
        self.recent.retain(|_, times| !times.is_empty());
        let known = self.recorded.get(&note(notice));
        let lately = known.is_some_and(|(at, _)| now.duration_since(*at) < REPEAT_AFTER);
        let recent = self.recent.get(&notice.regarding.uid);
        if lately || recent.is_some_and(|times| times.len() >= AT_MOST) {
            return None;
        }
        Some(known.map_or_else(fresh, |(_, with)| with.clone()))
    }

    /// Stores that the notice was sent at `at` with the recorder of [`Self::admit`]. If the Event was not recorded, the
    /// next notice with the same text is sent at once.
    fn note(&mut self, notice: &Notice, at: Instant, with: T, outcome: Settled) {
        let uid = notice.regarding.uid.clone();
        self.recent.entry(uid).or_default().push_back(at);
        if outcome == Settled::Done {
            self.recorded.insert(note(notice), (at, with));
        }
    }
}

/// Events that were not recorded, by the time of their next attempt. It holds at most [`QUEUE`].
#[derive(Default)]
struct Retries(BTreeMap<(Instant, u64), Attempt>, u64);

/// A notice, and how often it was sent.
struct Attempt {
    notice: Notice,
    sent: usize,
}

impl Retries {
    /// Keeps an attempt that failed at `now` for the next one. Returns whether there is a next one: this may have been the
    /// last one, or too many wait.
    fn keep(&mut self, Attempt { notice, sent }: Attempt, now: Instant) -> bool {
        let Some(seconds) = AGAIN.get(sent).filter(|_| self.0.len() < QUEUE) else {
            return false;
        };
        self.1 += 1;
        let (at, sent) = (now + Duration::from_secs(*seconds), sent + 1);
        self.0.insert((at, self.1), Attempt { notice, sent });
        true
    }

    /// The attempt that is due first, at its time. It never comes if nothing waits.
    async fn next(&mut self) -> Attempt {
        let Some(((at, _), _)) = self.0.first_key_value() else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(*at).await;
        match self.0.pop_first() {
            Some((_, attempt)) => attempt,
            None => std::future::pending().await,
        }
    }
}

/// Whether the same Event may be recorded at the next attempt.
fn may_pass_later(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500 || status.code == 429,
        _ => true,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that publishes Events, behind the gate"
)]
async fn send_all(
    client: Client,
    gate: Arc<dyn Gate>,
    instance: Option<String>,
    within: Duration,
    mut notices: mpsc::Receiver<Notice>,
) {
    let reporter = Reporter {
        controller: "agent-forge".to_owned(),
        instance,
    };
    // A recorder puts all Events of one reason into one series, whatever their notes are. So each note has its own
    // recorder.
    let fresh = || Recorder::new(client.clone(), reporter.clone());
    let mut book = Book::default();
    let mut retries = Retries::default();
    loop {
        let Attempt { notice, sent } = tokio::select! {
            new = notices.recv() => match new {
                Some(notice) => Attempt { notice, sent: 0 },
                None => return,
            },
            again = retries.next() => again,
        };
        let now = Instant::now();
        let Some(recorder) = book.admit(&notice, now, fresh) else {
            continue;
        };
        let effect = Effect::new(
            EffectKind::Event,
            Subject::Object(notice.regarding.key.clone()),
        );
        let end = now + within;
        if gate.admit(&effect).await.is_err() {
            continue;
        }
        let (event, regarding) = (event(&notice), regarding(&notice));
        let (outcome, lost) = match deadline::until(end, recorder.publish(&event, &regarding)).await
        {
            Ok(Ok(())) => (Settled::Done, None),
            Ok(Err(e)) => (Settled::Refused, Some((may_pass_later(&e), e.to_string()))),
            Err(_) => (
                Settled::Unknown,
                Some((true, "no answer in time".to_owned())),
            ),
        };
        book.note(&notice, now, recorder, outcome);
        gate.settled(&effect, outcome);
        if let Some((later, why)) = lost {
            tell(&notice, format_args!("event not recorded: {why}"));
            if later {
                retries.keep(Attempt { notice, sent }, Instant::now());
            }
        }
    }
}

/// Shortens a note to the limit. The trace id at its end stays, because people search for it.
fn shortened(note: &str) -> String {
    if note.len() <= NOTE {
        return note.to_owned();
    }
    let end = note.rfind(" (trace ").filter(|at| note.len() - at < 100);
    let (words, trace) = note.split_at(end.unwrap_or(note.len()));
    let room = NOTE - trace.len() - '\u{2026}'.len_utf8();
    format!(
        "{}\u{2026}{trace}",
        &words[..words.floor_char_boundary(room)]
    )
}

fn event(notice: &Notice) -> Event {
    Event {
        type_: if notice.warning {
            EventType::Warning
        } else {
            EventType::Normal
        },
        reason: notice.reason.to_owned(),
        note: Some(shortened(&text::plain(&notice.note))),
        action: notice.action.to_owned(),
        secondary: None,
    }
}

fn regarding(notice: &Notice) -> ObjectReference {
    let of = &notice.regarding;
    ObjectReference {
        api_version: Some(of.api_version.clone()),
        kind: Some(of.kind.clone()),
        namespace: Some(of.key.namespace.clone()),
        name: Some(of.key.name.clone()),
        uid: Some(of.uid.clone()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use agent_forge_actors::{domain::names::ObjectKey, ports::cluster::Regarding};

    use super::*;
    use crate::telemetry::told::Lines;

    fn notice(uid: &str, note: &str) -> Notice {
        Notice {
            regarding: Regarding {
                api_version: "v1".to_owned(),
                kind: "VsphereAgent".to_owned(),
                key: ObjectKey::new("demo", uid),
                uid: uid.to_owned(),
            },
            warning: true,
            reason: "ApplyPlanFailed",
            action: "ApplyPlan",
            note: note.to_owned(),
        }
    }

    /// Admits notices in order and counts the recorders.
    struct Desk(Book<usize>, usize, Instant);

    impl Desk {
        fn new() -> Self {
            Self(Book::default(), 0, Instant::now())
        }

        /// Admits a notice; if it is admitted, it is recorded.
        fn admit(&mut self, second: u64, uid: &str, note: &str) -> Option<usize> {
            self.send(second, uid, note, Settled::Done)
        }

        fn send(&mut self, second: u64, uid: &str, note: &str, end: Settled) -> Option<usize> {
            let at = self.2 + Duration::from_secs(second);
            let notice = notice(uid, note);
            let made = &mut self.1;
            let with = self.0.admit(&notice, at, || {
                *made += 1;
                *made
            })?;
            self.0.note(&notice, at, with, end);
            Some(with)
        }
    }

    #[test]
    fn what_became_of_a_notice_is_said_with_whom_it_is_about() {
        let lines = Lines::default();
        let here = lines.here();
        let (sender, receiver) = mpsc::channel(1);
        let sink = EventSink(sender);
        // The first notice takes the only place of the queue.
        sink.record(notice("a", "no route"));
        sink.record(notice("b", "no route (trace 0af7)"));
        drop(receiver);
        sink.record(notice("c", "no route"));
        drop(here);
        let said: Vec<_> = lines
            .fields()
            .into_iter()
            .map(|l| ["object", "uid", "trace_id"].map(|f| l[f].as_str().unwrap_or("-").to_owned()))
            .collect();
        assert_eq!(said, [["demo/b", "b", "0af7"], ["demo/c", "c", "-"]]);
    }

    #[test]
    fn a_long_note_keeps_its_trace_and_is_one_that_the_api_server_takes() {
        let trace = " (trace 98744f92c8a4463eb1500dd1e087aa09)";
        for words in ["w".repeat(3000), "\u{fc}\u{20ac}".repeat(700)] {
            let told = shortened(&format!("{words}{trace}"));
            assert!(told.ends_with(&format!("\u{2026}{trace}")), "{told}");
            assert!((990..=NOTE).contains(&told.len()), "{}", told.len());
            let told = shortened(&words);
            assert!(told.ends_with('\u{2026}') && told.len() <= NOTE, "{told}");
        }
        for short in [
            "",
            "no route",
            &format!("no route{trace}"),
            &"w".repeat(NOTE),
        ] {
            assert_eq!(shortened(short), short);
        }
    }

    #[test]
    fn one_that_was_not_recorded_is_sent_when_it_is_said_again() {
        for end in [Settled::Refused, Settled::Unknown] {
            let mut desk = Desk::new();
            assert!(desk.send(0, "a", "no route", end).is_some());
            assert!(desk.admit(1, "a", "no route").is_some(), "{end:?}");
            assert_eq!(desk.admit(2, "a", "no route"), None, "{end:?}");
        }
    }

    #[test]
    fn what_the_gate_held_back_has_not_left() {
        let mut desk = Desk::new();
        for _ in 0..100 {
            assert!(
                desk.0
                    .admit(&notice("a", "no route"), desk.2, || 0)
                    .is_some()
            );
        }
        assert!(desk.admit(1, "a", "no route").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_was_not_recorded_is_sent_again_for_five_minutes() {
        let (mut retries, begin) = (Retries::default(), Instant::now());
        let mut attempt = Attempt {
            notice: notice("a", "no route"),
            sent: 0,
        };
        let mut seconds = Vec::new();
        while retries.keep(attempt, Instant::now()) {
            attempt = retries.next().await;
            seconds.push(begin.elapsed().as_secs());
        }
        assert_eq!(seconds, [5, 15, 35, 75, 155, 315]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_the_next_attempt_is_bounded_and_in_order() {
        let mut retries = Retries::default();
        let mut keep = |n: usize| {
            let notice = notice(&n.to_string(), "no route");
            // The first one failed before.
            let sent = usize::from(n == 0);
            retries.keep(Attempt { notice, sent }, Instant::now())
        };
        let kept = (0..=QUEUE).filter(|n| keep(*n)).count();
        assert_eq!(kept, QUEUE);
        let first = retries.next().await.notice.regarding.uid;
        let second = retries.next().await.notice.regarding.uid;
        assert_eq!([first, second], ["1", "2"]);
    }

    #[test]
    fn what_the_api_server_refuses_for_good_is_not_sent_again() {
        let status = |code| {
            let status = kube::core::Status::failure("it says why", "Reason").with_code(code);
            kube::Error::Api(status.boxed())
        };
        for (code, later) in [
            (403, false),
            (404, false),
            (422, false),
            (429, true),
            (500, true),
            (503, true),
        ] {
            assert_eq!(may_pass_later(&status(code)), later, "{code}");
        }
        assert!(may_pass_later(
            &kube::Error::LinesCodecMaxLineLengthExceeded
        ));
    }

    #[test]
    fn a_repeat_that_was_not_recorded_stays_one_of_its_series() {
        let mut desk = Desk::new();
        assert_eq!(desk.admit(0, "a", "no route"), Some(1));
        for second in [300, 301] {
            let refused = desk.send(second, "a", "no route", Settled::Refused);
            assert_eq!(refused, Some(1), "{second} s");
        }
        assert_eq!(desk.admit(302, "a", "no route"), Some(1));
        assert_eq!(desk.admit(303, "a", "no route"), None);
    }

    #[test]
    fn refusals_are_no_storm() {
        let mut desk = Desk::new();
        let sent = (0..100).filter(|second| {
            let end = Settled::Refused;
            desk.send(*second, "a", "no route", end).is_some()
        });
        assert_eq!(sent.count(), AT_MOST);
    }

    #[test]
    fn an_unchanged_note_waits_and_is_one_more_of_its_series_then() {
        let mut desk = Desk::new();
        assert_eq!(desk.admit(0, "a", "no route"), Some(1));
        for second in [0, 1, 299] {
            assert_eq!(desk.admit(second, "a", "no route"), None, "{second} s");
        }
        assert_eq!(desk.admit(0, "b", "no route"), Some(2), "another object");
        assert_eq!(desk.admit(300, "a", "no route"), Some(1), "the same sender");
        assert_eq!(desk.admit(2000, "a", "no route"), Some(3), "long ago");
    }

    #[test]
    fn another_note_of_the_same_reason_is_an_event_of_its_own() {
        let mut desk = Desk::new();
        assert_eq!(desk.admit(0, "a", "no route"), Some(1));
        assert_eq!(desk.admit(1, "a", "refused"), Some(2));
        assert_eq!(desk.admit(2, "a", "no route"), None);
    }

    #[test]
    fn notes_that_differ_each_time_are_no_storm() {
        let mut desk = Desk::new();
        let times = |desk: &mut Desk, from: u64, uid: &str| {
            let told = (from..from + 100).filter(|n| desk.admit(*n, uid, &n.to_string()).is_some());
            told.count()
        };
        assert_eq!(times(&mut desk, 0, "a"), AT_MOST);
        assert_eq!(
            times(&mut desk, 100, "b"),
            AT_MOST,
            "each object has its own"
        );
        assert_eq!(times(&mut desk, 500, "a"), AT_MOST, "later again");
        desk.admit(5000, "c", "last");
        assert_eq!(
            (desk.0.recorded.len(), desk.0.recent.len()),
            (1, 1),
            "nothing is kept"
        );
    }

    /// The reasons in the table of the document.
    fn documented() -> Vec<String> {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/docs/reference/observability.md"
        );
        let text = std::fs::read_to_string(path).expect("the document");
        let (_, events) = text.split_once("## Events").expect("its chapter");
        let (events, _) = events.split_once("\n## ").expect("the next one");
        let rows = events.lines().filter_map(|l| l.strip_prefix("| `"));
        rows.filter_map(|r| Some(r.split_once('`')?.0.to_owned()))
            .collect()
    }

    #[test]
    fn every_reason_that_is_sent_is_documented_and_no_other() {
        let mut documented = documented();
        let mut sent: Vec<&str> = event::ALL.into();
        documented.sort();
        sent.sort_unstable();
        assert_eq!(documented, sent);
    }
}
