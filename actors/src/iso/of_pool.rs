//! The pool's side of the discovery ISO. Pure, except for reads of a ConfigMap ([`ca`]) and an InfraEnv ([`fresh`]).
//!
//! - What the pool wants: [`want`].
//! - What other pools' statuses record of its files: [`kept`].
//! - How its own status records what it got: [`record`].

pub mod ca;
mod files;
pub mod fresh;
pub mod held;
pub mod kept;
pub mod look;
mod lost;
mod record;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use agent_forge_crds::{
    conditions::Reason,
    duration,
    external::infra_env::{self, InfraEnv},
    names::FORCE_ISO_REFRESH_ANNOTATION,
    pool::{DEFAULT_CHECK_INTERVAL, IsoStatus, VsphereAgentPool},
};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt;
use sha2::{Digest, Sha256};

pub use self::{
    files::{directory, shares},
    record::status,
};
use super::infra_env_guards::image_failed;
use crate::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        names::{DatastorePath, ObjectKey},
    },
    iso::{
        PruneNews,
        msg::{IsoFile, IsoKey, IsoState, IsoWant},
    },
    migration,
    ports::iso_source::{IsoUrl, Validators},
};

/// Where the pool's ISO is.
#[must_use]
pub fn iso_path(pool: &VsphereAgentPool) -> Option<DatastorePath> {
    let iso = pool.status.as_ref()?.iso.as_ref()?;
    if let Some(stored) = iso.stored_path.as_deref() {
        return DatastorePath::parse(stored).ok();
    }
    DatastorePath::new(&pool.spec.vsphere.iso_datastore, iso.path.as_deref()?).ok()
}

/// Asks the ISO cache of a datastore.
#[async_trait]
pub trait IsoCaches: Send + Sync {
    /// How far the wanted ISO is. Starts what is missing.
    ///
    /// # Errors
    /// The cache is being restarted.
    async fn ensure(&self, key: IsoKey, want: IsoWant) -> Result<IsoState, ReconcileError>;

    /// Removes `left.prunable` from a datastore that the pool has left, unless a VM or another pool needs it. Returns
    /// the files that are gone by now, and the files that stay for a new reason.
    ///
    /// # Errors
    /// The cache is being restarted.
    async fn clear(&self, key: IsoKey, left: IsoWant) -> Result<PruneNews, ReconcileError>;

    /// The pool is being deleted: no cache continues what only it wants. This may be called more than once.
    fn leave(&self, pool: &ObjectKey);
}

/// Why no ISO can be wanted yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoSource {
    /// The InfraEnv does not exist.
    InfraEnvNotFound,
    /// There is no namespace to look in: these namespaces do not admit the pool.
    NotAllowed(Vec<String>),
    /// It has no URL yet.
    UrlPending,
    /// The service could not make its image. The value is the sentence for people.
    ImageFailed(String),
    /// A field has an invalid value.
    Invalid(ReconcileError),
}

/// How often the source is asked for changes: `spec.iso.checkInterval`. 10 minutes if that is missing or invalid.
#[must_use]
pub fn check_interval(pool: &VsphereAgentPool) -> Duration {
    let text = pool
        .spec
        .iso
        .as_ref()
        .and_then(|i| i.check_interval.as_deref());
    let usable = |text: &str| duration::parse(text).ok().filter(|d| !d.is_zero());
    text.and_then(usable)
        .or_else(|| usable(DEFAULT_CHECK_INTERVAL))
        .unwrap_or(Duration::from_secs(600))
}

/// Which cache serves the pool.
#[must_use]
pub fn cache_key(pool: &VsphereAgentPool, server: &str) -> IsoKey {
    IsoKey {
        server: server.to_owned(),
        datacenter: pool.spec.vsphere.datacenter().to_owned(),
        datastore: pool.spec.vsphere.iso_datastore.clone(),
    }
}

/// What identifies the source without its token: InfraEnv, URL without token, `createdTime`. The bytes and
/// `Last-Modified` do not count, because with the Assisted Service they may differ on every download. For any other
/// server the whole path counts. It leaves this function only as part of the digest.
#[must_use]
pub fn source_key(infra_env: &InfraEnv, url: &IsoUrl) -> String {
    let created = infra_env
        .created_time()
        .map(|t| t.0.to_string())
        .unwrap_or_default();
    let parts = [
        infra_env.uid().unwrap_or_default(),
        infra_env.name_any(),
        url.identity(),
        created,
    ];
    hex::encode(Sha256::digest(parts.join("\n").as_bytes()))
}

/// A reference to the InfraEnv that offered an ISO.
#[must_use]
pub fn reference(infra_env: &InfraEnv) -> ObjectReference {
    ObjectReference {
        api_version: Some(format!("{}/v1beta1", infra_env::GROUP)),
        kind: Some("InfraEnv".to_owned()),
        name: Some(infra_env.name_any()),
        namespace: infra_env.namespace(),
        uid: infra_env.uid(),
        ..ObjectReference::default()
    }
}

/// The InfraEnv and the URL of its ISO.
///
/// # Errors
/// [`NoSource`].
pub fn source(infra_env: Option<&InfraEnv>) -> Result<(&InfraEnv, IsoUrl), NoSource> {
    let infra_env = infra_env.ok_or(NoSource::InfraEnvNotFound)?;
    if let Some(why) = infra_env.image_failure() {
        return Err(NoSource::ImageFailed(image_failed(infra_env, why)));
    }
    let url = infra_env.iso_download_url().ok_or(NoSource::UrlPending)?;
    let source = IsoUrl::parse(url.expose()).map_err(|e| {
        let message = format!(
            "status.isoDownloadURL of InfraEnv {}: {e}",
            infra_env.name_any()
        );
        NoSource::Invalid(ReconcileError::blocked(
            ErrorSource::Iso,
            Reason::InvalidIsoUrl,
            message,
        ))
    })?;
    Ok((infra_env, source))
}

/// Value of the force-refresh annotation that no fetch has served yet. Each value counts once. Removing the annotation
/// asks for nothing.
fn force_token(pool: &VsphereAgentPool, status: Option<&IsoStatus>) -> Option<String> {
    let value = pool.annotations().get(FORCE_ISO_REFRESH_ANNOTATION);
    let value = value.filter(|v| !v.is_empty())?;
    let spent = status.and_then(|iso| iso.force_refresh_token.as_ref());
    (spent != Some(value)).then(|| value.clone())
}

/// What the pool wants on its ISO datastore. `others`: the other pools. The files that retention releases, and how soon
/// to look at the file ([`look`]), are added by the caller.
///
/// # Errors
/// [`NoSource`].
pub fn want(
    pool: &VsphereAgentPool,
    others: &[Arc<VsphereAgentPool>],
    infra_env: Option<&InfraEnv>,
    secret: &ObjectKey,
) -> Result<IsoWant, NoSource> {
    let (infra_env, source) = source(infra_env)?;
    let directory = directory(pool).map_err(NoSource::Invalid)?;
    let source_key = source_key(infra_env, &source);
    let status = pool.status.as_ref().and_then(|s| s.iso.as_ref());
    let force_token = force_token(pool, status);
    let same_source = status.filter(|i| i.source_key.as_deref() == Some(source_key.as_str()));
    let unforced = |status: Option<&IsoStatus>| status.filter(|_| force_token.is_none()).cloned();
    let inherited = || {
        let status = unforced(status)?;
        let datastore = &pool.spec.vsphere.iso_datastore;
        let theirs = migration::iso::file(&status, datastore, &source, infra_env.created_time())?;
        Some(IsoFile {
            sha256: theirs.sha256,
            path: theirs.path,
            size: theirs.size,
            uploaded_at: theirs.uploaded_at,
            validators: Validators::default(),
            volatile: false,
        })
    };
    let volatile = same_source.is_some_and(|i| i.volatile == Some(true));
    Ok(IsoWant {
        pool: ObjectKey::of(pool),
        uid: pool.uid().unwrap_or_default(),
        secret: secret.clone(),
        known: unforced(same_source)
            .and_then(|iso| files::known_file(&iso))
            .or_else(inherited)
            .or_else(|| kept::elsewhere(pool, others, &source_key, force_token.as_ref())),
        directories: kept::directories(pool),
        prunable: Vec::new(),
        users: Vec::new(),
        listed: status
            .map(|iso| files::listed(iso, &directory.datastore))
            .unwrap_or_default(),
        used: iso_path(pool),
        look_within: None,
        shares: shares(pool),
        check_every: (!source.is_assisted() && !volatile).then(|| check_interval(pool)),
        directory,
        source,
        ca_pem: Ok(None),
        source_key,
        force_token,
    })
}

/// The files to remove from datastores that the pool has left, by the cache to ask. They are taken out of `want`, which
/// keeps the rest.
#[must_use]
pub fn left_behind(key: &IsoKey, want: &mut IsoWant) -> BTreeMap<IsoKey, IsoWant> {
    let all = std::mem::take(&mut want.prunable);
    let (here, elsewhere): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|path| path.datastore == key.datastore);
    want.prunable = here;
    let mut left: BTreeMap<IsoKey, IsoWant> = BTreeMap::new();
    for path in elsewhere {
        let Some(directory) = path.parent() else {
            continue;
        };
        let key = IsoKey {
            datastore: path.datastore.clone(),
            ..key.clone()
        };
        let ask = left.entry(key).or_insert_with(|| IsoWant {
            directory,
            known: None,
            prunable: Vec::new(),
            users: Vec::new(),
            ..want.clone()
        });
        ask.prunable.push(path);
    }
    left
}
