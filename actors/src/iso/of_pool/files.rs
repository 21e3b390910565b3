//! Where the ISO files of a pool are: its directory, and the files that its status names. Pure.

use std::collections::BTreeSet;

use agent_forge_crds::{
    conditions::Reason,
    pool::{IsoHistoryEntry, IsoStatus, VsphereAgentPool},
};
use kube::ResourceExt;

use crate::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        names::{BadDatastorePath, DatastorePath},
    },
    iso::msg::IsoFile,
    ports::iso_source::Validators,
};

/// Directory on the ISO datastore: `spec.iso.pathPrefix`, else `agent-forge/<namespace>/<pool>`, which is also the
/// predecessor's default.
///
/// # Errors
/// A [`ReconcileError`] that names the field.
pub fn directory(pool: &VsphereAgentPool) -> Result<DatastorePath, ReconcileError> {
    let iso = pool.spec.iso.as_ref();
    let chosen = iso.and_then(|i| i.path_prefix.as_deref());
    let path = match chosen.filter(|p| !p.is_empty()) {
        Some(chosen) => DatastorePath::new(&pool.spec.vsphere.iso_datastore, chosen),
        None => default_directory(pool),
    };
    path.map_err(|e| {
        ReconcileError::blocked(
            ErrorSource::Iso,
            Reason::InvalidSpec,
            format!("spec.iso.pathPrefix or spec.vsphere.isoDatastore: {e}"),
        )
    })
}

fn default_directory(pool: &VsphereAgentPool) -> Result<DatastorePath, BadDatastorePath> {
    let namespace = pool.namespace().unwrap_or_default();
    let own = format!("agent-forge/{namespace}/{}", pool.name_any());
    DatastorePath::new(&pool.spec.vsphere.iso_datastore, &own)
}

/// The pool shares a file of equal content with all others of which this holds, in any of their directories: it has the default
/// directory, also if its spec writes that out, as the predecessor's objects do. Any other directory was chosen to hold the
/// pool's ISO.
#[must_use]
pub fn shares(pool: &VsphereAgentPool) -> bool {
    let directory = directory(pool).ok();
    directory.is_some() && directory == default_directory(pool).ok()
}

/// The file that a status names, if the record is complete.
pub(super) fn known_file(iso: &IsoStatus) -> Option<IsoFile> {
    Some(IsoFile {
        sha256: iso.sha256.clone()?,
        path: DatastorePath::parse(iso.stored_path.as_deref()?).ok()?,
        size: u64::try_from(iso.size_bytes?).ok()?,
        uploaded_at: iso.uploaded_at.as_ref()?.0,
        validators: Validators {
            etag: iso.source_etag.clone(),
            last_modified: iso.source_last_modified.clone(),
        },
        volatile: iso.volatile == Some(true),
    })
}

/// Datastore of the versions that do not name theirs: that of the current one, else the `wanted` one.
pub(super) fn datastore(iso: &IsoStatus, wanted: &str) -> String {
    let stored = iso.stored_path.as_deref().map(DatastorePath::parse);
    stored
        .and_then(Result::ok)
        .map_or_else(|| wanted.to_owned(), |path| path.datastore)
}

/// The place of a version. `beside`: the datastore if it names none.
pub(super) fn place(entry: &IsoHistoryEntry, beside: &str) -> Option<DatastorePath> {
    let datastore = entry.datastore.as_deref().unwrap_or(beside);
    DatastorePath::new(datastore, &entry.path).ok()
}

/// Places that the record lists. `wanted`: the datastore on which the pool wants its ISO.
pub(super) fn listed(iso: &IsoStatus, wanted: &str) -> BTreeSet<DatastorePath> {
    let beside = datastore(iso, wanted);
    let places = iso.history.iter().filter_map(|h| place(h, &beside));
    places.collect()
}

/// The version was published. If not, it may be there or not: a process died, or a reply was lost.
pub(super) fn is_published(entry: &IsoHistoryEntry) -> bool {
    entry.uploaded_at.is_some() || entry.size_bytes.is_some()
}
