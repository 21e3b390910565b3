//! Two clients: one for watches, which live long, one for requests, which are bounded in time.

use std::{path::Path, time::Duration};

use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::{called::Called, signed};

/// Bound of one request, connection included.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection of the watches on which nothing comes for that long is given up. The server ends each watch after 290 s, so
/// that only what was never answered gets there, such as a list behind a load balancer that went away.
const WATCH_SILENCE: Duration = Duration::from_secs(330);

/// The clients.
#[derive(Clone)]
pub struct Clients {
    /// For watches.
    pub watch: Client,
    /// For single requests.
    pub request: Client,
}

/// Connects by the given kubeconfig, else by `KUBECONFIG` or `~/.kube/config`, else by the Pod's ServiceAccount.
///
/// # Errors
/// No configuration can be found or used; the message says which one.
pub async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<Clients> {
    use anyhow::Context;
    let mut config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("reading kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("using kubeconfig {}", path.display()))?
        }
        None => Config::infer().await.context(
            "no way to the API server: set KUBECONFIG, pass --kubeconfig, or run as a Pod with a ServiceAccount",
        )?,
    };
    config.connect_timeout = Some(Duration::from_secs(10));
    config.headers.push(signed::user_agent());
    // A write that is repeated below the effect gate would be one more that nobody decided; whoever reads looks again, and
    // whoever watches backs off and says so.
    config.default_retry = false;
    let watch = Client::try_from(silent_at_most(WATCH_SILENCE, config.clone()))
        .context("building the watch client")?;
    config = silent_at_most(REQUEST_TIMEOUT, config);
    config.write_timeout = Some(REQUEST_TIMEOUT);
    let called = Called::at(&config.cluster_url);
    let request = ClientBuilder::try_from(config)
        .context("building the request client")?
        .with_layer(&called)
        .with_layer(&signed::layer())
        .build();
    Ok(Clients { watch, request })
}

/// Bounds the wait for an answer, from when a request is sent: that its connection had lain idle before does not count.
fn silent_at_most(bound: Duration, mut config: Config) -> Config {
    config.read_timeout = Some(bound);
    config.reset_reader_on_write = true;
    config
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, TcpStream},
        time::{sleep, timeout},
    };

    use super::*;

    /// Long enough for a busy machine to answer in.
    const BOUND: Duration = Duration::from_secs(6);

    /// Answers requests on one connection with empty objects: the first of all at once, later ones after `late`.
    async fn answer(
        mut stream: TcpStream,
        before: Arc<AtomicUsize>,
        status: &'static str,
        late: Duration,
    ) {
        let mut buffer = [0; 4096];
        while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
            if before.fetch_add(1, Ordering::Relaxed) > 0 {
                sleep(late).await;
            }
            let text = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
            );
            if stream.write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    /// A server that answers so: its address, and how often it was asked.
    async fn server(status: &'static str, late: Duration) -> (String, Arc<AtomicUsize>) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let asked = Arc::new(AtomicUsize::new(0));
        let before = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, before.clone(), status, late));
            }
        });
        (format!("http://{address}"), asked)
    }

    /// Whether the second of two requests, with a pause between them, is answered.
    async fn is_answered(pause: Duration, late: Duration) -> bool {
        let (address, _) = server("200 OK", late).await;
        let config = Config::new(address.parse().expect("a URI"));
        let client = Client::try_from(silent_at_most(BOUND, config)).expect("a client");
        let ask = async || client.list_core_api_versions().await;
        // Empty objects need not decode: that one came is enough.
        let came = |answer: kube::Result<_>| {
            !matches!(
                answer,
                Err(kube::Error::Service(_) | kube::Error::HyperError(_))
            )
        };
        assert!(came(ask().await), "the first");
        sleep(pause).await;
        came(timeout(BOUND * 5, ask()).await.expect("an end"))
    }

    #[tokio::test]
    async fn an_answer_has_all_its_time_on_a_connection_that_lay_idle() {
        assert!(is_answered(BOUND * 5 / 6, BOUND / 3).await);
    }

    #[tokio::test]
    async fn who_never_answers_is_given_up() {
        assert!(!is_answered(Duration::ZERO, BOUND * 60).await);
    }

    #[tokio::test]
    async fn what_the_server_refuses_is_asked_once() {
        let (address, asked) = server("503 Service Unavailable", Duration::ZERO).await;
        let file = tempfile::NamedTempFile::new().expect("a file");
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
             clusters: [{{name: a, cluster: {{server: \"{address}\"}}}}]\nusers: [{{name: a, user: {{}}}}]\n"
        );
        std::fs::write(file.path(), kubeconfig).expect("written");
        let clients = connect(Some(file.path())).await.expect("clients");
        for (asker, times) in [(clients.request, 1), (clients.watch, 2)] {
            let answer = asker.list_core_api_versions().await;
            assert!(matches!(&answer, Err(kube::Error::Api(_))), "{answer:?}");
            assert_eq!(asked.load(Ordering::Relaxed), times);
        }
    }
}
