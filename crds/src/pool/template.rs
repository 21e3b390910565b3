//! Size of a VM, and the labels and annotations of its Agent.

use crate::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Default of `spec.template.numCPUs`.
pub const DEFAULT_NUM_CPUS: i32 = 4;
/// Default of `spec.template.memoryMiB`.
pub const DEFAULT_MEMORY_MIB: i32 = 16384;
/// Default of `spec.template.diskGiB`.
pub const DEFAULT_DISK_GIB: i32 = 100;
/// Default of `spec.agent.role`.
pub const DEFAULT_ROLE: &str = "worker";

/// Size of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct TemplateSpec {
    /// Accepted and without effect, as in the predecessor: a VM has the name of its AgentMachine.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 58), regex(pattern = schema::DNS_LABEL_OR_EMPTY))]
    pub name_prefix: Option<String>,
    /// Number of virtual processors.
    #[serde(rename = "numCPUs", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128), extend("default" = DEFAULT_NUM_CPUS))]
    pub num_cpus: Option<i32>,
    /// Memory, in MiB.
    #[serde(rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1024, max = 1048576), extend("default" = DEFAULT_MEMORY_MIB))]
    pub memory_mib: Option<i32>,
    /// Size of the disk, in GiB.
    #[serde(rename = "diskGiB", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 20, max = 65536), extend("default" = DEFAULT_DISK_GIB))]
    pub disk_gib: Option<i32>,
}

impl TemplateSpec {
    /// Virtual processors, 4 unless set.
    pub fn num_cpus(&self) -> i32 {
        self.num_cpus.unwrap_or(DEFAULT_NUM_CPUS)
    }

    /// Memory in MiB, 16384 unless set.
    pub fn memory_mib(&self) -> i32 {
        self.memory_mib.unwrap_or(DEFAULT_MEMORY_MIB)
    }

    /// Disk in GiB, 100 unless set.
    pub fn disk_gib(&self) -> i32 {
        self.disk_gib.unwrap_or(DEFAULT_DISK_GIB)
    }
}

/// What an Agent of this pool's VMs is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct AgentSpec {
    /// Labels that the Agent gets, so that the NodePool's `agentLabelSelector` selects it. The operator removes
    /// them again when the Machine goes. It adds `hypershift.openshift.io/nodepool-role` unless it is set here.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 32))]
    pub labels: BTreeMap<String, String>,
    /// Role of the Agent and of the NodePool it serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$"), extend("default" = DEFAULT_ROLE))]
    pub role: Option<String>,
    /// Whether the operator approves the Agents of its own VMs. With `false` a person does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = true))]
    pub approve: Option<bool>,
    /// How long a VM's Agent may take to register before the VM is replaced, as a Go
    /// duration such as `30m` or `1h15m`. Empty: as the operator was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 32),
        regex(pattern = crate::duration::PATTERN_OR_EMPTY),
        extend("x-kubernetes-validations" = [{
            "rule": "self == '' || duration(self) > duration('0s')",
            "message": "discoveryTimeout must be longer than zero, or empty for the operator's own",
        }])
    )]
    pub discovery_timeout: Option<String>,
}

impl AgentSpec {
    /// Role, `worker` unless set.
    pub fn role(&self) -> &str {
        self.role.as_deref().unwrap_or(DEFAULT_ROLE)
    }

    /// Whether the operator approves, `true` unless set.
    pub fn approve(&self) -> bool {
        self.approve.unwrap_or(true)
    }
}
