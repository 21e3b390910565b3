//! The HTTP servers of the operator: metrics, health, web page, debug endpoint. Each has a flag with its address.

use std::{net::SocketAddr, sync::Arc};

use http::StatusCode;

use crate::{
    args::Args,
    cluster::reviews::Reviews,
    debug,
    health::Health,
    standby,
    telemetry::{
        http::{Answer, answer, parse_address, serve, serve_within, text},
        metrics::Metrics,
    },
    web::{
        self, Web,
        access::{Access, Reviewer},
    },
};

/// The address of `/metrics`; `None` if metrics are not served. Metrics are not encrypted. If somebody asks for HTTPS,
/// only a loopback address is served (docs/adr/0013-metrics-secure.md).
fn metrics_address(args: &Args) -> anyhow::Result<Option<SocketAddr>> {
    let address = parse_address("--metrics-bind-address", &args.metrics_bind_address)?;
    let asked = args.legacy.metrics_secure == Some(true);
    let in_the_clear = address.filter(|a| asked && !a.ip().is_loopback());
    if let Some(address) = in_the_clear {
        tracing::warn!(
            "--metrics-secure=true: metrics over HTTPS are not offered, so none are served on {address}; use \
             --metrics-secure=false behind a NetworkPolicy, or a loopback address"
        );
        return Ok(None);
    }
    Ok(address)
}

/// Serves `/metrics`.
///
/// # Errors
/// The address cannot be used.
pub async fn metrics(args: &Args, metrics: Arc<Metrics>) -> anyhow::Result<()> {
    let Some(address) = metrics_address(args)? else {
        return Ok(());
    };
    let bound = serve("metrics", address, move |asked| {
        let metrics = metrics.clone();
        async move {
            if asked.path != "/metrics" {
                return text(StatusCode::NOT_FOUND, "GET /metrics\n");
            }
            match metrics.text() {
                Ok(body) => answer(StatusCode::OK, "text/plain; version=0.0.4", body),
                Err(e) => text(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
            }
        }
    })
    .await?;
    tracing::info!(%bound, "metrics");
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
    serve("health", address, move |asked| {
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

/// Serves the web page. On an address that is not loopback, `reviews` decides who may see what.
///
/// # Errors
/// The address cannot be used.
pub async fn web(args: &Args, web: &Web, reviews: Arc<dyn Reviews>) -> anyhow::Result<()> {
    let Some(address) = parse_address("--web-bind-address", &args.web_bind_address)? else {
        return Ok(());
    };
    let mut web = web.clone();
    if !address.ip().is_loopback() {
        web.access = Access::Reviewed(Arc::new(Reviewer::new(reviews)));
    }
    let handler = move |asked| {
        let web = web.clone();
        async move { web.handle(asked).await }
    };
    let connections = Some(web::connections());
    let bound = serve_within("web", address, connections, handler).await?;
    if bound.ip().is_loopback() {
        tracing::info!(%bound, "web page: every client of this host may look");
    } else {
        tracing::warn!(%bound, "web page: tokens arrive unencrypted; put a proxy with TLS in front of it");
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
    use clap::Parser as _;

    use super::*;

    #[test]
    fn metrics_that_are_to_be_encrypted_do_not_leave_the_pod_in_the_clear() {
        for (secure, address, served) in [
            ("--metrics-secure", ":8443", false),
            ("--metrics-secure=true", "10.0.0.1:8443", false),
            ("--metrics-secure=true", "[::]:8443", false),
            ("--metrics-secure=true", "127.0.0.1:8080", true),
            ("--metrics-secure=true", "[::1]:8080", true),
            ("--metrics-secure=true", "0", false),
            ("--metrics-secure=false", ":8443", true),
            ("--metrics-cert-path=/certs", ":8443", true),
        ] {
            let bind = format!("--metrics-bind-address={address}");
            let args = Args::try_parse_from(["agent-forge", secure, &bind]).expect("accepted");
            let at = metrics_address(&args).expect("an address");
            assert_eq!(at.is_some(), served, "{secure} {address}");
        }
    }
}
