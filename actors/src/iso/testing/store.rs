//! A vCenter that consists of a datastore: files with sizes, and faults at each step of an upload and a move.

// The port's own error type; a fake returns it as the adapters do.
#![allow(clippy::result_large_err)]

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures::StreamExt;
use sha2::{Digest, Sha256};

use crate::{
    domain::{
        hardware::Hardware,
        identity::BiosUuid,
        names::{DatastorePath, MoRef},
    },
    ports::{
        effect::{Effect, EffectKind},
        permit::Permit,
        slots::{Slots, turns::Limits},
        vcenter::{
            ByteStream, CreateVm, Datastores, Drives, Ended, Fault, FileInfo, FolderSight,
            Inventory, Listener, Machines, MountedIso, News, PlaceCandidates, PlaceRequest,
            Recommendation, Survey, TaskEnd, TaskRef, Tasks, Unread, VCenter, VcError, VcErrorKind,
            VcResult, VmAt, VmChange, VmObservation,
        },
    },
};

/// What goes wrong at vCenter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreFault {
    /// The upload is refused before the first byte.
    UploadRefused,
    /// The connection breaks after that many bytes. The part stays.
    UploadCut(u64),
    /// Takes that many bytes and reports success.
    UploadEndsEarly(u64),
    /// Takes all bytes, reports success, and keeps fewer.
    UploadLosesBytes,
    /// Takes that many bytes, then nothing more, and never answers.
    UploadHangs(u64),
    /// Takes all bytes, and answers after that time.
    UploadFlushes(Duration),
    /// Moves, and never answers.
    MoveHangs,
    /// Moves, but the answer is lost.
    MoveAnswerLost,
    /// Does not move, and the answer is lost.
    MoveLost,
    /// Moves. The caller's repeat does not find the source.
    MoveRepeated,
    /// Just before the move somebody puts a file of that size there.
    MoveRace(u64),
    /// The move is refused.
    MoveRefused,
    /// Deletions fail.
    DeleteRefused,
    /// While a deletion runs, this file gets into a VM's drive.
    DeleteWhileMounting(String),
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) size: u64,
    pub(crate) sha256: Option<String>,
    pub(crate) modified: String,
}

impl Stored {
    pub(crate) fn of_size(size: u64) -> Self {
        Self {
            size,
            sha256: None,
            modified: "2026-01-01T00:00:00Z".to_owned(),
        }
    }
}

#[derive(Default)]
pub(crate) struct Content {
    pub(crate) files: BTreeMap<String, Stored>,
    pub(crate) directories: BTreeSet<String>,
    pub(crate) mounted: Vec<String>,
    /// VMs whose drives are not shown, and the datastores that they use, if known.
    pub(crate) unread: BTreeMap<String, Option<&'static str>>,
    pub(crate) faults: VecDeque<StoreFault>,
    pub(crate) unreachable: bool,
    /// Directories are not listed. Single files can be looked for.
    pub(crate) list_hangs: bool,
    /// Bytes that fit; `None`: any number.
    pub(crate) capacity: Option<u64>,
    pub(crate) calls: Vec<&'static str>,
    pub(crate) effects: Vec<Effect>,
}

/// The vCenter.
#[derive(Default)]
pub(crate) struct Store(pub(crate) Mutex<Content>);

fn error(kind: VcErrorKind, operation: &'static str, subject: impl ToString) -> VcError {
    VcError {
        kind,
        operation,
        subject: subject.to_string(),
        message: "as told".to_owned(),
        concealed: false,
    }
}

impl Store {
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Content) -> T) -> T {
        f(&mut self.0.lock().expect("lock"))
    }

    pub(crate) fn fail(&self, fault: StoreFault) {
        self.with(|c| c.faults.push_back(fault));
    }

    pub(crate) fn files(&self) -> Vec<String> {
        self.with(|c| c.files.keys().cloned().collect())
    }

    pub(crate) fn count(&self, call: &str) -> usize {
        self.with(|c| c.calls.iter().filter(|name| **name == call).count())
    }

    fn called(&self, call: &'static str, effect: Option<(&Effect, EffectKind)>) -> VcResult<()> {
        self.with(|c| {
            c.calls.push(call);
            if let Some((effect, kind)) = effect {
                assert_eq!(effect.kind, kind, "{call}");
                c.effects.push(effect.clone());
            }
            if c.unreachable {
                Err(error(VcErrorKind::Unreachable, "Any", call))
            } else {
                Ok(())
            }
        })
    }

    /// The fault that the test set, if it is one of these.
    fn take(&self, which: impl Fn(&StoreFault) -> bool) -> Option<StoreFault> {
        self.with(|c| {
            c.faults
                .iter()
                .position(which)
                .and_then(|at| c.faults.remove(at))
        })
    }

    fn rename(&self, from: &DatastorePath, to: &DatastorePath) -> VcResult<()> {
        self.with(|c| {
            if c.files.contains_key(&to.to_string()) {
                return Err(error(
                    VcErrorKind::Fault(Fault::AlreadyExists(to.to_string())),
                    "MoveDatastoreFile_Task",
                    to,
                ));
            }
            let Some(file) = c.files.remove(&from.to_string()) else {
                let fault = Fault::FileNotFound(from.to_string());
                return Err(error(
                    VcErrorKind::Fault(fault),
                    "MoveDatastoreFile_Task",
                    from,
                ));
            };
            c.files.insert(to.to_string(), file);
            Ok(())
        })
    }

    fn not_for_isos<T>(&self, operation: &'static str) -> VcResult<T> {
        panic!("{operation} is nothing that an ISO cache calls");
    }
}

#[async_trait]
impl VCenter for Store {
    fn server(&self) -> &str {
        "vc"
    }

    fn insecure(&self) -> bool {
        false
    }

    fn login_refused(&self) -> bool {
        false
    }

    async fn reachable(&self) -> VcResult<()> {
        Ok(())
    }

    async fn logout(&self, _: &Effect) {}
}

#[async_trait]
impl Machines for Store {
    async fn find_by_uuid(&self, _: BiosUuid) -> VcResult<Vec<VmObservation>> {
        self.not_for_isos("find_by_uuid")
    }

    async fn observe(&self, _: &MoRef) -> VcResult<Option<VmObservation>> {
        self.not_for_isos("observe")
    }

    async fn create_vm(&self, _: &Effect, _: &CreateVm) -> VcResult<TaskRef> {
        self.not_for_isos("create_vm")
    }

    async fn configure<'a>(&'a self, _: &Permit<VmAt>, _: &VmChange) -> VcResult<Ended<'a>> {
        self.not_for_isos("configure")
    }

    async fn reset(&self, _: &Permit<VmAt>) -> VcResult<TaskRef> {
        self.not_for_isos("reset")
    }

    async fn power_on(&self, _: &Permit<VmAt>) -> VcResult<TaskRef> {
        self.not_for_isos("power_on")
    }

    async fn power_off(&self, _: &Permit<VmAt>) -> VcResult<TaskRef> {
        self.not_for_isos("power_off")
    }

    async fn destroy(&self, _: &Permit<VmAt>) -> VcResult<TaskRef> {
        self.not_for_isos("destroy")
    }

    async fn attach_tags(&self, _: &Effect, _: &MoRef, _: &[String]) -> VcResult<()> {
        self.not_for_isos("attach_tags")
    }
}

#[async_trait]
impl Inventory for Store {
    async fn place_candidates(&self, _: &PlaceRequest) -> VcResult<PlaceCandidates> {
        self.not_for_isos("place_candidates")
    }
    async fn ensure_folder(&self, _: &Effect, _: &MoRef, _: &str) -> VcResult<MoRef> {
        self.not_for_isos("ensure_folder")
    }
    async fn recommend_datastores(
        &self,
        _: &PlaceCandidates,
        _: &MoRef,
        _: &Hardware,
    ) -> VcResult<Vec<Recommendation>> {
        self.not_for_isos("recommend_datastores")
    }

    async fn survey(&self) -> VcResult<Arc<Survey>> {
        unreachable!("no VMs here")
    }

    async fn folder_sight(&self, _: &MoRef, _: &MoRef) -> VcResult<FolderSight> {
        self.not_for_isos("folder_sight")
    }
}

#[async_trait]
impl Datastores for Store {
    async fn datacenter(&self, name: &str) -> VcResult<MoRef> {
        self.called("datacenter", None)?;
        assert_eq!(name, "dc1");
        Ok(MoRef::new("Datacenter", "datacenter-1"))
    }

    async fn stat(&self, _: &MoRef, path: &DatastorePath) -> VcResult<Option<u64>> {
        self.called("stat", None)?;
        Ok(self.with(|c| c.files.get(&path.to_string()).map(|f| f.size)))
    }

    async fn list(&self, _: &MoRef, directory: &DatastorePath) -> VcResult<Option<Vec<FileInfo>>> {
        self.called("list", None)?;
        if self.with(|c| c.list_hangs) {
            futures::future::pending::<()>().await;
        }
        let info = |(path, file): (&String, &Stored)| {
            let path = DatastorePath::parse(path).expect("path");
            (path.parent().as_ref() == Some(directory)).then(|| FileInfo {
                path,
                size: file.size,
                modified: Some(file.modified.clone()),
            })
        };
        Ok(Some(
            self.with(|c| c.files.iter().filter_map(info).collect()),
        ))
    }

    async fn make_directory(
        &self,
        effect: &Effect,
        _: &MoRef,
        path: &DatastorePath,
    ) -> VcResult<()> {
        self.called("make_directory", Some((effect, EffectKind::MakeDirectory)))?;
        self.with(|c| c.directories.insert(path.to_string()));
        Ok(())
    }

    async fn upload(
        &self,
        effect: &Effect,
        _: &MoRef,
        path: &DatastorePath,
        length: u64,
        mut body: ByteStream,
    ) -> VcResult<()> {
        self.called("upload", Some((effect, EffectKind::Upload)))?;
        let parent = path.parent().expect("a directory").to_string();
        assert!(
            self.with(|c| c.directories.contains(&parent)),
            "{parent} was not made"
        );
        let fault = self.take(|f| {
            use StoreFault as S;
            matches!(
                f,
                S::UploadRefused
                    | S::UploadCut(_)
                    | S::UploadEndsEarly(_)
                    | S::UploadLosesBytes
                    | S::UploadHangs(_)
                    | S::UploadFlushes(_)
            )
        });
        if fault == Some(StoreFault::UploadRefused) {
            return Err(error(VcErrorKind::Unreachable, "PUT /folder", path));
        }
        let full = self.with(|c| {
            let used: u64 = c.files.values().map(|f| f.size).sum();
            c.capacity.is_some_and(|capacity| used + length > capacity)
        });
        if full {
            let fault = Fault::NoDiskSpace("ds1".to_owned());
            return Err(error(VcErrorKind::Fault(fault), "PutFile", path));
        }
        let (mut size, mut hash) = (0_u64, Sha256::new());
        // Like an HTTP server: the file is there from the first byte on, and reading ends with the declared length.
        while size < length {
            let Some(chunk) = body.next().await else {
                break;
            };
            let Ok(chunk) = chunk else {
                return Err(error(VcErrorKind::NoAnswer, "PUT /folder", path));
            };
            size += chunk.len() as u64;
            hash.update(&chunk);
            self.with(|c| c.files.insert(path.to_string(), Stored::of_size(size)));
            match fault {
                Some(StoreFault::UploadCut(at)) if size >= at => {
                    return Err(error(VcErrorKind::Status(502), "PUT /folder", path));
                }
                Some(StoreFault::UploadEndsEarly(at)) if size >= at => return Ok(()),
                Some(StoreFault::UploadHangs(at)) if size >= at => futures::future::pending().await,
                _ => {}
            }
        }
        if let Some(StoreFault::UploadFlushes(time)) = fault {
            // It asks for the end of the body, too.
            assert!(body.next().await.is_none());
            tokio::time::sleep(time).await;
        }
        let lost = u64::from(fault == Some(StoreFault::UploadLosesBytes));
        let sha256 = Some(hex::encode(hash.finalize()));
        self.with(|c| {
            c.files.insert(
                path.to_string(),
                Stored {
                    sha256,
                    ..Stored::of_size(size - lost)
                },
            )
        });
        Ok(())
    }

    async fn move_file(
        &self,
        effect: &Effect,
        _: &MoRef,
        from: &DatastorePath,
        to: &DatastorePath,
    ) -> VcResult<()> {
        self.called("move", Some((effect, EffectKind::Publish)))?;
        let fault = self.take(|f| {
            use StoreFault as S;
            matches!(
                f,
                S::MoveHangs
                    | S::MoveAnswerLost
                    | S::MoveLost
                    | S::MoveRepeated
                    | S::MoveRace(_)
                    | S::MoveRefused
            )
        });
        let lost = || Err(error(VcErrorKind::NoAnswer, "MoveDatastoreFile_Task", from));
        match fault {
            Some(StoreFault::MoveLost) => return lost(),
            Some(StoreFault::MoveRefused) => {
                let object = Some(MoRef::new("Datastore", "datastore-1"));
                let fault = Fault::NoPermission {
                    object,
                    privilege: "Datastore.FileManagement".to_owned(),
                };
                return Err(error(
                    VcErrorKind::Fault(fault),
                    "MoveDatastoreFile_Task",
                    from,
                ));
            }
            Some(StoreFault::MoveRace(size)) => {
                self.with(|c| c.files.insert(to.to_string(), Stored::of_size(size)));
            }
            _ => {}
        }
        self.rename(from, to)?;
        match fault {
            Some(StoreFault::MoveAnswerLost) => lost(),
            Some(StoreFault::MoveHangs) => futures::future::pending().await,
            Some(StoreFault::MoveRepeated) => {
                let fault = Fault::FileNotFound(from.to_string());
                Err(error(
                    VcErrorKind::Fault(fault),
                    "MoveDatastoreFile_Task",
                    from,
                ))
            }
            _ => Ok(()),
        }
    }

    async fn delete_file(&self, effect: &Effect, _: &MoRef, path: &DatastorePath) -> VcResult<()> {
        self.called("delete", Some((effect, EffectKind::DeleteFile)))?;
        if self.take(|f| *f == StoreFault::DeleteRefused).is_some() {
            let fault = Fault::FileLocked(path.to_string());
            return Err(error(
                VcErrorKind::Fault(fault),
                "DeleteDatastoreFile_Task",
                path,
            ));
        }
        let mounting = self.take(|f| matches!(f, StoreFault::DeleteWhileMounting(_)));
        self.with(|c| {
            c.files.remove(&path.to_string());
            if let Some(StoreFault::DeleteWhileMounting(iso)) = mounting {
                c.mounted.push(iso);
            }
        });
        Ok(())
    }

    async fn drives(&self) -> VcResult<Drives> {
        self.called("mounted_isos", None)?;
        let drives = self.with(|c| c.mounted.clone());
        let drive = |(i, iso): (usize, String)| MountedIso {
            iso,
            vm: format!("vm-{i}"),
        };
        Ok(Drives {
            isos: drives.into_iter().enumerate().map(drive).collect(),
            unknown: self.with(|c| {
                let unread = c.unread.iter().map(|(vm, store)| {
                    let error = error(VcErrorKind::NoAnswer, "RetrievePropertiesEx", vm);
                    let datastores = store.map(|name| BTreeSet::from([name.to_owned()]));
                    (vm.clone(), Unread { error, datastores })
                });
                unread.collect()
            }),
        })
    }
}

impl News for Store {
    /// It tells nothing.
    fn follow(&self, _vms: BTreeSet<String>, _listener: Listener) {}
}

#[async_trait]
impl Tasks for Store {
    fn slots(&self) -> Slots {
        Slots::new(Limits::tasks(8))
    }

    async fn wait(&self, _: &TaskRef) -> VcResult<VcResult<TaskEnd>> {
        self.not_for_isos("wait")
    }
}
