//! The lab: real programs around the operator, started from package registries alone, and played upstream controllers.
//!
//! - [`tools`] finds or builds the foreign programs, once per machine.
//! - [`parts`] runs each of them.
//! - [`Lab`] puts them together with CRDs, users and namespaces.
//! - [`played`] plays the controllers that are missing (HyperShift, Cluster API, agent provider, assisted service).
//! - [`stage`] prepares everything that must exist before a pool is created.
//! - [`demo`] shows all of it at work. [`mod@bench`] measures it. [`kills`] kills the operator again and again.
//! - [`dist`] makes the files of a release.
//! - [`soak`] plays for hours what is too much for each change.
//! - [`patience`] has the time limits for everything that must happen.
//! - [`witness`] observes, and remembers what must never happen.
//!
//! Environment variables:
//!
//! - `KUBEBUILDER_ASSETS` names a directory of ready programs.
//! - `XDG_CACHE_HOME` is where built programs are kept.
//! - `AGENT_FORGE_SHARED` names the directory with `upstream-crds`.
//! - `AGENT_FORGE_LAB_DIR` keeps data and logs of all labs below it.
//! - `AGENT_FORGE_LAB_LOG` is the operator's `RUST_LOG`.

pub mod bench;
pub mod demo;
pub mod dist;
pub mod handover;
pub mod kills;
pub mod lab;
pub mod parts;
pub mod patience;
pub mod played;
pub mod soak;
pub mod stage;
pub mod tools;
pub mod witness;

pub use lab::{
    Lab,
    access::OperatorAccess,
    apply::apply_yaml,
    options::{LabOptions, MachineVersions, ProviderGeneration},
};

/// Chooses the TLS implementation of this process. The first call counts.
pub fn install_tls_provider() {
    // An error means that it was chosen before, with the same value.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
