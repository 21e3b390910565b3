//! What a vCenter call can end with. The type name of a fault decides, never its text.

use std::fmt;

use agent_forge_crds::conditions::Reason;

use jiff::Timestamp;

use crate::{
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        names::MoRef,
        text,
    },
    ports::effect::Hold,
};

/// A typed vSphere fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The session is gone.
    NotAuthenticated,
    /// User or password is wrong.
    InvalidLogin,
    /// The user lacks a privilege.
    NoPermission {
        /// The object.
        object: Option<MoRef>,
        /// E.g. `VirtualMachine.Inventory.Create`.
        privilege: String,
    },
    /// The reference leads to nothing.
    ManagedObjectNotFound(Option<MoRef>),
    /// The name is taken in this folder, by `holder`.
    DuplicateName {
        /// The name.
        name: String,
        /// The object that has it.
        holder: Option<MoRef>,
    },
    /// The file (or a loaded configuration file) is there already.
    AlreadyExists(String),
    /// No such file or directory.
    FileNotFound(String),
    /// The file is in use.
    FileLocked(String),
    /// Datastore full.
    NoDiskSpace(String),
    /// CPU, memory or storage is not available now.
    InsufficientResources(String),
    /// The VM is in another power state than the call needs.
    InvalidPowerState {
        /// State that the VM is in, as on the wire (`poweredOn`).
        existing: String,
    },
    /// Another task is working on the object.
    TaskInProgress,
    /// Somebody else changed the object first (`changeVersion`).
    ConcurrentAccess,
    /// Cancelled by a user.
    RequestCanceled,
    /// An argument that vSphere does not accept.
    InvalidArgument {
        /// Property named by the fault.
        property: String,
    },
    /// Anything else: type name and message.
    Other {
        /// `_typeName` of the fault.
        type_name: String,
        /// The server's message, for people.
        message: String,
    },
}

impl Fault {
    /// Short CamelCase name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::NotAuthenticated => "NotAuthenticated",
            Self::InvalidLogin => "InvalidLogin",
            Self::NoPermission { .. } => "NoPermission",
            Self::ManagedObjectNotFound(_) => "ManagedObjectNotFound",
            Self::DuplicateName { .. } => "DuplicateName",
            Self::AlreadyExists(_) => "AlreadyExists",
            Self::FileNotFound(_) => "FileNotFound",
            Self::FileLocked(_) => "FileLocked",
            Self::NoDiskSpace(_) => "NoDiskSpace",
            Self::InsufficientResources(_) => "InsufficientResources",
            Self::InvalidPowerState { .. } => "InvalidPowerState",
            Self::TaskInProgress => "TaskInProgress",
            Self::ConcurrentAccess => "ConcurrentAccess",
            Self::RequestCanceled => "RequestCanceled",
            Self::InvalidArgument { .. } => "InvalidArgument",
            Self::Other { type_name, .. } => type_name,
        }
    }
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VcErrorKind {
    /// vCenter answered with a fault (of the call or of its task).
    Fault(Fault),
    /// A name in the spec resolves to nothing (or is not visible to the user).
    Unresolved {
        /// Field of `spec.vsphere`, e.g. `network`.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// No connection: nothing was sent.
    Unreachable,
    /// Sent, but no complete answer: the effect may have happened.
    NoAnswer,
    /// The server's certificate is not trusted. No credential was sent.
    Untrusted,
    /// The server's name resolves to an address that a vCenter must not have. Nothing was sent.
    NotAllowed,
    /// Logins of this account were refused, so none is tried before that time. Nothing was sent.
    LoginLimited(Timestamp),
    /// An HTTP status without a fault (gateway in front of vCenter).
    Status(u16),
    /// The reply does not decode.
    Undecodable,
    /// The effect gate held the call back.
    Held(Box<Hold>),
}

/// What a client is doing when a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStage {
    /// It logs in. Nothing shows yet that the host is a vCenter.
    Login,
    /// It works in a session, which a vCenter has opened.
    Session,
}

/// Type name of the fault of a server that serves no API release of ours. A server that is no vCenter can end so too.
pub const UNSUPPORTED_RELEASE: &str = "UnsupportedRelease";

/// Result of a vCenter call.
pub type VcResult<T> = Result<T, VcError>;

/// A failed vCenter call. Its text is `operation of subject: message`, or the message alone if it is concealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VcError {
    /// What kind of failure.
    pub kind: VcErrorKind,
    /// WSDL method or operation (`CreateVM_Task`).
    pub operation: &'static str,
    /// What it was about: object, path, server.
    pub subject: String,
    /// One sentence for people, without secrets.
    pub message: String,
    /// The cause is concealed ([`Self::public`]): `message` is the same for each cause, and so is [`Self::reason`].
    pub concealed: bool,
}

impl fmt::Display for VcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The operation would show how far the connection came.
        if !self.concealed {
            write!(f, "{} of {}: ", self.operation, self.subject)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for VcError {}

impl VcError {
    /// A failure of `operation` on `subject`. Both texts may be of others ([`text::plain`]).
    #[must_use]
    pub fn new(
        kind: VcErrorKind,
        operation: &'static str,
        subject: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            operation,
            subject: text::plain(&subject.into()),
            message: text::plain(&message.into()),
            concealed: false,
        }
    }

    /// What the author of a pool may know of this failure of a call to `server` (`host[:port]`).
    ///
    /// The author chooses the server. The text of a failure to connect would show which hosts and ports of the management
    /// network exist, and what listens there. So without `named` (the administrator's `--allowed-vcenters` names the
    /// host) all such failures have one message and one reason. Kind and class stay: retries do not change. What only a
    /// vCenter answers stays as it is.
    #[must_use]
    pub fn public(self, server: &str, named: bool, stage: CallStage) -> Self {
        if named || !self.shows_the_network(stage) {
            return self;
        }
        Self {
            message: format!(
                "vCenter {server} cannot be used: it did not answer as a vCenter within the time allowed. Ask the operator's \
                 administrator: its log has the cause, and a host in --allowed-vcenters is reported in full"
            ),
            concealed: true,
            ..self
        }
    }

    /// Whether the failure says something about a host that may be no vCenter.
    fn shows_the_network(&self, stage: CallStage) -> bool {
        match &self.kind {
            VcErrorKind::Unreachable | VcErrorKind::Untrusted | VcErrorKind::NotAllowed => true,
            VcErrorKind::NoAnswer | VcErrorKind::Status(_) | VcErrorKind::Undecodable => {
                stage == CallStage::Login
            }
            VcErrorKind::Fault(fault) => {
                stage == CallStage::Login && fault.name() == UNSUPPORTED_RELEASE
            }
            VcErrorKind::Unresolved { .. }
            | VcErrorKind::LoginLimited(_)
            | VcErrorKind::Held(_) => false,
        }
    }

    /// A name in `field` of the spec leads to nothing usable; `message` is the reason.
    #[must_use]
    pub fn unresolved(field: &'static str, value: &str, message: impl Into<String>) -> Self {
        let kind = VcErrorKind::Unresolved {
            field,
            value: value.to_owned(),
        };
        Self::new(kind, "Resolve", format!("{field} {value:?}"), message)
    }

    /// The typed fault, if vCenter gave one.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        match &self.kind {
            VcErrorKind::Fault(f) => Some(f),
            _ => None,
        }
    }

    /// Whether the effect may have happened although the call failed.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        match &self.kind {
            VcErrorKind::NoAnswer | VcErrorKind::Status(_) | VcErrorKind::Undecodable => true,
            VcErrorKind::Fault(Fault::Other { type_name, .. }) => {
                matches!(
                    type_name.as_str(),
                    "SystemError" | "RuntimeFault" | "HostCommunication"
                )
            }
            _ => false,
        }
    }

    /// Why, as one word for conditions.
    #[must_use]
    pub fn reason(&self) -> Reason {
        if self.concealed {
            return Reason::VcenterUnreachable;
        }
        match &self.kind {
            // The session actor uses the same reason.
            VcErrorKind::Fault(Fault::InvalidLogin) => Reason::InvalidCredentials,
            VcErrorKind::Fault(f) => Reason::from(f.name()),
            VcErrorKind::Unresolved { .. } => Reason::VsphereObjectNotFound,
            VcErrorKind::Unreachable => Reason::VcenterUnreachable,
            VcErrorKind::NoAnswer => Reason::VcenterNoAnswer,
            VcErrorKind::Untrusted => Reason::UntrustedCertificate,
            VcErrorKind::LoginLimited(_) => Reason::LoginLimited,
            VcErrorKind::NotAllowed => Reason::VcenterNotAllowed,
            VcErrorKind::Status(_) => Reason::VcenterUnavailable,
            VcErrorKind::Undecodable => Reason::VcenterReplyUnusable,
            VcErrorKind::Held(hold) => hold.reason.clone(),
        }
    }

    /// What the failure means for the next try.
    #[must_use]
    pub fn class(&self) -> Class {
        match &self.kind {
            VcErrorKind::Unreachable
            | VcErrorKind::NoAnswer
            | VcErrorKind::Status(_)
            | VcErrorKind::Held(_) => Class::Transient,
            VcErrorKind::Unresolved { .. }
            | VcErrorKind::Untrusted
            | VcErrorKind::NotAllowed
            | VcErrorKind::LoginLimited(_) => Class::Blocked,
            VcErrorKind::Undecodable => Class::Defect,
            VcErrorKind::Fault(fault) => match fault {
                Fault::NotAuthenticated
                | Fault::RequestCanceled
                | Fault::TaskInProgress
                | Fault::FileLocked(_)
                | Fault::InvalidPowerState { .. }
                | Fault::ManagedObjectNotFound(_)
                | Fault::FileNotFound(_)
                | Fault::Other { .. } => Class::Transient,
                Fault::ConcurrentAccess => Class::Conflict,
                Fault::InvalidLogin
                | Fault::NoPermission { .. }
                | Fault::DuplicateName { .. }
                | Fault::AlreadyExists(_)
                | Fault::NoDiskSpace(_)
                | Fault::InsufficientResources(_)
                | Fault::InvalidArgument { .. } => Class::Blocked,
            },
        }
    }
}

impl From<VcError> for ReconcileError {
    fn from(e: VcError) -> Self {
        // Only the server matters here: the call that happened to fail differs with each try.
        let message = match e.kind {
            VcErrorKind::Unreachable
            | VcErrorKind::Untrusted
            | VcErrorKind::NotAllowed
            | VcErrorKind::LoginLimited(_) => e.message.clone(),
            _ => e.to_string(),
        };
        Self {
            side: ErrorSource::Vsphere,
            reason: e.reason(),
            message,
            class: e.class(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(reason: Reason) -> Box<Hold> {
        Box::new(Hold {
            reason,
            ..Hold::lease("test")
        })
    }

    /// What a pool shows of a failure with this kind: reason and message.
    fn shown(kind: &VcErrorKind, (named, stage): (bool, CallStage)) -> (Reason, String) {
        let error = VcError::new(kind.clone(), "Test", "it", "what broke");
        let class = error.class();
        let error = error.public("vc.example:8443", named, stage);
        assert_eq!((&error.kind, error.class()), (kind, class), "retries stay");
        assert_eq!(error.concealed, !error.to_string().contains("what broke"));
        let error = ReconcileError::from(error);
        assert_eq!(error.class, class, "{kind:?}");
        (error.reason, error.message)
    }

    #[test]
    fn a_host_that_nobody_named_fails_with_one_text_and_one_reason_until_it_is_a_vcenter() {
        let transport = [
            VcErrorKind::Unreachable,
            VcErrorKind::Untrusted,
            VcErrorKind::NotAllowed,
        ];
        let answers = [
            VcErrorKind::NoAnswer,
            VcErrorKind::Status(404),
            VcErrorKind::Status(503),
            VcErrorKind::Undecodable,
            VcErrorKind::Fault(Fault::Other {
                type_name: UNSUPPORTED_RELEASE.to_owned(),
                message: String::new(),
            }),
        ];
        let of_a_vcenter = [
            VcErrorKind::Fault(Fault::InvalidLogin),
            VcErrorKind::Fault(Fault::Other {
                type_name: "SystemError".to_owned(),
                message: String::new(),
            }),
            VcErrorKind::LoginLimited(Timestamp::UNIX_EPOCH),
            VcErrorKind::Held(held(Reason::EffectHeld)),
        ];
        let first = shown(&VcErrorKind::Unreachable, (false, CallStage::Login));
        assert_eq!(first.0, Reason::VcenterUnreachable);
        for told in ["vc.example:8443", "--allowed-vcenters", "log"] {
            assert!(first.1.contains(told), "{first:?}");
        }
        let exact = |kind: &VcErrorKind, how| {
            let (reason, message) = shown(kind, how);
            let plain = VcError::new(kind.clone(), "Test", "it", "what broke");
            assert!(message.contains("what broke"), "{kind:?}: {message}");
            assert_eq!(reason, plain.reason(), "{kind:?}");
        };
        for kind in &transport {
            for stage in [CallStage::Login, CallStage::Session] {
                assert_eq!(shown(kind, (false, stage)), first, "{kind:?}");
                exact(kind, (true, stage));
            }
        }
        for kind in &answers {
            let seen = shown(kind, (false, CallStage::Login));
            assert_eq!(seen, first, "{kind:?}");
            exact(kind, (false, CallStage::Session));
            exact(kind, (true, CallStage::Login));
        }
        for kind in &of_a_vcenter {
            for stage in [CallStage::Login, CallStage::Session] {
                exact(kind, (false, stage));
            }
        }
    }
}
