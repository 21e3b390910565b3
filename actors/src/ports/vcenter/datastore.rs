//! Files on datastores, and which of them a VM holds in a drive.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use super::error::{VcError, VcResult};
use crate::{
    domain::names::{DatastorePath, MoRef},
    ports::effect::Effect,
};

/// A file on a datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Datastore and path.
    pub path: DatastorePath,
    /// Size in bytes.
    pub size: u64,
    /// Last change in RFC 3339, if reported.
    pub modified: Option<String>,
}

/// An ISO in a VM's CD-ROM drive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MountedIso {
    /// The ISO, as `[datastore] path`.
    pub iso: String,
    /// Name of the VM.
    pub vm: String,
}

impl MountedIso {
    /// Whether it is that file, or may be. Where the drive names no datastore path, the file's name decides: it is a digest.
    #[must_use]
    pub fn may_be(&self, path: &DatastorePath) -> bool {
        DatastorePath::parse(&self.iso).map_or_else(
            |_| self.iso.ends_with(path.file_name()),
            |at| at.is_same_file(path),
        )
    }
}

/// What the CD-ROM drives of a vCenter's VMs hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drives {
    /// ISOs in them, connected or not; sorted.
    pub isos: Vec<MountedIso>,
    /// VMs whose drives are not known, by name.
    pub unknown: BTreeMap<String, Unread>,
}

/// A VM whose drives vCenter does not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Why.
    pub error: VcError,
    /// Names of the datastores that it uses. The ISO in its drive is on one of them. `None`: not known.
    pub datastores: Option<BTreeSet<String>>,
}

impl Drives {
    /// Why that file must stay, as a sentence: a VM has it in a drive, or may have it.
    #[must_use]
    pub fn keeps(&self, path: &DatastorePath) -> Option<String> {
        let mut isos = self.isos.iter();
        if let Some(mount) = isos.find(|mount| mount.may_be(path)) {
            return Some(format!("VM {} has it in its CD-ROM drive", mount.vm));
        }
        let may_have = |unread: &Unread| {
            let stores = unread.datastores.as_ref();
            stores.is_none_or(|all| all.contains(&path.datastore))
        };
        // The first one by name, so that the sentence stays the same while the cause does.
        let mut unknown = self.unknown.iter().filter(|(_, unread)| may_have(unread));
        let (name, unread) = unknown.next()?;
        let more = if unknown.next().is_some() {
            ", nor of others"
        } else {
            ""
        };
        Some(format!(
            "it is not known which ISOs VM {name} has in its drives{more}: {}",
            unread.error.message
        ))
    }
}

/// Bytes on their way to a datastore.
pub type ByteStream = BoxStream<'static, std::io::Result<Bytes>>;

/// Reads and changes files.
#[async_trait]
pub trait Datastores: Send + Sync {
    /// Reference of a datacenter by name or path. All paths are seen from there.
    async fn datacenter(&self, name: &str) -> VcResult<MoRef>;

    /// Size of a file; `None` when it or its directory does not exist.
    async fn stat(&self, datacenter: &MoRef, path: &DatastorePath) -> VcResult<Option<u64>>;

    /// Files in a directory; `None` when the directory does not exist.
    async fn list(
        &self,
        datacenter: &MoRef,
        directory: &DatastorePath,
    ) -> VcResult<Option<Vec<FileInfo>>>;

    /// Creates a directory with its parents; an existing one is success.
    async fn make_directory(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        path: &DatastorePath,
    ) -> VcResult<()>;

    /// Uploads exactly `length` bytes, overwriting.
    async fn upload(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        path: &DatastorePath,
        length: u64,
        body: ByteStream,
    ) -> VcResult<()>;

    /// Moves a file and waits. It never overwrites: an existing destination is `AlreadyExists`.
    async fn move_file(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        from: &DatastorePath,
        to: &DatastorePath,
    ) -> VcResult<()>;

    /// Deletes a file and waits; a missing one is success.
    async fn delete_file(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        path: &DatastorePath,
    ) -> VcResult<()>;

    /// What the VMs of this vCenter have in their CD-ROM drives.
    async fn drives(&self) -> VcResult<Drives>;
}
