//! What is missing in an InfraEnv that offers no ISO, for an Event. Pure.
//!
//! A new InfraEnv is given time to get its URL.

use agent_forge_crds::conditions::Reason;

use super::of_pool::NoSource;
use crate::{
    domain::names::ObjectKey,
    runtime::announcer::{Pace, QUIET},
};

/// What is missing in the InfraEnv: the reason, when it is announced, and a sentence. `None` if the cause is not in the
/// InfraEnv.
#[must_use]
pub fn lack(infra_env: &ObjectKey, no: &NoSource) -> Option<(Reason, Pace, String)> {
    match no {
        NoSource::NotAllowed(_) => {
            let note = format!(
                "InfraEnv {infra_env} is not looked for: its namespace does not admit this pool; see the condition \
                 InfraEnvAvailable"
            );
            Some((Reason::NamespaceNotAllowed, Pace::NEWS, note))
        }
        NoSource::InfraEnvNotFound => {
            let note = format!("InfraEnv {infra_env} does not exist");
            Some((Reason::InfraEnvNotFound, Pace::NEWS, note))
        }
        NoSource::UrlPending => {
            let note = format!(
                "InfraEnv {infra_env} has no status.isoDownloadURL; its own conditions may say why"
            );
            Some((Reason::IsoUrlPending, Pace::once(QUIET), note))
        }
        NoSource::ImageFailed(note) => {
            let pace = Pace::once(QUIET);
            Some((Reason::ImageNotCreated, pace, note.clone()))
        }
        NoSource::Invalid(t) if t.reason == Reason::InvalidIsoUrl => {
            Some((Reason::InvalidIsoUrl, Pace::NEWS, t.message.clone()))
        }
        NoSource::Invalid(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        domain::failure::{ErrorSource, ReconcileError},
        runtime::announcer::{Announcer, Due},
    };

    fn invalid(reason: Reason) -> NoSource {
        NoSource::Invalid(ReconcileError::blocked(
            ErrorSource::Iso,
            reason,
            "these are the words",
        ))
    }

    #[test]
    fn each_lack_is_said_once_and_anew_after_an_iso_was_offered() {
        let (missing, pending) = (NoSource::InfraEnvNotFound, NoSource::UrlPending);
        let (odd, of_spec) = (invalid(Reason::InvalidIsoUrl), invalid(Reason::InvalidSpec));
        let key = ObjectKey::new("demo", "infra");
        let quiet = QUIET.as_secs();
        let mut announcer = Announcer::default();
        let mut due = |no_source: Option<&NoSource>, second| {
            let Some((why, pace, note)) = no_source.and_then(|no| lack(&key, no)) else {
                announcer.over(&());
                return None;
            };
            let due = announcer.announce((), why.as_str(), Duration::from_secs(second), pace);
            (due == Due::Now).then_some(note)
        };
        // The time, what is missing then, and words of the Event.
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
            // If a URL comes and disappears again, the wait starts again.
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
            let due = due(no_source, second);
            let told = due.as_deref();
            assert_eq!(told.is_some(), words.is_some(), "at {second}: {told:?}");
            let fits = words.is_none_or(|w| told.is_some_and(|t| t.contains(w)));
            assert!(fits, "at {second}: {told:?}");
        }
    }
}
