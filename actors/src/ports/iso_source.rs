//! Where the discovery ISO comes from: the Assisted Installer's image service.

use std::time::Duration;

use agent_forge_crds::conditions::Reason;
use async_trait::async_trait;

use super::vcenter::ByteStream;
use crate::domain::failure::{Class, ErrorSource, ReconcileError};

/// URL of an ISO. It carries a bearer token, so it never prints whole.
#[derive(Clone, PartialEq, Eq)]
pub struct IsoUrl(url::Url);

/// A text is not a usable ISO URL. The error does not show its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an absolute http or https URL")]
pub struct BadIsoUrl;

impl IsoUrl {
    /// Parses an absolute http(s) URL.
    ///
    /// # Errors
    /// [`BadIsoUrl`].
    pub fn parse(text: &str) -> Result<Self, BadIsoUrl> {
        let url = url::Url::parse(text.trim()).map_err(|_| BadIsoUrl)?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(BadIsoUrl);
        }
        Ok(Self(url))
    }

    /// The whole URL, for the one request that needs it.
    #[must_use]
    pub fn expose(&self) -> &url::Url {
        &self.0
    }

    /// Whether it is plain `http` to another host: anybody on the way can change the ISO, and read the token.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let is_local = match self.0.host() {
            Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
            Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
            Some(url::Host::Domain(name)) => name == "localhost",
            None => false,
        };
        self.0.scheme() == "http" && !is_local
    }

    /// Whether it is an image of the assisted service: `byapikey`, `byid` or `bytoken` is in its path. That server sends no
    /// `ETag`, and its `Last-Modified` changes without a change of the image. So only InfraEnv, URL and `createdTime` show a
    /// change.
    #[must_use]
    pub fn is_assisted(&self) -> bool {
        self.0
            .path_segments()
            .into_iter()
            .flatten()
            .any(|s| matches!(s, "byapikey" | "byid" | "bytoken"))
    }

    /// The URL as status and logs may show it, without query, fragment and userinfo. For an image of the assisted service:
    /// everything except its token, the path segment after `byapikey` or `bytoken`. The path of another server may hold a
    /// token anywhere. So only scheme, host and last segment are shown, with `...` between.
    #[must_use]
    pub fn redacted(&self) -> String {
        if self.is_assisted() {
            return self.identity();
        }
        let mut url = self.bare();
        let mut segments: Vec<&str> = self.0.path_segments().into_iter().flatten().collect();
        if segments.len() > 1 {
            segments.splice(..segments.len() - 1, ["..."]);
        }
        url.set_path(&path_of(&segments));
        url.to_string()
    }

    /// Host and port, for traces: they show no URL, not even a redacted one.
    #[must_use]
    pub fn server(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        let port = self.0.port_or_known_default();
        port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Identifies this source, as input of a digest that is not shown: the URL without query, fragment, userinfo and known
    /// token. The known token is the path segment after `byapikey` or `bytoken`.
    #[must_use]
    pub fn identity(&self) -> String {
        let mut url = self.bare();
        let mut hide = false;
        let segments: Vec<&str> = self
            .0
            .path_segments()
            .into_iter()
            .flatten()
            .map(|s| {
                let shown = if hide { "REDACTED" } else { s };
                hide = matches!(s, "byapikey" | "bytoken");
                shown
            })
            .collect();
        url.set_path(&path_of(&segments));
        url.to_string()
    }

    /// The version in a URL of the assisted service: `<marker>/<which image>/<version>/...`.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        let mut segments = self.0.path_segments()?;
        segments.find(|s| matches!(*s, "byapikey" | "byid" | "bytoken"))?;
        let version = segments.nth(1).filter(|v| !v.is_empty())?;
        segments.next().map(|_| version.to_owned())
    }

    /// The URL without query, fragment and userinfo.
    fn bare(&self) -> url::Url {
        let mut url = self.0.clone();
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        url
    }
}

/// The path with these segments. It begins with a slash of its own, so that an empty first segment stays.
fn path_of(segments: &[&str]) -> String {
    format!("/{}", segments.join("/"))
}

impl std::fmt::Debug for IsoUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.redacted())
    }
}

impl std::fmt::Display for IsoUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.redacted())
    }
}

/// What to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IsoRequest {
    /// Where it is.
    pub url: IsoUrl,
    /// PEM certificates of CAs that may sign the server's certificate, beside those that the operator trusts anyway.
    pub ca_pem: Option<String>,
}

/// What a server sends about its bytes, so that a change shows without a download (RFC 9110, 8.8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validators {
    /// `ETag`, as sent.
    pub etag: Option<String>,
    /// `Last-Modified`, as sent.
    pub last_modified: Option<String>,
}

impl Validators {
    /// Nothing to compare by.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }
}

/// Whether the server still has the bytes that were fetched before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It has the same bytes.
    Same,
    /// It has other bytes.
    Changed,
    /// Its answer does not show it.
    Unknown,
}

/// An opened download.
pub struct IsoDownload {
    /// Declared length in bytes.
    pub length: u64,
    /// What the server sent about these bytes.
    pub validators: Validators,
    /// The bytes; the adapter enforces stall and overall deadlines and fails the stream.
    pub body: ByteStream,
}

/// Why the ISO could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct IsoError {
    /// Why, as one word for conditions.
    pub reason: Reason,
    /// One sentence for people, without the URL's token.
    pub message: String,
    /// What it means for the next try.
    pub class: Class,
}

/// Downloads ISOs.
#[async_trait]
pub trait IsoSource: Send + Sync {
    /// Opens a download from the start.
    ///
    /// # Errors
    /// [`IsoError`]: address not allowed, unreachable, HTTP status, no length, too large.
    async fn open(&self, request: &IsoRequest) -> Result<IsoDownload, IsoError>;

    /// Asks, without a download, whether the server still has the bytes that these validators describe.
    ///
    /// # Errors
    /// As [`Self::open`].
    async fn freshness(
        &self,
        request: &IsoRequest,
        had: &Validators,
    ) -> Result<Freshness, IsoError>;

    /// How long a download may be silent before it fails by itself. An empty chunk shows that it continues.
    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }
}

impl From<IsoError> for ReconcileError {
    fn from(e: IsoError) -> Self {
        Self {
            side: ErrorSource::Iso,
            reason: e.reason,
            message: e.message,
            class: e.class,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_never_print() {
        for (url, shown) in [
            (
                "https://img/byapikey/SECRET/4.19/x86_64/full.iso",
                "https://img/byapikey/REDACTED/4.19/x86_64/full.iso",
            ),
            (
                "https://img/bytoken/SECRET/4.19/x86_64/full.iso?t=SECRET",
                "https://img/bytoken/REDACTED/4.19/x86_64/full.iso",
            ),
            (
                "http://u:SECRET@img:8080/byid/1/x.iso#SECRET",
                "http://img:8080/byid/1/x.iso",
            ),
            (
                "https://mirror:8443/mirror/SECRET/x.iso",
                "https://mirror:8443/.../x.iso",
            ),
            (
                "https://u:SECRET@mirror/SECRET/4.19/SECRET/x.iso?sig=SECRET#SECRET",
                "https://mirror/.../x.iso",
            ),
            ("https://mirror/x.iso?sig=SECRET", "https://mirror/x.iso"),
            ("https://mirror/SECRET/", "https://mirror/.../"),
            ("https://mirror", "https://mirror/"),
        ] {
            let parsed = IsoUrl::parse(url).expect(url);
            assert_eq!(parsed.redacted(), shown);
            assert!(!format!("{parsed} {parsed:?}").contains("SECRET"));
            let again = IsoUrl::parse(shown).expect(shown);
            assert_eq!(again.redacted(), shown, "what is shown stays as it is");
        }
        assert!(IsoUrl::parse("file:///etc/passwd").is_err());
        for (url, assisted) in [
            ("https://img/byid/1/4.19/x86_64/full.iso", true),
            ("https://img/images/byapikey.iso", false),
        ] {
            assert_eq!(IsoUrl::parse(url).expect(url).is_assisted(), assisted);
        }
    }

    #[test]
    fn a_renewed_token_is_the_same_source_and_another_path_is_not() {
        for (one, other, same) in [
            (
                "https://img/byapikey/A/x.iso",
                "https://img/byapikey/B/x.iso",
                true,
            ),
            (
                "https://img/byapikey/A/x.iso",
                "https://img/byapikey/A/y.iso",
                false,
            ),
            (
                "https://mirror/4.19/x.iso",
                "https://mirror/4.20/x.iso",
                false,
            ),
            ("https://mirror//x.iso", "https://mirror/x.iso", false),
            (
                "https://mirror/a/x.iso?sig=1",
                "https://mirror/a/x.iso?sig=2",
                true,
            ),
        ] {
            let of = |url: &str| IsoUrl::parse(url).expect(url).identity();
            assert_eq!(of(one) == of(other), same, "{one} {other}");
        }
    }
}
