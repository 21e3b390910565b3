//! Why the API server refused a write.

use kube::core::Status;

/// The API server's answer in an error, if there was one.
#[must_use]
pub fn status(error: &anyhow::Error) -> Option<&Status> {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => Some(status),
        _ => None,
    }
}

/// The object changed or vanished since it was read. Read and try again.
#[must_use]
pub fn is_stale(error: &anyhow::Error) -> bool {
    status(error).is_some_and(|status| matches!(status.code, 404 | 409))
}

/// The object does not fit its schema. A retry cannot help.
#[must_use]
pub fn is_invalid(error: &anyhow::Error) -> bool {
    status(error).is_some_and(|status| status.code == 422)
}
