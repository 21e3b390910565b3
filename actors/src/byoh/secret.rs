//! The Secret with the scripts of one config. Pure.

use std::collections::BTreeMap;

use agent_forge_crds::{
    AgentForgeInstallerConfig,
    external::byoh::CLUSTER_NAME_LABEL,
    installer::{INSTALL_KEY, SECRET_TYPE, UNINSTALL_KEY},
};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ObjectReference, Secret},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{Resource as _, ResourceExt as _};

use super::scripts::Scripts;
use crate::{
    domain::{digest, names::ObjectKey},
    ports::byoh::ScriptsSecret,
};

/// Longest name of a Secret.
const LONGEST: usize = 253;

/// Name of the Secret: that of the config, and a part of the digest of its uid. So no two configs share one, also not a config and
/// a later one of its name.
#[must_use]
pub fn name(config: &AgentForgeInstallerConfig) -> String {
    let uid = config.uid().unwrap_or_default();
    let [a, b, c, d, ..] = digest::of(&[uid.as_bytes()]);
    let end = format!("-{a:02x}{b:02x}{c:02x}{d:02x}");
    let mut name = config.name_any();
    name.truncate(LONGEST - end.len());
    name.trim_end_matches(['-', '.']).to_owned() + &end
}

/// Namespace and name of the Secret.
#[must_use]
pub fn key(config: &AgentForgeInstallerConfig) -> ObjectKey {
    ObjectKey::new(config.namespace().unwrap_or_default(), name(config))
}

/// What BYOH copies into the ByoHost.
#[must_use]
pub fn reference(config: &AgentForgeInstallerConfig) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Secret".to_owned()),
        namespace: config.namespace(),
        name: Some(name(config)),
        ..ObjectReference::default()
    }
}

/// Whether that reference names the Secret. Without a namespace it may.
#[must_use]
pub fn is_named(config: &AgentForgeInstallerConfig, by: Option<&ObjectReference>) -> bool {
    by.is_some_and(|by| {
        by.name == Some(name(config))
            && (by.namespace.is_none() || by.namespace == config.namespace())
    })
}

/// The Secret. Nobody can change it, so that every reader gets the same scripts.
#[must_use]
pub fn of(config: &AgentForgeInstallerConfig, scripts: Scripts) -> Secret {
    let cluster = config.labels().get(CLUSTER_NAME_LABEL);
    let labels = cluster.map(|name| (CLUSTER_NAME_LABEL.to_owned(), name.clone()));
    let data = [
        (INSTALL_KEY, scripts.install),
        (UNINSTALL_KEY, scripts.uninstall),
    ];
    let data = data.map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())));
    Secret {
        metadata: ObjectMeta {
            name: Some(name(config)),
            namespace: config.namespace(),
            labels: labels.map(|label| BTreeMap::from([label])),
            owner_references: Some(vec![OwnerReference {
                api_version: AgentForgeInstallerConfig::api_version(&()).into_owned(),
                kind: AgentForgeInstallerConfig::kind(&()).into_owned(),
                name: config.name_any(),
                uid: config.uid().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        type_: Some(SECRET_TYPE.to_owned()),
        immutable: Some(true),
        data: Some(data.into()),
        ..Secret::default()
    }
}

/// Whether that Secret is the one that would be created: of the same owner, with the same scripts, and nobody can change it. Who may
/// create Secrets may plant one of this name.
#[must_use]
pub fn is_it(found: &ScriptsSecret, wanted: &Secret) -> bool {
    *found == ScriptsSecret::of(wanted)
}
