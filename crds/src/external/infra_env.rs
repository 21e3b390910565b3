//! `InfraEnv` of the assisted service: the offer of a discovery ISO.

use super::NamespacedName;
use super::condition::{ForeignCondition, find};
use super::kind::foreign_kind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// API group.
pub const GROUP: &str = "agent-install.openshift.io";
/// Condition about the ISO. Only the URL shows whether the ISO can be downloaded; the condition's reasons do not.
pub const IMAGE_CREATED: &str = "ImageCreated";

foreign_kind! {
    /// The offer of a discovery ISO.
    InfraEnv { spec: InfraEnvSpec, status: InfraEnvStatus }
    group: "agent-install.openshift.io", version: "v1beta1", plural: "infraenvs"
}

/// The wanted properties of the ISO.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InfraEnvSpec {
    /// Cluster that its hosts are bound to from the start. Hosts for NodePools need it to be absent.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub cluster_ref: Option<NamespacedName>,
    /// Labels of its Agents at their creation.
    #[serde(
        deserialize_with = "crate::lenient::string_map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub agent_labels: BTreeMap<String, String>,
    /// Version of the operating system in the ISO. It is a part of the ISO's identity.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub os_image_version: Option<String>,
    /// How its Agents are approved.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub agent_approval: Option<AgentApproval>,
    /// Proxy of the guests.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub proxy: Option<Value>,
    /// Certificates that the guests trust.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub additional_trust_bundle: Option<Value>,
    /// SSH keys of the guests.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub ssh_authorized_key: Option<Value>,
    /// Changes to the guests' kernel arguments.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub kernel_arguments: Option<Value>,
    /// Changes to the guests' Ignition configuration.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub ignition_config_override: Option<Value>,
    /// Time servers of the guests.
    #[serde(
        rename = "additionalNTPSources",
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub additional_ntp_sources: Option<Value>,
    /// The NMStateConfigs that are put into the ISO.
    #[serde(
        rename = "nmStateConfigLabelSelector",
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub nm_state_config_label_selector: Option<Value>,
}

/// How Agents are approved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentApproval {
    /// Whether the service approves every Agent of the InfraEnv. It does so again if somebody removes the approval.
    #[serde(deserialize_with = "crate::lenient::or_default")]
    pub auto_approve: bool,
}

/// The state of the ISO.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InfraEnvStatus {
    /// URL of the ISO. The URL alone allows the download.
    #[serde(
        rename = "isoDownloadURL",
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub iso_download_url: Option<IsoDownloadUrl>,
    /// When the URL was created. It changes only together with the URL.
    #[serde(
        deserialize_with = "crate::lenient::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub created_time: Option<Time>,
    /// Conditions.
    #[serde(
        deserialize_with = "crate::lenient::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub conditions: Vec<ForeignCondition>,
}

/// URL of an ISO. It contains a token, so it is never printed.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IsoDownloadUrl(String);

impl IsoDownloadUrl {
    /// Wraps a URL.
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// The URL with its token. Use it only for the request that downloads the ISO.
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
    /// URL of the ISO, if there is one. A URL that is not empty is the only criterion.
    pub fn iso_download_url(&self) -> Option<&IsoDownloadUrl> {
        self.status
            .as_ref()?
            .iso_download_url
            .as_ref()
            .filter(|url| !url.expose().is_empty())
    }

    /// Why the service could not make its image: the message of condition `ImageCreated` if that is False.
    pub fn image_failure(&self) -> Option<&str> {
        let conditions = self.status.as_ref().map(|s| s.conditions.as_slice());
        let created = find(conditions.unwrap_or_default(), IMAGE_CREATED)?;
        created
            .is_false()
            .then(|| created.message.as_deref().unwrap_or_default())
    }

    /// Whether the service approves its Agents automatically.
    pub fn auto_approves(&self) -> bool {
        let approval = self.spec.agent_approval.as_ref();
        approval.is_some_and(|a| a.auto_approve)
    }

    /// The labels that choose the NMStateConfigs of its ISO. Empty: it has none. The service looks at `matchLabels` only.
    pub fn network_labels(&self) -> BTreeMap<String, String> {
        let selector = self.spec.nm_state_config_label_selector.as_ref();
        let labels = selector.and_then(|s| s.get("matchLabels")?.as_object());
        let text =
            |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        labels.into_iter().flatten().filter_map(text).collect()
    }

    /// When the URL was created.
    pub fn created_time(&self) -> Option<&Time> {
        self.status.as_ref()?.created_time.as_ref()
    }
}
