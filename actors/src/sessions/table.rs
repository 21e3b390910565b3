//! Which Secret has which session, and when it is read again. Pure. [`super::refusals`] decides when a password is sent
//! again.
//!
//! A session stays in the table until it is closed. It may be closed when no Secret holds its bytes any more, by the last
//! reads. A Secret that cannot be read still holds its last bytes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    login::{Digest, Login},
    refusals::Rest,
};
use crate::{
    domain::{failure::ReconcileError, names::ObjectKey},
    runtime::backoff,
};

/// The table hands a session out for this time before it reads its Secret again.
pub const FRESH: Duration = Duration::from_secs(20);
/// Minimum time between two reads of a Secret whose bytes were refused or cannot be used. A caller asks every 20 to 24 s
/// ([`crate::runtime::backoff::SLOW_PROBE`]). So each caller gets the answer to a changed Secret within 30 s, even if
/// another caller asked just before.
pub const REFUSED_LOOK: Duration = Duration::from_secs(5);
/// First delay after a failure other than a refused login; doubles up to [`FRESH`].
pub const FIRST_RETRY: Duration = Duration::from_secs(2);

/// What is known of one Secret.
#[derive(Clone, Debug)]
enum Entry {
    Ready {
        login: Login,
        at: Duration,
    },
    Failed {
        trouble: ReconcileError,
        at: Duration,
        times: u32,
        rest: Duration,
        /// The login that vCenter refused, if that is what failed.
        refused: Option<Login>,
        /// The bytes of an open session that the Secret holds nevertheless.
        holds: Option<Digest>,
    },
}

impl Entry {
    const fn holds(&self) -> Option<&Digest> {
        match self {
            Self::Ready { login, .. } => Some(&login.digest),
            Self::Failed { holds, .. } => holds.as_ref(),
        }
    }
}

/// How a resolution (Secret read, login tried) ended.
#[derive(Clone, Debug)]
pub enum Resolved<S> {
    /// A session.
    Session(S, Login),
    /// vCenter refused these bytes, now or lately, or too many other bytes of their account.
    Refused(Login, Rest),
    /// The content of the Secret cannot be used: no login was tried.
    Unusable(ReconcileError),
    /// The Secret could not be read: the table assumes that it still holds the same bytes.
    Unread(ReconcileError),
    /// Anything else.
    Failed(ReconcileError),
}

/// Answer to "may I have the session of this Secret".
#[derive(Clone, Debug)]
pub enum Answer<S> {
    /// Here it is.
    Session(S),
    /// Not now, and why.
    ReconcileError(ReconcileError),
    /// Read the Secret, log in if its bytes are new, then ask again.
    Resolve,
}

/// The table.
#[derive(Clone, Debug)]
pub struct Table<S> {
    entries: BTreeMap<ObjectKey, Entry>,
    /// Sessions by the bytes that opened them.
    open: BTreeMap<Digest, S>,
}

impl<S> Default for Table<S> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }
}

impl<S: Clone> Table<S> {
    /// What to do for that Secret now.
    pub fn answer(&self, secret: &ObjectKey, now: Duration) -> Answer<S> {
        match self.entries.get(secret) {
            Some(Entry::Ready { login, at }) if now.saturating_sub(*at) < FRESH => self
                .open_session(&login.digest)
                .map_or(Answer::Resolve, Answer::Session),
            Some(Entry::Failed {
                trouble, at, rest, ..
            }) if now.saturating_sub(*at) < *rest => Answer::ReconcileError(trouble.clone()),
            _ => Answer::Resolve,
        }
    }

    /// The session whose credentials have that digest, if one is open: no second login.
    pub fn open_session(&self, digest: &Digest) -> Option<S> {
        self.open.get(digest).cloned()
    }

    /// The refused login with the bytes that the Secret held when it was read last.
    pub fn refused(&self, secret: &ObjectKey) -> Option<&Login> {
        match self.entries.get(secret) {
            Some(Entry::Failed { refused, .. }) => refused.as_ref(),
            _ => None,
        }
    }

    /// Records a resolution's end; `at` is monotonic.
    pub fn resolved(&mut self, secret: &ObjectKey, end: Resolved<S>, at: Duration) {
        let times = match self.entries.get(secret) {
            Some(Entry::Failed { times, .. }) => times.saturating_add(1),
            _ => 1,
        };
        let held = self.entries.get(secret).and_then(Entry::holds).copied();
        let entry = match end {
            Resolved::Session(session, login) => {
                self.open.insert(login.digest, session);
                Entry::Ready { login, at }
            }
            Resolved::Refused(login, rest) => Entry::Failed {
                trouble: login.told(secret, rest),
                at,
                times,
                rest: REFUSED_LOOK,
                refused: Some(login),
                holds: None,
            },
            Resolved::Unusable(trouble) => Entry::Failed {
                trouble,
                at,
                times,
                rest: backoff::doubled(FIRST_RETRY, times, FRESH).min(REFUSED_LOOK),
                refused: None,
                holds: None,
            },
            Resolved::Unread(trouble) => Entry::Failed {
                trouble,
                at,
                times,
                rest: backoff::doubled(FIRST_RETRY, times, FRESH),
                refused: None,
                holds: held,
            },
            Resolved::Failed(trouble) => Entry::Failed {
                trouble,
                at,
                times,
                rest: backoff::doubled(FIRST_RETRY, times, FRESH),
                refused: None,
                holds: None,
            },
        };
        self.entries.insert(secret.clone(), entry);
    }

    /// Turns sessions that `useless` selects into refusals of their bytes, each with the name of its own Secret. Removes
    /// these sessions from the table.
    pub fn drop_useless(
        &mut self,
        useless: impl Fn(&S) -> bool,
        rest: impl Fn(&Login) -> Rest,
        at: Duration,
    ) -> Vec<S> {
        let dead: BTreeMap<Digest, S> = self.open.extract_if(.., |_, s| useless(s)).collect();
        let met: Vec<(ObjectKey, Login)> = self
            .entries
            .iter()
            .filter_map(|(key, e)| match e {
                Entry::Ready { login, .. } if dead.contains_key(&login.digest) => {
                    Some((key.clone(), login.clone()))
                }
                _ => None,
            })
            .collect();
        for (key, login) in met {
            let rest = rest(&login);
            self.resolved(&key, Resolved::Refused(login, rest), at);
        }
        dead.into_values().collect()
    }

    /// Removes and returns sessions whose bytes no Secret holds any more and that no caller uses. The caller closes them.
    pub fn outdated(&mut self, in_use: impl Fn(&S) -> bool) -> Vec<S> {
        let held: BTreeSet<Digest> = self
            .entries
            .values()
            .filter_map(Entry::holds)
            .copied()
            .collect();
        let outdated = |digest: &Digest, s: &mut S| !held.contains(digest) && !in_use(s);
        let closing = self.open.extract_if(.., outdated);
        closing.map(|(_, session)| session).collect()
    }

    /// All open sessions.
    pub fn sessions(&self) -> impl Iterator<Item = &S> {
        self.open.values()
    }
}

#[cfg(test)]
mod tests {
    use agent_forge_crds::conditions::Reason;
    use secrecy::SecretString;

    use super::*;
    use crate::{
        domain::failure::ErrorSource,
        ports::{
            cluster::SecretVersion,
            vcenter::{Credentials, Trust},
        },
    };

    fn s(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn refused(password: &str) -> Resolved<u8> {
        Resolved::Refused(login(password), rest())
    }

    fn rest() -> Rest {
        Rest::Limited {
            again: crate::testing::at(600),
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
        let mut t = Table::default();
        let key = ObjectKey::new("ns", "secret");
        assert!(matches!(t.answer(&key, s(0)), Answer::Resolve));
        t.resolved(&key, Resolved::Session(7, login("old")), s(0));
        assert!(matches!(t.answer(&key, s(19)), Answer::Session(7)));
        assert!(matches!(t.answer(&key, s(20)), Answer::Resolve));
        assert_eq!(t.open_session(&login("old").digest), Some(7));
        assert_eq!(t.open_session(&login("new").digest), None);
    }

    #[test]
    fn a_session_that_lost_its_login_is_refused_in_the_words_of_each_secret() {
        let mut t = Table::default();
        let keys = ["a", "b"].map(|name| ObjectKey::new("ns", name));
        for key in &keys {
            t.resolved(key, Resolved::Session(7, login("old")), s(0));
        }
        assert_eq!(t.drop_useless(|_| true, |_| rest(), s(1)), [7]);
        assert_eq!(t.open_session(&login("old").digest), None);
        for key in &keys {
            let Answer::ReconcileError(trouble) = t.answer(key, s(1)) else {
                panic!("{key} has an answer")
            };
            assert_eq!(trouble, login("old").told(key, rest()));
            for named in ["vc.example", "\"user\"", &key.to_string()] {
                assert!(trouble.message.contains(named), "{named}: {trouble}");
            }
        }
        assert!(t.refused(&keys[0]).is_some());
    }

    #[test]
    fn a_session_is_outdated_when_the_last_secret_holds_other_bytes_and_nobody_works_with_it() {
        let away =
            ReconcileError::blocked(ErrorSource::Kubernetes, "Unreachable".into(), "no answer");
        let failed = |e: fn(ReconcileError) -> Resolved<u8>| e(away.clone());
        let ends: [(&str, Resolved<u8>, bool); 6] = [
            ("the same bytes", Resolved::Session(1, login("old")), false),
            ("unread", failed(Resolved::Unread), false),
            ("other bytes", Resolved::Session(2, login("new")), true),
            ("other bytes, refused", refused("new"), true),
            ("other bytes, vCenter away", failed(Resolved::Failed), true),
            ("no bytes", failed(Resolved::Unusable), true),
        ];
        for (what, end, outdated) in ends {
            let mut t = Table::default();
            let keys = ["a", "b"].map(|name| ObjectKey::new("ns", name));
            for key in &keys {
                t.resolved(key, Resolved::Session(1, login("old")), s(0));
            }
            t.resolved(&keys[0], end.clone(), s(30));
            assert_eq!(t.outdated(|_| false), [0; 0], "{what}: b holds them");
            t.resolved(&keys[1], end, s(30));
            assert_eq!(
                t.outdated(|_| true),
                [0; 0],
                "{what}: somebody works with it"
            );
            let open = t.open_session(&login("old").digest);
            assert_eq!(open, Some(1), "{what}: no second login while it is open");
            let closing = t.outdated(|_| false);
            assert_eq!(closing, vec![1; usize::from(outdated)], "{what}");
            let left: Vec<u8> = t.sessions().copied().collect();
            assert_eq!(left.contains(&1), !outdated, "{what}");
        }
    }

    /// Many callers ask for one Secret, each at its own times. The answer to one caller does not delay the others.
    #[test]
    fn everybody_has_the_answer_to_a_changed_secret_within_thirty_seconds() {
        let key = ObjectKey::new("ns", "secret");
        let period = crate::runtime::backoff::SLOW_PROBE.as_secs() * 7 / 6 + 1;
        let missing = ReconcileError::blocked(
            ErrorSource::Vsphere,
            Reason::SecretNotFound,
            "it is not there",
        );
        let wrong = [refused("old"), Resolved::Unusable(missing)];
        let changes = (100..200).flat_map(|changed| wrong.each_ref().map(|w| (changed, w)));
        for (changed, wrong) in changes {
            let mut t: Table<u8> = Table::default();
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
                    t.resolved(&key, end, s(now));
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
