//! The ISO source with correct and with faulty servers.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::{Duration, Instant};

use agent_forge::iso_source::{HttpIsoSource, Options};
use agent_forge_actors::{
    domain::failure::Class,
    ports::iso_source::{
        Freshness, IsoDownload, IsoError, IsoRequest, IsoSource as _, IsoUrl, Validators,
    },
};
use agent_forge_crds::conditions::Reason;
use futures::StreamExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

use crate::server::listen;

/// Only catches a hang, on a machine that may be slow.
const HANG: Duration = agent_forge_lab::patience::HANG;

/// A server that treats every client in the same way. Returns its `host:port`.
async fn server<F>(treat: impl Fn(TcpStream) -> F + Send + 'static) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    listen(treat).await.to_string()
}

/// Reads the request's head and writes these bytes.
async fn reply(mut socket: TcpStream, bytes: Vec<u8>) {
    let mut request = [0; 4096];
    let _ = socket.read(&mut request).await;
    let _ = socket.write_all(&bytes).await;
    let _ = socket.shutdown().await;
}

async fn replying(head: &'static str, body: &'static [u8]) -> String {
    server(move |socket| async move {
        let mut bytes = format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n").into_bytes();
        bytes.extend_from_slice(body);
        reply(socket, bytes).await;
    })
    .await
}

fn lab() -> Options {
    Options {
        allow_local: true,
        connect_timeout: HANG,
        ..Options::default()
    }
}

fn asked(text: &str) -> IsoRequest {
    IsoRequest {
        url: IsoUrl::parse(text).unwrap(),
        ca_pem: None,
    }
}

async fn open(options: Options, text: &str) -> Result<IsoDownload, IsoError> {
    HttpIsoSource::new(options)
        .unwrap()
        .open(&asked(text))
        .await
}

async fn read(mut download: IsoDownload) -> Result<Vec<u8>, IsoError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = download.body.next().await {
        match chunk {
            Ok(chunk) => bytes.extend_from_slice(&chunk),
            Err(e) => {
                let inner = e.into_inner().expect("a typed failure inside");
                return Err(*inner.downcast::<IsoError>().expect("an IsoError"));
            }
        }
    }
    Ok(bytes)
}

#[track_caller]
fn is(e: &IsoError, reason: Reason, class: Class) {
    assert_eq!((&e.reason, e.class), (&reason, class), "{e}");
}

async fn refused(options: Options, text: &str) -> IsoError {
    let e = open(options, text).await.err().unwrap();
    assert!(!e.message.contains("SECRET"), "{e}");
    e
}

#[tokio::test]
async fn inner_addresses_are_refused_before_a_connection() {
    let host = replying("200 OK\r\ncontent-length: 1", b"x").await;
    let port = host.rsplit_once(':').unwrap().1;
    let closed = Options {
        allow_local: false,
        ..lab()
    };
    for text in [
        format!("http://{host}/SECRET.iso"),
        format!("http://localhost:{port}/SECRET.iso"),
        format!("http://[::1]:{port}/SECRET.iso"),
        format!("http://[::ffff:127.0.0.1]:{port}/SECRET.iso"),
        // Other notations of 127.0.0.1. Parsing the URL resolves them.
        format!("http://2130706433:{port}/SECRET.iso"),
        format!("http://0x7f.1:{port}/SECRET.iso"),
        "http://169.254.10.20/SECRET.iso".to_owned(),
        "http://169.254.169.254/latest/meta-data/SECRET".to_owned(),
    ] {
        let e = refused(closed.clone(), &text).await;
        assert_eq!(
            (e.reason.clone(), e.class),
            (Reason::IsoAddressNotAllowed, Class::Blocked),
            "{text}: {e}"
        );
    }
    // Even a lab does not need a metadata service.
    let e = refused(lab(), "http://169.254.169.254/SECRET.iso").await;
    assert_eq!(e.reason, Reason::IsoAddressNotAllowed);
}

#[tokio::test]
async fn redirects_are_followed_three_times_and_checked_each_time() {
    let end = replying("200 OK\r\ncontent-length: 2", b"ok").await;
    let mut next = format!("http://{end}/x.iso");
    let mut hops = Vec::new();
    for _ in 0..4 {
        let target = next.clone();
        let hop = server(move |socket| {
            let head =
                format!("HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n");
            reply(socket, head.into_bytes())
        })
        .await;
        next = format!("http://{hop}/SECRET.iso");
        hops.push(next.clone());
    }
    assert_eq!(
        read(open(lab(), &hops[2]).await.unwrap()).await.unwrap(),
        b"ok"
    );
    let e = refused(lab(), &hops[3]).await;
    assert_eq!(e.reason, Reason::IsoDownloadFailed);
    assert!(e.message.contains("redirects"), "{e}");

    let metadata = replying(
        "302 Found\r\nlocation: http://169.254.169.254/SECRET\r\ncontent-length: 0",
        b"",
    )
    .await;
    let e = refused(lab(), &format!("http://{metadata}/x.iso")).await;
    assert_eq!(e.reason, Reason::IsoAddressNotAllowed, "{e}");
    let file = replying(
        "302 Found\r\nlocation: file:///etc/SECRET\r\ncontent-length: 0",
        b"",
    )
    .await;
    let e = refused(lab(), &format!("http://{file}/x.iso")).await;
    is(&e, Reason::IsoDownloadFailed, Class::Blocked);
}

#[tokio::test]
async fn statuses_say_whether_trying_again_helps() {
    for (status, class) in [
        ("404 Not Found", Class::Blocked),
        ("401 Unauthorized", Class::Blocked),
        ("503 Service Unavailable", Class::Transient),
        ("429 Too Many Requests", Class::Transient),
        ("204 No Content", Class::Blocked),
    ] {
        let host = server(move |socket| {
            reply(
                socket,
                format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").into_bytes(),
            )
        })
        .await;
        let e = refused(
            lab(),
            &format!("http://{host}/byapikey/SECRET/x.iso?t=SECRET"),
        )
        .await;
        assert_eq!(
            (e.reason.clone(), e.class),
            (Reason::IsoDownloadFailed, class),
            "{status}: {e}"
        );
        assert!(e.message.contains(&status[..3]), "{e}");
    }
}

#[tokio::test]
async fn a_length_is_needed_and_has_a_limit() {
    let chunked = replying(
        "200 OK\r\ntransfer-encoding: chunked",
        b"1\r\nx\r\n0\r\n\r\n",
    )
    .await;
    assert_eq!(
        refused(lab(), &format!("http://{chunked}/")).await.reason,
        Reason::IsoLengthMissing
    );
    let empty = replying("200 OK\r\ncontent-length: 0", b"").await;
    assert_eq!(
        refused(lab(), &format!("http://{empty}/")).await.reason,
        Reason::IsoLengthMissing
    );
    let huge = replying("200 OK\r\ncontent-length: 99999999999999", b"").await;
    let e = refused(lab(), &format!("http://{huge}/")).await;
    is(&e, Reason::IsoTooLarge, Class::Blocked);
}

/// A server that sends the head first and then one byte at a time.
async fn dripping(every: Duration) -> String {
    server(move |mut socket| async move {
        let mut request = [0; 4096];
        let _ = socket.read(&mut request).await;
        let _ = socket
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
            .await;
        while socket.write_all(b"x").await.is_ok() {
            tokio::time::sleep(every).await;
        }
    })
    .await
}

#[tokio::test]
async fn waiting_has_an_end() {
    let quick = || Options {
        // Many times the pause between two bytes, so that a late byte does not count as a stall.
        stall: Duration::from_secs(3),
        min_progress: 10_000,
        ..lab()
    };
    for (every, options, what) in [
        (2 * HANG, quick(), "no more bytes"),
        (Duration::from_millis(50), quick(), "too slow"),
        (
            Duration::from_millis(50),
            Options {
                min_progress: 1,
                deadline: Duration::from_secs(4),
                ..quick()
            },
            "",
        ),
    ] {
        let host = dripping(every).await;
        let started = Instant::now();
        let e = read(
            open(options, &format!("http://{host}/SECRET"))
                .await
                .unwrap(),
        )
        .await
        .unwrap_err();
        is(&e, Reason::IsoStalled, Class::Transient);
        assert!(e.message.contains(what), "{e}");
        assert!(started.elapsed() < HANG);
    }
}

#[tokio::test]
async fn a_slow_reader_is_not_the_servers_fault() {
    let body: &'static [u8] = Box::leak(vec![7_u8; 3_000_000].into_boxed_slice());
    let host = replying("200 OK\r\ncontent-length: 3000000", body).await;
    let options = Options {
        // Far more than the wait for these bytes takes, and less than the reader's pause.
        stall: Duration::from_secs(4),
        min_progress: 2_900_000,
        ..lab()
    };
    let pause = options.stall + Duration::from_secs(1);
    let mut download = open(options, &format!("http://{host}/")).await.unwrap();
    let (mut seen, mut paused) = (0, false);
    while let Some(chunk) = download.body.next().await {
        seen += chunk.unwrap().len();
        if !std::mem::replace(&mut paused, true) {
            tokio::time::sleep(pause).await;
        }
    }
    assert_eq!(seen, 3_000_000);
}

#[tokio::test]
async fn silence_and_closed_doors_are_told_in_time() {
    let silent = server(|socket| async move {
        std::future::pending::<()>().await;
        drop(socket);
    })
    .await;
    let options = Options {
        connect_timeout: Duration::from_millis(300),
        ..lab()
    };
    let started = Instant::now();
    assert_eq!(
        refused(options, &format!("http://{silent}/")).await.reason,
        Reason::IsoStalled
    );
    assert!(started.elapsed() < HANG);

    // The port is bound, so that no other process gets it, but nothing listens on it.
    let bound = TcpSocket::new_v4().unwrap();
    bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = bound.local_addr().unwrap();
    let e = refused(lab(), &format!("http://{closed}/SECRET")).await;
    is(&e, Reason::IsoDownloadFailed, Class::Transient);
    let soon = Options {
        connect_timeout: Duration::from_secs(2),
        ..lab()
    };
    let e = refused(soon, "http://no-such-host.invalid/SECRET").await;
    is(&e, Reason::IsoDownloadFailed, Class::Transient);
}

#[test]
fn extra_certificates_must_be_certificates() {
    let options = Options {
        extra_ca_pem: Some("no certificate".into()),
        ..lab()
    };
    let e = HttpIsoSource::new(options).err().unwrap();
    assert!(e.contains("certificate"), "{e}");
}

/// The bytes before and after a break need not belong together, whatever the server says of them.
#[tokio::test]
async fn a_broken_download_fails_and_is_not_resumed() {
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let notes = asked.clone();
    let host = server(move |mut socket| {
        let notes = notes.clone();
        async move {
            let mut buffer = [0; 4096];
            let _ = socket.read(&mut buffer).await;
            notes.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let head = b"HTTP/1.1 200 OK\r\netag: \"v1\"\r\ncontent-length: 100000\r\nconnection: close\r\n\r\n";
            let _ = socket.write_all(head).await;
            let _ = socket.write_all(&[7; 40_000]).await;
            let _ = socket.shutdown().await;
        }
    })
    .await;
    let download = open(lab(), &format!("http://{host}/x.iso")).await;
    let e = read(download.unwrap()).await.unwrap_err();
    is(&e, Reason::IsoDownloadFailed, Class::Transient);
    assert!(e.message.contains("40000"), "{e}");
    assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test]
async fn whether_something_changed_is_asked_without_a_download() {
    let had = |etag: Option<&str>, date: Option<&str>| Validators {
        etag: etag.map(str::to_owned),
        last_modified: date.map(str::to_owned),
    };
    let (old, new) = (
        "Mon, 01 Jan 2026 00:00:00 GMT",
        "Tue, 02 Jan 2026 00:00:00 GMT",
    );
    for (answer, had, wanted) in [
        (
            "304 Not Modified",
            had(Some("\"a\""), None),
            Freshness::Same,
        ),
        (
            "200 OK\r\netag: \"a\"",
            had(Some("\"a\""), None),
            Freshness::Same,
        ),
        (
            "200 OK\r\netag: \"b\"",
            had(Some("\"a\""), Some(old)),
            Freshness::Changed,
        ),
        (
            "200 OK\r\nlast-modified: Mon, 01 Jan 2026 00:00:00 GMT",
            had(None, Some(old)),
            Freshness::Same,
        ),
        (
            "200 OK\r\nlast-modified: Mon, 01 Jan 2026 00:00:00 GMT",
            had(None, Some(new)),
            Freshness::Changed,
        ),
        ("200 OK", had(Some("\"a\""), None), Freshness::Unknown),
    ] {
        let host = replying(answer, b"").await;
        let source = HttpIsoSource::new(lab()).unwrap();
        let request = asked(&format!("http://{host}/x.iso"));
        assert_eq!(
            source.freshness(&request, &had).await.unwrap(),
            wanted,
            "{answer}"
        );
    }
    let host = replying("404 Not Found", b"").await;
    let source = HttpIsoSource::new(lab()).unwrap();
    let request = asked(&format!("http://{host}/x.iso"));
    assert!(source.freshness(&request, &had(None, None)).await.is_err());
}

#[tokio::test]
async fn certificates_of_a_request_must_be_certificates() {
    let mut request = asked("https://127.0.0.1:1/x.iso");
    request.ca_pem = Some("no certificate".to_owned());
    let e = HttpIsoSource::new(lab())
        .unwrap()
        .open(&request)
        .await
        .err()
        .unwrap();
    is(&e, Reason::InvalidIsoCaBundle, Class::Blocked);
}

#[tokio::test]
async fn a_request_for_an_image_carries_the_trace_that_it_is_opened_in() {
    let (_subscribers, span, carried) = crate::collector::traced();
    let (told, mut heads) = tokio::sync::mpsc::unbounded_channel();
    let host = server(move |mut socket| {
        let told = told.clone();
        async move {
            let mut request = [0; 4096];
            let read = socket.read(&mut request).await.unwrap();
            told.send(String::from_utf8_lossy(&request[..read]).into_owned())
                .unwrap();
            let head = b"HTTP/1.1 200 OK\r\netag: \"v1\"\r\ncontent-length: 9\r\nconnection: close\r\n\r\n";
            let _ = socket.write_all(head).await;
            let _ = socket.write_all(b"half").await;
        }
    })
    .await;
    let source = HttpIsoSource::new(lab()).unwrap();
    let request = asked(&format!("http://{host}/x.iso"));
    let opened = tracing::Instrument::instrument(source.open(&request), span).await;
    assert!(read(opened.unwrap()).await.is_err());
    let head = heads.recv().await.unwrap();
    assert!(head.contains(&carried), "{carried} is not in {head}");
}
