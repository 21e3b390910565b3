//! Requests carry the trace context of their span.

use std::sync::Arc;

use agent_forge::vsphere::{Options, VsphereConnector};
use agent_forge_actors::ports::vcenter::{Connector as _, Credentials, Trust};
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tracing::Instrument as _;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::layer::SubscriberExt as _;

use super::support::Recorder;

#[tokio::test]
async fn a_request_to_vcenter_carries_the_trace_that_it_is_made_in() {
    agent_forge_lab::install_tls_provider();
    opentelemetry::global::set_text_map_propagator(
        opentelemetry_sdk::propagation::TraceContextPropagator::new(),
    );
    let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    // With two subscribers, a callsite does not take the answer of a thread without a subscriber.
    let _another = tracing::Dispatch::new(tracing_subscriber::registry());
    let _here = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (told, mut heads) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = [0; 8192];
            let read = socket.read(&mut request).await.unwrap();
            let _ = told.send(String::from_utf8_lossy(&request[..read]).into_owned());
            let answer = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n\r\n";
            let _ = socket.write_all(answer).await;
        }
    });
    let options = Options {
        allow_http: true,
        ..Options::default()
    };
    let connector = VsphereConnector::new(Arc::new(Recorder::default()), options);
    let credentials = Credentials {
        server: format!("http://{address}").parse().unwrap(),
        username: "operator@vsphere.local".into(),
        password: "password".to_owned().into(),
        trust: Trust::Insecure,
    };
    let around = tracing::info_span!("around");
    let trace = around.context().span().span_context().trace_id();
    let connected = connector.connect(&credentials).instrument(around).await;
    assert!(connected.is_err());
    let head = heads.recv().await.unwrap();
    let carried = format!("traceparent: 00-{trace}-");
    assert!(head.contains(&carried), "{carried} is not in {head}");
}
