//! Which passwords vCenter refused, and when the operator sends one again. This is the one rule for every place that sends a
//! password. Pure.
//!
//! Wrong passwords lock accounts: a common lockout is 5 failures in 180 s. So the rule is:
//! - One account gets at most [`MOST`] refusals in [`LOCKOUT`], whatever bytes are in any number of Secrets. A user is one
//!   account at all names of one vCenter: those that showed the same certificate and instance UUID. A password that is on its
//!   way at another name counts like a refusal.
//! - The same bytes, and the same password at another name, rest for [`LOCKOUT`] at the door that refused them. They are tried
//!   again only if nothing else of the account was refused in that time: new bytes in a Secret come first.
//! - Bytes that have opened a session rest only for their own refusals: no other Secret blocks them.
//!
//! This module holds only digests and times, never a password. The status of the pools keeps what another process must know.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::{
    Time,
    pool::{RefusedCredentials, VsphereAgentPool},
};
use jiff::{RoundMode, SignedDuration, Timestamp, TimestampRound, Unit};

use super::login::{Account, Digest, Instance, Login, of_version};
pub use super::rest::{Door, LOCKOUT, MOST, Rest};
use crate::{
    domain::seconds,
    ports::{clock::Clock, cluster::SecretVersion},
};

/// How long the operator recognises refused bytes, and does not take them for new ones.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// A password that is on its way at another name of a vCenter counts like a refusal until its call ends. This is the longest
/// that a call takes, for the time of the next try.
const ON_ITS_WAY: Duration = Duration::from_secs(30);
/// With more host names than that, those without a refusal are forgotten: a tenant may name ever new ones. Each login tells its
/// own again.
const MOST_HOSTS: usize = 1000;

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// For this process alone.
    pub monotonic: Duration,
    /// For users and other processes.
    pub wall: Timestamp,
}

impl Moment {
    /// Now.
    pub fn now(clock: &dyn Clock) -> Self {
        Self {
            monotonic: clock.monotonic(),
            wall: clock.wall(),
        }
    }

    /// The wall clock in whole seconds, as in a status.
    fn second(self) -> Timestamp {
        seconds::whole(self.wall)
    }

    /// That moment of the monotonic clock, on the wall clock. In whole seconds, and not too early. It is the same whenever it
    /// is asked: only the sum is rounded. Otherwise a status with that time would change from pass to pass.
    fn wall_of(self, monotonic: Duration) -> Timestamp {
        let ahead = SignedDuration::try_from(monotonic.saturating_sub(self.monotonic));
        let exact = ahead.ok().and_then(|a| self.wall.checked_add(a).ok());
        let up = TimestampRound::new()
            .smallest(Unit::Second)
            .mode(RoundMode::Ceil);
        let rounded = exact.and_then(|t| t.round(up).ok());
        rounded.unwrap_or(Timestamp::MAX)
    }
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    account: Account,
    digest: Digest,
    /// [`Login::password`]. `None`: the Secret was not read yet.
    password: Option<Digest>,
    door: Door,
    at: Timestamp,
    /// When it stops counting (monotonic).
    until: Duration,
}

/// What vCenter refused, and what it accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    refused: Vec<Refusal>,
    taken: BTreeSet<Digest>,
    /// Which vCenter answered under a host name.
    instances: BTreeMap<String, Instance>,
    /// Accounts with a password on its way.
    sending: Vec<Account>,
}

impl Refusals {
    /// Whether the password may be sent there now.
    ///
    /// # Errors
    /// The reason, and the time of the next try.
    pub fn may_try(&self, login: &Login, door: Door, now: Moment) -> Result<(), Rest> {
        if self
            .counting(login, now)
            .any(|r| r.is_of(login) && r.door == door)
        {
            return Err(self.rest(login, now));
        }
        if self.taken.contains(&login.digest) {
            return Ok(());
        }
        match self.below(login, self.bound(login), now) {
            Some(again) => Err(Rest::Limited { again }),
            None => Ok(()),
        }
    }

    /// How long refused bytes rest.
    #[must_use]
    pub fn rest(&self, login: &Login, now: Moment) -> Rest {
        let own = self.counting(login, now).filter(|r| r.is_of(login));
        let own = own.map(|r| r.until).max();
        let again = own.map(|until| now.wall_of(until));
        let others_first = self.below(login, 1, now);
        Rest::Refused {
            again: again.max(others_first).unwrap_or(now.second()),
            others: self.below(login, MOST, now),
        }
    }

    /// How many refusals of the account may count at a time, with that of these bytes.
    fn bound(&self, login: &Login) -> usize {
        let one = |r: &Refusal| self.is_one(&r.account, &login.account);
        let known = self.refused.iter().any(|r| r.is_of(login) && one(r));
        if known { 1 } else { MOST }
    }

    /// When fewer than `bound` refusals of the account count; `None`: now.
    fn below(&self, login: &Login, bound: usize, now: Moment) -> Option<Timestamp> {
        let elsewhere = |a: &&Account| **a != login.account && self.is_one(a, &login.account);
        let sending = self.sending.iter().filter(elsewhere);
        let sending = sending.map(|_| now.monotonic.saturating_add(ON_ITS_WAY));
        let counting = self.counting(login, now).map(|r| r.until);
        let mut ends: Vec<Duration> = counting.chain(sending).collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        ends.get(bound.saturating_sub(1))
            .map(|until| now.wall_of(*until))
    }

    fn counting<'a>(&'a self, login: &'a Login, now: Moment) -> impl Iterator<Item = &'a Refusal> {
        self.refused
            .iter()
            .filter(move |r| self.is_one(&r.account, &login.account) && now.monotonic < r.until)
    }

    /// vCenter locks them together.
    fn is_one(&self, a: &Account, b: &Account) -> bool {
        let of_instance = || self.instance(a).is_some() && self.instance(a) == self.instance(b);
        a == b || a.parts().0 == b.parts().0 && of_instance()
    }

    /// The vCenter of that account, if it has answered.
    #[must_use]
    pub fn instance(&self, account: &Account) -> Option<Instance> {
        self.instances.get(account.parts().1).copied()
    }

    /// That vCenter answered at the account's host.
    pub fn answered(&mut self, account: &Account, instance: Instance) {
        if self.instances.len() >= MOST_HOSTS {
            let used = self.refused.iter().map(|r| &r.account).chain(&self.sending);
            let used: BTreeSet<&str> = used.map(|a| a.parts().1).collect();
            self.instances
                .retain(|host, _| used.contains(host.as_str()));
        }
        let host = account.parts().1.to_owned();
        self.instances.insert(host, instance);
    }

    /// A password of that account leaves. It counts for other names of the vCenter until [`Self::sent`].
    pub fn sends(&mut self, account: &Account) {
        self.sending.push(account.clone());
    }

    /// That is over.
    pub fn sent(&mut self, account: &Account) {
        if let Some(at) = self.sending.iter().position(|a| a == account) {
            self.sending.swap_remove(at);
        }
    }

    /// vCenter refused these bytes there.
    pub fn refused(&mut self, login: &Login, door: Door, now: Moment) {
        if door == Door::Session {
            self.taken.remove(&login.digest);
        }
        let refusal = Refusal {
            account: login.account.clone(),
            digest: login.digest,
            password: Some(login.password),
            door,
            at: now.second(),
            until: now.monotonic.saturating_add(LOCKOUT),
        };
        self.note(refusal, now);
    }

    /// vCenter opened a session for these bytes.
    pub fn opened(&mut self, login: &Login) {
        self.taken.insert(login.digest);
    }

    /// When the login last refused these bytes, while that counts or is remembered.
    #[must_use]
    pub fn at(&self, digest: &Digest) -> Option<Timestamp> {
        let all = self
            .refused
            .iter()
            .filter(|r| r.digest == *digest && r.door == Door::Session);
        all.map(|r| r.at).max()
    }

    /// When other bytes of the account were refused before these, less than [`LOCKOUT`] earlier. With this, the record of one
    /// pool tells as many refusals as hold an account back.
    #[must_use]
    pub fn earlier(&self, login: &Login) -> Option<Timestamp> {
        let at = self.at(&login.digest)?;
        let others = self.refused.iter().filter(|r| r.digest != login.digest);
        let others = others.filter(|r| self.is_one(&r.account, &login.account));
        let before = others.map(|r| r.at).filter(|before| *before <= at);
        before
            .filter(|before| rest_left(*before, at).is_some())
            .max()
    }

    /// Takes over the refusals of an earlier process for users of that name, from the records of the pools. The bytes are not
    /// known, but the state of the Secret that held them is.
    pub fn recall(&mut self, user: &str, pools: &[Arc<VsphereAgentPool>], now: Moment) {
        let mut all: Vec<_> = records(pools).collect();
        // The latest one says which vCenter a host leads to.
        all.sort_by_key(|r| std::cmp::Reverse(r.refused_at.as_ref().map(|t| t.0)));
        for record in all {
            let account = record.account.as_deref().and_then(Account::recorded);
            let Some(account) = account.filter(|a| a.parts().0 == user) else {
                continue;
            };
            let instance = record.vcenter.as_deref().and_then(Instance::recorded);
            if let Some(instance) = instance.filter(|_| self.instance(&account).is_none()) {
                self.answered(&account, instance);
            }
            self.recall_one(
                &account,
                of_version(&version(record)),
                &record.refused_at,
                now,
            );
            let stand_in = of_version(&SecretVersion {
                resource_version: format!("before {}", record.secret_resource_version),
                ..version(record)
            });
            self.recall_one(&account, stand_in, &record.earlier_at, now);
        }
    }

    /// These bytes are in that state of a Secret. Checks whether it was refused. A record without an account is found by its
    /// Secret alone.
    pub fn identify(&mut self, login: &Login, pools: &[Arc<VsphereAgentPool>], now: Moment) {
        let stands_in = of_version(&login.version);
        let its_own = |r: &&RefusedCredentials| version(r) == login.version;
        if self.at(&login.digest).is_none() {
            for record in records(pools).filter(its_own) {
                self.recall_one(&login.account, stands_in, &record.refused_at, now);
            }
        }
        for refusal in &mut self.refused {
            if refusal.digest == stands_in {
                (refusal.digest, refusal.password) = (login.digest, Some(login.password));
            }
        }
        self.merge(&login.digest);
    }

    /// Two Secrets with the same bytes recorded one refusal each. They are one login, and the latest refusal counts.
    fn merge(&mut self, digest: &Digest) {
        let (mut same, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.refused)
            .into_iter()
            .partition(|r| r.digest == *digest && r.door == Door::Session);
        same.sort_by_key(|r| r.until);
        self.refused = others;
        self.refused.extend(same.pop());
    }

    fn recall_one(&mut self, account: &Account, digest: Digest, at: &Option<Time>, now: Moment) {
        let Some(at) = at.as_ref().map(|t| t.0) else {
            return;
        };
        let left = rest_left(at, now.second());
        let known = |r: &Refusal| r.digest == digest && r.at >= at;
        if let Some(left) = left.filter(|_| !self.refused.iter().any(known)) {
            let refusal = Refusal {
                account: account.clone(),
                digest,
                password: None,
                door: Door::Session,
                at,
                until: now.monotonic.saturating_add(left),
            };
            self.note(refusal, now);
        }
    }

    fn note(&mut self, refusal: Refusal, now: Moment) {
        self.refused.retain(|r| {
            let before = r.digest == refusal.digest && r.door == refusal.door;
            !before && now.monotonic < r.until.saturating_add(REMEMBERED)
        });
        self.refused.push(refusal);
    }
}

impl Refusal {
    /// It was of these bytes, or of the same user and password at another name of the vCenter. At the same name, other bytes
    /// are a correction.
    fn is_of(&self, login: &Login) -> bool {
        let elsewhere = self.account != login.account;
        self.digest == login.digest || elsewhere && self.password == Some(login.password)
    }
}

/// How long a refusal still counts; `None` once it is over. The clocks of two machines differ. A refusal in the future
/// counts as just now, so that no clock makes a rest longer than [`LOCKOUT`].
fn rest_left(at: Timestamp, now: Timestamp) -> Option<Duration> {
    let age = Duration::try_from(now.duration_since(at)).unwrap_or_default();
    LOCKOUT.checked_sub(age).filter(|left| !left.is_zero())
}

fn records(pools: &[Arc<VsphereAgentPool>]) -> impl Iterator<Item = &RefusedCredentials> {
    pools
        .iter()
        .filter_map(|p| p.status.as_ref()?.refused_credentials.as_ref())
}

fn version(record: &RefusedCredentials) -> SecretVersion {
    SecretVersion {
        uid: record.secret_uid.clone(),
        resource_version: record.secret_resource_version.clone(),
    }
}

#[cfg(test)]
mod tests;
