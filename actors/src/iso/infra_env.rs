//! What people are told by an Event of an InfraEnv that offers no ISO. Pure, but for its own memory.
//!
//! Guarantees: each lack is said once, and anew when the InfraEnv had offered an ISO meanwhile or lacks something else;
//! one that was made just now is given time to get its URL.

use std::time::Duration;

use agent_forge_crds::conditions::reason;

use super::of_pool::NoSource;
use crate::{domain::names::ObjectKey, runtime::lasting::QUIET};

/// What the InfraEnv lacked at the last look.
#[derive(Debug, Default)]
pub struct Said(Option<Lack>);

#[derive(Debug)]
struct Lack {
    why: String,
    /// Monotonic.
    since: Duration,
    said: bool,
}

impl Said {
    /// The sentence that is due at monotonic time `now`, which counts as said then.
    pub fn due(
        &mut self,
        infra_env: &ObjectKey,
        no_source: Option<&NoSource>,
        now: Duration,
    ) -> Option<String> {
        let Some((why, patience, note)) = no_source.and_then(|no| lack(infra_env, no)) else {
            self.0 = None;
            return None;
        };
        let known = self.0.take().filter(|lack| lack.why == why);
        let lack = self.0.insert(known.unwrap_or_else(|| Lack {
            why: why.to_owned(),
            since: now,
            said: false,
        }));
        let due = !lack.said && now.saturating_sub(lack.since) >= patience;
        lack.said |= due;
        due.then_some(note)
    }
}

/// What the InfraEnv lacks: in a word, how long that is the usual course of things, and in a sentence. `None` where
/// something else than the InfraEnv is to blame.
fn lack<'a>(infra_env: &ObjectKey, no: &'a NoSource) -> Option<(&'a str, Duration, String)> {
    match no {
        NoSource::NotAllowed(_) => {
            let note = format!(
                "InfraEnv {infra_env} is not looked for: its namespace does not admit this pool; see the condition \
                 InfraEnvAvailable"
            );
            Some((reason::NAMESPACE_NOT_ALLOWED, Duration::ZERO, note))
        }
        NoSource::InfraEnvNotFound => {
            let note = format!("InfraEnv {infra_env} does not exist");
            Some((reason::INFRA_ENV_NOT_FOUND, Duration::ZERO, note))
        }
        NoSource::UrlPending => {
            let note = format!(
                "InfraEnv {infra_env} has no status.isoDownloadURL; its own conditions may say why"
            );
            Some((reason::ISO_URL_PENDING, QUIET, note))
        }
        NoSource::ImageFailed(note) => Some((reason::IMAGE_NOT_CREATED, QUIET, note.clone())),
        NoSource::Invalid(t) if t.reason == INVALID_URL => {
            Some((INVALID_URL, Duration::ZERO, t.message.clone()))
        }
        NoSource::Invalid(_) => None,
    }
}

/// The URL in its status cannot be used.
pub const INVALID_URL: &str = "InvalidISOURL";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::failure::{ErrorSource, ReconcileError};

    fn invalid(reason: &str) -> NoSource {
        NoSource::Invalid(ReconcileError::blocked(
            ErrorSource::Iso,
            reason,
            "these are the words",
        ))
    }

    #[test]
    fn each_lack_is_said_once_and_anew_after_an_iso_was_offered() {
        let (missing, pending) = (NoSource::InfraEnvNotFound, NoSource::UrlPending);
        let (odd, of_spec) = (invalid(INVALID_URL), invalid("InvalidSpec"));
        let key = ObjectKey::new("demo", "infra");
        let quiet = QUIET.as_secs();
        let mut said = Said::default();
        // When, what is lacking then, and words of what is said.
        let steps = [
            (0, None, None),
            (
                1,
                Some(&missing),
                Some("InfraEnv demo/infra does not exist"),
            ),
            (2, Some(&missing), None),
            (900, Some(&missing), None),
            (901, None, None),
            (902, Some(&missing), Some("does not exist")),
            (903, Some(&pending), None),
            (902 + quiet, Some(&pending), None),
            (
                903 + quiet,
                Some(&pending),
                Some("no status.isoDownloadURL"),
            ),
            (904 + quiet, Some(&pending), None),
            // A URL that comes and goes again begins anew.
            (1000, None, None),
            (1001, Some(&pending), None),
            (1002, None, None),
            (1001 + quiet, Some(&pending), None),
            (1100, Some(&odd), Some("these are the words")),
            (1101, Some(&odd), None),
            (1102, Some(&of_spec), None),
            (1103, Some(&missing), Some("does not exist")),
        ];
        for (second, no_source, words) in steps {
            let due = said.due(&key, no_source, Duration::from_secs(second));
            let told = due.as_deref();
            assert_eq!(told.is_some(), words.is_some(), "at {second}: {told:?}");
            let fits = words.is_none_or(|w| told.is_some_and(|t| t.contains(w)));
            assert!(fits, "at {second}: {told:?}");
        }
    }
}
