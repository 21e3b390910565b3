//! Reads replies: results, faults, statuses.

use agent_forge_actors::ports::vcenter::{Fault, VcError, VcErrorKind};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    fault,
    http::{Reply, VcErrorKindAndMessage},
};

/// Whether vCenter reports that the session is gone. The specification only has the fault. A 401 means the same.
pub(super) fn session_gone(error: &VcError) -> bool {
    matches!(
        error.kind,
        VcErrorKind::Fault(Fault::NotAuthenticated) | VcErrorKind::Status(401)
    )
}

/// Whether vCenter may no longer serve the API release in the request. A missing object or method would be a fault
/// instead.
pub(super) fn release_refused(error: &VcError) -> bool {
    matches!(error.kind, VcErrorKind::Status(400 | 404 | 410))
}

/// Decodes a result. `None` for 204, an empty body and `null`.
pub(super) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<Option<T>, String> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    serde_json::from_slice(body).map_err(|e| format!("the reply does not decode: {e}"))
}

/// The failure in a reply of VI/JSON, if any.
pub(super) fn judge(reply: &Reply) -> Option<VcErrorKindAndMessage> {
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

/// The failure in a reply of another interface, if any.
pub(super) fn judge_rest(reply: &Reply) -> Option<VcErrorKindAndMessage> {
    (!(200..300).contains(&reply.status)).then(|| status(reply.status))
}

fn status(status: u16) -> VcErrorKindAndMessage {
    (
        VcErrorKind::Status(status),
        format!("the server answered with HTTP status {status}"),
    )
}
