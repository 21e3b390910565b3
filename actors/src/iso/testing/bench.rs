//! The real actor on the in-memory ports, and pools that behave: they ask, and ask again when woken.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ractor::{Actor, ActorRef};
use tokio::{sync::mpsc, task::JoinHandle, time::Instant};

use super::{
    TestClock, TestInstruments, TestSessions, TestWaker,
    image::{CHUNK, ImageServer},
    store::Store,
};
use crate::{
    domain::names::{DatastorePath, ObjectKey},
    iso::{
        IsoCache, IsoCacheArgs, ensure,
        msg::{IsoFile, IsoKey, IsoMsg, IsoState, IsoWant},
    },
    ports::{instruments::NoInstruments, iso_source::IsoUrl},
    runtime::mailbox::{Counted, Mailbox},
};

pub(crate) const TOKEN: &str = "SECRETTOKEN";
/// Size of the image unless a test sets another one.
pub(crate) const SIZE: u64 = 20 * CHUNK + 17;

pub(crate) struct Bench {
    pub(crate) image: Arc<ImageServer>,
    pub(crate) store: Arc<Store>,
    pub(crate) sessions: Arc<TestSessions>,
    pub(crate) instruments: Arc<TestInstruments>,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) actor: ActorRef<IsoMsg>,
    pub(crate) wakes: mpsc::UnboundedReceiver<(ObjectKey, Instant)>,
    waker: Arc<TestWaker>,
    handle: JoinHandle<()>,
}

pub(crate) fn pool(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

pub(crate) fn path(name: &str) -> DatastorePath {
    DatastorePath::new("ds1", "isos")
        .and_then(|d| d.join(name))
        .expect("path")
}

/// The datastore of a bench's own actor.
fn own() -> IsoKey {
    IsoKey {
        server: "vc".to_owned(),
        datacenter: "dc1".to_owned(),
        datastore: "ds1".to_owned(),
    }
}

/// An actor as pools reach it.
pub(crate) fn reached(actor: &ActorRef<IsoMsg>) -> Counted<IsoMsg> {
    let mailbox = Mailbox::new("iso_cache", Arc::new(NoInstruments));
    Counted::new(actor.clone(), mailbox)
}

/// Asks, and records at once what is about to be published, and what is lost.
pub(crate) async fn ask(cache: &Counted<IsoMsg>, want: &IsoWant) -> IsoState {
    let mut want = want.clone();
    loop {
        match ensure(cache, want.clone()).await.expect("an answer") {
            IsoState::Publishing(place) => {
                want.listed.insert(place.path);
            }
            IsoState::Lost(place) => assert_eq!(want.used.take(), Some(place)),
            other => return other,
        }
    }
}

/// What the pool of that name wants when nothing is recorded.
pub(crate) fn want(name: &str) -> IsoWant {
    IsoWant {
        pool: pool(name),
        uid: format!("uid-of-{name}"),
        secret: ObjectKey::new("ns", "vcenter"),
        directory: DatastorePath::new("ds1", "isos").expect("path"),
        shares: false,
        source: IsoUrl::parse(&format!(
            "https://img/byapikey/{TOKEN}/4.19/x86_64/full.iso"
        ))
        .expect("url"),
        ca_pem: Ok(None),
        source_key: "0123456789abcdef0123".to_owned(),
        force_token: None,
        check_every: None,
        known: None,
        directories: Default::default(),
        prunable: Vec::new(),
        users: Vec::new(),
        listed: BTreeSet::new(),
        used: None,
        look_within: None,
    }
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let (send, wakes) = mpsc::unbounded_channel();
        let (waker, store) = (Arc::new(TestWaker(send)), Arc::new(Store::default()));
        let (image, sessions) = (
            Arc::new(ImageServer::new(SIZE)),
            Arc::new(TestSessions::default()),
        );
        let (instruments, clock) = (
            Arc::new(TestInstruments::default()),
            Arc::new(TestClock::new()),
        );
        sessions
            .0
            .lock()
            .expect("lock")
            .insert(ObjectKey::new("ns", "vcenter"), store.clone());
        let args = Self::args(own(), &image, &sessions, &waker, &clock, &instruments);
        let (actor, handle) = Actor::spawn(None, IsoCache, args).await.expect("spawn");
        Self {
            image,
            store,
            sessions,
            instruments,
            clock,
            actor,
            wakes,
            waker,
            handle,
        }
    }

    fn args(
        key: IsoKey,
        image: &Arc<ImageServer>,
        sessions: &Arc<TestSessions>,
        waker: &Arc<TestWaker>,
        clock: &Arc<TestClock>,
        instruments: &Arc<TestInstruments>,
    ) -> IsoCacheArgs {
        IsoCacheArgs {
            key,
            sessions: sessions.clone(),
            source: image.clone(),
            waker: waker.clone(),
            clock: clock.clone(),
            instruments: instruments.clone(),
            cluster_id: "hub".to_owned(),
        }
    }

    /// Kills the actor without notice and waits until it is gone. The ports stay.
    pub(crate) async fn kill(&mut self) {
        self.actor.kill();
        (&mut self.handle).await.expect("the actor's task ends");
    }

    /// A new actor on the same ports, as a supervisor would start it.
    pub(crate) async fn restart(&mut self) {
        (self.actor, self.handle) = self.another(own()).await;
    }

    /// An actor for that datastore on the same ports.
    pub(crate) async fn another(&self, key: IsoKey) -> (ActorRef<IsoMsg>, JoinHandle<()>) {
        let args = Self::args(
            key,
            &self.image,
            &self.sessions,
            &self.waker,
            &self.clock,
            &self.instruments,
        );
        Actor::spawn(None, IsoCache, args).await.expect("spawn")
    }

    /// As pools reach it.
    pub(crate) fn cache(&self) -> Counted<IsoMsg> {
        reached(&self.actor)
    }

    /// Asks, and records at once what is about to be published.
    pub(crate) async fn ask(&self, want: &IsoWant) -> IsoState {
        ask(&self.cache(), want).await
    }

    /// Waits until that pool asks again: when it is woken, or after two seconds.
    pub(crate) async fn woken(&mut self, pool: &ObjectKey) -> Instant {
        let wait = async {
            loop {
                let (who, at) = self.wakes.recv().await.expect("the waker lives");
                if who == *pool {
                    return at;
                }
            }
        };
        let woken = tokio::time::timeout(Duration::from_secs(2), wait).await;
        woken.unwrap_or_else(|_| Instant::now())
    }

    /// Asks until the answer is not "on its way", each time when woken.
    pub(crate) async fn settled(&mut self, want: &IsoWant) -> IsoState {
        loop {
            match self.ask(want).await {
                IsoState::Fetching { .. } | IsoState::Queued(_) => self.woken(&want.pool).await,
                other => return other,
            };
        }
    }

    /// Asks until it is there, also after failures.
    pub(crate) async fn arrived(&mut self, want: &IsoWant) -> (IsoFile, bool) {
        loop {
            match self.ask(want).await {
                IsoState::Ready { file, reused, .. } => return (file, reused),
                _ => self.woken(&want.pool).await,
            };
        }
    }

    /// Lets the flights run until `done`. Fails if they come to rest without it.
    pub(crate) async fn until(&self, what: &str, done: impl Fn(&Self) -> bool) {
        for _ in 0..10_000 {
            if done(self) {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("never: {what}");
    }

    pub(crate) fn opened(&self) -> usize {
        self.image.opened.load(Ordering::SeqCst)
    }

    pub(crate) fn counted(&self, operation: &'static str, success: bool) -> u32 {
        self.instruments
            .0
            .lock()
            .expect("lock")
            .get(&(operation, success))
            .copied()
            .unwrap_or_default()
    }

    /// The final path of the sound image of now.
    pub(crate) fn final_path(&self) -> DatastorePath {
        path(&format!("{}.iso", self.image.sha256()))
    }
}
