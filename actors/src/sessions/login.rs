//! The identity of a login: credentials without their secrets. Pure.

use std::fmt;

use agent_forge_crds::conditions::Reason;
use secrecy::ExposeSecret as _;

use super::rest::{Door, LOCKOUT, MOST, Rest};
use crate::{
    domain::{
        digest,
        failure::{ErrorSource, ReconcileError},
        names::ObjectKey,
        server::server_name,
    },
    ports::{cluster::SecretVersion, vcenter::Credentials},
    sessions::credentials,
};

/// Digest of credentials.
pub type Digest = [u8; 32];

/// The account that vCenter locks: the user's name without its domain, and the host. All spellings count as one account.
/// vCenter does not distinguish upper and lower case, or `DOMAIN\user` and `user@domain`. For a name without a domain, the
/// domain is not known here. Which hosts are one vCenter is known from its answers ([`Instance`]).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account(String);

impl Account {
    fn of(credentials: &Credentials) -> Self {
        let host = credentials.server.host_str().unwrap_or_default();
        let user = credentials.username.trim().to_lowercase();
        let user = user.rsplit('\\').next().unwrap_or_default();
        let user = user.split('@').next().unwrap_or_default();
        Self(format!(
            "{user}@{}",
            host.trim_end_matches('.').to_lowercase()
        ))
    }

    /// The account that a pool has on record. `None`: the text names none.
    #[must_use]
    pub fn recorded(text: &str) -> Option<Self> {
        text.contains('@').then(|| Self(text.to_owned()))
    }

    /// `user@host`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// User and host.
    pub(super) fn parts(&self) -> (&str, &str) {
        self.0.split_once('@').unwrap_or((&self.0, ""))
    }
}

/// One vCenter, whatever its names: a digest of its certificate and its instance UUID. It says which accounts are one, and
/// opens no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance(Digest);

impl Instance {
    /// The vCenter that showed this certificate (DER) and calls itself `uuid`.
    #[must_use]
    pub fn of(certificate: &[u8], uuid: &str) -> Self {
        Self(digest::of(&[certificate, uuid.as_bytes()]))
    }

    /// The one that a pool has on record.
    #[must_use]
    pub fn recorded(text: &str) -> Option<Self> {
        let bytes = hex::decode(text).ok()?;
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// Represents the bytes of a Secret that was not read yet.
#[must_use]
pub fn of_version(version: &SecretVersion) -> Digest {
    digest::of(&[version.uid.as_bytes(), version.resource_version.as_bytes()])
}

/// The parts of a login that may be remembered and shown.
#[derive(Clone, Debug)]
pub struct Login {
    /// Equal for the same bytes in any Secret, and different for others.
    pub digest: Digest,
    /// Equal for the same user as it is written and the same password, whatever the server and the trust settings are.
    pub password: Digest,
    /// The account that vCenter locks after too many refusals.
    pub account: Account,
    /// The state of the Secret that they were read from. Not set if only the bytes matter.
    pub version: SecretVersion,
    host: String,
    username: String,
}

impl Login {
    /// The login that these credentials make, read from that state of a Secret.
    #[must_use]
    pub fn of(credentials: &Credentials, version: SecretVersion) -> Self {
        let (user, password) = (&credentials.username, credentials.password.expose_secret());
        Self {
            digest: credentials::digest(credentials),
            password: digest::of(&[user.as_bytes(), password.as_bytes()]),
            account: Account::of(credentials),
            version,
            host: server_name(&credentials.server),
            username: credentials.username.clone(),
        }
    }

    /// The error for a caller that asked with `secret`. It has the same text if vCenter refused the first login, or a later
    /// one after a password change in vCenter.
    #[must_use]
    pub fn told(&self, secret: &ObjectKey, rest: Rest) -> ReconcileError {
        let reason = match rest {
            Rest::Refused { .. } => Reason::InvalidCredentials,
            Rest::Limited { .. } => Reason::LoginLimited,
        };
        let message = self.said(&format!("Secret {secret}"), "", rest);
        ReconcileError::blocked(ErrorSource::Vsphere, reason, message)
    }

    /// The same text for one door, for callers that do not know the Secret's name.
    #[must_use]
    pub fn said_at(&self, door: Door, rest: Rest) -> String {
        self.said(
            "the credentials Secret",
            &format!(" at {}", door.name()),
            rest,
        )
    }

    fn said(&self, secret: &str, door: &str, rest: Rest) -> String {
        let (host, user, minutes) = (&self.host, &self.username, LOCKOUT.as_secs() / 60);
        let many = || {
            format!(
                "{MOST} logins of this user at that vCenter, by any name, were refused within {minutes} minutes or have no answer yet"
            )
        };
        match rest {
            Rest::Refused { again, others } => {
                let changed = others.map_or_else(
                    || "a changed Secret is tried within 30 seconds".to_owned(),
                    |at| format!("{}, so a changed Secret is tried at {at}", many()),
                );
                format!(
                    "{host} refuses user {user:?} with the password in {secret}{door}; {changed}, the same bytes not \
                     before {again}"
                )
            }
            Rest::Limited { again } => format!(
                "the password of user {user:?} at {host} in {secret} is not tried{door} before {again}: {}, and one more \
                 could lock the account; look for other Secrets with this user",
                many()
            ),
        }
    }
}
