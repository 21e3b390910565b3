//! Releases a VM and its record: fence, live proof, deletion of the Agent, removal of the finalizer. Before that, a
//! live look finds an Agent that the cache does not show.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    agent::VsphereAgent,
    conditions::{Reason, event},
    external::{agent::Agent, agent_machine::AgentMachine},
    names::AGENT_FINALIZER,
};
use kube::ResourceExt;
use tracing::Instrument as _;

use super::executor::{Done, Executor, StepOutcome};
use crate::{
    demand::applied,
    domain::{
        failure::{ErrorSource, ReconcileError},
        identity::{AgentMatch, Misfit, agent_runs_on},
        machine_state::{MachineState, machine_state},
        managed_vm::ManagedVm,
        names::ObjectKey,
    },
    guard::{self, Proof},
    lifecycle::{self, End, Unneeded},
    ports::{cluster::OwnPatch, effect::EffectKind},
    report::{exports, tell},
    vm::{arrival, lost, memory::Memory, ownership::Ownership},
    world::agents_home,
};

pub(super) fn held(reason: Reason, message: String) -> ReconcileError {
    ReconcileError::transient(ErrorSource::Upstream, reason, message)
}

impl Executor<'_> {
    fn names_of_agent(&self) -> Vec<ObjectKey> {
        agents_home::names(self.observed.pool.as_deref(), &self.observed.child)
    }

    /// What the identity rule says about that Agent.
    fn says(&self, agent: &Agent) -> AgentMatch {
        let identity = self.observed.child.identity.as_ref();
        identity.map_or(AgentMatch::Other, |vm| agent_runs_on(agent, vm))
    }

    /// Live: the AgentMachine of the VM, if neither it nor its Machine is being deleted.
    pub(super) async fn living_agent_machine(
        &self,
    ) -> Result<Option<AgentMachine>, ReconcileError> {
        let (Some(namespace), Some(record), MachineState::Alive) = (
            self.observed.control_plane(),
            &self.observed.child.agent_machine,
            &self.observed.host.machine,
        ) else {
            return Ok(None);
        };
        let key = ObjectKey::new(namespace, &record.name);
        let live = self.context.cluster.live_agent_machine(&key).await?;
        Ok(live.filter(|am| !am.is_deleting()))
    }

    /// Live: whether the Machine of the VM exists.
    pub(super) async fn live_machine_state(&self) -> Result<MachineState, ReconcileError> {
        let child = &self.observed.child;
        let (Some(namespace), cluster) = (self.observed.control_plane(), &self.context.cluster)
        else {
            return Ok(self.observed.host.machine.clone());
        };
        let mut agent_machines = Vec::new();
        if let Some(record) = &child.agent_machine {
            let key = ObjectKey::new(namespace, &record.name);
            agent_machines.extend(cluster.live_agent_machine(&key).await?.map(Arc::new));
        }
        let machines = cluster.live_machines(namespace).await?;
        Ok(machine_state(child, namespace, &machines, &agent_machines))
    }

    pub(super) async fn fence(&self, memory: &mut Memory) -> Done {
        let Some(agent) = &self.observed.host.agent else {
            return Ok(StepOutcome::Same);
        };
        let mut vm = self.vm();
        let class = applied::class_of_people(agent);
        // It is put back when the host is back.
        if let Some(way) = vm.recycle.as_mut()
            && class.is_some_and(|class| way.resource_class.as_deref() != Some(class))
        {
            way.resource_class = class.map(str::to_owned);
            let kind = EffectKind::RecordObservation;
            return Ok(StepOutcome::Object(self.save(kind, vm, memory).await?));
        }
        if let Some(patch) = self.observed.fencing(self.context, agent) {
            let permit = guard::harmless(self.effect(EffectKind::FenceAgent), patch)?;
            self.context.cluster.patch_agent(&permit).await?;
        }
        // The watch brings the fenced Agent back.
        Ok(StepOutcome::Pause(Duration::from_secs(2)))
    }

    pub(super) async fn delete_agent(&self, why: &str) -> Done {
        let Some(agent) = &self.observed.host.agent else {
            return Ok(StepOutcome::Same);
        };
        let proof = Box::pin(self.case().read_or_fail(EffectKind::DeleteAgent)).await?;
        let live = self.live_namesakes().await?;
        let own = self.own_among(&live);
        if own.is_some_and(|own| own.uid() != agent.uid()) || own.is_none() && !live.is_empty() {
            let message = format!(
                "Agent {} is not alone in matching this VM; none of those is deleted",
                agent.name_any()
            );
            return Err(held(Reason::RivalAgents, message));
        }
        self.drop_agent(agent, why, &proof).await?;
        // The watch shows its deletionTimestamp, or its absence.
        Ok(StepOutcome::Pause(Duration::from_secs(2)))
    }

    async fn drop_agent(
        &self,
        agent: &Agent,
        why: &str,
        proof: &Proof,
    ) -> Result<(), ReconcileError> {
        let permit = proof.permit_at(agent)?;
        self.context.cluster.delete_agent(&permit).await?;
        let words = format!("Agent {} deleted: {why}", agent.name_any());
        self.event(false, event::AGENT_DELETED, "DeleteAgent", &words);
        Ok(())
    }

    /// Deletes an Agent of this VM that the cache does not show, before the VM's identity is removed from the record.
    /// `true`: there was one, and it was deleted.
    pub(super) async fn drop_unseen_agent(&self) -> Result<bool, ReconcileError> {
        let Some(agent) = self.unseen_agent().await? else {
            return Ok(false);
        };
        let proof = Box::pin(self.case().read_or_fail(EffectKind::DeleteAgent)).await?;
        self.drop_agent(&agent, "its VM is gone", &proof).await?;
        Ok(true)
    }

    /// Looks live for an Agent with one of the names that Agents of this VM have. An Agent that registered while its VM
    /// was removed may be missing in the cache, and nothing else would ever delete it. This costs two small reads in
    /// each namespace where it may be, however many Agents exist.
    async fn unseen_agent(&self) -> Result<Option<Agent>, ReconcileError> {
        let child = &self.observed.child;
        let unneeded = if child.given_up {
            Unneeded::GivenUp
        } else {
            Unneeded::RecordDeleted
        };
        let end = lifecycle::end(unneeded, self.observed.lifecycle());
        let keeps = child.adopted || end == End::LeaveToPeople;
        if keeps || child.identity.is_none() {
            return Ok(None);
        }
        let live = self.live_namesakes().await?;
        let own = self.own_among(&live).or_else(|| self.left_behind(&live));
        let own = own.filter(|a| !a.is_deleting());
        Ok(own.map(|a| a.as_ref().clone()))
    }

    /// An Agent that never reported its inventory is not proven to be the VM's own. Once the VM is proven absent, no
    /// other evidence will come. So the Agent counts as its own if nothing contradicts it and it is alone, silent and
    /// free. One for which the VM was given up need not be silent: it had all the time that a guest has. The same holds for
    /// an Agent whose VM was removed after its network card was replaced. Otherwise these Agents would be left behind.
    fn left_behind<'b>(&self, live: &'b [Arc<Agent>]) -> Option<&'b Arc<Agent>> {
        let child = &self.observed.child;
        let alone = self.observed.host.possible.len() <= 1 && live.len() == 1;
        let own = lost::candidate(child, live).filter(|_| alone);
        let status = child.object.status.as_ref();
        let failure = status.and_then(|s| s.last_failure.as_ref());
        let class = failure
            .filter(|_| child.given_up)
            .and_then(|f| f.class.as_deref());
        let gave_up = class == Some(arrival::NO_INVENTORY);
        let own = own.filter(|a| lost::is_abandoned(a) || gave_up && lost::has_no_inventory(a));
        own.or_else(|| live.iter().find(|a| self.is_on_record(a)))
    }

    /// The Agent was proven the VM's own before, and is free. Only a replaced network card speaks against it now.
    fn is_on_record(&self, agent: &Agent) -> bool {
        let child = &self.observed.child;
        let recorded = child.agent_uid.is_some() && child.agent_uid == agent.metadata.uid;
        let differs = self.says(agent) == AgentMatch::Partly(Misfit::Mac);
        recorded && differs && !agent.is_claimed_or_bound()
    }

    /// Live: the Agents with a name that an Agent of this VM has.
    async fn live_namesakes(&self) -> Result<Vec<Arc<Agent>>, ReconcileError> {
        let mut found = Vec::new();
        for key in self.names_of_agent() {
            found.extend(self.context.cluster.live_agent(&key).await?.map(Arc::new));
        }
        Ok(found)
    }

    /// The VM's own Agent among those that were read live. The other Agents in the cache are its rivals.
    fn own_among<'b>(&self, live: &'b [Arc<Agent>]) -> Option<&'b Arc<Agent>> {
        let is_read = |a: &Agent| live.iter().any(|l| l.uid() == a.uid());
        let shown = self
            .observed
            .host
            .possible
            .iter()
            .filter(|a| !is_read(a))
            .cloned();
        let all: Vec<Arc<Agent>> = live.iter().cloned().chain(shown).collect();
        let own = self.observed.child.lineup(&all).own?.uid();
        live.iter().find(|a| a.uid() == own)
    }

    /// Records that the VM is proven absent, before any span or Event says so. Returns the object as it is then.
    async fn record_end(&self, memory: &mut Memory) -> Result<Arc<VsphereAgent>, ReconcileError> {
        let child = &self.observed.child;
        let absent = matches!(memory.seen, Ownership::Absent { .. });
        let now = self.context.clock.wall();
        if !absent || !memory.told.note_end(child, now) {
            return Ok(child.object.clone());
        }
        let kind = EffectKind::RecordObservation;
        self.save_record(kind, self.observed.record(), memory).await
    }

    /// Takes the finalizer off and exports the end of the machine's trace, in a task of its own. The watch may report
    /// the deletion before the reply comes. That ends this actor and would abort the pass.
    pub(super) async fn remove_finalizer(&self, memory: &mut Memory) -> Done {
        if self.drop_unseen_agent().await? {
            return Ok(StepOutcome::Pause(Duration::from_secs(2)));
        }
        let object = self.record_end(memory).await?;
        let kind = EffectKind::RemoveChildFinalizer;
        let proof = Box::pin(self.case().read_or_fail(kind)).await?;
        let child = ManagedVm::read(object.clone());
        tell(self.context, exports::ending(&child));
        let finalizers = object
            .finalizers()
            .iter()
            .filter(|f| *f != AGENT_FINALIZER)
            .cloned()
            .collect();
        let patch = OwnPatch {
            finalizers: Some(finalizers),
            ..OwnPatch::default()
        };
        let permit = proof.permit_at(object.as_ref())?;
        let context = self.context.clone();
        // What the last passes noted and did not write any more.
        let noted = memory.told.milestones().to_vec();
        let last = async move {
            context.cluster.patch_child(&permit, &patch).await?;
            tell(
                &context,
                exports::gone(&child, &noted, context.clock.wall()),
            );
            Ok(StepOutcome::Gone)
        };
        match tokio::spawn(last.in_current_span()).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => Err(ReconcileError::transient(
                    ErrorSource::Kubernetes,
                    Reason::Stopping,
                    format!(
                        "the finalizer of {} stays for now: {error}",
                        self.observed.child.key
                    ),
                )),
            },
        }
    }
}
