//! The one record of refused passwords. Every part of the operator that sends a password to a vCenter does it through this
//! ledger.
//!
//! Guarantee: for one user and host name at most one password is on its way at a time, and one at another name of the vCenter
//! counts like a refusal. So each decision knows all earlier refusals. A host that does not answer holds back no other one.
//! The ledger outlives the session actor and the clients.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use agent_forge_crds::pool::VsphereAgentPool;
use jiff::Timestamp;

use super::{
    login::{Account, Digest, Instance, Login},
    refusals::{Door, Moment, Refusals, Rest},
};
use crate::ports::{
    clock::Clock,
    vcenter::{Fault, VcError, VcErrorKind, VcResult},
};

/// One lock for each account with a password on its way. A lock without a waiter is dropped.
type Flights = BTreeMap<Account, Arc<tokio::sync::Mutex<()>>>;

/// Refusals, and the clock that measures them.
pub struct Ledger {
    clock: Arc<dyn Clock>,
    known: Mutex<Refusals>,
    flights: Mutex<Flights>,
    /// The users whose refusals by earlier processes are known.
    recalled: Mutex<BTreeSet<String>>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}

/// A password on its way. It is over when this is dropped.
struct Sending<'a>(&'a Ledger, Account);

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.0.known().sent(&self.1);
    }
}

impl Ledger {
    /// An empty one.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            known: Mutex::default(),
            flights: Mutex::default(),
            recalled: Mutex::default(),
        }
    }

    fn now(&self) -> Moment {
        Moment::now(self.clock.as_ref())
    }

    fn known(&self) -> MutexGuard<'_, Refusals> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flight(&self, account: &Account) -> Arc<tokio::sync::Mutex<()>> {
        let mut flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        flights.retain(|_, flight| Arc::strong_count(flight) > 1);
        flights.entry(account.clone()).or_default().clone()
    }

    /// Runs `attempt`, which sends the password to `door`, unless the password has to rest.
    ///
    /// # Errors
    /// Those of `attempt`. `InvalidLogin`: vCenter refused the password now, or refused it lately and nothing was sent.
    /// [`VcErrorKind::LoginLimited`]: nothing was sent, because other passwords of the account were refused.
    pub async fn attempt<T>(
        &self,
        login: &Login,
        door: Door,
        attempt: impl Future<Output = VcResult<T>>,
    ) -> VcResult<T> {
        let flight = self.flight(&login.account);
        let _one_at_a_time = flight.lock().await;
        let _sending = self.sends(login, door).map_err(|rest| VcError {
            kind: match rest {
                Rest::Refused { .. } => VcErrorKind::Fault(Fault::InvalidLogin),
                Rest::Limited { again } => VcErrorKind::LoginLimited(again),
            },
            operation: "Login",
            subject: login.account.as_str().to_owned(),
            message: login.said_at(door, rest),
            concealed: false,
        })?;
        match attempt.await {
            Ok(fruit) => {
                if door == Door::Session {
                    self.known().opened(login);
                }
                Ok(fruit)
            }
            Err(e) => Err(self.judged(login, door, e)),
        }
    }

    fn sends(&self, login: &Login, door: Door) -> Result<Sending<'_>, Rest> {
        let mut known = self.known();
        known.may_try(login, door, self.now())?;
        known.sends(&login.account);
        Ok(Sending(self, login.account.clone()))
    }

    /// Judges the failure of a call with the password. A refusal gets its own error, and is remembered.
    #[must_use]
    pub fn judged(&self, login: &Login, door: Door, failure: VcError) -> VcError {
        if !matches!(
            failure.fault(),
            Some(Fault::InvalidLogin | Fault::NotAuthenticated)
        ) {
            return failure;
        }
        let now = self.now();
        let mut known = self.known();
        known.refused(login, door, now);
        let message = login.said_at(door, known.rest(login, now));
        VcError {
            kind: VcErrorKind::Fault(Fault::InvalidLogin),
            message,
            ..failure
        }
    }

    /// Why the password is not sent to `door` now; `None` if it may be sent. Sends and records nothing.
    #[must_use]
    pub fn refrains(&self, login: &Login, door: Door) -> Option<Rest> {
        self.known().may_try(login, door, self.now()).err()
    }

    /// How long refused bytes rest.
    #[must_use]
    pub fn rest(&self, login: &Login) -> Rest {
        self.known().rest(login, self.now())
    }

    /// When the login last refused these bytes.
    #[must_use]
    pub fn at(&self, digest: &Digest) -> Option<Timestamp> {
        self.known().at(digest)
    }

    /// When other bytes of the account were refused shortly before these.
    #[must_use]
    pub fn earlier(&self, login: &Login) -> Option<Timestamp> {
        self.known().earlier(login)
    }

    /// That vCenter answered at the host of this login, before the password is sent.
    pub fn answered(&self, login: &Login, instance: Instance) {
        self.known().answered(&login.account, instance);
    }

    /// The vCenter of this login, if it has answered.
    #[must_use]
    pub fn instance(&self, login: &Login) -> Option<Instance> {
        self.known().instance(&login.account)
    }

    /// Takes over the refusals of earlier processes for users of that login's name, from the records of the pools. It does
    /// this once: later records come from this process.
    pub fn recall(&self, login: &Login, pools: &[Arc<VsphereAgentPool>]) {
        let mut recalled = self.recalled.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.now();
        let user = login.account.parts().0;
        let first = recalled.insert(user.to_owned());
        let mut known = self.known();
        if first {
            known.recall(user, pools, now);
        }
        known.identify(login, pools, now);
    }
}
