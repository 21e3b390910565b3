//! How spans travel over HTTP: the exporter's thread has no runtime of its own, so requests run on the operator's.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use tokio::runtime::Handle;

/// Bound of one export; the exporter's own comes first where `OTEL_EXPORTER_OTLP_TIMEOUT` says less.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The client.
#[derive(Debug)]
pub struct OtlpClient {
    runtime: Handle,
    client: reqwest::Client,
}

impl OtlpClient {
    /// A client whose requests run on the current runtime. With `ca_pem` it trusts those certificates, else the system's.
    ///
    /// # Errors
    /// No TLS set-up, or certificates that are not usable.
    pub fn new(ca_pem: Option<&str>) -> reqwest::Result<Self> {
        let mut builder = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        if let Some(pem) = ca_pem {
            builder =
                builder.tls_certs_only(reqwest::Certificate::from_pem_bundle(pem.as_bytes())?);
        }
        let client = builder.build()?;
        Ok(Self {
            runtime: Handle::current(),
            client,
        })
    }
}

#[async_trait]
impl HttpClient for OtlpClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move {
            let reply = client.execute(request.try_into()?).await?;
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = reply.status();
            *response.headers_mut() = reply.headers().clone();
            *response.body_mut() = reply.bytes().await?;
            Ok::<_, HttpError>(response)
        });
        sent.await?
    }
}
