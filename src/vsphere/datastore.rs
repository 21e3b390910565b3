//! Files on datastores: directories, moves, deletes.

use agent_forge_actors::{
    effect::Effect,
    model::names::{DatastorePath, MoRef},
    ports::vcenter::{Fault, FileInfo, TaskRef, VcError, VcErrorKind, VcResult},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    cache::STRUCTURE,
    call::Call,
    client::Client,
    lookup::{DATASTORE, unresolved},
    session::Asked,
    task::Outcome,
    wire::{
        files::{
            DeleteDatastoreFile, FileQueryFlags, FoundFile, HostDatastoreBrowserSearchSpec,
            MakeDirectory, MoveDatastoreFile, SearchDatastore, SearchResults,
        },
        unboxed,
    },
};

const FIELD: &str = "isoDatastore";

/// The failure for a name that belongs to no datastore.
pub(super) fn invisible(name: &str) -> VcError {
    unresolved(
        FIELD,
        name,
        "no datastore of that name is visible to this user",
    )
}

impl Client {
    /// Files in `directory` that match; `None` if there is no such directory.
    pub(super) async fn search(
        &self,
        datacenter: &MoRef,
        directory: &DatastorePath,
        pattern: &str,
    ) -> VcResult<Option<Vec<FoundFile>>> {
        let store = self.datastore(datacenter, &directory.datastore).await?;
        let browser = self
            .cache
            .browsers
            .get_or(store.clone(), STRUCTURE, async {
                let found: Option<super::wire::Ref> = self.property(&store, "browser").await?;
                found
                    .map(MoRef::from)
                    .ok_or_else(|| unresolved(FIELD, &directory.datastore, "it has no browser"))
            })
            .await?;
        let details = FileQueryFlags {
            file_type: true,
            file_size: true,
            modification: true,
            file_owner: false,
        };
        let search_spec = HostDatastoreBrowserSearchSpec {
            details,
            match_pattern: vec![pattern.to_owned()],
        };
        let arguments = SearchDatastore {
            datastore_path: directory.to_string(),
            search_spec,
        };
        let call =
            Call::new(&browser, "SearchDatastore_Task", &arguments).about(directory.to_string());
        // This is a task, but it changes nothing, so it is no effect.
        let found = match self.run::<SearchResults>(None, call).await {
            Ok(found) => found,
            Err(e) if matches!(e.fault(), Some(Fault::FileNotFound(_))) => return Ok(None),
            Err(e) => return Err(e),
        };
        Ok(Some(found.map(|r| r.file).unwrap_or_default()))
    }

    /// Starts a task and waits for it; `None` if it has no result.
    async fn run<T: DeserializeOwned>(
        &self,
        effect: Option<&Effect>,
        call: Call,
    ) -> VcResult<Option<T>> {
        let (method, subject) = (call.method, call.subject.clone());
        let _awaited = self.awaits(effect.map_or("search_datastore", |e| e.kind.name()));
        let failure = |kind: VcErrorKind, message: &str| VcError {
            kind,
            operation: method,
            subject: subject.clone(),
            message: message.to_owned(),
        };
        let task: Option<super::wire::Ref> = match effect {
            Some(effect) => self.mutate(effect, call).await?,
            None => self.read(call).await?,
        };
        let task = TaskRef(
            task.ok_or_else(|| failure(VcErrorKind::Undecodable, "the reply names no task"))?
                .value,
        );
        self.tasks.labels.note(&task.0, method, &subject);
        match self.tasks.outcome(&task).await? {
            Outcome::Success(None) => Ok(None),
            Outcome::Success(Some(result)) => serde_json::from_value(unboxed(&result).clone())
                .map(Some)
                .map_err(|e| {
                    failure(
                        VcErrorKind::Undecodable,
                        &format!("the task's result does not decode: {e}"),
                    )
                }),
            Outcome::Vanished => Err(failure(
                VcErrorKind::NoAnswer,
                "vCenter forgot the task; look at the files instead",
            )),
        }
    }

    async fn datastore(&self, datacenter: &MoRef, name: &str) -> VcResult<MoRef> {
        let look_up = async {
            let found = self.find_below(datacenter, name, DATASTORE, FIELD).await?;
            found.ok_or_else(|| invisible(name))
        };
        let key = (datacenter.clone(), name.to_owned());
        match self.cache.stores.get_or(key, STRUCTURE, look_up).await {
            Ok(found) if found.kind != "StoragePod" => Ok(found),
            // Asked only now, outside the look-up: the search for a cluster would wait for the look-up of the same
            // name.
            Ok(_) => Err(self.no_datastore(datacenter, name, invisible(name)).await?),
            Err(e) if matches!(e.kind, VcErrorKind::Unresolved { .. }) => {
                Err(self.no_datastore(datacenter, name, e).await?)
            }
            Err(e) => Err(e),
        }
    }

    /// Explains why no datastore has that name. A file needs one datastore, and nothing chooses one from a datastore
    /// cluster. If the name is not a datastore cluster either, returns `otherwise`.
    pub(super) async fn no_datastore(
        &self,
        datacenter: &MoRef,
        name: &str,
        otherwise: VcError,
    ) -> VcResult<VcError> {
        let cluster = match self.store(datacenter, name, FIELD).await {
            Ok(store) if store.kind == "StoragePod" => store,
            Err(e) if !matches!(e.kind, VcErrorKind::Unresolved { .. }) => return Err(e),
            Ok(_) | Err(_) => return Ok(otherwise),
        };
        let members = self.datastores(&cluster).await?;
        let mut names: Vec<&str> = members.iter().map(|d| d.name.as_str()).collect();
        names.sort_unstable();
        let why = format!(
            "that is a datastore cluster, and the ISO lies on one datastore: name one of {}",
            names.join(", ")
        );
        Ok(unresolved(FIELD, name, why))
    }

    /// Size of a file, in bytes.
    pub(super) async fn size_of(
        &self,
        datacenter: &MoRef,
        path: &DatastorePath,
    ) -> VcResult<Option<u64>> {
        let Some(directory) = path.parent() else {
            return Ok(None);
        };
        let found = self
            .search(datacenter, &directory, path.file_name())
            .await?;
        let file = found
            .into_iter()
            .flatten()
            .find(|f| f.path == path.file_name() && !is_directory(f));
        Ok(file.and_then(|f| f.file_size))
    }

    /// Files in a directory.
    pub(super) async fn files_in(
        &self,
        datacenter: &MoRef,
        directory: &DatastorePath,
    ) -> VcResult<Option<Vec<FileInfo>>> {
        let Some(found) = self.search(datacenter, directory, "*").await? else {
            return Ok(None);
        };
        let files = found.into_iter().filter(|f| !is_directory(f));
        // Skip a name that does not form a valid path: the operator cannot use it.
        let files = files.filter_map(|f| {
            Some(FileInfo {
                path: directory.join(&f.path).ok()?,
                size: f.file_size?,
                modified: f.modification,
            })
        });
        Ok(Some(files.collect()))
    }

    /// Creates a directory with its parents. An existing directory counts as success.
    pub(super) async fn mkdir(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        path: &DatastorePath,
    ) -> VcResult<()> {
        let arguments = MakeDirectory {
            name: path.to_string(),
            datacenter: datacenter.into(),
            create_parent_directories: true,
        };
        let call = Call::new(&self.file_manager().await?, "MakeDirectory", &arguments)
            .about(path.to_string());
        match self.mutate::<Value>(effect, call).await {
            Err(e) if matches!(e.fault(), Some(Fault::AlreadyExists(_))) => Ok(()),
            Err(e) if matches!(e.fault(), Some(Fault::InvalidArgument { .. })) => {
                // The fault does not say more. Whether the datastore exists shows people what to correct.
                self.datastore(datacenter, &path.datastore).await?;
                Err(e)
            }
            done => done.map(drop),
        }
    }

    /// Moves a file without overwriting, and waits for the end.
    pub(super) async fn rename(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        from: &DatastorePath,
        to: &DatastorePath,
    ) -> VcResult<()> {
        let arguments = MoveDatastoreFile {
            source_name: from.to_string(),
            source_datacenter: datacenter.into(),
            destination_name: to.to_string(),
            destination_datacenter: datacenter.into(),
            force: false,
        };
        let manager = self.file_manager().await?;
        let call = Call::new(&manager, "MoveDatastoreFile_Task", &arguments)
            .about(format!("{from} to {to}"));
        self.run::<Value>(Some(effect), call).await.map(drop)
    }

    /// Deletes a file and waits for the end. A file that does not exist counts as success.
    pub(super) async fn unlink(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        path: &DatastorePath,
    ) -> VcResult<()> {
        let arguments = DeleteDatastoreFile {
            name: path.to_string(),
            datacenter: datacenter.into(),
        };
        let call = Call::new(
            &self.file_manager().await?,
            "DeleteDatastoreFile_Task",
            &arguments,
        )
        .about(path.to_string());
        match self.run::<Value>(Some(effect), call).await {
            Err(e) if !matches!(e.fault(), Some(Fault::FileNotFound(_))) => Err(e),
            _ => Ok(()),
        }
    }

    async fn file_manager(&self) -> VcResult<MoRef> {
        Ok(self
            .session(Asked::ByCall)
            .await?
            .endpoint
            .content
            .file_manager
            .clone()
            .into())
    }
}

fn is_directory(file: &FoundFile) -> bool {
    file.type_name == "FolderFileInfo"
}
