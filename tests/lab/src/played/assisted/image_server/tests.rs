use super::*;

async fn server(volatile: bool) -> (ImageServer, String) {
    let server = ImageServer::start(ImageOptions {
        size: 200_000,
        volatile,
    })
    .await;
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let url = server.publish("clusters", "env");
    (server, url)
}

fn client() -> reqwest::Client {
    // Fails if a provider is already installed, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

async fn get(url: &str) -> (u16, Vec<u8>) {
    let response = client()
        .get(url)
        .send()
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    let status = response.status().as_u16();
    (
        status,
        response
            .bytes()
            .await
            .map(|bytes| bytes.to_vec())
            .unwrap_or_default(),
    )
}

#[tokio::test]
async fn volatile_images_differ_and_stable_ones_do_not() {
    for volatile in [true, false] {
        let (server, url) = server(volatile).await;
        let (one, two) = (get(&url).await, get(&url).await);
        assert_eq!(one.0, 200);
        assert_eq!(one.1 != two.1, volatile);
        assert_eq!(
            image::infra_env(&one.1),
            Some(("clusters".to_owned(), "env".to_owned()))
        );
        let counters = server.counters();
        assert_eq!((counters.gets, counters.completed), (2, 2));
        assert_eq!(counters.bytes, 2 * server.image_size() as u64);
    }
}

#[tokio::test]
async fn head_and_range_work_and_there_is_no_etag() {
    let (server, url) = server(false).await;
    let head = client()
        .head(&url)
        .send()
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    let length = head
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    assert_eq!(length, Some(server.image_size().to_string().as_str()));
    assert!(head.headers().get(header::ETAG).is_none());
    let since = head.headers()[header::LAST_MODIFIED].clone();
    let part = client()
        .get(&url)
        .header(header::RANGE, "bytes=32768-32773")
        .send()
        .await;
    let part = part.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(
        part.bytes().await.unwrap_or_default().as_ref(),
        b"\x01CD001"
    );
    let same = client()
        .get(&url)
        .header(header::IF_MODIFIED_SINCE, since)
        .send()
        .await;
    assert_eq!(
        same.map(|response| response.status()).ok(),
        Some(StatusCode::NOT_MODIFIED)
    );
    assert_eq!(get(&url.replace("/byapikey/", "/byapikey/0")).await.0, 404);
}

#[tokio::test]
async fn each_fault_shows() {
    let (server, url) = server(false).await;
    let size = server.image_size();
    server.set_faults(ImageFaults {
        status: Some(404),
        ..ImageFaults::default()
    });
    assert_eq!(get(&url).await.0, 404);
    server.set_faults(ImageFaults {
        wrong_magic: true,
        ..ImageFaults::default()
    });
    assert!(!image::is_iso(&get(&url).await.1));
    server.set_faults(ImageFaults {
        redirects: 2,
        ..ImageFaults::default()
    });
    assert_eq!(get(&url).await.1.len(), size);
    for faults in [
        ImageFaults {
            cut_after: Some(50_000),
            ..ImageFaults::default()
        },
        ImageFaults {
            length_lie: 7,
            ..ImageFaults::default()
        },
    ] {
        server.set_faults(faults.clone());
        let whole = async { client().get(&url).send().await?.bytes().await };
        assert!(whole.await.is_err(), "{faults:?}");
    }
    server.set_faults(ImageFaults {
        rate: Some(1_000_000),
        ..ImageFaults::default()
    });
    let begun = std::time::Instant::now();
    assert_eq!(get(&url).await.1.len(), size);
    assert!(
        begun.elapsed() >= Duration::from_millis(190),
        "{:?}",
        begun.elapsed()
    );
    server.set_faults(ImageFaults {
        silent: true,
        ..ImageFaults::default()
    });
    let never = tokio::time::timeout(Duration::from_millis(200), client().get(&url).send()).await;
    assert!(never.is_err());
}

#[tokio::test]
async fn other_manners_and_faults_that_pass() {
    let (server, url) = server(false).await;
    let size = server.image_size();
    server.set_manners(Manners {
        etag: Tag::Strong,
        ..Manners::default()
    });
    server.set_faults(ImageFaults {
        cut_after: Some(150_000),
        times: Some(1),
        ..ImageFaults::default()
    });
    let whole = async { client().get(&url).send().await?.bytes().await };
    assert!(whole.await.is_err());
    let whole = get(&url).await.1;
    assert_eq!(whole.len(), size);
    let ask = async |tag: &str| {
        let asked = client()
            .get(&url)
            .header(header::RANGE, "bytes=150000-")
            .header(header::IF_RANGE, tag)
            .send()
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        let status = asked.status();
        (status, asked.bytes().await.unwrap_or_default())
    };
    let (status, rest) = ask("\"edition-0\"").await;
    assert_eq!(status, StatusCode::PARTIAL_CONTENT);
    assert_eq!(rest, whole[150_000..]);
    let (status, again) = ask("\"edition-1\"").await;
    assert_eq!((status, again.len()), (StatusCode::OK, size));
    let same = async || {
        let tag = client().get(&url).send().await;
        let tag = tag.unwrap_or_else(|error| panic!("{error}")).headers()[header::ETAG].clone();
        let asked = client().get(&url).header(header::IF_NONE_MATCH, tag).send();
        asked.await.map(|response| response.status()).ok()
    };
    assert_eq!(same().await, Some(StatusCode::NOT_MODIFIED));
    server.set_manners(Manners {
        etag: Tag::Moving,
        ..Manners::default()
    });
    assert_eq!(same().await, Some(StatusCode::OK));
    server.set_manners(Manners {
        edition: 1,
        ..Manners::default()
    });
    assert_ne!(get(&url).await.1, whole);
    assert_eq!(get(&url.replace("byapikey", "mirror")).await.0, 200);
    server.revoke("clusters", "env");
    assert_eq!(get(&url).await.0, 404);
    let plain = server.publish_plainly("clusters", "env");
    let issued = server.issued_tokens();
    assert_eq!(issued.len(), 2, "a revoked one is not forgotten");
    assert!(url.contains(&issued[0]) && plain.contains(&issued[1]));
}

#[tokio::test]
async fn a_lie_may_be_too_short_and_a_slow_download_may_be_let_go() {
    let (server, url) = server(false).await;
    let size = server.image_size();
    server.set_faults(ImageFaults {
        length_lie: -2048,
        ..ImageFaults::default()
    });
    assert_eq!(get(&url).await.1.len(), size - 2048);
    // The download would take half an hour. The limit is removed after the first piece, which takes a second.
    let large = ImageOptions {
        size: 1800 * SLOW_CHUNK,
        volatile: false,
    };
    let server = ImageServer::start(large).await;
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let (size, url) = (server.image_size(), server.publish("clusters", "env"));
    server.set_faults(ImageFaults {
        rate: Some(SLOW_CHUNK as u64),
        ..ImageFaults::default()
    });
    let begun = Instant::now();
    let answer = client().get(&url).send().await;
    let answer = answer.unwrap_or_else(|error| panic!("{error}"));
    server.unleash();
    let image = answer.bytes().await;
    assert_eq!(image.map(|bytes| bytes.len()).ok(), Some(size));
    let took = begun.elapsed();
    assert!(took < crate::patience::HANG, "{took:?}");
}

#[test]
fn ranges() {
    assert_eq!(range("bytes=0-0", 10), Some((0, 1)));
    assert_eq!(range("bytes=5-", 10), Some((5, 10)));
    assert_eq!(range("bytes=-3", 10), Some((7, 10)));
    assert_eq!(range("bytes=5-99", 10), Some((5, 10)));
    assert_eq!(range("bytes=10-", 10), None);
    assert_eq!(range("lines=1-2", 10), None);
}
