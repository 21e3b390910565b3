//! Which Secret has which session, and when it is tried again. Pure.
//!
//! Facts: the same refused credential bytes are tried at most every 10 minutes ([`Refusals`]), a changed Secret within
//! 30 s (house.md §5).

use std::{collections::BTreeMap, time::Duration};

use agent_forge_crds::{Time, pool::RefusedCredentials};
use jiff::Timestamp;

use super::{
    login::{Digest, Login},
    refusals::{Moment, Refusals},
};
use crate::{error::Trouble, model::names::ObjectKey};

/// A session is handed out this long before its Secret is read again.
pub const FRESH: Duration = Duration::from_secs(20);
/// A Secret whose bytes were refused, or cannot be used, is read again at most that often: whoever asks every 20 to 24 s
/// ([`crate::retry::SLOW_PROBE`]) then has the answer to a changed Secret within 30 s, whoever asked before him.
pub const REFUSED_LOOK: Duration = Duration::from_secs(5);
/// First delay after a failure other than a refused login; doubles up to [`FRESH`].
pub const FIRST_RETRY: Duration = Duration::from_secs(2);

/// What is known of one Secret.
#[derive(Clone, Debug)]
enum Entry<S> {
    Ready {
        session: S,
        login: Login,
        at: Duration,
    },
    Failed {
        trouble: Trouble,
        at: Duration,
        times: u32,
        rest: Duration,
        /// The login that vCenter refused, if that is what failed.
        refused: Option<Login>,
    },
}

/// How a resolution (Secret read, login tried) ended.
#[derive(Clone, Debug)]
pub enum Resolved<S> {
    /// A session.
    Session(S, Login),
    /// vCenter refused these bytes, now or lately.
    Refused(Login),
    /// What the Secret holds cannot be used as it stands: no login was tried.
    Unusable(Trouble),
    /// Anything else.
    Failed(Trouble),
}

/// Answer to "may I have the session of this Secret".
#[derive(Clone, Debug)]
pub enum Answer<S> {
    /// Here it is.
    Session(S),
    /// Not now, and why.
    Trouble(Trouble),
    /// Read the Secret (and log in where its bytes are new), then ask again.
    Resolve,
}

/// The table.
#[derive(Clone, Debug)]
pub struct Table<S> {
    entries: BTreeMap<ObjectKey, Entry<S>>,
    refusals: Refusals,
}

impl<S: Clone> Table<S> {
    /// A table without sessions that leaves these bytes alone.
    pub fn new(refusals: Refusals) -> Self {
        Self {
            entries: BTreeMap::new(),
            refusals,
        }
    }

    /// The bytes that vCenter refused, as far as known.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// What to do for that Secret now.
    pub fn answer(&self, secret: &ObjectKey, now: Duration) -> Answer<S> {
        match self.entries.get(secret) {
            Some(Entry::Ready { session, at, .. }) if now.saturating_sub(*at) < FRESH => {
                Answer::Session(session.clone())
            }
            Some(Entry::Failed {
                trouble, at, rest, ..
            }) if now.saturating_sub(*at) < *rest => Answer::Trouble(trouble.clone()),
            _ => Answer::Resolve,
        }
    }

    /// The session whose credentials have that digest, if one is open: no second login.
    pub fn open_session(&self, digest: &Digest) -> Option<S> {
        self.entries.values().find_map(|e| match e {
            Entry::Ready { session, login, .. } if login.digest == *digest => Some(session.clone()),
            _ => None,
        })
    }

    /// Whether these bytes were refused too lately to be tried again.
    pub fn refused_lately(&self, digest: &Digest, now: Duration) -> bool {
        self.refusals.lately(digest, now)
    }

    /// An earlier process was refused these bytes `at` that time.
    pub fn recall(&mut self, digest: Digest, at: Timestamp, now: Moment) {
        self.refusals.recall(digest, at, now);
    }

    /// What another process has to know of that Secret: that vCenter refused what it held when it was read last.
    pub fn refusal(&self, secret: &ObjectKey) -> Option<RefusedCredentials> {
        let Some(Entry::Failed {
            refused: Some(login),
            ..
        }) = self.entries.get(secret)
        else {
            return None;
        };
        Some(RefusedCredentials {
            refused_at: Some(Time(self.refusals.at(&login.digest)?)),
            secret_resource_version: login.version.resource_version.clone(),
            secret_uid: login.version.uid.clone(),
        })
    }

    /// Takes in a resolution's end.
    pub fn resolved(&mut self, secret: &ObjectKey, end: Resolved<S>, now: Moment) {
        let at = now.monotonic;
        let times = match self.entries.get(secret) {
            Some(Entry::Failed { times, .. }) => times.saturating_add(1),
            _ => 1,
        };
        let entry = match end {
            Resolved::Session(session, login) => {
                self.refusals.taken(&login.digest);
                Entry::Ready { session, login, at }
            }
            Resolved::Refused(login) => {
                self.refusals.refused(login.digest, now);
                Entry::Failed {
                    trouble: login.refusal(secret),
                    at,
                    times,
                    rest: REFUSED_LOOK,
                    refused: Some(login),
                }
            }
            Resolved::Unusable(trouble) => Entry::Failed {
                trouble,
                at,
                times,
                rest: pause(times).min(REFUSED_LOOK),
                refused: None,
            },
            Resolved::Failed(trouble) => Entry::Failed {
                trouble,
                at,
                times,
                rest: pause(times),
                refused: None,
            },
        };
        self.entries.insert(secret.clone(), entry);
    }

    /// Turns sessions that `useless` names into refusals of their bytes, each in the words of its own Secret.
    pub fn drop_useless(&mut self, useless: impl Fn(&S) -> bool, now: Moment) {
        let dead: Vec<(ObjectKey, Login)> = self
            .entries
            .iter()
            .filter_map(|(key, e)| match e {
                Entry::Ready { session, login, .. } if useless(session) => {
                    Some((key.clone(), login.clone()))
                }
                _ => None,
            })
            .collect();
        for (key, login) in dead {
            self.resolved(&key, Resolved::Refused(login), now);
        }
    }

    /// All open sessions, each once per Secret.
    pub fn sessions(&self) -> Vec<S> {
        self.entries
            .values()
            .filter_map(|e| match e {
                Entry::Ready { session, .. } => Some(session.clone()),
                Entry::Failed { .. } => None,
            })
            .collect()
    }
}

fn pause(times: u32) -> Duration {
    FIRST_RETRY
        .saturating_mul(1 << times.saturating_sub(1).min(5))
        .min(FRESH)
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;
    use crate::{
        error::Side,
        ports::{
            cluster::SecretVersion,
            vcenter::{Credentials, Trust},
        },
    };

    fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// A second, on both clocks.
    fn m(n: u64) -> Moment {
        Moment {
            monotonic: s(n),
            wall: crate::testing::at(n.cast_signed()),
        }
    }

    /// The login of `user` with this password.
    fn login(password: &str) -> Login {
        let credentials = Credentials {
            server: url::Url::parse("https://vc.example/").expect("url"),
            username: "user".to_owned(),
            password: SecretString::from(password),
            trust: Trust::System,
        };
        Login::of(&credentials, SecretVersion::default())
    }

    #[test]
    fn a_session_is_shared_until_its_secret_is_due() {
        let mut t = Table::new(Refusals::default());
        let key = ObjectKey::new("ns", "secret");
        assert!(matches!(t.answer(&key, s(0)), Answer::Resolve));
        t.resolved(&key, Resolved::Session(7, login("old")), m(0));
        assert!(matches!(t.answer(&key, s(19)), Answer::Session(7)));
        assert!(matches!(t.answer(&key, s(20)), Answer::Resolve));
        assert_eq!(t.open_session(&login("old").digest), Some(7));
        assert_eq!(t.open_session(&login("new").digest), None);
    }

    #[test]
    fn refused_bytes_rest_ten_minutes_but_a_changed_secret_is_seen_within_thirty_seconds() {
        let mut t: Table<u8> = Table::new(Refusals::default());
        let key = ObjectKey::new("ns", "secret");
        t.resolved(&key, Resolved::Refused(login("old")), m(0));
        let mut now = 0;
        let mut reads = 0;
        while now < 599 {
            now += 1;
            if matches!(t.answer(&key, s(now)), Answer::Resolve) {
                reads += 1;
                assert!(
                    t.refused_lately(&login("old").digest, s(now)),
                    "no second login at {now}"
                );
                assert!(
                    !t.refused_lately(&login("new").digest, s(now)),
                    "new bytes are tried at once"
                );
                t.resolved(&key, Resolved::Refused(login("old")), m(now));
            }
        }
        assert!(reads >= 599 / 30, "{reads} looks at the Secret");
        assert!(!t.refused_lately(&login("old").digest, s(600)));
    }

    #[test]
    fn a_session_that_lost_its_login_is_refused_in_the_words_of_each_secret() {
        let mut t = Table::new(Refusals::default());
        let keys = ["a", "b"].map(|name| ObjectKey::new("ns", name));
        for key in &keys {
            t.resolved(key, Resolved::Session(7, login("old")), m(0));
        }
        t.drop_useless(|_| true, m(1));
        for key in &keys {
            let Answer::Trouble(trouble) = t.answer(key, s(1)) else {
                panic!("{key} has an answer")
            };
            assert_eq!(trouble, login("old").refusal(key));
            for named in ["vc.example", "\"user\"", &key.to_string()] {
                assert!(trouble.message.contains(named), "{named}: {trouble}");
            }
        }
        assert!(
            t.refused_lately(&login("old").digest, s(600)),
            "no login before 601 s"
        );
        assert!(!t.refused_lately(&login("old").digest, s(601)));
    }

    /// Many ask for one Secret, each at its own times: what one of them has just been told keeps none of them waiting.
    #[test]
    fn everybody_has_the_answer_to_a_changed_secret_within_thirty_seconds() {
        let key = ObjectKey::new("ns", "secret");
        let period = crate::retry::SLOW_PROBE.as_secs() * 7 / 6 + 1;
        let missing = Trouble::blocked(Side::Vsphere, "SecretNotFound", "it is not there");
        let wrong = [Resolved::Refused(login("old")), Resolved::Unusable(missing)];
        let changes = (100..200).flat_map(|changed| wrong.each_ref().map(|w| (changed, w)));
        for (changed, wrong) in changes {
            let mut t: Table<u8> = Table::new(Refusals::default());
            let mut waiting: Vec<u64> = (0..period).collect();
            for now in 0..=changed + 30 {
                if !waiting.contains(&(now % period)) {
                    continue;
                }
                if matches!(t.answer(&key, s(now)), Answer::Resolve) {
                    let end = if now < changed {
                        wrong.clone()
                    } else {
                        Resolved::Session(7, login("new"))
                    };
                    t.resolved(&key, end, m(now));
                }
                if matches!(t.answer(&key, s(now)), Answer::Session(_)) {
                    waiting.retain(|phase| *phase != now % period);
                }
            }
            assert!(
                waiting.is_empty(),
                "{wrong:?} changed at {changed}: {waiting:?} wait"
            );
        }
    }
}
