//! A line of work says whom it is about, whatever level the log has.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use agent_forge_actors::actor::shell::{Shell, Verdict, Worker};
use futures::future::BoxFuture;
use ractor::Actor;
use serde_json::Value;
use tokio::sync::Notify;
use tracing_subscriber::{EnvFilter, Layer as _, fmt::MakeWriter, layer::SubscriberExt as _};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Warns in each pass, and says that it did.
struct Warns(Arc<Notify>);

impl Worker for Warns {
    type Memory = ();

    fn kind(&self) -> &'static str {
        "vm"
    }

    fn key(&self) -> String {
        "demo/a".to_owned()
    }

    fn debounce(&self) -> Duration {
        Duration::ZERO
    }

    fn pass(&self, (): ()) -> BoxFuture<'static, ((), Verdict)> {
        let done = self.0.clone();
        Box::pin(async move {
            tracing::warn!("vCenter does not answer");
            done.notify_one();
            ((), Verdict::default())
        })
    }
}

#[tokio::test]
async fn a_warning_names_its_object_at_every_level_that_shows_it() {
    for level in ["info", "warn"] {
        let lines = Lines::default();
        let layer = tracing_subscriber::fmt::layer()
            .json()
            .with_writer(lines.clone())
            .with_filter(EnvFilter::new(level));
        let here = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        let done = Arc::new(Notify::new());
        let (actor, ended) = Actor::spawn(None, Shell::default(), Warns(done.clone()))
            .await
            .unwrap();
        done.notified().await;
        actor.stop(None);
        ended.await.unwrap();
        drop(here);
        let written = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let line = written.lines().find(|l| l.contains("does not answer"));
        let line: Value = serde_json::from_str(line.unwrap()).unwrap();
        let mut spans = line["spans"].as_array().into_iter().flatten();
        assert!(
            spans.any(|s| s["object"] == "demo/a"),
            "RUST_LOG={level}: {line}"
        );
    }
}
