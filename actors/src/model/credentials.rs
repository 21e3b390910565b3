//! The credentials Secret, parsed and checked: keys `server`, `username`, `password`, optional `insecure`, `caBundle`,
//! `thumbprint` (predecessor.md §1).

use std::collections::BTreeMap;

use agent_forge_crds::conditions::reason;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use crate::ports::vcenter::{Credentials, Trust};

/// What is wrong with a credentials Secret. Names keys, never values that could be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCredentials {
    /// A key is missing or empty.
    #[error("key {0:?} is missing or empty")]
    Missing(&'static str),
    /// `server` is not usable.
    #[error("key \"server\": {0}")]
    Server(&'static str),
    /// `thumbprint` is not a SHA-256 digest.
    #[error("key \"thumbprint\" must be a SHA-256 digest: 64 hex digits, colons allowed")]
    Thumbprint,
}

impl BadCredentials {
    /// As condition reason: a key that is not there is told as a Secret that is not there.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Missing(_) => reason::SECRET_NOT_FOUND,
            Self::Server(_) | Self::Thumbprint => reason::INVALID_CREDENTIALS,
        }
    }
}

/// Reads `data`. `allow_http` lets plain http through (labs).
///
/// # Errors
/// [`BadCredentials`] names the key and what it must be.
pub fn parse(
    data: &BTreeMap<String, SecretString>,
    allow_http: bool,
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
    // The password is taken to the letter: blanks may be part of it.
    let password = data
        .get("password")
        .filter(|p| !p.expose_secret().is_empty());
    Ok(Credentials {
        server: server(get("server")?, allow_http)?,
        username: get("username")?.to_owned(),
        password: password
            .cloned()
            .ok_or(BadCredentials::Missing("password"))?,
        trust,
    })
}

/// `host`, `host:port`, `https://host[:port]`, with or without `/sdk`, to a base URL.
fn server(text: &str, allow_http: bool) -> Result<url::Url, BadCredentials> {
    let with_scheme = if text.contains("://") {
        text.to_owned()
    } else {
        format!("https://{text}")
    };
    let mut url = url::Url::parse(&with_scheme).map_err(|_| {
        BadCredentials::Server("must be a host name, host:port or https URL of a vCenter")
    })?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(BadCredentials::Server(
            "must not hold a user name or password; use their own keys",
        ));
    }
    match url.scheme() {
        "https" => {}
        "http" if allow_http => {}
        "http" => return Err(BadCredentials::Server("plain http is refused; use https")),
        _ => return Err(BadCredentials::Server("only https is supported")),
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(BadCredentials::Server("has no host name"));
    }
    if !matches!(url.path(), "" | "/" | "/sdk" | "/sdk/")
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return Err(BadCredentials::Server(
            "must end after the host, the port or /sdk",
        ));
    }
    url.set_path("/");
    Ok(url)
}

/// Digest of everything that makes a login: equal digests share one session, and a refused login is not repeated with
/// the same bytes.
#[must_use]
pub fn digest(credentials: &Credentials) -> [u8; 32] {
    let mut hash = Sha256::new();
    let trust = match &credentials.trust {
        Trust::System => "system".to_owned(),
        Trust::CaBundle(pem) => format!("ca:{pem}"),
        Trust::Thumbprint(bytes) => format!("thumb:{}", hex::encode(bytes)),
        Trust::Insecure => "insecure".to_owned(),
    };
    for part in [
        credentials.server.as_str(),
        &credentials.username,
        credentials.password.expose_secret(),
        &trust,
    ] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
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
    fn servers_are_normalised() {
        for text in [
            "vc.example",
            "https://vc.example",
            "https://vc.example/sdk",
            "vc.example/sdk/",
            " vc.example:443 ",
        ] {
            let c = parse(&secret(&[("server", text)]), false).expect(text);
            assert_eq!(c.server.as_str(), "https://vc.example/", "{text}");
        }
        let c = parse(&secret(&[("server", "vc:8443")]), false).expect("port");
        assert_eq!(c.server.port(), Some(8443));
    }

    #[test]
    fn unusable_servers_are_refused() {
        for text in [
            "https://u:p@vc",
            "http://vc",
            "ftp://vc",
            "https://vc/ui",
            "https://vc?x=1",
            "https://",
            "vc /x",
        ] {
            let e = parse(&secret(&[("server", text)]), false)
                .expect_err(text)
                .to_string();
            assert!(e.contains("server"), "{e}");
        }
        assert!(parse(&secret(&[("server", "http://127.0.0.1:1")]), true).is_ok());
    }

    #[test]
    fn missing_keys_and_bad_thumbprints_are_named() {
        for key in ["server", "username", "password"] {
            let e = parse(&secret(&[(key, "")]), false)
                .expect_err(key)
                .to_string();
            assert!(e.contains(key), "{e}");
        }
        assert_eq!(
            parse(&secret(&[("thumbprint", "abc")]), false).expect_err("short"),
            BadCredentials::Thumbprint
        );
        let good = parse(&secret(&[("thumbprint", &"AB:".repeat(32))]), false).expect("digest");
        assert_eq!(good.trust, Trust::Thumbprint([0xab; 32]));
    }

    #[test]
    fn digests_tell_credentials_apart() {
        let a = parse(&secret(&[]), false).expect("a");
        let b = parse(&secret(&[("password", "q")]), false).expect("b");
        assert_eq!(digest(&a), digest(&a.clone()));
        assert_ne!(digest(&a), digest(&b));
        assert!(!format!("{a:?}").contains("\"p\""), "{a:?}");
    }
}
