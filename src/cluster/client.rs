//! Two clients: one for watches, which run for a long time, and one for requests, which have a time limit.

use std::{env, time::Duration};

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{Kubeconfig, KubeconfigError},
};

use super::{called::Called, signed};
use crate::args::TargetArgs;

/// Time limit of one request, connection included.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The watch client closes a connection on which nothing arrives for this long. The server ends each watch after 290 s.
/// So only a request without any answer reaches this limit, for example a list behind a load balancer that is gone.
const WATCH_SILENCE: Duration = Duration::from_secs(330);

/// The clients.
#[derive(Clone)]
pub struct Clients {
    /// For watches.
    pub watch: Client,
    /// For single requests.
    pub request: Client,
    /// Address of the API server, without anything secret.
    pub server: String,
}

/// Connects with the given kubeconfig; else with `KUBECONFIG` or `~/.kube/config`; else with the Pod's ServiceAccount.
///
/// # Errors
/// No configuration can be found or used. The message names it, and shows nothing of its content.
pub async fn connect(target: &TargetArgs) -> anyhow::Result<Clients> {
    use anyhow::Context;
    let mut config = match &target.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).map_err(without_content).with_context(|| format!("reading kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &target.choice())
                .await
                .map_err(without_content)
                .with_context(|| format!("using kubeconfig {}", path.display()))?
        }
        None if target.chooses() => Config::from_kubeconfig(&target.choice())
            .await
            .map_err(without_content)
            .context("using the kubeconfig")?,
        None => Config::infer().await.map_err(without_content).context(
            "no configuration for the API server: set KUBECONFIG, pass --kubeconfig, or run as a Pod with a ServiceAccount",
        )?,
    };
    if let Some(user) = &target.as_user {
        config.auth_info.impersonate = Some(user.clone());
        config.auth_info.impersonate_groups = Some(target.as_group.clone());
    }
    let of_environment = ["HTTPS_PROXY", "https_proxy"].map(|name| env::var(name).ok());
    let of_environment = of_environment
        .into_iter()
        .flatten()
        .find(|text| !text.is_empty());
    config.proxy_url = proxy(
        config.proxy_url,
        of_environment.as_deref(),
        &Matcher::from_env(),
        &config.cluster_url,
    );
    config.connect_timeout = Some(Duration::from_secs(10));
    config.headers.push(signed::user_agent());
    // No retries below the effect gate: a repeated write would be one that no actor decided. After a failure the actors
    // read again, and the watches back off and log it.
    config.default_retry = false;
    let watch = Client::try_from(silent_at_most(WATCH_SILENCE, config.clone()))
        .context("building the watch client")?;
    config = silent_at_most(REQUEST_TIMEOUT, config);
    config.write_timeout = Some(REQUEST_TIMEOUT);
    let called = Called::at(&config.cluster_url);
    let server = shown(&config.cluster_url);
    let request = ClientBuilder::try_from(config)
        .context("building the request client")?
        .with_layer(&called)
        .with_layer(&signed::layer())
        .build();
    Ok(Clients {
        watch,
        request,
        server,
    })
}

/// The proxy on the way to the API server. A kubeconfig may name one. If it is that of the environment, `NO_PROXY` decides:
/// kube compares it with the proxy's address, and not with the server's.
fn proxy(
    configured: Option<Uri>,
    of_environment: Option<&str>,
    rules: &Matcher,
    server: &Uri,
) -> Option<Uri> {
    let uri = configured?;
    let is_of_environment = of_environment.and_then(|text| text.parse().ok()) == Some(uri.clone());
    (!is_of_environment || rules.intercept(server).is_some()).then_some(uri)
}

/// Scheme, host, port and path of the API server.
fn shown(url: &http::Uri) -> String {
    let scheme = url.scheme_str().unwrap_or("https");
    let host = url.host().unwrap_or("?");
    let port = url.port_u16().map(|port| format!(":{port}"));
    let path = url.path().trim_end_matches('/');
    format!("{scheme}://{host}{}{path}", port.unwrap_or_default())
}

/// The error as logs may show it. The library's own texts quote lines and names of the file, and where a line is damaged,
/// they may have a token.
fn without_content(error: impl std::error::Error + Send + Sync + 'static) -> anyhow::Error {
    let error = anyhow::Error::new(error);
    let known = error.chain().find_map(|cause| cause.downcast_ref());
    let parser = match known {
        Some(KubeconfigError::Parse(parser)) => parser,
        Some(KubeconfigError::LoadContext(_)) => {
            return anyhow::anyhow!("its context is none of its contexts");
        }
        Some(KubeconfigError::LoadClusterOfContext(_)) => {
            return anyhow::anyhow!("the cluster of its context is none of its clusters");
        }
        // Its text has that of its causes.
        _ => return anyhow::anyhow!("{error}"),
    };
    match parser.location() {
        Some(at) => anyhow::anyhow!(
            "it is no kubeconfig: line {}, column {} is not valid",
            at.line(),
            at.column()
        ),
        None => anyhow::anyhow!("it is no kubeconfig"),
    }
}

/// Limits the wait for an answer, counted from when a request is sent. The time that the connection was idle before
/// does not count.
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

    use std::path::Path;

    use super::*;

    fn at(kubeconfig: &Path) -> TargetArgs {
        TargetArgs {
            kubeconfig: Some(kubeconfig.to_owned()),
            ..TargetArgs::default()
        }
    }

    #[test]
    fn no_proxy_keeps_the_api_server_from_the_proxy_of_the_environment_only() {
        let name = "http://proxy.example.com:3128";
        let uri: Uri = name.parse().expect("an address");
        let rules = Matcher::builder()
            .https(name)
            .no("127.0.0.1,.internal")
            .build();
        let reached = |configured: Option<&Uri>, server: &'static str| {
            proxy(
                configured.cloned(),
                Some(name),
                &rules,
                &Uri::from_static(server),
            )
        };
        let outside = "https://api.example.com:6443";
        assert_eq!(reached(Some(&uri), outside), Some(uri.clone()));
        assert_eq!(reached(Some(&uri), "https://127.0.0.1:6443"), None);
        assert_eq!(reached(Some(&uri), "https://api.internal:6443"), None);
        assert_eq!(reached(None, outside), None);
        // One that the kubeconfig names is meant for its server.
        let other = Uri::from_static("http://bastion.example.com:8080");
        assert_eq!(reached(Some(&other), "https://127.0.0.1:6443"), Some(other));
    }

    #[tokio::test]
    async fn an_error_shows_nothing_of_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("kubeconfig");
        for text in [
            "users:\n- name: a\n  user: {token: S3CRET}\nclusters: [\"a\"b]\n",
            "users: S3CRET\n",
            "current-context: S3CRET\n",
            "current-context: a\ncontexts:\n- {name: a, context: {cluster: S3CRET, user: a}}\n",
        ] {
            std::fs::write(&path, text).expect("written");
            let error = connect(&at(&path)).await.err().expect("no kubeconfig");
            let said = format!("{error:#} {error:?}");
            let why = said.contains("line ") || said.contains("its context");
            assert!(why && !said.contains("S3CRET"), "{said}");
        }
    }

    #[tokio::test]
    async fn a_file_that_is_missing_is_told_once() {
        let missing = Path::new("/nowhere/kubeconfig");
        let error = connect(&at(missing)).await.err().expect("no kubeconfig");
        let said = format!("{error:#}");
        assert_eq!(said.matches("No such file").count(), 1, "{said}");
    }

    #[test]
    fn the_address_is_shown_without_a_user() {
        for (url, text) in [
            ("https://api.example:6443/", "https://api.example:6443"),
            (
                "https://me:S3CRET@api.example/k8s/c",
                "https://api.example/k8s/c",
            ),
        ] {
            assert_eq!(shown(&url.parse().expect("a URI")), text);
        }
    }

    /// Long enough for the answer of a busy machine.
    const BOUND: Duration = Duration::from_secs(6);

    /// Answers requests on one connection with empty objects. The very first answer comes at once, later ones after
    /// `late`.
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

    /// A server with such answers. Returns its address and the number of requests it got.
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

    /// Whether the second of two requests is answered, with a pause between them.
    async fn is_answered(pause: Duration, late: Duration) -> bool {
        let (address, _) = server("200 OK", late).await;
        let config = Config::new(address.parse().expect("a URI"));
        let client = Client::try_from(silent_at_most(BOUND, config)).expect("a client");
        let ask = async || client.list_core_api_versions().await;
        // Empty objects cannot be decoded. That an answer came is enough.
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
        let clients = connect(&at(file.path())).await.expect("clients");
        for (asker, times) in [(clients.request, 1), (clients.watch, 2)] {
            let answer = asker.list_core_api_versions().await;
            assert!(matches!(&answer, Err(kube::Error::Api(_))), "{answer:?}");
            assert_eq!(asked.load(Ordering::Relaxed), times);
        }
    }
}
