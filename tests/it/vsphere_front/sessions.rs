//! Logins are few, shared, and never sent to a server that is not trusted.

use std::{sync::Arc, time::Duration};

use agent_forge::vsphere::{Options, Transport, TransportFailure, VsphereConnector};
use agent_forge_actors::{
    domain::{
        failure::{Class, ReconcileError},
        server::{ServerRule, server_name},
    },
    ports::{
        effect::EffectKind,
        vcenter::{Connector as _, Credentials, Fault, Trust, VcError, VcErrorKind},
    },
};
use agent_forge_crds::conditions::Reason;
use agent_forge_lab::parts::vcenter::VCenterOptions;
use async_trait::async_trait;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::support::*;
use crate::{log_lines::Lines, server::listen};

/// Why a connection with these credentials is refused.
async fn refused(connector: &VsphereConnector, credentials: &Credentials) -> VcError {
    connector.connect(credentials).await.err().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_credentials_share_one_login() {
    let world = Arc::new(world(quick()).await);
    let all = (0..30).map(|_| {
        let world = world.clone();
        tokio::spawn(async move { world.connect().await.datacenter("dc1").await.unwrap() })
    });
    for done in futures::future::join_all(all).await {
        done.unwrap();
    }
    assert_eq!(world.logins("vim").await, 1);
    assert_eq!(world.logins("rest").await, 0);
    let sessions = world.inventory().await["sessions"].clone();
    assert_eq!(sessions.as_array().unwrap().len(), 1);
    let agent = sessions[0]["userAgent"].as_str().unwrap();
    assert!(agent.starts_with("agent-forge/"), "{agent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_tried_once() {
    let world = world(quick()).await;
    let mut credentials = world.credentials();
    credentials.password = "canary-5f1c wrong".to_owned().into();
    // All of them ask before the first has its answer. They run in one task, because another thread may be late.
    let all = (0..10).map(|_| world.connector.connect(&credentials));
    for done in futures::future::join_all(all).await {
        let e = done.err().unwrap();
        assert!(matches!(e.fault(), Some(Fault::InvalidLogin)), "{e}");
        assert_eq!(e.class(), Class::Blocked);
        assert!(
            e.to_string().contains(&world.vcenter.options().username),
            "{e}"
        );
        assert!(!format!("{e} {e:?}").contains("canary"), "{e:?}");
    }
    assert_eq!(world.calls().await["Login"], 1);
    assert_eq!(world.logins("refused").await, 1);
    // The right password works in the meantime.
    world.connect().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_names_of_one_vcenter_are_one_account_and_share_no_session() {
    let options = || Options {
        allow_local: true,
        ..Options::default()
    };
    let world = world_with(quick(), options()).await;
    let named = |name: &str, password: Option<&str>| {
        let mut credentials = world.credentials();
        credentials.trust = Trust::Insecure;
        credentials.server.set_host(Some(name)).unwrap();
        let password = password.map(|p| p.to_owned().into());
        credentials.password = password.unwrap_or(credentials.password);
        credentials
    };
    let (one, other) = ("127.0.0.1", "localhost");
    for (name, password) in [(one, "wrong"), (other, "wrong as well")] {
        let e = refused(&world.connector, &named(name, Some(password))).await;
        assert!(matches!(e.fault(), Some(Fault::InvalidLogin)), "{e}");
    }
    for name in [one, other] {
        let e = refused(&world.connector, &named(name, Some("a third one"))).await;
        assert!(matches!(e.kind, VcErrorKind::LoginLimited(_)), "{e}");
    }
    assert_eq!(world.logins("refused").await, 2);
    // Another operator, which knows of no refusal.
    let second = VsphereConnector::new(world.gate.clone(), options());
    for name in [one, other] {
        second.connect(&named(name, None)).await.unwrap();
    }
    assert_eq!(world.logins("vim").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_session_is_replaced_once_for_all() {
    let (world, vc) = connected(quick()).await;
    vc.datacenter("dc1").await.unwrap();
    world.post("sessions/kill", json!({})).await;
    let all = (0..20).map(|n| {
        let vc = vc.clone();
        tokio::spawn(async move { vc.find_by_uuid(uuid_of(&format!("x{n}"))).await })
    });
    for found in futures::future::join_all(all).await {
        assert!(found.unwrap().unwrap().is_empty());
    }
    assert_eq!(world.logins("vim").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_that_would_leak_credentials_are_refused() {
    let world = world(VCenterOptions {
        tls: false,
        ..quick()
    })
    .await;
    let e = refused(&world.connector, &world.credentials()).await;
    assert_eq!(e.kind, VcErrorKind::Untrusted, "{e}");
    let lab = Options {
        allow_http: true,
        ..Options::default()
    };
    let connector = VsphereConnector::new(world.gate.clone(), lab);
    assert!(
        connector
            .connect(&world.credentials())
            .await
            .unwrap()
            .insecure()
    );
    let mut credentials = world.credentials();
    credentials.server.set_username("root").unwrap();
    let e = refused(&connector, &credentials).await;
    assert_eq!(e.kind, VcErrorKind::Untrusted, "{e}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_resolves_to_this_machine_hears_nothing() {
    let world = world(quick()).await;
    let mut credentials = world.credentials();
    credentials.trust = Trust::Insecure;
    credentials.server.set_host(Some("localhost")).unwrap();
    let e = refused(&world.connector, &credentials).await;
    assert_eq!(e.kind, VcErrorKind::NotAllowed, "{e}");
    assert_eq!(e.reason(), Reason::VcenterNotAllowed);
    assert!(e.message.contains("localhost resolves to"), "{e}");
    assert!(world.calls().await.is_empty(), "nobody connects");
    let lab = Options {
        allow_local: true,
        ..Options::default()
    };
    let connector = VsphereConnector::new(world.gate.clone(), lab);
    assert!(connector.connect(&credentials).await.is_ok());
}

/// `host:port` of a server that is no vCenter. It answers each connection with this text. Without text it is silent.
async fn stranger(says: &'static str) -> String {
    let address = listen(move |mut socket| async move {
        if says.is_empty() {
            return std::future::pending().await;
        }
        let mut asked = [0; 4096];
        let _ = socket.read(&mut asked).await;
        let _ = socket.write_all(says.as_bytes()).await;
        let _ = socket.shutdown().await;
        // Unread bytes would reset the connection before the client has the answer.
        let _ = tokio::io::copy(&mut socket, &mut tokio::io::sink()).await;
    });
    address.await.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_nobody_named_fails_with_one_text_whatever_is_there() {
    let world = world(quick()).await;
    let shell = stranger("SSH-2.0-server\r\n").await;
    let silent = stranger("").await;
    let missing =
        stranger("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let page = stranger("HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>");
    let empty = stranger("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let (missing, page, empty) = tokio::join!(missing, page, empty);
    let away = Reason::VcenterUnreachable;
    let cases = [
        ("https://127.0.0.1:1".to_owned(), &away, "no connection"),
        ("https://vcenter.invalid".to_owned(), &away, "no connection"),
        (format!("https://{shell}"), &away, "no connection"),
        (
            "https://localhost:1".to_owned(),
            &Reason::VcenterNotAllowed,
            "localhost resolves to",
        ),
        (
            world.vcenter.url().to_owned(),
            &Reason::UntrustedCertificate,
            "thumbprint mismatch",
        ),
        (
            format!("http://{silent}"),
            &Reason::VcenterNoAnswer,
            "no answer within",
        ),
        (
            format!("http://{missing}"),
            &Reason::VcenterUnavailable,
            "no VI/JSON API here: a vCenter 8.0 Update 1",
        ),
        (
            format!("http://{page}"),
            &Reason::VcenterReplyUnusable,
            "does not decode",
        ),
        (
            format!("http://{empty}"),
            &Reason::from("UnsupportedRelease"),
            "none of the API releases",
        ),
    ];
    let named = ["127.0.0.1", "localhost", "vcenter.invalid"].map(|host| host.parse().unwrap());
    let named = ServerRule {
        allowed: named.to_vec(),
        ..ServerRule::default()
    };
    let mut texts = std::collections::BTreeSet::new();
    for (server, reason, cause) in cases {
        let mut credentials = world.credentials();
        credentials.server = server.parse().unwrap();
        credentials.trust = Trust::Thumbprint([7; 32]);
        let failed = async |rule: &ServerRule| {
            let mut options = Options {
                allow_http: true,
                discreet: Some(rule.clone()),
                ..Options::default()
            };
            if *reason == Reason::VcenterNoAnswer {
                options.call_timeout = Duration::from_millis(300);
            }
            let gate = Arc::new(Recorder::default());
            let connector = VsphereConnector::new(gate.clone(), options);
            let began = std::time::Instant::now();
            // The second time, the pause after a failed connection repeats the failure.
            let first = refused(&connector, &credentials).await;
            let again = refused(&connector, &credentials).await;
            // Without the option a silent server would take half a minute.
            let in_time = began.elapsed() < Options::default().call_timeout;
            assert!(in_time || *reason != Reason::VcenterNoAnswer);
            let admitted = gate.admitted.lock().unwrap();
            assert!(
                !admitted.contains(&EffectKind::Login),
                "a password was sent"
            );
            let (first, again) = (ReconcileError::from(first), ReconcileError::from(again));
            assert_eq!(first, again);
            first
        };
        let exact = failed(&named).await;
        assert_eq!(&exact.reason, reason, "{server}: {exact}");
        assert!(exact.message.contains(cause), "{server}: {exact}");
        let told = failed(&ServerRule::default()).await;
        assert_eq!(told.reason, Reason::VcenterUnreachable, "{server}: {told}");
        assert_eq!(
            told.class, exact.class,
            "{server}: retries stay as they are"
        );
        let host = server_name(&credentials.server);
        assert!(told.message.contains(&host), "{told}");
        texts.insert(told.message.replace(&host, "HOST"));
    }
    assert_eq!(texts.len(), 1, "{texts:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_are_negotiated_back_to_the_first() {
    for api in ["8.0.1.0", "8.0.2.0", "8.0.3.0", "9.1.0.0"] {
        let world = world(release(api)).await;
        let vc = world.connect().await;
        upload_iso(&*vc).await;
        life(&*vc, "node-1")
            .await
            .unwrap_or_else(|e| panic!("{api}: {e}"));
    }
}

/// A vCenter that was restored to an earlier version. From a moment on it no longer serves release 8.0.3.0.
struct PutBack {
    http: reqwest::Client,
    /// Paths of that release that end like this are refused.
    refused: std::sync::Mutex<Option<&'static str>>,
}

#[async_trait]
impl Transport for PutBack {
    async fn send(&self, request: reqwest::Request) -> Result<reqwest::Response, TransportFailure> {
        let path = request.url().path().to_owned();
        if let Some(end) = *self.refused.lock().unwrap() {
            let answer = |status, body| {
                let reply = http::Response::builder().status(status).body(body);
                Ok(reply.unwrap().into())
            };
            if path == "/api/vcenter/system" {
                return answer(200, r#"{"api_release": "8.0.2.0"}"#);
            }
            if path.contains("/8.0.3.0/") && path.ends_with(end) {
                return answer(404, "");
            }
        }
        sent(&self.http, request).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_refused_is_negotiated_again() {
    // Any call, and the login after the end of a session.
    for (end, ends_sessions) in [("", false), ("/Login", true)] {
        let http = plain_http();
        let transport = Arc::new(PutBack {
            http,
            refused: std::sync::Mutex::default(),
        });
        let client = Options {
            allow_http: true,
            transport: Some(transport.clone()),
            ..Options::default()
        };
        let options = VCenterOptions {
            tls: false,
            ..quick()
        };
        let world = world_with(options, client).await;
        let vc = world.connect().await;
        upload_iso(&*vc).await;
        // A missing path is no reason to choose another release.
        let missing = json!({"method": "FindAllByUuid", "at": "http", "status": 404, "count": 1});
        world.fault(missing).await;
        let e = vc.find_by_uuid(uuid_of("node-1")).await.unwrap_err();
        assert_eq!(e.kind, VcErrorKind::Status(404), "{end:?}: {e}");
        assert_eq!(world.logins("vim").await, 1, "{end:?}");
        *transport.refused.lock().unwrap() = Some(end);
        if ends_sessions {
            world.post("sessions/kill", json!({})).await;
        }
        life(&*vc, "node-1")
            .await
            .unwrap_or_else(|e| panic!("{end:?}: {e}"));
        assert_eq!(world.logins("vim").await, 2, "{end:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_nobody_waits_for_is_not_lost() {
    let world = world(quick()).await;
    world
        .fault(json!({"method": "Login", "at": "http", "status": 503, "count": 1}))
        .await;
    let e = refused(&world.connector, &world.credentials()).await;
    assert_eq!(e.kind, VcErrorKind::Status(503), "{e}");
    // Each connect is given up at once. In the end there is still only one session.
    for _ in 0..20 {
        let credentials = world.credentials();
        let connecting = world.connector.connect(&credentials);
        let _ = tokio::time::timeout(Duration::from_micros(500), connecting).await;
    }
    world.connect().await;
    assert_eq!(
        world.inventory().await["sessions"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(world.logins("vim").await, 1);
}

#[tokio::test]
async fn no_secret_reaches_a_log() {
    // The whole log, with all details of the libraries.
    let log = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
        .with_writer(log.clone())
        .finish();
    // One thread, so that all tasks of this test log here. With two subscribers, a callsite does not take the answer of
    // a thread without a subscriber.
    let _another = tracing::Dispatch::new(tracing_subscriber::registry());
    let guard = tracing::subscriber::set_default(subscriber);
    let canary = "canary-5f1c0e77";
    let options = VCenterOptions {
        password: canary.into(),
        ..quick()
    };
    let (world, vc) = ready(options).await;
    // The thread of another test may have reached a callsite first without a subscriber. Then the callsite could be
    // off.
    tracing::callsite::rebuild_interest_cache();
    let vm = life(&*vc, "node-1").await.unwrap();
    let wrong = "urn:vmomi:InventoryServiceTag:nothing:GLOBAL".to_owned();
    vc.attach_tags(&effect(EffectKind::AttachTags), &vm, &[wrong])
        .await
        .unwrap_err();
    let mut secrets: Vec<String> = vec![canary.to_owned()];
    for session in world.inventory().await["sessions"].as_array().unwrap() {
        secrets.push(session["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(
        secrets.len(),
        3,
        "both interfaces have a session: {secrets:?}"
    );
    let mut credentials = world.credentials();
    credentials.password = format!("{canary}-wrong").into();
    let e = refused(&world.connector, &credentials).await;
    world.post("sessions/kill", json!({})).await;
    vc.drives().await.unwrap();
    vc.logout(&effect(EffectKind::Logout)).await;
    drop(guard);
    let log = log.written();
    assert!(
        log.contains("vsphere.request") && log.contains("CreateVM_Task"),
        "the log is empty"
    );
    let basic = base64_of(&format!("{}:{canary}", world.vcenter.options().username));
    secrets.push(basic);
    for secret in secrets {
        let at = log
            .find(&secret)
            .map(|at| &log[at.saturating_sub(300)..(at + 60).min(log.len())]);
        assert_eq!(at, None, "{secret} was logged");
    }
    assert!(!format!("{e} {e:?} {credentials:?} {:?}", world.connector).contains(canary));
}

fn base64_of(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}
