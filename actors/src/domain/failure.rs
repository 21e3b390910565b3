//! Failure classes and what people are told: classified once, where the code is known.

use std::time::Duration;

/// What a failure means for the next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Try again with exponential backoff and jitter.
    Transient,
    /// The server said when to come back.
    Throttled(Duration),
    /// Somebody else wrote first: look again at once, bounded.
    Conflict,
    /// Only a changed input helps: condition, slow probe.
    Blocked,
    /// A broken invariant or an undecodable reply: slow probe, `InternalError`.
    Defect,
}

impl Class {
    /// Time alone may end it: the same may succeed later.
    #[must_use]
    pub const fn passes(self) -> bool {
        matches!(self, Self::Transient | Self::Throttled(_) | Self::Conflict)
    }
}

/// Which side a trouble is on; decides the condition that shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorSource {
    /// vCenter, its credentials, or the names in `spec.vsphere`.
    Vsphere,
    /// The discovery ISO's source.
    Iso,
    /// The management cluster.
    Kubernetes,
    /// Upstream controllers or the objects they own.
    Upstream,
}

/// A failure as a person is told of it: which side, why in a word, what in a sentence, and when it is tried again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ReconcileError {
    /// ErrorSource.
    pub side: ErrorSource,
    /// CamelCase reason.
    pub reason: String,
    /// Sentence, without secrets; names field and value where a field is wrong.
    pub message: String,
    /// For the next try.
    pub class: Class,
}

impl ReconcileError {
    /// A trouble that only a changed input ends.
    pub fn blocked(
        side: ErrorSource,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            side,
            reason: reason.into(),
            message: message.into(),
            class: Class::Blocked,
        }
    }

    /// A trouble that passes.
    pub fn transient(
        side: ErrorSource,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            side,
            reason: reason.into(),
            message: message.into(),
            class: Class::Transient,
        }
    }
}
