mod access;

use std::{
    collections::BTreeMap,
    io::Read as _,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use agent_forge_actors::supervisor::Life;
use async_trait::async_trait;
use bytes::Bytes;
use flate2::read::GzDecoder;
use http::header::{AUTHORIZATION, HOST, RETRY_AFTER, WWW_AUTHENTICATE};
use http_body_util::BodyExt as _;
use k8s_openapi::api::authentication::v1::UserInfo;
use ractor::{Actor, ActorProcessingErr};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, advance};

use super::{
    access::{KEPT, Reviewer},
    *,
};
use crate::{
    cluster::reviews::{Reviews, Right},
    debug,
    telemetry::places::NoPlace,
    testing::World,
};

/// Describes three actors.
struct Described3;

impl Actor for Described3 {
    type Msg = SupervisorMsg;
    type State = Vec<String>;
    type Arguments = ();

    async fn pre_start(
        &self,
        _: ActorRef<SupervisorMsg>,
        (): (),
    ) -> Result<Vec<String>, ActorProcessingErr> {
        Ok(Vec::new())
    }

    async fn handle(
        &self,
        _: ActorRef<SupervisorMsg>,
        message: SupervisorMsg,
        killed: &mut Vec<String>,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SupervisorMsg::Describe(reply) => {
                let actor = |name: &str| Described {
                    name: name.to_owned(),
                    supervisor: "supervisor",
                    life: Life::Alive,
                    restarts: 0,
                    mailbox: Some(0),
                    state: None,
                };
                let all = ["pool/demo/workers", "vm/other/w-1", "sessions"].map(actor);
                let _ = reply.send(all.to_vec());
            }
            SupervisorMsg::Kill { which, reply, .. } => {
                killed.push(which);
                let _ = reply.send(killed.clone());
            }
            _ => {}
        }
        Ok(())
    }
}

/// An API server with one user for each token.
#[derive(Default)]
struct Users {
    asked: Mutex<BTreeMap<String, usize>>,
}

impl Users {
    fn note(&self, what: String) {
        *self
            .asked
            .lock()
            .expect("one at a time")
            .entry(what)
            .or_default() += 1;
    }

    fn times(&self, what: &str) -> usize {
        let asked = self.asked.lock().expect("one at a time");
        asked.get(what).copied().unwrap_or_default()
    }
}

#[async_trait]
impl Reviews for Users {
    async fn user(&self, token: &str) -> anyhow::Result<Option<UserInfo>> {
        self.note(format!("user {token}"));
        anyhow::ensure!(token != "down", "no answer");
        let user = UserInfo {
            username: Some(token.to_owned()),
            ..UserInfo::default()
        };
        Ok((!token.starts_with("bad")).then_some(user))
    }

    async fn may(&self, user: &UserInfo, right: &Right) -> anyhow::Result<bool> {
        let user = user.username.clone().unwrap_or_default();
        let Right::ListPools(namespace) = right else {
            return Ok(user == "scraper");
        };
        let namespace = namespace.as_deref();
        self.note(format!("{user} in {}", namespace.unwrap_or("*")));
        Ok(match user.as_str() {
            "admin" => true,
            tenant => namespace == Some(tenant),
        })
    }
}

struct Server {
    web: Web,
    users: Arc<Users>,
    _standing: watch::Sender<Leadership>,
}

async fn server(world: &World, reviewed: bool) -> Server {
    let (supervisor, _) = Actor::spawn(None, Described3, ()).await.expect("an actor");
    let (sender, standing) = watch::channel(Leadership::Standby);
    let users = Arc::new(Users::default());
    let caches = Arc::new(world.caches());
    caches.warm();
    caches.lead();
    let access = if reviewed {
        Access::Reviewed(Arc::new(Reviewer::new(users.clone())))
    } else {
        Access::Loopback
    };
    let web = Web {
        access,
        caches,
        standing,
        supervisor,
        secret_namespaces: Vec::new(),
        followers: Followers::default(),
        answers: answers(),
    };
    Server {
        web,
        users,
        _standing: sender,
    }
}

fn asked(path: &str, headers: &[(HeaderName, &str)]) -> Asked {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let headers = headers.iter().map(|(name, value)| {
        let value = HeaderValue::from_str(value).expect("a value");
        (name.clone(), value)
    });
    Asked {
        method: Method::GET,
        path: path.to_owned(),
        query: query.to_owned(),
        headers: headers.collect(),
        peer: std::net::Ipv4Addr::LOCALHOST.into(),
    }
}

fn local(path: &str) -> Asked {
    asked(path, &[(HOST, "localhost:8088")])
}

fn by(token: &str, path: &str) -> Asked {
    let bearer = format!("Bearer {token}");
    asked(path, &[(HOST, "forge.example"), (AUTHORIZATION, &bearer)])
}

async fn body(answer: Answer) -> Bytes {
    let body = answer.into_body().collect().await.expect("a body");
    body.to_bytes()
}

async fn read(answer: Answer) -> Value {
    assert_eq!(answer.status(), StatusCode::OK);
    serde_json::from_slice(&body(answer).await).expect("JSON")
}

/// A second pool, in the namespace `other`.
fn two_tenants() -> World {
    let mut world = World::serving();
    let mut pool = world.pool.clone();
    pool["metadata"]["namespace"] = json!("other");
    world.pool = json!([world.pool, pool]);
    world
}

#[tokio::test]
async fn a_machine_is_explained_as_by_the_command() {
    let server = server(&World::serving(), false).await;
    let shown = read(server.web.handle(local("/machine/demo/w-1")).await).await;
    assert_eq!(shown["subject"], json!("VsphereAgent/w-1"));
    assert_eq!(shown["chain"].as_array().map(Vec::len), Some(6));
    assert_eq!(shown["timeline"][1]["afterSeconds"], json!(90));
    for path in [
        "/machine/demo/w-2",
        "/machine/w-1",
        "/machine/other/w-1",
        "/machine/",
    ] {
        let answer = server.web.handle(local(path)).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn each_answer_forbids_foreign_scripts_and_the_page_has_none() {
    let server = server(&World::serving(), true).await;
    for asked in [
        local("/"),
        local("/topology.json"),
        by("admin", "/topology.json"),
        by("bad", "/events"),
    ] {
        let answer = server.web.handle(asked).await;
        let policy = answer.headers()[CONTENT_SECURITY_POLICY]
            .to_str()
            .expect("text");
        for part in [
            "default-src 'none'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "connect-src 'self'",
        ] {
            assert!(policy.contains(part), "{part}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
    }
    let answer = server.web.handle(local("/")).await;
    let policy = answer.headers()[CONTENT_SECURITY_POLICY]
        .to_str()
        .expect("text")
        .to_owned();
    let page = String::from_utf8(body(answer).await.to_vec()).expect("text");
    for tag in ["style", "script"] {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        let blocks: Vec<&str> = page
            .split(&open)
            .skip(1)
            .filter_map(|t| t.split(&close).next())
            .collect();
        assert_eq!(blocks.len(), 1, "one block of {tag}");
        use base64::Engine as _;
        let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(blocks[0]));
        assert!(
            policy.contains(&format!("{tag}-src 'sha256-{hash}'")),
            "{tag}: {policy}"
        );
    }
    // Nothing is loaded from elsewhere, and no text becomes HTML.
    for word in [
        "http:",
        "https:",
        " src=",
        "@import",
        "url(",
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        " onclick",
        " style=",
    ] {
        let found = page
            .replace("http://www.w3.org/2000/svg", "")
            .contains(word);
        assert!(!found, "{word} is in the page");
    }
}

#[tokio::test]
async fn what_a_client_has_is_not_sent_again_and_the_rest_is_packed() {
    let server = server(&topology::tests::crowd::crowd(20), false).await;
    let plain = server.web.handle(local("/topology.json")).await;
    let tag = plain.headers()[ETAG].to_str().expect("text").to_owned();
    let whole = body(plain).await;
    let own = (HOST, "localhost");
    let packed = asked(
        "/topology.json",
        &[own.clone(), (ACCEPT_ENCODING, "br, gzip")],
    );
    let packed = server.web.handle(packed).await;
    assert_eq!(packed.headers()[CONTENT_ENCODING], "gzip");
    let packed = body(packed).await;
    let mut unpacked = Vec::new();
    GzDecoder::new(packed.as_ref())
        .read_to_end(&mut unpacked)
        .expect("gzip");
    assert_eq!(unpacked, whole);
    assert!(
        packed.len() * 4 < whole.len(),
        "{} of {}",
        packed.len(),
        whole.len()
    );
    let again = asked("/topology.json", &[own.clone(), (IF_NONE_MATCH, &tag)]);
    let again = server.web.handle(again).await;
    assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    assert!(body(again).await.is_empty());
    let other = asked("/topology.json", &[own, (IF_NONE_MATCH, "W/\"other\"")]);
    assert_eq!(server.web.handle(other).await.status(), StatusCode::OK);
}

/// The next event within that time; `None` if there is none, or at the end.
async fn event(body: &mut crate::telemetry::http::Body, within: Duration) -> Option<String> {
    let frame = tokio::time::timeout(within, body.frame()).await.ok()??;
    let data = frame.expect("no error").into_data().expect("data");
    Some(String::from_utf8(data.to_vec()).expect("text"))
}

#[tokio::test(start_paused = true)]
async fn a_change_is_an_event_and_many_changes_are_one() {
    let followers = Followers::default();
    let version = Arc::new(AtomicU64::new(7));
    let seen = version.clone();
    let answer = followers
        .follow("user demo", move || seen.load(Ordering::SeqCst))
        .expect("a place");
    assert_eq!(
        answer.headers()[http::header::CONTENT_TYPE],
        "text/event-stream"
    );
    let mut body = answer.into_body();
    let soon = Duration::from_secs(2);
    assert_eq!(
        event(&mut body, soon).await.as_deref(),
        Some("event: changed\ndata: 7\n\n")
    );
    assert_eq!(event(&mut body, Duration::from_secs(10)).await, None);
    for n in 8..=20 {
        version.store(n, Ordering::SeqCst);
    }
    assert_eq!(
        event(&mut body, soon).await.as_deref(),
        Some("event: changed\ndata: 20\n\n")
    );
    let quiet = event(&mut body, Duration::from_secs(20)).await;
    assert_eq!(quiet.as_deref(), Some(": nothing new\n\n"));
    // The client has to come back, so that its rights are checked again.
    let begun = Instant::now();
    while let Some(frame) = body.frame().await {
        frame.expect("no error");
    }
    assert!(begun.elapsed() < events::LONGEST);
}

#[tokio::test(start_paused = true)]
async fn a_change_in_the_caches_reaches_the_client() {
    let server = server(&World::serving(), false).await;
    let mut body = server.web.handle(local("/events")).await.into_body();
    let soon = Duration::from_secs(2);
    let first = event(&mut body, soon).await.expect("the present version");
    assert_eq!(event(&mut body, soon).await, None);
    let empty: Vec<agent_forge_crds::VsphereAgent> = Vec::new();
    crate::cluster::lists::show(&server.web.caches.children, &None, empty, ObjectKey::of);
    let second = event(&mut body, soon).await.expect("an event");
    assert_ne!(first, second);
}

#[tokio::test]
async fn one_viewer_does_not_take_the_places_of_all() {
    let server = server(&two_tenants(), true).await;
    let status = async |token: &str, path: &str| {
        let answer = server.web.handle(by(token, path)).await;
        (answer.status(), answer.headers().contains_key(RETRY_AFTER))
    };
    let mut follows = Vec::new();
    for _ in 0..events::EACH {
        follows.push(server.web.handle(by("demo", "/events")).await);
    }
    assert!(follows.iter().all(|a| a.status() == StatusCode::OK));
    let busy = (StatusCode::TOO_MANY_REQUESTS, true);
    assert_eq!(status("demo", "/events").await, busy);
    assert_eq!(status("other", "/events").await, (StatusCode::OK, false));
    assert_eq!(
        status("demo", "/topology.json").await,
        (StatusCode::OK, false)
    );
    follows.pop();
    assert_eq!(status("demo", "/events").await, (StatusCode::OK, false));

    // Answers that nobody reads are requests under way.
    let mut unread = Vec::new();
    for _ in 0..ANSWERS.1 {
        unread.push(server.web.handle(by("demo", "/topology.json")).await);
    }
    let refused = server.web.handle(by("demo", "/actors")).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let said = body(refused).await;
    let said = String::from_utf8_lossy(&said);
    assert!(
        said.starts_with("user demo has 16 requests under way"),
        "{said}"
    );
    assert_eq!(status("other", "/actors").await, (StatusCode::OK, false));
    drop(unread);
    assert_eq!(status("demo", "/actors").await, (StatusCode::OK, false));
}

#[tokio::test(start_paused = true)]
async fn the_number_of_followers_is_bounded() {
    let followers = Followers::default();
    let follow = |n: usize| followers.follow(&format!("user {n}"), || 1);
    let all: Vec<_> = (0..events::MOST).map(|n| follow(n).ok()).collect();
    assert!(all.iter().all(Option::is_some));
    let refused = follow(events::MOST).expect_err("no place");
    assert_eq!(refused, NoPlace::All(events::MOST));
    drop(all);
    assert!(follow(0).is_ok());
}

#[tokio::test]
async fn an_instance_that_does_not_act_says_so() {
    let world = World::serving();
    let server = server(&world, false).await;
    let notes = async |web: &Web| {
        let shown = read(web.handle(local("/topology.json")).await).await;
        shown["notes"].to_string()
    };
    assert_eq!(notes(&server.web).await, "[]");
    server.web.caches.set_mode(Mode::DryRun);
    assert!(notes(&server.web).await.contains("dry run"));
    let web = Web {
        caches: Arc::new(world.caches()),
        ..server.web.clone()
    };
    let answer = web.handle(local("/topology.json")).await;
    assert_eq!(
        answer.status(),
        StatusCode::SERVICE_UNAVAILABLE,
        "nothing is listed yet"
    );
    let answer = web.handle(local("/actors")).await;
    assert_eq!(answer.status(), StatusCode::OK, "actors need no lists");
    web.caches.warm();
    assert!(notes(&web).await.contains("stands by"));
}
