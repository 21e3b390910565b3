//! Keeps the Lease: asks [`Election`] what to do, does it, and publishes how this process stands.
//!
//! A task, not an actor of the tree: it outlives the tree's end, and its own end is the end of the process, so there is
//! nothing for a supervisor to start anew.

use std::{sync::Arc, time::Duration};

use agent_forge_actors::{
    lease::{Election, Leadership, Lost, Next, Timing},
    ports::clock::Clock,
};
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
};

use crate::cluster::lease::LeaseStore;

/// How long a release may take at the end of the process; a lease that is not released runs out.
const RELEASE_WITHIN: Duration = Duration::from_secs(3);

/// The running keeper; dropped, it stops where it is and the Lease runs out.
pub struct Keeper {
    standing: watch::Receiver<Leadership>,
    release: oneshot::Sender<()>,
    task: JoinSet<()>,
}

impl Keeper {
    /// Starts it; `standing` is what the gate looks at.
    pub fn start(
        me: String,
        timing: Timing,
        store: LeaseStore,
        clock: Arc<dyn Clock>,
        standing: watch::Sender<Leadership>,
    ) -> Self {
        let seen = standing.subscribe();
        let (release, released) = oneshot::channel();
        let mut task = JoinSet::new();
        let round = Round {
            election: Election::new(me.clone(), timing),
            me,
            timing,
            store,
            clock,
            standing,
            behind: None,
        };
        task.spawn(round.run(released));
        Self {
            standing: seen,
            release,
            task,
        }
    }

    /// How this process stands, as it changes.
    #[must_use]
    pub fn standing(&self) -> watch::Receiver<Leadership> {
        self.standing.clone()
    }

    /// Resolves when this process leads.
    pub async fn leading(standing: &mut watch::Receiver<Leadership>) {
        let leads = |s: &Leadership| matches!(s, Leadership::Leading { .. });
        if standing.wait_for(leads).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Resolves when leadership is lost.
    pub async fn lost(&self) -> Lost {
        let mut standing = self.standing.clone();
        let found = standing
            .wait_for(|s| matches!(s, Leadership::Lost(_)))
            .await
            .map(|s| s.clone());
        match found {
            Ok(Leadership::Lost(why)) => why,
            _ => std::future::pending().await,
        }
    }

    /// Lets go of the Lease: nothing passes the gate from here on, and whoever stands by takes over at its next look.
    pub async fn release(mut self) {
        if self.release.send(()).is_ok()
            && tokio::time::timeout(RELEASE_WITHIN, self.task.join_next())
                .await
                .is_err()
        {
            tracing::warn!("the lease was not released in time; it runs out by itself");
        }
    }
}

struct Round {
    election: Election,
    me: String,
    timing: Timing,
    store: LeaseStore,
    clock: Arc<dyn Clock>,
    standing: watch::Sender<Leadership>,
    /// Who leads, as said in the log.
    behind: Option<String>,
}

impl Round {
    async fn run(mut self, mut release: oneshot::Receiver<()>) {
        loop {
            let next = self.election.next(self.clock.monotonic());
            match next {
                Next::Wait(time) => {
                    tokio::select! {
                        biased;
                        asked = &mut release => {
                            if asked.is_ok() {
                                self.let_go().await;
                            }
                            return;
                        }
                        () = tokio::time::sleep(time) => {}
                    }
                }
                Next::Read => match self.store.read().await {
                    Ok(record) => {
                        self.say_who_leads(record.as_ref().and_then(|r| r.holder.clone()));
                        self.election.shown(self.clock.monotonic(), record);
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
                Next::Lost(why) => {
                    self.standing.send_replace(Leadership::Lost(why));
                    return;
                }
            }
        }
    }

    fn wrote(&mut self, what: &str, sent: Duration, made: Result<String, String>) {
        match made {
            Ok(version) => self.election.written(sent, version),
            Err(why) => return self.failed(what, &why),
        }
        if let Some(until) = self.election.leads_until() {
            let before = self.standing.send_replace(Leadership::Leading { until });
            if before == Leadership::Standby {
                tracing::info!(lease = self.store.subject(), me = self.me, "leading");
            }
        }
    }

    fn failed(&mut self, what: &str, why: &str) {
        tracing::warn!(
            lease = self.store.subject(),
            "cannot {what} the lease: {why}"
        );
        self.election.failed(self.clock.monotonic());
    }

    fn say_who_leads(&mut self, holder: Option<String>) {
        if holder.as_ref() != Some(&self.me) && holder != self.behind {
            if let Some(leader) = &holder {
                tracing::info!(lease = self.store.subject(), leader, "standing by");
            }
            self.behind = holder;
        }
    }

    async fn let_go(&mut self) {
        self.standing.send_replace(Leadership::Released);
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
                tracing::warn!("the lease was not released, it runs out by itself: {why}");
            }
        }
    }
}
