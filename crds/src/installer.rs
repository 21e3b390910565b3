//! Kinds `AgentForgeInstallerConfigTemplate` and `AgentForgeInstallerConfig`: how BYOH (bring your own host) gets the scripts that
//! install Kubernetes on a host.
//!
//! BYOH makes a config from a template for each ByoMachine. Its kind is that of the template without the end `Template`, and
//! its name is that of the ByoMachine. BYOH reads `status.ready` and `status.installationSecret` of it, and nothing else.

use crate::external::ForeignCondition;
use crate::lenient::absent_is_default;
use crate::pool::ObjectNameRef;
use crate::schema;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Key of the script that installs, in a Secret or ConfigMap.
pub const INSTALL_KEY: &str = "install";
/// Key of the script that takes everything back, in a Secret or ConfigMap.
pub const UNINSTALL_KEY: &str = "uninstall";
/// Type of a Secret that Cluster API moves with its cluster.
pub const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";

const TEMPLATE_TEXT: &str = "How hosts of BYOH get Kubernetes. BYOH makes an AgentForgeInstallerConfig of it for each ByoMachine whose `spec.installerRef` names it.";
const CONFIG_TEXT: &str = "The scripts that install Kubernetes on the host of one ByoMachine, and take it off again. BYOH makes it from an AgentForgeInstallerConfigTemplate.";

/// Where the scripts come from: exactly one of both.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[schemars(!default, !remote, transform = schema::no_nulls, extend("x-kubernetes-validations" = [
    {"rule": "self == oldSelf", "message": "the scripts of a host do not change: make another template"},
    {"rule": "has(self.bundle) != has(self.scriptsFrom)", "message": "exactly one of bundle and scriptsFrom is needed"},
]))]
#[kube(
    group = "agent-forge.containeroo.ch",
    version = "v1alpha1",
    kind = "AgentForgeInstallerConfig",
    plural = "agentforgeinstallerconfigs",
    singular = "agentforgeinstallerconfig",
    shortname = "afic",
    namespaced,
    status = "AgentForgeInstallerConfigStatus",
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "The scripts that install Kubernetes on the host of one ByoMachine, and take it off again.",
    category = "agentforge",
    printcolumn = r#"{"name":"Ready","type":"boolean","jsonPath":".status.ready"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"Secret","type":"string","jsonPath":".status.installationSecret.name"}"#,
    printcolumn = r#"{"name":"Held","type":"string","jsonPath":".status.conditions[?(@.type=='HostReleased')].message","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct AgentForgeInstallerConfigSpec {
    /// The operator's own scripts, with the packages in this image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bundle: Option<Bundle>,
    /// Scripts of your own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scripts_from: Option<ScriptsFrom>,
}

absent_is_default!(AgentForgeInstallerConfigSpec);

/// An image with the packages for a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct Bundle {
    /// Registry and repository, without tag and digest: `registry.example.com/byoh/bundle`.
    #[schemars(length(min = 1, max = 512), regex(pattern = schema::REPOSITORY))]
    pub repository: String,
    /// Digest of the image: `sha256:` and 64 hexadecimal digits. A tag could be moved.
    #[schemars(length(min = 71, max = 71), regex(pattern = schema::SHA256))]
    pub digest: String,
}

/// Where scripts of your own are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ScriptsFrom {
    /// ConfigMap in the namespace of the ByoMachine, with the keys `install` and `uninstall`. It is read once, when the host is there.
    pub config_map_ref: ObjectNameRef,
}

/// What BYOH reads of a config, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default, transform = schema::no_nulls)]
pub struct AgentForgeInstallerConfigStatus {
    /// Generation of the spec that the rest of the status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Whether the Secret was created. BYOH waits for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    pub ready: bool,
    /// The Secret with the scripts. BYOH copies this reference into the ByoHost.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(default, schema_with = "schema::object_reference")]
    pub installation_secret: Option<ObjectReference>,
    /// Set where a person has to act: the reason in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The same as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// `Ready`, and `HostReleased` while a deleted config waits for its host. In the form of Cluster API v1beta1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, schema_with = "schema::conditions_of_capi")]
    pub conditions: Vec<ForeignCondition>,
}

impl JsonSchema for AgentForgeInstallerConfig {
    fn schema_name() -> Cow<'static, str> {
        "AgentForgeInstallerConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        schema::with_spec(schema::root(
            CONFIG_TEXT,
            &generator.subschema_for::<AgentForgeInstallerConfigSpec>(),
            &generator.subschema_for::<AgentForgeInstallerConfigStatus>(),
        ))
    }
}

/// What each config of the template is like.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
#[schemars(!default, !remote, transform = schema::no_nulls)]
#[kube(
    group = "agent-forge.containeroo.ch",
    version = "v1alpha1",
    kind = "AgentForgeInstallerConfigTemplate",
    plural = "agentforgeinstallerconfigtemplates",
    singular = "agentforgeinstallerconfigtemplate",
    shortname = "afict",
    namespaced,
    schema = "manual",
    derive = "Default",
    derive = "PartialEq",
    doc = "How hosts of BYOH get Kubernetes.",
    category = "agentforge",
    printcolumn = r#"{"name":"Bundle","type":"string","jsonPath":".spec.template.spec.bundle.repository"}"#,
    printcolumn = r#"{"name":"Scripts","type":"string","jsonPath":".spec.template.spec.scriptsFrom.configMapRef.name"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
pub struct AgentForgeInstallerConfigTemplateSpec {
    /// The config.
    pub template: ConfigTemplate,
}

absent_is_default!(AgentForgeInstallerConfigTemplateSpec);

/// What BYOH copies into a config.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ConfigTemplate {
    /// Spec of the config.
    pub spec: AgentForgeInstallerConfigSpec,
}

impl JsonSchema for AgentForgeInstallerConfigTemplate {
    fn schema_name() -> Cow<'static, str> {
        "AgentForgeInstallerConfigTemplate".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        schema::with_spec(schema::without_status(schema::root(
            TEMPLATE_TEXT,
            &generator.subschema_for::<AgentForgeInstallerConfigTemplateSpec>(),
            &Schema::default(),
        )))
    }
}
