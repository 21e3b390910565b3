//! Who logs in where: credentials without what is secret in them. Pure.

use agent_forge_crds::conditions::reason;

use crate::{
    error::{Side, Trouble},
    model::{credentials, names::ObjectKey},
    ports::{cluster::SecretVersion, vcenter::Credentials},
};

/// Digest of credentials.
pub type Digest = [u8; 32];

/// A login, as far as it may be remembered and spoken of.
#[derive(Clone, Debug)]
pub struct Login {
    /// Equal for the same bytes in whatever Secret, and for no others.
    pub digest: Digest,
    /// The state of the Secret that they were read from.
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
            version,
            host: credentials.server.host_str().unwrap_or_default().to_owned(),
            username: credentials.username.clone(),
        }
    }

    /// What those are told who asked by `secret`: the same words whether vCenter refused the first login or, after a change of
    /// the password there, a later one.
    #[must_use]
    pub fn refusal(&self, secret: &ObjectKey) -> Trouble {
        let message = format!(
            "{} refuses user {:?} with the password in Secret {secret}; these bytes are tried every 10 minutes, a \
             changed Secret within 30 seconds",
            self.host, self.username
        );
        Trouble::blocked(Side::Vsphere, reason::INVALID_CREDENTIALS, message)
    }
}
