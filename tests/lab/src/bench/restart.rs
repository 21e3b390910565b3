//! The start of a new process beside existing objects: how long until it is ready, and what that costs.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::json;

use super::{
    proc::{self, Usage},
    run::{by_name, own, quiet, written_since},
    world::World,
};
use crate::parts::audit::count_writes;

/// Agents that grow at the same time.
const AT_ONCE: usize = 16;

/// The cost of a start, until the operator sends nothing more to the API server and to vCenter.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    /// Bytes of an Agent as JSON, on average.
    pub agent_bytes: usize,
    /// From the start of the process to the first success of `/readyz`.
    pub ready_seconds: f64,
    /// Kubernetes reads.
    pub reads: usize,
    /// Kubernetes writes by verb and resource.
    pub writes: BTreeMap<String, usize>,
    /// vCenter calls.
    pub calls: u64,
    /// The new process at the end.
    pub usage: Usage,
}

/// Lets each Agent grow by `bytes`, then restarts the operator.
///
/// # Errors
/// An Agent cannot be patched, or the operator does not become ready or idle.
pub(super) async fn measure(world: &mut World, bytes: usize) -> Result<Restart> {
    let agent_bytes = grow(world, bytes).await?;
    quiet(world).await?;
    let status = world.operator.stop().await?;
    ensure!(status.success(), "the operator ended with {status}");
    let mark = world.lab.audited().await?.len();
    let calls = world.vcenter.calls().await?.total;
    let ready_seconds = world.start_anew().await?.as_secs_f64();
    quiet(world).await?;
    let entries = written_since(world, mark).await?;
    let reads = own(world, &entries)
        .filter(|e| !e.is_write() && e.verb != "watch")
        .count();
    Ok(Restart {
        agent_bytes,
        ready_seconds,
        reads,
        writes: by_name(count_writes(&entries, &world.access.user).0),
        calls: world.vcenter.calls().await?.total - calls,
        usage: proc::usage(world.operator.process.pid())?,
    })
}

/// Adds to each Agent's inventory what a host with many disks reports. Returns the size of an Agent afterwards.
async fn grow(world: &World, bytes: usize) -> Result<usize> {
    let agents = world.agents();
    let all = agents.list(&Default::default()).await?;
    let smart = "0123456789abcdef".repeat(bytes.div_ceil(16));
    let patches = all.items.into_iter().map(|agent| {
        let (agents, smart) = (agents.clone(), &smart);
        async move {
            let name = agent.metadata.name.context("a name")?;
            let disk = json!({"id": "/dev/sdz", "name": "sdz", "driveType": "SSD", "sizeBytes": 1, "smart": smart});
            let patch = Patch::Merge(json!({"status": {"inventory": {"disks": [disk]}}}));
            let grown = agents
                .patch_status(&name, &PatchParams::default(), &patch)
                .await?;
            Ok::<_, anyhow::Error>(serde_json::to_vec(&grown)?.len())
        }
    });
    let sizes: Vec<usize> = stream::iter(patches)
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    Ok(sizes.iter().sum::<usize>() / sizes.len().max(1))
}
