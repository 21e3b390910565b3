//! Resolves the names for the client of one vCenter. The connection uses exactly the addresses that were checked,
//! because each look-up of a name may give other addresses.
//!
//! The name of a proxy is resolved here too. The administrator chose it, so it is not checked. Behind a proxy, the
//! proxy resolves the vCenter's name. Then only the text in the Secret was checked.

use std::{error::Error, net::SocketAddr};

use agent_forge_actors::model::server::{BadServer, check_address};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Url;

/// The resolver for the client of one vCenter.
#[derive(Debug)]
pub(super) struct Resolver {
    server: String,
    allow_local: bool,
}

impl Resolver {
    /// The resolver for that server.
    pub(super) fn new(server: &Url, allow_local: bool) -> Self {
        Self {
            server: server.host_str().unwrap_or_default().to_owned(),
            allow_local,
        }
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let checked = name.as_str().eq_ignore_ascii_case(&self.server);
        let allow_local = self.allow_local;
        Box::pin(async move {
            let name = name.as_str();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name, 0)).await?.collect();
            if checked {
                // All addresses must pass: one bad address among several is a trick, or at least a mistake.
                found
                    .iter()
                    .try_for_each(|a| check_address(name, a.ip(), allow_local))?;
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The reason, if this error occurred because an address is refused.
pub(super) fn refusal(error: &(dyn Error + 'static)) -> Option<String> {
    let mut current = Some(error);
    while let Some(e) = current {
        if let Some(refused) = e.downcast_ref::<BadServer>() {
            return Some(refused.to_string());
        }
        current = e.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_name_that_means_this_machine_leads_nowhere() {
        // Fails if it is already set, with the same value.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server: Url = format!("http://localhost:{port}/").parse().expect("a URL");
        let ask = async |allow_local| {
            let client = reqwest::Client::builder()
                .no_proxy()
                .dns_resolver(Arc::new(Resolver::new(&server, allow_local)))
                .build()
                .expect("a client");
            let hang_up = async { drop(listener.accept().await) };
            tokio::select! {
                answer = client.get(server.clone()).send() => answer.err(),
                () = hang_up => None,
            }
        };
        let refused = ask(false).await.expect("nobody was there");
        let why = refusal(&refused).expect("a refusal");
        for named in ["localhost resolves to", "a loopback address"] {
            assert!(why.contains(named), "{why}");
        }
        assert!(ask(true).await.is_none(), "somebody connects");
    }
}
