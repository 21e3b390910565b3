//! The credentials Secret, parsed and checked: keys `server`, `username`, `password`, and optionally `insecure`, `caBundle`,
//! `thumbprint`.

use std::collections::BTreeMap;

use agent_forge_crds::conditions::Reason;
use secrecy::{ExposeSecret, SecretString};

use crate::{
    domain::{
        digest,
        server::{BadServer, ServerRule},
    },
    ports::vcenter::{Credentials, Trust},
};

/// What is wrong with a credentials Secret. The error names keys, never values that could be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCredentials {
    /// A key is missing or empty.
    #[error("key {0:?} is missing or empty")]
    Missing(&'static str),
    /// `server` is not usable.
    #[error("key \"server\": {0}")]
    Server(#[from] BadServer),
    /// `thumbprint` is not a SHA-256 digest.
    #[error("key \"thumbprint\" must be a SHA-256 digest: 64 hex digits, colons allowed")]
    Thumbprint,
}

impl BadCredentials {
    /// The reason for conditions. A missing key has the same reason as a missing Secret.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Missing(_) => Reason::SecretNotFound,
            Self::Server(BadServer::NotAllowed(_)) => Reason::VcenterNotAllowed,
            Self::Server(BadServer::Malformed(_)) | Self::Thumbprint => Reason::InvalidCredentials,
        }
    }
}

/// Reads `data`; `rule` decides which servers it may name.
///
/// # Errors
/// [`BadCredentials`] names the key and what it must be.
pub fn parse(
    data: &BTreeMap<String, SecretString>,
    rule: &ServerRule,
) -> Result<Credentials, BadCredentials> {
    let get = |key: &'static str| {
        data.get(key)
            .map(|v| v.expose_secret().trim())
            .filter(|v| !v.is_empty())
            .ok_or(BadCredentials::Missing(key))
    };
    let trust = if get("insecure").is_ok_and(|v| v.eq_ignore_ascii_case("true")) {
        Trust::Insecure
    } else if let Ok(text) = get("thumbprint") {
        let bare: String = text.chars().filter(|c| *c != ':').collect();
        let bytes = hex::decode(bare).map_err(|_| BadCredentials::Thumbprint)?;
        Trust::Thumbprint(bytes.try_into().map_err(|_| BadCredentials::Thumbprint)?)
    } else if let Ok(pem) = get("caBundle") {
        Trust::CaBundle(pem.to_owned())
    } else {
        Trust::System
    };
    // The password is used exactly as it is: blanks may be part of it.
    let password = data
        .get("password")
        .filter(|p| !p.expose_secret().is_empty());
    Ok(Credentials {
        server: rule.parse(get("server")?)?,
        username: get("username")?.to_owned(),
        password: password
            .cloned()
            .ok_or(BadCredentials::Missing("password"))?,
        trust,
    })
}

/// Digest of everything that makes a login. Equal digests share one session, and the operator does not repeat a refused
/// login with the same bytes.
#[must_use]
pub fn digest(credentials: &Credentials) -> [u8; 32] {
    let trust = match &credentials.trust {
        Trust::System => "system".to_owned(),
        Trust::CaBundle(pem) => format!("ca:{pem}"),
        Trust::Thumbprint(bytes) => format!("thumb:{}", hex::encode(bytes)),
        Trust::Insecure => "insecure".to_owned(),
    };
    digest::of(&[
        credentials.server.as_str().as_bytes(),
        credentials.username.as_bytes(),
        credentials.password.expose_secret().as_bytes(),
        trust.as_bytes(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(pairs: &[(&str, &str)]) -> BTreeMap<String, SecretString> {
        let mut all: BTreeMap<String, SecretString> =
            [("server", "vc"), ("username", "u"), ("password", "p")]
                .iter()
                .map(|(k, v)| ((*k).to_owned(), SecretString::from(*v)))
                .collect();
        for (k, v) in pairs {
            all.insert((*k).to_owned(), SecretString::from(*v));
        }
        all
    }

    #[test]
    fn a_server_that_is_none_is_told_apart_from_one_that_is_not_allowed() {
        let told = |server| {
            let bad = parse(&secret(&[("server", server)]), &ServerRule::default());
            bad.expect_err(server)
        };
        let (none, not_allowed) = (told("ftp://vc"), told("127.0.0.1"));
        assert_eq!(none.reason(), Reason::InvalidCredentials);
        assert_eq!(not_allowed.reason(), Reason::VcenterNotAllowed);
        for said in [none.to_string(), not_allowed.to_string()] {
            assert!(said.contains("\"server\""), "{said}");
        }
    }

    #[test]
    fn missing_keys_and_bad_thumbprints_are_named() {
        for key in ["server", "username", "password"] {
            let e = parse(&secret(&[(key, "")]), &ServerRule::default())
                .expect_err(key)
                .to_string();
            assert!(e.contains(key), "{e}");
        }
        assert_eq!(
            parse(&secret(&[("thumbprint", "abc")]), &ServerRule::default()).expect_err("short"),
            BadCredentials::Thumbprint
        );
        let good = parse(
            &secret(&[("thumbprint", &"AB:".repeat(32))]),
            &ServerRule::default(),
        )
        .expect("digest");
        assert_eq!(good.trust, Trust::Thumbprint([0xab; 32]));
    }

    #[test]
    fn digests_tell_credentials_apart() {
        let a = parse(&secret(&[]), &ServerRule::default()).expect("a");
        let b = parse(&secret(&[("password", "q")]), &ServerRule::default()).expect("b");
        assert_eq!(digest(&a), digest(&a.clone()));
        assert_ne!(digest(&a), digest(&b));
        assert!(!format!("{a:?}").contains("\"p\""), "{a:?}");
    }
}
