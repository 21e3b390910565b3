//! A Node of a hosted cluster, and what the rules of OpenShift take it for. Pure.
//!
//! Two rules exist. The vSphere CSI operator looks for the VM of each Node that it takes for vSphere (`check_nodes.go`). The
//! enhancement for bare-metal hosts in vSphere clusters needs two signs. The agent provider gives its Nodes the provider id
//! `agent://<name of the Agent>`, so neither rule takes them for vSphere without the label.

/// Label that the gate `VSphereMixedNodeEnv` of OpenShift reads.
pub const PLATFORM_TYPE_LABEL: &str = "node.openshift.io/platform-type";
/// Label with the kind of machine. The cloud controller of vSphere writes `vsphere-vm.cpu-<n>.mem-<n>gb.os-<name>`.
pub const INSTANCE_TYPE_LABEL: &str = "node.kubernetes.io/instance-type";
/// How the provider id of a Node on an Agent begins. The name of the Agent follows.
const AGENT: &str = "agent://";
/// How the provider id of a Node on vSphere begins. The BIOS UUID of the VM follows.
const VSPHERE: &str = "vsphere://";
/// How the instance type of a Node on vSphere begins.
const VSPHERE_VM: &str = "vsphere-vm";

/// What is kept of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// `metadata.name`.
    pub name: String,
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// The label [`PLATFORM_TYPE_LABEL`].
    pub platform_type: Option<String>,
    /// The label [`INSTANCE_TYPE_LABEL`].
    pub instance_type: Option<String>,
    /// `status.nodeInfo.systemUUID`: the UUID that the firmware shows to the guest.
    pub system_uuid: Option<String>,
    /// It is being deleted.
    pub deleting: bool,
}

/// What the enhancement for mixed Nodes takes a Node for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixed {
    /// Both signs are there: it is on vSphere.
    Vsphere,
    /// Both signs are missing: storage ignores it.
    Ignored,
    /// Only one sign is there.
    Unknown,
}

impl NodeFacts {
    /// The name of its Agent.
    #[must_use]
    pub fn agent(&self) -> Option<&str> {
        self.named_after(AGENT)
    }

    /// The UUID of its VM, as its provider id names it.
    #[must_use]
    pub fn vsphere_vm(&self) -> Option<&str> {
        self.named_after(VSPHERE)
    }

    fn named_after(&self, prefix: &str) -> Option<&str> {
        self.provider_id.as_deref()?.strip_prefix(prefix)
    }

    /// It has the label of vSphere.
    #[must_use]
    pub fn says_vsphere(&self) -> bool {
        self.platform_type.as_deref() == Some("vsphere")
    }

    /// Whether the vSphere CSI operator looks for its VM. `gate`: `VSphereMixedNodeEnv` is on. With the gate only the label
    /// counts, without it only the provider id.
    #[must_use]
    pub fn is_checked_by_storage(&self, gate: bool) -> bool {
        match gate {
            true => self.says_vsphere(),
            false => self.vsphere_vm().is_some(),
        }
    }

    /// What the enhancement for mixed Nodes takes it for.
    #[must_use]
    pub fn mixed(&self) -> Mixed {
        let typed = self.instance_type.as_deref();
        let typed = typed.is_some_and(|t| t.starts_with(VSPHERE_VM));
        match (self.vsphere_vm().is_some(), typed) {
            (true, true) => Mixed::Vsphere,
            (false, false) => Mixed::Ignored,
            _ => Mixed::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(provider: &str, platform: Option<&str>, instance: Option<&str>) -> NodeFacts {
        NodeFacts {
            name: "n".to_owned(),
            provider_id: Some(provider.to_owned()).filter(|p| !p.is_empty()),
            platform_type: platform.map(str::to_owned),
            instance_type: instance.map(str::to_owned),
            ..NodeFacts::default()
        }
    }

    #[test]
    fn each_rule_of_openshift_takes_a_node_for_what_its_authors_wrote() {
        let (vm, type_) = ("vsphere://42-7", Some("vsphere-vm.cpu-8.mem-16gb.os-rhel"));
        for (so, node, gate_on, gate_off, mixed) in [
            (
                "made by the installer",
                node(vm, Some("vsphere"), type_),
                true,
                true,
                Mixed::Vsphere,
            ),
            (
                "the same before the gate",
                node(vm, None, type_),
                false,
                true,
                Mixed::Vsphere,
            ),
            (
                "on an Agent",
                node("agent://a", None, None),
                false,
                false,
                Mixed::Ignored,
            ),
            (
                "on an Agent, with the label",
                node("agent://a", Some("vsphere"), None),
                true,
                false,
                Mixed::Ignored,
            ),
            (
                "another platform",
                node("metal3://x", Some("baremetal"), Some("m5.large")),
                false,
                false,
                Mixed::Ignored,
            ),
            ("new", node("", None, None), false, false, Mixed::Ignored),
            (
                "an id alone",
                node(vm, None, None),
                false,
                true,
                Mixed::Unknown,
            ),
            (
                "a type alone",
                node("", None, type_),
                false,
                false,
                Mixed::Unknown,
            ),
        ] {
            assert_eq!(node.is_checked_by_storage(true), gate_on, "{so}");
            assert_eq!(node.is_checked_by_storage(false), gate_off, "{so}");
            assert_eq!(node.mixed(), mixed, "{so}");
        }
    }
}
