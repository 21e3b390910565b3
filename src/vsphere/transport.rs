//! The last layer in front of a vCenter: one request out, one reply in. Tests replace it by a vCenter of their own.
//! Everything that builds requests and reads replies is above it.

use agent_forge_actors::ports::vcenter::VcErrorKind;
use async_trait::async_trait;

use super::{resolver, trust};

/// Carries requests. It has no time limits; its callers have them.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Sends one request. The reply's body may still be on its way.
    ///
    /// # Errors
    /// [`TransportFailure`].
    async fn send(&self, request: reqwest::Request) -> Result<reqwest::Response, TransportFailure>;
}

/// There is no reply. `Unreachable`, `Untrusted` and `NotAllowed` mean that nothing was sent. `NoAnswer` means that the
/// request may or may not have had an effect.
#[derive(Clone, Debug)]
pub struct TransportFailure {
    /// One of these four.
    pub kind: VcErrorKind,
    /// A sentence for people.
    pub message: String,
}

/// The network.
pub(super) struct Network(pub(super) reqwest::Client);

#[async_trait]
impl Transport for Network {
    async fn send(&self, request: reqwest::Request) -> Result<reqwest::Response, TransportFailure> {
        self.0.execute(request).await.map_err(|e| failure(&e))
    }
}

/// Turns a failure of the HTTP client into a [`TransportFailure`].
pub(super) fn failure(error: &reqwest::Error) -> TransportFailure {
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
    // The innermost cause has the useful text ("connection refused"). reqwest's own text repeats the URL.
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let cause = cause.to_string();
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
