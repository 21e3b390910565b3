//! Tests of log lines. A line about work names its object at any log level. Everything that the process prints is a log
//! line. The messages of libraries about failed calls are not printed.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{
    convert::Infallible,
    future::Ready,
    io::Write,
    net::TcpListener,
    process::Command,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use agent_forge::telemetry::logging;
use agent_forge_actors::runtime::shell::{Shell, Verdict, Worker};
use futures::future::BoxFuture;
use http::{Request, Response};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, client::Body};
use opentelemetry::trace::{Tracer as _, TracerProvider as _};
use opentelemetry_sdk::{
    error::{OTelSdkError, OTelSdkResult},
    trace::{SdkTracerProvider, SpanData, SpanExporter},
};
use ractor::Actor;
use serde_json::Value;
use tokio::sync::Notify;
use tower::Service;
use tracing_subscriber::{EnvFilter, Layer as _, fmt::MakeWriter, layer::SubscriberExt as _};

use crate::alone::{is_alone, run_alone};

/// The lines of a log.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    pub fn written(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// A worker that warns in each pass, and reports each pass.
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
        let written = lines.written();
        let line = written.lines().find(|l| l.contains("does not answer"));
        let line: Value = serde_json::from_str(line.unwrap()).unwrap();
        let mut spans = line["spans"].as_array().into_iter().flatten();
        assert!(
            spans.any(|s| s["object"] == "demo/a"),
            "RUST_LOG={level}: {line}"
        );
    }
}

/// The output of the operator when it cannot start.
fn last_words(format: &str) -> String {
    let operator = Command::new(env!("CARGO_BIN_EXE_agent-forge"))
        .args([format, "--kubeconfig=/nowhere/kubeconfig"])
        .env_remove("RUST_LOG")
        .output()
        .unwrap();
    assert_eq!(operator.status.code(), Some(1));
    String::from_utf8(operator.stderr).unwrap()
}

#[test]
fn what_ends_the_process_is_an_error_in_the_form_of_the_log() {
    let why = "reading kubeconfig /nowhere/kubeconfig";
    let said = last_words("--log-format=json");
    let lines: Vec<Value> = said
        .lines()
        .map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}")))
        .collect();
    let last = lines.last().unwrap();
    assert_eq!(last["level"], "ERROR", "{said}");
    let words = last["fields"]["message"].as_str().unwrap();
    assert!(words.contains(why), "{said}");
    let said = last_words("--log-format=human");
    let last = said.lines().last().unwrap();
    assert!(last.contains("ERROR") && last.contains(why), "{said}");
}

/// It has a process of its own: its panic hook is for all threads.
#[test]
fn a_panic_is_a_line_with_its_object() {
    if !is_alone() {
        run_alone("log_lines::a_panic_is_a_line_with_its_object", &[]);
        return;
    }
    let lines = Lines::default();
    let log = logging::lines(true, EnvFilter::new("info"), lines.clone());
    let here = tracing::subscriber::set_default(tracing_subscriber::registry().with(log));
    logging::log_panics();
    let panicked = std::panic::catch_unwind(|| {
        let step = tracing::error_span!("vm.step", object = "demo/a");
        let _in_it = step.enter();
        panic!("no {}", "way");
    });
    drop(std::panic::take_hook());
    drop(here);
    assert!(panicked.is_err());
    let written = lines.written();
    let line = written.lines().find(|l| l.contains("no way")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["level"], "ERROR", "{line}");
    assert_eq!(line["span"]["object"], "demo/a", "{line}");
    let words = line["fields"]["message"].as_str().unwrap();
    let place = words.starts_with(concat!("panicked at ", file!(), ":"));
    assert!(place && words.ends_with(": no way"), "{words}");
}

/// An API server whose answer cannot be parsed.
struct Garbled(&'static str);

impl Service<Request<Body>> for Garbled {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let body = Body::from(self.0.as_bytes().to_vec());
        std::future::ready(Ok(Response::new(body)))
    }
}

/// A client of an API server that is unreachable.
fn of_nobody() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("http://{}", free.local_addr().unwrap());
    let mut config = kube::Config::new(uri.parse().unwrap());
    (config.root_cert, config.default_retry) = (Some(Vec::new()), false);
    Client::try_from(config).unwrap()
}

/// A collector that is unreachable.
#[derive(Debug)]
struct Away;

impl SpanExporter for Away {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Err(OTelSdkError::InternalFailure("nobody there".to_owned()))
    }
}

/// It has a process of its own: its subscriber is for all threads.
#[tokio::test]
async fn what_libraries_say_of_a_failed_call_is_left_to_its_caller() {
    if !is_alone() {
        run_alone(
            "log_lines::what_libraries_say_of_a_failed_call_is_left_to_its_caller",
            &[],
        );
        return;
    }
    let (all, ours) = (Lines::default(), Lines::default());
    let as_it_comes = tracing_subscriber::fmt::layer()
        .json()
        .with_writer(all.clone())
        .with_filter(EnvFilter::new("info"));
    let log = logging::lines(true, EnvFilter::new("info"), ours.clone());
    // For all threads: the SDK exports on a thread of its own.
    let everywhere = tracing_subscriber::registry().with(as_it_comes).with(log);
    tracing::subscriber::set_global_default(everywhere).unwrap();

    let garbled = Garbled(r#"{"metadata":{"name":"a"},"data":"image_token=s3cret"}"#);
    for client in [Client::new(garbled, "demo"), of_nobody()] {
        let secrets: Api<Secret> = Api::default_namespaced(client);
        assert!(secrets.get("a").await.is_err());
    }
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(Away)
        .build();
    drop(provider.tracer("test").start("a span"));
    let flushed = tokio::task::spawn_blocking(move || provider.force_flush()).await;
    assert!(flushed.unwrap().is_err());

    tracing::warn!("the caller's own words");
    let (all, ours) = (all.written(), ours.written());
    for theirs in ["s3cret", "failed with error", "nobody there"] {
        assert!(all.contains(theirs), "{theirs}: {all}");
        assert!(!ours.contains(theirs), "{theirs}: {ours}");
    }
    assert!(ours.contains("own words"), "{ours}");
}
