//! What several scenarios use: Events, forbidden writes, killed actors, and times.

use std::time::Duration;

use agent_forge_lab::{lab::apply::apply, parts::Operator};
use anyhow::{Result, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicyBinding, events::v1::Event,
};
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};

use crate::world::{LIMIT, World};

/// A changed Secret is tried at once. Without a change the operator waits ten minutes between two tries, and about four
/// minutes have passed when the Secret is changed. (The operator reacts within 30 s: tests/sim/src/waits.rs
/// checks that. This machine may be slow.)
pub const MENDED_WITHIN: Duration = Duration::from_secs(240);

/// The debug endpoint answers within this time, whatever vCenters do. It is shorter than the 30 s after which an
/// unanswered call is given up, so an answer proves that the actor did not wait for such a call. It is much longer than
/// a busy machine needs.
pub const PROMPT: Duration = Duration::from_secs(25);

/// One Event, as `kubectl get events` shows it.
#[derive(Debug)]
pub struct Told {
    /// Kind and name of its object.
    pub about: (String, String),
    pub warning: bool,
    pub note: String,
}

impl World {
    /// The Events with that reason in the pool's namespace.
    pub async fn told(&self, reason: &str) -> Result<Vec<Told>> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), self.namespace());
        let all = events.list(&Default::default()).await?.items.into_iter();
        let fits = all.filter(|e| e.reason.as_deref() == Some(reason));
        let told = fits.map(|e| {
            let object = e.regarding.unwrap_or_default();
            Told {
                about: (
                    object.kind.unwrap_or_default(),
                    object.name.unwrap_or_default(),
                ),
                warning: e.type_.as_deref() == Some("Warning"),
                note: e.note.unwrap_or_default(),
            }
        });
        Ok(told.collect())
    }

    /// Waits for an Event with that reason about that object, with `word` in its note. All Events with that reason must
    /// be about objects of that kind, and be all warnings or all normal.
    pub async fn until_told(
        &self,
        (reason, warning): (&str, bool),
        (kind, name): (&str, &str),
        word: &str,
    ) -> Result<()> {
        self.until(&format!("{reason} about {kind} {name}"), async || {
            let all = self.told(reason).await?;
            let odd = all
                .iter()
                .find(|t| t.about.0 != kind || t.warning != warning);
            ensure!(odd.is_none(), "{reason}: {odd:?}");
            let fits = |t: &Told| t.about.1 == name && t.note.contains(word);
            Ok(all.iter().any(fits))
        })
        .await
    }

    /// Makes the API server refuse such writes of the operator, until [`Self::allow`].
    pub async fn forbid(
        &self,
        name: &str,
        group: &str,
        resource: &str,
        operation: &str,
    ) -> Result<()> {
        let own = format!("{name}.{}", self.namespace());
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": own},
            "spec": {
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [group], "apiVersions": ["*"],
                    "operations": [operation], "resources": [resource],
                }]},
                "validations": [{
                    "expression": format!("request.userInfo.username != {:?}", self.access.user),
                    "message": format!("{name} is not wanted now"),
                }],
            },
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": own},
            "spec": {"policyName": own, "validationActions": ["Deny"]},
        });
        apply(&self.client, &policy).await?;
        apply(&self.client, &binding).await?;
        Ok(())
    }

    /// Removes a prohibition.
    pub async fn allow(&self, name: &str) -> Result<()> {
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(self.client.clone());
        let own = format!("{name}.{}", self.namespace());
        bindings.delete(&own, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// Kills the actors whose names start with `which`, as the debug endpoint does.
pub async fn kill(world: &World, which: &str, panic: bool) -> Result<usize> {
    let operator = world.operator()?;
    let url = format!(
        "{}/actors/kill?which={which}&panic={panic}",
        operator.debug_url()
    );
    let answer = reqwest::Client::new()
        .post(url)
        .header("x-agent-forge-kill", "true")
        .send()
        .await?
        .error_for_status()?;
    let hit: Vec<Value> = answer.json().await?;
    Ok(hit.len())
}

/// Shorter than the default of 45 s, since the test waits for the Lease of a frozen leader to run out. The renew
/// deadline is near the default. With a shorter one, a leader on a slow machine could lose its Lease correctly, and the
/// test would fail.
pub const LEASE: Duration = Duration::from_secs(32);
const RENEW_DEADLINE: Duration = Duration::from_secs(16);

pub fn flags() -> Vec<String> {
    vec![
        "--leader-elect".to_owned(),
        format!("--leader-elect-lease-duration={}s", LEASE.as_secs()),
        format!(
            "--leader-elect-renew-deadline={}s",
            RENEW_DEADLINE.as_secs()
        ),
        "--leader-elect-retry-period=500ms".to_owned(),
    ]
}

/// Waits until `/readyz` says exactly this.
pub async fn says(operator: &Operator, word: &str) -> Result<()> {
    operator
        .process
        .until_ready(LIMIT, || async {
            let text = operator.readiness().await?;
            ensure!(text == word, "it says {text:?}, not {word:?}");
            Ok(())
        })
        .await
}
