//! A tracing layer that records spans and their events, and a tracer that records phases.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard},
};

use tracing::{
    Event, Id, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Record},
    subscriber::DefaultGuard,
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt as _},
    registry::LookupSpan,
};

use crate::{
    domain::trace::TraceId,
    ports::tracer::{PhaseSpan, Tracer, Under},
};

/// Keeps a second subscriber alive. While only one subscriber was ever registered, the first thread at a callsite decides
/// whether the callsite is enabled. That may be a thread of another test, without a subscriber.
fn never_alone() {
    static ANOTHER: std::sync::OnceLock<tracing::Dispatch> = std::sync::OnceLock::new();
    ANOTHER.get_or_init(|| tracing::Dispatch::new(tracing_subscriber::registry()));
}

/// Fields with their values as text. An event's text is its field `message`.
#[derive(Clone, Debug, Default)]
pub struct Fields(BTreeMap<&'static str, String>);

impl Fields {
    /// The value of a field.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

/// A span.
#[derive(Clone, Debug)]
pub struct Span {
    id: Id,
    name: &'static str,
    /// Its fields.
    pub fields: Fields,
    /// Its events, in order.
    pub events: Vec<Fields>,
}

impl Span {
    /// The messages of its events, in order.
    pub fn said(&self) -> Vec<&str> {
        let words = self.events.iter().filter_map(|e| e.get("message"));
        words.collect()
    }
}

/// All spans, and all events in them or outside. Clones share them.
#[derive(Clone, Default)]
pub struct Told {
    spans: Arc<Mutex<Vec<Span>>>,
    lines: Arc<Mutex<Vec<Fields>>>,
}

impl Told {
    /// Records the spans and events of this thread until the guard is dropped.
    pub fn here(&self) -> DefaultGuard {
        never_alone();
        let all = tracing_subscriber::registry().with(self.clone());
        tracing::subscriber::set_default(all)
    }

    /// The spans of that name, in order of their begin.
    pub fn spans(&self, name: &str) -> Vec<Span> {
        let all = self.all();
        all.iter().filter(|s| s.name == name).cloned().collect()
    }

    /// All events, in order, in any span or outside.
    pub fn lines(&self) -> Vec<Fields> {
        self.lines.lock().expect("lock").clone()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Span>> {
        self.spans.lock().expect("lock")
    }

    /// Span ids are used again after a span has ended: this means the last one.
    fn change(&self, id: &Id, change: impl FnOnce(&mut Span)) {
        if let Some(span) = self.all().iter_mut().rev().find(|s| s.id == *id) {
            change(span);
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Told {
    fn on_new_span(&self, span: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        let mut fields = Fields::default();
        span.record(&mut fields);
        self.all().push(Span {
            id: id.clone(),
            name: span.metadata().name(),
            fields,
            events: Vec::new(),
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        self.change(id, |span| values.record(&mut span.fields));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.lines.lock().expect("lock").push(fields.clone());
        if let Some(around) = context.event_span(event) {
            self.change(&around.id(), |span| span.events.push(fields));
        }
    }
}

/// The recorded phases of machines, in order, each once, until they are forgotten. Clones share them.
#[derive(Clone, Default)]
pub struct Phases(Arc<Mutex<Vec<PhaseSpan>>>);

impl Phases {
    /// The phases of that name.
    pub fn named(&self, name: &str) -> Vec<PhaseSpan> {
        let all = self.0.lock().expect("lock");
        all.iter().filter(|s| s.name == name).cloned().collect()
    }
}

impl Tracer for Phases {
    fn phase(&self, span: PhaseSpan) {
        let mut all = self.0.lock().expect("lock");
        match all.iter().find(|s| s.id == span.id) {
            Some(known) => assert_eq!(*known, span, "told in two ways"),
            None => all.push(span),
        }
    }
    fn place(&self, _: &tracing::Span, _: Under) {}
    fn forget(&self, _: TraceId) {}
}
