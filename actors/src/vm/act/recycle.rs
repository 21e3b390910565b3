//! What is done to the Agent of a VM that begins another life.

use agent_forge_crds::external::agent::{
    Agent, RESOURCE_CLASS_LABEL, SKIP_SPOKE_CLEANUP_ANNOTATION,
};

use super::executor::{Done, Executor, StepOutcome};
use crate::{
    domain::{
        failure::{Class, ReconcileError},
        names::ObjectKey,
        recycle,
    },
    guard,
    ports::{cluster::AgentPatch, effect::EffectKind},
    report::{Metric, Reports, tell},
    runtime::holds::home_of_hosted_cluster,
    vm::memory::Memory,
};

impl Executor<'_> {
    /// The Agent of the VM, live. A late watch may show what was before the VM was made ready.
    pub(super) async fn agent_before(&self) -> Result<Option<Agent>, ReconcileError> {
        let Some(agent) = self.observed.candidate() else {
            return Ok(None);
        };
        let key = ObjectKey::of(agent);
        Ok(self.context.cluster.live_agent(&key).await?)
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
        let control_plane = pool.control_plane();
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
        Ok(StepOutcome::Pause(super::last_look::SOON))
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

    /// Gives that Agent back what the operator took off for the time of the renewal: the label of OSAC, and the clean-up of its
    /// Node.
    pub(super) async fn give_back(&self, live: Option<&Agent>) -> Result<(), ReconcileError> {
        let Some(agent) = live else {
            return Ok(());
        };
        let class = self.vm().recycle.and_then(|way| way.resource_class);
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
