//! Wakes tasks that wait for news, always in the order in which they began to wait.
//!
//! tokio's `watch` wakes its receivers in an order that differs between processes. With it, the same plan would not
//! give the same trace.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::Notify;

/// The source of news. Cheap to clone.
#[derive(Clone, Default)]
pub struct News(Arc<Told>);

#[derive(Default)]
struct Told {
    times: AtomicU64,
    wake: Notify,
}

impl News {
    /// Wakes all listeners: something is new.
    pub fn tell(&self) {
        self.0.times.fetch_add(1, Ordering::Relaxed);
        self.0.wake.notify_waiters();
    }

    /// A listener for all news from now on.
    #[must_use]
    pub fn listener(&self) -> Listener {
        Listener {
            heard: self.0.times.load(Ordering::Relaxed),
            told: self.0.clone(),
        }
    }
}

/// Waits for news.
pub struct Listener {
    told: Arc<Told>,
    heard: u64,
}

impl Listener {
    /// Skips the news so far.
    pub fn catch_up(&mut self) {
        self.heard = self.told.times.load(Ordering::Relaxed);
    }

    /// Waits for news that this listener has not seen yet.
    pub async fn news(&mut self) {
        let told = self.told.clone();
        loop {
            // From here on, a call of `tell` wakes this listener.
            let wake = told.wake.notified();
            if told.times.load(Ordering::Relaxed) != self.heard {
                self.catch_up();
                return;
            }
            wake.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, time::Duration};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_waits_first_is_woken_first() {
        let (news, order) = (News::default(), RefCell::new(Vec::new()));
        let wait = async |who: u32| {
            let mut listener = news.listener();
            listener.news().await;
            order.borrow_mut().push(who);
        };
        let tell = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            news.tell();
        };
        let local = futures::future::join_all((0..20).map(wait));
        futures::join!(local, tell);
        assert_eq!(*order.borrow(), (0..20).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_told_before_the_wait_is_heard_once() {
        let news = News::default();
        let mut listener = news.listener();
        news.tell();
        listener.news().await;
        let again = tokio::time::timeout(Duration::from_secs(1), listener.news());
        assert!(again.await.is_err());
        news.tell();
        listener.catch_up();
        let old = tokio::time::timeout(Duration::from_secs(1), listener.news());
        assert!(old.await.is_err());
    }
}
