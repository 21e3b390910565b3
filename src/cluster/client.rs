//! Two clients: one for watches, which live long, one for requests, which are bounded in time.

use std::{path::Path, time::Duration};

use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::called::Called;

/// Bound of one request, connection included.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The clients.
#[derive(Clone)]
pub struct Clients {
    /// For watches.
    pub watch: Client,
    /// For single requests.
    pub request: Client,
}

/// Connects by the given kubeconfig, else by `KUBECONFIG` or `~/.kube/config`, else by the Pod's ServiceAccount.
///
/// # Errors
/// No configuration can be found or used; the message says which one.
pub async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<Clients> {
    use anyhow::Context;
    let mut config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("reading kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("using kubeconfig {}", path.display()))?
        }
        None => Config::infer().await.context(
            "no way to the API server: set KUBECONFIG, pass --kubeconfig, or run as a Pod with a ServiceAccount",
        )?,
    };
    config.connect_timeout = Some(Duration::from_secs(10));
    let watch = Client::try_from(config.clone()).context("building the watch client")?;
    config.read_timeout = Some(REQUEST_TIMEOUT);
    config.write_timeout = Some(REQUEST_TIMEOUT);
    let called = Called::at(&config.cluster_url);
    let request = ClientBuilder::try_from(config)
        .context("building the request client")?
        .with_layer(&called)
        .build();
    Ok(Clients { watch, request })
}
