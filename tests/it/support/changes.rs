//! What the operator changes while a scenario expects that it changes nothing.

use agent_forge_lab::parts::{audit::count_writes, vcenter_inventory::Calls};
use anyhow::{Result, ensure};

use crate::world::World;

/// What the operator has changed so far: its writes except status, Events and Leases, and the calls that change vCenter.
pub struct Changes {
    mark: usize,
    calls: Calls,
}

impl Changes {
    pub async fn mark(world: &World) -> Result<Self> {
        Ok(Self {
            mark: world.lab.audited().await?.len(),
            calls: world.vcenter.calls().await?,
        })
    }

    /// Fails if the operator has changed anything since the mark.
    pub async fn none(&self, world: &World) -> Result<()> {
        let entries = world.lab.audited().await?;
        let new = &entries[self.mark.min(entries.len())..];
        let mut writes = count_writes(new, &world.access.user)
            .without("leases")
            .without("events");
        writes.0.retain(|write, _| write.subresource != "status");
        ensure!(writes.total() == 0, "{writes}");
        let now = world.vcenter.calls().await?;
        let changes = |method: &str| {
            let makes = ["MakeDirectory", "CreateFolder"].contains(&method);
            // A search for files is a task that changes nothing.
            let task = method.ends_with("_Task") && !method.starts_with("SearchDatastore");
            makes || task || method.starts_with("PUT")
        };
        for (method, count) in now.by_method.iter().filter(|(method, _)| changes(method)) {
            let before = self.calls.of(method);
            ensure!(*count == before, "{method}: {before}, then {count}");
        }
        Ok(())
    }
}
