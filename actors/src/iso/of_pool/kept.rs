//! The ISO files that pools need, by their statuses: which file one pool may use from another, and which files
//! retention removes. Pure.
//!
//! Guarantee: a file is removed only if no status (of this pool or another) retains it. Before that, every VM actor had
//! the time to see that there is a newer one.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use agent_forge_crds::pool::{
    DEFAULT_RETAIN_VERSIONS, IsoHistoryEntry, IsoStatus, VsphereAgentPool,
};
use jiff::Timestamp;

use super::files::{self, directory, is_published, known_file, shares};
use crate::{domain::names::DatastorePath, iso::msg::IsoFile};

/// A version that was replaced less than this time ago may still get into a VM's drive.
pub const SUPERSEDED: Duration = Duration::from_secs(20);

fn iso(pool: &VsphereAgentPool) -> Option<&IsoStatus> {
    pool.status.as_ref()?.iso.as_ref()
}

fn retain(pool: &VsphereAgentPool) -> usize {
    let spec = pool.spec.iso.as_ref();
    let versions = spec.map_or(DEFAULT_RETAIN_VERSIONS, |i| i.retain_versions());
    usize::try_from(versions).unwrap_or(1).max(1)
}

/// Datastore that the pool's VMs get their ISO from: the datastore of the current one, else the one in the spec.
fn datastore(pool: &VsphereAgentPool) -> String {
    let wanted = &pool.spec.vsphere.iso_datastore;
    iso(pool).map_or_else(|| wanted.clone(), |i| files::datastore(i, wanted))
}

/// The place of a version of the pool's history. `None` if it is no valid path.
#[must_use]
pub fn place(pool: &VsphereAgentPool, version: &IsoHistoryEntry) -> Option<DatastorePath> {
    files::place(version, &datastore(pool))
}

/// The files that the pool's status retains: the current version and the newest of its history.
#[must_use]
pub fn retained(pool: &VsphereAgentPool) -> BTreeSet<DatastorePath> {
    let Some(status) = iso(pool) else {
        return BTreeSet::new();
    };
    let datastore = datastore(pool);
    let current = status.path.as_deref();
    let current = current.and_then(|path| DatastorePath::new(&datastore, path).ok());
    let stored = status.stored_path.as_deref();
    let stored = stored.and_then(|text| DatastorePath::parse(text).ok());
    let newest = versions(&status.history, &datastore).filter(|(_, is_one)| *is_one);
    let newest = newest.take(retain(pool)).map(|(path, _)| path);
    newest.chain(current).chain(stored).collect()
}

/// The current version is old enough that every VM actor has seen it.
fn is_settled(status: &IsoStatus, now: Timestamp) -> bool {
    let since = status.checked_at.as_ref();
    since.is_some_and(|at| now > at.0 && now.duration_since(at.0).unsigned_abs() >= SUPERSEDED)
}

/// The files that another pool's status keeps: those that it retains, and for a short time after a change all that it
/// names.
fn held_by(other: &VsphereAgentPool, now: Timestamp) -> BTreeSet<DatastorePath> {
    let mut held = retained(other);
    if let Some(status) = iso(other).filter(|status| !is_settled(status, now)) {
        held.extend(status.history.iter().filter_map(|h| place(other, h)));
    }
    held
}

/// Directories of the pool's ISOs: its own, and those that its status names.
#[must_use]
pub fn directories(pool: &VsphereAgentPool) -> BTreeSet<DatastorePath> {
    let history = iso(pool).into_iter().flat_map(|i| &i.history);
    let files = history.filter_map(|h| place(pool, h));
    let stored = iso(pool).and_then(|i| DatastorePath::parse(i.stored_path.as_deref()?).ok());
    let named = files.chain(stored).filter_map(|file| file.parent());
    named.chain(directory(pool).ok()).collect()
}

/// The place of each entry of the history, newest first, and whether it is a version. Three kinds of entries are no
/// versions:
///
/// - an entry that was never published;
/// - a file on another datastore than the current one, because the pool has left that datastore and makes no VM from
///   it;
/// - another copy of a newer version, because pools that came to share a file may have had their own.
fn versions<'a>(
    history: &'a [IsoHistoryEntry],
    datastore: &'a str,
) -> impl Iterator<Item = (DatastorePath, bool)> + 'a {
    let mut seen = BTreeSet::new();
    history.iter().filter_map(move |h| {
        let path = files::place(h, datastore)?;
        let here = path.datastore == datastore;
        let is_one = here && is_published(h) && seen.insert(h.sha256.as_str());
        Some((path, is_one))
    })
}

/// Files that retention removes, oldest first:
///
/// - versions beyond `retainVersions`, and copies;
/// - files on a datastore that the pool has left;
/// - files that were about to be published and did not become the current one.
///
/// None of them is retained by any pool. Pools of other vCenters count too: a datastore of that name may be the same
/// one.
#[must_use]
pub fn prunable(
    pool: &VsphereAgentPool,
    others: &[Arc<VsphereAgentPool>],
    now: Timestamp,
) -> Vec<DatastorePath> {
    let Some(status) = iso(pool) else {
        return Vec::new();
    };
    let datastore = datastore(pool);
    if !is_settled(status, now) || datastore != pool.spec.vsphere.iso_datastore {
        return Vec::new();
    }
    let mut kept = retained(pool);
    kept.extend(others.iter().flat_map(|other| held_by(other, now)));
    let mut so_far = 0;
    let goes = versions(&status.history, &datastore).filter(|(_, is_one)| {
        so_far += usize::from(*is_one);
        !is_one || so_far > retain(pool)
    });
    let goes: Vec<_> = goes.collect();
    let paths = goes.into_iter().rev().map(|(path, _)| path);
    paths.filter(|path| !kept.contains(path)).collect()
}

/// The file that another pool's status names for this very source. It is on the same datastore, in a directory that may
/// serve this pool. The cache checks that it is there before it is used.
pub(super) fn elsewhere(
    pool: &VsphereAgentPool,
    others: &[Arc<VsphereAgentPool>],
    source_key: &str,
    force_token: Option<&String>,
) -> Option<IsoFile> {
    let (own, shared) = (directory(pool).ok(), shares(pool));
    let usable = |other: &&Arc<VsphereAgentPool>| {
        other.spec.vsphere.datacenter() == pool.spec.vsphere.datacenter()
            && (shared && shares(other) || own.is_some() && directory(other).ok() == own)
    };
    let known = others.iter().filter(usable).filter_map(|other| {
        let status = iso(other)?;
        let fits = status.source_key.as_deref() == Some(source_key)
            && (force_token.is_none() || status.force_refresh_token.as_ref() == force_token);
        known_file(status)
            .filter(|file| fits && file.path.datastore == pool.spec.vsphere.iso_datastore)
    });
    known.max_by_key(|file| (file.uploaded_at, file.path.clone()))
}

#[cfg(test)]
mod tests;
