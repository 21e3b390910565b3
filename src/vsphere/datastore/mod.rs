//! Files on datastores, and which of them a VM holds in a drive.

mod drives;
pub(crate) mod upload;

use agent_forge_actors::{
    domain::names::{DatastorePath, MoRef},
    ports::{
        effect::Effect,
        vcenter::{
            ByteStream, Datastores, Drives, Fault, FileInfo, TaskRef, VcError, VcErrorKind,
            VcResult,
        },
    },
};
use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::vsphere::{
    inventory::{cache::STRUCTURE, lookup::DATASTORE},
    rpc::{
        call::Call,
        client::Client,
        session::Asked,
        wire::{
            files::{
                DeleteDatastoreFile, FileQueryFlags, FoundFile, HostDatastoreBrowserSearchSpec,
                MakeDirectory, MoveDatastoreFile, SearchDatastore, SearchResults,
            },
            unboxed,
        },
    },
    tasks::TaskReply,
};

const FIELD: &str = "isoDatastore";

/// No visible datastore has this name.
pub(crate) fn invisible(name: &str) -> VcError {
    VcError::unresolved(
        FIELD,
        name,
        "no datastore of that name is visible to this user",
    )
}

#[async_trait]
impl Datastores for Client {
    async fn datacenter(&self, name: &str) -> VcResult<MoRef> {
        self.find_datacenter(name).await
    }

    async fn stat(&self, datacenter: &MoRef, path: &DatastorePath) -> VcResult<Option<u64>> {
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

    async fn list(
        &self,
        datacenter: &MoRef,
        directory: &DatastorePath,
    ) -> VcResult<Option<Vec<FileInfo>>> {
        let Some(found) = self.search(datacenter, directory, "*").await? else {
            return Ok(None);
        };
        let files = found.into_iter().filter(|f| !is_directory(f));
        // Leave out a name that makes no valid path: no call can act on it.
        let files = files.filter_map(|f| {
            Some(FileInfo {
                path: directory.join(&f.path).ok()?,
                size: f.file_size?,
                modified: f.modification,
            })
        });
        Ok(Some(files.collect()))
    }

    async fn make_directory(
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
                // The fault shows no more. So check whether the datastore exists: that shows users what to correct.
                self.datastore(datacenter, &path.datastore).await?;
                Err(e)
            }
            done => done.map(drop),
        }
    }

    async fn upload(
        &self,
        effect: &Effect,
        datacenter: &MoRef,
        path: &DatastorePath,
        length: u64,
        body: ByteStream,
    ) -> VcResult<()> {
        self.put(effect, datacenter, path, length, body).await
    }

    async fn move_file(
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

    async fn delete_file(
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

    async fn drives(&self) -> VcResult<Drives> {
        self.all_drives().await
    }
}

impl Client {
    /// Files in `directory` that match; `None` when the directory does not exist.
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
                let found: Option<crate::vsphere::rpc::wire::Ref> =
                    self.property(&store, "browser").await?;
                found.map(MoRef::from).ok_or_else(|| {
                    VcError::unresolved(FIELD, &directory.datastore, "it has no browser")
                })
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
        // A task that changes nothing is no effect.
        let found = match self.run::<SearchResults>(None, call).await {
            Ok(found) => found,
            Err(e) if matches!(e.fault(), Some(Fault::FileNotFound(_))) => return Ok(None),
            Err(e) => return Err(e),
        };
        Ok(Some(found.map(|r| r.file).unwrap_or_default()))
    }

    /// Starts a task and waits; `None` when it has no result.
    async fn run<T: DeserializeOwned>(
        &self,
        effect: Option<&Effect>,
        call: Call,
    ) -> VcResult<Option<T>> {
        let (method, subject) = (call.method, call.subject.clone());
        let _awaited = self.awaits(effect.map_or("search_datastore", |e| e.kind.name()));
        let failure =
            |kind: VcErrorKind, message: &str| VcError::new(kind, method, subject.clone(), message);
        let task: Option<crate::vsphere::rpc::wire::Ref> = match effect {
            Some(effect) => self.mutate(effect, call).await?,
            None => self.read(call).await?,
        };
        let task = TaskRef(
            task.filter(|task| !task.value.is_empty())
                .ok_or_else(|| failure(VcErrorKind::Undecodable, "the reply names no task"))?
                .value,
        );
        self.tasks.labels.note(&task.0, method, &subject);
        match self.tasks.outcome(&task).await? {
            TaskReply::Success(None) => Ok(None),
            TaskReply::Success(Some(result)) => serde_json::from_value(unboxed(&result).clone())
                .map(Some)
                .map_err(|e| {
                    failure(
                        VcErrorKind::Undecodable,
                        &format!("the task's result does not decode: {e}"),
                    )
                }),
            TaskReply::Vanished => Err(failure(
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
            // Ask only now. Asked inside the lookup above, it would wait for that lookup of the same name.
            Ok(_) => Err(self.no_datastore(datacenter, name, invisible(name)).await?),
            Err(e) if matches!(e.kind, VcErrorKind::Unresolved { .. }) => {
                Err(self.no_datastore(datacenter, name, e).await?)
            }
            Err(e) => Err(e),
        }
    }

    /// Why no datastore has that name: it may be the name of a datastore cluster, else `otherwise`. A file is on one
    /// datastore, and nothing chooses one of a cluster for it.
    pub(crate) async fn no_datastore(
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
            "that is a datastore cluster, and the ISO is on one datastore: name one of {}",
            names.join(", ")
        );
        Ok(VcError::unresolved(FIELD, name, why))
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
