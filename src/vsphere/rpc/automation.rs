//! The session of the Automation API. Before 8.0U3 that API has a session of its own. Since then it accepts the session
//! of VI/JSON.

use std::sync::Mutex;

use agent_forge_actors::{
    domain::names::MoRef,
    ports::{
        effect::{Effect, EffectKind},
        vcenter::{Fault, VcError, VcErrorKind, VcResult},
    },
    sessions::refusals::Door,
};
use base64::Engine as _;
use http::{HeaderValue, Method, header};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    client::Client,
    http::{Reply, Request, VcErrorKindAndMessage},
    locked,
    reply::decode,
    session::{Asked, COOL_DOWN, SESSION_HEADER, Session},
};

/// From this release on, one session serves both interfaces.
const SHARED_SINCE: [u32; 4] = [8, 0, 3, 0];

/// The Automation API's session.
#[derive(Debug)]
pub(crate) struct RestSession {
    state: Mutex<RestState>,
    flight: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug, Default)]
struct RestState {
    /// Our own session there, if one was needed.
    own: Option<HeaderValue>,
    /// The VI/JSON session (its generation) whose id the Automation API did not accept.
    unshared: Option<u64>,
    /// When and how this login failed. Calls for other VMs do not try it again at once.
    failed: Option<(Instant, VcError)>,
}

impl RestSession {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            flight: tokio::sync::Mutex::default(),
        }
    }

    fn get(&self) -> RestState {
        locked(&self.state).clone()
    }

    fn set(&self, change: impl FnOnce(&mut RestState)) {
        change(&mut locked(&self.state));
    }
}

impl Client {
    /// One call about a VM. It is repeated when a session turns out to be gone.
    pub(crate) async fn automation(
        &self,
        effect: &Effect,
        path: String,
        action: &str,
        vm: &MoRef,
        body: &impl Serialize,
    ) -> VcResult<Reply> {
        let body = serde_json::to_vec(body).unwrap_or_default();
        let mut tries = 0;
        loop {
            let session = self.session(Asked::ByCall).await?;
            let token = self.automation_token(&session).await?;
            let mut request = self.request(Method::POST, path.clone(), "AttachTag", vm.to_string());
            request.query = Some(action.to_owned());
            request.body = body.clone().into();
            request.headers.insert(SESSION_HEADER, token.clone());
            match self
                .gated(
                    Some(effect.into()),
                    "AttachTag",
                    &vm.to_string(),
                    self.http.send(request, judge_automation),
                )
                .await
            {
                Err(e) if matches!(e.fault(), Some(Fault::NotAuthenticated)) && tries < 2 => {
                    tries += 1;
                    self.rest.set(|s| match &s.own {
                        Some(own) if *own == token => s.own = None,
                        Some(_) => {}
                        None => s.unshared = Some(session.generation),
                    });
                }
                other => return other,
            }
        }
    }

    /// The id to name in calls of the Automation API.
    async fn automation_token(&self, session: &Session) -> VcResult<HeaderValue> {
        let _flight = self.rest.flight.lock().await;
        let state = self.rest.get();
        if let Some(own) = state.own {
            return Ok(own);
        }
        if shares_sessions(&session.endpoint.release) && state.unshared != Some(session.generation)
        {
            return Ok(session.token());
        }
        if let Some((at, error)) = state.failed
            && at.elapsed() < COOL_DOWN
        {
            return Err(error);
        }
        let outcome = self
            .ledger()
            .attempt(&self.login, Door::Automation, self.automation_login())
            .await;
        self.rest.set(|s| match &outcome {
            Ok(token) => (s.own, s.failed) = (Some(token.clone()), None),
            Err(e) => s.failed = Some((Instant::now(), e.clone())),
        });
        outcome
    }

    async fn automation_login(&self) -> VcResult<HeaderValue> {
        let effect = self.session_effect(EffectKind::Login);
        let request = self.automation_session(Method::POST, "CreateSession")?;
        let sending = self.http.send(request, judge_automation);
        let reply = self
            .gated(
                Some((&effect).into()),
                "CreateSession",
                self.server(),
                sending,
            )
            .await
            .map_err(|e| self.as_user(e))?;
        let failure = |message: String| {
            self.server_failure("CreateSession", VcErrorKind::Undecodable, message)
        };
        let id: String = decode(&reply.body).map_err(failure)?.unwrap_or_default();
        let mut token = HeaderValue::try_from(id)
            .map_err(|_| failure("the session's id is no header value".to_owned()))?;
        token.set_sensitive(true);
        Ok(token)
    }

    fn automation_session(&self, method: Method, operation: &'static str) -> VcResult<Request> {
        let subject = self.server().to_owned();
        let mut request = self.request(method, "/api/session".to_owned(), operation, subject);
        let pair = format!(
            "{}:{}",
            self.credentials.username,
            self.credentials.password.expose_secret()
        );
        let text = format!(
            "Basic {}",
            base64::engine::general_purpose::STANDARD.encode(pair)
        );
        let mut value = HeaderValue::try_from(text).map_err(|_| {
            self.server_failure(
                operation,
                VcErrorKind::Undecodable,
                "no header value".to_owned(),
            )
        })?;
        value.set_sensitive(true);
        request.headers.insert(header::AUTHORIZATION, value);
        Ok(request)
    }

    /// Ends our own session at the Automation API, if there is one.
    pub(crate) async fn rest_logout(&self, effect: &Effect) {
        let Some(own) = self.rest.get().own else {
            return;
        };
        self.rest.set(|s| s.own = None);
        let mut request = self.request(
            Method::DELETE,
            "/api/session".to_owned(),
            "DeleteSession",
            self.server().to_owned(),
        );
        request.headers.insert(SESSION_HEADER, own);
        let sending = self.http.send(request, judge_automation);
        if let Err(e) = self
            .gated(Some(effect.into()), "DeleteSession", self.server(), sending)
            .await
        {
            tracing::info!(server = self.server(), error = %e, "logout failed; vCenter ends the session when it idles out");
        }
    }
}

fn shares_sessions(release: &str) -> bool {
    let numbers: Vec<u32> = release.split('.').map_while(|n| n.parse().ok()).collect();
    numbers.as_slice() >= SHARED_SINCE.as_slice()
}

/// Failures of the Automation API carry an `error_type`.
fn judge_automation(reply: &Reply) -> Option<VcErrorKindAndMessage> {
    if (200..300).contains(&reply.status) {
        return None;
    }
    let body: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let error_type = body
        .get("error_type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let message = body
        .pointer("/messages/0/default_message")
        .and_then(Value::as_str)
        .unwrap_or(error_type);
    let message: String = message.chars().take(400).collect();
    let kind = match (error_type, reply.status) {
        ("UNAUTHENTICATED", _) | ("", 401) => VcErrorKind::Fault(Fault::NotAuthenticated),
        ("UNAUTHORIZED", _) | ("", 403) => VcErrorKind::Fault(Fault::NoPermission {
            object: None,
            privilege: "InventoryService.Tagging.AttachTag".to_owned(),
        }),
        ("ALREADY_EXISTS", _) => VcErrorKind::Fault(Fault::AlreadyExists(String::new())),
        ("INVALID_ARGUMENT", _) => VcErrorKind::Fault(Fault::InvalidArgument {
            property: "vmTags".to_owned(),
        }),
        ("", status) => VcErrorKind::Status(status),
        (other, _) => VcErrorKind::Fault(Fault::Other {
            type_name: other.to_owned(),
            message: message.clone(),
        }),
    };
    let message = if message.is_empty() {
        format!("HTTP status {}", reply.status)
    } else {
        message
    };
    Some((kind, message))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    };

    use agent_forge_actors::{
        domain::names::ObjectKey,
        ports::{
            clock::Clock,
            effect::{Gate, Hold, Settled, Subject},
            vcenter::{Connector as _, Credentials, Trust},
        },
        sessions::{ledger::Ledger, refusals::LOCKOUT},
    };
    use async_trait::async_trait;
    use serde_json::json;

    use super::*;
    use crate::{
        telemetry::told::Told,
        vsphere::{Options, Transport, TransportFailure, VsphereConnector},
    };

    /// A vCenter of the first release. It needs another session for tags, and refuses that login.
    #[derive(Default)]
    struct Refuses {
        vim: AtomicUsize,
        rest: AtomicUsize,
        /// The next call finds its session gone.
        lost: AtomicBool,
    }

    impl Refuses {
        fn answer(&self, path: &str) -> (u16, Value) {
            let one = |kind: &str| json!({"_typeName": "ManagedObjectReference", "type": kind, "value": kind});
            match path.rsplit('/').next().unwrap_or_default() {
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
                "Login" => {
                    self.vim.fetch_add(1, Ordering::Relaxed);
                    (200, json!({}))
                }
                "session" => {
                    self.rest.fetch_add(1, Ordering::Relaxed);
                    (401, json!({"error_type": "UNAUTHENTICATED"}))
                }
                "RetrievePropertiesEx" if self.lost.swap(false, Ordering::Relaxed) => {
                    (500, json!({"_typeName": "NotAuthenticated"}))
                }
                _ => (404, json!({})),
            }
        }
    }

    #[async_trait]
    impl Transport for Refuses {
        async fn send(
            &self,
            request: reqwest::Request,
        ) -> Result<reqwest::Response, TransportFailure> {
            let (status, body) = self.answer(request.url().path());
            let reply = http::Response::builder()
                .status(status)
                .header(SESSION_HEADER, "key")
                .body(body.to_string());
            Ok(reply.expect("a reply").into())
        }
    }

    fn credentials() -> Credentials {
        Credentials {
            server: url::Url::parse("https://vc.example/").expect("url"),
            username: "user".to_owned(),
            password: "p".to_owned().into(),
            trust: Trust::System,
        }
    }

    /// The runtime's time.
    struct Virtual(Instant);

    impl Clock for Virtual {
        fn wall(&self) -> jiff::Timestamp {
            jiff::Timestamp::UNIX_EPOCH
        }

        fn monotonic(&self) -> std::time::Duration {
            self.0.elapsed()
        }
    }

    struct Open;

    #[async_trait]
    impl Gate for Open {
        async fn admit(&self, _: &Effect) -> Result<(), Hold> {
            Ok(())
        }
        fn settled(&self, _: &Effect, _: Settled) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_login_for_tags_is_tried_again_after_ten_minutes_whatever_the_other_session_does()
     {
        let site = Arc::new(Refuses::default());
        let options = Options {
            transport: Some(site.clone()),
            ledger: Arc::new(Ledger::new(Arc::new(Virtual(Instant::now())))),
            ..Options::default()
        };
        let connector = VsphereConnector::new(Arc::new(Open), options);
        let vcenter = connector.connect(&credentials()).await.expect("in");
        let vm = MoRef::new("VirtualMachine", "vm-1");
        let tag = ["urn:tag".to_owned()];
        let attach = async || {
            let effect = Effect::new(
                EffectKind::AttachTags,
                Subject::Object(ObjectKey::new("ns", "vm")),
            );
            let refused = vcenter.attach_tags(&effect, &vm, &tag).await;
            let refused = refused.expect_err("refused");
            assert_eq!(refused.fault(), Some(&Fault::InvalidLogin), "{refused}");
            site.rest.load(Ordering::Relaxed)
        };
        assert_eq!(attach().await, 1);
        // A new session of the other interface does not show anything about this one.
        site.lost.store(true, Ordering::Relaxed);
        let looked = vcenter.observe(&vm).await;
        looked.expect_err("there is nothing to see");
        assert_eq!(site.vim.load(Ordering::Relaxed), 2);
        assert_eq!(attach().await, 1);
        tokio::time::advance(LOCKOUT).await;
        assert_eq!(attach().await, 2, "the session lives on");
        assert_eq!(attach().await, 2);
        assert_eq!(site.vim.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn the_spans_of_logins_do_not_say_who_logs_in_and_a_refusal_does() {
        let told = Told::default();
        let _here = told.here();
        let options = Options {
            transport: Some(Arc::new(Refuses::default())),
            ..Options::default()
        };
        let connector = VsphereConnector::new(Arc::new(Open), options);
        let vcenter = connector.connect(&credentials()).await.expect("in");
        let effect = Effect::new(
            EffectKind::AttachTags,
            Subject::Object(ObjectKey::new("ns", "vm")),
        );
        let vm = MoRef::new("VirtualMachine", "vm-1");
        let tags = ["urn:tag".to_owned()];
        let refused = vcenter.attach_tags(&effect, &vm, &tags).await;
        let refused = refused.expect_err("refused").to_string();
        assert!(refused.contains("vc.example as user"), "{refused}");
        for login in ["Login", "CreateSession"] {
            let said = told.attributes(login);
            let of = said.iter().find(|(key, _)| key == "object");
            assert_eq!(of.map(|(_, value)| value.as_str()), Some("vc.example"));
            let names = |(_, value): &(String, String)| value.contains("user");
            assert!(!said.iter().any(names), "{login}: {said:?}");
        }
    }

    #[test]
    fn sessions_are_shared_from_8_0_3_on() {
        for (release, wanted) in [
            ("8.0.1.0", false),
            ("8.0.2.0", false),
            ("8.0.3.0", true),
            ("9.0.0.0", true),
            ("", false),
        ] {
            assert_eq!(shares_sessions(release), wanted, "{release}");
        }
    }
}
