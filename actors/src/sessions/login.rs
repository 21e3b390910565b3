//! Who logs in where: credentials without what is secret in them. Pure.

use agent_forge_crds::conditions::reason;
use sha2::{Digest as _, Sha256};

use super::refusals::{Door, LOCKOUT, MOST, Rest};
use crate::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        names::ObjectKey,
        server::server_name,
    },
    ports::{cluster::SecretVersion, vcenter::Credentials},
    sessions::credentials,
};

/// Digest of credentials.
pub type Digest = [u8; 32];

/// Whom vCenter locks: the user's name without its domain, and the host. Spellings count as one: vCenter tells neither upper
/// case nor `DOMAIN\user` from `user@domain`, and which domain a name without one means cannot be known here.
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

    /// `user@host`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What stands for the bytes of a Secret that nobody has read yet.
#[must_use]
pub fn of_version(version: &SecretVersion) -> Digest {
    let mut hash = Sha256::new();
    for part in [&version.uid, &version.resource_version] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

/// A login, as far as it may be remembered and spoken of.
#[derive(Clone, Debug)]
pub struct Login {
    /// Equal for the same bytes in whatever Secret, and for no others.
    pub digest: Digest,
    /// Whom vCenter locks where it is refused too often.
    pub account: Account,
    /// The state of the Secret that they were read from; of none where only the bytes matter.
    pub version: SecretVersion,
    host: String,
    username: String,
}

impl Login {
    /// The login that these credentials make, which that state of a Secret holds.
    #[must_use]
    pub fn of(credentials: &Credentials, version: SecretVersion) -> Self {
        Self {
            digest: credentials::digest(credentials),
            account: Account::of(credentials),
            version,
            host: server_name(&credentials.server),
            username: credentials.username.clone(),
        }
    }

    /// What those are told who asked by `secret`: the same words whether vCenter refused the first login or, after a change of
    /// the password there, a later one.
    #[must_use]
    pub fn told(&self, secret: &ObjectKey, rest: Rest) -> ReconcileError {
        let reason = match rest {
            Rest::Refused { .. } => reason::INVALID_CREDENTIALS,
            Rest::Limited { .. } => reason::LOGIN_LIMITED,
        };
        let message = self.said(&format!("Secret {secret}"), "", rest);
        ReconcileError::blocked(ErrorSource::Vsphere, reason, message)
    }

    /// The same, of one door, by somebody who does not know the Secret's name.
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
        let many = || format!("{MOST} logins of this user were refused within {minutes} minutes");
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
