//! Sends spans over HTTP. The exporter's thread has no runtime, so the requests run on the operator's runtime.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use tokio::runtime::Handle;

/// Time limit of one export. A shorter `OTEL_EXPORTER_OTLP_TIMEOUT` takes effect first.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The client.
#[derive(Debug)]
pub struct OtlpClient {
    runtime: Handle,
    client: reqwest::Client,
}

impl OtlpClient {
    /// A client whose requests run on the current runtime. With `ca_pem` it trusts those certificates, else the
    /// system's.
    ///
    /// # Errors
    /// TLS cannot be set up, or the certificates cannot be used.
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
