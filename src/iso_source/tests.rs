use std::sync::{Arc, Mutex, PoisonError};

use agent_forge_actors::ports::iso_source::IsoUrl;
use agent_forge_crds::conditions::Reason;
use futures::StreamExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use url::Url;

use super::*;

/// The first lines of the requests that a proxy received.
type Asked = Arc<Mutex<Vec<String>>>;

fn all(asked: &Asked) -> Vec<String> {
    asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

async fn head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match socket.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// A server that answers each plain request with `says` and refuses tunnels. Returns its `host:port`.
async fn server(says: &'static str, asked: Asked) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let head = head(&mut socket).await;
            let line = head.lines().next().unwrap_or_default().to_owned();
            let tunnel = line.starts_with("CONNECT ");
            asked
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(line);
            let (status, body) = if tunnel {
                ("502 Bad Gateway", "")
            } else {
                ("200 OK", says)
            };
            let length = body.len();
            let reply = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            let _ = socket.write_all(reply.as_bytes()).await;
            let _ = socket.shutdown().await;
        }
    });
    address
}

async fn fetched(options: Options, proxies: Matcher, url: &str) -> Result<Vec<u8>, IsoError> {
    let source = HttpIsoSource::with_proxies(options, proxies).expect("a source");
    let request = IsoRequest {
        url: IsoUrl::parse(url).expect("a URL"),
        ca_pem: None,
    };
    let mut download = source.open(&request).await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = download.body.next().await {
        bytes.extend_from_slice(&chunk.expect("bytes"));
    }
    Ok(bytes)
}

#[tokio::test]
async fn proxies_are_asked_for_what_is_theirs() {
    let (through, straight) = (Asked::default(), Asked::default());
    let proxy = server("by proxy", through.clone()).await;
    let direct = server("straight", straight.clone()).await;
    let proxies = || {
        Matcher::builder()
            .http(format!("http://{proxy}"))
            .https(format!("http://{proxy}"))
            .no("127.0.0.1,.inside.example")
            .build()
    };
    let lab = || Options {
        allow_local: true,
        ..Options::default()
    };
    let url = "http://images.example/a/x.iso";
    let bytes = fetched(Options::default(), proxies(), url).await;
    assert_eq!(bytes.expect("bytes"), b"by proxy");
    assert_eq!(all(&through), [format!("GET {url} HTTP/1.1")]);
    // HTTPS uses a tunnel. The proxy sees neither the path nor the token.
    let e = fetched(
        Options::default(),
        proxies(),
        "https://images.example/byapikey/SECRET/x.iso",
    )
    .await
    .expect_err("no tunnel");
    assert_eq!(
        (e.reason.clone(), e.class),
        (Reason::IsoDownloadFailed, Class::Transient),
        "{e}"
    );
    assert_eq!(all(&through)[1..], ["CONNECT images.example:443 HTTP/1.1"]);
    // With NO_PROXY.
    let bytes = fetched(lab(), proxies(), &format!("http://{direct}/x.iso")).await;
    assert_eq!(bytes.expect("bytes"), b"straight");
    assert_eq!((all(&through).len(), all(&straight).len()), (2, 1));
}

#[tokio::test]
async fn what_means_this_machine_is_not_asked_of_a_proxy() {
    let through = Asked::default();
    let proxy = server("by proxy", through.clone()).await;
    let proxies = || Matcher::builder().all(format!("http://{proxy}")).build();
    for url in [
        "http://localhost/x.iso",
        "http://a.LOCALHOST:8080/x.iso",
        "http://127.0.0.1/x.iso",
        "http://[::1]/x.iso",
        "http://169.254.169.254/x.iso",
        "http://metadata.google.internal/x.iso",
    ] {
        let e = fetched(Options::default(), proxies(), url).await;
        let e = e.expect_err(url);
        assert_eq!(e.reason, Reason::IsoAddressNotAllowed, "{url}: {e}");
    }
    assert_eq!(all(&through), [""; 0]);
}

#[test]
fn no_redirect_leads_from_https_to_http() {
    let to = |location: &str| {
        let redirect = http::Response::builder()
            .status(302)
            .header("location", location)
            .body("")
            .expect("a response");
        reqwest::Response::from(redirect)
    };
    let at = |url: &str| Url::parse(url).expect("a URL");
    let secure = at("https://images.example/x.iso");
    let e = door::next_hop(&secure, &to("http://images.example/x.iso")).expect_err("plain");
    assert_eq!(
        (e.reason.clone(), e.class),
        (Reason::IsoDownloadFailed, Class::Blocked)
    );
    assert!(e.message.contains("plain http"), "{e}");
    for (from, location, wanted) in [
        (&secure, "/y.iso", "https://images.example/y.iso"),
        (
            &at("http://images.example/x.iso"),
            "https://images.example/x.iso",
            "https://images.example/x.iso",
        ),
    ] {
        let next = door::next_hop(from, &to(location)).expect("a hop");
        assert_eq!(next.as_str(), wanted);
    }
}

#[tokio::test]
async fn a_download_says_method_server_and_status_and_no_address() {
    let told = crate::telemetry::told::Told::default();
    let _here = told.here();
    let host = server("an image", Asked::default()).await;
    let url = format!("http://{host}/byid/1/x.iso?image_token=secret");
    let options = Options {
        allow_local: true,
        ..Options::default()
    };
    let none = Matcher::builder().build();
    fetched(options, none, &url).await.expect("the image");
    let found = told.attributes("GET");
    let port = host.rsplit(':').next().expect("a port");
    for (key, value) in [
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("server.address", "127.0.0.1"),
        ("server.port", port),
        ("url.scheme", "http"),
    ] {
        let said = found.iter().find(|(k, _)| k == key);
        assert_eq!(
            said.map(|(_, v)| v.as_str()),
            Some(value),
            "{key}: {found:?}"
        );
    }
    for (key, value) in &found {
        let tells = ["://", "byid", "secret"].iter().any(|t| value.contains(t));
        assert!(!tells, "{key} says {value}");
    }
}
