//! Login and logout: choose the API release, find the singletons, log in, log out.

use std::sync::Arc;

use agent_forge_actors::{
    domain::names::MoRef,
    ports::{
        effect::{Effect, EffectKind},
        vcenter::{Fault, VcError, VcErrorKind, VcResult, error::UNSUPPORTED_RELEASE},
    },
    sessions::{login::Instance, refusals::Door},
};
use http::{HeaderValue, Method};
use reqwest::tls::TlsInfo;
use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::{
    call::Call,
    client::Client,
    http::segment,
    reply::{decode, judge, judge_rest, release_refused},
    session::{Endpoint, SESSION_HEADER, Session},
    wire::{
        NoArguments,
        session::{Hello, HelloAnswer, Login, ServiceContent},
    },
};

/// API releases in our order of preference. First comes the newest one whose fields we use, then older ones. Newer ones
/// come last, for a server that does not serve the others any more. Naming a release freezes the schema.
const RELEASES: &[&str] = &["8.0.3.0", "8.0.2.0", "8.0.1.0", "9.0.0.0", "9.1.0.0"];
/// The release of a vCenter that cannot negotiate.
const FIRST_RELEASE: &str = "8.0.1.0";

impl Client {
    /// One login. It is repeated when vCenter does not serve the known API release any more, because vCenter then has
    /// not looked at it.
    pub(crate) async fn login(&self) -> VcResult<(Arc<Endpoint>, HeaderValue)> {
        if let Some(known) = self.session.endpoint() {
            match self.login_at(&known).await {
                Err(e) if release_refused(&e) && self.serves_another(&known.release).await => {}
                done => return done,
            }
        }
        let endpoint = Arc::new(self.discover().await?);
        self.login_at(&endpoint).await
    }

    /// Whether vCenter now names another API release, as after an upgrade or a restore. The known one is then
    /// forgotten.
    pub(crate) async fn serves_another(&self, release: &str) -> bool {
        let another = self.negotiate().await.is_ok_and(|named| named != release);
        if another {
            tracing::info!(
                server = self.server(),
                release,
                "vCenter does not serve this API release any more"
            );
            self.session.forget_endpoint();
        }
        another
    }

    async fn login_at(&self, endpoint: &Arc<Endpoint>) -> VcResult<(Arc<Endpoint>, HeaderValue)> {
        if let Some(instance) = endpoint.instance {
            self.ledger().answered(&self.login, instance);
        }
        let effect = self.session_effect(EffectKind::Login);
        let manager: MoRef = endpoint.content.session_manager.clone().into();
        let call = Call::new(
            &manager,
            "Login",
            &Login {
                user_name: &self.credentials.username,
                password: self.credentials.password.expose_secret(),
                locale: "en",
            },
        )
        .about(self.server());
        let sending = self.gated(
            Some((&effect).into()),
            call.method,
            &call.subject,
            self.post(&endpoint.release, None, &call),
        );
        let reply = self
            .ledger()
            .attempt(&self.login, Door::Session, sending)
            .await
            .map_err(|e| self.as_user(e))?;
        let Some(token) = reply.headers.get(SESSION_HEADER) else {
            let why = "the reply carries no session id";
            return Err(self.as_user(call.failure(VcErrorKind::Undecodable, why)));
        };
        self.session.set_endpoint(endpoint);
        tracing::info!(server = self.server(), release = %endpoint.release, "logged in");
        Ok((endpoint.clone(), token.clone()))
    }

    /// Adds the user to a login's failure: people need it. The span of the request must not contain it.
    pub(crate) fn as_user(&self, failure: VcError) -> VcError {
        VcError {
            subject: format!("{} as {}", self.server(), self.credentials.username),
            ..failure
        }
    }

    /// Finds release and singletons. It needs no session.
    async fn discover(&self) -> VcResult<Endpoint> {
        let release = self.negotiate().await?;
        let request = self.request(
            Method::GET,
            format!(
                "/sdk/vim25/{}/ServiceInstance/ServiceInstance/content",
                segment(&release)
            ),
            "ServiceInstance.content",
            self.server().to_owned(),
        );
        let reply = self.http.send(request, judge).await.map_err(|mut e| {
            if matches!(e.kind, VcErrorKind::Status(404)) {
                e.message =
                    "no VI/JSON API here: a vCenter 8.0 Update 1 or newer is needed".to_owned();
            }
            e
        })?;
        let content: ServiceContent = decode(&reply.body)
            .map_err(|message| {
                self.server_failure("ServiceInstance.content", VcErrorKind::Undecodable, message)
            })?
            .ok_or_else(|| {
                self.server_failure(
                    "ServiceInstance.content",
                    VcErrorKind::Undecodable,
                    "the reply is empty".to_owned(),
                )
            })?;
        let certificate = reply.tls.as_ref().and_then(TlsInfo::peer_certificate);
        let both = certificate.zip(content.about.instance_uuid.as_deref());
        Ok(Endpoint {
            instance: both.map(|(shown, uuid)| Instance::of(shown, uuid)),
            release,
            content,
        })
    }

    async fn negotiate(&self) -> VcResult<String> {
        let mut request = self.request(
            Method::POST,
            "/api/vcenter/system".to_owned(),
            "hello",
            self.server().to_owned(),
        );
        request.query = Some("action=hello".to_owned());
        request.body = serde_json::to_vec(&Hello {
            api_releases: RELEASES,
        })
        .unwrap_or_default()
        .into();
        match self.http.send(request, judge_rest).await {
            Ok(reply) => {
                let answer: Option<HelloAnswer> = decode(&reply.body).map_err(|message| {
                    self.server_failure("hello", VcErrorKind::Undecodable, message)
                })?;
                match answer {
                    Some(answer) if !answer.api_release.is_empty() => Ok(answer.api_release),
                    _ => Err(self.server_failure(
                        "hello",
                        VcErrorKind::Fault(Fault::Other {
                            type_name: UNSUPPORTED_RELEASE.to_owned(),
                            message: String::new(),
                        }),
                        format!(
                            "vCenter serves none of the API releases {}",
                            RELEASES.join(", ")
                        ),
                    )),
                }
            }
            // Negotiation exists since 8.0U2. Without it, this is the release before.
            Err(VcError {
                kind: VcErrorKind::Status(400..=499) | VcErrorKind::Fault(_),
                ..
            }) => Ok(FIRST_RELEASE.to_owned()),
            Err(e) => Err(e),
        }
    }

    /// Ends the sessions. Later calls fail.
    pub(crate) async fn close(&self, effect: &Effect) {
        let session = self.session.close();
        self.tasks.stop();
        self.rest_logout(effect).await;
        if let Some(session) = session {
            self.end(&session, effect).await;
        }
    }

    /// Ends one session.
    pub(crate) async fn end(&self, session: &Session, effect: &Effect) {
        let manager: MoRef = session.endpoint.content.session_manager.clone().into();
        let call = Call::new(&manager, "Logout", &NoArguments {}).about(self.server());
        if let Err(e) = self.scoped::<Value>(Some(effect), session, call).await {
            tracing::info!(server = self.server(), error = %e, "logout failed; vCenter ends the session when it idles out");
        }
    }
}
