//! Wire types of agent-forge: its own kinds, and the parts of foreign kinds that it reads or writes.
//!
//! Contract: this crate defines the format of objects, and not what to do with them. The types never add a value: every
//! optional field is an `Option` that is left out when it is empty. So reading an object and writing it back changes
//! nothing. Methods return the defaults. Foreign objects always parse: what cannot be parsed reads as absent.
//!
//! - [`pool`], [`agent`]: the kinds `VsphereAgentPool` and `VsphereAgent`.
//! - [`installer`]: the kinds of the optional installer for BYOH.
//! - [`conditions`]: condition types, reasons, phases, planned actions, reasons of Events.
//! - [`names`]: labels, annotations, finalizers.
//! - [`external`]: AgentMachine, Machine (metadata), Agent, InfraEnv, ByoMachine, ByoHost.
//! - [`docs`]: addresses of the pages that texts name.
//! - [`manifest`]: the CustomResourceDefinitions in `config/crd` and their reference page.

pub mod agent;
pub mod conditions;
pub mod docs;
pub mod duration;
pub mod external;
pub mod installer;
mod lenient;
pub mod manifest;
pub mod names;
pub mod pool;
mod schema;
mod waiting;

pub use agent::{VsphereAgent, VsphereAgentSpec, VsphereAgentStatus};
pub use installer::{
    AgentForgeInstallerConfig, AgentForgeInstallerConfigStatus, AgentForgeInstallerConfigTemplate,
};
pub use pool::{VsphereAgentPool, VsphereAgentPoolSpec, VsphereAgentPoolStatus};
pub use waiting::WaitingOn;

/// Reference to one object of any kind. `uid` is set if it is known.
pub use k8s_openapi::api::core::v1::ObjectReference;
/// Time in an API object: whole seconds, UTC, in the format of Kubernetes.
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
