//! A fault proxy: carries TCP between a client and one server, until a fault is set.
//!
//! It does not look at the content. As in real networks, connections are reset, refused, or hang with both ends open.
//! TLS passes unchanged, so a client that trusts a loopback certificate notices nothing.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
};
use url::Url;

/// How the network behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Bytes pass.
    Open,
    /// New connections are closed at once; existing ones were cut.
    Refusing,
    /// Connections stay open, and nothing moves in either direction.
    Silent,
}

#[derive(Clone, Copy, Debug)]
struct State {
    network: Network,
    /// Each cut increases it. Connections with an older number end.
    cuts: u64,
}

/// The proxy. When it is dropped, its connections end. It belongs to the async runtime that it was started on.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    state: Arc<watch::Sender<State>>,
    _serving: JoinSet<()>,
}

impl FaultProxy {
    /// Starts a proxy on loopback in front of the server at `url`, which must name a loopback address and a port.
    ///
    /// # Errors
    /// The URL does not name them, or there is no free port.
    pub async fn start(url: &str) -> Result<Self> {
        let parsed = Url::parse(url).with_context(|| format!("read {url:?}"))?;
        let target = parsed
            .socket_addrs(|| None)
            .ok()
            .and_then(|all| all.into_iter().find(|a| a.ip().is_loopback()))
            .with_context(|| format!("{url} names no loopback address"))?;
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .context("find a free loopback port")?;
        let address = listener
            .local_addr()
            .context("read the number of a loopback port")?;
        let state = Arc::new(watch::Sender::new(State {
            network: Network::Open,
            cuts: 0,
        }));
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, target, Arc::clone(&state)));
        Ok(Self {
            address,
            state,
            _serving: serving,
        })
    }

    /// The same URL through the proxy.
    ///
    /// # Errors
    /// The text is not a URL.
    pub fn url(&self, url: &str) -> Result<String> {
        let mut through = Url::parse(url).with_context(|| format!("read {url:?}"))?;
        through
            .set_port(Some(self.address.port()))
            .ok()
            .with_context(|| format!("{url} takes no port"))?;
        Ok(through.as_str().trim_end_matches('/').to_owned())
    }

    /// Resets every existing connection. New ones work.
    pub fn cut(&self) {
        self.state.send_modify(|s| s.cuts += 1);
    }

    /// Sets how the network behaves from now on.
    pub fn set(&self, network: Network) {
        self.state.send_modify(|s| {
            s.network = network;
            s.cuts += u64::from(network == Network::Refusing);
        });
    }
}

async fn serve(listener: TcpListener, target: SocketAddr, state: Arc<watch::Sender<State>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                if state.borrow().network == Network::Refusing {
                    // A reset, not an orderly close.
                    let _ = client.set_zero_linger();
                    continue;
                }
                connections.spawn(carry(client, target, state.subscribe()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn carry(client: TcpStream, target: SocketAddr, state: watch::Receiver<State>) {
    let Ok(server) = TcpStream::connect(target).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let _ = (client.set_zero_linger(), server.set_zero_linger());
    let born = state.borrow().cuts;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let both = async {
        tokio::join!(
            pump(from_client, to_server, state.clone()),
            pump(from_server, to_client, state.clone())
        )
    };
    let mut cut = state.clone();
    tokio::select! {
        _ = cut.wait_for(|s| s.cuts != born) => {}
        _ = both => {}
    }
}

/// Carries one direction until its end. While the network is silent nothing is read, so that the sender's window fills
/// up.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut state: watch::Receiver<State>) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let Ok(read) = from.read(&mut buffer).await else {
            return;
        };
        let moves = |s: &State| s.network != Network::Silent;
        if state.wait_for(moves).await.is_err() {
            return;
        }
        if read == 0 {
            let _ = to.shutdown().await;
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
