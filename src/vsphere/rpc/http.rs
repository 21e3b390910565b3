//! One request: headers, time limit, size limit, span, measurement. It knows no sessions.
//!
//! A failure shows whether anything was sent. `Unreachable`, `Untrusted` and `NotAllowed`: nothing was sent.
//! `NoAnswer`: the request may have had an effect.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use agent_forge_actors::{
    domain::server::server_name,
    ports::vcenter::{CallStage, Credentials, Trust, VcError, VcErrorKind, VcResult},
};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use reqwest::tls::TlsInfo;
use tracing::{Instrument as _, Span, field::Empty};
use url::Url;

use crate::telemetry::{propagate, server::Server};

use super::{
    circuit_breaker::CircuitBreaker,
    fault,
    options::{Options, RequestRecord},
    resolver::Resolver,
    transport::{self, Network, Transport, TransportFailure},
    trust,
};
use crate::deadline;

/// Largest reply that the client reads. Pages of a large inventory are far smaller.
const MAX_REPLY: usize = 8 << 20;
/// Most values in a reply. A value can take two bytes on the wire, and many times that in memory.
const MAX_VALUES: usize = 300_000;

/// Characters that a path segment needs escaped.
const SEGMENT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'`');
/// Characters that a query value needs escaped.
const QUERY: &AsciiSet = &SEGMENT
    .add(b'&')
    .add(b'+')
    .add(b'=')
    .add(b'\'')
    .remove(b'/');

/// One path segment, escaped.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// One query value, escaped.
pub(crate) fn query(text: &str) -> String {
    utf8_percent_encode(text, QUERY).to_string()
}

/// A request.
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Absolute path with escaped segments.
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: reqwest::Body,
    /// Time limit of the whole request.
    pub(crate) timeout: Duration,
    /// Method or operation: few distinct values.
    pub(crate) operation: &'static str,
    /// The subject, for people.
    pub(crate) subject: String,
}

/// A complete reply, whatever its status.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The server's certificate in this connection. `None` without TLS.
    pub(crate) tls: Option<TlsInfo>,
}

/// The connection to one vCenter.
pub(crate) struct Http {
    transport: Arc<dyn Transport>,
    base: Url,
    /// Name in metrics and messages.
    server: String,
    /// Name in spans.
    at: Server,
    /// Failures to connect are told in full.
    named: bool,
    options: Arc<Options>,
    reach: Arc<CircuitBreaker>,
    password: secrecy::SecretString,
}

impl Http {
    /// Checks address and trust settings. It does not connect.
    pub(crate) fn new(
        credentials: &Credentials,
        options: Arc<Options>,
        reach: Arc<CircuitBreaker>,
    ) -> VcResult<Self> {
        let server = server_name(&credentials.server);
        let refuse = |message: String| {
            VcError::new(VcErrorKind::Untrusted, "Connect", server.clone(), message)
        };
        match credentials.server.scheme() {
            "https" => {}
            "http" if options.allow_http => {}
            other => {
                return Err(refuse(format!(
                    "{other}:// is not accepted, the server must be https://"
                )));
            }
        }
        if !credentials.server.username().is_empty() || credentials.server.password().is_some() {
            return Err(refuse(
                "user or password in the server's address are not accepted".to_owned(),
            ));
        }
        let mut base = credentials.server.clone();
        base.set_path("/");
        base.set_query(None);
        base.set_fragment(None);
        let host = base.host_str().unwrap_or_default();
        let named = options.discreet.as_ref().is_none_or(|r| r.names(host));
        let transport = match &options.transport {
            Some(given) => Arc::clone(given),
            None => Arc::new(Network(network(credentials, &options).map_err(&refuse)?)),
        };
        Ok(Self {
            transport,
            at: Server::of(&base),
            named,
            base,
            server,
            options,
            reach,
            password: credentials.password.clone(),
        })
    }

    /// `host[:port]`
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Settings.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Time limit of an ordinary call.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.options.call_timeout
    }

    /// Whether a request is worth a try now.
    ///
    /// # Errors
    /// The failure that the request would have.
    pub(crate) fn worth_a_try(&self, operation: &'static str, subject: &str) -> VcResult<()> {
        self.reach.worth_a_try().map_err(|message| {
            let failure = VcError::new(VcErrorKind::Unreachable, operation, subject, message);
            // The log has the cause since the failure that is repeated here.
            failure.public(&self.server, self.named, CallStage::Session)
        })
    }

    /// The failure as the authors of pools may know it ([`VcError::public`]). The log gets the cause.
    pub(crate) fn public(&self, failure: VcError, stage: CallStage) -> VcError {
        if failure.concealed {
            return failure;
        }
        let cause = failure.to_string();
        let public = failure.public(&self.server, self.named, stage);
        if public.concealed {
            tracing::warn!(
                server = self.server,
                error = cause,
                "no vCenter was reached; pools do not show the cause, as --allowed-vcenters does not name this host"
            );
        }
        public
    }

    /// Whether the last connection failed, or the last reply is old.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.reach.is_in_doubt()
    }

    /// Sends one request and reads the whole reply. `judge` decides whether the reply is a failure, so that span and
    /// metrics show it. A request that is not worth a try appears in neither.
    pub(crate) async fn send(
        &self,
        request: Request,
        judge: impl Fn(&Reply) -> Option<VcErrorKindAndMessage> + Send,
    ) -> VcResult<Reply> {
        let operation = request.operation;
        let subject = request.subject.clone();
        self.worth_a_try(operation, &subject)?;
        let span = tracing::info_span!(
            "vsphere.request",
            otel.name = request.operation,
            otel.kind = "client",
            rpc.system = "vsphere",
            rpc.method = request.operation,
            object = %request.subject,
            http.request.method = request.method.as_str(),
            http.response.status_code = Empty,
            server.address = self.at.address,
            server.port = self.at.port,
            url.scheme = self.at.scheme,
            otel.status_code = Empty,
            error.type = Empty,
        );
        let started = Instant::now();
        let result = async {
            let reply = self.exchange(request).await?;
            Span::current().record("http.response.status_code", reply.status);
            match judge(&reply) {
                None => Ok(reply),
                Some(failure) => Err(failure),
            }
        }
        .instrument(span.clone())
        .await;
        let failure = result
            .as_ref()
            .err()
            .map(|(kind, _)| fault::kind_name(kind));
        if let Some(failure) = failure {
            span.record("otel.status_code", "ERROR");
            span.record("error.type", failure);
        }
        if let Some(observer) = &self.options.observer {
            observer.request(&RequestRecord {
                server: &self.server,
                operation,
                failure,
                duration: started.elapsed(),
            });
        }
        result.map_err(|(kind, message)| {
            let failure = VcError::new(kind, operation, subject, self.redact(message));
            self.public(failure, CallStage::Session)
        })
    }

    async fn exchange(&self, request: Request) -> Result<Reply, VcErrorKindAndMessage> {
        let exchanged = self.exchange_now(request).await;
        // The reason concerns the server, whatever the request was.
        let exchanged =
            exchanged.map_err(|(kind, said)| (kind, format!("{}: {said}", self.server)));
        match &exchanged {
            Err((VcErrorKind::Unreachable, message)) => {
                self.reach.failed(self.redact(message.clone()));
            }
            // The request was sent and its outcome is unknown, or another party answered. Neither says anything about
            // the next connection.
            Err((VcErrorKind::NoAnswer | VcErrorKind::NotAllowed, _)) => {}
            _ => self.reach.answered(),
        }
        exchanged
    }

    async fn exchange_now(&self, request: Request) -> Result<Reply, VcErrorKindAndMessage> {
        let mut url = self.base.clone();
        url.set_path(&request.path);
        url.set_query(request.query.as_deref());
        let mut headers = request.headers;
        correlate(&mut headers);
        let limit = request.timeout;
        let outcome = deadline::within(limit, async {
            let mut outgoing = reqwest::Request::new(request.method, url);
            *outgoing.headers_mut() = headers;
            *outgoing.body_mut() = Some(request.body);
            let mut response = self
                .transport
                .send(outgoing)
                .await
                .map_err(|e| (e.kind, e.message))?;
            let status = response.status().as_u16();
            let headers = response.headers().clone();
            let tls = response.extensions_mut().remove();
            let mut body = BytesMut::new();
            while let Some(chunk) = response.chunk().await.map_err(|e| broken(&e))? {
                if body.len() + chunk.len() > MAX_REPLY {
                    return Err((
                        VcErrorKind::Undecodable,
                        format!("the reply is larger than {MAX_REPLY} bytes"),
                    ));
                }
                body.extend_from_slice(&chunk);
            }
            if values(&body) > MAX_VALUES {
                return Err((
                    VcErrorKind::Undecodable,
                    format!("the reply holds more than {MAX_VALUES} values"),
                ));
            }
            Ok(Reply {
                status,
                headers,
                body: body.freeze(),
                tls,
            })
        })
        .await;
        outcome.unwrap_or_else(|_| {
            Err((
                VcErrorKind::NoAnswer,
                format!("no answer within {} s", limit.as_secs()),
            ))
        })
    }

    /// Removes the password, in case a server echoes it.
    fn redact(&self, message: String) -> String {
        use secrecy::ExposeSecret as _;
        let password = self.password.expose_secret();
        if password.is_empty() {
            message
        } else {
            message.replace(password, "REDACTED")
        }
    }
}

/// Kind and sentence of a failure. The sender adds operation and subject.
pub(crate) type VcErrorKindAndMessage = (VcErrorKind, String);

/// Upper bound of the number of values in a JSON reply. An object counts as five: with one key it takes about 650 bytes
/// of memory.
fn values(body: &[u8]) -> usize {
    let weight = |b: &u8| match b {
        b'{' => 5,
        b',' | b'[' => 1,
        _ => 0,
    };
    body.iter().map(weight).sum()
}

/// Whether the client accepts any certificate.
pub(crate) fn unchecked(credentials: &Credentials) -> bool {
    credentials.trust == Trust::Insecure || credentials.server.scheme() == "http"
}

/// The failure of a reply whose body broke off.
fn broken(error: &reqwest::Error) -> VcErrorKindAndMessage {
    let TransportFailure { kind, message } = transport::failure(error);
    (kind, message)
}

/// An HTTP client with these trust settings. It connects to no address that a vCenter must not have.
fn network(credentials: &Credentials, options: &Options) -> Result<reqwest::Client, String> {
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(trust::client_config(&credentials.trust)?)
        .tls_info(true)
        .user_agent(options.user_agent.as_str())
        .dns_resolver(Arc::new(Resolver::new(
            &credentials.server,
            options.allow_local,
        )))
        // A redirect could carry the session to another host.
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(options.call_timeout.min(Duration::from_secs(10)))
        // Below the usual keep-alive of servers, so that a request seldom meets a connection that closes.
        .pool_idle_timeout(Duration::from_secs(25))
        .tcp_keepalive(Duration::from_secs(15));
    // The library ends a connection when its peer takes no byte for 30 s. A datastore may take longer. Each request here
    // has a limit of its own. Other systems have no such limit.
    #[cfg(target_os = "linux")]
    let builder = builder.tcp_user_timeout(None::<Duration>);
    builder.build().map_err(|e| format!("no HTTP client: {e}"))
}

/// Lets people find this request again: the trace context of the current span, and a request id. It is unknown whether
/// vCenter logs them (docs/reference/vsphere.md).
fn correlate(headers: &mut HeaderMap) {
    propagate::inject(headers);
    if let Ok(id) = HeaderValue::try_from(uuid::Uuid::new_v4().to_string()) {
        headers.insert("x-request-id", id);
    }
    headers
        .entry(header::ACCEPT)
        .or_insert(HeaderValue::from_static("application/json"));
}

#[cfg(test)]
mod tests {
    use agent_forge_actors::domain::server::ServerRule;
    use async_trait::async_trait;

    use super::*;
    use crate::telemetry::told::{Lines, Told};

    /// Answers with a status.
    struct Status(u16);

    #[async_trait]
    impl Transport for Status {
        async fn send(&self, _: reqwest::Request) -> Result<reqwest::Response, TransportFailure> {
            let mut response = http::Response::new("");
            *response.status_mut() = http::StatusCode::from_u16(self.0).expect("a status");
            Ok(response.into())
        }
    }

    /// Fails in this way.
    struct Fails(VcErrorKind);

    #[async_trait]
    impl Transport for Fails {
        async fn send(&self, _: reqwest::Request) -> Result<reqwest::Response, TransportFailure> {
            Err(TransportFailure {
                kind: self.0.clone(),
                message: "what broke".to_owned(),
            })
        }
    }

    /// The way to a vCenter, over this transport.
    fn way(transport: impl Transport + 'static, discreet: Option<ServerRule>) -> Http {
        let credentials = Credentials {
            server: "https://vc.example:8443/sdk".parse().expect("a URL"),
            username: "operator@vsphere.local".to_owned(),
            password: "hunter2".to_owned().into(),
            trust: Trust::Insecure,
        };
        let options = Options {
            transport: Some(Arc::new(transport)),
            discreet,
            ..Options::default()
        };
        let reach = Arc::new(CircuitBreaker::default());
        Http::new(&credentials, Arc::new(options), reach).expect("a way")
    }

    async fn sent(http: &Http) -> VcResult<Reply> {
        let request = Request {
            method: Method::POST,
            path: "/sdk/vim25/release/VirtualMachine/vm-7".to_owned(),
            query: Some("token=hunter2".to_owned()),
            headers: HeaderMap::new(),
            body: "hunter2".into(),
            timeout: Duration::from_secs(5),
            operation: "PowerOnVM_Task",
            subject: "VM a".to_owned(),
        };
        let judge = |reply: &Reply| {
            let failed = reply.status >= 400;
            failed.then(|| (VcErrorKind::Status(reply.status), "refused".to_owned()))
        };
        http.send(request, judge).await
    }

    /// The span attributes of one request that the server answered with that status.
    async fn asked(status: u16) -> Vec<(String, String)> {
        let told = Told::default();
        let _here = told.here();
        let _ = sent(&way(Status(status), None)).await;
        told.attributes("PowerOnVM_Task")
    }

    #[tokio::test]
    async fn why_a_host_that_nobody_named_is_not_reached_is_in_the_log_alone() {
        for (kind, concealed) in [
            (VcErrorKind::Unreachable, true),
            (VcErrorKind::Untrusted, true),
            (VcErrorKind::NotAllowed, true),
            (VcErrorKind::NoAnswer, false),
        ] {
            let lines = Lines::default();
            let here = lines.here();
            let http = way(Fails(kind.clone()), Some(ServerRule::default()));
            let failed = sent(&http).await.expect_err("a failure");
            let again = sent(&http).await.expect_err("a failure");
            drop(here);
            assert_eq!((&failed.kind, failed.concealed), (&kind, concealed));
            assert_eq!(failed, again, "also while nothing is tried");
            let said = failed.to_string();
            assert_eq!(said.contains("what broke"), !concealed, "{said}");
            let lines = lines.all();
            let warned = lines.iter().any(|line| {
                let error = line["fields"]["error"].as_str().unwrap_or_default();
                line["level"] == "WARN" && error.contains("what broke")
            });
            assert_eq!(warned, concealed, "{kind:?}: {lines:?}");
        }
    }

    #[tokio::test]
    async fn a_request_says_method_server_and_status_and_neither_address_nor_secret() {
        for (status, error) in [(200, None), (503, Some("Status"))] {
            let told = asked(status).await;
            let said = |key: &str| {
                let found = told.iter().find(|(k, _)| k == key);
                found.map(|(_, value)| value.as_str())
            };
            for (key, value) in [
                ("http.request.method", "POST"),
                ("http.response.status_code", status.to_string().as_str()),
                ("server.address", "vc.example"),
                ("server.port", "8443"),
                ("url.scheme", "https"),
                ("rpc.method", "PowerOnVM_Task"),
            ] {
                assert_eq!(said(key), Some(value), "{key}: {told:?}");
            }
            assert_eq!(said("error.type"), error, "{told:?}");
            for (key, value) in &told {
                let tells = ["hunter2", "://", "/sdk", "operator@"];
                assert!(
                    !tells.iter().any(|t| value.contains(t)),
                    "{key} says {value}"
                );
            }
        }
    }
}
