//! One transfer: source -> SHA-256 and checks -> a partial file on the datastore -> its final name.
//!
//! Guarantees
//! - A file under its final name `<directory>/<sha256>.iso` is complete. It got there by a move, after its size on the
//!   datastore was seen to be right. A move overwrites nothing.
//! - After any failure, the partial file is deleted (best effort). A look ten minutes later deletes what that missed, for
//!   example bytes that arrived late. A partial name shows which flight wrote it ([`super::partial`]).
//! - A file gets its final name only after the record of a pool that wants it lists that name ([`Lane`]).
//! - After a lost reply the outcome is unknown. A look at both names settles it.
//! - A transfer ends when no pool wants it any more, unless it is about to get its final name, which ends soon by
//!   itself.
//! - A flight ends if nothing moves for [`super::meter::STALL`], or for [`super::meter::FLUSH`] after the last byte.
//!
//! Assumptions: the adapter bounds each call in time. Dropping the future drops the upload and the download.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::conditions::Reason;

use super::{
    bounds::{Watch, bounded, incomplete, unhurried},
    meter::{Meter, SHORTEST, not_an_iso},
    msg::{FlightNews, IsoFile, IsoPlace, IsoWant},
    ports::Ports,
};

use crate::{
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        names::{DatastorePath, MoRef, ObjectKey},
    },
    ports::{
        effect::{Effect, EffectKind, Subject},
        iso_source::{Freshness, IsoDownload, IsoUrl, Validators},
        vcenter::{Fault, VCenter, VcError, VcErrorKind},
    },
};

/// How long the deletion of a partial file may take before the failure is reported without it.
const DISCARD: Duration = Duration::from_secs(30);
/// How long the move may take before both names are looked at. It is below [`super::meter::FLUSH`], so that there is
/// time for the look.
const MOVE: Duration = Duration::from_secs(270);

/// Fetches the ISO and publishes it. The flag says that a file of this content was there already. `None`: no pool
/// wanted it any more, and nothing of it stays.
pub(super) async fn transfer(
    ports: &Ports,
    id: u64,
    want: &IsoWant,
) -> Result<Option<(IsoFile, bool)>, ReconcileError> {
    let began = ports.clock.monotonic();
    let tell = ports.tell.clone();
    let told = move |done, total| tell(id, FlightNews::Progress(done, Some(total)));
    let meter = Meter::new(Box::new(told), ports.source.patience());
    let lane = Watch {
        id,
        lane: ports.lane.clone(),
    };
    let result = fetch(ports, &lane, want, meter).await;
    if result.is_err() && lane.is_over() {
        return Ok(None);
    }
    ports.instruments.iso_operation("upload", result.is_ok());
    if let Ok((_, false)) = &result {
        let took = ports.clock.monotonic().saturating_sub(began);
        let cache = ports.key.to_string();
        ports
            .instruments
            .iso_transferred(&cache, took.as_secs_f64());
    }
    result
        .map(Some)
        .map_err(|trouble| scrubbed(trouble, &want.source))
}

async fn fetch(
    ports: &Ports,
    lane: &Watch,
    want: &IsoWant,
    meter: Arc<Meter>,
) -> Result<(IsoFile, bool), ReconcileError> {
    let before = async {
        let site = bounded(&meter, Site::reach(ports, want, &meter)).await?;
        let download = bounded(&meter, site.open(ports, want, &meter)).await?;
        Ok((site, download))
    };
    let (site, download) = lane.wanted(before).await?;
    let partial = want
        .directory
        .join(&ports.origin.name(&want.source_key, lane.id))
        .map_err(bad_path)?;
    let deliver = async {
        let send = async {
            let sending = site.send(want, &partial, download, &meter);
            let sent = bounded(&meter, sending).await?;
            (ports.tell)(lane.id, FlightNews::Publishing(sent.place.clone()));
            lane.listed(&sent.place).await?;
            Ok(sent)
        };
        let sent = lane.wanted(send).await?;
        bounded(&meter, site.publish(ports, want, &partial, sent, &meter)).await
    };
    let delivered = deliver.await;
    if !matches!(delivered, Ok((_, false))) {
        site.discard(&partial).await;
    }
    if delivered.is_err() {
        (ports.later)(site.look_after(ports, &want.directory));
    }
    delivered
}

/// One vCenter with the datacenter that holds the datastore, on behalf of one pool.
#[derive(Clone)]
pub(super) struct Site {
    pub(super) vc: Arc<dyn VCenter>,
    pub(super) datacenter: MoRef,
    pub(super) pool: ObjectKey,
}

/// All bytes are there under the partial name, and may get that place.
struct Sent {
    place: IsoPlace,
    size: u64,
    validators: Validators,
}

impl Site {
    /// Logs in (or joins the session) and finds the datacenter.
    pub(super) async fn find(ports: &Ports, want: &IsoWant) -> Result<Self, ReconcileError> {
        let vc = ports
            .sessions
            .session(&want.secret, &want.pool.namespace)
            .await?;
        let datacenter = vc.datacenter(&ports.key.datacenter).await?;
        Ok(Self {
            vc,
            datacenter,
            pool: want.pool.clone(),
        })
    }

    async fn reach(ports: &Ports, want: &IsoWant, meter: &Meter) -> Result<Self, ReconcileError> {
        let site = Self::find(ports, want).await?;
        meter.moved();
        site.vc
            .make_directory(
                &site.effect(EffectKind::MakeDirectory),
                &site.datacenter,
                &want.directory,
            )
            .await?;
        unhurried(meter, site.sweep(ports, want)).await;
        Ok(site)
    }

    pub(super) fn effect(&self, kind: EffectKind) -> Effect {
        Effect::new(kind, Subject::Pool(self.pool.clone()))
    }

    async fn open(
        &self,
        ports: &Ports,
        want: &IsoWant,
        meter: &Meter,
    ) -> Result<IsoDownload, ReconcileError> {
        let download = ports.source.open(&want.request()?).await?;
        meter.moved();
        if download.length < SHORTEST {
            let what = format!(
                "the ISO's source declares {} bytes, too few for an ISO 9660 image",
                download.length
            );
            return Err(not_an_iso(&what));
        }
        Ok(download)
    }

    /// Brings the bytes to the datastore.
    async fn send(
        &self,
        want: &IsoWant,
        partial: &DatastorePath,
        download: IsoDownload,
        meter: &Arc<Meter>,
    ) -> Result<Sent, ReconcileError> {
        let (size, validators) = (download.length, download.validators);
        let body = meter.watch(download.body, size);
        let upload = self.effect(EffectKind::Upload);
        let sent = self
            .vc
            .upload(&upload, &self.datacenter, partial, size, body)
            .await;
        meter.moved();
        // The result of the meter comes first. If the source failed, the uploader may report that in other words, or
        // not at all.
        let sha256 = match (meter.verdict(), sent) {
            (Some(Err(trouble)), _) => return Err(trouble),
            (_, Err(e)) => return Err(e.into()),
            (None, Ok(())) => {
                return Err(incomplete(format!(
                    "the upload of {partial} ended after {} of {size} bytes",
                    meter.done()
                )));
            }
            (Some(Ok(sha256)), Ok(())) => sha256,
        };
        match self.vc.stat(&self.datacenter, partial).await? {
            Some(there) if there == size => {}
            Some(there) => {
                return Err(incomplete(format!(
                    "{partial} has {there} bytes after an upload of {size}"
                )));
            }
            None => {
                return Err(incomplete(format!(
                    "{partial} is not there after its upload"
                )));
            }
        }
        meter.moved();
        let path = want
            .directory
            .join(&format!("{sha256}.iso"))
            .map_err(bad_path)?;
        Ok(Sent {
            place: IsoPlace { sha256, path },
            size,
            validators,
        })
    }

    /// Gives it its final name. The flag says that an equal file had that name already.
    async fn publish(
        &self,
        ports: &Ports,
        want: &IsoWant,
        partial: &DatastorePath,
        sent: Sent,
        meter: &Meter,
    ) -> Result<(IsoFile, bool), ReconcileError> {
        let Sent {
            place,
            size,
            validators,
        } = sent;
        let reused = self.rename(partial, &place.path, size, meter).await?;
        meter.moved();
        Ok((
            IsoFile {
                sha256: place.sha256,
                path: place.path,
                size,
                uploaded_at: ports.clock.wall(),
                volatile: is_volatile(ports, want, &validators).await,
                validators,
            },
            reused,
        ))
    }

    /// Moves the partial file to its final name. `true`: an equal file had that name already.
    async fn rename(
        &self,
        partial: &DatastorePath,
        path: &DatastorePath,
        size: u64,
        meter: &Meter,
    ) -> Result<bool, ReconcileError> {
        let publish = self.effect(EffectKind::Publish);
        let moving = self.vc.move_file(&publish, &self.datacenter, partial, path);
        let error = match tokio::time::timeout(MOVE, moving).await {
            Ok(Ok(())) => return Ok(false),
            Ok(Err(e)) if outcome_is_to_be_seen(&e) => e,
            Ok(Err(e)) => return Err(e.into()),
            Err(_) => no_answer(partial),
        };
        meter.moved();
        let there = self.vc.stat(&self.datacenter, path).await?;
        meter.moved();
        match there {
            // The move is atomic: if the partial file is gone, it is the one that is there.
            Some(there) if there == size => {
                Ok(self.vc.stat(&self.datacenter, partial).await?.is_some())
            }
            Some(there) => Err(ReconcileError::blocked(
                ErrorSource::Iso,
                Reason::IsoFileConflict,
                format!(
                    "{path} is there with {there} bytes, but an ISO with this digest has {size}; it is not overwritten: \
                     delete or rename that file"
                ),
            )),
            None => Err(error.into()),
        }
    }

    async fn discard(&self, partial: &DatastorePath) {
        let effect = self.effect(EffectKind::DeleteFile);
        match tokio::time::timeout(
            DISCARD,
            self.vc.delete_file(&effect, &self.datacenter, partial),
        )
        .await
        {
            Ok(Ok(())) => {}
            Ok(Err(e)) => {
                tracing::warn!(file = %partial, error = %e, "partial ISO file not deleted")
            }
            Err(_) => tracing::warn!(file = %partial, "partial ISO file not deleted: no answer"),
        }
    }
}

fn no_answer(partial: &DatastorePath) -> VcError {
    VcError {
        kind: VcErrorKind::NoAnswer,
        operation: "MoveDatastoreFile_Task",
        subject: partial.to_string(),
        message: format!("it did not end within {} s", MOVE.as_secs()),
        concealed: false,
    }
}

/// Whether the move may have happened although it failed. `FileNotFound` counts too: if the reply was lost and the move
/// was repeated, it does not find its source any more.
fn outcome_is_to_be_seen(e: &VcError) -> bool {
    e.outcome_unknown()
        || matches!(
            e.fault(),
            Some(Fault::AlreadyExists(_) | Fault::FileNotFound(_))
        )
}

/// Whether the source changes its validators right after the download. Then they do not show a change, and the file
/// stays until InfraEnv, URL or `createdTime` change.
async fn is_volatile(ports: &Ports, want: &IsoWant, said: &Validators) -> bool {
    if want.check_every.is_none() || said.is_empty() {
        return false;
    }
    let Ok(request) = want.request() else {
        return false;
    };
    let again = ports.source.freshness(&request, said).await;
    matches!(again, Ok(Freshness::Changed))
}

pub(super) fn bad_path(e: crate::domain::names::BadDatastorePath) -> ReconcileError {
    ReconcileError {
        side: ErrorSource::Iso,
        reason: Reason::InvalidPath,
        message: e.to_string(),
        class: Class::Defect,
    }
}

/// The URL is a credential: if an adapter put it into a message, it is replaced here.
fn scrubbed(mut trouble: ReconcileError, url: &IsoUrl) -> ReconcileError {
    let (full, path) = (url.expose().as_str(), url.expose().path());
    for secret in [full, path] {
        if secret.len() > 1 && trouble.message.contains(secret) {
            trouble.message = trouble.message.replace(secret, "<ISO URL>");
        }
    }
    trouble
}
