//! A collector: takes spans by OTLP over HTTP and keeps them.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use prost::Message as _;
use tokio::{net::TcpListener, task::JoinSet};

/// The collector; it ends when it is dropped.
pub struct Collector {
    address: SocketAddr,
    spans: Arc<Mutex<Vec<Span>>>,
    _serving: JoinSet<()>,
}

impl Collector {
    /// Listens on loopback.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let spans = Arc::new(Mutex::new(Vec::new()));
        let mut serving = JoinSet::new();
        let kept = spans.clone();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let kept = kept.clone();
                connections.spawn(async move {
                    let service = service_fn(|request| take(request, &kept));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Ok(Self {
            address,
            spans,
            _serving: serving,
        })
    }

    /// What the operator is told of it; spans leave soon, so that few are lost with a killed process.
    pub fn environment(&self) -> Vec<(String, String)> {
        [
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                format!("http://{}", self.address),
            ),
            ("OTEL_BSP_SCHEDULE_DELAY", "100".to_owned()),
        ]
        .map(|(k, v)| (k.to_owned(), v))
        .to_vec()
    }

    /// All spans so far, in the order of their arrival.
    pub fn spans(&self) -> Vec<Span> {
        self.spans.lock().map(|s| s.clone()).unwrap_or_default()
    }
}

async fn take(
    request: Request<Incoming>,
    spans: &Mutex<Vec<Span>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let read = async {
        let body = request.into_body().collect().await?.to_bytes();
        anyhow::Ok(ExportTraceServiceRequest::decode(body)?)
    };
    let mut answer = Response::new(Full::default());
    match read.await {
        Ok(export) => {
            let scopes = export
                .resource_spans
                .into_iter()
                .flat_map(|r| r.scope_spans);
            if let Ok(mut spans) = spans.lock() {
                spans.extend(scopes.flat_map(|s| s.spans));
            }
        }
        Err(_) => *answer.status_mut() = hyper::StatusCode::BAD_REQUEST,
    }
    Ok(answer)
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
    /// Spans that came more than once, byte for byte the same.
    pub repeated: usize,
}

impl Tree {
    /// Puts a trace together; an error where two spans of one id differ.
    pub fn of(all: Vec<Span>, trace: &str) -> Result<Self> {
        let trace = hex::decode(trace).context("a trace id")?;
        let mut tree = Self {
            spans: BTreeMap::new(),
            repeated: 0,
        };
        for span in all.into_iter().filter(|s| s.trace_id == trace) {
            if let Some(known) = tree.spans.get(&span.span_id) {
                anyhow::ensure!(
                    known.encode_to_vec() == span.encode_to_vec(),
                    "{} was told in two ways:\n{known:?}\n{span:?}",
                    span.name
                );
                tree.repeated += 1;
            }
            tree.spans.insert(span.span_id.clone(), span);
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

    /// Spans of that name.
    pub fn named(&self, name: &str) -> Vec<&Span> {
        self.spans.values().filter(|s| s.name == name).collect()
    }
}
