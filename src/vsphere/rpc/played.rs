//! A vCenter made of one function, for tests of single requests. It cannot negotiate, and accepts every login.

use std::sync::Arc;

use agent_forge_actors::ports::vcenter::{Credentials, Trust};
use async_trait::async_trait;
use serde_json::{Value, json};

use super::{client::Client, limits::Limits, session::SESSION_HEADER};
use crate::{
    gate::OpenGate,
    telemetry::metrics::Metrics,
    vsphere::{Options, Transport, TransportFailure},
};

/// Answers a request by the last part of its path and by its body, with HTTP status and reply.
struct Played<F>(F);

/// A reference; kind and id are the same word.
pub(crate) fn one(kind: &str) -> Value {
    json!({"_typeName": "ManagedObjectReference", "type": kind, "value": kind})
}

#[async_trait]
impl<F> Transport for Played<F>
where
    F: Fn(&str, &str) -> (u16, Value) + Send + Sync,
{
    async fn send(&self, request: reqwest::Request) -> Result<reqwest::Response, TransportFailure> {
        let body = request.body().and_then(reqwest::Body::as_bytes);
        let asked = String::from_utf8_lossy(body.unwrap_or_default());
        let path = request.url().path();
        let (status, body) = match path.rsplit('/').next().unwrap_or_default() {
            "system" => (404, json!({})),
            "content" => (
                200,
                json!({
                    "rootFolder": one("Folder"),
                    "propertyCollector": one("PropertyCollector"),
                    "sessionManager": one("SessionManager"),
                    "searchIndex": one("SearchIndex"),
                    "viewManager": one("ViewManager"),
                    "fileManager": one("FileManager"),
                }),
            ),
            "Login" => (200, json!({})),
            "session" => (201, json!("key")),
            last => (self.0)(last, &asked),
        };
        let reply = http::Response::builder()
            .status(status)
            .header(SESSION_HEADER, "key")
            .body(body.to_string());
        Ok(reply.expect("a reply").into())
    }
}

/// A client of such a vCenter.
pub(crate) fn client<F>(answer: F) -> Arc<Client>
where
    F: Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static,
{
    let credentials = Credentials {
        server: url::Url::parse("https://vc.example/").expect("url"),
        username: "user".to_owned(),
        password: "p".to_owned().into(),
        trust: Trust::System,
    };
    let options = Options {
        transport: Some(Arc::new(Played(answer))),
        ..Options::default()
    };
    let gate = Arc::new(OpenGate::new(Arc::new(Metrics::new().expect("metrics"))));
    let bounds =
        Limits::new(agent_forge_actors::ports::slots::turns::Limits::tasks(1)).of("vc.example");
    Client::new(credentials, gate, Arc::new(options), bounds).expect("a client")
}
