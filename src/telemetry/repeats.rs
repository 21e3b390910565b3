//! Keeps the log readable during a long problem. A line that equals a line of the last minute, fields included, is not
//! written again. The object is a field of the line or of its spans, so each object has its own lines.

use std::{
    collections::HashMap,
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    layer::{Context, Filter},
    registry::LookupSpan,
};

/// How long an unchanged line is not repeated.
const QUIET: Duration = Duration::from_secs(60);
/// Most lines that are remembered.
const REMEMBERED: usize = 4096;

/// The filter.
#[derive(Debug, Default)]
pub struct Repeats {
    said: Mutex<HashMap<u64, Instant>>,
}

impl Repeats {
    /// Whether a line is new at `now`. If so, it counts as written then.
    fn is_new(&self, line: u64, now: Instant) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said
            .get(&line)
            .is_some_and(|at| now.duration_since(*at) < QUIET)
        {
            return false;
        }
        if said.len() >= REMEMBERED {
            said.retain(|_, at| now.duration_since(*at) < QUIET);
        }
        // If there are more different lines in a minute, some are written twice. That is better than unlimited memory.
        if said.len() >= REMEMBERED {
            said.clear();
        }
        said.insert(line, now);
        true
    }
}

/// Fields of spans that say what a line is about. Other fields, such as the number of a pass, change all the time. The
/// uid distinguishes an object from a later one with the same name.
const ABOUT: [&str; 4] = ["object", "uid", "cache", "server"];

/// What a span is about: a hash of each field of [`ABOUT`] that it has.
#[derive(Clone, Copy, Default)]
struct SpanFields([Option<u64>; ABOUT.len()]);

impl Visit for SpanFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let known = ABOUT.iter().position(|name| *name == field.name());
        if let Some(known) = known.and_then(|at| self.0.get_mut(at)) {
            let mut hash = DefaultHasher::new();
            format!("{value:?}").hash(&mut hash);
            *known = Some(hash.finish());
        }
    }
}

impl SpanFields {
    /// Stores the hashes with the span, in addition to those that it already has.
    fn keep<S>(self, id: &Id, context: &Context<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        if self.0.iter().all(Option::is_none) {
            return;
        }
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        match extensions.get_mut::<Self>() {
            Some(Self(known)) => {
                for (known, new) in known.iter_mut().zip(self.0) {
                    *known = new.or(*known);
                }
            }
            None => extensions.insert(self),
        }
    }
}

struct Fields(DefaultHasher);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        field.name().hash(&mut self.0);
        format!("{value:?}").hash(&mut self.0);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Filter<S> for Repeats {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut about = SpanFields::default();
        attributes.record(&mut about);
        about.keep(id, &context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let mut about = SpanFields::default();
        values.record(&mut about);
        about.keep(id, &context);
    }

    fn event_enabled(&self, event: &Event<'_>, context: &Context<'_, S>) -> bool {
        // Lines at debug level are all written.
        if *event.metadata().level() > Level::INFO {
            return true;
        }
        let mut fields = Fields(DefaultHasher::new());
        event.metadata().callsite().hash(&mut fields.0);
        event.record(&mut fields);
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(SpanFields(about)) = span.extensions().get() {
                about.hash(&mut fields.0);
            }
        }
        self.is_new(fields.0.finish(), Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing_subscriber::{Layer as _, fmt::MakeWriter, layer::SubscriberExt as _};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
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

    #[test]
    fn an_unchanged_line_is_written_once_for_each_object() {
        let lines = Lines::default();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(lines.clone())
            .with_filter(Repeats::default());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for n in 0..10 {
                for key in ["demo/a", "demo/b"] {
                    tracing::warn!(key, "vCenter does not answer");
                }
                tracing::info!(n, "another line");
            }
        });
        let written = String::from_utf8(lines.0.lock().expect("lock").clone()).expect("text");
        assert_eq!(written.matches("does not answer").count(), 2, "{written}");
        assert_eq!(written.matches("another line").count(), 10, "{written}");
    }

    #[test]
    fn an_object_that_only_the_span_names_has_lines_of_its_own() {
        let lines = Lines::default();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(lines.clone())
            .with_filter(Repeats::default());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for pass in 0..10 {
                for object in ["demo/a", "demo/b"] {
                    let span = tracing::error_span!("actor.pass", object, pass);
                    let _in_it = span.enter();
                    tracing::error_span!("vm.step").in_scope(|| tracing::warn!("no answer"));
                }
            }
        });
        let written = String::from_utf8(lines.0.lock().expect("lock").clone()).expect("text");
        assert_eq!(written.matches("no answer").count(), 2, "{written}");
    }

    #[test]
    fn another_object_of_the_same_name_has_lines_of_its_own() {
        let lines = Lines::default();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(lines.clone())
            .with_filter(Repeats::default());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for uid in ["1", "2", "1"] {
                let known = tracing::error_span!("vm.step", object = "demo/a", uid);
                known.in_scope(|| tracing::warn!("no answer"));
                // A pass finds out the uid only while it runs.
                let empty = tracing::field::Empty;
                let learnt = tracing::error_span!("actor.pass", object = "demo/a", uid = empty);
                learnt.record("uid", uid);
                learnt.in_scope(|| tracing::warn!("no route"));
            }
        });
        let written = String::from_utf8(lines.0.lock().expect("lock").clone()).expect("text");
        for line in ["no answer", "no route"] {
            assert_eq!(written.matches(line).count(), 2, "{written}");
        }
    }

    #[test]
    fn it_is_said_again_after_a_minute_and_memory_is_bounded() {
        let repeats = Repeats::default();
        let start = Instant::now();
        assert!(repeats.is_new(1, start) && !repeats.is_new(1, start + QUIET / 2));
        assert!(repeats.is_new(1, start + QUIET));
        for line in 0..100_000 {
            repeats.is_new(line, start);
        }
        assert!(repeats.said.lock().expect("lock").len() <= REMEMBERED);
    }
}
