//! Which vCenters a credentials Secret may name, and which API servers a kubeconfig. The author of a Secret chooses where the
//! operator connects to. Pure.
//!
//! There are two checks. [`ServerRule::parse`] judges the text when the operator reads the Secret. [`check_address`] judges
//! what the name resolves to when the operator connects.

use std::{fmt, net::IpAddr, str::FromStr};

use url::{Host, Url};

use super::address;

/// What is wrong with key `server`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadServer {
    /// It does not name a vCenter.
    #[error("{0}")]
    Malformed(&'static str),
    /// It names a server that the operator must not connect to.
    #[error("{0}")]
    NotAllowed(String),
}

/// What the operator's flags allow for vCenters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerRule {
    /// Plain http is allowed (`--vsphere-allow-http`, for labs).
    pub allow_http: bool,
    /// Loopback and link-local addresses are allowed (`--vsphere-allow-local-server`, for labs).
    pub allow_local: bool,
    /// Only these hosts (`--allowed-vcenters`); empty: any.
    pub allowed: Vec<HostPattern>,
}

impl ServerRule {
    /// `host`, `host:port`, `https://host[:port]`, with or without `/sdk`, to a base URL.
    ///
    /// # Errors
    /// [`BadServer`] says what it must be.
    pub fn parse(&self, text: &str) -> Result<Url, BadServer> {
        let url = base_url(text, self.allow_http)?;
        let host = url.host_str().unwrap_or_default();
        if !self.allowed.is_empty() && !self.names(host) {
            return Err(BadServer::NotAllowed(format!(
                "{host} is none of the servers that this operator may use; its administrator names them with \
                 --allowed-vcenters"
            )));
        }
        let refused = match url.host() {
            Some(Host::Ipv4(ip)) => address::refused(ip.into()),
            Some(Host::Ipv6(ip)) => address::refused(ip.into()),
            Some(Host::Domain(name)) => address::refused_name(name),
            None => None,
        };
        judge(refused, self.allow_local, || host.to_owned())?;
        Ok(url)
    }

    /// Whether the administrator names that host of a URL. Without a list none is named, although each may be used.
    #[must_use]
    pub fn names(&self, host: &str) -> bool {
        self.allowed.iter().any(|p| p.fits(host))
    }
}

/// `host[:port]` of a server, for messages and metrics.
#[must_use]
pub fn server_name(server: &Url) -> String {
    let host = server.host_str().unwrap_or_default();
    server
        .port()
        .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Whether a vCenter's name may resolve to that address.
///
/// # Errors
/// A sentence that names the address and the reason.
pub fn check_address(name: &str, ip: IpAddr, allow_local: bool) -> Result<(), BadServer> {
    judge(address::refused(ip), allow_local, || {
        format!("{name} resolves to {ip}, which")
    })
}

fn judge(
    refused: Option<address::Refused>,
    allow_local: bool,
    who: impl FnOnce() -> String,
) -> Result<(), BadServer> {
    match refused {
        Some(why) if !(allow_local && why.is_local()) => Err(BadServer::NotAllowed(format!(
            "{} is {}; the operator connects to no server there",
            who(),
            why.text()
        ))),
        _ => Ok(()),
    }
}

fn base_url(text: &str, allow_http: bool) -> Result<Url, BadServer> {
    let bad = |why| Err(BadServer::Malformed(why));
    let with_scheme = if text.contains("://") {
        text.to_owned()
    } else {
        format!("https://{text}")
    };
    let Ok(mut url) = Url::parse(&with_scheme) else {
        return bad("must be a host name, host:port or https URL of a vCenter");
    };
    if !url.username().is_empty() || url.password().is_some() {
        return bad("must not hold a user name or password; use their own keys");
    }
    match url.scheme() {
        "https" => {}
        "http" if allow_http => {}
        "http" => return bad("plain http is refused; use https"),
        _ => return bad("only https is supported"),
    }
    if url.host_str().is_none_or(str::is_empty) {
        return bad("has no host name");
    }
    if !matches!(url.path(), "" | "/" | "/sdk" | "/sdk/")
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return bad("must end after the host, the port or /sdk");
    }
    url.set_path("/");
    Ok(url)
}

/// A host name or address, or `*.domain` for every host below that domain. Ports do not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    /// Lower case, without a dot at the end.
    host: String,
    below: bool,
}

impl HostPattern {
    /// Whether the pattern matches that host of a URL.
    #[must_use]
    pub fn fits(&self, host: &str) -> bool {
        let host = plain(host);
        if self.below {
            let domain = host.strip_suffix(&self.host);
            domain.is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        } else {
            host == self.host
        }
    }
}

fn plain(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_lowercase()
}

/// Whether a label of the name is empty, apart from the one after the last dot. No host is called so.
fn has_empty_label(name: &str) -> bool {
    plain(name).split('.').any(str::is_empty)
}

impl FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (below, name) = match text.strip_prefix("*.") {
            Some(domain) => (true, domain),
            None => (false, text),
        };
        // As in a URL: an address in its one spelling, a name in ASCII.
        let host = Host::parse(name)
            .or_else(|e| name.parse().map(Host::Ipv6).map_err(|_| e))
            .map_err(|_| ())
            .and_then(|host| match host {
                Host::Domain(domain) if has_empty_label(&domain) || domain.contains('*') => Err(()),
                Host::Ipv4(_) | Host::Ipv6(_) if below => Err(()),
                host => Ok(plain(&host.to_string())),
            });
        match host {
            Ok(host) => Ok(Self { host, below }),
            Err(()) => Err(format!(
                "{text:?} is no host: use a name, an address, or *.domain for every host below it; no port, no scheme"
            )),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.below { "*." } else { "" };
        write!(f, "{prefix}{}", self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_normalised() {
        let rule = ServerRule::default();
        for text in [
            "vc.example",
            "https://vc.example",
            "https://vc.example/sdk",
            "vc.example/sdk/",
            "vc.example:443",
        ] {
            let url = rule.parse(text).expect(text);
            assert_eq!(url.as_str(), "https://vc.example/", "{text}");
        }
        assert_eq!(rule.parse("vc:8443").expect("port").port(), Some(8443));
    }

    #[test]
    fn unusable_servers_are_refused() {
        let rule = ServerRule::default();
        for text in [
            "https://u:p@vc",
            "http://vc",
            "ftp://vc",
            "https://vc/ui",
            "https://vc?x=1",
            "https://",
            "vc /x",
        ] {
            let refused = rule.parse(text).expect_err(text);
            assert!(matches!(refused, BadServer::Malformed(_)), "{text}");
        }
        let lab = ServerRule {
            allow_http: true,
            ..rule
        };
        assert!(lab.parse("http://vc").is_ok());
    }

    #[test]
    fn no_spelling_of_this_machine_or_of_a_metadata_service_is_a_vcenter() {
        let strict = ServerRule::default();
        let lab = ServerRule {
            allow_local: true,
            ..ServerRule::default()
        };
        for (server, in_labs) in [
            ("127.0.0.1", true),
            ("127.0.0.1:8443", true),
            ("127.1", true),
            ("0x7f000001", true),
            ("2130706433", true),
            ("0177.0.0.1", true),
            ("127.0.0.1.", true),
            ("https://[::1]/sdk", true),
            ("[::ffff:127.0.0.1]", true),
            ("[::ffff:7f00:1]:443", true),
            ("[64:ff9b::7f00:1]", true),
            ("localhost", true),
            ("LOCALHOST.", true),
            ("vc.localhost", true),
            ("169.254.7.7", true),
            ("[fe80::1]", true),
            ("169.254.169.254", false),
            ("[::ffff:169.254.169.254]", false),
            ("https://2852039166", false),
            ("[fd00:ec2::254]", false),
            ("metadata.google.internal", false),
            ("0.0.0.0", false),
            ("[::]", false),
        ] {
            let refused = strict.parse(server);
            assert!(matches!(refused, Err(BadServer::NotAllowed(_))), "{server}");
            assert_eq!(lab.parse(server).is_ok(), in_labs, "{server}");
        }
        for server in [
            "10.0.0.1",
            "vc.example",
            "[2001:db8::1]",
            "localhost.example",
        ] {
            assert!(strict.parse(server).is_ok(), "{server}");
        }
    }

    #[test]
    fn only_hosts_that_the_administrator_names_are_used() {
        let patterns = ["vc.example", "*.Corp.example.", "192.0.2.7", "2001:db8::7"];
        let allowed = patterns.map(|p| p.parse().expect(p)).to_vec();
        let rule = ServerRule {
            allowed,
            ..ServerRule::default()
        };
        for (server, fits) in [
            ("vc.example", true),
            ("VC.EXAMPLE.:8443", true),
            ("a.corp.example", true),
            ("a.b.corp.example", true),
            ("corp.example", false),
            ("badcorp.example", false),
            ("a.corp.example.evil.test", false),
            ("x.vc.example", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("[2001:db8:0::7]", true),
            ("[2001:db8::8]", false),
        ] {
            assert_eq!(rule.parse(server).is_ok(), fits, "{server}");
        }
        let anything = ServerRule::default();
        for host in ["vc.example", "a.corp.example", "192.0.2.7"] {
            assert!(rule.names(host) && !anything.names(host), "{host}");
        }
        for bad in [
            "",
            "*",
            "*.",
            "169.25..",
            "vc..example",
            "a.*.b",
            "https://vc",
            "vc:443",
            "*.192.0.2.7",
            "a/b",
        ] {
            assert!(bad.parse::<HostPattern>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_name_resolves_to_counts_as_well() {
        for (ip, strict, in_labs) in [
            ("127.0.0.1", false, true),
            ("::ffff:127.0.0.1", false, true),
            ("169.254.169.254", false, false),
            ("10.0.0.1", true, true),
        ] {
            let ip: IpAddr = ip.parse().expect(ip);
            assert_eq!(
                check_address("vc.example", ip, false).is_ok(),
                strict,
                "{ip}"
            );
            assert_eq!(
                check_address("vc.example", ip, true).is_ok(),
                in_labs,
                "{ip}"
            );
        }
        let ip: IpAddr = "127.0.0.1".parse().expect("an address");
        let said = check_address("vc.example", ip, false).expect_err("refused");
        for named in ["vc.example", "127.0.0.1", "loopback"] {
            assert!(said.to_string().contains(named), "{said}");
        }
    }
}
