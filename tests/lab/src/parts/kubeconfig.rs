//! How a user reaches the lab's API server.

use std::path::Path;

use anyhow::{Context as _, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster,
    NamedContext,
};
use kube::{Client, Config};

use super::certificates::{Pair, write_private};

/// Address and CA of an API server.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// `https://127.0.0.1:<port>`.
    pub url: String,
    /// Certificate of the authority that signed the server's certificate, PEM.
    pub authority: String,
}

/// How a user authenticates.
#[derive(Clone, Debug)]
pub enum Credential {
    /// A client certificate.
    Certificate(Pair),
    /// A bearer token.
    Token(String),
}

/// A kubeconfig for `user` with everything inline, and with `namespace` as default namespace.
pub fn kubeconfig(
    endpoint: &Endpoint,
    user: &str,
    credential: &Credential,
    namespace: &str,
) -> Kubeconfig {
    let mut auth = AuthInfo::default();
    match credential {
        Credential::Certificate(pair) => {
            auth.client_certificate_data = Some(STANDARD.encode(&pair.certificate));
            auth.client_key_data = Some(STANDARD.encode(&pair.key).into());
        }
        Credential::Token(token) => auth.token = Some(token.clone().into()),
    }
    let cluster = Cluster {
        server: Some(endpoint.url.clone()),
        certificate_authority_data: Some(STANDARD.encode(&endpoint.authority)),
        ..Cluster::default()
    };
    let context = Context {
        cluster: "lab".into(),
        user: Some(user.into()),
        namespace: Some(namespace.into()),
        ..Context::default()
    };
    Kubeconfig {
        api_version: Some("v1".into()),
        kind: Some("Config".into()),
        clusters: vec![NamedCluster {
            name: "lab".into(),
            cluster: Some(cluster),
            ..NamedCluster::default()
        }],
        auth_infos: vec![NamedAuthInfo {
            name: user.into(),
            auth_info: Some(auth),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: "lab".into(),
            context: Some(context),
            ..NamedContext::default()
        }],
        current_context: Some("lab".into()),
        ..Kubeconfig::default()
    }
}

/// Writes a kubeconfig that only its owner may read.
///
/// # Errors
/// The file cannot be written.
pub fn write(kubeconfig: &Kubeconfig, path: &Path) -> Result<()> {
    let text = serde_saphyr::to_string(kubeconfig).context("write a kubeconfig as YAML")?;
    write_private(path, &text)
}

/// Client settings from a kubeconfig.
///
/// # Errors
/// The content of the kubeconfig is not consistent.
pub async fn config(kubeconfig: Kubeconfig) -> Result<Config> {
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .context("read the lab's kubeconfig")
}

/// A client that belongs to the async runtime of the caller.
///
/// # Errors
/// The settings cannot be used (keys, certificates).
pub fn client(config: &Config) -> Result<Client> {
    Client::try_from(config.clone()).context("make a Kubernetes client")
}
