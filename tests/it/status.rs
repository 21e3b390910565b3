//! What people and dashboards see: the pool's status, kubectl's columns, metrics.

use std::time::Duration;

use agent_forge_crds::conditions::{
    CAPACITY_SATISFIED, POOL_CONDITIONS, Phase, READY, find_condition, is_true,
};
use agent_forge_lab::played::Delays;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{
    metrics,
    world::{POOL, Setup, World},
};

impl World {
    /// `kubectl get <plural>`: the API server's own table, with header and cell of the only row.
    async fn table(&self, plural: &str) -> Result<Vec<(String, String)>> {
        let namespace = self.namespace();
        let path =
            format!("/apis/agent-forge.containeroo.ch/v1alpha1/namespaces/{namespace}/{plural}");
        let request = http::Request::get(path)
            .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Vec::new())?;
        let table: Value = self.client.request(request).await?;
        let headers = table["columnDefinitions"].as_array().context("columns")?;
        let rows = table["rows"].as_array().context("rows")?;
        ensure!(rows.len() == 1, "{} rows", rows.len());
        let cells = rows[0]["cells"].as_array().context("cells")?;
        Ok(headers
            .iter()
            .zip(cells)
            .map(|(header, cell)| {
                let name = header["name"].as_str().unwrap_or_default().to_owned();
                let text = cell
                    .as_str()
                    .map_or_else(|| cell.to_string(), str::to_owned);
                (name, text)
            })
            .collect())
    }

    /// Value of the series of the operator's metrics that begins so; `None` if it does not exist.
    async fn series(&self, series: &str) -> Result<Option<f64>> {
        let text = self.operator()?.metrics().await?;
        Ok(metrics::value(&text, series))
    }

    async fn capacity(&self, state: &str) -> Result<Option<f64>> {
        let namespace = self.namespace();
        self.series(&format!(
            "agent_forge_pool_capacity{{namespace=\"{namespace}\",pool=\"{POOL}\",state=\"{state}\""
        ))
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_columns_and_metrics_tell_the_truth() -> Result<()> {
    // The counts of a pool wait 5 s: a host that comes sooner is never counted as missing.
    let setup = Setup {
        delays: Delays {
            boot: Duration::from_secs(8),
            ..Delays::fast()
        },
        ..Setup::default()
    };
    let world = World::start(setup).await?;
    world.until_true(POOL, READY).await?;
    let nodes = world.wanted(2).await?;
    world
        .until("the deficit in words and numbers", async || {
            let s = world.pool_status().await?;
            let capacity = find_condition(&s.conditions, CAPACITY_SATISFIED);
            let deficit = capacity.is_some_and(|c| c.reason == "DemandDeficit");
            Ok(deficit && s.desired_replicas == Some(2))
        })
        .await?;
    world.running(&nodes, 2).await?;
    world
        .until("counts of two served AgentMachines", async || {
            let s = world.pool_status().await?;
            Ok(s.bound_agents == Some(2)
                && s.unready_agent_machines == Some(0)
                && s.owned_vms.iter().all(|vm| vm.phase == Some(Phase::Bound))
                && s.planned_actions.iter().all(|a| a.type_ == "Noop"))
        })
        .await?;
    let pool = world.pool().await?;
    let generation = pool.metadata.generation;
    let s = pool.status.context("a status")?;
    for type_ in POOL_CONDITIONS {
        let condition = find_condition(&s.conditions, type_).context(type_)?;
        ensure!(is_true(&s.conditions, type_), "{condition:?}");
        ensure!(!condition.reason.is_empty() && !condition.message.is_empty());
        ensure!(condition.observed_generation == generation, "{condition:?}");
    }
    let words: Vec<&str> = ["Ready", "AgentMachineDemandFound", "CapacitySatisfied"]
        .iter()
        .filter_map(|t| find_condition(&s.conditions, t))
        .map(|c| c.reason.as_str())
        .collect();
    ensure!(
        words == ["Reconciled", "Observed", "Satisfied"],
        "{words:?}"
    );
    ensure!(s.observed_generation == generation);
    let counts = [
        s.desired_replicas,
        s.agent_machines,
        s.waiting_agent_machines,
        s.agent_machines_without_agent,
        s.matching_agents,
        s.available_agents,
    ];
    ensure!(
        counts == [Some(2), Some(2), Some(0), Some(0), Some(2), Some(0)],
        "{counts:?}"
    );
    ensure!(
        s.planned_actions.len() == 1 && s.waiting_on.is_empty(),
        "{s:?}"
    );
    ensure!(s.owned_vms.len() == 2);
    let iso = s.iso.context("an ISO")?;
    let sha = iso.sha256.context("its digest")?;
    ensure!(iso.path.is_some_and(|path| path.contains(&sha)));
    let url = iso.url.context("its address")?;
    ensure!(
        !url.contains("byapikey/ey"),
        "the token is in the status: {url}"
    );

    let columns = world.table("vsphereagentpools").await?;
    let shown = |name: &str| {
        let found = columns.iter().find(|(header, _)| header == name);
        found.map(|(_, text)| text.as_str())
    };
    for (name, text) in [
        ("Name", POOL),
        ("Waiting", "0"),
        ("Desired", "2"),
        ("Agents", "2"),
        ("Bound", "2"),
        ("Ready", "True"),
        ("Reason", "Reconciled"),
        ("ISO", sha.as_str()),
    ] {
        ensure!(shown(name) == Some(text), "{name}: {:?}", shown(name));
    }

    for (state, value) in [
        ("desired", 2.0),
        ("agent_machines", 2.0),
        ("waiting_agent_machines", 0.0),
        ("unready_agent_machines", 0.0),
        ("without_agent", 0.0),
        ("matching_agents", 2.0),
        ("bound_agents", 2.0),
        ("available_agents", 0.0),
        ("pending_owned_vms", 0.0),
        ("demand_deficit", 0.0),
    ] {
        let now = world.capacity(state).await?;
        ensure!(now == Some(value), "{state}: {now:?}");
    }
    let namespace = world.namespace();
    let of_pool = format!("{{namespace=\"{namespace}\",pool=\"{POOL}\"");
    let cores = format!("agent_forge_pool_vm_cpu_cores{of_pool}");
    let memory = format!("agent_forge_pool_vm_memory_bytes{of_pool}");
    let disk = format!("agent_forge_pool_vm_disk_bytes{of_pool}");
    ensure!(world.series(&cores).await? == Some(4.0));
    ensure!(world.series(&memory).await? == Some(16384.0 * 1048576.0));
    ensure!(world.series(&disk).await? == Some(100.0 * 1073741824.0));
    let created = r#"agent_forge_vsphere_vm_operations_total{operation="create",result="success"}"#;
    ensure!(world.series(created).await? == Some(2.0));

    metrics::of_two_machines(&world).await?;

    // One VM is left. Its row shows its state.
    nodes.scale(1);
    world.settled(1).await?;
    world
        .until("the row of a bound VM", async || {
            let row = world.table("vsphereagents").await?;
            let has = |name: &str, text: &str| row.iter().any(|(n, t)| n == name && t == text);
            Ok(has("Pool", POOL)
                && has("Phase", "Bound")
                && has("Reason", "AgentBound")
                && has("Power", "poweredOn"))
        })
        .await?;

    // A changed spec is observed, although nothing must be done for it.
    world
        .patch_pool(POOL, &serde_json::json!({"template": {"numCPUs": 8}}))
        .await?;
    world
        .until("the new generation", async || {
            let pool = world.pool().await?;
            let seen = pool.status.and_then(|s| s.observed_generation);
            Ok(pool.metadata.generation != generation && seen == pool.metadata.generation)
        })
        .await?;
    // The report follows the status.
    world
        .until("the new cores in the metrics", async || {
            Ok(world.series(&cores).await? == Some(8.0))
        })
        .await?;

    nodes.scale(0);
    world.settled(0).await?;
    metrics::of_their_end(&world).await?;
    world.pools().delete(POOL, &Default::default()).await?;
    world.pool_ends().await?;
    metrics::forget_the_pool(&world).await
}
