//! The Machine controller: one Machine from creation to `Running`, and from its deletionTimestamp to its end.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    super::{
        desk::Player,
        mirror::Object,
        object::{Facts as _, merge_is_idle},
        provider::PAUSED,
    },
    Pool, SETS, objects,
    status::{self, Stage},
};

/// Prefix of the annotations that delay a Machine's termination.
const HOOK_PREFIX: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/";

pub struct Controller {
    pool: Arc<Pool>,
    /// When a Machine began a step that takes time, by UID and step.
    since: Mutex<BTreeMap<(String, &'static str), Instant>>,
}

impl Controller {
    pub fn new(pool: Arc<Pool>) -> Self {
        Self {
            pool,
            since: Mutex::default(),
        }
    }

    /// The remaining time of a step that takes `long`, counted from the first call; `None` if it is over.
    fn left(&self, machine: &Object, step: &'static str, long: Duration) -> Option<Duration> {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = *since
            .entry((machine.uid().to_owned(), step))
            .or_insert_with(Instant::now);
        let left = long.saturating_sub(begun.elapsed());
        (!left.is_zero()).then_some(left)
    }
}

impl Player for Controller {
    async fn pass(&self, key: &str) -> Result<Option<Duration>> {
        if key == SETS {
            self.pool.sync_sets().await?;
            return Ok(None);
        }
        let Some(machine) = self
            .pool
            .machines
            .get(key)
            .filter(|machine| self.pool.owns(machine) && machine.annotation(PAUSED).is_none())
        else {
            return Ok(None);
        };
        if machine.is_deleting() {
            self.end(machine).await
        } else {
            self.advance(machine).await
        }
    }
}

impl Controller {
    async fn advance(&self, machine: Object) -> Result<Option<Duration>> {
        let delays = &self.pool.options.delays;
        let Some(agent_machine) = self.pool.agent_machines.get(machine.name()) else {
            return Ok(None);
        };
        if let Some(left) = self.left(&machine, "owner", delays.owner_swap) {
            return Ok(Some(left));
        }
        if !is_owner(&machine, &agent_machine) {
            let owners = json!([objects::owner(&machine, true)]);
            self.pool
                .agent_machines
                .patch(
                    &agent_machine,
                    json!({"metadata": {"ownerReferences": owners}}),
                )
                .await?;
            return Ok(None);
        }
        if !agent_machine.flag("/status/ready") {
            self.write(&machine, &agent_machine, Stage::Pending).await?;
            return Ok(None);
        }
        let provider_id = agent_machine.text("/spec/providerID");
        let machine = if machine.text("/spec/providerID") == provider_id {
            machine
        } else {
            self.pool
                .machines
                .patch(&machine, json!({"spec": {"providerID": provider_id}}))
                .await?
        };
        if let Some(left) = self.left(&machine, "node", delays.node_ready) {
            self.write(&machine, &agent_machine, Stage::Provisioned)
                .await?;
            return Ok(Some(left));
        }
        self.write(&machine, &agent_machine, Stage::Running).await?;
        Ok(None)
    }

    async fn end(&self, machine: Object) -> Result<Option<Duration>> {
        let agent_machine = self.pool.agent_machines.get(machine.name());
        let dying = agent_machine
            .as_ref()
            .is_none_or(|object| object.is_deleting());
        let past_hook = machine
            .metadata
            .annotations
            .iter()
            .flatten()
            .all(|(key, _)| !key.starts_with(HOOK_PREFIX));
        // A Machine without a Node is not drained. Nor is one whose AgentMachine is deleted first.
        if !past_hook
            && !dying
            && machine.at("/status/nodeRef/name").is_some()
            && let Some(left) = self.left(&machine, "drain", self.pool.options.delays.drain)
        {
            self.write_deletion(&machine, "DrainingNode").await?;
            return Ok(Some(left));
        }
        if !past_hook {
            self.write_deletion(&machine, "WaitingForPreTerminateHook")
                .await?;
            return Ok(None);
        }
        let existed = agent_machine.is_some();
        if let Some(agent_machine) = agent_machine.filter(|object| !object.is_deleting()) {
            self.pool.agent_machines.delete(&agent_machine).await?;
        }
        // The real controller looks again in its next pass, even if the AgentMachine is gone at once.
        let waited = matches!(
            status::deleting_because(self.pool.api(), &machine),
            Some("WaitingForInfrastructureDeletion" | "DeletionCompleted")
        );
        let agent_machines = &self.pool.agent_machines;
        // The mirror may show an AgentMachine a moment longer than it exists.
        if existed && !waited || agent_machines.fetch(machine.name()).await?.is_some() {
            self.write_deletion(&machine, "WaitingForInfrastructureDeletion")
                .await?;
            return Ok(None);
        }
        let machine = self.write_deletion(&machine, "DeletionCompleted").await?;
        let machines = &self.pool.machines;
        let ended = machines.remove_finalizer(&machine, objects::MACHINE_FINALIZER);
        ended.await?;
        Ok(None)
    }

    async fn write(
        &self,
        machine: &Object,
        agent_machine: &Object,
        stage: Stage,
    ) -> Result<Object> {
        let wanted = status::alive(self.pool.api(), machine, agent_machine, stage);
        self.write_status(machine, wanted).await
    }

    async fn write_deletion(&self, machine: &Object, reason: &str) -> Result<Object> {
        let wanted = status::dying(self.pool.api(), machine, reason);
        self.write_status(machine, wanted).await
    }

    async fn write_status(&self, machine: &Object, wanted: Value) -> Result<Object> {
        if merge_is_idle(machine.at("/status").unwrap_or(&Value::Null), &wanted) {
            return Ok(machine.clone());
        }
        self.pool.machines.patch_status(machine, wanted).await
    }
}

fn is_owner(machine: &Object, agent_machine: &Object) -> bool {
    agent_machine
        .metadata
        .owner_references
        .iter()
        .flatten()
        .any(|owner| owner.uid == machine.uid())
}
