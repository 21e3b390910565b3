//! Gives a VM another life: the intent, the one change in vCenter, and what is recorded after it.

use agent_forge_crds::{
    agent::{RecycleStatus, VmStatus},
    conditions::event,
    external::agent::{Agent, RESOURCE_CLASS_LABEL, SKIP_SPOKE_CLEANUP_ANNOTATION},
    pool::ReleasedDisk,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::{Done, Executor, StepOutcome, defect, look::Looked};
use crate::{
    domain::{
        disk,
        failure::{Class, ReconcileError},
        names::ObjectKey,
        recycle::{self, Stage, Why},
        template,
        trace::TraceId,
    },
    guard,
    iso::{content, of_pool},
    placement::request,
    ports::{
        cluster::AgentPatch,
        effect::EffectKind,
        vcenter::{NewLife, PowerState, RenewedDisk, VmChange},
    },
    report::{Metric, Reports, tell},
    runtime::holds::home_of_hosted_cluster,
    vm::{memory::Memory, ownership::Ownership},
};

impl Executor<'_> {
    fn whole_second(&self) -> Option<Time> {
        let now = self.context.clock.wall();
        Timestamp::from_second(now.as_second()).ok().map(Time)
    }

    /// Records that the VM is to begin another life, before anything is done to it.
    pub(super) async fn record_recycle(&self, memory: &mut Memory) -> Done {
        let mut vm = self.vm();
        let (life, why) = match self.observed.child.recycling() {
            Stage::Asked(life) => (life, Why::MachineGone),
            Stage::No => (recycle::generation(&vm) + 1, Why::GuestDead),
            Stage::Recorded(_) | Stage::Begun => return Ok(StepOutcome::Same),
        };
        vm.lives = recycle::lives(
            &vm,
            self.host_name(),
            self.trace_of(&vm),
            self.whole_second(),
        );
        vm.recycle = Some(RecycleStatus {
            generation: i32::try_from(life).unwrap_or(i32::MAX),
            started_at: self.whole_second(),
            reason: Some(why.as_str().to_owned()),
            resource_class: self
                .observed
                .candidate()
                .and_then(|a| a.resource_class().map(str::to_owned)),
            ..RecycleStatus::default()
        });
        let kind = EffectKind::RecordObservation;
        Ok(StepOutcome::Object(self.save(kind, vm, memory).await?))
    }

    /// The name of the host, as its Agent has it.
    fn host_name(&self) -> Option<String> {
        let agent = self.observed.candidate()?;
        let own = || agent.inventory()?.hostname.clone();
        agent.spec.hostname.clone().or_else(own)
    }

    /// The trace of the machine that had the VM. The pool may have moved the VM into the buffer by now.
    fn trace_of(&self, vm: &VmStatus) -> TraceId {
        let served = vm.agent_machine_ref.as_ref().and_then(|r| r.uid.as_deref());
        served.map_or_else(|| self.observed.child.trace(), TraceId::of_machine)
    }

    /// Makes the VM ready for that life: one change that vCenter refuses if anybody has changed the VM since `looked`.
    pub(super) async fn renew(&self, memory: &mut Memory, life: u32, looked: Looked) -> Done {
        let Looked {
            session,
            pool,
            permit,
            ..
        } = looked;
        let pool = pool.ok_or_else(|| defect("the pool is gone"))?;
        let pool = pool.as_ref();
        let iso = of_pool::iso_path(pool).ok_or_else(|| defect("the pool has no ISO"))?;
        // The new disk is as the VM was made: its pool may want another one since.
        let hardware = match template::recorded(&self.vm()) {
            Some(recorded) => recorded,
            None => request::place_request(pool)?.hardware,
        };
        let keeps = pool.spec.release.as_ref().and_then(|r| r.disk) == Some(ReleasedDisk::Keep);
        let disk = if keeps {
            RenewedDisk::Kept
        } else {
            RenewedDisk::Replaced {
                gib: hardware.disk_gib,
                eagerly_scrub: hardware.eagerly_scrub,
            }
        };
        let change = VmChange {
            life: Some(NewLife {
                generation: life,
                iso,
                disk,
            }),
            ..VmChange::default()
        };
        let ended = self.configure(memory, session.as_ref(), &permit, &change);
        let ended = ended.await;
        let (name, done) = (permit.effect().kind.name(), matches!(ended, Ok(Some(_))));
        self.operation(name, done);
        // A look shows what it did.
        Ok(ended?.map_or(StepOutcome::Pause(super::look::SOON), |_| StepOutcome::Same))
    }

    /// The VM is ready: from now on nothing that was before says anything about its guest.
    pub(super) async fn begin_life(&self, memory: &mut Memory, life: u32) -> Done {
        let before = self.agent_before().await?;
        let mut record = self.observed.record();
        let mut vm = self.vm();
        vm.generation = i32::try_from(life).ok();
        vm.generation_since = self.whole_second();
        let Ownership::Ours(shown) = &memory.seen else {
            return Err(defect("the VM is not proven ours"));
        };
        // Somebody may have switched it on already. That is recorded with the deadline of its guest.
        let rests = shown.power != PowerState::On;
        vm.power_state = rests.then(|| shown.power.as_str().to_owned());
        let disk = recycle::new_disk(before.as_ref(), shown.hardware.disk_uuid.as_deref());
        vm.disk = disk::record(&self.vm(), life, shown.disk_now());
        vm.served = None;
        vm.may_serve = shown.may_serve.as_ref().map(ToString::to_string);
        vm.iso_ejected = None;
        vm.guest_may_be_node = None;
        vm.discovery_deadline = None;
        vm.agent_lost_since = None;
        vm.phase = None;
        vm.reason = None;
        vm.switched_on_again.clear();
        vm.boot_repair = None;
        vm.replace_ignored = self.observed.child.replace_annotation();
        let iso = self
            .observed
            .pool
            .as_ref()
            .and_then(|p| p.status.as_ref()?.iso.as_ref());
        vm.infra_env_ref = iso
            .and_then(|iso| iso.infra_env_ref.clone())
            .or(vm.infra_env_ref);
        vm.iso_created = iso.and_then(content::created);
        if let Some(way) = &mut vm.recycle {
            way.new_disk = disk;
            way.state_before = before
                .as_ref()
                .map(|a| a.state().to_owned())
                .filter(|s| !s.is_empty());
            way.report_before = before.and_then(|a| a.inventory_time());
        }
        record.vm = Some(vm);
        memory.forget_guest();
        let kind = EffectKind::RecordObservation;
        let next = self.save_as(kind, record, memory).await?;
        self.event(
            false,
            event::VM_RECYCLED,
            "RecycleVM",
            &format!("VM {} begins life {life}", self.observed.child.vm_name),
        );
        Ok(StepOutcome::Object(next))
    }

    /// The VM is in another life than the record says. What is asked for next is decided from that.
    pub(super) async fn record_life(&self, memory: &mut Memory, life: u32) -> Done {
        let Ownership::Ours(shown) = &memory.seen else {
            return Err(defect("the VM is not proven ours"));
        };
        let disk = shown.disk_now().filter(|_| shown.is_fresh_in(life));
        let mut record = self.observed.record();
        record.vm = Some(recycle::in_life(
            &self.vm(),
            life,
            disk,
            self.observed.child.replace_annotation(),
            self.whole_second(),
        ));
        let kind = EffectKind::RecordObservation;
        let next = self.save_as(kind, record, memory).await?;
        Ok(StepOutcome::Object(next))
    }

    /// The Agent of the VM, live. A late watch may show what was before the VM was made ready.
    async fn agent_before(&self) -> Result<Option<Agent>, ReconcileError> {
        let Some(agent) = self.observed.candidate() else {
            return Ok(None);
        };
        let key = ObjectKey::of(agent);
        Ok(self.context.cluster.live_agent(&key).await?)
    }

    /// The guest has started anew. Its Agent may show the same state afterwards as before.
    pub(super) async fn record_restart(&self, memory: &mut Memory) -> Done {
        let (mut vm, live) = (self.vm(), self.agent_before().await?);
        let way = vm.recycle.as_mut().zip(live);
        let Some((way, _)) = way.filter(|(way, agent)| recycle::has_restarted(way, agent)) else {
            return Ok(StepOutcome::Pause(super::look::SOON));
        };
        way.restarted = Some(true);
        let kind = EffectKind::RecordObservation;
        Ok(StepOutcome::Object(self.save(kind, vm, memory).await?))
    }

    /// The service cannot take the Node of the host out of its hosted cluster. If that is proven gone by a live list, and the
    /// Agent is still so, the service is told not to.
    pub(super) async fn skip_cleanup(&self, memory: &mut Memory) -> Done {
        let (pool, cluster) = (self.pool()?, &self.context.cluster);
        let gone = match home_of_hosted_cluster(pool) {
            Some(home) => {
                let key = ObjectKey::new(&home, &pool.spec.hosted_cluster_ref.name);
                let found = cluster.live_hosted_cluster(&key).await;
                // Only an API server that is away for a moment is asked again soon.
                let answered = found
                    .as_ref()
                    .err()
                    .is_none_or(|e| e.class() != Class::Transient);
                memory.cluster_seen = answered.then(|| self.context.clock.monotonic());
                !found?
            }
            None => false,
        };
        let control_plane = &pool.spec.control_plane_namespace;
        let (vm, now) = (self.vm(), self.context.clock.wall());
        let hangs = |a: &Agent| recycle::cleanup_hangs(&vm, a, control_plane, now);
        let live = self.agent_before().await?.filter(hangs);
        let Some(agent) = live.filter(|_| gone) else {
            memory.cluster_seen = Some(self.context.clock.monotonic());
            return Ok(StepOutcome::Same);
        };
        // It is gone for good. A write that fails is repeated soon.
        memory.cluster_seen = None;
        self.mark_cleanup(&agent).await?;
        // The service goes on, and the watch shows it.
        Ok(StepOutcome::Pause(super::look::SOON))
    }

    /// Writes that annotation.
    async fn mark_cleanup(&self, agent: &Agent) -> Result<(), ReconcileError> {
        let mut patch = AgentPatch::of(agent);
        let key = SKIP_SPOKE_CLEANUP_ANNOTATION.to_owned();
        let value = Some(recycle::SKIPPED.to_owned());
        patch.annotations.insert(key, value);
        let effect = self.effect(EffectKind::SkipCleanup);
        let permit = guard::harmless(effect, patch)?;
        Ok(self.context.cluster.patch_agent(&permit).await?)
    }

    /// The Agent is back: the host is as any other that waits. Its next Node is taken out of its cluster again. Or somebody has
    /// claimed the Agent: the host serves from now on, in the life that its VM has.
    pub(super) async fn record_back(&self, memory: &mut Memory) -> Done {
        let mut vm = self.vm();
        let live = self.agent_before().await?;
        let is_over = |a: &Agent| a.is_claimed_or_bound() || recycle::is_back(&vm, a);
        let Some(agent) = live.filter(is_over) else {
            return Ok(StepOutcome::Pause(super::look::SOON));
        };
        let class = vm.recycle.as_ref().and_then(|w| w.resource_class.clone());
        self.give_back(&agent, class).await?;
        let claimed = agent.is_claimed_or_bound();
        if matches!(self.observed.child.recycling(), Stage::Recorded(_)) {
            // Its life is not over.
            let life = i64::from(recycle::generation(&vm));
            vm.lives.retain(|past| i64::from(past.generation) < life);
        }
        vm.recycle = None;
        let kind = EffectKind::RecordObservation;
        let next = self.save(kind, vm, memory).await?;
        self.count_recycle(if claimed { "claimed" } else { "back" });
        if claimed {
            let words = format!(
                "Agent {} was claimed while its VM was on its way into another life: the VM runs, and serves as it is",
                agent.name_any()
            );
            self.event(true, event::HOST_TROUBLE, "RecycleVM", &words);
        }
        Ok(StepOutcome::Object(next))
    }

    /// Gives that Agent back what the operator took off for the time of the renewal: the label of OSAC, and the clean-up of its
    /// Node.
    async fn give_back(&self, agent: &Agent, class: Option<String>) -> Result<(), ReconcileError> {
        let mut patch = AgentPatch::of(agent);
        if recycle::skips_cleanup(agent) == Some(recycle::SKIPPED) {
            let key = SKIP_SPOKE_CLEANUP_ANNOTATION.to_owned();
            patch.annotations.insert(key, None);
        }
        if let Some(class) = class.filter(|_| agent.resource_class().is_none()) {
            let key = RESOURCE_CLASS_LABEL.to_owned();
            patch.labels.insert(key, Some(class));
        }
        if patch == AgentPatch::of(agent) {
            return Ok(());
        }
        let effect = self.effect(EffectKind::SkipCleanup);
        let permit = guard::harmless(effect, patch)?;
        Ok(self.context.cluster.patch_agent(&permit).await?)
    }

    /// Counts the end of the VM's way into another life.
    pub(super) fn count_recycle(&self, result: &'static str) {
        let vm = self.vm();
        let since = vm.recycle.and_then(|way| way.started_at);
        let took = since.map_or(0.0, |t| {
            self.context.clock.wall().duration_since(t.0).as_secs_f64()
        });
        tell(
            self.context,
            Reports::metric(Metric::Recycled(result, took.max(0.0))),
        );
    }
}
