//! A Lease object: read, create, replace. Each write carries the resourceVersion that the decision was made from, and
//! passes the gate.

use std::{sync::Arc, time::Duration};

use agent_forge_actors::{
    domain::names::ObjectKey,
    ports::{
        clock::Clock,
        effect::{Effect, EffectKind, Gate, Settled, Subject},
    },
    runtime::lease::Record,
};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, ResourceExt, api::PostParams};

use crate::deadline;

/// Name of the operator's own Lease.
pub const NAME: &str = "agent-forge";

/// A call for a Lease that failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LeaseError {
    /// The API server does not allow it.
    #[error("{0}")]
    Forbidden(String),
    /// Anything else, in a sentence.
    #[error("{0}")]
    Other(String),
}

/// A Lease in the API server, and the newest content that was read.
pub struct LeaseStore {
    api: Api<Lease>,
    name: &'static str,
    subject: String,
    gate: Arc<dyn Gate>,
    clock: Arc<dyn Clock>,
    effect: Effect,
    within: Duration,
    seen: Option<Lease>,
}

impl LeaseStore {
    /// The Lease with that namespace and name. Each call takes at most `within`.
    pub fn new(
        client: Client,
        (namespace, name): (&str, &'static str),
        gate: Arc<dyn Gate>,
        clock: Arc<dyn Clock>,
        within: Duration,
    ) -> Self {
        let key = ObjectKey::new(namespace, name);
        Self {
            subject: key.to_string(),
            api: Api::namespaced(client, namespace),
            name,
            gate,
            clock,
            effect: Effect::new(EffectKind::Lease, Subject::Object(key)),
            within,
            seen: None,
        }
    }

    /// `namespace/name`.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Reads the Lease. `None` only if the API server answers that it does not exist.
    ///
    /// # Errors
    /// [`LeaseError`], in a sentence for people.
    pub async fn read(&mut self) -> Result<Option<Record>, LeaseError> {
        let answer = deadline::within(self.within, self.api.get_opt(self.name)).await;
        self.seen = flat(answer, self.within)?;
        Ok(self.seen.as_ref().map(record))
    }

    /// Creates the Lease with that holder. Returns its resourceVersion.
    ///
    /// # Errors
    /// As [`Self::read`]. Also if another process has created it.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that creates a Lease, behind the gate"
    )]
    pub async fn create(&mut self, holder: &str, lasting: Duration) -> Result<String, LeaseError> {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(self.spec(None, Some(holder), lasting)),
        };
        let (api, params) = (self.api.clone(), PostParams::default());
        self.write(async move { api.create(&params, &lease).await })
            .await
    }

    /// Replaces the content that was read with `version` by content with that holder, or with none. Returns the new
    /// resourceVersion.
    ///
    /// # Errors
    /// As [`Self::read`]. Also if the object has another version by now.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that replaces a Lease, behind the gate"
    )]
    pub async fn replace(
        &mut self,
        version: &str,
        holder: Option<&str>,
        lasting: Duration,
    ) -> Result<String, LeaseError> {
        let mut lease = match &self.seen {
            Some(seen) if seen.metadata.resource_version.as_deref() == Some(version) => {
                seen.clone()
            }
            _ => {
                return Err(LeaseError::Other(
                    "it was not read in that version".to_owned(),
                ));
            }
        };
        lease.metadata.managed_fields = None;
        lease.spec = Some(self.spec(lease.spec.take(), holder, lasting));
        let (api, params) = (self.api.clone(), PostParams::default());
        let name = self.name;
        self.write(async move { api.replace(name, &params, &lease).await })
            .await
    }

    fn spec(&self, old: Option<LeaseSpec>, holder: Option<&str>, lasting: Duration) -> LeaseSpec {
        let now = MicroTime(self.clock.wall());
        let old = old.unwrap_or_default();
        let same = old.holder_identity.as_deref().filter(|h| !h.is_empty()) == holder;
        let taken = holder.is_some() && !same;
        let transitions = old.lease_transitions.unwrap_or(0);
        LeaseSpec {
            // After a release the holder is empty, not absent. The components of Kubernetes do the same.
            holder_identity: Some(holder.unwrap_or_default().to_owned()),
            lease_duration_seconds: i32::try_from(lasting.as_secs()).ok(),
            acquire_time: if taken {
                Some(now.clone())
            } else {
                old.acquire_time
            },
            renew_time: Some(now),
            lease_transitions: Some(transitions.saturating_add(i32::from(taken))),
            ..old
        }
    }

    async fn write(
        &mut self,
        call: impl Future<Output = kube::Result<Lease>>,
    ) -> Result<String, LeaseError> {
        self.gate
            .admit(&self.effect)
            .await
            .map_err(|hold| LeaseError::Other(self.effect.held_back(&hold)))?;
        let answer = deadline::within(self.within, call).await;
        self.gate.settled(
            &self.effect,
            match &answer {
                Ok(Ok(_)) => Settled::Done,
                Ok(Err(kube::Error::Api(_))) => Settled::Refused,
                _ => Settled::Unknown,
            },
        );
        let lease = flat(answer, self.within)?;
        let version = lease.resource_version().unwrap_or_default();
        self.seen = Some(lease);
        Ok(version)
    }
}

fn flat<T>(
    answer: Result<kube::Result<T>, deadline::Elapsed>,
    within: Duration,
) -> Result<T, LeaseError> {
    match answer {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
            Err(LeaseError::Forbidden(status.message.clone()))
        }
        Ok(Err(e)) => Err(LeaseError::Other(e.to_string())),
        Err(deadline::Elapsed) => Err(LeaseError::Other(format!(
            "no answer within {} s",
            within.as_secs_f32()
        ))),
    }
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.unwrap_or(0);
    Record {
        version: lease.resource_version().unwrap_or_default(),
        holder: spec.holder_identity.filter(|h| !h.is_empty()),
        duration: Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
    }
}
