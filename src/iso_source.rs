//! Downloads discovery ISOs.
//!
//! The URL comes from an object that other people write. Therefore addresses that only make sense inside our own
//! machine or cloud (loopback, link-local, metadata) are refused. The check comes after the name is resolved, and the
//! connection uses the address that was checked. Redirects are followed by this module, three at most, with the same
//! check for each. With a proxy from the environment, the proxy resolves and connects. Then only a literal address can
//! be checked here.
//!
//! Guarantees: a declared length within the limit, no endless stall, and no URL token in any error. A broken download
//! fails. The next one begins from zero, because the bytes of two downloads may belong to different images.

mod door;
mod pace;

use std::time::Duration;

use agent_forge_actors::{
    domain::{failure::Class, text},
    ports::iso_source::{Freshness, IsoDownload, IsoError, IsoRequest, IsoSource, Validators},
};
use agent_forge_crds::conditions::Reason;
use async_trait::async_trait;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper_util::client::proxy::matcher::Matcher;

use self::door::Door;

use crate::vsphere::tls;

/// Settings.
#[derive(Clone, Debug)]
pub struct Options {
    /// Accept loopback and link-local addresses (`--iso-allow-local-source`, labs only).
    pub allow_local: bool,
    /// Largest ISO in bytes.
    pub max_bytes: u64,
    /// Time limit to connect and to receive the head of the answer.
    pub connect_timeout: Duration,
    /// Time span in which at least [`Options::min_progress`] bytes must come. The time that the reader takes does not
    /// count.
    pub stall: Duration,
    /// Bytes per [`Options::stall`].
    pub min_progress: u64,
    /// Time limit of the whole download.
    pub deadline: Duration,
    /// PEM certificates that are trusted in addition to the system's.
    pub extra_ca_pem: Option<String>,
    /// The `User-Agent` header.
    pub user_agent: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allow_local: false,
            max_bytes: 4 << 30,
            connect_timeout: Duration::from_secs(30),
            stall: Duration::from_secs(30),
            min_progress: 256 << 10,
            deadline: Duration::from_secs(3600),
            extra_ca_pem: None,
            user_agent: concat!("agent-forge/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// A validator (ETag, Last-Modified) that is longer, in bytes, is not kept.
const MAX_VALIDATOR: usize = 256;

/// The real [`IsoSource`].
pub struct HttpIsoSource {
    door: Door,
    tls: rustls::ClientConfig,
}

impl std::fmt::Debug for HttpIsoSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpIsoSource")
            .field("options", &self.door.options)
            .finish_non_exhaustive()
    }
}

impl HttpIsoSource {
    /// Reads proxies from the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`).
    ///
    /// # Errors
    /// A sentence for people: the extra certificates cannot be used, or the system has no roots at all.
    pub fn new(options: Options) -> Result<Self, String> {
        Self::with_proxies(options, Matcher::from_env())
    }

    fn with_proxies(options: Options, proxies: Matcher) -> Result<Self, String> {
        let tls = tls::system_and(options.extra_ca_pem.as_deref())?;
        let door = Door { options, proxies };
        Ok(Self { door, tls })
    }

    /// The certificates that are trusted for this request.
    fn tls(&self, request: &IsoRequest) -> Result<rustls::ClientConfig, IsoError> {
        let Some(own) = &request.ca_pem else {
            return Ok(self.tls.clone());
        };
        let all = [self.door.options.extra_ca_pem.as_deref().unwrap_or(""), own].join("\n");
        tls::system_and(Some(&all)).map_err(|why| IsoError {
            reason: Reason::InvalidIsoCaBundle,
            message: format!(
                "spec.iso.caBundleRef: the certificates for the ISO's server are not usable: {why}"
            ),
            class: Class::Blocked,
        })
    }

    async fn ask(
        &self,
        request: &IsoRequest,
        headers: &HeaderMap,
    ) -> Result<reqwest::Response, IsoError> {
        let tls = self.tls(request)?;
        self.door.ask(request.url.expose(), &tls, headers).await
    }

    fn length(&self, response: &reqwest::Response) -> Result<u64, IsoError> {
        let refuse = |reason, message| {
            Err(IsoError {
                reason,
                message,
                class: Class::Blocked,
            })
        };
        let declared = response
            .headers()
            .get(header::CONTENT_LENGTH)
            .and_then(|v| v.to_str().ok()?.parse().ok());
        match declared {
            None | Some(0) => refuse(
                Reason::IsoLengthMissing,
                "the ISO's server does not say how long the ISO is".to_owned(),
            ),
            Some(length) if length > self.door.options.max_bytes => refuse(
                Reason::IsoTooLarge,
                format!(
                    "the ISO has {length} bytes, more than the {} allowed",
                    self.door.options.max_bytes
                ),
            ),
            Some(length) => Ok(length),
        }
    }
}

#[async_trait]
impl IsoSource for HttpIsoSource {
    async fn open(&self, request: &IsoRequest) -> Result<IsoDownload, IsoError> {
        let started = tokio::time::Instant::now();
        let response = self.ask(request, &HeaderMap::new()).await?;
        if response.status() != StatusCode::OK {
            return Err(refused(response.status()));
        }
        let length = self.length(&response)?;
        let validators = validators(&response);
        Ok(IsoDownload {
            length,
            body: pace::paced(&self.door.options, response, length, started),
            validators,
        })
    }

    async fn freshness(
        &self,
        request: &IsoRequest,
        had: &Validators,
    ) -> Result<Freshness, IsoError> {
        // If the ISO has changed, one byte of the body is enough.
        let range = HeaderValue::from_static("bytes=0-0");
        let mut headers = HeaderMap::from_iter([(header::RANGE, range)]);
        for (name, value) in [
            (header::IF_NONE_MATCH, &had.etag),
            (header::IF_MODIFIED_SINCE, &had.last_modified),
        ] {
            if let Some(value) = value.as_deref().and_then(|v| HeaderValue::from_str(v).ok()) {
                headers.insert(name, value);
            }
        }
        let response = self.ask(request, &headers).await?;
        match response.status() {
            StatusCode::NOT_MODIFIED => Ok(Freshness::Same),
            // A whole body is dropped unread, together with the connection.
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => {
                Ok(compared(had, &validators(&response)))
            }
            other => Err(refused(other)),
        }
    }

    fn patience(&self) -> Duration {
        self.door.options.stall
    }
}

fn validators(response: &reqwest::Response) -> Validators {
    let text = |name| {
        let value = response.headers().get(name)?.to_str().ok()?;
        Some(value.to_owned()).filter(|v| !v.is_empty() && v.len() <= MAX_VALIDATOR)
    };
    Validators {
        etag: text(header::ETAG),
        last_modified: text(header::LAST_MODIFIED),
    }
}

/// Compares the validators of a full answer. A server that answers in full may simply not support conditional requests.
/// The ETag outranks the date.
fn compared(had: &Validators, now: &Validators) -> Freshness {
    let of = |had: &Option<String>, now: &Option<String>| match (had, now) {
        (Some(had), Some(now)) if had == now => Some(Freshness::Same),
        (Some(_), Some(_)) => Some(Freshness::Changed),
        _ => None,
    };
    of(&had.etag, &now.etag)
        .or_else(|| of(&had.last_modified, &now.last_modified))
        .unwrap_or(Freshness::Unknown)
}

fn refused(status: StatusCode) -> IsoError {
    let again = status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
        );
    let class = if again {
        Class::Transient
    } else {
        Class::Blocked
    };
    failed(
        &format!(
            "the ISO's server answered with HTTP status {}",
            status.as_u16()
        ),
        class,
    )
}

fn failed(message: &str, class: Class) -> IsoError {
    IsoError {
        reason: Reason::IsoDownloadFailed,
        message: text::plain(message),
        class,
    }
}

/// The innermost cause. The outer ones repeat the URL, which contains a token.
fn why(error: &reqwest::Error) -> String {
    if let Some(why) = tls::refusal(error) {
        return format!("the certificate of the ISO's server is not trusted: {why}");
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    if cause.is::<reqwest::Error>() {
        "the request failed".to_owned()
    } else {
        format!("the download failed: {cause}")
    }
}

#[cfg(test)]
mod tests;
