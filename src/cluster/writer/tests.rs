//! Requests that the writer does not even send, and lists that it reads in pages.

use std::{convert::Infallible, sync::Arc, time::Duration};

use agent_forge_actors::{
    guard,
    ports::effect::{EffectKind, Subject},
};
use kube::client::Body;

use super::*;
use crate::{gate::OpenGate, telemetry::metrics::Metrics};

/// A writer that serves this namespace, in front of an API server that denies everything.
fn serving(namespace: &str) -> Writer {
    let denies = tower::service_fn(|_: http::Request<Body>| async {
        let status =
            json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403});
        let denied = http::Response::builder().status(403);
        let denied = denied.body(Body::from(status.to_string().into_bytes()));
        Ok::<_, Infallible>(denied.expect("a reply"))
    });
    writer(Client::new(denies, "default"), namespace)
}

fn writer(client: Client, namespace: &str) -> Writer {
    let gate: Arc<dyn Gate> = Arc::new(OpenGate::new(Arc::new(Metrics::new().expect("metrics"))));
    let within = Duration::from_secs(1);
    let events = EventSink::start(client.clone(), Arc::clone(&gate), None, within);
    let scope = Scope::of(&[namespace.to_owned()]);
    Writer::new(client, scope, gate, events, within)
}

#[tokio::test]
async fn what_lies_outside_the_served_namespaces_is_not_looked_at() {
    let writer = serving("served");
    let kinds = async |namespace: &str| {
        let key = ObjectKey::new(namespace, "a");
        let all: AgentFilter = Arc::new(|_| true);
        [
            writer.live_agent(&key).await.map(drop),
            writer.live_agents(namespace, all).await.map(drop),
            writer.live_agent_machine(&key).await.map(drop),
            writer.live_infra_env(&key).await.map(drop),
        ]
        .map(|answer| answer.expect_err("nothing is there").kind)
    };
    assert_eq!(
        kinds("served").await,
        [const { ClusterErrorKind::Forbidden }; 4]
    );
    assert_eq!(
        kinds("other").await,
        [const { ClusterErrorKind::NotServed }; 4]
    );
    let machines = writer.live_machines("other").await.expect_err("not served");
    assert_eq!(machines.kind, ClusterErrorKind::NotServed);
    assert!(machines.message.contains("--namespaces"), "{machines}");
}

/// Whoever may write objects in a namespace must not fill the memory with them.
#[tokio::test]
async fn a_live_list_is_read_in_pages() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&asked);
    let answers = tower::service_fn(move |request: http::Request<Body>| {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let list = |kind: &str, item: Value| {
            let next = if query.contains("continue=") {
                ""
            } else {
                "more"
            };
            json!({"apiVersion": "v1", "kind": kind, "metadata": {"continue": next}, "items": [item]})
        };
        let mac = if query.contains("continue=") {
            "00:50:56:00:00:02"
        } else {
            "00:50:56:00:00:01"
        };
        let body = match path.rsplit('/').next() {
            Some("cluster.x-k8s.io") => json!({"kind": "APIGroup", "name": "cluster.x-k8s.io",
                "versions": [{"groupVersion": "cluster.x-k8s.io/v1beta1", "version": "v1beta1"}]}),
            Some("v1beta1") => {
                json!({"kind": "APIResourceList", "groupVersion": "cluster.x-k8s.io/v1beta1",
                "resources": [{"name": "clusters", "singularName": "", "namespaced": true, "kind": "Cluster", "verbs": []}]})
            }
            Some("clusters") => list(
                "ClusterList",
                json!({"metadata": {"name": mac, "namespace": "served"}}),
            ),
            _ => list(
                "NMStateConfigList",
                json!({"metadata": {"name": mac, "namespace": "served"},
                "spec": {"interfaces": [{"name": "eth0", "macAddress": mac}]}}),
            ),
        };
        if query.contains("limit=") {
            log.lock().expect("the log").push(format!("{path}?{query}"));
        }
        let body = Body::from(body.to_string().into_bytes());
        async move { Ok::<_, Infallible>(http::Response::new(body)) }
    });
    let writer = writer(Client::new(answers, "default"), "served");
    let clusters = writer.live_pausables(PausableKind::Cluster, "served", None);
    assert_eq!(clusters.await.expect("a list").len(), 2);
    let read = |config: &NMStateConfig| vec![(config.name_any(), String::new())];
    let configs = writer.live_network_configs("served", 9, &read);
    assert_eq!(configs.await.expect("a list").len(), 2);
    // Nothing more is kept than that.
    let configs = writer.live_network_configs("served", 0, &read);
    assert_eq!(configs.await.expect("a list").len(), 1);
    let asked = asked.lock().expect("the log").clone();
    assert_eq!(asked.len(), 6, "{asked:#?}");
    assert!(
        asked.iter().all(|a| a.contains(&format!("limit={PAGE}"))),
        "{asked:#?}"
    );
}

type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// An API server that logs query and body of each request, and refuses it.
fn refusing(asked: &Asked) -> Client {
    let log = Arc::clone(asked);
    let refuses = tower::service_fn(move |request: http::Request<Body>| {
        let log = Arc::clone(&log);
        async move {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let body = request.into_body().collect_bytes().await.expect("a body");
            let body = serde_json::from_slice(&body).expect("JSON");
            log.lock().expect("the log").push((query, body));
            // As kube-apiserver 1.36 answers.
            let message = "\"\" is invalid: patch: Invalid value: \"{object}\": strict decoding error: unknown field \"spec.goal\"";
            let status = json!({"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422, "message": message});
            let refused = http::Response::builder().status(422);
            let refused = refused.body(Body::from(status.to_string().into_bytes()));
            Ok::<_, Infallible>(refused.expect("a reply"))
        }
    });
    Client::new(refuses, "default")
}

/// Only the named keys of an Agent change, so what others set stays.
#[tokio::test]
async fn a_patch_of_an_agent_names_single_labels() {
    let asked = Asked::default();
    let writer = writer(refusing(&asked), "served");
    let key = ObjectKey::new("served", "a");
    let effect = Effect::new(
        EffectKind::FenceAgent,
        Subject::Vm {
            key: key.clone(),
            pool: None,
        },
    );
    let set = |value: Option<&str>| [("k".to_owned(), value.map(str::to_owned))].into();
    let patch = AgentPatch {
        key,
        uid: "u".to_owned(),
        resource_version: "7".to_owned(),
        labels: set(None),
        annotations: set(Some("r")),
        approved: Some(false),
        hostname: None,
        role: None,
        node_labels: set(Some("v")),
    };
    let permit = guard::harmless(effect, patch).expect("a permit");
    writer
        .patch_agent(&permit)
        .await
        .expect_err("it is refused");
    let asked = asked.lock().expect("the log").clone();
    let expected = json!({
        "metadata": {
            "labels": {"k": null}, "annotations": {"k": "r"}, "uid": "u", "resourceVersion": "7",
        },
        "spec": {"approved": false, "nodeLabels": {"k": "v"}},
    });
    assert_eq!(asked[0].1, expected);
}

/// An API server whose definition is older would drop the goal, and keep what else the patch takes away.
#[tokio::test]
async fn a_goal_is_written_whole_or_not_at_all() {
    let asked = Asked::default();
    let writer = writer(refusing(&asked), "served");
    let key = ObjectKey::new("served", "a");
    let effect = Effect::new(
        EffectKind::AddFinalizer,
        Subject::Vm {
            key: key.clone(),
            pool: None,
        },
    );
    let at = Precondition {
        key,
        uid: "u".to_owned(),
        resource_version: "7".to_owned(),
    };
    let permit = guard::harmless(effect, at).expect("a permit");
    let goal = Goal {
        before: vec!["am".to_owned()],
        ..Goal::default()
    };
    let patch = OwnPatch {
        labels: [("l".to_owned(), None)].into(),
        goal: Some(goal),
        pool: Some(("q".to_owned(), Vec::new())),
        ..OwnPatch::default()
    };
    let refused = writer.patch_child(&permit, &patch).await;
    let refused = refused.expect_err("nothing is written");
    assert_eq!(refused.kind, ClusterErrorKind::Invalid);
    assert!(refused.message.contains("Apply config/crd"), "{refused}");
    assert!(!refused.message.contains("{object}"), "{refused}");
    let asked = asked.lock().expect("the log").clone();
    let [(query, body)] = asked.as_slice() else {
        panic!("{asked:?}");
    };
    assert!(query.contains("fieldValidation=Strict"), "{query}");
    let expected = json!({
        "metadata": {"labels": {"l": null}, "ownerReferences": [], "uid": "u", "resourceVersion": "7"},
        "spec": {
            "goal": {
                "agentMachine": null, "machine": null, "life": null, "before": ["am"], "pool": null,
            },
            "poolRef": {"name": "q"},
        },
    });
    assert_eq!(*body, expected);
}
