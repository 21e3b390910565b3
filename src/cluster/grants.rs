//! Reads what the served Namespaces allow pools of other namespaces, when the operator has only Roles. A Role allows to
//! read the Namespace that it is in, but not to list or watch it.
//!
//! Guarantee: a change is seen within `EVERY` plus the time of one answer. A Namespace that does not exist or may not
//! be read grants nothing. A Namespace that cannot be reached keeps its last known grant.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, runtime::watcher::Event};
use tokio::time::{MissedTickBehavior, interval};

use super::{
    cache::{Cache, Difference, Feed},
    scope::Scope,
    view::NamespaceGrant,
};

/// How often each Namespace is read.
const EVERY: Duration = Duration::from_secs(8);

/// Reads the Namespaces until the task is dropped, and passes each change to `tell`.
pub async fn poll(
    client: Client,
    scope: &Scope,
    cache: Arc<Cache<NamespaceGrant>>,
    tell: impl Fn(Vec<Difference<NamespaceGrant>>),
) {
    let api: Api<Namespace> = Api::all(client);
    let mut feed = Feed::of_lists(cache, None);
    let key = |n: &NamespaceGrant| NamespaceGrant::key(&n.name);
    let mut known = BTreeMap::new();
    let mut beat = interval(EVERY);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let asked = scope.names().map(|name| read(&api, name));
        known.extend(join_all(asked).await.into_iter().flatten());
        // A Namespace that was never read does not count as one without a grant.
        if scope.names().any(|name| !known.contains_key(name)) {
            continue;
        }
        feed.take(Event::Init, key);
        for found in known.values().flatten().cloned() {
            feed.take(Event::InitApply(found), key);
        }
        tell(feed.take(Event::InitDone, key));
    }
}

/// The Namespace's name and what is known of it now. `None` if there is nothing new.
pub(super) async fn read(
    api: &Api<Namespace>,
    name: &str,
) -> Option<(String, Option<NamespaceGrant>)> {
    let found = match api.get_metadata_opt(name).await {
        Ok(found) => found.map(|namespace| NamespaceGrant::of(&namespace)),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            tracing::warn!(
                namespace = name,
                "the operator may not read this Namespace, so pools of other namespaces may use nothing in it: apply \
                 config/overlays/namespaced/served/role.yaml: {}",
                status.message
            );
            None
        }
        Err(e) => {
            tracing::warn!(namespace = name, "reading the Namespace's annotations: {e}");
            return None;
        }
    };
    Some((name.to_owned(), found))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::VecDeque,
        sync::Mutex,
        task::{Context, Poll},
    };

    use agent_forge_crds::names::ALLOW_POOLS_FROM_ANNOTATION;
    use futures::future::{BoxFuture, ready};
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::{sync::mpsc, time::Instant};
    use tower::Service;

    use super::*;

    /// The API server takes annotations of a Namespace from its subresources as well. Secrets have none.
    #[test]
    fn the_policy_guards_each_way_to_write_a_grant() {
        let text = include_str!("../../config/admission/grants.yaml");
        let policy = text
            .split("\n---\n")
            .next()
            .expect("the policy comes first");
        let policy: Value = serde_saphyr::from_str(policy).expect("YAML");
        let rule = &policy["spec"]["matchConstraints"]["resourceRules"][0];
        let guarded = [
            "namespaces",
            "namespaces/status",
            "namespaces/finalize",
            "secrets",
        ];
        assert_eq!(rule["resources"], json!(guarded));
        assert_eq!(rule["operations"], json!(["CREATE", "UPDATE"]));
    }

    /// An API server that gives these answers about one Namespace, one after the other.
    #[derive(Clone)]
    struct Answers(Arc<Mutex<VecDeque<(StatusCode, Value)>>>);

    impl Service<Request<Body>> for Answers {
        type Response = Response<Body>;
        type Error = std::convert::Infallible;
        type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            assert_eq!(request.uri().path(), "/api/v1/namespaces/a");
            let Some((status, body)) = self.0.lock().expect("nobody panics with it").pop_front()
            else {
                return Box::pin(std::future::pending());
            };
            let mut response = Response::new(Body::from(body.to_string().into_bytes()));
            *response.status_mut() = status;
            Box::pin(ready(Ok(response)))
        }
    }

    fn namespace(grant: Option<&str>) -> (StatusCode, Value) {
        let annotations = json!({ ALLOW_POOLS_FROM_ANNOTATION: grant });
        let annotations = if grant.is_some() {
            annotations
        } else {
            json!({})
        };
        let body = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "a", "uid": "u", "annotations": annotations}});
        (StatusCode::OK, body)
    }

    fn refusal(code: u16, reason: &str) -> (StatusCode, Value) {
        let body = json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code});
        (StatusCode::from_u16(code).expect("a status"), body)
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_is_read_every_few_seconds_and_holds_until_something_else_is_known() {
        let answers = [
            (refusal(503, "ServiceUnavailable"), None),
            (namespace(Some("b")), Some(Some("b"))),
            (refusal(503, "ServiceUnavailable"), Some(Some("b"))),
            (namespace(Some("b,c")), Some(Some("b,c"))),
            (refusal(403, "Forbidden"), Some(None)),
            (namespace(Some("*")), Some(Some("*"))),
            (namespace(None), Some(None)),
            (namespace(Some("*")), Some(Some("*"))),
            (refusal(404, "NotFound"), Some(None)),
        ];
        let served = answers.iter().map(|(answer, _)| answer.clone()).collect();
        let client = Client::new(Answers(Arc::new(Mutex::new(served))), "default");
        let cache = Arc::new(Cache::<NamespaceGrant>::of(&[None]));
        let (told, mut heard) = mpsc::unbounded_channel();
        let polled = cache.clone();
        let _polling = tokio::spawn(async move {
            let tell = move |_| {
                let _ = told.send(());
            };
            poll(client, &Scope::of(&["a".to_owned()]), polled, tell).await;
        });
        let begin = Instant::now();
        for (n, (_, known)) in answers.iter().enumerate() {
            let Some(known) = known else {
                assert!(!cache.ready(), "nothing is known yet");
                continue;
            };
            heard.recv().await.expect("it goes on");
            let passed = EVERY * u32::try_from(n).expect("few");
            assert_eq!(begin.elapsed(), passed, "answer {n}");
            let found = cache.get(&NamespaceGrant::key("a"));
            let found = found.and_then(|n| n.grant.clone());
            assert_eq!(found.as_deref(), *known, "answer {n}");
            assert!(cache.ready());
        }
    }
}
