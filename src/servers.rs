//! The servers of the operator: metrics, health, web page, debug endpoint. Each has a flag with its address. Metrics and
//! web page speak HTTPS where other hosts may reach them.

use std::{net::SocketAddr, sync::Arc};

use http::StatusCode;
use tokio::sync::OnceCell;
use tokio_rustls::TlsAcceptor;

use crate::{
    args::Args,
    cluster::reviews::Reviews,
    debug,
    health::Health,
    standby,
    telemetry::{
        http::{Answer, Limits, answer, parse_address, serve, serve_within, text},
        metrics::Metrics,
        places::Places,
        tls::{self, MinVersion},
    },
    web::{
        self, Web,
        access::{Access, Reviewer},
    },
};

const METRICS: &str = "/metrics";
/// The most connections of probes, and the most of one address. The kubelet needs one at a time.
const PROBES: (usize, usize) = (64, 16);

/// What the servers share that other hosts may reach.
pub struct Guard {
    reviewer: Arc<Reviewer>,
    certificate: Option<tls::Files>,
    lowest: MinVersion,
    tls: OnceCell<TlsAcceptor>,
}

impl Guard {
    /// `reviews` decides who may see what.
    #[must_use]
    pub fn new(args: &Args, reviews: Arc<dyn Reviews>) -> Self {
        Self {
            reviewer: Arc::new(Reviewer::new(reviews)),
            certificate: args.certificate(),
            lowest: args.tls_min_version,
            tls: OnceCell::new(),
        }
    }

    /// One certificate for both servers. It is read when the first of them needs it.
    async fn tls(&self) -> anyhow::Result<TlsAcceptor> {
        let made = async || tls::acceptor(self.certificate.clone(), self.lowest);
        self.tls.get_or_try_init(made).await.cloned()
    }
}

/// Whether a server speaks HTTPS: on each address that other hosts may reach, unless a flag says otherwise.
fn is_secure(asked: Option<bool>, address: SocketAddr) -> bool {
    asked.unwrap_or(!address.ip().is_loopback())
}

/// Whether a server asks the API server whose tokens it gets, with these flags.
#[must_use]
pub fn reviews_tokens(args: &Args) -> bool {
    let at = |flag, text: &str| parse_address(flag, text).ok().flatten();
    let metrics = at("--metrics-bind-address", &args.metrics_bind_address);
    let page = at("--web-bind-address", &args.web_bind_address);
    metrics.is_some_and(|address| is_secure(args.metrics_secure, address))
        || page.is_some_and(|address| !address.ip().is_loopback())
}

/// Serves `/metrics`. Over HTTPS, only for those who may `get` that path.
///
/// # Errors
/// The address or the certificate cannot be used.
pub async fn metrics(args: &Args, metrics: Arc<Metrics>, guard: &Guard) -> anyhow::Result<()> {
    let flag = "--metrics-bind-address";
    let Some(address) = parse_address(flag, &args.metrics_bind_address)? else {
        return Ok(());
    };
    let mut limits = Limits {
        connections: Some(web::connections()),
        tls: None,
    };
    let mut reviewer = None;
    if is_secure(args.metrics_secure, address) {
        limits.tls = Some(guard.tls().await?);
        reviewer = Some(guard.reviewer.clone());
    }
    let is_open = reviewer.is_none();
    let bound = serve_within("metrics", address, limits, move |asked| {
        let (metrics, reviewer) = (metrics.clone(), reviewer.clone());
        async move {
            if asked.path != METRICS {
                return text(StatusCode::NOT_FOUND, "GET /metrics\n");
            }
            if let Some(reviewer) = reviewer
                && let Err(refused) = reviewer.may_get(&asked, METRICS).await
            {
                return refused.answer();
            }
            match metrics.text() {
                Ok(body) => answer(StatusCode::OK, "text/plain; version=0.0.4", body),
                Err(e) => text(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
            }
        }
    })
    .await?;
    match is_open {
        true => {
            tracing::info!(%bound, "metrics over HTTP: every client that reaches the address reads them")
        }
        false => tracing::info!(%bound, "metrics over HTTPS, for tokens that may get /metrics"),
    }
    Ok(())
}

/// Serves `/healthz` and `/readyz`.
///
/// # Errors
/// The address cannot be used.
pub async fn health(args: &Args, web: &Web, health: Health) -> anyhow::Result<()> {
    let flag = "--health-probe-bind-address";
    let Some(address) = parse_address(flag, &args.health_probe_bind_address)? else {
        return Ok(());
    };
    let (caches, standing) = (web.caches.clone(), web.standing.clone());
    // Every client of the network may ask.
    let limits = Limits {
        connections: Some(Places::new(PROBES.0, PROBES.1)),
        tls: None,
    };
    serve_within("health", address, limits, move |asked| {
        let (ready, leads) = (caches.is_warm(), caches.leads());
        let said = standby::readiness(&standing.borrow());
        let answer = health_answer(&asked.path, health.check(), ready, leads, said);
        async move { answer }
    })
    .await?;
    Ok(())
}

fn health_answer(
    path: &str,
    lives: Result<(), String>,
    ready: bool,
    leads: bool,
    said: String,
) -> Answer {
    if let ("/healthz", Err(why)) = (path, lives) {
        tracing::error!("not healthy: {why}");
        let why = format!("no progress: {why}\n");
        return text(StatusCode::SERVICE_UNAVAILABLE, why);
    }
    match (path, ready) {
        // A standby instance counts as ready. Otherwise a rollout of two replicas would never finish.
        ("/readyz", true) if !leads => text(StatusCode::OK, said),
        ("/healthz", _) | ("/readyz", true) => text(StatusCode::OK, "ok\n"),
        ("/readyz", false) => text(
            StatusCode::SERVICE_UNAVAILABLE,
            "waiting for the first complete lists; see the log\n",
        ),
        _ => text(StatusCode::NOT_FOUND, "GET /healthz, /readyz\n"),
    }
}

/// Serves the web page. On an address that is not loopback, the API server decides who may see what.
///
/// # Errors
/// The address or the certificate cannot be used.
pub async fn web(args: &Args, web: &Web, guard: &Guard) -> anyhow::Result<()> {
    let Some(address) = parse_address("--web-bind-address", &args.web_bind_address)? else {
        return Ok(());
    };
    let mut web = web.clone();
    if !address.ip().is_loopback() {
        web.access = Access::Reviewed(guard.reviewer.clone());
    }
    let secure = is_secure(args.web_secure, address);
    let handler = move |asked| {
        let web = web.clone();
        async move { web.handle(asked).await }
    };
    let limits = Limits {
        connections: Some(web::connections()),
        tls: match secure {
            true => Some(guard.tls().await?),
            false => None,
        },
    };
    let bound = serve_within("web", address, limits, handler).await?;
    match (bound.ip().is_loopback(), secure) {
        (true, _) => tracing::info!(%bound, secure, "web page: every client of this host may look"),
        (false, true) => tracing::info!(%bound, "web page over HTTPS"),
        (false, false) => {
            tracing::warn!(%bound, "web page over HTTP: tokens arrive unencrypted; there has to be a proxy with TLS in front of it")
        }
    }
    Ok(())
}

/// Serves the debug endpoint.
///
/// # Errors
/// The address cannot be used, or is not loopback.
pub async fn debug(args: &Args, web: &Web) -> anyhow::Result<()> {
    let Some(address) = parse_address("--debug-bind-address", &args.debug_bind_address)? else {
        return Ok(());
    };
    anyhow::ensure!(
        address.ip().is_loopback(),
        "--debug-bind-address={address}: only a loopback address is allowed"
    );
    let web = web.clone();
    let bound = serve("debug", address, move |asked| {
        debug::handle(web.clone(), asked)
    })
    .await?;
    tracing::warn!(%bound, "debug endpoint: every client that reaches it can kill actors");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_hosts_reach_is_encrypted_unless_a_flag_says_otherwise() {
        let at = |text: &str| text.parse::<SocketAddr>().expect("an address");
        for (asked, address, secure) in [
            (None, "[::]:8443", true),
            (None, "10.0.0.1:8443", true),
            (None, "127.0.0.1:8080", false),
            (None, "[::1]:8080", false),
            (Some(true), "127.0.0.1:8080", true),
            (Some(false), "[::]:8080", false),
        ] {
            assert_eq!(is_secure(asked, at(address)), secure, "{asked:?} {address}");
        }
    }
}
