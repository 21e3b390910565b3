//! Finding the VM: by its reference, by uuid and marker, or, for a record of the predecessor, by proof.

use std::time::Duration;

use agent_forge_crds::pool::CredentialsSecretRef;

use super::{After, Done, Hand};
use crate::{
    effect::EffectKind,
    error::{Side, Trouble},
    model::names::MoRef,
    ports::vcenter::{Place, TaskEnd, VCenter, VmObservation},
    vm::{
        hardware,
        memory::Memory,
        place,
        seen::{self, Met, Proof, Seen},
        step::PROOF_PAUSE,
    },
};

impl Hand<'_> {
    pub(super) async fn lookup(&self, memory: &mut Memory) -> Done {
        let now = self.context.clock.monotonic();
        let vm = self.vm();
        if let Some(left) = rest_of_proof(memory, now) {
            return Ok(After::Pause(left));
        }
        let session = self.session().await?;
        if let Some(moref) = &vm.moref
            && let Some(shown) = session
                .observe(&MoRef::new("VirtualMachine", moref))
                .await?
            && let ours @ Seen::Ours(_) =
                seen::judge(vec![shown], &self.expected(), &Seen::NotAsked, now)
        {
            memory.seen = ours;
            return Ok(After::Same);
        }
        let place = self.place()?;
        if let Some(still) = self.holder(&memory.seen, session.as_ref(), &place).await? {
            memory.seen = seen::judge_holder(still, &self.expected(), now);
            return Ok(After::Same);
        }
        let found = session
            .find_by_uuid(Some(&place.datacenter), self.uuid()?)
            .await?;
        if found.is_empty() && !session.folder_visible(&place.folder).await? {
            memory.seen = Seen::NotAsked;
            return Err(Trouble::blocked(
                Side::Vsphere,
                "FolderNotVisible",
                format!(
                    "VM folder {:?} is not visible, so an empty answer proves nothing; check the user's permissions",
                    vm.placement.and_then(|p| p.folder).unwrap_or_default()
                ),
            ));
        }
        memory.seen = seen::judge(found, &self.expected(), &memory.seen, now);
        memory.proof_at = Some(now);
        Ok(After::Same)
    }

    /// Whoever had our name when ours was refused, where it still has it: no need to ask by another create. Of no interest
    /// to one that goes, which asks whether ours exists.
    async fn holder(
        &self,
        seen: &Seen,
        session: &dyn VCenter,
        place: &Place,
    ) -> Result<Option<VmObservation>, Trouble> {
        let child = &self.scene.child;
        let Seen::Foreign {
            met: Met::ByName(Some(moref)),
            ..
        } = seen
        else {
            return Ok(None);
        };
        if child.deleting || child.given_up {
            return Ok(None);
        }
        let shown = session.observe(moref).await?;
        Ok(shown.filter(|vm| seen::still_holds(vm, &child.vm_name, &place.folder)))
    }

    /// Proof for a record of the predecessor: exactly one VM with the recorded uuid, of that name, in the pool's folder.
    pub(super) async fn take_over(&self, memory: &mut Memory) -> Done {
        let now = self.context.clock.monotonic();
        if let Some(left) = rest_of_proof(memory, now) {
            return Ok(After::Pause(left));
        }
        let pool = self.pool()?;
        let session = self.session().await?;
        let secret = hardware::secret(pool, &self.context.settings.secret_namespaces)?;
        let request = hardware::place_request(pool)?;
        let effect = self.effect(EffectKind::CreateFolder);
        let placed = self
            .context
            .placer
            .place(session.clone(), effect, request.clone())
            .await?;
        // The record does not say in which datacenter, and the pool's spec may have been edited since.
        let found = session.find_by_uuid(None, self.uuid()?).await?;
        let marker = self.marker();
        let proven = match seen::prove(found, &self.scene.child.vm_name, &placed.folder, &marker) {
            Proof::Proven(vm) => *vm,
            Proof::Absent => {
                memory.seen = seen::absent_once_more(&memory.seen);
                memory.proof_at = Some(now);
                return Ok(After::Same);
            }
            Proof::None(what) => {
                memory.seen = Seen::Foreign {
                    what,
                    met: Met::ByUuid,
                    at: now,
                };
                return Ok(After::Same);
            }
        };
        if proven.marker.as_ref() != Some(&marker) {
            let kind = EffectKind::Reconfigure;
            let effect = self.effect(kind);
            let started = session.stamp_marker(&effect, &proven.moref, &marker);
            match self
                .change(memory, session.as_ref(), kind, started)
                .await??
            {
                TaskEnd::Success(_) => {}
                // Nobody knows how it ended: the VM is proven anew, with the mark or without.
                TaskEnd::Vanished => return Ok(After::Same),
            }
        }
        let mut record = self.scene.record();
        record.cluster_id = Some(self.context.view.cluster_id());
        let mut vm = self.vm();
        vm.placement = Some(place::record(&placed, &request));
        vm.server = Some(session.server().to_owned());
        vm.credentials_ref = Some(CredentialsSecretRef {
            name: secret.name,
            namespace: Some(secret.namespace),
        });
        vm.vm_path = Some(proven.vm_path.clone()).filter(|p| !p.is_empty());
        record.vm = Some(self.observed(vm, &proven, None));
        let next = self
            .save_record(EffectKind::RecordObservation, record, memory)
            .await?;
        memory.seen = Seen::Ours(Box::new(VmObservation {
            marker: Some(marker),
            ..proven
        }));
        Ok(After::Object(next))
    }
}

/// What is left of the pause between two proofs of absence.
fn rest_of_proof(memory: &Memory, now: Duration) -> Option<Duration> {
    let at = memory
        .proof_at
        .filter(|_| matches!(memory.seen, Seen::Absent { .. }))?;
    let left = PROOF_PAUSE.saturating_sub(now.saturating_sub(at));
    (!left.is_zero()).then_some(left)
}
