//! Every version of a foreign program that the lab runs, in one place.
//!
//! A test next to each build recipe fails when its `go.mod` names another version than this file.

/// Release of kube-apiserver, kube-controller-manager and kubectl (module `k8s.io/kubernetes`).
pub const KUBERNETES: &str = "v1.36.3";

/// Release of etcd; the program lies inside the crate `etcd-bin-vendored` of the same version.
pub const ETCD: &str = "3.7.2";

/// Release of Jaeger (module `github.com/jaegertracing/jaeger`); later ones fail Go's checksum database.
pub const JAEGER: &str = "v1.62.0";

/// Release of promtool (module `github.com/prometheus/prometheus`).
pub const PROMETHEUS: &str = "v0.313.5";

/// Oldest Go that builds the Kubernetes release above (its `go.mod` says so), as (major, minor).
pub const OLDEST_GO: (u32, u32) = (1, 26);
