//! Requests to checked addresses, redirects included.

use std::net::SocketAddr;

use agent_forge_actors::{
    domain::{address, failure::Class},
    ports::iso_source::IsoError,
};
use agent_forge_crds::conditions::Reason;
use http::{HeaderMap, StatusCode, header};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use tracing::{Instrument as _, field::Empty};
use url::{Host, Url};

use crate::telemetry::{propagate, server::Server};

use super::{Options, failed, why};

/// How many redirects are followed.
const MAX_REDIRECTS: usize = 3;

/// The settings and proxies of all requests.
pub(super) struct Door {
    pub(super) options: Options,
    pub(super) proxies: Matcher,
}

impl Door {
    /// Sends a GET to `url` and follows redirects; each address is checked like the first. The caller judges the status
    /// of the answer.
    pub(super) async fn ask(
        &self,
        url: &Url,
        tls: &rustls::ClientConfig,
        headers: &HeaderMap,
    ) -> Result<reqwest::Response, IsoError> {
        let mut current = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.get(&current, tls, headers).await?;
            let status = response.status();
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                return Ok(response);
            }
            current = next_hop(&current, &response)?;
        }
        Err(failed(
            &format!("more than {MAX_REDIRECTS} redirects"),
            Class::Blocked,
        ))
    }

    /// One request, to a checked address.
    async fn get(
        &self,
        url: &Url,
        tls: &rustls::ClientConfig,
        headers: &HeaderMap,
    ) -> Result<reqwest::Response, IsoError> {
        let uri: http::Uri = url
            .as_str()
            .parse()
            .map_err(|_| failed("the URL is not usable", Class::Blocked))?;
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls.clone())
            .user_agent(self.options.user_agent.as_str())
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(self.options.connect_timeout)
            .no_proxy();
        if let Some(proxy) = self.proxies.intercept(&uri) {
            self.check_unresolved(url)?;
            builder = builder.proxy(through(&proxy)?);
        } else {
            let (host, addresses) = self.checked_addresses(url).await?;
            builder = builder.resolve_to_addrs(&host, &addresses);
        }
        let client = builder
            .build()
            .map_err(|_| failed("no HTTP client could be made", Class::Defect))?;
        // No path and no query in the span: with them, every reader of the trace could download the image.
        let server = Server::of(url);
        let span = tracing::info_span!(
            "iso.request",
            otel.name = "GET",
            otel.kind = "client",
            http.request.method = "GET",
            server.address = server.address,
            server.port = server.port,
            url.scheme = server.scheme,
            http.response.status_code = Empty,
            otel.status_code = Empty,
            error.type = Empty,
        );
        let mut headers = headers.clone();
        span.in_scope(|| propagate::inject(&mut headers));
        let asked = client.get(url.clone()).headers(headers).send();
        let answer =
            tokio::time::timeout(self.options.connect_timeout, asked.instrument(span.clone()))
                .await;
        let failure = match &answer {
            Ok(Ok(response)) => {
                let status = response.status();
                span.record("http.response.status_code", status.as_u16());
                let bad = status.is_client_error() || status.is_server_error();
                bad.then(|| status.as_str().to_owned())
            }
            Ok(Err(_)) => Some("connection".to_owned()),
            Err(_) => Some("timeout".to_owned()),
        };
        if let Some(failure) = failure {
            span.record("otel.status_code", "ERROR");
            span.record("error.type", failure);
        }
        match answer {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(e)) => Err(failed(&why(&e), Class::Transient)),
            Err(_) => Err(IsoError {
                reason: Reason::IsoStalled,
                message: format!(
                    "no answer from the ISO's server within {} s",
                    self.options.connect_timeout.as_secs()
                ),
                class: Class::Transient,
            }),
        }
    }

    /// Checks an address that a proxy resolves. Only literal addresses and names with a fixed meaning can be checked.
    fn check_unresolved(&self, url: &Url) -> Result<(), IsoError> {
        let ip = match url.host() {
            Some(Host::Ipv4(ip)) => ip.into(),
            Some(Host::Ipv6(ip)) => ip.into(),
            Some(Host::Domain(name)) => return self.judge(&name, address::refused_name(name)),
            None => return Ok(()),
        };
        self.check(ip)
    }

    fn check(&self, ip: std::net::IpAddr) -> Result<(), IsoError> {
        self.judge(&ip, address::refused(ip))
    }

    fn judge(
        &self,
        place: &dyn std::fmt::Display,
        refused: Option<address::Refused>,
    ) -> Result<(), IsoError> {
        match refused {
            Some(why) if !(self.options.allow_local && why.is_local()) => Err(IsoError {
                reason: Reason::IsoAddressNotAllowed,
                message: format!(
                    "the ISO's server is at {place}, {}; downloads from there are refused",
                    why.text()
                ),
                class: Class::Blocked,
            }),
            _ => Ok(()),
        }
    }

    /// The URL's host and its addresses, all of them checked.
    async fn checked_addresses(&self, url: &Url) -> Result<(String, Vec<SocketAddr>), IsoError> {
        let port = url.port_or_known_default().unwrap_or(443);
        let (host, addresses): (String, Vec<SocketAddr>) = match url.host() {
            Some(Host::Ipv4(ip)) => (ip.to_string(), vec![(ip, port).into()]),
            Some(Host::Ipv6(ip)) => (ip.to_string(), vec![(ip, port).into()]),
            Some(Host::Domain(name)) => {
                let found = tokio::time::timeout(
                    self.options.connect_timeout,
                    tokio::net::lookup_host((name, port)),
                )
                .await
                .map_err(|_| {
                    failed(
                        &format!("{name} does not resolve in time"),
                        Class::Transient,
                    )
                })?
                .map_err(|e| failed(&format!("{name} does not resolve: {e}"), Class::Transient))?;
                (name.to_owned(), found.collect())
            }
            None => return Err(failed("the URL names no host", Class::Blocked)),
        };
        if addresses.is_empty() {
            return Err(failed(&format!("{host} has no address"), Class::Transient));
        }
        // All addresses must pass: one bad address among several is a trick, or at least a mistake.
        addresses.iter().try_for_each(|a| self.check(a.ip()))?;
        Ok((host, addresses))
    }
}

pub(super) fn next_hop(current: &Url, response: &reqwest::Response) -> Result<Url, IsoError> {
    let location = response
        .headers()
        .get(header::LOCATION)
        .and_then(|l| l.to_str().ok());
    let next = location.and_then(|l| current.join(l).ok());
    match next {
        Some(next) if matches!(next.scheme(), "http" | "https") => {
            if current.scheme() == "https" && next.scheme() == "http" {
                return Err(failed(
                    "the ISO's server redirects from https to plain http",
                    Class::Blocked,
                ));
            }
            Ok(next)
        }
        _ => Err(failed(
            "the ISO's server redirects to nowhere",
            Class::Blocked,
        )),
    }
}

fn through(intercept: &Intercept) -> Result<reqwest::Proxy, IsoError> {
    let mut proxy = reqwest::Proxy::all(intercept.uri().to_string()).map_err(|_| {
        failed(
            "the proxy from the environment is not usable",
            Class::Blocked,
        )
    })?;
    if let Some(authorization) = intercept.basic_auth() {
        proxy = proxy.custom_http_auth(authorization.clone());
    }
    Ok(proxy)
}
