//! Names to addresses, for one vCenter. The connection goes to the very addresses that were checked: a name may mean
//! another address at each look.
//!
//! A proxy's own name is resolved here as well, and is the administrator's choice: it is not checked. What stands behind a
//! proxy the proxy resolves; then only what the Secret itself says was checked.

use std::{error::Error, net::SocketAddr};

use agent_forge_actors::domain::server::{BadServer, check_address};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Url;

/// Resolves for the client of one vCenter.
#[derive(Debug)]
pub(crate) struct Resolver {
    server: String,
    allow_local: bool,
}

impl Resolver {
    /// For that server.
    pub(crate) fn new(server: &Url, allow_local: bool) -> Self {
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
                // One unfit address among several is a trick, or at least a mistake.
                found
                    .iter()
                    .try_for_each(|a| check_address(name, a.ip(), allow_local))?;
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Did this error come about because an address is refused? Then the answer to "why" is its text.
pub(crate) fn refusal(error: &(dyn Error + 'static)) -> Option<String> {
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
        // Who set one before has set the same.
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
