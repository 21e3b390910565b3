//! The lab's own certificate authority and key pairs, created for each lab.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A certificate and its private key, both PEM.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// The private key (PKCS #8, ECDSA P-256).
    pub key: String,
}

/// A certificate authority that exists as long as its lab.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new authority with a key of its own.
    ///
    /// # Errors
    /// Key generation or signing failed.
    pub fn new(name: &str) -> Result<Self> {
        let key = KeyPair::generate().context("generate a key")?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate = params
            .self_signed(&key)
            .context("sign the authority's certificate")?
            .pem();
        Ok(Self {
            certificate,
            issuer: Issuer::new(params, key),
        })
    }

    /// Its certificate, PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A serving certificate for the loopback address.
    ///
    /// # Errors
    /// Key generation or signing failed.
    pub fn server(&self, name: &str) -> Result<Pair> {
        let mut params =
            CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])
                .context("name the server certificate")?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// A client certificate. Kubernetes reads the user from the common name and the groups from the organisations.
    ///
    /// # Errors
    /// Key generation or signing failed.
    pub fn client(&self, user: &str, group: &str) -> Result<Pair> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Pair> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().context("generate a key")?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .context("sign a certificate")?
            .pem();
        Ok(Pair {
            certificate,
            key: key.serialize_pem(),
        })
    }
}

/// A key pair for signing tokens: private and public key, both PEM.
///
/// # Errors
/// Key generation failed.
pub fn signing_keys() -> Result<(String, String)> {
    let key = KeyPair::generate().context("generate a key")?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

/// Writes a secret file that only its owner may read.
///
/// # Errors
/// The file cannot be written.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    let mut file = fs::File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("create {}", path.display()))?;
    file.write_all(text.as_bytes())
        .with_context(|| format!("write {}", path.display()))
}
