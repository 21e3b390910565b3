//! `InfraEnv` of the assisted service: the offer of a discovery ISO.

use super::NamespacedName;
use super::condition::{ForeignCondition, find};
use super::kind::foreign_kind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// API group.
pub const GROUP: &str = "agent-install.openshift.io";
/// Condition about the ISO. Its reasons do not tell whether the ISO can be had; the URL does (§5).
pub const IMAGE_CREATED: &str = "ImageCreated";

foreign_kind! {
    /// The offer of a discovery ISO.
    InfraEnv { spec: InfraEnvSpec, status: InfraEnvStatus }
    group: "agent-install.openshift.io", version: "v1beta1", plural: "infraenvs"
}

/// What the ISO shall be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InfraEnvSpec {
    /// Cluster that its hosts are bound to from the start; hosts for NodePools need it absent (§4).
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub cluster_ref: Option<NamespacedName>,
    /// Labels that its Agents are created with (§3.5).
    #[serde(
        deserialize_with = "crate::lenient::string_map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub agent_labels: BTreeMap<String, String>,
    /// Version of the operating system in the ISO; part of what identifies it (§5).
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub os_image_version: Option<String>,
    /// How its Agents come to be approved.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub agent_approval: Option<AgentApproval>,
}

/// How Agents come to be approved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentApproval {
    /// The service approves every Agent of the InfraEnv, and again whenever somebody takes the approval back.
    #[serde(deserialize_with = "crate::lenient::or_default")]
    pub auto_approve: bool,
}

/// What the ISO is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InfraEnvStatus {
    /// Where the ISO is. Holding it is enough to fetch the ISO (§5).
    #[serde(
        rename = "isoDownloadURL",
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub iso_download_url: Option<IsoDownloadUrl>,
    /// When the URL was made; changes only together with it (§5).
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub created_time: Option<Time>,
    /// Conditions (§5).
    #[serde(
        deserialize_with = "crate::lenient::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<ForeignCondition>,
}

/// Address of an ISO. It carries a token, so it never prints (§5).
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IsoDownloadUrl(String);

impl IsoDownloadUrl {
    /// Wraps an address.
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// The address with its token: for the request that fetches the ISO and nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for IsoDownloadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IsoDownloadUrl(redacted)")
    }
}

impl InfraEnv {
    /// Where the ISO is, when there is one: a URL that is not empty is the whole test (§5).
    pub fn iso_download_url(&self) -> Option<&IsoDownloadUrl> {
        self.status
            .as_ref()?
            .iso_download_url
            .as_ref()
            .filter(|url| !url.expose().is_empty())
    }

    /// Why the service could not make its image: the message of condition `ImageCreated` where that is False.
    pub fn image_failure(&self) -> Option<&str> {
        let conditions = self.status.as_ref().map(|s| s.conditions.as_slice());
        let created = find(conditions.unwrap_or_default(), IMAGE_CREATED)?;
        created
            .is_false()
            .then(|| created.message.as_deref().unwrap_or_default())
    }

    /// Whether the service approves its Agents by itself.
    pub fn auto_approves(&self) -> bool {
        let approval = self.spec.agent_approval.as_ref();
        approval.is_some_and(|a| a.auto_approve)
    }

    /// When the URL was made (§5).
    pub fn created_time(&self) -> Option<&Time> {
        self.status.as_ref()?.created_time.as_ref()
    }
}
