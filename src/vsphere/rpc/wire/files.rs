//! Datastore files.

use serde::{Deserialize, Serialize};

use super::Ref;

/// `HostDatastoreBrowser.SearchDatastore_Task`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SearchDatastore {
    /// Directory, `[datastore] path`.
    pub(crate) datastore_path: String,
    /// What to look for.
    pub(crate) search_spec: HostDatastoreBrowserSearchSpec,
}

/// What to look for.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(crate) struct HostDatastoreBrowserSearchSpec {
    /// What to report.
    pub(crate) details: FileQueryFlags,
    /// Patterns of names.
    pub(crate) match_pattern: Vec<String>,
}

/// What to report of a file.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "_typeName", rename_all = "camelCase")]
pub(crate) struct FileQueryFlags {
    /// Type.
    pub(crate) file_type: bool,
    /// Size.
    pub(crate) file_size: bool,
    /// Time of the last change.
    pub(crate) modification: bool,
    /// Owner.
    pub(crate) file_owner: bool,
}

/// Result of a search.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SearchResults {
    /// Files found.
    #[serde(default)]
    pub(crate) file: Vec<FoundFile>,
}

/// A file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FoundFile {
    /// `FolderFileInfo` for a directory.
    #[serde(rename = "_typeName", default)]
    pub(crate) type_name: String,
    /// Name.
    pub(crate) path: String,
    /// Bytes.
    #[serde(default)]
    pub(crate) file_size: Option<u64>,
    /// RFC 3339.
    #[serde(default)]
    pub(crate) modification: Option<String>,
}

/// `FileManager.MakeDirectory`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MakeDirectory {
    /// `[datastore] path`
    pub(crate) name: String,
    /// Datacenter.
    pub(crate) datacenter: Ref,
    /// With parents.
    pub(crate) create_parent_directories: bool,
}

/// `FileManager.MoveDatastoreFile_Task`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MoveDatastoreFile {
    /// From.
    pub(crate) source_name: String,
    /// From.
    pub(crate) source_datacenter: Ref,
    /// To.
    pub(crate) destination_name: String,
    /// To.
    pub(crate) destination_datacenter: Ref,
    /// Overwrite.
    pub(crate) force: bool,
}

/// `FileManager.DeleteDatastoreFile_Task`
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DeleteDatastoreFile {
    /// `[datastore] path`
    pub(crate) name: String,
    /// Datacenter.
    pub(crate) datacenter: Ref,
}
