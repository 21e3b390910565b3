//! Datastore files.

use serde::{Deserialize, Serialize};

use super::Ref;

/// `HostDatastoreBrowser.SearchDatastore_Task`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct SearchDatastore {
    /// Directory, `[datastore] path`.
    pub(in crate::vsphere) datastore_path: String,
    /// What to look for.
    pub(in crate::vsphere) search_spec: HostDatastoreBrowserSearchSpec,
}

/// What to look for.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(in crate::vsphere) struct HostDatastoreBrowserSearchSpec {
    /// What to report.
    pub(in crate::vsphere) details: FileQueryFlags,
    /// Patterns of names.
    pub(in crate::vsphere) match_pattern: Vec<String>,
}

/// What to report of a file.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(in crate::vsphere) struct FileQueryFlags {
    /// Type.
    pub(in crate::vsphere) file_type: bool,
    /// Size.
    pub(in crate::vsphere) file_size: bool,
    /// Time of the last change.
    pub(in crate::vsphere) modification: bool,
    /// Owner.
    pub(in crate::vsphere) file_owner: bool,
}

/// Result of a search.
#[derive(Clone, Debug, Deserialize)]
pub(in crate::vsphere) struct SearchResults {
    /// Files found.
    #[serde(default)]
    pub(in crate::vsphere) file: Vec<FoundFile>,
}

/// A file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct FoundFile {
    /// `FolderFileInfo` for a directory.
    #[serde(rename = "_typeName", default)]
    pub(in crate::vsphere) type_name: String,
    /// Name.
    pub(in crate::vsphere) path: String,
    /// Bytes.
    #[serde(default)]
    pub(in crate::vsphere) file_size: Option<u64>,
    /// RFC 3339.
    #[serde(default)]
    pub(in crate::vsphere) modification: Option<String>,
}

/// `FileManager.MakeDirectory`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct MakeDirectory {
    /// `[datastore] path`
    pub(in crate::vsphere) name: String,
    /// Datacenter.
    pub(in crate::vsphere) datacenter: Ref,
    /// Create missing parents.
    pub(in crate::vsphere) create_parent_directories: bool,
}

/// `FileManager.MoveDatastoreFile_Task`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::vsphere) struct MoveDatastoreFile {
    /// Source.
    pub(in crate::vsphere) source_name: String,
    /// Datacenter of the source.
    pub(in crate::vsphere) source_datacenter: Ref,
    /// Destination.
    pub(in crate::vsphere) destination_name: String,
    /// Datacenter of the destination.
    pub(in crate::vsphere) destination_datacenter: Ref,
    /// Overwrite an existing file.
    pub(in crate::vsphere) force: bool,
}

/// `FileManager.DeleteDatastoreFile_Task`
#[derive(Clone, Debug, Serialize)]
pub(in crate::vsphere) struct DeleteDatastoreFile {
    /// `[datastore] path`
    pub(in crate::vsphere) name: String,
    /// Datacenter.
    pub(in crate::vsphere) datacenter: Ref,
}
