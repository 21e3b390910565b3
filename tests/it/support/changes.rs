//! What the operator changes while a scenario expects that it changes nothing.

use std::collections::BTreeMap;

use agent_forge_lab::parts::audit::{AuditLog, count_writes};
use anyhow::{Result, ensure};

use crate::world::World;

/// Whether a call to vCenter changes nothing but the session of who calls. Each call that is not listed counts as a
/// change, also one that the operator learns later.
fn only_looks(method: &str) -> bool {
    let session = [
        "Login",
        "Logout",
        "POST /api/session",
        "DELETE /api/session",
        "CreateListView",
        "CreateContainerView",
        "ModifyListView",
        "DestroyView",
        "CreatePropertyCollector",
        "DestroyPropertyCollector",
        "CreateFilter",
        "DestroyPropertyFilter",
        // A search for files is a task that changes nothing.
        "SearchDatastore_Task",
    ];
    let looks = [
        "Retrieve",
        "ContinueRetrieve",
        "WaitForUpdates",
        "CancelWaitForUpdates",
        "Find",
        "Query",
        "FetchUserPrivilege",
        "HasPrivilege",
        "Recommend",
        "GET ",
        "HEAD ",
        "POST /api/vcenter/system?action=hello",
    ];
    let lists = method.starts_with("POST /api/cis/tagging/") && method.contains("?action=list");
    lists || session.contains(&method) || looks.iter().any(|look| method.starts_with(look))
}

/// What the operator has changed so far: its writes except status, Events and Leases, and the calls that change vCenter.
pub struct Changes {
    log: AuditLog,
    calls: BTreeMap<String, u64>,
}

impl World {
    /// How often each call that changes something in vCenter was made, by anybody.
    pub async fn mutations(&self) -> Result<BTreeMap<String, u64>> {
        let mut calls = self.vcenter.calls().await?.by_method;
        calls.retain(|method, _| !only_looks(method));
        Ok(calls)
    }
}

impl Changes {
    pub async fn mark(world: &World) -> Result<Self> {
        Ok(Self {
            log: world.log.from_now(),
            calls: world.mutations().await?,
        })
    }

    /// Fails if the operator has changed anything since the mark.
    pub async fn none(&self, world: &World) -> Result<()> {
        let entries = world.lab.audited_in(&self.log).await?;
        let mut writes = count_writes(&entries, &world.access.user)
            .without("leases")
            .without("events");
        writes.0.retain(|write, _| write.subresource != "status");
        ensure!(writes.total() == 0, "{writes}");
        let calls = world.mutations().await?;
        ensure!(calls == self.calls, "{:?}, then {calls:?}", self.calls);
        Ok(())
    }
}
