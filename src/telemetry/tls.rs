//! HTTPS of the servers: which certificate they show, and when it is read again.
//!
//! Contract: with a directory, its files are shown, and a change of them within [`READ_AGAIN`], without a restart. A change
//! that cannot be used is logged, and the old certificate stays. Without a directory, each start makes a certificate that
//! signs itself: the connection is encrypted, and clients cannot check who answers.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use anyhow::Context as _;
use rustls::{
    ServerConfig, SupportedProtocolVersion,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use tokio_rustls::TlsAcceptor;

/// How often the files are looked at.
pub const READ_AGAIN: Duration = Duration::from_secs(10);
/// Names in the certificate that signs itself.
const NAMES: [&str; 2] = ["agent-forge", "localhost"];

/// The lowest version of TLS that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum MinVersion {
    /// TLS 1.2.
    #[value(name = "VersionTLS12")]
    Tls12,
    /// TLS 1.3.
    #[value(name = "VersionTLS13")]
    Tls13,
}

impl MinVersion {
    fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        const ALL: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
        match self {
            Self::Tls12 => ALL,
            Self::Tls13 => &ALL[..1],
        }
    }
}

/// Where certificate and key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate, and those that lead to its root.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// The texts of both files.
type Pem = (Vec<u8>, Vec<u8>);

impl Files {
    fn read(&self) -> anyhow::Result<Pem> {
        let read = |path: &PathBuf| fs::read(path).with_context(|| path.display().to_string());
        Ok((read(&self.certificate)?, read(&self.key)?))
    }
}

/// The certificate that is shown now.
#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(
            self.0
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        )
    }
}

/// Accepts HTTPS. With files, a task looks for changes of them until the process ends. As long as they cannot be used, the servers
/// show a certificate that signs itself: machines are served whether metrics can be read or not.
///
/// # Errors
/// No certificate can be made.
pub fn acceptor(files: Option<Files>, lowest: MinVersion) -> anyhow::Result<TlsAcceptor> {
    let shown = match &files {
        Some(files) => {
            let (pem, key) = match first(files) {
                Ok((pem, key)) => (Some(pem), key),
                Err(e) => {
                    tracing::error!(
                        "{e:#}; the servers show a certificate that signs itself until that is mended"
                    );
                    (None, of_itself()?)
                }
            };
            let shown = Arc::new(Shown(RwLock::new(Arc::new(key))));
            tokio::spawn(follow(files.clone(), pem, shown.clone()));
            shown
        }
        None => Arc::new(Shown(RwLock::new(Arc::new(of_itself()?)))),
    };
    let provider = Arc::new(ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(lowest.versions())?
        .with_no_client_auth()
        .with_cert_resolver(shown);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn first(files: &Files) -> anyhow::Result<(Pem, CertifiedKey)> {
    let pem = files.read().context("the certificate of the servers")?;
    let key = certified(&pem).with_context(|| unusable(files))?;
    Ok((pem, key))
}

fn unusable(files: &Files) -> String {
    format!(
        "{} and {} are no certificate with its key, in PEM",
        files.certificate.display(),
        files.key.display()
    )
}

fn certified((certificate, key): &Pem) -> anyhow::Result<CertifiedKey> {
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>()?;
    anyhow::ensure!(!chain.is_empty(), "no certificate");
    let key = PrivateKeyDer::from_pem_slice(key)?;
    let all = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
    Ok(all)
}

fn of_itself() -> anyhow::Result<CertifiedKey> {
    let made = rcgen::generate_simple_self_signed(NAMES.map(str::to_owned))?;
    certified(&(
        made.cert.pem().into(),
        made.signing_key.serialize_pem().into(),
    ))
}

/// Shows each change of the files.
async fn follow(files: Files, mut known: Option<Pem>, shown: Arc<Shown>) {
    loop {
        tokio::time::sleep(READ_AGAIN).await;
        let asked = files.clone();
        let read = tokio::task::spawn_blocking(move || asked.read()).await;
        let Ok(Ok(pem)) = read else {
            // A mounted Secret is replaced in one step, and may be gone for a while.
            continue;
        };
        if known.as_ref() == Some(&pem) {
            continue;
        }
        match certified(&pem) {
            Ok(key) => {
                *shown.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(key);
                tracing::info!(file = %files.certificate.display(), "the servers show a new certificate");
            }
            Err(e) => tracing::error!(
                "{}: {e:#}; the servers go on with the certificate before it",
                unusable(&files)
            ),
        }
        known = Some(pem);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(name: &str) -> Pem {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("made");
        (
            made.cert.pem().into(),
            made.signing_key.serialize_pem().into(),
        )
    }

    fn leaf(shown: &Shown) -> Vec<u8> {
        let key = shown.0.read().expect("one at a time").clone();
        key.cert[0].to_vec()
    }

    #[tokio::test(start_paused = true)]
    async fn a_changed_certificate_is_shown_and_one_that_cannot_be_used_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let files = Files {
            certificate: at("tls.crt"),
            key: at("tls.key"),
        };
        let write = |(certificate, key): &Pem| {
            fs::write(&files.certificate, certificate).expect("written");
            fs::write(&files.key, key).expect("written");
        };
        let (first, second) = (made("first"), made("second"));
        write(&first);
        let key = certified(&first).expect("usable");
        let shown = Arc::new(Shown(RwLock::new(Arc::new(key))));
        let before = leaf(&shown);
        let following = follow(files.clone(), Some(first.clone()), shown.clone());
        let following = tokio::spawn(following);
        // The key of another certificate, and nothing at all.
        write(&(second.0.clone(), first.1.clone()));
        tokio::time::sleep(READ_AGAIN * 3).await;
        assert_eq!(leaf(&shown), before);
        fs::remove_file(&files.key).expect("removed");
        tokio::time::sleep(READ_AGAIN * 3).await;
        assert_eq!(leaf(&shown), before);
        write(&second);
        while leaf(&shown) == before {
            tokio::time::sleep(READ_AGAIN).await;
        }
        following.abort();
    }

    #[tokio::test]
    async fn files_that_cannot_be_used_are_named_at_the_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = Files {
            certificate: folder.path().join("tls.crt"),
            key: folder.path().join("tls.key"),
        };
        let refused = |files: &Files| {
            let made = first(files);
            format!("{:#}", made.expect_err("refused"))
        };
        assert!(refused(&files).contains("tls.crt"), "{}", refused(&files));
        fs::write(&files.certificate, "nonsense").expect("written");
        fs::write(&files.key, "nonsense").expect("written");
        let said = refused(&files);
        assert!(said.contains("tls.key") && said.contains("PEM"), "{said}");
        acceptor(None, MinVersion::Tls13).expect("one that signs itself");
        acceptor(Some(files), MinVersion::Tls12).expect("the same, until they are mended");
    }
}
