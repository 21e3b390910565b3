//! What a command sees: the operator's caches, filled by one list of each kind.

use std::collections::BTreeSet;

use agent_forge_actors::{domain::names::ObjectKey, ports::cluster::View as _};
use agent_forge_crds::VsphereAgentPool;
use anyhow::Context as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt, api::ListParams};

use super::{Place, running};
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
    /// What this user may not list, a sentence each.
    pub unseen: Vec<String>,
}

/// Connects, and says on standard error to which API server. The arguments come back with the flags of the operator that runs
/// there ([`running`]).
///
/// # Errors
/// No configuration can be found or used, or it is open whose flags count.
pub async fn connect(args: &Args) -> anyhow::Result<(Client, Args)> {
    let clients = client::connect(&args.target).await?;
    eprintln!("API server: {}", clients.server);
    let args = running::settle(args, &clients.request).await?;
    Ok((clients.request, args))
}

impl Sight {
    /// Lists once what this user may see. What it may not is empty, and named in `unseen`.
    ///
    /// A user who may not list the pools of all namespaces sees those of `place`, and of the namespaces that they name.
    ///
    /// # Errors
    /// The API server cannot be reached, or this user may not list the pools.
    pub async fn permitted(args: &Args, client: &Client, place: &Place) -> anyhow::Result<Self> {
        let mut args = args.clone();
        if let (true, Some(namespace)) = (Scope::of(&args.namespaces).is_all(), &place.namespace) {
            args.namespaces = narrowed(client, namespace).await?;
        }
        let (mut sight, refused) = Self::of_what_is_listed(&args, client).await;
        let (unseen, failed): (Vec<_>, Vec<_>) = refused.into_iter().partition(is_forbidden);
        if let Some(error) = failed.into_iter().next() {
            return Err(error);
        }
        // The rest of the chain repeats the request.
        let line = |error: anyhow::Error| format!("not seen, and taken for empty: {error}");
        sight.unseen = unseen.into_iter().map(line).collect();
        Ok(sight)
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
        let scope = Scope::of(&args.namespaces);
        let caches = Caches::bounded(&scope, args.scaling.bound());
        let mut refused = lists::fill(client, &caches).await;
        let id = match args.cluster_id.clone().or_else(|| recorded_id(&caches)) {
            Some(id) => id,
            None => {
                let home = args.home(client);
                let read = uid_of(client, scope.identity(&home)).await;
                read.unwrap_or_else(|e| {
                    refused.push(e);
                    String::new()
                })
            }
        };
        if let Ok(mut slot) = caches.cluster_id.write() {
            *slot = id;
        }
        let client = client.clone();
        let unseen = Vec::new();
        (
            Self {
                caches,
                client,
                unseen,
            },
            refused,
        )
    }
}

impl Sight {
    /// Names on standard error what this user may not list.
    pub fn tell_unseen(&self) {
        self.unseen.iter().for_each(|line| eprintln!("{line}"));
    }
}

/// The pool of that name.
///
/// # Errors
/// There is none, or there are several.
pub fn pool(caches: &Caches, namespace: Option<&str>, name: &str) -> anyhow::Result<ObjectKey> {
    let pools = caches.pools().into_iter();
    let keys = pools.map(|p| ObjectKey::of(p.as_ref()));
    let named = keys.filter(|k| k.name == name && namespace.is_none_or(|n| k.namespace == n));
    let found: Vec<ObjectKey> = named.collect();
    match &found[..] {
        [one] => Ok(one.clone()),
        [] => anyhow::bail!("there is no VsphereAgentPool {name}"),
        _ => {
            anyhow::bail!("VsphereAgentPool {name} exists in several namespaces; add -n NAMESPACE")
        }
    }
}

fn is_forbidden(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref());
    causes.any(|cause| matches!(cause, kube::Error::Api(status) if status.code == 403))
}

/// The namespaces to look at if this user may not list all pools: this one, and those that its pools name. Empty: all.
async fn narrowed(client: &Client, namespace: &str) -> anyhow::Result<Vec<String>> {
    let all: Api<VsphereAgentPool> = Api::all(client.clone());
    match all.list_metadata(&ListParams::default().limit(1)).await {
        Err(kube::Error::Api(status)) if status.code == 403 => {}
        _ => return Ok(Vec::new()),
    }
    let pools: Api<VsphereAgentPool> = Api::namespaced(client.clone(), namespace);
    let pools = pools.list(&ListParams::default()).await;
    let pools = pools.with_context(|| format!("listing the pools of namespace {namespace}"))?;
    let mut places = BTreeSet::from([namespace.to_owned()]);
    for pool in pools {
        places.insert(pool.control_plane().to_owned());
        places.extend(pool.spec.infra_env_ref.namespace);
    }
    Ok(places.into_iter().filter(|name| !name.is_empty()).collect())
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

/// The cluster's id.
async fn uid_of(client: &Client, namespace: &str) -> anyhow::Result<String> {
    let api: Api<Namespace> = Api::all(client.clone());
    let read = api.get(namespace).await;
    let read = read.with_context(|| {
        format!("reading namespace {namespace} for the cluster's id; --cluster-id says it, too")
    })?;
    read.uid()
        .with_context(|| format!("namespace {namespace} has no uid"))
}
