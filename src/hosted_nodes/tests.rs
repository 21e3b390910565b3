//! Kubeconfigs and hosted clusters that lie, against a server on this machine.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use agent_forge_actors::ports::nodes::MAX_NODES;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::*;

/// What the server answers to a request head.
enum Reply {
    Json(u16, Value),
    Text(&'static str),
    /// A body without an end.
    Endless,
    /// Nothing, for ever.
    Silence,
}

type Answer = Arc<dyn Fn(&str) -> Reply + Send + Sync>;

/// A server on this machine, and how often it was asked.
struct Served {
    address: String,
    asked: Arc<AtomicUsize>,
}

async fn serve(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Served {
    serve_over(None, Arc::new(answer)).await
}

async fn serve_over(tls: Option<TlsAcceptor>, answer: Answer) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (tls, answer, counter) = (tls.clone(), answer.clone(), counter.clone());
            tokio::spawn(async move {
                match tls {
                    None => talk(socket, answer, counter).await,
                    Some(tls) => {
                        if let Ok(socket) = tls.accept(socket).await {
                            talk(socket, answer, counter).await;
                        }
                    }
                }
            });
        }
    });
    Served { address, asked }
}

async fn talk(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    answer: Answer,
    counter: Arc<AtomicUsize>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match socket.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    counter.fetch_add(1, Ordering::SeqCst);
    let (status, body) = match answer(&String::from_utf8_lossy(&head)) {
        Reply::Json(status, body) => (status, body.to_string()),
        Reply::Text(body) => (200, body.to_owned()),
        Reply::Silence => return std::future::pending().await,
        Reply::Endless => {
            let head =
                "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"kind\":\"NodeList\",\"items\":[";
            let mut sent = socket.write_all(head.as_bytes()).await;
            while sent.is_ok() {
                sent = socket.write_all(&[b' '; 65536]).await;
            }
            return;
        }
    };
    let head = format!(
        "HTTP/1.1 {status} x\r\nlocation: /elsewhere\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let _ = socket.write_all(head.as_bytes()).await;
    let _ = socket.write_all(body.as_bytes()).await;
    let _ = socket.shutdown().await;
}

/// A server in a lab.
fn lab() -> HttpHostedNodes {
    let rule = ServerRule {
        allow_http: true,
        allow_local: true,
        ..ServerRule::default()
    };
    HttpHostedNodes::new(rule, true)
}

fn config(server: &str) -> Value {
    json!({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t0ken"}}],
    })
}

async fn read(reader: &HttpHostedNodes, config: &Value) -> Result<Vec<NodeFacts>, ReconcileError> {
    let text = serde_saphyr::to_string(config).expect("YAML");
    let read = reader.nodes(&text.into()).await;
    if let Err(failed) = &read {
        assert!(!failed.message.contains("t0ken"), "{failed}");
        assert!(failed.message.len() < 600, "{failed}");
    }
    read
}

async fn listed(served: &Served) -> Result<Vec<NodeFacts>, ReconcileError> {
    read(&lab(), &config(&format!("http://{}", served.address))).await
}

fn node(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "labels": {"node.openshift.io/platform-type": "vsphere", "x": "y"},
            "managedFields": [{"a": "b"}],
        },
        "spec": {"providerID": format!("agent://{name}"), "taints": []},
        "status": {"images": [{"names": ["i"]}], "nodeInfo": {"systemUUID": "42-1", "x": 1}},
    })
}

fn page(nodes: &[Value], token: &str) -> Value {
    json!({"kind": "NodeList", "metadata": {"continue": token}, "items": nodes})
}

#[tokio::test]
async fn all_pages_are_read_with_the_token_and_each_node_is_trimmed() {
    let served = serve(|head| {
        assert!(
            head.to_lowercase().contains("authorization: bearer t0ken"),
            "{head}"
        );
        let line = head.lines().next().unwrap_or_default();
        assert!(line.starts_with("GET /api/v1/nodes?limit=50"), "{line}");
        match line.contains("continue=a%2Bb") {
            false => Reply::Json(200, page(&[node("n-2")], "a+b")),
            true => Reply::Json(200, page(&[node("n-1")], "")),
        }
    })
    .await;
    let nodes = listed(&served).await.expect("a list");
    let wanted = NodeFacts {
        name: "n-1".to_owned(),
        provider_id: Some("agent://n-1".to_owned()),
        platform_type: Some("vsphere".to_owned()),
        instance_type: None,
        system_uuid: Some("42-1".to_owned()),
        deleting: false,
    };
    assert_eq!(nodes[0], wanted);
    assert_eq!(nodes.len(), 2);
    let empty = serve(|_| Reply::Json(200, json!({"kind": "NodeList", "items": null}))).await;
    assert_eq!(listed(&empty).await, Ok(vec![]));
}

#[tokio::test]
async fn a_list_without_an_end_ends() {
    let pages = serve(|_| Reply::Json(200, page(&[], "again"))).await;
    let said = listed(&pages).await.expect_err("endless");
    assert!(said.message.contains("does not end"), "{said}");
    assert_eq!(pages.asked.load(Ordering::SeqCst), 2 * MAX_NODES / 50);
    let body = serve(|_| Reply::Endless).await;
    let said = listed(&body).await.expect_err("endless");
    assert!(said.message.contains("larger than"), "{said}");
    let silent = serve(|_| Reply::Silence).await;
    let quick = HttpHostedNodes {
        within: Duration::from_millis(200),
        ..lab()
    };
    let since = Instant::now();
    let config = config(&format!("http://{}", silent.address));
    let said = read(&quick, &config).await.expect_err("silence");
    assert!(said.message.contains("no whole list"), "{said}");
    assert!(since.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_hundred_thousand_nodes_are_too_many_in_one_page_or_in_many() {
    let at_once = serve(|_| {
        let tiny = |n| json!({"metadata": {"name": format!("n{n}")}});
        let all: Vec<Value> = (0..100_000).map(tiny).collect();
        Reply::Json(200, page(&all, ""))
    })
    .await;
    let said = listed(&at_once).await.expect_err("too many");
    assert!(said.message.contains("more than 10000 Nodes"), "{said}");
    let count = AtomicUsize::new(0);
    let bit_by_bit = serve(move |_| {
        let from = count.fetch_add(1000, Ordering::SeqCst);
        let all: Vec<Value> = (from..from + 1000)
            .map(|n| node(&format!("n{n}")))
            .collect();
        Reply::Json(200, page(&all, "more"))
    })
    .await;
    let said = listed(&bit_by_bit).await.expect_err("too many");
    assert!(said.message.contains("more than 10000 Nodes"), "{said}");
    assert_eq!(bit_by_bit.asked.load(Ordering::SeqCst), 11);
}

#[tokio::test]
async fn lies_are_told_as_such_and_are_no_nodes() {
    let odd = |change: fn(&mut Value)| {
        let mut odd = node("n");
        change(&mut odd);
        page(&[odd], "")
    };
    for (so, status, body, says) in [
        (
            "another kind",
            200,
            json!({"kind": "PodList", "items": []}),
            "no list of Nodes",
        ),
        ("no items", 200, json!({"kind": "NodeList"}), "items"),
        (
            "items are no list",
            200,
            json!({"kind": "NodeList", "items": 7}),
            "list of Nodes",
        ),
        (
            "twice",
            200,
            page(&[node("n"), node("n")], ""),
            "two Nodes of one name",
        ),
        ("no name", 200, page(&[json!({"metadata": {}})], ""), "name"),
        (
            "an odd name",
            200,
            odd(|n| n["metadata"]["name"] = json!("a\nERROR b")),
            "a name that",
        ),
        (
            "an endless id",
            200,
            odd(|n| n["spec"]["providerID"] = json!("x".repeat(5000))),
            "spec.providerID",
        ),
        (
            "an odd UUID",
            200,
            odd(|n| n["status"]["nodeInfo"]["systemUUID"] = json!("\u{202e}x")),
            "systemUUID",
        ),
        (
            "an endless token",
            200,
            page(&[], &"t".repeat(5000)),
            "continue token",
        ),
        ("a redirect", 302, json!({}), "302"),
        ("no rights", 403, json!({"kind": "Status"}), "403"),
        ("an old token", 401, json!({"kind": "Status"}), "401"),
        ("broken", 500, json!({"kind": "Status"}), "500"),
    ] {
        let served = serve(move |_| Reply::Json(status, body.clone())).await;
        let said = listed(&served).await.expect_err(so);
        assert_eq!(said.reason, Reason::HostedApiFailed, "{so}");
        assert!(said.message.contains(says), "{so}: {said}");
        assert!(!said.message.contains('\n'), "{so}: {said}");
        assert_eq!(served.asked.load(Ordering::SeqCst), 1, "{so}");
    }
    let page = serve(|_| Reply::Text("<html>log in</html>")).await;
    let said = listed(&page).await.expect_err("a page for people");
    assert!(said.message.contains("no list of Nodes"), "{said}");
}

#[tokio::test]
async fn a_refused_kubeconfig_is_never_used() {
    let served = serve(|_| Reply::Json(200, page(&[], ""))).await;
    let good = config(&format!("http://{}", served.address));
    assert_eq!(read(&lab(), &good).await, Ok(vec![]));
    let asked = served.asked.load(Ordering::SeqCst);
    let strict = HttpHostedNodes::new(ServerRule::default(), true);
    let said = read(&strict, &good).await.expect_err("a loopback address");
    assert_eq!(said.reason, Reason::KubeconfigRefused);
    for (list, of, field, value) in [
        (
            "users",
            "user",
            "exec",
            json!({"command": "touch", "args": ["/tmp/x"]}),
        ),
        ("users", "user", "auth-provider", json!({"name": "oidc"})),
        (
            "users",
            "user",
            "tokenFile",
            json!("/var/run/secrets/kubernetes.io/serviceaccount/token"),
        ),
        ("users", "user", "client-certificate", json!("/etc/passwd")),
        ("users", "user", "client-key", json!("/etc/passwd")),
        ("users", "user", "as", json!("system:admin")),
        ("users", "user", "as-groups", json!(["system:masters"])),
        ("users", "user", "token", json!("a\u{7}b")),
        (
            "clusters",
            "cluster",
            "certificate-authority",
            json!("/etc/passwd"),
        ),
        (
            "clusters",
            "cluster",
            "certificate-authority-data",
            json!("%%%"),
        ),
        (
            "clusters",
            "cluster",
            "certificate-authority-data",
            json!("bm8gUEVN"),
        ),
        (
            "clusters",
            "cluster",
            "proxy-url",
            json!("http://127.0.0.1:1"),
        ),
        (
            "clusters",
            "cluster",
            "insecure-skip-tls-verify",
            json!(true),
        ),
    ] {
        let mut hostile = good.clone();
        hostile[list][0][of][field] = value;
        let said = read(&lab(), &hostile).await.expect_err(field);
        assert_eq!(said.reason, Reason::KubeconfigRefused, "{field}");
        let named = said.message.contains(field) || said.message.contains("certificate bundle");
        assert!(named, "{field}: {said}");
    }
    assert_eq!(
        served.asked.load(Ordering::SeqCst),
        asked,
        "nothing was sent"
    );
}

#[tokio::test]
async fn a_text_that_is_no_kubeconfig_is_refused_without_repeating_it() {
    let level = |n: usize| {
        let refs = vec![format!("*l{}", n - 1); 10].join(",");
        format!("l{n}: &l{n} [{refs}]\n")
    };
    let bomb: String = (1..12).map(level).collect();
    for (so, text) in [
        ("no YAML", "a: [s3cret".to_owned()),
        ("a text", "s3cret".to_owned()),
        (
            "too large",
            format!("s3cret: {}", "x".repeat(MAX_KUBECONFIG)),
        ),
        ("a bomb of aliases", format!("l0: &l0 [s3cret]\n{bomb}")),
        ("a deep one", "[".repeat(100_000)),
    ] {
        let said = lab().nodes(&text.into()).await.expect_err(so);
        assert_eq!(said.reason, Reason::KubeconfigRefused, "{so}");
        assert!(!said.message.contains("s3cret"), "{so}: {said}");
        assert!(said.message.len() < 200, "{so}: {said}");
    }
}

#[tokio::test]
async fn pools_do_not_learn_what_listens_in_the_network() {
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = closed.local_addr().expect("an address").to_string();
    drop(closed);
    let other = serve(|_| Reply::Text("220 mail.example ESMTP")).await;
    let rule = || ServerRule {
        allow_http: true,
        allow_local: true,
        ..ServerRule::default()
    };
    let discreet = HttpHostedNodes::new(rule(), false);
    let mut said = Vec::new();
    for address in [&address, &other.address] {
        let failed = read(&discreet, &config(&format!("http://{address}"))).await;
        said.push(
            failed
                .expect_err("no Nodes")
                .message
                .replace(address.as_str(), "S"),
        );
    }
    assert_eq!(said[0], said[1]);
    let named = ServerRule {
        allowed: vec!["127.0.0.1".parse().expect("a host")],
        ..rule()
    };
    let named = HttpHostedNodes::new(named, false);
    let failed = read(&named, &config(&format!("http://{}", other.address))).await;
    let told = failed.expect_err("no Nodes").message;
    assert!(told.contains("no list of Nodes"), "{told}");
}

#[tokio::test]
async fn the_certificate_is_checked_before_the_token_is_sent() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
    let config_of_server = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.expect("a key"))
        .expect("a configuration");
    let tls = TlsAcceptor::from(Arc::new(config_of_server));
    let answer: Answer = Arc::new(|_| Reply::Json(200, page(&[node("n")], "")));
    let served = serve_over(Some(tls), answer).await;
    let port = served.address.rsplit(':').next().unwrap_or_default();
    let mut trusted = config(&format!("https://localhost:{port}"));
    let unknown = read(&lab(), &trusted).await.expect_err("nobody knows it");
    assert!(unknown.message.contains("not trusted"), "{unknown}");
    assert_eq!(served.asked.load(Ordering::SeqCst), 0);
    let authority = STANDARD.encode(made.cert.pem());
    trusted["clusters"][0]["cluster"]["certificate-authority-data"] = json!(authority);
    assert_eq!(read(&lab(), &trusted).await.expect("a list").len(), 1);
    let mut signed = trusted.clone();
    signed["users"][0]["user"] = json!({
        "client-certificate-data": authority,
        "client-key-data": STANDARD.encode(made.signing_key.serialize_pem()),
    });
    assert_eq!(read(&lab(), &signed).await.expect("a list").len(), 1);
    signed["users"][0]["user"]["client-key-data"] = json!(authority);
    let said = read(&lab(), &signed).await.expect_err("no key");
    assert_eq!(said.reason, Reason::KubeconfigRefused);
}
