//! Gives up a VM whose Agent no Machine can have. First a live proof, then the record, which is final.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    conditions::{Reason, event},
    external::agent::Agent,
};

use super::{
    executor::{Done, Executor, StepOutcome},
    release::held,
};
use crate::{
    domain::{
        failure::ReconcileError,
        identity::agent_runs_on,
        names::ObjectKey,
        recycle::{self, Stage},
    },
    guard::serves,
    ports::effect::EffectKind,
    vm::{
        arrival::{self, Arrival, Cause},
        lost::{self, Lost, is_abandoned},
        memory::Memory,
    },
    world::agents_home,
};

impl Executor<'_> {
    /// The VM began another life, and that Agent shows only what was before.
    fn is_not_back(&self, agent: &Agent) -> bool {
        let child = &self.observed.child;
        let vm = child.vm().filter(|_| child.recycling() == Stage::Begun);
        vm.is_some_and(|vm| !recycle::is_back(vm, agent))
            && !agent.is_claimed_or_bound()
            && !agent.is_deleting()
    }

    /// Reads live the Agents that run on this VM, or may, in all namespaces where Agents of its pool are.
    pub(super) async fn live_agents_of_vm(&self) -> Result<Vec<Arc<Agent>>, ReconcileError> {
        let child = &self.observed.child;
        let Some(identity) = &child.identity else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for namespace in agents_home::namespaces(self.observed.pool.as_deref(), [child]) {
            let identity = identity.clone();
            let may_run_there = move |a: &Agent| agent_runs_on(a, &identity).may_run_there();
            let cluster = &self.context.cluster;
            let agents = cluster.live_agents(&namespace, Arc::new(may_run_there));
            found.extend(agents.await?.into_iter().map(Arc::new));
        }
        Ok(found)
    }

    pub(super) async fn give_up(&self, memory: &mut Memory) -> Done {
        let shown = self.shown(memory)?;
        let Arrival::Overdue { cause, allowed, .. } = self.observed.arrival(self.context, memory)
        else {
            return Ok(StepOutcome::Same);
        };
        let agent_machine = self.living_agent_machine().await?;
        for agent in self.live_agents_of_vm().await? {
            if serves(&agent, agent_machine.as_ref()) {
                return Err(held(
                    Reason::ReplaceRefused,
                    format!(
                        "Agent {} serves a Machine by now: its VM is not replaced",
                        ObjectKey::of(agent.as_ref())
                    ),
                ));
            }
            let is_shown = |shown: &Arc<Agent>| shown.metadata.uid == agent.metadata.uid;
            let now = self.context.clock.steady();
            let useless = match cause {
                Cause::TemplateChanged => lost::failing(&agent, now).is_ok(),
                Cause::Lost(Lost::Insufficient) => lost::is_insufficient(&agent, now),
                Cause::NoInventory => lost::has_no_inventory(&agent) || is_abandoned(&agent),
                _ => is_abandoned(&agent) || self.is_not_back(&agent),
            };
            let useless = useless && self.observed.host.possible.iter().any(is_shown);
            if !allowed && !useless {
                // The Agent registered after all, answers again, or is valid by now. The watch will show it.
                memory.agent_seen = true;
                return Ok(StepOutcome::Pause(Duration::from_secs(2)));
            }
        }
        let mut record = self.observed.record();
        let vm = self.vm();
        let now = self.context.clock.wall();
        let failure = arrival::failure(&vm, cause, record.last_failure.as_ref(), &shown, now);
        let words = format!(
            "VM {} (attempt {}) is given up: {} ({}); it is replaced",
            vm.name,
            self.attempt(),
            cause.explain(),
            failure.class.as_deref().unwrap_or_default()
        );
        record.last_failure = Some(failure);
        let next = self
            .save_record(EffectKind::RecordObservation, record, memory)
            .await?;
        tracing::warn!(object = %self.observed.child.key, "{words} (trace {})", self.observed.child.trace());
        // A VM that is replaced for its template did not fail: no alert counts it.
        let operation = match cause {
            Cause::TemplateChanged => "replace",
            Cause::NotRegistered | Cause::NoInventory | Cause::Lost(_) | Cause::Asked => "give_up",
        };
        self.operation(operation, true);
        if self.observed.child.recycling() == Stage::Begun {
            self.count_recycle("given_up");
        }
        self.event(true, event::VM_GIVEN_UP, "ReplaceVM", &words);
        Ok(StepOutcome::Object(next))
    }
}
