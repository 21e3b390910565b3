//! `NMStateConfig` of the assisted service: the network configuration of one host, which the ISO of an InfraEnv contains.

use super::kind::foreign_kind;
use serde::{Deserialize, Serialize};
use serde_json::Value;

foreign_kind! {
    /// The network configuration of one host.
    NMStateConfig { spec: NMStateConfigSpec, status: Value }
    group: "agent-install.openshift.io", version: "v1beta1", plural: "nmstateconfigs"
}

/// The host, and its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NMStateConfigSpec {
    /// The cards by which the host is known.
    #[serde(
        deserialize_with = "crate::lenient::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub interfaces: Vec<Interface>,
    /// The configuration.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub config: Option<Value>,
}

/// One card of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Interface {
    /// The name that the configuration gives it.
    #[serde(deserialize_with = "crate::lenient::or_default")]
    pub name: String,
    /// Its MAC address.
    #[serde(deserialize_with = "crate::lenient::or_default")]
    pub mac_address: String,
}
