//! Writes that the server refused because the object had changed or was gone.
//!
//! Guarantee: while the view still shows the refused version, the same write is not sent again. A resourceVersion comes
//! back only after a restore of the API server, so the answer would be the same. When the view lags by a minute, this costs one refusal for each object,
//! and not one for each try. As soon as the view shows a new version, writes go through.
//!
//! Assumption: after a refusal the actor decides again from the view. Caveat: after `FORGOTTEN` one more write is let
//! through. The refusal may have had another cause than the version, for example an admission webhook.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agent_forge_actors::ports::cluster::ClusterErrorKind;
use tokio::time::Instant;

/// How long a refusal counts.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// The last refusal of each object.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<BTreeMap<String, Refused>>);

#[derive(Debug)]
struct Refused {
    version: String,
    kind: ClusterErrorKind,
    at: Instant,
}

impl Refusals {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Refused>> {
        // After a panic the data is still consistent: each change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a write to `object` failed with `kind`. The write was decided from `version` of the object.
    pub fn note(&self, object: &str, version: &str, kind: &ClusterErrorKind) {
        if !matches!(
            kind,
            ClusterErrorKind::Conflict | ClusterErrorKind::NotFound
        ) {
            return;
        }
        let mut all = self.all();
        let now = Instant::now();
        all.retain(|_, r| now.duration_since(r.at) < FORGOTTEN);
        let refused = Refused {
            version: version.to_owned(),
            kind: kind.clone(),
            at: now,
        };
        all.insert(object.to_owned(), refused);
    }

    /// The failure that a write for this version would get again.
    pub fn holds(&self, object: &str, version: &str) -> Option<ClusterErrorKind> {
        let all = self.all();
        let refused = all.get(object).filter(|r| r.version == version);
        let refused = refused.filter(|r| r.at.elapsed() < FORGOTTEN);
        refused.map(|r| r.kind.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_same_is_refused_until_something_else_is_seen_or_a_minute_has_gone() {
        use ClusterErrorKind::{Conflict, NotFound, Unavailable};
        let refusals = Refusals::default();
        refusals.note("Agent a/b", "u/1", &Unavailable);
        assert_eq!(refusals.holds("Agent a/b", "u/1"), None, "that may pass");
        refusals.note("Agent a/b", "u/1", &Conflict);
        assert_eq!(refusals.holds("Agent a/b", "u/1"), Some(Conflict));
        assert_eq!(refusals.holds("Agent a/b", "u/2"), None, "it has moved on");
        assert_eq!(refusals.holds("Agent a/c", "u/1"), None, "another object");
        refusals.note("Agent a/b", "u/2", &NotFound);
        assert_eq!(
            refusals.holds("Agent a/b", "u/1"),
            None,
            "one for each object"
        );
        tokio::time::advance(FORGOTTEN - Duration::from_secs(1)).await;
        assert_eq!(refusals.holds("Agent a/b", "u/2"), Some(NotFound));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(refusals.holds("Agent a/b", "u/2"), None);
        refusals.note("Agent a/c", "u/1", &Conflict);
        assert_eq!(refusals.all().len(), 1, "what is forgotten is dropped");
    }
}
