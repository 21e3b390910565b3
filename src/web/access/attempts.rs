//! How many unknown tokens one address may send. Each costs the API server a review.
//!
//! Guarantee: one address gets at most [`MOST`] tokens reviewed at the same time, and at most [`MOST`] refused within
//! [`REMEMBERED`]. All addresses of an IPv6 network of 64 bits are one.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::telemetry::places::RETRY;

/// How long a refused token counts against its sender.
pub const REMEMBERED: Duration = Duration::from_secs(60);
/// The most tokens of one address that are under review or were refused lately.
pub const MOST: usize = 20;
/// The most addresses that are remembered. Others are refused while there are so many.
const MOST_SENDERS: usize = 4096;

/// What one address has sent.
#[derive(Debug, Default)]
struct Sender {
    under_way: usize,
    refused: VecDeque<Instant>,
}

/// The unknown tokens, by address.
#[derive(Debug, Default)]
pub struct Attempts(Mutex<BTreeMap<IpAddr, Sender>>);

/// A token under review. It is over when this is dropped.
#[derive(Debug)]
pub struct Attempt<'a> {
    all: &'a Attempts,
    sender: IpAddr,
}

impl Attempts {
    /// Begins the review of a token from that address.
    ///
    /// # Errors
    /// The address has to wait so long.
    pub fn begin(&self, peer: IpAddr) -> Result<Attempt<'_>, Duration> {
        let now = Instant::now();
        let sender = network(peer);
        let mut all = self.all();
        all.retain(|_, s| {
            s.refused.retain(|at| now.duration_since(*at) < REMEMBERED);
            s.under_way > 0 || !s.refused.is_empty()
        });
        if all.len() >= MOST_SENDERS && !all.contains_key(&sender) {
            return Err(REMEMBERED);
        }
        let known = all.entry(sender).or_default();
        if known.under_way + known.refused.len() >= MOST {
            let oldest = known.refused.front().filter(|_| known.under_way == 0);
            let ends = oldest.map(|at| REMEMBERED.saturating_sub(now.duration_since(*at)));
            return Err(ends.unwrap_or(Duration::from_secs(RETRY.into())));
        }
        known.under_way += 1;
        Ok(Attempt { all: self, sender })
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Sender>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempt<'_> {
    /// The API server does not accept the token.
    pub fn refused(self) {
        let mut all = self.all.all();
        all.entry(self.sender)
            .or_default()
            .refused
            .push_back(Instant::now());
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(known) = self.all.all().get_mut(&self.sender) {
            known.under_way = known.under_way.saturating_sub(1);
        }
    }
}

/// The part of an address that one sender cannot choose at will.
fn network(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(all) => Ipv6Addr::from_bits(all.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_address_has_a_share_and_gets_it_back() {
        let all = Attempts::default();
        let address = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let (one, other) = (address("10.0.0.1"), address("10.0.0.2"));
        let under_way: Vec<_> = (0..MOST).map(|_| all.begin(one).ok()).collect();
        assert!(under_way.iter().all(Option::is_some));
        assert_eq!(
            all.begin(one).err(),
            Some(Duration::from_secs(RETRY.into()))
        );
        assert!(all.begin(other).is_ok(), "another address");
        drop(under_way);
        for _ in 0..MOST {
            all.begin(one)
                .expect("accepted tokens do not count")
                .refused();
        }
        advance(Duration::from_secs(10)).await;
        assert_eq!(
            all.begin(one).err(),
            Some(REMEMBERED - Duration::from_secs(10))
        );
        advance(REMEMBERED).await;
        assert!(all.begin(one).is_ok());
        assert!(all.begin(other).is_ok());
        assert_eq!(all.all().len(), 1, "nothing is kept of who sends no more");
        // One host has all addresses of its network.
        for n in 0..MOST {
            all.begin(address(&format!("2001:db8::{n:x}")))
                .expect("a share")
                .refused();
        }
        assert!(all.begin(address("2001:db8::ffff")).is_err());
        assert!(all.begin(address("2001:db8:0:1::1")).is_ok());
    }
}
