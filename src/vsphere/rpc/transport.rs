//! Sends one request to a vCenter and receives one reply. Tests put a vCenter of their own here: all code that builds
//! requests and reads replies is above.

use agent_forge_actors::ports::vcenter::VcErrorKind;
use async_trait::async_trait;

use super::{resolver, trust};

/// Carries requests. The caller limits the time: a transport may wait for ever.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Sends one request; the reply's body may still be on its way.
    ///
    /// # Errors
    /// [`TransportFailure`].
    async fn send(&self, request: reqwest::Request) -> Result<reqwest::Response, TransportFailure>;
}

/// No reply. With `Unreachable`, `Untrusted` and `NotAllowed` nothing was sent. With `NoAnswer` the request may have
/// had an effect.
#[derive(Clone, Debug)]
pub struct TransportFailure {
    /// One of these four.
    pub kind: VcErrorKind,
    /// A sentence for people.
    pub message: String,
}

/// The network.
pub(crate) struct Network(pub(crate) reqwest::Client);

#[async_trait]
impl Transport for Network {
    async fn send(&self, request: reqwest::Request) -> Result<reqwest::Response, TransportFailure> {
        self.0.execute(request).await.map_err(|e| failure(&e))
    }
}

/// The innermost cause is the useful one ("connection refused"). reqwest's own text repeats the URL.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Why a request to a server that is no vCenter failed, as a sentence without its URL.
pub(crate) fn network_failure(error: &reqwest::Error) -> String {
    let trust = trust::refusal(error).map(|why| format!("its certificate is not trusted: {why}"));
    let known = trust.or_else(|| resolver::refusal(error));
    known.unwrap_or_else(|| innermost(error))
}

/// What a failure of the network means.
pub(crate) fn failure(error: &reqwest::Error) -> TransportFailure {
    let of = |kind, message| TransportFailure { kind, message };
    if let Some(why) = trust::refusal(error) {
        return of(
            VcErrorKind::Untrusted,
            format!(
                "the server's certificate is not trusted, nothing was sent: {why}; put its authority into caBundle of the \
                 credentials Secret, or its SHA-256 digest into thumbprint"
            ),
        );
    }
    if let Some(why) = resolver::refusal(error) {
        return of(VcErrorKind::NotAllowed, why);
    }
    let cause = innermost(error);
    if error.is_connect() {
        of(VcErrorKind::Unreachable, format!("no connection: {cause}"))
    } else if error.is_timeout() {
        of(VcErrorKind::NoAnswer, "no answer in time".to_owned())
    } else {
        of(
            VcErrorKind::NoAnswer,
            format!("the connection ended before the answer: {cause}"),
        )
    }
}
