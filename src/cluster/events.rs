//! Kubernetes Events: recorded beside the work, never in its way.
//!
//! Guarantees: recording never blocks; an unchanged Event about one object is sent at most every five minutes; when
//! too many wait, the newest is dropped and said so in the log.

use std::{collections::HashMap, sync::Arc, time::Duration};

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
    let recorder = Recorder::new(
        client,
        Reporter {
            controller: "agent-forge".to_owned(),
            instance,
        },
    );
    let mut sent: HashMap<String, Instant> = HashMap::new();
    while let Some(notice) = notices.recv().await {
        let same = format!("{}/{}/{}", notice.regarding.uid, notice.reason, notice.note);
        let now = Instant::now();
        sent.retain(|_, at| now.duration_since(*at) < REPEAT_AFTER);
        if sent.insert(same, now).is_some() {
            continue;
        }
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
