//! Lists everything once: what the watches begin with. For commands, which look once and end.

use std::{fmt::Debug, sync::Arc};

use agent_forge_actors::domain::{
    names::ObjectKey,
    upstream::{MachineFacts, Pausable, PausableKind},
};
use anyhow::Context as _;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Resource,
    api::{DynamicObject, ListParams},
    core::NamespaceResourceScope,
    runtime::watcher::Event,
};
use serde::de::DeserializeOwned;

use super::{
    cache::{Cache, Feed},
    grants, machines, pausables,
    scope::{self, Part},
    trim,
    view::{Caches, NamespaceGrant},
    watches::{self, PAGE},
};

/// Fills the caches, except for the cluster's identity. Returns why a list could not be had: the API server does not
/// answer, does not serve the kind, or refuses. The message names the kind, and what could not be listed is empty.
pub async fn fill(client: &Client, caches: &Caches) -> Vec<anyhow::Error> {
    let parts = caches.scope.parts();
    let all = parts.iter().map(|part| fill_part(client, part, caches));
    let all = join_all(all).await.into_iter().flatten();
    let mut refused: Vec<anyhow::Error> = all.filter_map(Result::err).collect();
    match namespaces(client, caches).await {
        Ok(grants) => {
            let key = |n: &NamespaceGrant| NamespaceGrant::key(&n.name);
            show(&caches.namespaces, &None, grants, key);
        }
        Err(e) => refused.push(e),
    }
    caches.warm();
    refused
}

async fn namespaces(client: &Client, caches: &Caches) -> anyhow::Result<Vec<NamespaceGrant>> {
    Ok(if caches.scope.is_all() {
        let api: Api<Namespace> = Api::all(client.clone());
        let page = async |params| api.list_metadata(&params).await;
        let listed = paged(PAGE, page, trim::metadata).await;
        let listed = listed.with_context(|| about("Namespaces"))?;
        listed.iter().map(NamespaceGrant::of).collect()
    } else {
        let api: Api<Namespace> = Api::all(client.clone());
        let read = caches.scope.names().map(|name| grants::read(&api, name));
        let found = join_all(read).await.into_iter().flatten();
        found.filter_map(|(_, grant)| grant).collect()
    })
}

async fn fill_part(client: &Client, part: &Part, caches: &Caches) -> Vec<anyhow::Result<()>> {
    let of = (client, part);
    let pauses = caches.pausables.iter().map(|(kind, c)| pause(of, *kind, c));
    let (pools, children, agent_machines, agents, infra_envs, machines, mut all) = tokio::join!(
        list(of, &caches.pools, trim::metadata),
        list(of, &caches.children, trim::metadata),
        list(of, &caches.agent_machines, trim::metadata),
        list(of, &caches.agents, trim::agent),
        list(of, &caches.infra_envs, trim::metadata),
        list_machines(of, &caches.machines),
        join_all(pauses),
    );
    all.extend([
        pools,
        children,
        agent_machines,
        agents,
        infra_envs,
        machines,
    ]);
    all
}

fn about(kind: &str) -> String {
    format!(
        "listing {kind} (are its CRDs installed? may this user list them in all namespaces? --namespaces asks for less)"
    )
}

/// Replaces what the cache shows of a part.
pub(crate) fn show<K>(
    cache: &Arc<Cache<K>>,
    part: &Part,
    objects: Vec<K>,
    key: impl Fn(&K) -> ObjectKey,
) {
    let mut feed = Feed::of_lists(cache.clone(), part.clone());
    feed.take(Event::Init, &key);
    for object in objects {
        feed.take(Event::InitApply(object), &key);
    }
    feed.take(Event::InitDone, &key);
}

/// All pages of a list, with `most` objects each. Each page is trimmed before the next one is read.
async fn paged<K: Clone>(
    most: u32,
    page: impl AsyncFn(ListParams) -> kube::Result<kube::core::ObjectList<K>>,
    trim: impl Fn(&mut K),
) -> kube::Result<Vec<K>> {
    let mut params = ListParams::default().limit(most);
    let mut all = Vec::new();
    loop {
        let mut list = page(params.clone()).await?;
        list.items.iter_mut().for_each(&trim);
        all.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

async fn list<K>(
    (client, part): (&Client, &Part),
    cache: &Arc<Cache<K>>,
    trim: impl Fn(&mut K),
) -> anyhow::Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let api = scope::api::<K>(client, part);
    let page = async |params| api.list(&params).await;
    let listed = paged(watches::page::<K>(), page, trim).await;
    let listed = listed.with_context(|| about(&K::plural(&())))?;
    show(cache, part, listed, ObjectKey::of);
    Ok(())
}

async fn list_machines(
    (client, part): (&Client, &Part),
    cache: &Arc<Cache<MachineFacts>>,
) -> anyhow::Result<()> {
    let version = machines::served_version(client).await?;
    let resource = version.api_resource();
    let api: Api<DynamicObject> = match part {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let page = async |params| api.list_metadata(&params).await;
    let listed = paged(PAGE, page, trim::metadata).await;
    let listed = listed.with_context(|| about("machines"))?;
    let facts = listed.iter().map(|m| machines::facts(m, version)).collect();
    show(cache, part, facts, |m| m.key.clone());
    Ok(())
}

/// A kind that is not served has no objects.
async fn pause(
    (client, part): (&Client, &Part),
    kind: PausableKind,
    cache: &Arc<Cache<Pausable>>,
) -> anyhow::Result<()> {
    let served = pausables::served(client, kind).await;
    let facts = match served.with_context(|| about(kind.as_str()))? {
        Some(resource) => {
            let api: Api<DynamicObject> = match part {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            let page = async |params| api.list(&params).await;
            let listed = paged(PAGE, page, trim::metadata).await;
            let listed = listed.with_context(|| about(kind.as_str()))?;
            listed.iter().map(pausables::facts).collect()
        }
        None => Vec::new(),
    };
    show(cache, part, facts, |found| found.key.clone());
    Ok(())
}
