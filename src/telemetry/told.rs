//! For tests: an exporter that keeps its spans, and a log that keeps its lines.

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SdkTracerProvider, SpanData, SpanExporter},
};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::{fmt::MakeWriter, layer::SubscriberExt as _};

/// Registers a second subscriber, so that a callsite asks each thread's subscriber.
///
/// With only one registered subscriber, a callsite takes the answer of the first thread that reaches it. The thread of
/// another test has no subscriber, so the callsite would be off for all.
fn never_alone() {
    static ANOTHER: std::sync::OnceLock<tracing::Dispatch> = std::sync::OnceLock::new();
    ANOTHER.get_or_init(|| tracing::Dispatch::new(tracing_subscriber::registry()));
}

/// The spans so far. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Told(Arc<Mutex<Vec<SpanData>>>);

impl Told {
    /// Keeps the spans that end on this thread, until the guard is dropped.
    pub fn here(&self) -> DefaultGuard {
        never_alone();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(self.clone())
            .build();
        let layer = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("test"))
            .with_location(false)
            .with_threads(false);
        tracing::subscriber::set_default(tracing_subscriber::registry().with(layer))
    }

    /// The attributes of the last span with that name, values as text.
    pub fn attributes(&self, name: &str) -> Vec<(String, String)> {
        let span = self.last(name);
        let attributes = span.attributes.iter();
        let as_text = attributes.map(|a| (a.key.to_string(), a.value.to_string()));
        as_text.collect()
    }

    /// The names of the events of the last span with that name, in order.
    pub fn events(&self, name: &str) -> Vec<String> {
        let span = self.last(name);
        let names = span.events.iter().map(|e| e.name.to_string());
        names.collect()
    }

    fn last(&self, name: &str) -> SpanData {
        let all = self.0.lock().expect("lock");
        let span = all.iter().rev().find(|s| s.name == name);
        span.unwrap_or_else(|| panic!("no span {name} among {all:?}"))
            .clone()
    }
}

impl SpanExporter for Told {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().expect("lock").extend(batch);
        Ok(())
    }
}

/// The log's lines so far, as JSON. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Keeps what this thread logs, until the guard is dropped.
    pub fn here(&self) -> DefaultGuard {
        never_alone();
        let layer = tracing_subscriber::fmt::layer()
            .json()
            .with_writer(self.clone());
        tracing::subscriber::set_default(tracing_subscriber::registry().with(layer))
    }

    /// Each line.
    pub fn all(&self) -> Vec<serde_json::Value> {
        let written = String::from_utf8(self.0.lock().expect("lock").clone()).expect("UTF-8");
        let lines = written.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// The fields of each line.
    pub fn fields(&self) -> Vec<serde_json::Value> {
        let all = self.all().into_iter();
        all.map(|mut line| line["fields"].take()).collect()
    }

    /// The level and the message of each line.
    pub fn sentences(&self) -> Vec<[String; 2]> {
        let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let all = self.all().into_iter();
        all.map(|line| [word(&line["level"]), word(&line["fields"]["message"])])
            .collect()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("lock").extend_from_slice(bytes);
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
