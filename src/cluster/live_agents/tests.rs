//! Which callers share a list, and what is kept of it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use agent_forge_actors::ports::cluster::{ClusterError, ClusterErrorKind};
use kube::ResourceExt;
use tokio::sync::Semaphore;

use super::*;

fn agent(name: &str) -> Agent {
    let large = "x".repeat(60_000);
    let agent = serde_json::json!({
        "apiVersion": "agent-install.openshift.io/v1beta1", "kind": "Agent",
        "metadata": {"name": name, "annotations": {"inventory": large}},
        "spec": {"approved": false},
    });
    serde_json::from_value(agent).expect("an Agent")
}

fn named(name: &'static str) -> AgentFilter {
    Arc::new(move |a: &Agent| a.name_any() == name)
}

/// Three pages of one Agent each. Each page waits for a permit.
struct Server {
    lists: AtomicUsize,
    may: Semaphore,
    fails: bool,
}

impl Server {
    fn new(pages: usize, fails: bool) -> Self {
        Self {
            lists: AtomicUsize::new(0),
            may: Semaphore::new(pages),
            fails,
        }
    }

    async fn page(&self, token: Option<String>) -> ClusterResult<Page> {
        if token.is_none() {
            self.lists.fetch_add(1, Ordering::SeqCst);
        }
        self.may.acquire().await.expect("open").forget();
        let at: usize = token.map_or(0, |t| t.parse().expect("a token"));
        if self.fails && at == 1 {
            return Err(ClusterError {
                kind: ClusterErrorKind::Unavailable,
                operation: "list",
                subject: "Agents".to_owned(),
                message: "no answer in time".to_owned(),
            });
        }
        Ok(Page {
            agents: vec![agent(["a", "b", "c"][at])],
            next: (at < 2).then(|| (at + 1).to_string()),
        })
    }

    fn lists(&self) -> usize {
        self.lists.load(Ordering::SeqCst)
    }
}

fn names(found: ClusterResult<Vec<Agent>>) -> Vec<String> {
    let found = found.expect("a list");
    assert!(found.iter().all(|a| a.annotations().is_empty()), "trimmed");
    found.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test]
async fn who_asks_while_a_list_is_under_way_shares_the_next_one() {
    let (all, server) = (LiveAgents::default(), Server::new(0, false));
    let ask = |name| all.list("demo", named(name), |token| server.page(token));
    let mut first = Box::pin(ask("a"));
    assert!(futures::poll!(&mut first).is_pending());
    let others = futures::future::join3(ask("b"), ask("c"), ask("nobody"));
    let mut others = Box::pin(others);
    assert!(futures::poll!(&mut others).is_pending());
    assert_eq!(server.lists(), 1, "one at a time");
    server.may.add_permits(100);
    let (first, (b, c, nobody)) = futures::future::join(first, others).await;
    assert_eq!(names(first), ["a"]);
    assert_eq!(names(b), ["b"]);
    assert_eq!(names(c), ["c"]);
    assert!(names(nobody).is_empty());
    assert_eq!(server.lists(), 2, "four asked");
}

#[tokio::test]
async fn a_list_that_is_cut_off_is_read_again_for_those_who_shared_it() {
    let (all, server) = (LiveAgents::default(), Server::new(0, false));
    let ask = |name| all.list("demo", named(name), |token| server.page(token));
    let mut blocks = Box::pin(ask("a"));
    assert!(futures::poll!(&mut blocks).is_pending());
    let (mut reads, mut shares) = (Box::pin(ask("b")), Box::pin(ask("c")));
    assert!(futures::poll!(&mut reads).is_pending());
    assert!(futures::poll!(&mut shares).is_pending());
    drop(blocks);
    // Now this caller reads for both, and is dropped.
    assert!(futures::poll!(&mut reads).is_pending());
    assert_eq!(server.lists(), 2);
    drop(reads);
    server.may.add_permits(100);
    assert_eq!(names(shares.await), ["c"]);
    assert_eq!(server.lists(), 3);
}

#[tokio::test]
async fn a_page_that_fails_fails_the_list_for_all() {
    let (all, server) = (LiveAgents::default(), Server::new(100, true));
    let ask = |name| all.list("demo", named(name), |token| server.page(token));
    let (a, b) = futures::future::join(ask("a"), ask("b")).await;
    for failed in [a, b] {
        assert_eq!(
            failed.expect_err("half a list").kind,
            ClusterErrorKind::Unavailable
        );
    }
}
