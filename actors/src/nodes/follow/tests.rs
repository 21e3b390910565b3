use std::collections::BTreeMap;

use agent_forge_crds::pool::{KubeconfigSecretRef, NodeCheckSpec};

use super::*;
use crate::{
    testing::{self, NAMESPACE, POOL, nodes::Hosted, with},
    vm::testing::hub::Hub,
};

fn asking(namespace: Option<&str>) -> VsphereAgentPool {
    with(testing::pool(POOL), |p| {
        p.spec.node_check = Some(NodeCheckSpec {
            kubeconfig_secret_ref: KubeconfigSecretRef {
                name: "nodes".to_owned(),
                namespace: namespace.map(str::to_owned),
                key: None,
            },
        });
    })
}

fn source(namespace: Option<&str>) -> Source {
    let found = Source::of(&asking(namespace), &[]).expect("allowed");
    found.expect("a source")
}

fn secret(text: &str, pools_from: Option<&str>) -> SecretRead {
    SecretRead {
        pools_from: pools_from.map(str::to_owned),
        data: BTreeMap::from([("kubeconfig".to_owned(), text.to_owned().into())]),
        ..SecretRead::default()
    }
}

fn named(name: &str) -> NodeFacts {
    NodeFacts {
        name: name.to_owned(),
        ..NodeFacts::default()
    }
}

/// A hub with that Secret, and a hosted cluster.
fn world(found: SecretRead) -> (Arc<Hub>, Arc<dyn Cluster>, Arc<Hosted>) {
    let hub = Arc::new(Hub::default());
    hub.with(|o| o.secret = Some(found));
    (hub.clone(), hub, Arc::new(Hosted::default()))
}

/// Lets virtual time go on.
async fn after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_without_the_opt_in_or_after_it() {
    let (_, cluster, hosted) = world(secret("one", None));
    let mut follower = Follower::default();
    let none = Source::of(&testing::pool(POOL), &[]).expect("allowed");
    assert_eq!(none, None);
    assert!(follower.follow(&hosted.access(), &cluster, None).is_none());
    after(120).await;
    assert!(hosted.asked().is_empty());
    let wanted = source(None);
    assert!(
        follower
            .follow(&hosted.access(), &cluster, Some(&wanted))
            .is_none()
    );
    after(1).await;
    assert_eq!(hosted.asked(), ["one"]);
    follower.follow(&hosted.access(), &cluster, None);
    after(120).await;
    assert_eq!(hosted.asked(), ["one"], "the task ended");
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_the_memory_of_its_pool() {
    let (_, cluster, hosted) = world(secret("one", None));
    let mut follower = Follower::default();
    follower.follow(&hosted.access(), &cluster, Some(&source(None)));
    after(1).await;
    drop(follower);
    after(120).await;
    assert_eq!(hosted.asked(), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn only_an_answer_that_differs_wakes_the_pool() {
    let (_, cluster, hosted) = world(secret("one", None));
    let mut follower = Follower::default();
    let wanted = source(None);
    follower.follow(&hosted.access(), &cluster, Some(&wanted));
    after(300).await;
    assert_eq!(hosted.woken(), 1, "the first answer");
    hosted.answers(Ok(vec![named("a")]));
    after(30).await;
    assert_eq!(hosted.woken(), 2);
    let read = follower.follow(&hosted.access(), &cluster, Some(&wanted));
    assert_eq!(read, Some(Ok(Arc::new(vec![named("a")]))));
    let down = ReconcileError::transient(
        ErrorSource::Kubernetes,
        Reason::HostedApiFailed,
        "no answer",
    );
    hosted.answers(Err(down));
    after(300).await;
    assert_eq!(hosted.woken(), 3, "one failure, told once");
    let read = follower.follow(&hosted.access(), &cluster, Some(&wanted));
    let failed = read.expect("a read").expect_err("it is down");
    assert_eq!(failed.reason, Reason::HostedApiFailed);
}

#[tokio::test(start_paused = true)]
async fn a_rotated_secret_counts_within_thirty_seconds() {
    let (hub, cluster, hosted) = world(secret("one", None));
    let mut follower = Follower::default();
    follower.follow(&hosted.access(), &cluster, Some(&source(None)));
    after(45).await;
    assert_eq!(hosted.asked().last().expect("a read"), "one");
    hub.with(|o| o.secret = Some(secret("two", None)));
    after(30).await;
    assert_eq!(hosted.asked().last().expect("a read"), "two");
}

#[tokio::test(start_paused = true)]
async fn another_source_begins_anew() {
    let (_, cluster, hosted) = world(secret("one", None));
    let mut follower = Follower::default();
    follower.follow(&hosted.access(), &cluster, Some(&source(None)));
    after(1).await;
    let other = Source {
        key: "other".to_owned(),
        ..source(None)
    };
    let read = follower.follow(&hosted.access(), &cluster, Some(&other));
    assert_eq!(read, None, "nothing of the other one is believed");
    after(1).await;
    let read = follower.follow(&hosted.access(), &cluster, Some(&other));
    let refused = read.expect("a read").expect_err("no such key");
    assert_eq!(refused.reason, Reason::KubeconfigRefused);
    assert!(refused.message.contains("\"other\""), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_granted_as_credentials_are() {
    for (so, namespace, pools_from, reason) in [
        ("its own", None, None, None),
        ("granted", Some("tenant"), Some(NAMESPACE), None),
        (
            "not granted",
            Some("tenant"),
            None,
            Some(Reason::SecretNamespaceRefused),
        ),
        (
            "granted to others",
            Some("tenant"),
            Some("other"),
            Some(Reason::SecretNamespaceRefused),
        ),
    ] {
        let (_, cluster, hosted) = world(secret("one", pools_from));
        let read = read(cluster.as_ref(), hosted.as_ref(), &source(namespace)).await;
        assert_eq!(
            read.as_ref().err().map(|e| e.reason.clone()),
            reason,
            "{so}"
        );
        let field = read
            .err()
            .is_none_or(|e| e.message.contains(secret_ref::KUBECONFIG));
        assert!(field, "{so}");
        assert_eq!(hosted.asked().is_empty(), reason.is_some(), "{so}");
    }
    let refused = Source::of(&asking(Some("tenant")), &["other".to_owned()]);
    let refused = refused.expect_err("not among --secret-namespaces");
    assert_eq!(refused.reason, Reason::SecretNamespaceRefused);
    let (hub, cluster, hosted) = world(secret("one", None));
    hub.with(|o| o.secret = None);
    let read = read(cluster.as_ref(), hosted.as_ref(), &source(None)).await;
    let missing = read.expect_err("there is none");
    assert_eq!(missing.reason, Reason::KubeconfigRefused);
    assert!(missing.message.contains("does not exist"), "{missing}");
}
