//! Wire types of agent-forge: its own two kinds and the parts of foreign kinds that it reads or writes.
//!
//! Contract: this crate says what is on the wire and nothing about what to do with it. The types
//! never add a value that was not there (every optional field is an `Option` that is left out when
//! empty), so reading an object and writing it back changes nothing; defaults come from methods.
//! Foreign objects never fail to parse because of what they hold: what cannot be understood reads
//! as absent.
//!
//! - [`pool`], [`agent`]: the kinds `VsphereAgentPool` and `VsphereAgent`.
//! - [`conditions`]: condition types, reasons, phases, planned actions, event reasons.
//! - [`names`]: labels, annotations, finalizers.
//! - [`external`]: AgentMachine, Machine (metadata), Agent, InfraEnv.
//! - [`manifest`]: the CustomResourceDefinitions in `config/crd` and their reference page.

pub mod agent;
pub mod conditions;
pub mod duration;
pub mod external;
mod lenient;
pub mod manifest;
pub mod names;
pub mod pool;
mod schema;
mod waiting;

pub use agent::{VsphereAgent, VsphereAgentSpec, VsphereAgentStatus};
pub use pool::{VsphereAgentPool, VsphereAgentPoolSpec, VsphereAgentPoolStatus};
pub use waiting::WaitingOn;

/// Reference to one object of any kind; `uid` is set wherever it is known.
pub use k8s_openapi::api::core::v1::ObjectReference;
/// Time of an API object: whole seconds, UTC, as Kubernetes writes it.
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
