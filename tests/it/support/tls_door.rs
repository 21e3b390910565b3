//! TLS in front of a server without TLS, with a CA of its own.

use std::{net::SocketAddr, sync::Arc};

use agent_forge_lab::parts::certificates::Authority;
use anyhow::{Context as _, Result};
use tokio::{io::copy_bidirectional, net::TcpStream};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

use super::server::listen;

/// The TLS proxy. It ends with the runtime of the test.
pub struct TlsDoor {
    pub address: SocketAddr,
    /// The CA certificate to trust, PEM.
    pub ca: String,
}

impl TlsDoor {
    /// Listens on loopback in front of the server at `behind`, which speaks `protocol` (its ALPN name).
    pub async fn before(behind: SocketAddr, protocol: &str) -> Result<Self> {
        let authority = Authority::new("a CA of its own")?;
        let pair = authority.server("door")?;
        let certificate =
            CertificateDer::from_pem_slice(pair.certificate.as_bytes()).context("a certificate")?;
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).context("a key")?;
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let address = listen(move |stream| {
            let acceptor = acceptor.clone();
            async move {
                // A client that does not trust it disconnects here.
                let Ok(mut inside) = acceptor.accept(stream).await else {
                    return;
                };
                if let Ok(mut server) = TcpStream::connect(behind).await {
                    let _ = copy_bidirectional(&mut inside, &mut server).await;
                }
            }
        });
        Ok(Self {
            address: address.await,
            ca: authority.certificate().to_owned(),
        })
    }
}
