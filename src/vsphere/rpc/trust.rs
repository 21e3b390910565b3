//! Checks a vCenter's certificate. The check is part of the TLS handshake, so no header and no credential reaches a
//! server that fails it.

use std::{error::Error, sync::Arc};

use agent_forge_actors::ports::vcenter::Trust;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest, Sha256};

/// TLS settings for these trust settings.
///
/// # Errors
/// A sentence for people: no usable certificate in the bundle, no roots on this system.
pub(crate) fn client_config(trust: &Trust) -> Result<ClientConfig, String> {
    client_config_as(trust, None)
}

/// The same for a client with a certificate and a key of its own, in PEM.
///
/// # Errors
/// As [`client_config`], or they cannot be used.
pub(crate) fn client_config_as(
    trust: &Trust,
    identity: Option<&(String, SecretString)>,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::System => Arc::new(
            rustls_platform_verifier::Verifier::new(Arc::clone(&provider)).map_err(|e| {
                format!(
                    "this system has no usable root certificates ({e}); set caBundle or thumbprint"
                )
            })?,
        ),
        Trust::CaBundle(pem) => Arc::new(Bundle::new(pem, &provider)?),
        Trust::Thumbprint(digest) => Arc::new(Fixed {
            provider: Arc::clone(&provider),
            thumbprint: Some(*digest),
        }),
        Trust::Insecure => Arc::new(Fixed {
            provider: Arc::clone(&provider),
            thumbprint: None,
        }),
    };
    config(provider, verifier, identity)
}

fn config(
    provider: Arc<CryptoProvider>,
    verifier: Arc<dyn ServerCertVerifier>,
    identity: Option<&(String, SecretString)>,
) -> Result<ClientConfig, String> {
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let Some((chain, key)) = identity else {
        return Ok(config.with_no_client_auth());
    };
    let unusable = || "the client certificate or its key cannot be used".to_owned();
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes());
    let (chain, key) = (chain.map_err(|_| unusable())?, key.map_err(|_| unusable())?);
    config
        .with_client_auth_cert(chain, key)
        .map_err(|_| unusable())
}

/// TLS settings with the system's roots and, if given, the certificates of a PEM bundle.
///
/// # Errors
/// A sentence for people.
pub(crate) fn system_and(extra_pem: Option<&str>) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let extra = extra_pem.map(certificates).transpose()?.unwrap_or_default();
    let only_extra = extra.clone();
    let verifier: Arc<dyn ServerCertVerifier> =
        match rustls_platform_verifier::Verifier::new_with_extra_roots(extra, Arc::clone(&provider))
        {
            Ok(verifier) => Arc::new(verifier),
            // An image without roots: use the bundle alone.
            Err(_) if !only_extra.is_empty() => Arc::new(Bundle::of(only_extra, &provider)?),
            Err(e) => return Err(format!("this system has no usable root certificates ({e})")),
        };
    config(provider, verifier, None)
}

/// The text of the refusal, if a refused certificate caused this error.
pub(crate) fn refusal(error: &(dyn Error + 'static)) -> Option<String> {
    let mut current = Some(error);
    while let Some(e) = current {
        if let Some(tls) = unwrapped(e) {
            return match tls {
                rustls::Error::InvalidCertificate(why) => Some(why.to_string()),
                rustls::Error::NoCertificatesPresented => {
                    Some("no certificate presented".to_owned())
                }
                rustls::Error::General(why) if why.starts_with(MISMATCH) => Some(why.clone()),
                _ => None,
            };
        }
        current = e.source();
    }
    None
}

/// The TLS error in this error, also when I/O errors wrap it several times. `source` does not show the content of an
/// I/O error.
fn unwrapped<'a>(mut error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    loop {
        if let Some(tls) = error.downcast_ref::<rustls::Error>() {
            return Some(tls);
        }
        error = error.downcast_ref::<std::io::Error>()?.get_ref()?;
    }
}

const MISMATCH: &str = "thumbprint mismatch";

/// The certificates of a PEM bundle. An unusable one is left out with a warning. The others still count, and a server
/// that needs it is refused.
///
/// # Errors
/// No certificate is usable.
fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let (mut usable, mut unusable) = (Vec::new(), Vec::new());
    for (number, section) in (1..).zip(sections(pem)) {
        for read in CertificateDer::pem_slice_iter(section.as_bytes()) {
            let checked = read.map_err(|e| e.to_string()).and_then(|certificate| {
                let mut roots = RootCertStore::empty();
                let added = roots.add(certificate.clone());
                added.map(|()| certificate).map_err(|e| e.to_string())
            });
            match checked {
                Ok(certificate) => usable.push(certificate),
                Err(why) => unusable.push((number, why)),
            }
        }
    }
    if usable.is_empty() {
        return Err(match unusable.first() {
            Some((_, why)) => format!("the certificate bundle holds no usable certificate: {why}"),
            None => "the certificate bundle holds no certificate".to_owned(),
        });
    }
    for (number, why) in unusable {
        tracing::warn!(
            number,
            "section {number} of a certificate bundle is left out, the others count: {why}"
        );
    }
    Ok(usable)
}

/// The sections of a PEM text, one by one, so that a broken one does not spoil the others.
fn sections(pem: &str) -> impl Iterator<Item = &str> {
    let starts: Vec<usize> = pem.match_indices("-----BEGIN ").map(|(at, _)| at).collect();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([pem.len()]).collect();
    starts
        .into_iter()
        .zip(ends)
        .filter_map(|(from, to)| pem.get(from..to))
}

/// Trusts what the bundle's authorities signed, and the bundle's certificates themselves: people paste the server's own
/// self-signed certificate there. It checks the host name in both cases.
#[derive(Debug)]
struct Bundle {
    inner: Arc<WebPkiServerVerifier>,
    exact: Vec<CertificateDer<'static>>,
}

impl Bundle {
    fn new(pem: &str, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        Self::of(certificates(pem)?, provider)
    }

    fn of(
        exact: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in &exact {
            roots
                .add(certificate.clone())
                .map_err(|e| format!("a certificate of the bundle is not usable: {e}"))?;
        }
        let inner =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                .build()
                .map_err(|e| e.to_string())?;
        Ok(Self { inner, exact })
    }
}

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let checked = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        if checked.is_err() && self.exact.iter().any(|c| c == end_entity) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        checked
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.inner.root_hint_subjects()
    }
}

/// Trusts one certificate by its digest, or any certificate if there is no digest. The peer must still prove that it
/// has the key.
#[derive(Debug)]
struct Fixed {
    provider: Arc<CryptoProvider>,
    thumbprint: Option<[u8; 32]>,
}

impl ServerCertVerifier for Fixed {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(wanted) = self.thumbprint else {
            return Ok(ServerCertVerified::assertion());
        };
        let seen: [u8; 32] = Sha256::digest(end_entity).into();
        if seen == wanted {
            return Ok(ServerCertVerified::assertion());
        }
        // The digest of a certificate is public. People can compare it.
        Err(rustls::Error::General(format!(
            "{MISMATCH}: the server's certificate has SHA-256 {}",
            hex::encode_upper(seen)
        )))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::telemetry::told::Lines;

    fn certificate() -> String {
        let issued = rcgen::generate_simple_self_signed(["vc.example".to_owned()]);
        issued.expect("a certificate").cert.pem()
    }

    #[test]
    fn an_unusable_certificate_of_a_bundle_is_left_out_and_the_others_count() {
        let (one, two) = (certificate(), certificate());
        let whole = certificates(&format!("{one}{two}")).expect("two");
        assert_eq!(whole.len(), 2);
        let truncated = one.lines().take(3).collect::<Vec<_>>().join("\n") + "\n";
        for broken in [
            "-----BEGIN CERTIFICATE-----\n!not base64!\n-----END CERTIFICATE-----\n",
            "-----BEGIN CERTIFICATE-----\nbm90IGEgY2VydGlmaWNhdGU=\n-----END CERTIFICATE-----\n",
            "-----BEGIN CERTIFICATE---\n",
            &truncated,
        ] {
            for bundle in [
                format!("{broken}{one}# a comment\n{two}"),
                format!("{one}{broken}{two}"),
                format!("{one}{two}{broken}"),
            ] {
                let told = Lines::default();
                let here = told.here();
                assert_eq!(certificates(&bundle).as_ref(), Ok(&whole), "{bundle}");
                assert!(client_config(&Trust::CaBundle(bundle)).is_ok());
                drop(here);
                let told = told.all();
                let warned = told.iter().filter(|line| line["level"] == "WARN").count();
                assert!(warned > 0, "{told:?}");
            }
            let nothing = certificates(broken).expect_err("nothing is left");
            assert!(nothing.contains("no usable certificate"), "{nothing}");
        }
    }

    #[test]
    fn a_refusal_is_found_however_deep_it_lies() {
        let refused = || rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let once = io::Error::new(io::ErrorKind::InvalidData, refused());
        let twice = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, refused()));
        for error in [&refused() as &(dyn Error + 'static), &once, &twice] {
            assert_eq!(
                refusal(error).as_deref(),
                Some("UnknownIssuer"),
                "{error:?}"
            );
        }
        let reset = io::Error::other(io::Error::from(io::ErrorKind::ConnectionReset));
        assert_eq!(refusal(&reset), None);
    }
}
