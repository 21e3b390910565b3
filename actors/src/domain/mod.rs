//! The things that agent-forge works with: names, identities, hardware, times. Each is parsed once where it enters, so that
//! the inner code handles no raw strings.

pub mod address;
pub mod belonging;
pub mod digest;
pub mod disk;
pub mod failure;
pub mod generation;
pub mod goal;
pub mod grants;
pub mod hardware;
pub mod holds;
pub mod host_class;
pub mod host_lives;
pub mod identity;
pub mod index_keys;
pub mod kubeconfig;
pub mod machine_state;
pub mod managed_vm;
pub mod marker;
pub mod names;
pub mod network;
pub mod node;
pub mod owner;
pub mod reassign;
pub mod recorded_vm;
pub mod recycle;
pub mod seconds;
pub mod selector;
pub mod server;
pub mod tally;
pub mod template;
pub mod text;
pub mod trace;
pub mod upstream;
pub mod vanished;
