//! References to objects by name.

use crate::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names one object whose kind and namespace follow from the field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct ObjectNameRef {
    /// `metadata.name` of the object.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::DNS_SUBDOMAIN))]
    pub name: String,
}

impl ObjectNameRef {
    /// It names no object: the field is absent.
    #[must_use]
    pub fn is_unnamed(&self) -> bool {
        self.name.is_empty()
    }
}

/// Names the InfraEnv.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct InfraEnvRef {
    /// `metadata.name` of the InfraEnv.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::DNS_SUBDOMAIN))]
    pub name: String,
    /// `metadata.namespace` of the InfraEnv. Empty: the pool's namespace is searched
    /// first, then `controlPlaneNamespace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = schema::DNS_LABEL_OR_EMPTY))]
    pub namespace: Option<String>,
}

/// Names the Secret that opens vCenter.
///
/// Keys: `server`, `username`, `password`; optional `insecure` ("true" trusts any certificate),
/// `caBundle` (PEM) and `thumbprint` (SHA-256 of the server's certificate).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct CredentialsSecretRef {
    /// `metadata.name` of the Secret.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::DNS_SUBDOMAIN))]
    pub name: String,
    /// `metadata.namespace` of the Secret. Empty: the pool's own. Any other namespace is refused
    /// unless the operator was started with leave to use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = schema::DNS_LABEL_OR_EMPTY))]
    pub namespace: Option<String>,
}

/// Key of a [`CaBundleRef`] that names none.
pub const DEFAULT_CA_BUNDLE_KEY: &str = "ca-bundle.crt";

/// Names certificates in a ConfigMap of the pool's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct CaBundleRef {
    /// `metadata.name` of the ConfigMap.
    #[schemars(length(min = 1, max = 253), regex(pattern = schema::DNS_SUBDOMAIN))]
    pub name: String,
    /// Key in its `data`, whose value is one or more certificates in PEM. Empty: `ca-bundle.crt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = r"^[-._a-zA-Z0-9]*$"))]
    pub key: Option<String>,
}

impl CaBundleRef {
    /// The key that counts.
    pub fn key(&self) -> &str {
        let named = self.key.as_deref().filter(|k| !k.is_empty());
        named.unwrap_or(DEFAULT_CA_BUNDLE_KEY)
    }
}
