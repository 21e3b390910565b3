//! Finds the VM: by its reference, by uuid and marker, or, for a record of the predecessor, by proof.

use std::time::Duration;

use agent_forge_crds::{
    agent::{VmStatus, VsphereAgentStatus},
    conditions::Reason,
    pool::{CredentialsSecretRef, SOURCE_DISCOVERED_AGENT, SOURCE_VSPHERE_AGENT},
};

use super::{
    executor::{Done, Executor, StepOutcome},
    last_look::SOON,
};
use crate::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        managed_vm::ManagedVm,
        marker::Mark,
        names::{MoRef, ObjectKey},
    },
    guard::adoption::{self, Candidate},
    migration::{
        notes::Notes,
        proof::{self, Claim, Proof},
    },
    placement::request,
    ports::{
        effect::EffectKind,
        vcenter::{
            FolderSight, Place, PlaceRequest, Survey, TaskEnd, VCenter, VmChange, VmObservation,
        },
    },
    sessions::{of_vm::Reached, secret_ref},
    vm::{
        memory::Memory,
        news::news_of,
        ownership::{self, FoundBy, Ownership},
        place,
        record::with_observation,
        step::{PROOF_PAUSE, PlacementCheck},
    },
};

impl Executor<'_> {
    pub(super) async fn lookup(&self, memory: &mut Memory) -> Done {
        let now = self.context.clock.monotonic();
        let vm = self.vm();
        if let Some(left) = rest_of_proof(memory, now) {
            return Ok(StepOutcome::Pause(left));
        }
        // What is told from now on may be newer than what this look shows.
        let news = news_of(self.context, &vm).map_or(0, |note| note.number);
        let looked = self.look_for(memory, vm, now).await?;
        memory.news = news;
        Ok(looked)
    }

    async fn look_for(&self, memory: &mut Memory, vm: VmStatus, now: Duration) -> Done {
        let session = self.session().await?;
        let mut at_reference = Ownership::NotAsked;
        if let Some(moref) = &vm.moref
            && let Some(shown) = session
                .observe(&MoRef::new("VirtualMachine", moref))
                .await?
        {
            at_reference =
                ownership::judge(vec![shown], &self.expected(), &Ownership::NotAsked, now);
        }
        if matches!(
            at_reference,
            Ownership::Ours(_) | Ownership::Lenders(_) | Ownership::Bare { .. }
        ) {
            memory.look(at_reference, now);
            return Ok(StepOutcome::Same);
        }
        let place = self.place()?;
        if self.observed.site(memory, now) != PlacementCheck::Elsewhere
            && let Some(still) = self.holder(&memory.seen, session.as_ref(), &place).await?
        {
            memory.seen = ownership::judge_holder(still, &self.expected(), now);
            return Ok(StepOutcome::Same);
        }
        let found = session.find_by_uuid(self.uuid()?).await?;
        let mut told = ownership::judge(found, &self.expected(), &memory.seen, now);
        if matches!(told, Ownership::Absent { .. }) {
            let elsewhere = self.elsewhere(session.as_ref(), &place, memory, now);
            told = elsewhere.await?.unwrap_or(told);
        }
        // The VM at the recorded reference is not proven to be another one: our VM may have lost its uuid and its mark.
        if matches!(told, Ownership::Absent { .. })
            && matches!(at_reference, Ownership::Foreign { .. })
        {
            told = at_reference;
        }
        memory.look(told, now);
        memory.proof_at = Some(now);
        Ok(StepOutcome::Same)
    }

    /// A VM that no search by uuid finds, anywhere in vCenter: one that carries our marker, or one without
    /// configuration that may be ours. `None`: there is no such VM.
    async fn elsewhere(
        &self,
        session: &dyn VCenter,
        place: &Place,
        memory: &mut Memory,
        now: Duration,
    ) -> Result<Option<Ownership>, ReconcileError> {
        let sight = session
            .folder_sight(&place.folder, &place.datacenter)
            .await?;
        memory.folder_deleted = sight == FolderSight::Deleted;
        if sight == FolderSight::Hidden {
            memory.seen = Ownership::NotAsked;
            return Err(ReconcileError::blocked(
                ErrorSource::Vsphere,
                Reason::FolderNotVisible,
                format!(
                    "VM folder {:?} is not visible, so an empty answer proves nothing; check the user's permissions",
                    self.folder_name()
                ),
            ));
        }
        let survey = session.survey().await?;
        let marker = self.marker();
        let mut marked = Vec::new();
        for vm in survey.marked.iter().filter(|vm| vm.marker == marker) {
            marked.extend(session.observe(&vm.moref).await?);
        }
        if let told @ (Ownership::Ours(_) | Ownership::Several(_) | Ownership::Bare { .. }) =
            ownership::judge(marked, &self.expected(), &Ownership::NotAsked, now)
        {
            return Ok(Some(told));
        }
        Ok(self.bare_among(&survey, now))
    }

    /// A VM without configuration that may be this one.
    fn bare_among(&self, survey: &Survey, now: Duration) -> Option<Ownership> {
        let vm = self.vm();
        let name = &self.observed.child.vm_name;
        ownership::bare_namesake(&survey.bare, name, vm.vm_path.as_deref(), now)
    }

    pub(super) fn folder_name(&self) -> String {
        let placement = self.vm().placement;
        placement.and_then(|p| p.folder).unwrap_or_default()
    }

    /// The VM that had our name when our create was refused, if it still has that name. Then no other create is needed
    /// to find that out. A VM that is to be removed does not need this: there the question is only whether our VM
    /// exists.
    async fn holder(
        &self,
        seen: &Ownership,
        session: &dyn VCenter,
        place: &Place,
    ) -> Result<Option<VmObservation>, ReconcileError> {
        let child = &self.observed.child;
        let Ownership::Foreign {
            met: FoundBy::Name(Some(moref)),
            ..
        } = seen
        else {
            return Ok(None);
        };
        if child.deleting || child.given_up {
            return Ok(None);
        }
        let shown = session.observe(moref).await?;
        Ok(shown.filter(|vm| ownership::still_holds(vm, &child.vm_name, &place.folder)))
    }

    /// What the cluster says of a VM that is to be adopted. `None`: nobody asks for that.
    async fn candidate(&self) -> Result<Option<Result<Candidate, String>>, ReconcileError> {
        let observed = self.observed;
        if !observed.child.adopting {
            return Ok(None);
        }
        let facts = observed.adoption(self.pool()?, None);
        Box::pin(self.case().candidate(facts)).await.map(Some)
    }

    /// Proves the VM among those with its BIOS UUID: that of the `candidate`, or that of a record of the predecessor.
    fn prove(
        &self,
        found: Vec<VmObservation>,
        folder: &MoRef,
        candidate: Option<&Candidate>,
    ) -> Result<Proof, ReconcileError> {
        let (marker, child) = (&self.marker(), &self.observed.child);
        let Some(candidate) = candidate else {
            let owner = child.vm().and_then(|vm| vm.owner_uid.as_deref());
            let name = &child.vm_name;
            let claim = Claim {
                name,
                folder,
                marker,
                owner,
            };
            return Ok(proof::prove(found, &claim));
        };
        let place = adoption::Place {
            pool: &ObjectKey::of(self.pool()?.as_ref()),
            folder,
            marker,
        };
        let proven = candidate.prove(found, &place).map(Box::new);
        Ok(proven.map_or_else(Proof::None, Proof::Proven))
    }

    /// Proves the VM of a predecessor's record ([`proof::prove`]), or one that a person asks to adopt ([`adoption`]). Then writes
    /// the mark, and for the predecessor its notes.
    pub(super) async fn take_over(&self, memory: &mut Memory) -> Done {
        let now = self.context.clock.monotonic();
        if let Some(left) = rest_of_proof(memory, now) {
            return Ok(StepOutcome::Pause(left));
        }
        let pool = self.pool()?;
        let candidate = match self.candidate().await?.transpose() {
            Ok(candidate) => candidate,
            Err(missing) => {
                note_unproven(memory, Proof::None(missing), now);
                return Ok(StepOutcome::Same);
            }
        };
        let session = self.session().await?;
        let secret = secret_ref::secret(pool, &self.context.settings.secret_namespaces)?;
        let request = without_space(request::place_request(pool)?);
        let effect = self.effect(EffectKind::CreateFolder);
        let placed = self
            .context
            .placer
            .place(session.clone(), effect, request.clone())
            .await?;
        // The record does not name the datacenter, and the pool's spec may have changed since.
        let uuid = match &candidate {
            Some(candidate) => candidate.uuid,
            None => self.uuid()?,
        };
        let found = session.find_by_uuid(uuid).await?;
        if candidate.is_none()
            && found.is_empty()
            && let Some(bare) = self.bare_among(session.survey().await?.as_ref(), now)
        {
            memory.seen = bare;
            return Ok(StepOutcome::Same);
        }
        let mut vm = self.vm();
        let proven = match self.prove(found, &placed.folder, candidate.as_ref())? {
            Proof::Proven(vm) => *vm,
            unproven => {
                note_unproven(memory, unproven, now);
                return Ok(StepOutcome::Same);
            }
        };
        let proven = match self.mark(memory, session.as_ref(), proven).await? {
            Ok(marked) => marked,
            Err(otherwise) => return Ok(otherwise),
        };
        vm.placement = Some(place::record(&placed, &request));
        Reached::by(session.as_ref()).record(&mut vm);
        vm.credentials_ref = Some(CredentialsSecretRef {
            name: secret.name,
            namespace: Some(secret.namespace),
        });
        let record = self.taken(as_ours(vm, &proven, candidate.is_some()), &proven);
        let next = self
            .save_record(EffectKind::RecordObservation, record, memory)
            .await?;
        memory.seen = Ownership::Ours(Box::new(proven));
        Ok(StepOutcome::Object(next))
    }

    /// The record with a VM that was taken over.
    fn taken(&self, vm: VmStatus, proven: &VmObservation) -> VsphereAgentStatus {
        let mut record = self.observed.record();
        record.cluster_id = Some(self.context.view.cluster_id());
        // An ejection that was only planned is dropped: `spec.iso.ejectAfterInstall` decides again.
        record.iso_ejection = record.iso_ejection.filter(|e| e.disconnect_started);
        record.vm = Some(with_observation(self.observed, vm, proven, None));
        record
    }

    /// Writes our mark onto a VM of the predecessor that is proven to be ours, and our notes if it has none. Returns the VM as it
    /// is then, or what to do instead.
    async fn mark(
        &self,
        memory: &mut Memory,
        session: &dyn VCenter,
        proven: VmObservation,
    ) -> Result<Result<VmObservation, StepOutcome>, ReconcileError> {
        let marker = self.marker();
        if proven.marker.as_ref() == Some(&marker) {
            return Ok(Ok(proven));
        }
        // Notes that people wrote stay. The predecessor then uses the uuid alone, as its earlier releases did. A VM that is adopted
        // gets none, so that the predecessor does not take it for its own.
        let adopting = self.observed.child.adopting;
        let notes = (proven.annotation.is_empty() && !adopting).then(|| Notes::text(&marker.uid));
        let change = VmChange {
            mark: Some(Mark::Owned(marker.clone())),
            annotation: notes.clone(),
            ..VmChange::default()
        };
        let proof = Box::pin(self.case().read_or_fail(EffectKind::Reconfigure)).await?;
        if adopting && !ManagedVm::read(proof.child().clone()).adopting {
            return Ok(Err(StepOutcome::Pause(SOON)));
        }
        let sight = proof.look(session, &proven.moref).await?;
        // Somebody has changed it meanwhile: it is proven again.
        let Some(sight) = sight.filter(|sight| sight.shown == proven) else {
            return Ok(Err(StepOutcome::Pause(SOON)));
        };
        let permit = sight.permit()?;
        let done = self.configure(memory, session, &permit, &change);
        Ok(match done.await? {
            Some(TaskEnd::Success(_)) => Ok(VmObservation {
                marker: Some(marker),
                annotation: notes.unwrap_or_else(|| proven.annotation.clone()),
                ..proven
            }),
            // The outcome is unknown: the VM is proven again, with or without the mark.
            Some(TaskEnd::Vanished) => Err(StepOutcome::Same),
            None => Err(StepOutcome::Pause(SOON)),
        })
    }
}

fn note_unproven(memory: &mut Memory, proof: Proof, now: Duration) {
    match proof {
        Proof::Proven(_) => {}
        Proof::Absent => {
            memory.seen = ownership::absent_once_more(&memory.seen);
            memory.proof_at = Some(now);
        }
        Proof::None(what) => {
            memory.seen = Ownership::Foreign {
                what,
                met: FoundBy::Uuid,
                at: now,
            };
        }
    }
}

/// What the record says of a VM that is proven to be ours. One that was `adopted` keeps the source that forbids the predecessor to
/// delete it.
fn as_ours(vm: VmStatus, proven: &VmObservation, adopted: bool) -> VmStatus {
    if adopted {
        return VmStatus {
            name: proven.name.clone(),
            bios_uuid: proven.bios_uuid.map(|uuid| uuid.to_string()),
            source: Some(SOURCE_DISCOVERED_AGENT.to_owned()),
            vm_path: Some(proven.vm_path.clone()).filter(|p| !p.is_empty()),
            ..vm
        };
    }
    VmStatus {
        owner_uid: match Notes::read(&proven.annotation) {
            Notes::OfAgent(uid) => Some(uid),
            Notes::Empty | Notes::Other => None,
        },
        source: Some(SOURCE_VSPHERE_AGENT.to_owned()),
        vm_path: Some(proven.vm_path.clone()).filter(|p| !p.is_empty()),
        ..vm
    }
}

/// The place of a VM whose disks are there already.
fn without_space(request: PlaceRequest) -> PlaceRequest {
    PlaceRequest {
        bytes: 0,
        ..request
    }
}

/// The time left of the pause between two proofs of absence.
fn rest_of_proof(memory: &Memory, now: Duration) -> Option<Duration> {
    let at = memory
        .proof_at
        .filter(|_| matches!(memory.seen, Ownership::Absent { .. }))?;
    let left = PROOF_PAUSE.saturating_sub(now.saturating_sub(at));
    (!left.is_zero()).then_some(left)
}
