//! A collector of spans that keeps nothing. It counts what comes by OTLP over HTTP, or accepts connections and never
//! answers.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::JoinSet};

/// How the collector behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Accepts everything.
    Takes,
    /// Accepts connections and never answers, like a collector that hangs.
    Silent,
}

/// The collector. It ends when it is dropped.
#[derive(Debug)]
pub struct SpanSink {
    address: SocketAddr,
    counts: Arc<Counts>,
    _serving: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Counts {
    exports: AtomicU64,
    bytes: AtomicU64,
}

impl SpanSink {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(mood: Mood) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("span sink: no free port")?;
        let address = listener.local_addr()?;
        let counts = Arc::new(Counts::default());
        let mut serving = JoinSet::new();
        serving.spawn(accept(listener, mood, counts.clone()));
        Ok(Self {
            address,
            counts,
            _serving: serving,
        })
    }

    /// The environment variables that make an operator send its spans here.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let endpoint = format!("http://{}", self.address);
        vec![("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), endpoint)]
    }

    /// Requests so far. For a silent collector: connections so far.
    #[must_use]
    pub fn exports(&self) -> u64 {
        self.counts.exports.load(Ordering::Relaxed)
    }

    /// Bytes of spans so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, mood: Mood, counts: Arc<Counts>) {
    let (mut connections, mut held) = (JoinSet::new(), Vec::new());
    while let Ok((stream, _)) = listener.accept().await {
        if mood == Mood::Silent {
            counts.exports.fetch_add(1, Ordering::Relaxed);
            held.push(stream);
            continue;
        }
        let counts = counts.clone();
        connections.spawn(async move {
            let answer = service_fn(move |request| take(request, counts.clone()));
            let served = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            // It does not matter if a client disconnects.
            let _ = served.await;
        });
    }
}

async fn take(
    request: Request<Incoming>,
    counts: Arc<Counts>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    if let Ok(body) = request.into_body().collect().await {
        counts.exports.fetch_add(1, Ordering::Relaxed);
        let bytes = body.to_bytes().len() as u64;
        counts.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    Ok(Response::new(Empty::new()))
}
