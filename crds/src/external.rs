//! Kinds of other projects, with only the fields that the operator reads or writes.
//!
//! Guarantee: such an object always parses. A field that is missing, null or has another type reads as absent. A list
//! keeps the elements that can be parsed. So one unusual object never hides the others of its list.
//!
//! Caveat: these types drop the fields that they do not name. Write with patches, never with a whole object.

mod condition;
mod kind;

pub mod agent;
pub mod agent_machine;
pub mod byoh;
pub mod infra_env;
pub mod machine;
pub mod nmstate_config;

pub use agent::Agent;
pub use agent_machine::AgentMachine;
pub use byoh::{ByoHost, ByoMachine};
pub use condition::{ForeignCondition, find};
pub use infra_env::InfraEnv;
pub use machine::{MachineMeta, MachineVersion};
pub use nmstate_config::NMStateConfig;

use serde::{Deserialize, Serialize};

/// Name and namespace of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespacedName {
    /// `metadata.name`.
    #[serde(
        deserialize_with = "crate::lenient::or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub name: String,
    /// `metadata.namespace`.
    #[serde(
        deserialize_with = "crate::lenient::or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub namespace: String,
}
