//! How the operator identifies itself to the API server: the `User-Agent` of every request and the `fieldManager` of
//! every write.
//!
//! Guarantee: the audit log and `managedFields` show which requests came from this operator. Caveat: a write that does
//! not use the request client has no `fieldManager`. Watches write nothing.

use http::{HeaderName, HeaderValue, Method, Request, Uri, header::USER_AGENT, uri::PathAndQuery};
use tower::util::MapRequestLayer;

/// The query parameter with our name in `managedFields`.
const FIELD_MANAGER: &str = "fieldManager=agent-forge";

/// The header that every request carries.
pub fn user_agent() -> (HeaderName, HeaderValue) {
    let said = concat!("agent-forge/", env!("CARGO_PKG_VERSION"));
    (USER_AGENT, HeaderValue::from_static(said))
}

/// Adds the `fieldManager` to each write.
pub fn layer<B>() -> MapRequestLayer<fn(Request<B>) -> Request<B>> {
    MapRequestLayer::new(sign)
}

fn sign<B>(mut request: Request<B>) -> Request<B> {
    if let Some(signed) = signed(request.method(), request.uri()) {
        *request.uri_mut() = signed;
    }
    request
}

/// The URI with our field manager; `None` if the request takes none. A DELETE has no field manager.
fn signed(method: &Method, uri: &Uri) -> Option<Uri> {
    if ![Method::POST, Method::PUT, Method::PATCH].contains(method) {
        return None;
    }
    let asked = uri.query().filter(|query| !query.is_empty());
    let query = match asked {
        Some(query) => format!("{query}&{FIELD_MANAGER}"),
        None => FIELD_MANAGER.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    let path = format!("{}?{query}", uri.path());
    parts.path_and_query = Some(path.parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_signed_and_nothing_else_of_them_changes() {
        for (method, asked, sent) in [
            (
                Method::POST,
                "/api/v1/pods",
                Some("/api/v1/pods?fieldManager=agent-forge"),
            ),
            (Method::PUT, "/a?", Some("/a?fieldManager=agent-forge")),
            (
                Method::PATCH,
                "/a?dryRun=All",
                Some("/a?dryRun=All&fieldManager=agent-forge"),
            ),
            (
                Method::PATCH,
                "https://[::1]:6443/prefix/a",
                Some("https://[::1]:6443/prefix/a?fieldManager=agent-forge"),
            ),
            (Method::DELETE, "/a", None),
            (Method::GET, "/a?watch=true", None),
        ] {
            let signed = signed(&method, &asked.parse().expect("a URI"));
            let signed = signed.map(|uri| uri.to_string());
            assert_eq!(signed.as_deref(), sent, "{method} {asked}");
        }
    }
}
