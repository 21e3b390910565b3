//! The MachineDeployment and MachineSet controllers of one NodePool.

use anyhow::Result;
use serde_json::json;

use super::{
    super::{mirror::Object, nature, object::Facts as _, refusal},
    Pool, objects, victim,
};

/// How many Machines each set of a rollout must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    /// Machines of the newest revision.
    pub new: usize,
    /// Machines of all older revisions together.
    pub old: usize,
}

/// The input of a rollout step. `new` and `old` count existing Machines, including those under deletion.
#[derive(Debug, Clone, Copy)]
pub struct Counts {
    /// Machines of the newest set.
    pub new: usize,
    /// Machines of older sets.
    pub old: usize,
    /// Machines of any set that run and are not being deleted.
    pub available: usize,
    /// Machines of older sets that run and are not being deleted.
    pub old_available: usize,
}

/// The next step of a rolling update with `max_surge` and no unavailable Machine.
#[must_use]
pub fn split(wanted: usize, max_surge: usize, have: Counts) -> Split {
    if have.old == 0 {
        return Split {
            new: wanted,
            old: 0,
        };
    }
    let room = (wanted + max_surge).saturating_sub(have.new + have.old);
    let new = (have.new + room).min(wanted);
    let spare = have.available.saturating_sub(wanted);
    // Old Machines that do not run do no work. They are deleted first and at once.
    let old = have.old_available.saturating_sub(spare);
    Split { new, old }
}

impl Pool {
    /// Brings the number of Machines one step closer to the wanted number.
    pub(super) async fn sync_sets(&self) -> Result<()> {
        let wish = self.wish().clone();
        if !wish.deleting {
            self.ensure_template().await?;
        }
        let current = self.ensure_set(wish.revision, wish.deleting).await?;
        let current_name = objects::set_name(&self.options, wish.revision);
        let machines = self.own(&self.machines);
        let (new, old): (Vec<Object>, Vec<Object>) = machines
            .into_iter()
            .partition(|machine| machine.label(objects::SET_LABEL) == Some(&current_name));
        let counts = Counts {
            new: new.len(),
            old: old.len(),
            available: new
                .iter()
                .chain(&old)
                .filter(|machine| victim::is_healthy(machine))
                .count(),
            old_available: old
                .iter()
                .filter(|machine| victim::is_healthy(machine))
                .count(),
        };
        let want = split(wish.replicas, wish.max_surge, counts);
        if let Some(set) = &current {
            self.set_replicas(set, want.new).await?;
            for _ in new.len()..want.new {
                self.create_machine(set).await?;
            }
        }
        for machine in victim::victims(&new, new.len().saturating_sub(want.new)) {
            self.delete_machine(&machine).await?;
        }
        let old_alive: Vec<Object> = old
            .iter()
            .filter(|machine| !machine.is_deleting())
            .cloned()
            .collect();
        for machine in victim::victims(&old_alive, old_alive.len().saturating_sub(want.old)) {
            self.delete_machine(&machine).await?;
        }
        self.remove_empty_sets(&current_name, wish.deleting, old.is_empty(), new.is_empty())
            .await
    }

    async fn ensure_template(&self) -> Result<()> {
        if self.templates.get(&self.template_name()).is_some() {
            return Ok(());
        }
        let (metadata, body) = self.template();
        exists_is_fine(self.templates.create(metadata, body).await)
    }

    async fn ensure_set(&self, revision: u32, deleting: bool) -> Result<Option<Object>> {
        let name = objects::set_name(&self.options, revision);
        if let Some(set) = self.sets.get(&name) {
            return Ok(Some(set));
        }
        if deleting {
            return Ok(None);
        }
        let (metadata, body) = self.machine_set(revision, 0);
        exists_is_fine(self.sets.create(metadata, body).await)?;
        self.sets.fetch(&name).await
    }

    async fn set_replicas(&self, set: &Object, replicas: usize) -> Result<()> {
        if set.at("/spec/replicas").and_then(serde_json::Value::as_u64)
            == u64::try_from(replicas).ok()
        {
            return Ok(());
        }
        self.sets
            .patch(set, json!({"spec": {"replicas": replicas}}))
            .await
            .map(drop)
    }

    /// Creates the AgentMachine first, then the Machine that names it.
    async fn create_machine(&self, set: &Object) -> Result<()> {
        let random = nature::uuid().simple().to_string();
        let name = format!("{}-{}", set.name(), &random[..5]);
        let (metadata, body) = self.agent_machine(&name, set);
        self.agent_machines.create(metadata, body).await?;
        let (metadata, body) = self.machine(&name, set);
        self.machines.create(metadata, body).await?;
        Ok(())
    }

    async fn delete_machine(&self, machine: &Object) -> Result<()> {
        if machine.is_deleting() {
            return Ok(());
        }
        self.machines.delete(machine).await
    }

    async fn remove_empty_sets(
        &self,
        current: &str,
        deleting: bool,
        no_old: bool,
        no_new: bool,
    ) -> Result<()> {
        for set in self.own(&self.sets) {
            let obsolete = if set.name() == current {
                deleting && no_new
            } else {
                no_old
            };
            if obsolete {
                self.sets.delete(&set).await?;
            }
        }
        if deleting && no_old && no_new {
            for template in self.own(&self.templates) {
                self.templates.delete(&template).await?;
            }
        }
        Ok(())
    }
}

fn exists_is_fine(created: Result<Object>) -> Result<()> {
    match created {
        Err(error) if refusal::status(&error).is_some_and(|status| status.code == 409) => Ok(()),
        other => other.map(drop),
    }
}
