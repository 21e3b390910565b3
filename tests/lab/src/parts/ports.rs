//! Free loopback ports.

use std::net::TcpListener;

use anyhow::{Context as _, Result};

/// `N` different free loopback TCP ports.
///
/// Caveat: they are free when this returns, but not reserved. If another process takes the port of a part, the part
/// fails to start, and [`with_fresh_ports`] starts it again on other ports.
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

/// Whether a program ended because its address was in use. Go and Rust programs write the message with a different
/// first letter.
fn is_taken(error: &anyhow::Error) -> bool {
    let said = format!("{error:#}").to_lowercase();
    said.contains("address already in use")
}

/// Runs `start` again, at most three times, while it fails because its address is in use.
pub(super) async fn with_fresh_ports<T, F: Future<Output = Result<T>>>(
    mut start: impl FnMut() -> F,
) -> Result<T> {
    let mut attempt = 1;
    loop {
        match start().await {
            Err(error) if attempt < 3 && is_taken(&error) => attempt += 1,
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::anyhow;

    use super::*;

    #[tokio::test]
    async fn whoever_lost_its_address_is_started_again_and_nobody_else() {
        let taken = std::io::Error::from_raw_os_error(rustix::io::Errno::ADDRINUSE.raw_os_error());
        for (said, starts) in [
            ("listen tcp 127.0.0.1:1: bind: address already in use", 3),
            (taken.to_string().as_str(), 3),
            ("the disk is on fire", 1),
        ] {
            let started = Cell::new(0);
            let outcome = with_fresh_ports(|| {
                started.set(started.get() + 1);
                std::future::ready(Err::<(), _>(anyhow!("{said}").context("not ready")))
            });
            assert!(outcome.await.is_err());
            assert_eq!(started.get(), starts, "{said}");
        }
    }
}
