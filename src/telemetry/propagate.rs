//! Adds the trace context (`traceparent`) to requests to vCenter and to the image service. Without a collector there is
//! no context, and nothing is added.

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::{global, propagation::Injector};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Puts the trace context of the current span on a request.
pub fn inject(headers: &mut HeaderMap) {
    struct Headers<'a>(&'a mut HeaderMap);
    impl Injector for Headers<'_> {
        fn set(&mut self, key: &str, value: String) {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value))
            {
                self.0.insert(name, value);
            }
        }
    }
    let context = Span::current().context();
    global::get_text_map_propagator(|propagator| {
        propagator.inject_context(&context, &mut Headers(headers))
    });
}
