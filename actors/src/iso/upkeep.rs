//! Work on files that are on the datastore: whether the recorded one is still complete, which files may be removed, and
//! what a crash left.
//!
//! Guarantees: only two kinds of file are deleted here. One kind is what a pool's retention lists and no VM has in its
//! drive. The other kind is partial files that are proven to have no writer ([`super::partial`]). Anything else is not
//! ours.

use std::{future::Future, sync::Arc, time::Duration};

use agent_forge_crds::conditions::Reason;
use futures::{FutureExt as _, future::BoxFuture};
use jiff::Timestamp;
use tracing::Instrument as _;

use super::{
    msg::{IsoFile, IsoWant},
    ports::Ports,
    retention::PruneNews,
    transfer::Site,
};
use crate::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        names::DatastorePath,
    },
    ports::{
        effect::EffectKind,
        iso_source::{Freshness, Validators},
        vcenter::{Drives, VCenter},
    },
};

/// Limit of one step. The adapter's own limits are shorter.
const STEP: Duration = Duration::from_secs(60);

/// Bytes that a failed transfer sent arrive within this time, if they do: a client waits for half of it.
const LATE: Duration = Duration::from_secs(600);
/// Looks for them, one each [`LATE`], before the actor gives up.
const LOOKS: u32 = 6;

/// What a look at a recorded file found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The file is there with its size.
    Whole,
    /// The file is missing or incomplete.
    NotThere,
    /// The file is there, and its source has other bytes by now.
    Outdated,
}

/// Looks at `file`, and asks its source too if there is something to compare with.
pub(super) async fn check(
    ports: &Ports,
    want: &IsoWant,
    file: &IsoFile,
    compare: Option<&Validators>,
) -> Result<Found, ReconcileError> {
    let site = step("login", Site::find(ports, want)).await?;
    let size = step("stat", async {
        Ok(site.vc.stat(&site.datacenter, &file.path).await?)
    })
    .await?;
    if size != Some(file.size) {
        return Ok(Found::NotThere);
    }
    site.sweep(ports, want).await;
    if let Some(had) = compare.filter(|had| !had.is_empty()) {
        let answer = match want.request() {
            Ok(request) => ports
                .source
                .freshness(&request, had)
                .await
                .map_err(ReconcileError::from),
            Err(trouble) => Err(trouble),
        };
        ports.instruments.iso_operation("compare", answer.is_ok());
        match answer {
            Ok(Freshness::Changed) => return Ok(Found::Outdated),
            Ok(Freshness::Same | Freshness::Unknown) => {}
            // The file is complete. It can be used although the source does not answer.
            Err(e) => tracing::warn!(error = %e, "the ISO's source could not be asked for changes"),
        }
    }
    ports.instruments.iso_operation("reuse", true);
    Ok(Found::Whole)
}

impl Site {
    /// Deletes partial files of dead flights in all directories of the pools that share this want. A failure does not
    /// prevent the use of the ISO.
    pub(super) async fn sweep(&self, ports: &Ports, want: &IsoWant) {
        let others = want
            .directories
            .iter()
            .filter(|d| **d != want.directory && d.datastore == ports.key.datastore);
        for directory in std::iter::once(&want.directory).chain(others) {
            match step("sweep", self.try_sweep(ports, directory)).await {
                // The writer of a file that was found may have sent more.
                Ok(found) if found > 0 => (ports.later)(self.look_after(ports, directory)),
                Ok(_) => {}
                Err(trouble) => {
                    tracing::debug!(%directory, error = %trouble, "abandoned partial files not looked for");
                }
            }
        }
    }

    /// Looks once more where a transfer failed. What it sent may arrive after its partial file was deleted, and by then
    /// no pool may use the directory. A look that fails is repeated.
    pub(super) fn look_after(
        &self,
        ports: &Ports,
        directory: &DatastorePath,
    ) -> BoxFuture<'static, ()> {
        let (site, ports, directory) = (self.clone(), ports.clone(), directory.clone());
        let span = tracing::error_span!(
            parent: None,
            "iso.flight",
            cache = %ports.key,
            object = %site.pool,
            task = "sweep",
        );
        let looks = async move {
            for _ in 0..LOOKS {
                tokio::time::sleep(LATE).await;
                match step("sweep", site.try_sweep(&ports, &directory)).await {
                    Ok(_) => return,
                    Err(trouble) => {
                        tracing::debug!(%directory, error = %trouble, "abandoned partial files not looked for");
                    }
                }
            }
            tracing::warn!(%directory, "it is not known whether a partial ISO file is left");
        };
        looks.instrument(span).boxed()
    }

    /// Returns how many files it deleted.
    async fn try_sweep(
        &self,
        ports: &Ports,
        directory: &DatastorePath,
    ) -> Result<usize, ReconcileError> {
        let mut found = 0;
        let now = ports.clock.wall();
        let files = self.vc.list(&self.datacenter, directory).await?;
        for file in files.unwrap_or_default() {
            let changed = file
                .modified
                .as_deref()
                .and_then(|m| m.parse::<Timestamp>().ok());
            let ours = file.path.parent().as_ref() == Some(directory);
            // Read only now: a transfer that began after the list was made is not in it.
            let writes = ports.lane.borrow().transfer;
            let name = file.path.file_name();
            if !ours || !ports.origin.is_dead(name, writes, changed, now) {
                continue;
            }
            let effect = self.effect(EffectKind::DeleteFile);
            self.vc
                .delete_file(&effect, &self.datacenter, &file.path)
                .await?;
            tracing::info!(file = %file.path, "abandoned partial ISO file deleted");
            found += 1;
        }
        Ok(found)
    }

    /// Deletes what no VM has in its drive, by the answers of all users of this vCenter. They are asked again after
    /// each deletion, because it took some time.
    async fn remove(
        &self,
        ports: &Ports,
        want: &IsoWant,
        paths: &[DatastorePath],
    ) -> Result<PruneNews, ReconcileError> {
        let users = self.users(ports, want).await?;
        let mut asked = Some(drives(&users).await?);
        let (mut gone, mut kept) = (Vec::new(), Vec::new());
        for path in paths {
            let drives = match asked.take() {
                Some(drives) => Ok(drives),
                None => drives(&users).await,
            };
            let drives = match drives {
                Ok(drives) => drives,
                Err(trouble) => {
                    kept.push((path.clone(), trouble.message));
                    continue;
                }
            };
            if let Some(why) = drives.iter().find_map(|seen| seen.keeps(path)) {
                kept.push((path.clone(), why));
                asked = Some(drives);
                continue;
            }
            let effect = self.effect(EffectKind::DeleteFile);
            let deleted = step("deletion", async {
                Ok(self.vc.delete_file(&effect, &self.datacenter, path).await?)
            })
            .await;
            ports.instruments.iso_operation("prune", deleted.is_ok());
            match deleted {
                Ok(()) => gone.push(path.clone()),
                Err(trouble) => kept.push((path.clone(), trouble.message)),
            }
        }
        Ok((gone, kept))
    }

    /// The sessions of all users of this vCenter, because each may see other VMs. A user with VMs there has to be
    /// asked. Any other user whose login does not work may belong to another vCenter.
    async fn users(
        &self,
        ports: &Ports,
        want: &IsoWant,
    ) -> Result<Vec<Arc<dyn VCenter>>, ReconcileError> {
        let mut users = vec![self.vc.clone()];
        let others = want.users.iter().filter(|user| user.secret != want.secret);
        for user in others {
            let secret = &user.secret;
            let login = async { ports.sessions.session(secret, &user.namespace).await };
            match step("login", login).await {
                Ok(session) if session.server() == self.vc.server() => users.push(session),
                Ok(_) => {}
                Err(trouble) if user.has_vms_at(self.vc.server()) => {
                    let message = format!(
                        "the user of Secret {secret} has VMs in this vCenter and cannot be asked what is in their drives: {}",
                        trouble.message
                    );
                    return Err(ReconcileError { message, ..trouble });
                }
                Err(trouble) => {
                    tracing::debug!(%secret, error = %trouble, "not asked what is in drives");
                }
            }
        }
        Ok(users)
    }
}

/// What VMs have in their drives, by each user. The limit applies to each page, not to the whole.
async fn drives(users: &[Arc<dyn VCenter>]) -> Result<Vec<Drives>, ReconcileError> {
    let mut all = Vec::new();
    for user in users {
        all.push(user.drives().await?);
    }
    Ok(all)
}

/// Deletes the files that no VM has in its drive, and reports for each of the others why it stays. Also deletes what
/// dead flights left, because on a datastore that its pools have left no other flight runs.
pub(super) async fn prune(
    ports: &Ports,
    want: &IsoWant,
    paths: &[DatastorePath],
) -> Result<PruneNews, ReconcileError> {
    let site = step("login", Site::find(ports, want)).await?;
    site.sweep(ports, want).await;
    site.remove(ports, want, paths).await
}

async fn step<T>(
    what: &str,
    work: impl Future<Output = Result<T, ReconcileError>>,
) -> Result<T, ReconcileError> {
    tokio::time::timeout(STEP, work).await.unwrap_or_else(|_| {
        let message = format!("{what}: vCenter did not answer within {} s", STEP.as_secs());
        Err(ReconcileError::transient(
            ErrorSource::Vsphere,
            Reason::VcenterNoAnswer,
            message,
        ))
    })
}
