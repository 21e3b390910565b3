//! What a command sees: the operator's caches, filled by one list of each kind.

use std::collections::BTreeSet;

use agent_forge_actors::ports::cluster::View as _;
use anyhow::Context as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt};

use crate::{
    args::Args,
    cluster::{client, lists, scope::Scope, view::Caches},
};

/// What a command sees.
pub struct Sight {
    /// All objects that the operator reads.
    pub caches: Caches,
    /// For what the caches do not have.
    pub client: Client,
}

/// Connects, and says on standard error to which API server.
///
/// # Errors
/// No configuration can be found or used.
pub async fn connect(args: &Args) -> anyhow::Result<Client> {
    let clients = client::connect(args.kubeconfig.as_deref()).await?;
    eprintln!("API server: {}", clients.server);
    Ok(clients.request)
}

impl Sight {
    /// Connects and lists everything once.
    ///
    /// # Errors
    /// The API server cannot be reached, or refuses a list.
    pub async fn read(args: &Args) -> anyhow::Result<Self> {
        Self::with(args, &connect(args).await?).await
    }

    /// Lists everything once.
    ///
    /// # Errors
    /// The API server cannot be reached, or refuses a list.
    pub async fn with(args: &Args, client: &Client) -> anyhow::Result<Self> {
        let (sight, refused) = Self::of_what_is_listed(args, client).await;
        match refused.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(sight),
        }
    }

    /// Lists everything once. What could not be listed is empty, and the errors say why.
    pub async fn of_what_is_listed(args: &Args, client: &Client) -> (Self, Vec<anyhow::Error>) {
        let caches = Caches::bounded(&Scope::of(&args.namespaces), args.scaling.bound());
        let refused = lists::fill(client, &caches).await;
        let id = match &args.cluster_id {
            Some(id) => id.clone(),
            None => match recorded_id(&caches) {
                Some(id) => id,
                None => uid_of_kube_system(client).await.unwrap_or_default(),
            },
        };
        if let Ok(mut slot) = caches.cluster_id.write() {
            *slot = id;
        }
        let client = client.clone();
        (Self { caches, client }, refused)
    }
}

/// The identity that all VsphereAgents have on record. The operator's flag `--cluster-id` is not visible here, and this
/// is what it was.
fn recorded_id(caches: &Caches) -> Option<String> {
    let children = caches.all_children();
    let ids: BTreeSet<&String> = children
        .iter()
        .filter_map(|c| c.status.as_ref()?.cluster_id.as_ref())
        .collect();
    let mut ids = ids.into_iter();
    ids.next().filter(|_| ids.next().is_none()).cloned()
}

async fn uid_of_kube_system(client: &Client) -> anyhow::Result<String> {
    let api: Api<Namespace> = Api::all(client.clone());
    let namespace = api.get("kube-system").await;
    let namespace = namespace.context("reading namespace kube-system for the cluster's id")?;
    namespace.uid().context("namespace kube-system has no uid")
}
