//! How a Kubernetes call fails.

use agent_forge_crds::conditions::Reason;

use crate::{domain::failure::Class, ports::effect::Hold};

/// What kind of failure a Kubernetes call had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterErrorKind {
    /// 404.
    NotFound,
    /// 409 AlreadyExists.
    AlreadyExists,
    /// 409 Conflict: the precondition failed, another writer was first.
    Conflict,
    /// 403: a rule is missing in our role.
    Forbidden,
    /// Nothing was sent: the namespace is none of `--namespaces`.
    NotServed,
    /// 400, 422: the server does not accept the object.
    Invalid,
    /// No answer, or a server error: the effect may have happened.
    Unavailable,
    /// The reply does not decode.
    Undecodable,
    /// The effect gate refused the call.
    Held(Box<Hold>),
}

/// A failed Kubernetes call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} {subject}: {message}")]
pub struct ClusterError {
    /// What kind of failure.
    pub kind: ClusterErrorKind,
    /// Verb.
    pub operation: &'static str,
    /// Object.
    pub subject: String,
    /// One sentence for people.
    pub message: String,
}

impl ClusterError {
    /// Why, as one word for conditions.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self.kind {
            ClusterErrorKind::NotFound => Reason::NotFound,
            ClusterErrorKind::AlreadyExists => Reason::AlreadyExists,
            ClusterErrorKind::Conflict => Reason::Conflict,
            ClusterErrorKind::Forbidden => Reason::Forbidden,
            ClusterErrorKind::NotServed => Reason::NamespaceNotAllowed,
            ClusterErrorKind::Invalid => Reason::Invalid,
            ClusterErrorKind::Unavailable => Reason::ApiServerUnavailable,
            ClusterErrorKind::Undecodable => Reason::InternalError,
            ClusterErrorKind::Held(ref hold) => hold.reason.clone(),
        }
    }

    /// What the failure means for the next try.
    #[must_use]
    pub fn class(&self) -> Class {
        match self.kind {
            ClusterErrorKind::NotFound
            | ClusterErrorKind::AlreadyExists
            | ClusterErrorKind::Conflict => Class::Conflict,
            ClusterErrorKind::Forbidden
            | ClusterErrorKind::NotServed
            | ClusterErrorKind::Invalid => Class::Blocked,
            ClusterErrorKind::Unavailable | ClusterErrorKind::Held(_) => Class::Transient,
            ClusterErrorKind::Undecodable => Class::Defect,
        }
    }
}

/// Result of a Kubernetes call.
pub type ClusterResult<T> = Result<T, ClusterError>;
