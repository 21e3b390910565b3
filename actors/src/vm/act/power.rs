//! What is done to a VM that is proven ours: boot order, power, destruction and tags. Also records what vCenter shows.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    agent::VsphereAgent,
    conditions::{Reason, event},
};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    executor::{Done, Executor, StepOutcome, defect},
    last_look::Looked,
    task::ended,
};
use crate::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        names::MoRef,
        seconds,
    },
    ports::{
        effect::EffectKind,
        vcenter::{Fault, PowerState, TaskEnd, VCenter, VmObservation},
    },
    vm::{
        memory::{Memory, Tagged},
        observed::Observed,
        ownership::{self, Ownership},
        power_policy,
    },
};

/// Rest between two tries to switch a suspended VM off.
const SUSPENDED_PAUSE: Duration = Duration::from_secs(10);

impl Executor<'_> {
    pub(super) fn shown(&self, memory: &Memory) -> Result<VmObservation, ReconcileError> {
        match &memory.seen {
            Ownership::Ours(vm) => Ok(vm.as_ref().clone()),
            _ => Err(defect("the VM is not proven ours")),
        }
    }

    /// The recorded reference of the VM.
    pub(super) fn reference(&self) -> Result<MoRef, ReconcileError> {
        let moref = self.vm().moref;
        let moref = moref.ok_or_else(|| defect("no reference is recorded"))?;
        Ok(MoRef::new("VirtualMachine", moref))
    }

    /// That VM as it is now, if it is ours. After a vCenter was restored from a backup, a reference may lead to another VM.
    pub(super) async fn still_ours(
        &self,
        session: &dyn VCenter,
        vm: &MoRef,
    ) -> Result<Option<VmObservation>, ReconcileError> {
        let found = session.observe(vm).await?.into_iter().collect();
        let now = self.context.clock.monotonic();
        let seen = ownership::judge(found, &self.expected(), &Ownership::NotAsked, now);
        Ok(match seen {
            Ownership::Ours(shown) => Some(*shown),
            _ => None,
        })
    }

    /// Power on, power off, destroy: one task each, on the VM that is proven ours.
    pub(super) async fn power(&self, memory: &mut Memory, looked: Looked) -> Done {
        let Looked {
            session,
            mut shown,
            permit,
            ..
        } = looked;
        let kind = permit.effect().kind;
        if kind == EffectKind::PowerOn {
            memory.switched_on_at = memory.switched_on_at.or_else(|| self.now_at_least(memory));
        }
        let started = match kind {
            EffectKind::PowerOn => session.power_on(&permit),
            EffectKind::PowerOff => session.power_off(&permit),
            _ => session.destroy(&permit),
        };
        let started = ended(session.as_ref(), started);
        // Also if no reply comes. A look shows whether it is off.
        memory.switched_off |= kind == EffectKind::PowerOff;
        let ended = self.change(memory, session.as_ref(), kind, started).await;
        self.operation(kind.name(), matches!(ended, Ok(Ok(_))));
        match ended? {
            Ok(TaskEnd::Success(_)) => {}
            Ok(TaskEnd::Vanished) => return Ok(StepOutcome::Same),
            Err(e) => match e.fault() {
                // The request failed, so the VM has not run yet.
                Some(fault) if kind == EffectKind::PowerOn && !is_on_already(fault) => {
                    memory.switched_on_at = None;
                    return Err(e.into());
                }
                // The VM is looked at before anything else. A suspended VM is given some time, but not unlimited tries.
                Some(Fault::InvalidPowerState { .. }) => {
                    memory.seen = Ownership::NotAsked;
                    if kind == EffectKind::PowerOff && shown.power == PowerState::Suspended {
                        memory.suspended = memory.suspended.saturating_add(1);
                        return Ok(StepOutcome::Pause(SUSPENDED_PAUSE));
                    }
                    return Ok(StepOutcome::Same);
                }
                Some(Fault::ManagedObjectNotFound(_)) if kind == EffectKind::Destroy => {}
                _ => return Err(e.into()),
            },
        }
        memory.seen = match kind {
            EffectKind::Destroy => Ownership::Absent { proofs: 1 },
            EffectKind::PowerOn => {
                memory.powered_on = true;
                memory.off_seen = None;
                shown.power = PowerState::On;
                Ownership::Ours(Box::new(shown))
            }
            _ => {
                memory.suspended = 0;
                shown.power = PowerState::Off;
                Ownership::Ours(Box::new(shown))
            }
        };
        Ok(StepOutcome::Same)
    }

    /// Switches a VM on that has served. That is recorded before, so that the limit also holds after a crash. If vCenter refuses
    /// it, the VM was not switched on, and that is recorded too.
    pub(super) async fn power_on_again(&self, memory: &mut Memory, seen: Looked) -> Done {
        let (mut vm, now) = (self.vm(), self.context.clock.wall());
        let second = seconds::whole(now);
        vm.switched_on_again = power_policy::recent(&vm.switched_on_again, now);
        vm.switched_on_again.push(Time(second));
        let recorded = self.save(EffectKind::RecordObservation, vm, memory).await?;
        // Its guest is none that this actor started for the first time.
        let before = memory.powered_on;
        let done = self.power(memory, seen).await;
        memory.powered_on = before;
        if memory.call_refused {
            let recorded = self.take_back(&recorded, second, memory).await?;
            return done.map(|_| StepOutcome::Object(recorded));
        }
        let runs = matches!(&memory.seen, Ownership::Ours(vm) if vm.power == PowerState::On);
        if done.is_ok() && runs {
            let words = "somebody had switched the VM off, and spec.power of the pool is EnsureOn";
            self.event(true, event::VM_SWITCHED_ON, "PowerOnVM", words);
        }
        Ok(match done? {
            StepOutcome::Same => StepOutcome::Object(recorded),
            other => other,
        })
    }

    /// Takes the power-on of that second off the record: it does not count for the limit.
    async fn take_back(
        &self,
        recorded: &Arc<VsphereAgent>,
        second: jiff::Timestamp,
        memory: &mut Memory,
    ) -> Result<Arc<VsphereAgent>, ReconcileError> {
        let observed = Observed::gather(self.context.view.as_ref(), recorded.clone());
        let executor = Executor {
            context: self.context,
            observed: &observed,
            reached: self.reached.clone(),
        };
        let mut vm = executor.vm();
        let all = &mut vm.switched_on_again;
        if let Some(place) = all.iter().rposition(|at| at.0 == second) {
            all.remove(place);
        }
        executor
            .save(EffectKind::RecordObservation, vm, memory)
            .await
    }

    /// Now, by the API server's clock, which also stamps the Agents. The VsphereAgent has its creation time from that
    /// clock, and this actor has counted since it knows the object. The result is never later than the true time,
    /// whatever the local clock shows.
    fn now_at_least(&self, memory: &Memory) -> Option<jiff::Timestamp> {
        let created = &self.observed.child.object.metadata.creation_timestamp;
        let known = memory.known_since?;
        let gone_by = self.context.clock.monotonic().saturating_sub(known);
        let gone_by = SignedDuration::try_from(gone_by).ok()?;
        created.as_ref()?.0.checked_add(gone_by).ok()
    }

    /// Attaches the tags. If that fails for a VM that does not run yet, it is switched on without them, but only after
    /// the record says so.
    pub(super) async fn attach_tags(&self, memory: &mut Memory) -> Done {
        let pool = self.pool()?;
        let (vm, runs) = match &memory.seen {
            Ownership::Ours(shown) => (shown.moref.clone(), shown.power == PowerState::On),
            _ => (self.reference()?, true),
        };
        let failed = |t: ReconcileError| ReconcileError {
            side: ErrorSource::Vsphere,
            reason: Reason::TaggingFailed,
            message: format!("spec.vsphere.vmTags: {t}; the VM stays, tagging is tried again"),
            class: t.class,
        };
        let missed = std::mem::take(&mut memory.missed);
        let session = match self.session().await {
            Ok(session) => session,
            // Without a session the VM cannot be switched on either.
            Err(t) if !runs => return Err(t),
            Err(t) => return Err(failed(t)),
        };
        match self.still_ours(session.as_ref(), &vm).await {
            Ok(Some(_)) => {}
            // After a vCenter was restored from a backup, the VM may be missing or have another reference: the next
            // step looks for it.
            Ok(None) => {
                memory.missed = true;
                memory.seen = Ownership::NotAsked;
                if !missed {
                    return Ok(StepOutcome::Same);
                }
                let message = format!("{} is not this VM any more", vm.id);
                return Err(failed(ReconcileError::transient(
                    ErrorSource::Vsphere,
                    Reason::VmMissing,
                    message,
                )));
            }
            Err(t) if !runs => return Err(t),
            Err(t) => return Err(failed(t)),
        }
        let tags = pool.spec.vsphere.vm_tags();
        let effect = self.effect(EffectKind::AttachTags);
        let attached = session.attach_tags(&effect, &vm, tags).await;
        let Err(e) = attached else {
            memory.tagged = Some(Tagged {
                moref: vm.id,
                tags: tags.to_vec(),
            });
            return Ok(StepOutcome::Same);
        };
        let trouble = failed(e.into());
        let mut record = self.vm();
        // The status that names the failure records this in the same write.
        if runs || record.tags_missing == Some(true) {
            return Err(trouble);
        }
        record.tags_missing = Some(true);
        let kind = EffectKind::RecordObservation;
        let next = self.save(kind, record, memory).await?;
        tracing::warn!(object = %self.observed.child.key, reason = %trouble.reason, "{trouble}");
        Ok(StepOutcome::Object(next))
    }
}

/// vCenter says that it runs.
fn is_on_already(fault: &Fault) -> bool {
    matches!(fault, Fault::InvalidPowerState { .. })
}
