//! Failure classes, and what a condition shows of a failure. The code that knows the failure classifies it, once.

use std::time::Duration;

use agent_forge_crds::conditions::Reason;

/// What a failure means for the next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Try again with exponential backoff and jitter.
    Transient,
    /// The server named the time of the next try.
    Throttled(Duration),
    /// Another writer was first: look again at once, a limited number of times.
    Conflict,
    /// Only a changed input helps: condition, slow probe.
    Blocked,
    /// A broken invariant or an undecodable reply: slow probe, `InternalError`.
    Defect,
}

impl Class {
    /// Time alone may end the failure: the same call may succeed later.
    #[must_use]
    pub const fn passes(self) -> bool {
        matches!(self, Self::Transient | Self::Throttled(_) | Self::Conflict)
    }
}

/// The side that a failure is on. It decides which condition shows the failure.
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

/// A failure as users see it: its side, a reason, a sentence, and the class that decides when the next try is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ReconcileError {
    /// The side that the failure is on.
    pub side: ErrorSource,
    /// Why, as one word.
    pub reason: Reason,
    /// Sentence, without secrets; names field and value where a field is wrong.
    pub message: String,
    /// Decides when the next try is.
    pub class: Class,
}

impl ReconcileError {
    /// A failure that only a changed input ends.
    pub fn blocked(side: ErrorSource, reason: Reason, message: impl Into<String>) -> Self {
        Self::of(side, reason, message.into(), Class::Blocked)
    }

    /// A failure that passes.
    pub fn transient(side: ErrorSource, reason: Reason, message: impl Into<String>) -> Self {
        Self::of(side, reason, message.into(), Class::Transient)
    }

    const fn of(side: ErrorSource, reason: Reason, message: String, class: Class) -> Self {
        Self {
            side,
            reason,
            message,
            class,
        }
    }
}
