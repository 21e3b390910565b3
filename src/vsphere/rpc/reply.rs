//! Reads replies: results, faults, HTTP statuses.

use agent_forge_actors::ports::vcenter::{Fault, VcError, VcErrorKind};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    fault,
    http::{Reply, VcErrorKindAndMessage},
};

/// Whether vCenter says that the session is gone. The specification names a fault for that. A 401 means the same.
pub(crate) fn session_gone(error: &VcError) -> bool {
    matches!(
        error.kind,
        VcErrorKind::Fault(Fault::NotAuthenticated) | VcErrorKind::Status(401)
    )
}

/// Whether vCenter may not serve the named API release. A missing object or method would be a fault.
pub(crate) fn release_refused(error: &VcError) -> bool {
    matches!(error.kind, VcErrorKind::Status(400 | 404 | 410))
}

/// Reads a result. Status 204, an empty body and `null` are `None`.
pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<Option<T>, String> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    serde_json::from_slice(body).map_err(|e| format!("the reply does not decode: {e}"))
}

/// The failure in a reply of VI/JSON, if it is one.
pub(crate) fn judge(reply: &Reply) -> Option<VcErrorKindAndMessage> {
    if (200..300).contains(&reply.status) {
        return None;
    }
    let decoded = serde_json::from_slice::<Value>(&reply.body)
        .ok()
        .as_ref()
        .and_then(fault::decode);
    Some(match decoded {
        Some(decoded) => (VcErrorKind::Fault(decoded.fault), decoded.message),
        None => status(reply.status),
    })
}

/// The failure in a reply of another interface, if it is one.
pub(crate) fn judge_rest(reply: &Reply) -> Option<VcErrorKindAndMessage> {
    (!(200..300).contains(&reply.status)).then(|| status(reply.status))
}

fn status(status: u16) -> VcErrorKindAndMessage {
    (
        VcErrorKind::Status(status),
        format!("the server answered with HTTP status {status}"),
    )
}
