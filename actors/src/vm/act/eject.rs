//! Empties the CD-ROM drive of an installed host, or of one that booted the ISO instead of its disk.

use agent_forge_crds::{
    Time,
    conditions::{self, ConditionStatus, ConditionUpdate, Reason, set_condition},
    external::agent::Agent,
};

use super::{
    executor::{Done, Executor, StepOutcome, defect},
    last_look::SOON,
};
use crate::{
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        names::ObjectKey,
        seconds,
    },
    guard::Sight,
    migration::ejection,
    ports::{
        effect::EffectKind,
        vcenter::{Fault, TASK_PATIENCE, VCenter, VmChange, VmObservation},
    },
    vm::{boot_repair, drive, memory::Memory, ownership::Ownership, refused::Busy},
};

impl Executor<'_> {
    /// Takes the ISO out, after a live check of the Agent. During the installation the guest still reads from the ISO,
    /// unless it booted that instead of its disk.
    pub(super) async fn eject(&self, memory: &mut Memory) -> Done {
        let shown = self.shown(memory)?;
        let agent = self.observed.host.agent.as_ref();
        let key = agent.map(|a| ObjectKey::of(a.as_ref()));
        let key = key.ok_or_else(|| defect("no Agent runs on the VM"))?;
        let session = self.session().await?;
        let child = &self.observed.child;
        let may_go = |a: &Agent| a.is_installed() || boot_repair::is_needed(child, a);
        let proof = Box::pin(self.case().read_or_fail(EffectKind::EjectIso)).await?;
        let live = proof.agent(&key).await?;
        if !live.as_ref().is_some_and(may_go) {
            let message =
                format!("Agent {key} is not installed any more; its CD-ROM drive is left as it is");
            return Err(ReconcileError::transient(
                ErrorSource::Upstream,
                Reason::AgentNotInstalled,
                message,
            ));
        }
        let sight = self.look_at(memory, &proof, session.as_ref(), &shown.moref);
        let Some(sight) = sight.await? else {
            return Ok(StepOutcome::Same);
        };
        let isos = drive::isos_of(self.pool()?, &sight.shown.cdroms);
        if !self.empty(memory, &sight, session.as_ref(), &isos).await? {
            return Ok(StepOutcome::Pause(SOON));
        }
        let mut vm = self.vm();
        vm.iso_ejected = Some(true);
        Ok(StepOutcome::Object(
            self.save(EffectKind::RecordObservation, vm, memory).await?,
        ))
    }

    /// Finishes an ejection that the predecessor began, according to its record. Only the recorded ISO is removed, and
    /// only from the recorded drive. A disc that a person has inserted since then stays.
    pub(super) async fn finish_ejection(&self, memory: &mut Memory) -> Done {
        let shown = self.shown(memory)?;
        let mut record = self.observed.record();
        let begun = record.iso_ejection.take();
        let begun = begun.ok_or_else(|| defect("no ejection is on record"))?;
        let session = self.session().await?;
        let proof = Box::pin(self.case().read_or_fail(EffectKind::EjectIso)).await?;
        let sight = self.look_at(memory, &proof, session.as_ref(), &shown.moref);
        let Some(sight) = sight.await? else {
            return Ok(StepOutcome::Same);
        };
        let isos = ejection::begun(&begun, self.uuid()?, &sight.shown.cdroms);
        if !self.empty(memory, &sight, session.as_ref(), &isos).await? {
            return Ok(StepOutcome::Pause(SOON));
        }
        let now = self.context.clock.wall();
        let time = Time(seconds::whole(now));
        let update = ConditionUpdate {
            type_: conditions::ISO_EJECTED,
            status: ConditionStatus::True,
            reason: &Reason::Ejected,
            message: "the ejection that the predecessor began is finished",
            observed_generation: self.observed.child.object.metadata.generation,
        };
        set_condition(&mut record.conditions, &update, &time);
        let mut vm = self.vm();
        // The predecessor starts no ejection before the Agent is installed.
        vm.iso_ejected = Some(true);
        record.vm = Some(vm);
        let kind = EffectKind::RecordObservation;
        Ok(StepOutcome::Object(
            self.save_record(kind, record, memory).await?,
        ))
    }

    /// Takes these ISOs out of the VM's drives. `false`: somebody has changed the VM since `shown`, and it is looked at again.
    async fn empty(
        &self,
        memory: &mut Memory,
        sight: &Sight<'_>,
        session: &dyn VCenter,
        isos: &[String],
    ) -> Result<bool, ReconcileError> {
        let shown = &sight.shown;
        // Somebody was faster, or an earlier task of ours.
        if isos.is_empty() {
            note_empty(memory, shown, isos);
            return Ok(true);
        }
        let permit = sight.permit()?;
        let change = VmChange {
            eject: isos.to_vec(),
            ..VmChange::default()
        };
        let work = async {
            let ended = session.configure(&permit, &change).await?;
            ended.await
        };
        // The ejection holds one of vCenter's task slots. If the task takes too long, the next try finds it again.
        let (ended, busy) = match tokio::time::timeout(TASK_PATIENCE, work).await {
            Ok(Err(e)) if memory.note_outrun(&e) => return Ok(false),
            Ok(Err(e)) => {
                let busy = matches!(e.fault(), Some(Fault::TaskInProgress));
                let class = match e.class() {
                    // Too often by now: people learn of it.
                    Class::Conflict => Class::Transient,
                    class => class,
                };
                (Err((e.to_string(), class)), busy)
            }
            Ok(Ok(_)) => (Ok(()), false),
            Err(_) => {
                let why = format!(
                    "the CD-ROM drive was not empty within {} s; it is looked at again",
                    TASK_PATIENCE.as_secs()
                );
                (Err((why, Class::Transient)), true)
            }
        };
        self.operation("eject", ended.is_ok());
        let ended = ended.map_err(refused);
        // No other step waits for the ejection, so it rests after the first refusal.
        memory.busy = ended.as_ref().err().filter(|_| busy).map(|t| {
            let now = self.context.clock.monotonic();
            Busy::for_long(
                EffectKind::EjectIso,
                Reason::EjectFailed,
                t.message.clone(),
                now,
            )
        });
        ended?;
        note_empty(memory, shown, isos);
        Ok(true)
    }
}

fn refused((why, class): (String, Class)) -> ReconcileError {
    ReconcileError {
        side: ErrorSource::Vsphere,
        reason: Reason::EjectFailed,
        message: format!(
            "the discovery ISO could not be taken out of its drive: {why}; the host keeps it"
        ),
        class,
    }
}

/// The drives of the VM, which was `shown` before, have none of these ISOs any more.
fn note_empty(memory: &mut Memory, shown: &VmObservation, isos: &[String]) {
    let mut shown = shown.clone();
    for drive in &mut shown.cdroms {
        drive.iso.take_if(|iso| isos.contains(iso));
    }
    (memory.busy, memory.outrun) = (None, 0);
    memory.seen = Ownership::Ours(Box::new(shown));
    // Its changeVersion is another one by now: the next change is preceded by a look.
    memory.looked_at = None;
}
