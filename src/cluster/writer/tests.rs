//! Requests that the writer does not even send.

use std::{convert::Infallible, sync::Arc, time::Duration};

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
    let client = Client::new(denies, "default");
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
