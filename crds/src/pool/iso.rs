//! How the discovery ISO is kept.

use super::references::CaBundleRef;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Default of `spec.iso.retainVersions`.
pub const DEFAULT_RETAIN_VERSIONS: i32 = 2;

/// How the discovery ISO is kept on its datastore, as `<pathPrefix>/<sha256>.iso`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(!default)]
pub struct IsoSpec {
    /// How often servers other than the assisted service's are asked for changes while the URL stays the same. A Go
    /// duration such as `10m`, which applies when empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_interval: Option<String>,
    /// Number of versions that stay on the datastore. The current one always stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 20), extend("default" = DEFAULT_RETAIN_VERSIONS))]
    pub retain_versions: Option<i32>,
    /// Directory on the datastore. Empty: `agent-forge/<namespace>/<name of the pool>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512), regex(pattern = r"^$|^[^/\s][^\s]*$"))]
    pub path_prefix: Option<String>,
    /// Whether a VM's CD-ROM drive is emptied once its Agent is installed, so that vMotion is free and
    /// old versions can go. VMs that were taken over keep theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eject_after_install: Option<bool>,
    /// Certificates that the image service's own may be signed by, beside those that the operator trusts anyway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle_ref: Option<CaBundleRef>,
}

impl IsoSpec {
    /// Emptying of CD-ROM drives, off unless set.
    pub fn eject_after_install(&self) -> bool {
        self.eject_after_install.unwrap_or(false)
    }

    /// Versions to keep, 2 unless set.
    pub fn retain_versions(&self) -> i32 {
        self.retain_versions.unwrap_or(DEFAULT_RETAIN_VERSIONS)
    }
}
