//! Free loopback ports.

use std::{
    collections::BTreeSet,
    net::TcpListener,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result};

/// Ports that this process has handed out. Without it, two parts that start at the same time could get the same one, and
/// the second would take the first one's answers for its own.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// `N` different free loopback TCP ports. No call in this process returns a port twice.
///
/// Caveat: they are free when this returns, but not reserved. If another process takes the port of a part, the part
/// fails to start, and [`with_fresh_ports`] starts it again on other ports.
pub(super) fn free<const N: usize>() -> Result<[u16; N]> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    // What is held cannot be found again.
    let mut held = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        *port = loop {
            let listener =
                TcpListener::bind(("127.0.0.1", 0)).context("find a free loopback port")?;
            let address = listener.local_addr();
            let port = address
                .context("read the number of a loopback port")?
                .port();
            held.push(listener);
            if given.insert(port) {
                break port;
            }
        };
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
