//! A collector: accepts spans by OTLP over HTTP and gRPC, both with TLS, and keeps them.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use crate::{
    server::{answering, listen},
    tls_door::TlsDoor,
};
use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{Request, Response, body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::Span,
};
use opentelemetry_sdk::{propagation::TraceContextPropagator, trace::SdkTracerProvider};
use prost::Message as _;
use tempfile::TempDir;
use tracing::subscriber::DefaultGuard;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::layer::SubscriberExt as _;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The collector. It ends with the runtime of the test.
pub struct Collector {
    http: TlsDoor,
    grpc: TlsDoor,
    certificates: TempDir,
    told: Arc<Mutex<Vec<Told>>>,
}

/// A span as it arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    pub span: Span,
    /// The process that sent it.
    pub resource: Option<Resource>,
    /// Name of its scope.
    pub scope: Option<String>,
}

impl Told {
    /// The value of one attribute of its resource.
    pub fn of_resource(&self, key: &str) -> Option<String> {
        text(&self.resource.as_ref()?.attributes, key)
    }
}

/// The protocol of the spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Http,
    Grpc,
}

impl Collector {
    /// Listens on loopback.
    pub async fn start() -> Result<Self> {
        let told = Arc::new(Mutex::new(Vec::new()));
        let http = TlsDoor::before(serve(By::Http, &told).await, "http/1.1");
        let grpc = TlsDoor::before(serve(By::Grpc, &told).await, "h2");
        Ok(Self {
            http: http.await?,
            grpc: grpc.await?,
            certificates: tempfile::tempdir()?,
            told,
        })
    }

    /// The environment variables that make an operator send its spans here. Spans are sent soon, so that a killed
    /// process loses few. Processes with different protocols count as different Pods.
    pub fn environment(&self, by: By) -> Result<Vec<(String, String)>> {
        let (door, protocol) = match by {
            By::Http => (&self.http, "http/protobuf"),
            By::Grpc => (&self.grpc, "grpc"),
        };
        let ca = self.certificates.path().join(format!("{by:?}.pem"));
        std::fs::write(&ca, &door.ca)?;
        let told = [
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                format!("https://{}", door.address),
            ),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.to_owned()),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.display().to_string()),
            ("OTEL_BSP_SCHEDULE_DELAY", "100".to_owned()),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                format!("k8s.pod.name=agent-forge-{by:?},service.namespace=lab"),
            ),
        ];
        Ok(told.map(|(k, v)| (k.to_owned(), v)).to_vec())
    }

    /// All spans so far, in the order of their arrival.
    pub fn spans(&self) -> Vec<Span> {
        self.told().into_iter().map(|told| told.span).collect()
    }

    /// The same, each with its sender.
    pub fn told(&self) -> Vec<Told> {
        self.told.lock().map(|t| t.clone()).unwrap_or_default()
    }
}

async fn serve(by: By, told: &Arc<Mutex<Vec<Told>>>) -> SocketAddr {
    let kept = told.clone();
    match by {
        By::Http => answering(move |request| take(by, request, kept.clone())).await,
        By::Grpc => {
            listen(move |stream| {
                let (stream, kept) = (TokioIo::new(stream), kept.clone());
                let service = service_fn(move |request| {
                    let answered = take(by, request, kept.clone());
                    async move { Ok::<_, Infallible>(answered.await) }
                });
                async move {
                    let builder = http2::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(stream, service).await;
                }
            })
            .await
        }
    }
}

async fn take(
    by: By,
    request: Request<Incoming>,
    told: Arc<Mutex<Vec<Told>>>,
) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let read = async {
        let mut body = request.into_body().collect().await?.to_bytes();
        if by == By::Grpc {
            // Each message begins with a flag for compression and with its length.
            anyhow::ensure!(body.len() >= 5 && body[0] == 0, "no plain gRPC message");
            body = body.slice(5..);
        }
        anyhow::Ok(ExportTraceServiceRequest::decode(body)?)
    };
    let known = read.await.map(|export| {
        if let Ok(mut told) = told.lock() {
            told.extend(all_of(export));
        }
    });
    let mut answer = Response::new(match by {
        By::Http => Full::default().boxed_unsync(),
        By::Grpc => {
            let status = if known.is_ok() { "0" } else { "3" };
            let trailers = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static(status))]);
            Full::new(Bytes::from_static(&[0; 5]))
                .with_trailers(async move { Some(Ok(trailers)) })
                .boxed_unsync()
        }
    });
    match by {
        By::Http if known.is_err() => *answer.status_mut() = StatusCode::BAD_REQUEST,
        By::Http => {}
        By::Grpc => {
            let kind = HeaderValue::from_static("application/grpc");
            answer.headers_mut().insert(CONTENT_TYPE, kind);
        }
    }
    answer
}

fn all_of(export: ExportTraceServiceRequest) -> Vec<Told> {
    let mut all = Vec::new();
    for mut of_resource in export.resource_spans {
        // The SDK keeps the attributes in no order.
        if let Some(resource) = &mut of_resource.resource {
            resource.attributes.sort_by(|a, b| a.key.cmp(&b.key));
        }
        for of_scope in of_resource.scope_spans {
            let scope = of_scope.scope.map(|scope| scope.name);
            all.extend(of_scope.spans.into_iter().map(|span| Told {
                span,
                resource: of_resource.resource.clone(),
                scope: scope.clone(),
            }));
        }
    }
    all
}

/// A string or number as text.
pub fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let value = attributes.iter().find(|a| a.key == key)?.value.as_ref()?;
    match value.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The spans of one trace by their ids, each once.
pub struct Tree {
    pub spans: BTreeMap<Vec<u8>, Span>,
    /// Number of repeated spans: equal byte for byte, from the same resource and scope.
    pub repeated: usize,
    /// Number of spans with all repetitions.
    pub raw: usize,
}

impl Tree {
    /// Builds a trace. Fails if two spans have the same id and differ.
    pub fn of(all: Vec<Told>, trace: &str) -> Result<Self> {
        let trace = hex::decode(trace).context("a trace id")?;
        let mut tree = Self {
            spans: BTreeMap::new(),
            repeated: 0,
            raw: 0,
        };
        let mut first: BTreeMap<Vec<u8>, Told> = BTreeMap::new();
        for told in all.into_iter().filter(|t| t.span.trace_id == trace) {
            tree.raw += 1;
            let id = told.span.span_id.clone();
            let Some(known) = first.get(&id) else {
                tree.spans.insert(id.clone(), told.span.clone());
                first.insert(id, told);
                continue;
            };
            anyhow::ensure!(
                *known == told && known.span.encode_to_vec() == told.span.encode_to_vec(),
                "{} was told in two ways:\n{known:?}\n{told:?}",
                told.span.name
            );
            tree.repeated += 1;
        }
        Ok(tree)
    }

    /// Names from the root down to the span.
    pub fn path(&self, span: &Span) -> Result<Vec<String>> {
        let mut names = vec![span.name.clone()];
        let mut at = span;
        while !at.parent_span_id.is_empty() {
            let found = self.spans.get(&at.parent_span_id);
            at = found.with_context(|| format!("the parent of {names:?} never came"))?;
            names.insert(0, at.name.clone());
        }
        Ok(names)
    }

    /// Spans with that name.
    pub fn named(&self, name: &str) -> Vec<&Span> {
        self.spans.values().filter(|s| s.name == name).collect()
    }
}

/// Subscribers that trace this thread, a span of theirs, and how a request made in that span must carry its trace.
pub fn traced() -> ((tracing::Dispatch, DefaultGuard), tracing::Span, String) {
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    let provider = SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    // With two subscribers, a callsite does not take the answer of a thread without a subscriber.
    let another = tracing::Dispatch::new(tracing_subscriber::registry());
    let here = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    let around = tracing::info_span!("around");
    let trace = around.context().span().span_context().trace_id();
    ((another, here), around, format!("traceparent: 00-{trace}-"))
}
