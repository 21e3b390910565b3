//! Keeps the Leases: asks each [`Election`] what to do, does it, and publishes whether this process leads.
//!
//! There is one task for each Lease, so that a slow answer about one Lease does not delay the renewal of another. The
//! Leases of the predecessor are only used while this process holds its own. One more task joins the results.
//!
//! These are tasks and not actors, because they must outlive the actor tree. When one of them ends, the process ends,
//! so no supervisor has to restart them.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use agent_forge_actors::{
    migration::lease::{Clear, Guard},
    ports::clock::Clock,
    runtime::lease::{Barrier, Election, Leadership, Lost, Next, Timing},
};
use futures::FutureExt as _;
use tokio::{sync::watch, task::JoinSet};

use crate::cluster::lease::{LeaseError, LeaseStore};

/// How long the release of the Leases may take at the end of the process. A Lease that is not released runs out.
const RELEASE_WITHIN: Duration = Duration::from_secs(3);

/// The Leases that a [`LeaderElector`] keeps.
pub struct Leases {
    /// Name of this process in its own Lease.
    pub me: String,
    /// The times of the election, for all Leases.
    pub timing: Timing,
    /// The operator's own Lease; `None` without leader election.
    pub own: Option<LeaseStore>,
    /// The Leases of the predecessor.
    pub guards: Vec<(LeaseStore, Guard)>,
}

/// The running leader election. When it is dropped, it stops at once, and the Leases run out.
pub struct LeaderElector {
    standing: watch::Sender<Leadership>,
    release: watch::Sender<bool>,
    joining: JoinSet<()>,
    rounds: JoinSet<()>,
}

impl LeaderElector {
    /// Starts the election. It publishes to `standing`, which the effect gate reads.
    pub fn start(
        leases: Leases,
        clock: &Arc<dyn Clock>,
        standing: watch::Sender<Leadership>,
    ) -> Self {
        let (release, released) = watch::channel(false);
        let (mut joining, mut rounds) = (JoinSet::new(), JoinSet::new());
        let mut all = Vec::new();
        let mut begin = |round: ElectionRound, after| {
            all.push(round.standing.subscribe());
            let told = round.standing.clone();
            rounds.spawn(kept(told, round.run(released.clone(), after)));
        };
        let Leases {
            me, timing, own, ..
        } = leases;
        let own = own.map(|store| {
            let election = Election::new(me.clone(), timing);
            let round = ElectionRound::new((me.clone(), false), timing, store, election, clock);
            let seen = round.standing.subscribe();
            begin(round, None);
            seen
        });
        for (store, guard) in leases.guards {
            let name = guard.kin.named(&me);
            let election = Election::guarding(&me, timing, guard);
            let round = ElectionRound::new((name, true), timing, store, election, clock);
            begin(round, own.clone());
        }
        joining.spawn(kept(standing.clone(), join(all, standing.clone())));
        Self {
            standing,
            release,
            joining,
            rounds,
        }
    }

    /// Whether this process leads, as it changes.
    #[must_use]
    pub fn standing(&self) -> watch::Receiver<Leadership> {
        self.standing.subscribe()
    }

    /// Resolves when leadership is lost.
    pub async fn lost(&self) -> Lost {
        let mut standing = self.standing.subscribe();
        let found = standing
            .wait_for(|s| matches!(s, Leadership::Lost(_)))
            .await
            .map(|s| s.clone());
        match found {
            Ok(Leadership::Lost(why)) => why,
            _ => std::future::pending().await,
        }
    }

    /// Releases the Leases. From now on the gate admits nothing. A standby instance takes over when it next reads the
    /// Lease.
    pub async fn release(mut self) {
        self.joining.abort_all();
        self.standing.send_replace(Leadership::Released);
        self.release.send_replace(true);
        let all = async { while self.rounds.join_next().await.is_some() {} };
        if tokio::time::timeout(RELEASE_WITHIN, all).await.is_err() {
            tracing::warn!("a Lease was not released in time; it runs out");
        }
    }
}

/// Runs `work`. If it panics, leadership is lost and the process ends. Without this, the panic would stay unnoticed and
/// the Leases would not be renewed.
async fn kept(standing: watch::Sender<Leadership>, work: impl Future<Output = ()>) {
    if AssertUnwindSafe(work).catch_unwind().await.is_err() {
        standing.send_replace(Leadership::Lost(Lost::Unkept));
    }
}

/// Joins the results of all Leases and publishes them. [`Leadership::Lost`] and [`Leadership::Released`] are final.
async fn join(mut all: Vec<watch::Receiver<Leadership>>, standing: watch::Sender<Leadership>) {
    loop {
        let each: Vec<_> = all
            .iter_mut()
            .map(|s| s.borrow_and_update().clone())
            .collect();
        let joined = Leadership::joined(&each);
        let before = standing.borrow().clone();
        standing.send_if_modified(|s| {
            let over = matches!(s, Leadership::Released | Leadership::Lost(_));
            let news = !over && *s != joined;
            if news {
                *s = joined.clone();
            }
            news
        });
        tell(&before, &joined);
        let changes = all.iter_mut().map(|s| Box::pin(s.changed()));
        let (change, ..) = futures::future::select_all(changes).await;
        if change.is_err() {
            // The task of a Lease ends when its Lease is lost or released, and that is final.
            return;
        }
    }
}

fn tell(before: &Leadership, now: &Leadership) {
    match now {
        Leadership::Leading { .. } if !matches!(before, Leadership::Leading { .. }) => {
            tracing::info!("leading");
        }
        Leadership::Barred(barrier) if before != now => {
            tracing::warn!("not acting: {barrier}");
        }
        _ => {}
    }
}

/// The election for one Lease.
struct ElectionRound {
    election: Election,
    me: String,
    timing: Timing,
    store: LeaseStore,
    clock: Arc<dyn Clock>,
    standing: watch::Sender<Leadership>,
    /// The leader that the log named last.
    behind: Option<String>,
    is_guard: bool,
}

impl ElectionRound {
    fn new(
        (me, is_guard): (String, bool),
        timing: Timing,
        store: LeaseStore,
        election: Election,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        Self {
            is_guard,
            election,
            me,
            timing,
            store,
            clock: clock.clone(),
            standing: watch::channel(Leadership::Standby).0,
            behind: None,
        }
    }

    /// Runs the election until the Lease is released, lost or not needed. It begins once `after` leads.
    async fn run(
        mut self,
        mut release: watch::Receiver<bool>,
        after: Option<watch::Receiver<Leadership>>,
    ) {
        let mut after = after;
        if let Some(after) = &mut after {
            let leads = after.wait_for(|s| matches!(s, Leadership::Leading { .. }));
            tokio::select! {
                _ = asked(&mut release) => return,
                led = leads => if led.is_err() { return },
            }
        }
        loop {
            let now = self.clock.monotonic();
            let next = match &after {
                Some(own) => self.election.next_beside(now, &own.borrow()),
                None => self.election.next(now),
            };
            match next {
                Next::Wait(time) => {
                    tokio::select! {
                        biased;
                        asked = asked(&mut release) => {
                            if asked {
                                self.let_go().await;
                            }
                            return;
                        }
                        () = tokio::time::sleep(time) => {}
                    }
                }
                Next::Read => match self.store.read().await {
                    Ok(record) => {
                        let holder = record.as_ref().and_then(|r| r.holder.clone());
                        self.election.shown(self.clock.monotonic(), record);
                        self.say_who_leads(holder);
                    }
                    Err(why) => self.failed("read", &why),
                },
                Next::Create => {
                    let sent = self.clock.monotonic();
                    let made = self.store.create(&self.me, self.timing.duration()).await;
                    self.wrote("create", sent, made);
                }
                Next::Replace { version, taken } => {
                    let (sent, lasting) = (self.clock.monotonic(), self.timing.duration());
                    let made = self.store.replace(&version, Some(&self.me), lasting).await;
                    self.wrote(if taken { "take" } else { "renew" }, sent, made);
                }
                Next::Clear(why) => {
                    self.clear(why);
                    let again = async {
                        if self.election.follows() {
                            tokio::time::sleep(self.timing.retry_period()).await;
                        } else {
                            std::future::pending::<()>().await;
                        }
                    };
                    tokio::select! {
                        biased;
                        _ = asked(&mut release) => return,
                        () = again => {}
                    }
                }
                Next::Lost(why) => {
                    tracing::error!(lease = self.store.subject(), "{why}");
                    self.standing.send_replace(Leadership::Lost(why));
                    return;
                }
            }
        }
    }

    fn wrote(&mut self, what: &str, sent: Duration, made: Result<String, LeaseError>) {
        match made {
            Ok(version) => self.election.written(sent, version),
            Err(why) => return self.failed(what, &why),
        }
        if let Some(until) = self.election.leads_until() {
            let before = self.standing.send_replace(Leadership::Leading { until });
            if !matches!(before, Leadership::Leading { .. }) {
                tracing::info!(lease = self.store.subject(), me = self.me, "held");
            }
        }
    }

    /// This Lease no longer restricts anything.
    fn clear(&self, why: Clear) {
        let until = Duration::MAX;
        let before = self.standing.send_replace(Leadership::Leading { until });
        if matches!(before, Leadership::Leading { .. }) {
            return;
        }
        let lease = self.store.subject();
        match why {
            Clear::Free => tracing::info!(lease, "the predecessor does not act"),
            Clear::Forbidden => tracing::warn!(
                lease,
                "the operator may not read the predecessor's Lease, so it does not notice a predecessor in this namespace: \
                 apply config/rbac/leader_election_role.yaml"
            ),
        }
    }

    fn failed(&mut self, what: &str, why: &LeaseError) {
        let lease = self.store.subject();
        tracing::warn!(lease, "cannot {what} the Lease: {why}");
        let now = self.clock.monotonic();
        match why {
            LeaseError::Forbidden(_) => self.election.forbidden(now),
            LeaseError::Other(_) => self.election.failed(now),
        }
        let (lease, why) = (lease.to_owned(), why.to_string());
        self.barred(Barrier::Unknown { lease, why });
    }

    /// Publishes the barrier if this Lease, and not the operator's own, keeps the process from acting.
    fn barred(&self, barrier: Barrier) {
        if self.is_guard && self.election.leads_until().is_none() {
            self.standing.send_replace(Leadership::Barred(barrier));
        }
    }

    fn say_who_leads(&mut self, holder: Option<String>) {
        if let Some(stranger) = self.election.stranger() {
            let (lease, holder) = (self.store.subject().to_owned(), stranger.to_owned());
            self.barred(Barrier::Held { lease, holder });
        }
        if holder.as_ref() != Some(&self.me) && holder != self.behind {
            if let Some(leader) = &holder {
                tracing::info!(lease = self.store.subject(), leader, "standing by");
            }
            self.behind = holder;
        }
    }

    async fn let_go(&mut self) {
        let Some(version) = self.election.to_release().map(str::to_owned) else {
            return;
        };
        match self
            .store
            .replace(&version, None, Duration::from_secs(1))
            .await
        {
            Ok(_) => tracing::info!(lease = self.store.subject(), "released"),
            Err(why) => {
                tracing::warn!("the Lease was not released; it runs out: {why}");
            }
        }
    }
}

/// Resolves with `true` when a release is requested, and with `false` when no request can come any more.
async fn asked(release: &mut watch::Receiver<bool>) -> bool {
    release.wait_for(|asked| *asked).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A clock that panics.
    struct Broken;

    impl Clock for Broken {
        fn wall(&self) -> jiff::Timestamp {
            jiff::Timestamp::UNIX_EPOCH
        }

        fn monotonic(&self) -> Duration {
            panic!("as told")
        }
    }

    #[tokio::test]
    async fn a_panic_of_what_keeps_a_lease_is_the_end_of_leadership() {
        let clock: Arc<dyn Clock> = Arc::new(Broken);
        let client = kube::Client::new(
            tower::service_fn(|_: http::Request<kube::client::Body>| {
                std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
            }),
            "default",
        );
        let metrics = crate::telemetry::metrics::Metrics::new().expect("metrics");
        let gate = Arc::new(crate::gate::OpenGate::new(Arc::new(metrics)));
        let store = LeaseStore::new(
            client,
            ("default", "lease"),
            gate,
            clock.clone(),
            RELEASE_WITHIN,
        );
        let leases = Leases {
            me: "me".to_owned(),
            timing: Timing::new(15 * SECOND, 10 * SECOND, 2 * SECOND).expect("they fit"),
            own: Some(store),
            guards: Vec::new(),
        };
        let (standing, seen) = watch::channel(Leadership::Standby);
        let keeper = LeaderElector::start(leases, &clock, standing);
        let lost = tokio::time::timeout(10 * SECOND, keeper.lost()).await;
        assert_eq!(lost, Ok(Lost::Unkept));
        assert_eq!(*seen.borrow(), Leadership::Lost(Lost::Unkept));
    }
}
