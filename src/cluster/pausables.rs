//! Follows Clusters, NodePools and HostedClusters. Only what pauses them is kept.
//!
//! A management cluster may not serve these kinds. A kind that is not served has no objects, and is looked for again from
//! time to time. Only an answer of discovery counts as "not served": after any other failure nothing is known. Nor is
//! anything known of a kind that is served in unknown versions only: it may pause, so that is an error.

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
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    error::DiscoveryError,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event},
    },
};

use super::{
    cache::{Cache, Feed},
    scope::Part,
    watches::{NOT_SERVED, PAGE, Shown, is_not_served, map, report, until_refilled},
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

/// The newest known version that discovery reports; `None` if the kind is not served.
///
/// # Errors
/// Discovery does not answer, or the kind is served in unknown versions only.
pub(super) async fn served(
    client: &Client,
    kind: PausableKind,
) -> kube::Result<Option<ApiResource>> {
    let (group, known, plural) = api(kind);
    let mut served = versions(client, group).await?;
    // The newest known one first, unknown ones last.
    served.sort_by_key(|version| {
        known
            .iter()
            .position(|k| k == version)
            .unwrap_or(known.len())
    });
    for version in served {
        let listed = client
            .list_api_group_resources(&format!("{group}/{version}"))
            .await;
        match listed {
            Ok(list) if list.resources.iter().any(|r| r.name == plural) => {
                if known.contains(&version.as_str()) {
                    let gvk = GroupVersionKind::gvk(group, &version, kind.as_str());
                    return Ok(Some(ApiResource::from_gvk_with_plural(&gvk, plural)));
                }
                return Err(unknown(kind, &version));
            }
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

/// The kind is served in this version, and in no known one.
fn unknown(kind: PausableKind, version: &str) -> kube::Error {
    let (group, known, plural) = api(kind);
    let known = known.join(", ");
    let why =
        format!("{plural} of {group} are served in {version} only, and this release knows {known}");
    kube::Error::Discovery(DiscoveryError::MissingResource(why))
}

/// The versions in which the API server serves the group.
#[expect(
    clippy::disallowed_methods,
    reason = "a GET: the client has no method for one group"
)]
async fn versions(client: &Client, group: &str) -> kube::Result<Vec<String>> {
    let request = Request::get(format!("/apis/{group}")).body(Vec::new());
    let request = request.map_err(kube::Error::HttpError)?;
    match client.request::<APIGroup>(request).await {
        Ok(found) => Ok(found.versions.into_iter().map(|v| v.version).collect()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(e) => Err(e),
    }
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
    let changed = |key, old: Shown<'_, Pausable>, new: Shown<'_, Pausable>| {
        (old != new).then_some(Change::Pausable(kind, key))
    };
    let key = |found: &Pausable| found.key.clone();
    loop {
        let pause = match served(client, kind).await {
            Ok(Some(resource)) => {
                follow_version((client, part), &resource, cache, |differences| {
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

/// Ends when that version is no longer served, or is to be listed again.
async fn follow_version(
    (client, part): (&Client, &Part),
    resource: &ApiResource,
    cache: &Arc<Cache<Pausable>>,
    told: impl Fn(Vec<super::cache::Difference<Pausable>>),
) {
    let client = client.clone();
    let api: Api<DynamicObject> = match part {
        Some(namespace) => Api::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    };
    let paged = watcher::Config::default().page_size(PAGE);
    let stream = watcher::watcher(api, paged).default_backoff();
    let mut feed = Feed::new(cache.clone(), part.clone());
    let stream = until_refilled(stream, cache, part);
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
    use std::convert::Infallible;

    use http::{Response, StatusCode};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// An API server that serves NodePools in these versions of the group, and other kinds in `v1alpha1`.
    fn serving(versions: &'static [&'static str]) -> Client {
        let answer = |path: &str| -> Option<Value> {
            let group = "hypershift.openshift.io";
            let all = || versions.iter().chain(&["v1alpha1"]);
            if path == format!("/apis/{group}") {
                let version =
                    |v: &&str| json!({"groupVersion": format!("{group}/{v}"), "version": v});
                let versions: Vec<Value> = all().map(version).collect();
                return Some(json!({"kind": "APIGroup", "name": group, "versions": versions}));
            }
            let version = path.strip_prefix(&format!("/apis/{group}/"))?;
            all().find(|v| **v == version)?;
            let resource = |name: &str| json!({"name": name, "singularName": "", "namespaced": true, "kind": "K", "verbs": []});
            let kinds = if versions.contains(&version) {
                "nodepools"
            } else {
                "others"
            };
            Some(json!({
                "kind": "APIResourceList", "groupVersion": format!("{group}/{version}"), "resources": [resource(kinds)],
            }))
        };
        let service = tower::service_fn(move |request: Request<Body>| {
            let found = answer(request.uri().path());
            let status = if found.is_some() {
                StatusCode::OK
            } else {
                StatusCode::NOT_FOUND
            };
            let missing = || json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
            let body = found.unwrap_or_else(missing).to_string();
            let mut response = Response::new(Body::from(body.into_bytes()));
            *response.status_mut() = status;
            async move { Ok::<_, Infallible>(response) }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_kind_that_is_served_in_unknown_versions_only_is_no_kind_without_pauses() {
        let asked = async |versions| served(&serving(versions), PausableKind::NodePool).await;
        let known = asked(&["v1", "v1beta1"]).await.expect("discovery answers");
        assert_eq!(known.map(|r| r.version), Some("v1beta1".to_owned()));
        let none = asked(&[]).await.expect("discovery answers");
        assert_eq!(none.map(|r| r.version), None, "the kind is not served");
        let error = asked(&["v1"])
            .await
            .expect_err("nothing is known")
            .to_string();
        for word in [
            "nodepools",
            "served in v1 only",
            "this release knows v1beta1",
        ] {
            assert!(error.contains(word), "{word}: {error}");
        }
    }

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
