//! The real parts of a lab. Each is a program of its own on loopback and ends with the lab.
//!
//! Guarantees: a part that was returned answers. Its ports were free. Its output is in a file in the lab's directory.
//! If it does not start, the error has the end of that output. It does not outlive the process that started it, however
//! that process ends (see `leash`).

pub mod api_server;
pub mod audit;
pub mod certificates;
pub mod cluster_api;
pub mod controller_manager;
pub mod etcd;
pub mod jaeger;
pub mod kubeconfig;
pub(crate) mod leash;
pub mod operator;
mod ports;
pub mod process;
pub mod proxy;
pub mod sink;
pub mod vcenter;
pub mod vcenter_admin;
pub mod vcenter_inventory;
pub mod vcenter_trouble;

pub use api_server::ApiServer;
pub use cluster_api::ClusterApi;
pub use controller_manager::ControllerManager;
pub use etcd::Etcd;
pub use jaeger::{Jaeger, Trace};
pub use operator::{Operator, OperatorOptions};
pub use proxy::{FaultProxy, Network};
pub use sink::{Mood, SpanSink};
pub use vcenter::{VCenterOptions, VCenterProcess};
pub use vcenter_admin::VCenterAdmin;
