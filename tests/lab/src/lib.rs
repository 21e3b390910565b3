//! The lab: real counterparts of the operator, started from package registries alone, and played upstream controllers.
//!
//! - [`tools`] finds or builds the foreign programs, once per machine;
//! - [`parts`] runs each of them;
//! - [`Lab`] puts them together with CRDs, users and namespaces;
//! - [`played`] acts the controllers that are not there (HyperShift, Cluster API, agent provider, assisted service);
//! - [`stage`] sets what stands before a pool is made;
//! - [`demo`] shows all of it at work; [`bench`] measures it; [`soak`] kills it again and again;
//! - [`patience`] says how long anybody waits for what has to happen;
//! - [`witness`] looks on and remembers what must never be seen.
//!
//! Environment: `KUBEBUILDER_ASSETS` names a directory of ready programs; `XDG_CACHE_HOME` is where built ones are kept;
//! `AGENT_FORGE_SHARED` names the directory with `upstream-crds`; `AGENT_FORGE_LAB_DIR` keeps data and logs of all labs
//! below it; `AGENT_FORGE_LAB_LOG` is the operator's `RUST_LOG`.

pub mod bench;
pub mod demo;
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
    options::{CrdSource, LabOptions, MachineVersions, ProviderGeneration},
};

/// Chooses the TLS implementation of this process; the first call counts.
pub fn install_tls_provider() {
    // An error says that somebody chose before, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
