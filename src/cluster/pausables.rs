//! Follows Clusters, NodePools and HostedClusters. Only what pauses them is kept.
//!
//! A management cluster may not serve these kinds. A kind that is not served has no objects, and is looked for again from
//! time to time. Only an answer of discovery counts as "not served": after any other failure nothing is known.

use std::{sync::Arc, time::Duration};

use agent_forge_actors::{
    domain::{
        names::ObjectKey,
        upstream::{Pausable, PausableKind},
    },
    supervisor::routing::Change,
};
use agent_forge_crds::external::{agent_machine::PAUSED_ANNOTATION, machine};
use futures::{StreamExt as _, pin_mut};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};

use super::{
    cache::{Cache, Feed},
    scope::Part,
    watches::{NOT_SERVED, PAGE, Seen, is_not_served, map, report},
};

/// Pause before a kind that is not served is looked for again.
const LATER: Duration = Duration::from_secs(60);

/// Group, versions (the newest first) and plural name of a kind.
const fn api(kind: PausableKind) -> (&'static str, &'static [&'static str], &'static str) {
    const HYPERSHIFT: &str = "hypershift.openshift.io";
    match kind {
        PausableKind::Cluster => (machine::GROUP, &["v1beta2", "v1beta1"], "clusters"),
        PausableKind::NodePool => (HYPERSHIFT, &["v1beta1"], "nodepools"),
        PausableKind::HostedCluster => (HYPERSHIFT, &["v1beta1"], "hostedclusters"),
    }
}

/// The newest version that discovery reports; `None` if the kind is not served.
pub(super) async fn served(
    client: &Client,
    kind: PausableKind,
) -> kube::Result<Option<ApiResource>> {
    let (group, versions, plural) = api(kind);
    for version in versions {
        let listed = client
            .list_api_group_resources(&format!("{group}/{version}"))
            .await;
        match listed {
            Ok(list) if list.resources.iter().any(|r| r.name == plural) => {
                let gvk = GroupVersionKind::gvk(group, version, kind.as_str());
                return Ok(Some(ApiResource::from_gvk_with_plural(&gvk, plural)));
            }
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

/// What is kept of such an object.
pub(super) fn facts(object: &DynamicObject) -> Pausable {
    let spec = &object.data["spec"];
    let text = |key: &str| spec[key].as_str().map(str::to_owned);
    Pausable {
        key: ObjectKey::of(object),
        cluster: text("clusterName"),
        annotated: object.annotations().contains_key(PAUSED_ANNOTATION),
        paused: spec["paused"].as_bool() == Some(true),
        paused_until: text("pausedUntil"),
    }
}

/// Follows one kind until the task is dropped.
pub async fn follow(
    (client, part): (&Client, &Part),
    kind: PausableKind,
    cache: &Arc<Cache<Pausable>>,
    tell: &impl Fn(Change),
) {
    let changed = |key, old: Seen<'_, Pausable>, new: Seen<'_, Pausable>| {
        (old != new).then_some(Change::Pausable(kind, key))
    };
    let key = |found: &Pausable| found.key.clone();
    loop {
        let pause = match served(client, kind).await {
            Ok(Some(resource)) => {
                let feed = Feed::new(cache.clone(), part.clone());
                follow_version((client, part), &resource, feed, |differences| {
                    report(differences, &changed, tell);
                })
                .await;
                NOT_SERVED
            }
            Ok(None) => {
                let mut feed = Feed::of_lists(cache.clone(), part.clone());
                feed.take(Event::Init, key);
                report(feed.take(Event::InitDone, key), &changed, tell);
                LATER
            }
            Err(e) => {
                tracing::warn!(kind = kind.as_str(), "discovery: {e}");
                NOT_SERVED
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Ends when that version is no longer served.
async fn follow_version(
    (client, part): (&Client, &Part),
    resource: &ApiResource,
    mut feed: Feed<Pausable>,
    told: impl Fn(Vec<super::cache::Difference<Pausable>>),
) {
    let client = client.clone();
    let api: Api<DynamicObject> = match part {
        Some(namespace) => Api::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    };
    let paged = watcher::Config::default().page_size(PAGE);
    let stream = watcher::watcher(api, paged).default_backoff();
    pin_mut!(stream);
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => {
                let event = map(event, |object| facts(&object));
                told(feed.take(event, |found| found.key.clone()));
            }
            Err(e) => {
                tracing::warn!(kind = resource.kind, "watch: {e}");
                if is_not_served(&e) {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_pauses_an_object_is_kept() {
        let object = |spec, annotations| -> DynamicObject {
            let object = json!({
                "apiVersion": "a/v1", "kind": "B", "spec": spec,
                "metadata": {"name": "n", "namespace": "ns", "annotations": annotations},
            });
            serde_json::from_value(object).expect("an object")
        };
        let nothing = Pausable {
            key: ObjectKey::new("ns", "n"),
            cluster: None,
            annotated: false,
            paused: false,
            paused_until: None,
        };
        for (spec, annotations, expected) in [
            (json!({"replicas": 1}), json!({}), nothing.clone()),
            (json!({"paused": "true"}), json!({}), nothing.clone()),
            (
                json!({"paused": true}),
                json!({}),
                Pausable {
                    paused: true,
                    ..nothing.clone()
                },
            ),
            (
                json!(null),
                json!({PAUSED_ANNOTATION: ""}),
                Pausable {
                    annotated: true,
                    ..nothing.clone()
                },
            ),
            (
                json!({"clusterName": "c", "pausedUntil": "true"}),
                json!({}),
                Pausable {
                    cluster: Some("c".to_owned()),
                    paused_until: Some("true".to_owned()),
                    ..nothing.clone()
                },
            ),
        ] {
            let what = format!("{spec} {annotations}");
            assert_eq!(facts(&object(spec, annotations)), expected, "{what}");
        }
    }
}
