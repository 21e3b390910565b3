//! What a claim copies from a Machine's bootstrap data to the Agent.

use kube::core::DynamicObject;
use serde_json::{Map, Value, json};

use super::super::object::Facts as _;

/// Fields of an Agent's `spec` that come from the bootstrap data.
const FIELDS: [&str; 3] = [
    "machineConfigPool",
    "ignitionEndpointTokenReference",
    "ignitionEndpointHTTPHeaders",
];

/// Name of the Secret with the ignition token that belongs to a bootstrap Secret.
#[must_use]
pub fn token_secret(bootstrap_secret: &str) -> String {
    format!("agent-{bootstrap_secret}")
}

/// Values of the fields that come from a Machine's bootstrap data. A Machine without a bootstrap Secret has none.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Bootstrap(Map<String, Value>);

impl Bootstrap {
    /// The values for `machine`. They are what HyperShift's user data contain.
    #[must_use]
    pub fn of(machine: &DynamicObject) -> Self {
        let secret = machine.text("/spec/bootstrap/dataSecretName");
        if secret.is_empty() {
            return Self::default();
        }
        let pool = machine
            .annotation("hypershift.openshift.io/nodePool")
            .unwrap_or_default();
        let token = json!({"namespace": machine.metadata.namespace, "name": token_secret(secret)});
        // The pool is the last path segment of HyperShift's ignition URL.
        let values = [json!("ignition"), token, json!({"NodePool": pool})];
        Self(FIELDS.map(str::to_owned).into_iter().zip(values).collect())
    }

    /// Whether the Agent has these values. Fields without a value here do not count.
    #[must_use]
    pub fn is_in(&self, agent: &DynamicObject) -> bool {
        let spec = &agent.data["spec"];
        self.0.iter().all(|(field, value)| spec[field] == *value)
    }

    /// The Agent with exactly these values. A field without a value is removed.
    #[must_use]
    pub fn written_to(&self, agent: &DynamicObject) -> DynamicObject {
        let mut agent = agent.clone();
        if let Some(spec) = agent.data.get_mut("spec").and_then(Value::as_object_mut) {
            for field in FIELDS {
                spec.remove(field);
            }
            spec.extend(self.0.clone());
        }
        agent
    }
}
