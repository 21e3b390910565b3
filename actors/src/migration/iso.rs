//! The record of an ISO that the predecessor uploaded. Pure.

use agent_forge_crds::{Time, pool::IsoStatus};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::{domain::names::DatastorePath, ports::iso_source::IsoUrl};

/// An ISO that the predecessor uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedIso {
    /// SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
    /// Where it is.
    pub path: DatastorePath,
    /// Its size in bytes.
    pub size: u64,
    /// When it was uploaded.
    pub uploaded_at: Timestamp,
}

/// The file that the predecessor's status names, if it is of this very source. The predecessor knew no source keys, but
/// recorded the URL that it fetched. A file that is older than the image (`created`) belongs to another version. The
/// cache checks that it is there before it is used.
#[must_use]
pub fn file(
    iso: &IsoStatus,
    datastore: &str,
    source: &IsoUrl,
    created: Option<&Time>,
) -> Option<RecordedIso> {
    let ours = iso.source_key.is_some();
    // Later releases record the URL without its credential, and the digest of the whole URL.
    let same = match iso.url_hash.as_deref() {
        Some(hash) => hash.eq_ignore_ascii_case(&digest_of(source)),
        None => iso.url.as_deref().is_some_and(|url| is_of(url, source)),
    };
    if ours || !same {
        return None;
    }
    let uploaded_at = iso.uploaded_at.as_ref()?.0;
    if created.is_some_and(|at| uploaded_at < at.0) {
        return None;
    }
    Some(RecordedIso {
        sha256: iso.sha256.clone()?,
        path: DatastorePath::new(datastore, iso.path.as_deref()?).ok()?,
        size: u64::try_from(iso.size_bytes?).ok()?,
        uploaded_at,
    })
}

/// SHA-256 of the whole URL.
fn digest_of(source: &IsoUrl) -> String {
    hex::encode(Sha256::digest(source.expose().as_str()))
}

/// Whether that URL was fetched from this source. It is complete, as the predecessor wrote it, or shortened by
/// [`fit_to_show`]. Without the token, the URLs of two InfraEnvs may be equal. What is left of another server's URL
/// proves too little.
fn is_of(fetched: &str, source: &IsoUrl) -> bool {
    source.is_assisted() && fetched == source.redacted()
        || IsoUrl::parse(fetched).as_ref() == Ok(source)
}

/// The predecessor's URL contains the token, which is removed here. The rest is kept only if it belongs to the wanted
/// source, because later it would be taken for that.
pub fn fit_to_show(iso: &mut IsoStatus, source: &IsoUrl) {
    let ours = iso.source_key.is_some();
    let url = iso.url.take().filter(|url| ours || is_of(url, source));
    iso.url = url.map(|url| shown(&url));
}

/// A URL from a status in a form that may be shown: the predecessor wrote it with its token.
#[must_use]
pub fn shown(url: &str) -> String {
    IsoUrl::parse(url).map_or_else(|_| "REDACTED".to_owned(), |url| url.redacted())
}
