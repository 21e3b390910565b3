//! Who we say we are to the API server: the `User-Agent` of every request, the `fieldManager` of every write.
//!
//! Guarantee: audit log and `managedFields` tell our requests from everybody else's, whoever sends them in here. Caveat: a
//! write past the request client is not signed; watches write nothing.

use http::{HeaderName, HeaderValue, Method, Request, Uri, header::USER_AGENT, uri::PathAndQuery};
use tower::util::MapRequestLayer;

/// Name in `managedFields`.
const FIELD_MANAGER: &str = "fieldManager=agent-forge";

/// The header that every request carries.
pub fn user_agent() -> (HeaderName, HeaderValue) {
    let said = concat!("agent-forge/", env!("CARGO_PKG_VERSION"));
    (USER_AGENT, HeaderValue::from_static(said))
}

/// Signs the writes that go through it.
pub fn layer<B>() -> MapRequestLayer<fn(Request<B>) -> Request<B>> {
    MapRequestLayer::new(sign)
}

fn sign<B>(mut request: Request<B>) -> Request<B> {
    if let Some(signed) = signed(request.method(), request.uri()) {
        *request.uri_mut() = signed;
    }
    request
}

/// The address with our name; `None` where the request does not take one. A deletion has no manager.
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
