//! A vCenter that answers one method with the bytes of an input, and everything else as usual.

use std::sync::Arc;

use agent_forge::vsphere::{Options, Transport, TransportFailure, VsphereConnector};
use agent_forge_actors::ports::{
    effect::{Effect, EffectKind, Gate, Hold, Settled, Subject},
    vcenter::{Connector as _, Credentials, Trust, VCenter, VcError},
};
use async_trait::async_trait;
use serde_json::{Value, json};

use crate::SECRET;

/// Longest message of an error. A condition has room for more.
const LONGEST_MESSAGE: usize = 4096;

/// Everything may run.
struct Open;

#[async_trait]
impl Gate for Open {
    async fn admit(&self, _: &Effect) -> Result<(), Hold> {
        Ok(())
    }

    fn settled(&self, _: &Effect, _: Settled) {}
}

/// An answer of the input: status and body.
pub(crate) type Reply = (u16, Vec<u8>);

/// What the method under test answers, by the number of the call.
pub(crate) type Answers = Box<dyn Fn(usize) -> Reply + Send + Sync>;

struct Script {
    method: &'static str,
    answers: Answers,
    asked: std::sync::atomic::AtomicUsize,
}

#[async_trait]
impl Transport for Script {
    async fn send(&self, request: reqwest::Request) -> Result<reqwest::Response, TransportFailure> {
        let method = request.url().path().rsplit('/').next().unwrap_or_default();
        let (status, body) = if method == self.method {
            let number = self
                .asked
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            // vCenter holds a poll open. Without any time the client would ask for ever in one moment.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            (self.answers)(number)
        } else {
            (200, usual(method).to_string().into_bytes())
        };
        let response = http::Response::builder()
            .status(status)
            .header("vmware-api-session-id", SECRET)
            .body(body);
        let response = response.unwrap_or_else(|e| panic!("no response: {e}"));
        Ok(reqwest::Response::from(response))
    }
}

fn usual(method: &str) -> Value {
    let of = |kind: &str, id: &str| json!({"_typeName": "ManagedObjectReference", "type": kind, "value": id});
    match method {
        "system" => json!({"api_release": "8.0.2.0"}),
        "content" => json!({
            "_typeName": "ServiceContent",
            "about": {"_typeName": "AboutInfo", "instanceUuid": "2b1c6f0e-5a6f-4a5e-9f65-0d2a8c3b7e41"},
            "rootFolder": of("Folder", "group-d1"),
            "propertyCollector": of("PropertyCollector", "propertyCollector"),
            "sessionManager": of("SessionManager", "SessionManager"),
            "searchIndex": of("SearchIndex", "SearchIndex"),
            "viewManager": of("ViewManager", "ViewManager"),
            "fileManager": of("FileManager", "FileManager"),
        }),
        "Login" => json!({"_typeName": "UserSession", "key": SECRET, "userName": "operator"}),
        "CreateListView" => of("ListView", "view-1"),
        "CreatePropertyCollector" => of("PropertyCollector", "collector-1"),
        "CreateFilter" => of("PropertyFilter", "filter-1"),
        "ModifyListView" => json!([]),
        _ => Value::Null,
    }
}

/// A session with a vCenter that answers `method` so.
pub(crate) async fn session(
    method: &'static str,
    answers: Answers,
) -> Result<Arc<dyn VCenter>, VcError> {
    let script = Script {
        method,
        answers,
        asked: 0.into(),
    };
    let options = Options {
        transport: Some(Arc::new(script)),
        ..Options::default()
    };
    let server = "https://vcenter.example/".parse();
    let credentials = Credentials {
        server: server.unwrap_or_else(|e| panic!("{e}")),
        username: "operator".to_owned(),
        password: SECRET.into(),
        trust: Trust::System,
    };
    VsphereConnector::new(Arc::new(Open), options)
        .connect(&credentials)
        .await
}

/// An effect for a VM.
pub(crate) fn effect(kind: EffectKind) -> Effect {
    Effect::new(kind, Subject::Server("vcenter.example".to_owned()))
}

/// Checks an error: its reason fits into a condition, and its text is short and has no secret, unless `input` has it.
pub(crate) fn presentable(error: &VcError, input: &[u8]) {
    let reason = error.reason().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ',' || c == ':';
    let valid = reason.starts_with(|c: char| c.is_ascii_alphabetic())
        && reason.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && reason.chars().all(plain)
        && reason.len() <= 1024;
    assert!(valid, "no reason for a condition: {reason:?}");
    let said = error.to_string();
    assert!(
        said.len() <= LONGEST_MESSAGE,
        "{} bytes of message",
        said.len()
    );
    let theirs = crate::text(input).contains(SECRET);
    assert!(
        theirs || !format!("{said} {error:?}").contains(SECRET),
        "{said}"
    );
}
