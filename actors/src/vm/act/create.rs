//! The one create of an attempt: its task, what its failure means, and the next attempt.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    agent::VmStatus,
    conditions::{Policy, Reason},
};

use super::executor::{Done, Executor, StepOutcome, defect};
use crate::{
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        marker::MayServe,
        names::DatastorePath,
        network, template,
    },
    iso::of_pool::iso_path,
    migration::notes::Notes,
    placement::request,
    ports::{
        effect::EffectKind,
        vcenter::{CreateVm, Fault, TASK_PATIENCE, TaskEnd, TaskRef, VCenter, VcError},
    },
    vm::{
        memory::Memory,
        observed::Observed,
        ownership::{self, FoundBy, Ownership},
        refused::Refused,
        step::PROOF_PAUSE,
    },
};

impl Executor<'_> {
    pub(super) async fn create(&self, memory: &mut Memory) -> Done {
        let pool = self.pool()?;
        let session = self.session().await?;
        let child = &self.observed.child;
        let vm = self.vm();
        let Some(hardware) = template::recorded(&vm) else {
            return self.record_template(memory).await;
        };
        let path = vm
            .vm_path
            .as_deref()
            .and_then(|p| DatastorePath::parse(p).ok());
        let (uuid, place) = (self.uuid()?, self.place()?);
        let spec = CreateVm {
            name: child.vm_name.clone(),
            uuid,
            marker: self.marker(),
            may_serve: MayServe {
                life: 1,
                machine: child.offered_to().map(str::to_owned),
            },
            hardware,
            nics: network::nics(&place.network),
            place,
            vm_path: path.ok_or_else(|| defect("no configuration file path is recorded"))?,
            iso: iso_path(pool).ok_or_else(|| defect("the ISO went away"))?,
            annotation: Notes::text(&self.marker().uid),
        };
        let _running = self
            .context
            .in_flight(session.server(), EffectKind::CreateVm);
        memory.only_create = memory.create_not_sent;
        memory.create_not_sent = false;
        memory.create_refused = None;
        memory.seen = Ownership::NotAsked;
        let task = match session
            .create_vm(&self.effect(EffectKind::CreateVm), &spec)
            .await
        {
            Ok(task) => task,
            Err(e) => {
                self.operation("create", false);
                return self.create_failed(memory, &session, e).await;
            }
        };
        let mut recorded = vm;
        recorded.task_id = Some(task.0.clone());
        let saved = self.save(EffectKind::RecordTask, recorded, memory).await;
        // The task runs whether or not its id was recorded. The actor waits for its end first.
        let observed = match saved {
            Ok(object) => Observed::gather(self.context.view.as_ref(), object),
            Err(_) => Observed::gather(self.context.view.as_ref(), child.object.clone()),
        };
        Executor {
            context: self.context,
            observed: &observed,
            reached: self.reached.clone(),
        }
        .finish_task(memory, &task)
        .await
    }

    /// Records the hardware that the VM is made with, where the intent does not have it: an older release wrote it, or it was
    /// lost and restored.
    async fn record_template(&self, memory: &mut Memory) -> Done {
        let mut vm = self.vm();
        vm.template = Some(template::record(&request::hardware(self.pool()?)?));
        let next = self.save(EffectKind::RecordIdentity, vm, memory).await?;
        Ok(StepOutcome::Object(next))
    }

    /// A create that vCenter refused is not repeated for a while. Until then the actor asks for no slot.
    pub(super) fn may_create(&self, memory: &Memory) -> Result<(), ReconcileError> {
        let now = self.context.clock.monotonic();
        let refused = memory.create_refused.as_ref();
        match refused.filter(|r| {
            self.pool()
                .is_ok_and(|p| r.rests(p.metadata.generation, now))
        }) {
            Some(refused) => Err(refused.trouble.clone()),
            None => Ok(()),
        }
    }

    /// Waits for the end of a create. The create holds its slot as long as it runs, even if another pass or another
    /// process started it. A new process counts the creates that an earlier one left running.
    pub(super) async fn finish_task(&self, memory: &mut Memory, task: &TaskRef) -> Done {
        let session = self.session().await?;
        let count = || {
            let datastore = self.datastore().unwrap_or_default();
            Arc::new(session.slots().count(&datastore))
        };
        let slot = memory.running.take().or(memory.slot.take());
        let slot = slot.unwrap_or_else(count);
        let ended = match tokio::time::timeout(TASK_PATIENCE, session.wait(task)).await {
            Ok(ended) => ended,
            // Still running: its id is recorded, the next pass waits on.
            Err(_) => {
                memory.running = Some(slot);
                return Ok(StepOutcome::Pause(Duration::ZERO));
            }
        };
        let now = self.context.clock.monotonic();
        match ended {
            Ok(Ok(TaskEnd::Success(Some(moref)))) => {
                self.operation("create", true);
                memory.only_create = false;
                // The next tasks of this VM follow at once, and use it.
                slot.end_create();
                memory.slot = Some(slot);
                memory.looked_at = Some(now);
                match session.observe(&moref).await? {
                    Some(shown) => {
                        memory.seen =
                            ownership::judge(vec![shown], &self.expected(), &memory.seen, now)
                    }
                    None => memory.seen = Ownership::NotAsked,
                }
                if memory.seen == Ownership::NotAsked {
                    return self.forget_task(memory).await;
                }
                Ok(StepOutcome::Object(self.observed.child.object.clone()))
            }
            Ok(Ok(TaskEnd::Success(None) | TaskEnd::Vanished)) => self.forget_task(memory).await,
            // Even if its end cannot be observed, the task still runs.
            Err(e) => {
                memory.running = Some(slot);
                Err(e.into())
            }
            Ok(Err(e)) => {
                self.operation("create", false);
                self.forget_task(memory).await?;
                self.create_failed(memory, &session, e).await
            }
        }
    }

    pub(super) async fn forget_task(&self, memory: &mut Memory) -> Done {
        let mut vm = self.vm();
        vm.task_id = None;
        Ok(StepOutcome::Object(
            self.save(EffectKind::RecordTask, vm, memory).await?,
        ))
    }

    /// A create failed. Finds out why: a taken name, existing files, or another cause.
    pub(super) async fn create_failed(
        &self,
        memory: &mut Memory,
        session: &Arc<dyn VCenter>,
        e: VcError,
    ) -> Done {
        let now = self.context.clock.monotonic();
        let only_create = std::mem::take(&mut memory.only_create);
        match e.fault() {
            Some(Fault::DuplicateName { holder, .. }) => {
                let shown = match holder {
                    Some(moref) => session.observe(moref).await?,
                    None => None,
                };
                memory.seen = match shown {
                    Some(shown) => ownership::judge_holder(shown, &self.expected(), now),
                    None => Ownership::Foreign {
                        what: format!("another object named {}", self.observed.child.vm_name),
                        met: FoundBy::Name(holder.clone()),
                        at: now,
                    },
                };
                // This create made nothing. An earlier one whose outcome is unknown may still make a VM.
                memory.create_not_sent =
                    only_create && matches!(memory.seen, Ownership::Foreign { .. });
                Ok(StepOutcome::Same)
            }
            Some(Fault::AlreadyExists(_)) => {
                let found = session.find_by_uuid(self.uuid()?).await?;
                memory.seen = ownership::judge(found, &self.expected(), &Ownership::NotAsked, now);
                memory.proof_at = Some(now);
                // The files belong to a create of this attempt that failed, or that still runs. Only time shows which
                // (`step`).
                memory.path_taken = true;
                Ok(match memory.seen {
                    Ownership::Absent { .. } => StepOutcome::Pause(PROOF_PAUSE),
                    _ => StepOutcome::Same,
                })
            }
            _ => {
                let made_nothing = !e.outcome_unknown();
                let trouble = self.refused_field(e);
                // An earlier create whose outcome is unknown may still make a VM.
                memory.create_not_sent = made_nothing && only_create;
                if made_nothing && refuses_the_place(&trouble) {
                    memory.create_refused = Some(Refused {
                        at: now,
                        generation: self.pool()?.metadata.generation,
                        trouble: trouble.clone(),
                        placed_again: None,
                    });
                }
                Err(trouble)
            }
        }
    }

    /// The failure of a create. If vCenter names a property that comes from the spec, the failure names that field and
    /// its value.
    fn refused_field(&self, e: VcError) -> ReconcileError {
        if let Some(Fault::ManagedObjectNotFound(Some(gone))) = e.fault()
            && self.place().is_ok_and(|place| place.folder == *gone)
        {
            let message = format!(
                "VM folder {:?} was deleted in vCenter: the VM is placed again, and the folder made",
                self.folder_name()
            );
            return ReconcileError::transient(
                ErrorSource::Vsphere,
                Reason::VmFolderDeleted,
                message,
            );
        }
        let field = match (e.fault(), &self.observed.pool) {
            (Some(Fault::InvalidArgument { property }), Some(pool)) => {
                request::field_of(pool, property)
                    .map(|(field, value)| format!("{field}: {value:?}"))
            }
            _ => None,
        };
        let mut trouble = ReconcileError::from(e);
        if let Some(field) = field {
            trouble.message = format!("{field} is refused: {}", trouble.message);
        }
        trouble
    }

    /// Resolves the place again, to compare it with the recorded one. It only reads, but it creates a missing folder.
    pub(super) async fn place_again(&self, memory: &mut Memory) -> Done {
        let request = request::place_request(self.pool()?)?;
        let session = self.session().await?;
        let effect = self.effect(EffectKind::CreateFolder);
        let placed = self.context.placer.place(session, effect, request).await?;
        if let Some(refused) = &mut memory.create_refused {
            refused.placed_again = Some(placed);
        }
        Ok(StepOutcome::Same)
    }

    pub(super) async fn next_attempt(&self, memory: &mut Memory) -> Done {
        if self.drop_unseen_agent().await? {
            return Ok(StepOutcome::Pause(Duration::from_secs(2)));
        }
        let old = self.vm();
        let vm = VmStatus {
            name: old.name,
            attempt: old.attempt,
            machine_ref: old.machine_ref,
            phase: old.phase,
            last_transition_time: old.last_transition_time,
            ..VmStatus::default()
        };
        let next = self.save(EffectKind::RecordIdentity, vm, memory).await?;
        memory.forget_vm();
        Ok(StepOutcome::Object(next))
    }
}

/// Whether the refusal may be about the place: what was asked for, or what exists there. Failures of the session and of
/// the gate are not.
fn refuses_the_place(trouble: &ReconcileError) -> bool {
    matches!(trouble.class, Class::Blocked | Class::Transient)
        && !trouble.reason.has(Policy::NoMatterWhere)
}
