//! A call of a managed object's method.

use std::time::Duration;

use agent_forge_actors::{
    domain::names::MoRef,
    ports::vcenter::{VcError, VcErrorKind, VcResult},
};
use bytes::Bytes;
use serde::Serialize;

/// A call of a method.
pub(crate) struct Call {
    /// The object that it is called on.
    pub(crate) target: MoRef,
    /// WSDL name.
    pub(crate) method: &'static str,
    /// The subject, for people.
    pub(crate) subject: String,
    /// Encoded arguments.
    pub(crate) body: VcResult<Bytes>,
    /// Time limit, if not the usual one.
    pub(crate) timeout: Option<Duration>,
}

impl Call {
    /// `method` of `target` with these arguments.
    pub(crate) fn new(target: &MoRef, method: &'static str, body: &impl Serialize) -> Self {
        let subject = target.to_string();
        let body = serde_json::to_vec(body).map(Bytes::from).map_err(|e| {
            VcError::new(
                VcErrorKind::Undecodable,
                method,
                subject.clone(),
                format!("the arguments do not encode: {e}"),
            )
        });
        Self {
            target: target.clone(),
            method,
            subject,
            body,
            timeout: None,
        }
    }

    /// Sets the subject that people read.
    pub(crate) fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = subject.into();
        self
    }

    /// Sets another time limit than the usual one.
    pub(crate) fn within(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// A failure of this call.
    pub(crate) fn failure(&self, kind: VcErrorKind, message: impl Into<String>) -> VcError {
        VcError::new(kind, self.method, self.subject.clone(), message)
    }
}
