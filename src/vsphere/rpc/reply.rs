//! Reading replies: results, faults, statuses.

use agent_forge_actors::ports::vcenter::{Fault, VcError, VcErrorKind};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    fault,
    http::{Reply, VcErrorKindAndMessage},
};

/// Did vCenter say that the session is gone? The specification knows the fault only; a 401 means the same.
pub(crate) fn session_gone(error: &VcError) -> bool {
    matches!(
        error.kind,
        VcErrorKind::Fault(Fault::NotAuthenticated) | VcErrorKind::Status(401)
    )
}

/// May it be that vCenter does not serve the API release that was named? What there is no object or method for is a fault.
pub(crate) fn release_refused(error: &VcError) -> bool {
    matches!(error.kind, VcErrorKind::Status(400 | 404 | 410))
}

/// Reads a result: nothing for 204, an empty body and `null`.
pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<Option<T>, String> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    serde_json::from_slice(body).map_err(|e| format!("the reply does not decode: {e}"))
}

/// Is this reply of VI/JSON a failure?
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

/// Is this reply of another interface a failure?
pub(crate) fn judge_rest(reply: &Reply) -> Option<VcErrorKindAndMessage> {
    (!(200..300).contains(&reply.status)).then(|| status(reply.status))
}

fn status(status: u16) -> VcErrorKindAndMessage {
    (
        VcErrorKind::Status(status),
        format!("the server answered with HTTP status {status}"),
    )
}
