//! Size of a VM, and the labels and annotations of its Agent.

use crate::schema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
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
    /// Labels that the Nodes of this pool get. The operator adds them to `spec.nodeLabels` of an Agent before a Machine has it,
    /// and the assisted service sets them when the Node is ready. Keys that are there already keep their value. Keys below
    /// `node-role.kubernetes.io` and `node-restriction.kubernetes.io` are refused.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(default, schema_with = "node_labels")]
    pub node_labels: BTreeMap<String, String>,
    /// True: the Nodes get `node.openshift.io/platform-type=vsphere`, unless `nodeLabels` has that key. The vSphere CSI operator
    /// reads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform_labels: Option<bool>,
    /// Class under which OSAC finds hosts of the buffer. The operator sets it as the label `osac.openshift.io/resource_class`
    /// on Agents that wait ready in the buffer, and on no others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$")
    )]
    pub resource_class: Option<String>,
}

/// Most Node labels of a pool.
const MAX_NODE_LABELS: usize = 16;

/// What the API server takes as labels of a Node. The service refuses all changes of an Agent with another one.
fn node_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": MAX_NODE_LABELS,
        "additionalProperties": {
            "type": "string",
            "maxLength": 63,
            "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
        },
        "x-kubernetes-validations": [
            {
                "rule": r"self.all(k, size(k) <= 317 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",
                "message": "each key must be a label key: a name of at most 63 characters, after an optional DNS name and a slash",
            },
            {
                "rule": r"self.all(k, !k.matches('^([^/]*[.])?(node-role|node-restriction)[.]kubernetes[.]io(/|$)'))",
                "message": "keys below node-role.kubernetes.io and node-restriction.kubernetes.io are for cluster administrators",
            },
        ],
    })
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

    /// Whether Nodes get the label with their platform, `false` unless set.
    pub fn platform_labels(&self) -> bool {
        self.platform_labels.unwrap_or_default()
    }
}
