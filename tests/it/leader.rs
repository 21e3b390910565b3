//! Two instances with one Lease. Only one acts, whatever happens to it. The other takes over.

use agent_forge_lab::{
    OperatorAccess,
    lab::apply::apply,
    parts::{FaultProxy, Network, Operator, OperatorOptions},
};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use rustix::process::Signal;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    shared::{LEASE, flags, says},
    witness::Witness,
    world::{LIMIT, Setup, World},
};

/// Two operators with different users, so that the audit log distinguishes them. The first one leads.
struct Pair {
    world: World,
    first: Operator,
    second: Operator,
    /// Between the first one and the API server.
    proxy: FaultProxy,
    standby: OperatorAccess,
}

/// Starts an operator with leader election, without waiting until it leads.
async fn start(world: &World, kubeconfig: impl Into<std::path::PathBuf>) -> Result<Operator> {
    let options = OperatorOptions::new(env!("CARGO_BIN_EXE_agent-forge"), kubeconfig);
    world
        .lab
        .operator(&options.args(world.operator_args()))
        .await
}

impl Pair {
    async fn start() -> Result<Self> {
        let mut world = World::start(
            // Without it, the identity is the uid of each operator's own namespace.
            Setup::args([flags(), vec!["--cluster-id=pair".to_owned()]].concat()),
        )
        .await?;
        // Replace the world's own operator by one behind a proxy.
        world.stop_operator().await?;
        let proxy = FaultProxy::start(&world.lab.api_server().endpoint().url).await?;
        let through = world.lab.kubeconfig_through(&world.access, &proxy)?;
        let first = start(&world, through).await?;
        says(&first, "ok").await?;
        let namespace = world.lab.namespace("standby").await?;
        let planes = [world.cluster.control_plane_namespace.clone()];
        let standby = world
            .lab
            .kubeconfig_for_namespaces(&namespace, world.namespace(), &planes)
            .await?;
        // Its rules are in its own namespace, but the Lease is in the first operator's namespace.
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "standby", "namespace": world.operator_namespace()},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "agent-forge-leader-election"},
            "subjects": [{"kind": "ServiceAccount", "name": standby.service_account, "namespace": standby.namespace}],
        });
        apply(&world.client, &binding).await?;
        let second = start(&world, &standby.kubeconfig).await?;
        says(&second, "ok: standing by").await?;
        Ok(Self {
            world,
            first,
            second,
            proxy,
            standby,
        })
    }

    /// Writes of one user after a mark of the audit log, without those to the Lease.
    async fn writes(&self, user: &str, mark: usize) -> Result<usize> {
        self.world.audited().await?;
        let entries = self.world.log.since(mark)?;
        let is_lease = |e: &agent_forge_lab::parts::audit::Entry| {
            e.object_ref
                .as_ref()
                .is_some_and(|o| o.resource == "leases")
        };
        Ok(entries
            .iter()
            .filter(|e| e.user.username == user && e.is_write() && !is_lease(e))
            .count())
    }

    async fn holder(&self) -> Result<String> {
        let namespace = self.world.operator_namespace();
        let leases: Api<Lease> = Api::namespaced(self.world.client.clone(), namespace);
        let spec = leases.get("agent-forge").await?.spec.unwrap_or_default();
        Ok(spec.holder_identity.unwrap_or_default())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_only_watches_and_takes_over_at_once_when_the_leader_ends() -> Result<()> {
    let pair = Pair::start().await?;
    let witness = Witness::start(pair.world.sight());
    let nodes = pair.world.up(2).await?;
    pair.world.settled(2).await?;
    ensure!(
        pair.writes(&pair.standby.user, 0).await? == 0,
        "the standby wrote"
    );
    ensure!(pair.writes(&pair.world.access.user, 0).await? > 0);

    let before = pair.holder().await?;
    let status = pair.first.stop().await?;
    ensure!(status.success(), "an orderly end: {status}");
    let ended = Instant::now();
    says(&pair.second, "ok").await?;
    let took = ended.elapsed();
    // A Lease that was not released lasts nearly its full time. (On an idle machine the takeover takes less than 2 s.)
    ensure!(took <= LEASE * 2 / 3, "taken over after {took:?}");
    let after = pair.holder().await?;
    ensure!(before != after && !after.is_empty(), "{before:?} {after:?}");

    nodes.scale(3);
    pair.world.running(&nodes, 3).await?;
    pair.world.settled(3).await?;
    pair.world.each_serves_its_own().await?;
    witness.verdict()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stood_still_past_its_lease_changes_nothing_any_more() -> Result<()> {
    let pair = Pair::start().await?;
    let witness = Witness::start(pair.world.sight());
    let nodes = pair.world.wanted(6).await?;
    // In the middle of the work: some VMs exist, some run, calls are under way.
    pair.world
        .until("three VMs, one of them on", async || {
            let all = pair.world.all_vms().await?;
            Ok(all.len() >= 3 && all.iter().any(|vm| vm.is_on()))
        })
        .await?;
    pair.first.process.signal(Signal::STOP)?;
    let stopped = Instant::now();
    says(&pair.second, "ok").await?;
    let took = stopped.elapsed();
    ensure!(took <= LEASE * 5, "taken over after {took:?}");
    ensure!(
        took >= LEASE / 2,
        "taken over after {took:?}, while the first one's calls could still end"
    );
    pair.world.running(&nodes, 6).await?;
    pair.world.settled(6).await?;
    // When the first operator continues, much has changed: it would have much to write.
    nodes.scale(3);
    pair.world.settled(3).await?;
    let calls = pair.world.mutations().await?;
    pair.world.audited().await?;
    let mark = pair.world.log.mark()?;
    pair.first.process.signal(Signal::CONT)?;
    let status = tokio::time::timeout(LIMIT, pair.first.process.ended())
        .await
        .context("it ends")??;
    ensure!(
        !status.success(),
        "it ended as if nothing had been: {status}"
    );
    let log = pair.first.log()?;
    ensure!(
        log.contains("the lease"),
        "the log does not say why:\n{}",
        pair.first.process.tail()
    );
    ensure!(
        pair.writes(&pair.world.access.user, mark).await? == 0,
        "it wrote to the API server after its lease"
    );
    let after = pair.world.mutations().await?;
    ensure!(
        after == calls,
        "it changed vCenter after its lease: {calls:?}, then {after:?}"
    );
    pair.world.each_serves_its_own().await?;
    witness.verdict()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_the_api_server_ends_and_the_other_goes_on() -> Result<()> {
    for network in [Network::Silent, Network::Refusing] {
        let pair = Pair::start().await?;
        let witness = Witness::start(pair.world.sight());
        let nodes = pair.world.wanted(3).await?;
        pair.world
            .until("a VM", async || Ok(!pair.world.vms().await?.is_empty()))
            .await?;
        pair.proxy.set(network);
        let status = tokio::time::timeout(LEASE, pair.first.process.ended())
            .await
            .with_context(|| format!("{network:?}: it ends before its lease does"))??;
        ensure!(!status.success(), "{network:?}: {status}");
        pair.world.running(&nodes, 3).await?;
        pair.world.settled(3).await?;
        ensure!(pair.second.readiness().await? == "ok");
        witness.verdict()?;
    }
    Ok(())
}
