//! The small HTTP servers: metrics, health, the web page and the debug endpoint. The last two are off by default.

use std::{
    convert::Infallible,
    future::Future,
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use bytes::Bytes;
use http::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{CONNECTION, CONTENT_TYPE, HOST},
};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

use super::places::{NoPlace, Places, RETRY};

/// How long a client may take for its TLS handshake, and then for the headers of a request.
const HEADERS: Duration = Duration::from_secs(10);
/// Bytes that one connection keeps of what it reads. The headers have to fit: a token has up to 16 KiB.
const KEPT: usize = 32 << 10;
/// The longest connection. Pages that follow ask anew before.
const LONGEST: Duration = Duration::from_secs(600);
/// How long a client that gets no connection may take to read why.
const REFUSAL: Duration = Duration::from_secs(1);

/// The body of an answer: a text, or a stream that goes on.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// An answer.
pub type Answer = Response<Body>;

/// An answer in plain text.
#[must_use]
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    answer(status, "text/plain; charset=utf-8", body)
}

/// An answer of any content type.
#[must_use]
pub fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut response = stream_of(content_type, Full::new(body.into()).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// An answer with any body.
#[must_use]
pub fn stream_of(content_type: &'static str, body: Body) -> Answer {
    let mut response = Response::new(body);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}

/// The parts of a request that the servers read. They read no bodies.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Method.
    pub method: Method,
    /// Path.
    pub path: String,
    /// Query; empty if there is none.
    pub query: String,
    /// Headers.
    pub headers: HeaderMap,
    /// Address of the client, or of the proxy in front of it.
    pub peer: IpAddr,
}

impl Asked {
    /// Whether the host of the request is a loopback name or address. This refuses web pages of other sites whose DNS
    /// name resolves to this host (DNS rebinding).
    #[must_use]
    pub fn of_loopback(&self) -> bool {
        let host = self.headers.get(HOST).and_then(|h| h.to_str().ok());
        let Some(host) = host.and_then(|h| h.parse::<http::uri::Authority>().ok()) else {
            return false;
        };
        let name = host.host().trim_start_matches('[').trim_end_matches(']');
        name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

/// Parses a bind address as controller-runtime does: `:8080` means all interfaces, both IPv6 and IPv4; `0` means off.
///
/// # Errors
/// Anything else that is not `host:port` with a numeric host or `localhost`.
pub fn parse_address(flag: &str, text: &str) -> anyhow::Result<Option<SocketAddr>> {
    if text == "0" || text.is_empty() {
        return Ok(None);
    }
    let full = match text.split_once(':') {
        Some(("", port)) => format!("[{}]:{port}", Ipv6Addr::UNSPECIFIED),
        Some(("localhost", port)) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
        _ => text.to_owned(),
    };
    let address = full
        .parse()
        .with_context(|| format!("{flag}={text:?}: use host:port, :port, or 0 to turn it off"))?;
    Ok(Some(address))
}

/// Listens on the address. For all interfaces on a system without IPv6, listens on all interfaces of IPv4.
async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Err(e) if address.ip() == Ipv6Addr::UNSPECIFIED && e.kind() != ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    }
}

/// Binds the address and serves until the task is dropped. Returns the bound address.
///
/// # Errors
/// The address is in use, or does not belong to this host.
pub async fn serve<F, R>(
    name: &'static str,
    address: SocketAddr,
    handler: F,
) -> anyhow::Result<SocketAddr>
where
    F: Fn(Asked) -> R + Send + Sync + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    serve_within(name, address, Limits::default(), handler).await
}

/// What a server asks of a connection.
#[derive(Default)]
pub struct Limits {
    /// Each connection needs one of these, by the address of the client.
    pub connections: Option<Places>,
    /// HTTPS. Without it, the server speaks HTTP.
    pub tls: Option<TlsAcceptor>,
}

/// The same within limits. Who gets no connection is told so, and the connection ends.
///
/// # Errors
/// The address is in use, or does not belong to this host.
pub async fn serve_within<F, R>(
    name: &'static str,
    address: SocketAddr,
    limits: Limits,
    handler: F,
) -> anyhow::Result<SocketAddr>
where
    F: Fn(Asked) -> R + Send + Sync + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let listener = listen(address)
        .await
        .with_context(|| format!("{name}: cannot listen on {address}"))?;
    let bound = listener.local_addr()?;
    let handler = Arc::new(handler);
    let Limits { connections, tls } = limits;
    tokio::spawn(async move {
        loop {
            let Ok((stream, peer)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let peer = peer.ip().to_canonical();
            let taken = connections.as_ref().map(|all| all.take(&peer.to_string()));
            let place = match taken.transpose() {
                Ok(place) => place,
                Err(full) => {
                    // With HTTPS, words before the handshake would be nonsense.
                    if tls.is_none() {
                        tokio::spawn(timeout(REFUSAL, refuse(stream, full, peer)));
                    }
                    continue;
                }
            };
            let (handler, tls) = (handler.clone(), tls.clone());
            tokio::spawn(async move {
                let _place = place;
                let Some(tls) = tls else {
                    return answer_all(stream, peer, handler).await;
                };
                // A client that does not go on gets no answer.
                if let Ok(Ok(stream)) = timeout(HEADERS, tls.accept(stream)).await {
                    answer_all(stream, peer, handler).await;
                }
            });
        }
    });
    Ok(bound)
}

/// Answers the requests of one connection.
async fn answer_all<S, F, R>(stream: S, peer: IpAddr, handler: Arc<F>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Asked) -> R + Send + Sync + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let asked = Asked {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            headers: request.headers().clone(),
            peer,
        };
        let handler = handler.clone();
        async move {
            let mut answer = handler(asked).await;
            if answer.status().is_client_error() {
                // Who is refused keeps no place of others.
                let close = http::HeaderValue::from_static("close");
                answer.headers_mut().insert(CONNECTION, close);
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(KEPT)
        .serve_connection(TokioIo::new(stream), service);
    // What the client does wrong ends the connection and nothing else.
    let _ = timeout(LONGEST, served).await;
}

/// Says why a connection is refused, whatever is asked. Then it waits until the client closes: an answer that is followed by
/// a reset may be lost.
async fn refuse(mut stream: TcpStream, full: NoPlace, peer: IpAddr) -> std::io::Result<()> {
    let (status, why) = full.explain("connections", &format!("the address {peer}"));
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nretry-after: {RETRY}\r\n\
         connection: close\r\n\r\n{why}",
        why.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for a page on a new connection. Returns it, with what was answered.
    async fn connect(address: SocketAddr) -> (TcpStream, String) {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let request = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request).await.expect("it is sent");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\n") {
            let read = stream.read_buf(&mut answer).await.expect("an answer");
            assert_ne!(read, 0, "{:?}", String::from_utf8_lossy(&answer));
        }
        (stream, String::from_utf8(answer).expect("text"))
    }

    #[tokio::test]
    async fn who_is_refused_keeps_no_connection_and_headers_without_end_are_cut() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let handler = |asked: Asked| async move {
            match asked.headers.contains_key("authorization") {
                true => text(StatusCode::OK, "hello\n"),
                false => text(StatusCode::UNAUTHORIZED, "a token\n"),
            }
        };
        let address = serve("test", address, handler).await.expect("it listens");
        let (mut refused, said) = connect(address).await;
        assert!(said.starts_with("HTTP/1.1 401"), "{said}");
        let mut rest = Vec::new();
        assert_eq!(refused.read_to_end(&mut rest).await.expect("the end"), 0);
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let token = "x".repeat(16 << 10);
        let head = format!("GET / HTTP/1.1\r\nhost: localhost\r\nauthorization: {token}\r\n");
        stream.write_all(head.as_bytes()).await.expect("it is sent");
        stream.write_all(b"\r\n").await.expect("it is sent");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 200");
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        let endless = head + &token + &token;
        // The server may close before it has read all.
        let _ = stream.write_all(endless.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let said = String::from_utf8_lossy(&answer).into_owned();
        assert!(
            said.is_empty() || said.starts_with("HTTP/1.1 431"),
            "{said}"
        );
    }

    #[tokio::test]
    async fn a_connection_too_many_is_told_why_and_closed() {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let limits = Limits {
            connections: Some(Places::new(3, 2)),
            tls: None,
        };
        let handler = |asked: Asked| async move {
            assert!(asked.peer.is_loopback());
            text(StatusCode::OK, "hello\n")
        };
        let address = serve_within("test", address, limits, handler)
            .await
            .expect("it listens");
        let (first, said) = connect(address).await;
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        let second = connect(address).await;
        let (mut third, said) = connect(address).await;
        assert!(
            said.starts_with("HTTP/1.1 429 Too Many Requests\r\n"),
            "{said}"
        );
        assert!(said.contains("\r\nretry-after: 5\r\n"), "{said}");
        assert!(
            said.contains("the address 127.0.0.1 has 2 connections"),
            "{said}"
        );
        let mut rest = Vec::new();
        let read = third.read_to_end(&mut rest).await.expect("the end");
        assert_eq!(read, 0);
        drop(first);
        // The server notices the end of the first one a moment later.
        let free = async { while !connect(address).await.1.starts_with("HTTP/1.1 200") {} };
        timeout(Duration::from_secs(10), free)
            .await
            .expect("a place is free again");
        drop(second);
    }

    #[test]
    fn addresses_read_as_controller_runtime_reads_them() {
        let parse = |t| parse_address("--x", t);
        assert_eq!(parse("0").expect("off"), None);
        assert_eq!(
            parse(":8080").expect("all").expect("address").to_string(),
            "[::]:8080"
        );
        assert!(
            parse("localhost:1")
                .expect("one")
                .expect("address")
                .ip()
                .is_loopback()
        );
        assert_eq!(
            parse("127.0.0.1:1").expect("one").expect("address").port(),
            1
        );
        assert!(
            parse("nonsense")
                .expect_err("refused")
                .to_string()
                .contains("--x")
        );
    }
}
