//! The upstream kinds that the played parts read and write, by group and version.
//!
//! They are used without generated types, because a played controller must be able to write fields that the operator
//! does not know.

use kube::core::{ApiResource, GroupVersionKind};

use super::options::MachineApi;

/// API group of the agent CAPI provider.
pub const PROVIDER_GROUP: &str = "capi-provider.agent-install.openshift.io";
/// API group of the assisted service.
pub const ASSISTED_GROUP: &str = "agent-install.openshift.io";
/// API group of CAPI core.
pub const CAPI_GROUP: &str = "cluster.x-k8s.io";

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// `AgentMachine`, the infrastructure object of one Machine.
#[must_use]
pub fn agent_machine() -> ApiResource {
    resource(PROVIDER_GROUP, "v1beta1", "AgentMachine", "agentmachines")
}

/// `AgentMachineTemplate`, from which a MachineSet creates AgentMachines.
#[must_use]
pub fn agent_machine_template() -> ApiResource {
    resource(
        PROVIDER_GROUP,
        "v1beta1",
        "AgentMachineTemplate",
        "agentmachinetemplates",
    )
}

/// `Agent`, a host that registered.
#[must_use]
pub fn agent() -> ApiResource {
    resource(ASSISTED_GROUP, "v1beta1", "Agent", "agents")
}

/// `InfraEnv`, the source of a discovery image.
#[must_use]
pub fn infra_env() -> ApiResource {
    resource(ASSISTED_GROUP, "v1beta1", "InfraEnv", "infraenvs")
}

/// `Machine` in the version that the control plane's CAPI writes.
#[must_use]
pub fn machine(api: MachineApi) -> ApiResource {
    resource(CAPI_GROUP, api.version(), "Machine", "machines")
}

/// `MachineSet` in the version that the control plane's CAPI writes.
#[must_use]
pub fn machine_set(api: MachineApi) -> ApiResource {
    resource(CAPI_GROUP, api.version(), "MachineSet", "machinesets")
}
