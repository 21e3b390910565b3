//! Looking after what lies on the datastore: is the recorded file still whole, what may go, what did a crash leave.
//!
//! Guarantees: only two kinds of file are ever deleted here: what a pool's retention lists and no VM mounts, and partial
//! files that are proven to have no writer ([`super::partial`]). Anything else is not ours.

use std::{future::Future, time::Duration};

use jiff::Timestamp;

use super::{
    Ports,
    msg::{Doubtful, IsoFile, IsoMsg, IsoWant},
    retention::PruneNews,
    transfer::Site,
};
use crate::{
    effect::EffectKind,
    error::{Side, Trouble},
    model::names::DatastorePath,
    mutants::{Mutant, on},
    ports::{
        iso_source::{Freshness, Validators},
        vcenter::MountedIso,
    },
};

/// Bound of one step; the adapter's own bounds are shorter.
const STEP: Duration = Duration::from_secs(60);

/// What a look at a recorded file found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It lies there with its size.
    Whole,
    /// It does not.
    NotThere,
    /// It does, and its source has other bytes by now.
    Outdated,
}

/// Looks at `file`, and asks its source too if there is something to compare with.
pub(super) async fn check(
    ports: &Ports,
    want: &IsoWant,
    file: &IsoFile,
    compare: Option<&Validators>,
) -> Result<Found, Trouble> {
    let site = step("login", Site::find(ports, want)).await?;
    let size = step("stat", async {
        Ok(site.vc.stat(&site.datacenter, &file.path).await?)
    })
    .await?;
    if size != Some(file.size) {
        return Ok(Found::NotThere);
    }
    site.sweep(ports, want).await;
    if on(Mutant::VolatileRefetched) {
        return Ok(Found::Outdated);
    }
    if let Some(had) = compare.filter(|had| !had.is_empty()) {
        let answer = match want.request() {
            Ok(request) => ports
                .source
                .freshness(&request, had)
                .await
                .map_err(Trouble::from),
            Err(trouble) => Err(trouble),
        };
        ports.instruments.iso_operation("compare", answer.is_ok());
        match answer {
            Ok(Freshness::Changed) => return Ok(Found::Outdated),
            Ok(Freshness::Same | Freshness::Unknown) => {}
            // The file is whole: a server that does not answer is no reason to do without it.
            Err(e) => tracing::warn!(error = %e, "the ISO's source could not be asked for changes"),
        }
    }
    ports.instruments.iso_operation("reuse", true);
    Ok(Found::Whole)
}

impl Site {
    /// Deletes partial files that dead flights left behind, where this one writes, and once in a life in the pool's other
    /// directories; that it fails is no reason to do without the ISO. What whoever is dead had sent may still arrive where
    /// something of his was: it is looked for later.
    pub(super) async fn sweep(&self, ports: &Ports, want: &IsoWant) {
        let others = want.directories.iter().filter(|d| **d != want.directory);
        for directory in std::iter::once(&want.directory).chain(others) {
            match step("sweep", self.try_sweep(ports, directory)).await {
                Ok(found) => {
                    (ports.tell)(IsoMsg::Swept(directory.clone()));
                    if found > 0 {
                        (ports.tell)(IsoMsg::Doubtful(self.doubtful(directory)));
                    }
                }
                Err(trouble) => {
                    tracing::debug!(%directory, error = %trouble, "abandoned partial files not looked for");
                }
            }
        }
    }

    /// Says how many there were.
    async fn try_sweep(&self, ports: &Ports, directory: &DatastorePath) -> Result<usize, Trouble> {
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
            let writes = *ports.writer.borrow();
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

    /// Deletes what no VM has mounted. vCenter is asked anew after each deletion: that took its time.
    async fn remove(&self, ports: &Ports, paths: &[DatastorePath]) -> Result<PruneNews, Trouble> {
        let mut asked = Some(self.mounts().await?);
        let (mut gone, mut kept) = (Vec::new(), Vec::new());
        for path in paths {
            let mounts = match asked.take() {
                Some(mounts) => Ok(mounts),
                None => self.mounts().await,
            };
            let mounts = match mounts {
                Ok(mounts) => mounts,
                Err(trouble) => {
                    kept.push((path.clone(), trouble.message));
                    continue;
                }
            };
            if let Some(vm) = holder(&mounts, path) {
                kept.push((path.clone(), format!("VM {vm} has it in its CD-ROM drive")));
                asked = Some(mounts);
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

    /// What VMs have in their drives, each with the VM.
    async fn mounts(&self) -> Result<Vec<MountedIso>, Trouble> {
        step("mounted ISOs", async { Ok(self.vc.mounted_isos().await?) }).await
    }
}

/// A VM that has this file in a drive, or something that cannot be told from it.
fn holder<'a>(mounted: &'a [MountedIso], path: &DatastorePath) -> Option<&'a str> {
    let holds = mounted.iter().find(|mount| mount.may_be(path));
    holds.map(|mount| mount.vm.as_str())
}

/// Looks once more where a transfer failed, whoever still wants something there; where that fails, too, the actor hears of
/// it for the next look.
pub(super) async fn look_after(ports: &Ports, mut doubtful: Box<Doubtful>) {
    let site = Site::again(&doubtful);
    let Err(trouble) = step("sweep", site.try_sweep(ports, &doubtful.directory)).await else {
        return;
    };
    let directory = &doubtful.directory;
    doubtful.looks = doubtful.looks.saturating_sub(1);
    if doubtful.looks == 0 {
        tracing::warn!(%directory, error = %trouble, "it is not known whether a partial ISO file is left");
    } else {
        tracing::debug!(%directory, error = %trouble, "abandoned partial files not looked for");
        (ports.tell)(IsoMsg::Doubtful(doubtful));
    }
}

/// Deletes the files that no VM has mounted; says of each of the others why it stays.
pub(super) async fn prune(
    ports: &Ports,
    want: &IsoWant,
    paths: &[DatastorePath],
) -> Result<PruneNews, Trouble> {
    let site = step("login", Site::find(ports, want)).await?;
    site.remove(ports, paths).await
}

/// Likewise on a datastore that the pool has left, where nobody else may come to look for what dead flights left.
pub(super) async fn clear(
    ports: &Ports,
    want: &IsoWant,
    paths: &[DatastorePath],
) -> Result<PruneNews, Trouble> {
    let site = step("login", Site::find(ports, want)).await?;
    site.sweep(ports, want).await;
    site.remove(ports, paths).await
}

async fn step<T>(what: &str, work: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    tokio::time::timeout(STEP, work).await.unwrap_or_else(|_| {
        let message = format!("{what}: vCenter did not answer within {} s", STEP.as_secs());
        Err(Trouble::transient(
            Side::Vsphere,
            "VCenterNoAnswer",
            message,
        ))
    })
}
