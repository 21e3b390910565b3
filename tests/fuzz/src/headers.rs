//! Answers of an ISO's server: status line, headers, body.

use std::sync::LazyLock;

use agent_forge::iso_source::{HttpIsoSource, Options};
use agent_forge_actors::ports::iso_source::{
    Freshness, IsoDownload, IsoError, IsoRequest, IsoSource as _, IsoUrl,
};
use futures::StreamExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::SECRET;

/// Largest ISO that the source takes.
const LARGEST: u64 = 1 << 20;
/// Longest validator that is kept.
const LONGEST_VALIDATOR: usize = 256;

static SOURCE: LazyLock<HttpIsoSource> = LazyLock::new(|| {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = Options {
        allow_local: true,
        max_bytes: LARGEST,
        ..Options::default()
    };
    HttpIsoSource::new(options).unwrap_or_else(|e| panic!("{e}"))
});

/// A download has a length in its bounds and not a byte more. If its validators say something, the same answer is the
/// same ISO. No error shows the URL's token.
pub(crate) fn check(data: &[u8]) {
    // A redirect would lead to a server that is not ours.
    if data
        .to_ascii_lowercase()
        .windows(8)
        .any(|word| word == b"location")
    {
        return;
    }
    crate::in_real_time(async {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.unwrap_or_else(|e| panic!("no port: {e}"));
        let address = listener
            .local_addr()
            .unwrap_or_else(|e| panic!("no address: {e}"));
        let url = format!("http://{address}/bytoken/{SECRET}/4.19/x86_64/full.iso");
        let request = IsoRequest {
            url: IsoUrl::parse(&url).unwrap_or_else(|e| panic!("{e}")),
            ca_pem: None,
        };
        tokio::select! {
            () = serve(&listener, data) => {}
            () = ask(&request) => {}
        }
    });
}

async fn serve(listener: &TcpListener, answer: &[u8]) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await;
        let _ = stream.write_all(answer).await;
        let _ = stream.shutdown().await;
    }
}

async fn ask(request: &IsoRequest) {
    let download = match SOURCE.open(request).await {
        Ok(download) => download,
        Err(error) => return presentable(&error),
    };
    let IsoDownload {
        length,
        validators,
        mut body,
    } = download;
    assert!((1..=LARGEST).contains(&length), "{length} bytes");
    let kept = [&validators.etag, &validators.last_modified];
    for text in kept.into_iter().flatten() {
        assert!((1..=LONGEST_VALIDATOR).contains(&text.len()), "{text:?}");
    }
    let mut came = 0;
    while let Some(Ok(chunk)) = body.next().await {
        came += chunk.len() as u64;
    }
    assert!(came <= length, "{came} bytes of {length}");
    match SOURCE.freshness(request, &validators).await {
        Ok(fresh) => {
            let known = if validators.is_empty() {
                Freshness::Unknown
            } else {
                Freshness::Same
            };
            assert_eq!(fresh, known, "{validators:?}");
        }
        Err(error) => presentable(&error),
    }
}

fn presentable(error: &IsoError) {
    let said = format!("{error} {error:?}");
    assert!(!said.contains(SECRET) && said.len() <= 4096, "{said}");
}

pub(crate) fn examples() -> Vec<Vec<u8>> {
    crate::of(&[
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"abc\"\r\nLast-Modified: Sun, 01 Mar 2026 10:00:00 GMT\r\n\r\nbytes",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\netag: W/\"weak\"\r\n\r\nbytes",
        "HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbytes\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\nbytes",
        "HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\nbytes",
        "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-0/5\r\nContent-Length: 1\r\n\r\nb",
        "HTTP/1.1 304 Not Modified\r\nETag: \"abc\"\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbytes",
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\n\r\n",
    ])
}
