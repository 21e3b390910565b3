//! Free loopback ports.

use std::net::TcpListener;

use anyhow::{Context as _, Result};

/// `N` different loopback TCP ports that nobody listens on.
///
/// Caveat: they are free when this returns, not reserved. A part that loses its port to somebody else fails to start,
/// and [`with_fresh_ports`] starts it again on others.
pub(super) fn free<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    for _ in 0..N {
        held.push(TcpListener::bind(("127.0.0.1", 0)).context("find a free loopback port")?);
    }
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener
            .local_addr()
            .context("read the number of a loopback port")?
            .port();
    }
    Ok(ports)
}

/// Runs `start` again, at most three times, as long as it fails because its address was taken meanwhile.
pub(super) async fn with_fresh_ports<T, F: Future<Output = Result<T>>>(
    mut start: impl FnMut() -> F,
) -> Result<T> {
    let mut attempt = 1;
    loop {
        match start().await {
            Err(error)
                if attempt < 3 && format!("{error:#}").contains("address already in use") =>
            {
                attempt += 1
            }
            outcome => return outcome,
        }
    }
}
