//! Kubernetes Events: recorded beside the work, never in its way.
//!
//! Guarantees: recording never blocks; an unchanged Event about one object is sent at most every five minutes, as one more
//! of its series; one with another note is an Event of its own; about one object at most [`AT_MOST`] leave in five minutes.
//! When too many wait, the newest is dropped and said so in the log.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use agent_forge_actors::{
    effect::{Effect, EffectKind, Gate, Settled},
    ports::cluster::Notice,
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio::{sync::mpsc, time::Instant};

use crate::deadline;

const QUEUE: usize = 256;
const REPEAT_AFTER: Duration = Duration::from_secs(300);
/// Events about one object within [`REPEAT_AFTER`].
const AT_MOST: usize = 30;
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Where notices go.
#[derive(Clone)]
pub struct EventSink(mpsc::Sender<Notice>);

impl EventSink {
    /// Starts the sender, whose calls take at most `write_within`; it ends when the last sink is dropped.
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
        if let Err(e) = self.0.try_send(notice) {
            tracing::warn!("event dropped: {e}");
        }
    }
}

/// What was sent, and when: decides what is sent now. Keeps with each note whatever sends its repeats (`T`).
struct Book<T> {
    sent: HashMap<[String; 3], (Instant, T)>,
    recent: HashMap<String, VecDeque<Instant>>,
}

impl<T> Default for Book<T> {
    fn default() -> Self {
        Self {
            sent: HashMap::new(),
            recent: HashMap::new(),
        }
    }
}

impl<T: Clone> Book<T> {
    /// What the notice is to be sent with; `None` where it is not to be sent.
    fn admit(&mut self, notice: &Notice, now: Instant, fresh: impl FnOnce() -> T) -> Option<T> {
        // A repeat comes soon after [`REPEAT_AFTER`] or is no repeat.
        self.sent
            .retain(|_, (at, _)| now.duration_since(*at) < REPEAT_AFTER * 2);
        for times in self.recent.values_mut() {
            times.retain(|at| now.duration_since(*at) < REPEAT_AFTER);
        }
        self.recent.retain(|_, times| !times.is_empty());
        let object = &notice.regarding.uid;
        let note = [object, notice.reason, &notice.note].map(str::to_owned);
        let known = self.sent.get(&note);
        let lately = known.is_some_and(|(at, _)| now.duration_since(*at) < REPEAT_AFTER);
        let recent = self.recent.entry(object.clone()).or_default();
        if lately || recent.len() >= AT_MOST {
            return None;
        }
        recent.push_back(now);
        let with = known.map_or_else(fresh, |(_, with)| with.clone());
        self.sent.insert(note, (now, with.clone()));
        Some(with)
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
    // A recorder takes Events of one reason for the same, whatever their note says: each note has its own.
    let fresh = || Recorder::new(client.clone(), reporter.clone());
    let mut book = Book::default();
    while let Some(notice) = notices.recv().await {
        let Some(recorder) = book.admit(&notice, Instant::now(), fresh) else {
            continue;
        };
        let effect = Effect::new(EffectKind::Event, &notice.regarding.key);
        let end = Instant::now() + within;
        if gate.admit(&effect).await.is_err() {
            continue;
        }
        let event = Event {
            type_: if notice.warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: notice.reason.to_owned(),
            note: Some(notice.note.chars().take(1000).collect()),
            action: notice.action.to_owned(),
            secondary: None,
        };
        let regarding = ObjectReference {
            api_version: Some(notice.regarding.api_version),
            kind: Some(notice.regarding.kind),
            namespace: Some(notice.regarding.key.namespace),
            name: Some(notice.regarding.key.name),
            uid: Some(notice.regarding.uid),
            ..ObjectReference::default()
        };
        let outcome = match deadline::until(end, recorder.publish(&event, &regarding)).await {
            Ok(Ok(())) => Settled::Done,
            Ok(Err(e)) => {
                tracing::warn!("event not recorded: {e}");
                Settled::Refused
            }
            Err(_) => Settled::Unknown,
        };
        gate.settled(&effect, outcome);
    }
}

#[cfg(test)]
mod tests {
    use agent_forge_actors::{model::names::ObjectKey, ports::cluster::Regarding};

    use super::*;

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

    /// Admits in order and counts the senders that were made.
    struct Desk(Book<usize>, usize, Instant);

    impl Desk {
        fn new() -> Self {
            Self(Book::default(), 0, Instant::now())
        }

        fn admit(&mut self, second: u64, uid: &str, note: &str) -> Option<usize> {
            let at = self.2 + Duration::from_secs(second);
            let made = &mut self.1;
            self.0.admit(&notice(uid, note), at, || {
                *made += 1;
                *made
            })
        }
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
            (desk.0.sent.len(), desk.0.recent.len()),
            (1, 1),
            "nothing is kept"
        );
    }
}
