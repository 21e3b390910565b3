//! The server of a request, as attributes of its span. Nothing else of the URL is put there.

use url::Url;

/// The server of a request, with the names of the OpenTelemetry semantic conventions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// `server.address`: host name or address; IPv6 without brackets.
    pub address: String,
    /// `server.port`.
    pub port: Option<u16>,
    /// `url.scheme`.
    pub scheme: String,
}

impl Server {
    /// The server of `url`.
    #[must_use]
    pub fn of(url: &Url) -> Self {
        let host = url.host_str().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        Self {
            address: address.to_owned(),
            port: url.port_or_known_default(),
            scheme: url.scheme().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart_and_nothing_else_of_it_is_left() {
        let of = |url: &str| Server::of(&url.parse().expect("a URL"));
        let told = |address: &str, port, scheme: &str| Server {
            address: address.to_owned(),
            port: Some(port),
            scheme: scheme.to_owned(),
        };
        let secret = of("https://user:secret@vc.example/byid/1?image_token=secret#x");
        assert_eq!(secret, told("vc.example", 443, "https"));
        let lab = of("http://[::1]:8080/sdk");
        assert_eq!(lab, told("::1", 8080, "http"));
    }
}
