//! A call of a managed object's method.

use std::time::Duration;

use agent_forge_actors::{
    model::names::MoRef,
    ports::vcenter::{VcError, VcErrorKind, VcResult},
};
use bytes::Bytes;
use serde::Serialize;

/// A call of a method.
pub(super) struct Call {
    /// The managed object.
    pub(super) target: MoRef,
    /// The name in the WSDL.
    pub(super) method: &'static str,
    /// What the call is about, for people.
    pub(super) subject: String,
    /// Encoded arguments.
    pub(super) body: VcResult<Bytes>,
    /// Time limit, if it is not the usual one.
    pub(super) timeout: Option<Duration>,
}

impl Call {
    /// `method` of `target` with these arguments.
    pub(super) fn new(target: &MoRef, method: &'static str, body: &impl Serialize) -> Self {
        let subject = target.to_string();
        let body = serde_json::to_vec(body)
            .map(Bytes::from)
            .map_err(|e| VcError {
                kind: VcErrorKind::Undecodable,
                operation: method,
                subject: subject.clone(),
                message: format!("the arguments do not encode: {e}"),
            });
        Self {
            target: target.clone(),
            method,
            subject,
            body,
            timeout: None,
        }
    }

    /// Sets a subject that people understand.
    pub(super) fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = subject.into();
        self
    }

    /// Sets another time limit than the usual one.
    pub(super) fn within(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// A failure of this call.
    pub(super) fn failure(&self, kind: VcErrorKind, message: impl Into<String>) -> VcError {
        VcError {
            kind,
            operation: self.method,
            subject: self.subject.clone(),
            message: message.into(),
        }
    }
}
