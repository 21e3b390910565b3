//! Reads the Nodes of hosted clusters, each with a kubeconfig that its owner wrote.
//!
//! Kubeconfig and server are hostile until proven otherwise. [`kubeconfig::judge`] says which fields count. Names are resolved
//! as those of vCenters are, no redirect is followed, and the certificate is checked before anything is sent. Bytes, pages,
//! Nodes and time are bounded, and a Node is trimmed while it is read.

mod list;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use agent_forge_actors::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        kubeconfig::{self, HostedAccess, HostedUser},
        node::NodeFacts,
        server::{ServerRule, server_name},
    },
    ports::{nodes::HostedNodes, vcenter::Trust},
};
use agent_forge_crds::conditions::Reason;
use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use crate::{
    deadline,
    vsphere::{Resolver, tls},
};

/// Largest kubeconfig that is read, in bytes.
const MAX_KUBECONFIG: usize = 256 << 10;
/// How long the connection may take.
const CONNECT: Duration = Duration::from_secs(5);

/// Why there is no list.
#[derive(Debug)]
enum Unlisted {
    /// The server answered as an API server. Its author may read this sentence.
    Told(String),
    /// The cause shows what listens in the network of the operator.
    Network(String),
}

/// Reads Nodes over HTTPS.
pub struct HttpHostedNodes {
    rule: ServerRule,
    /// The author of the kubeconfig reads each cause, also for hosts that the administrator does not name.
    open: bool,
    /// How long one list may take.
    within: Duration,
}

impl HttpHostedNodes {
    /// `rule`: which servers a kubeconfig may name. `open`: each failure is told in full, as for the commands of an
    /// administrator.
    #[must_use]
    pub const fn new(rule: ServerRule, open: bool) -> Self {
        Self {
            rule,
            open,
            within: Duration::from_secs(15),
        }
    }

    fn access(&self, kubeconfig: &SecretString) -> Result<HostedAccess, String> {
        let text = kubeconfig.expose_secret();
        if text.len() > MAX_KUBECONFIG {
            return Err(format!("it is larger than {MAX_KUBECONFIG} bytes"));
        }
        // The parser's own words may repeat a part of the text.
        let config: Value = serde_saphyr::from_str(text)
            .map_err(|_| "it is no YAML, or uses what a kubeconfig does not need".to_owned())?;
        kubeconfig::judge(&config, &self.rule)
    }

    /// Judges a kubeconfig without using it.
    ///
    /// # Errors
    /// `KubeconfigRefused` names the field.
    pub fn judge(&self, kubeconfig: &SecretString) -> Result<(), ReconcileError> {
        self.opened(kubeconfig).map(drop)
    }

    fn opened(
        &self,
        kubeconfig: &SecretString,
    ) -> Result<(HostedAccess, reqwest::Client), ReconcileError> {
        let access = self.access(kubeconfig);
        let opened = access.and_then(|access| {
            let client = client(&access, self.rule.allow_local)?;
            Ok((access, client))
        });
        opened.map_err(|why| {
            let message = format!("the kubeconfig is refused: {why}");
            ReconcileError::blocked(ErrorSource::Kubernetes, Reason::KubeconfigRefused, message)
        })
    }

    /// What people read of that failure.
    fn failed(&self, access: &HostedAccess, failed: Unlisted) -> ReconcileError {
        let server = server_name(&access.server);
        let host = access.server.host_str().unwrap_or_default();
        let message = match failed {
            Unlisted::Network(cause) if !self.open && !self.rule.names(host) => {
                tracing::warn!(
                    server,
                    error = cause,
                    "no Nodes were read; pools do not show the cause, as --allowed-vcenters does not name this host"
                );
                format!(
                    "{server} did not answer as an API server that its certificate authority proves. Ask the operator's \
                     administrator: its log has the cause"
                )
            }
            Unlisted::Network(cause) | Unlisted::Told(cause) => format!("{server}: {cause}"),
        };
        ReconcileError::transient(ErrorSource::Kubernetes, Reason::HostedApiFailed, message)
    }
}

#[async_trait]
impl HostedNodes for HttpHostedNodes {
    async fn nodes(&self, kubeconfig: &SecretString) -> Result<Vec<NodeFacts>, ReconcileError> {
        let (access, client) = self.opened(kubeconfig)?;
        let listed = deadline::within(self.within, list::all(&client, &access.server)).await;
        let listed = listed.unwrap_or_else(|_| {
            let seconds = self.within.as_secs();
            Err(Unlisted::Network(format!(
                "no whole list within {seconds} s"
            )))
        });
        listed.map_err(|failed| self.failed(&access, failed))
    }
}

/// A client with the certificates of the kubeconfig.
///
/// # Errors
/// A sentence that names the field that cannot be used.
fn client(access: &HostedAccess, allow_local: bool) -> Result<reqwest::Client, String> {
    let trust = match &access.authority {
        None => Trust::System,
        Some(data) => {
            let pem = decoded("clusters[].cluster.certificate-authority-data", data)?;
            Trust::CaBundle(pem)
        }
    };
    let (mut identity, mut headers) = (None, HeaderMap::new());
    match &access.user {
        HostedUser::Token(token) => {
            let value = format!("Bearer {}", token.expose_secret());
            let mut value = HeaderValue::try_from(value)
                .map_err(|_| "users[].user.token is no token".to_owned())?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        HostedUser::Certificate(certificate, key) => {
            let certificate = decoded("users[].user.client-certificate-data", certificate)?;
            let key = decoded("users[].user.client-key-data", key.expose_secret())?;
            identity = Some((certificate, SecretString::from(key)));
        }
    }
    let config = tls::client_config_as(&trust, identity.as_ref())?;
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .user_agent(concat!("agent-forge/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .dns_resolver(Arc::new(Resolver::new(&access.server, allow_local)))
        // A redirect could carry the token to another host.
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT);
    builder
        .build()
        .map_err(|_| "no HTTP client can be made of it".to_owned())
}

/// The text in a field with base64.
fn decoded(field: &str, data: &str) -> Result<String, String> {
    let bare: String = data.split_ascii_whitespace().collect();
    let bytes = STANDARD.decode(bare).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| format!("{field} is no PEM in base64"))
}
