//! The predecessor's Lease. While another process renews it, the operator does nothing and says why. While the operator
//! acts, it holds that Lease.

use std::{fs, time::Duration};

use agent_forge_crds::conditions::{DRY_RUN, event};
use agent_forge_lab::{
    lab::apply::{apply, documents},
    tools::repository,
};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams},
};
use serde_json::json;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{interval, timeout},
};

use crate::{
    changes::Changes,
    shared::{flags, says},
    world::{LIMIT, POOL, Setup, World},
};

const LEASE: &str = "agent-forge-operator.containeroo.ch";
/// In the format of client-go: the Pod's name and a uuid.
const HOLDER: &str = "agent-forge-operator-6b7c9d-x2x4z_0b8e2c1a-6a0e-4a53-8f34-8b6b6d3b7f10";

/// A predecessor that leads. When dropped, it no longer renews its Lease.
struct Predecessor {
    renewed: watch::Receiver<u32>,
    _task: JoinSet<Result<()>>,
}

fn leases(client: &Client, namespace: &str) -> Api<Lease> {
    Api::namespaced(client.clone(), namespace)
}

/// Writes itself into the Lease, even if another process holds it.
async fn renew(api: &Api<Lease>) -> Result<()> {
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(LEASE.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(HOLDER.to_owned()),
            lease_duration_seconds: Some(4),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..LeaseSpec::default()
        }),
    };
    let params = PatchParams::apply("predecessor").force();
    api.patch(LEASE, &params, &Patch::Apply(&lease)).await?;
    Ok(())
}

impl Predecessor {
    async fn start(client: &Client, namespace: &str) -> Result<Self> {
        let api = leases(client, namespace);
        renew(&api).await?;
        let (told, renewed) = watch::channel(0);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut beat = interval(Duration::from_millis(500));
            loop {
                beat.tick().await;
                renew(&api).await?;
                told.send_modify(|n| *n += 1);
            }
        });
        Ok(Self {
            renewed,
            _task: task,
        })
    }

    /// Waits until it has renewed this often: for longer than its Lease lasts.
    async fn goes_on(&mut self) -> Result<()> {
        let goal = *self.renewed.borrow() + 12;
        let gone_on = self.renewed.wait_for(|n| *n >= goal);
        timeout(LIMIT, gone_on).await.context("it renews")??;
        Ok(())
    }
}

async fn holder(world: &World, namespace: &str, name: &str) -> Result<String> {
    let lease = leases(&world.client, namespace).get(name).await?;
    let spec = lease.spec.unwrap_or_default();
    Ok(spec.holder_identity.unwrap_or_default())
}

/// A world whose operator was stopped in order, so that no process holds a Lease.
async fn at_rest(args: Vec<String>) -> Result<World> {
    let mut world = World::start(Setup::args(flags())).await?;
    says(world.operator()?, "ok").await?;
    let ours = holder(&world, world.operator_namespace(), LEASE).await?;
    let mark = format!("agent-forge/{}/", world.operator_namespace());
    ensure!(ours.starts_with(&mark), "held by {ours}");
    world.stop_operator().await?;
    for name in ["agent-forge", LEASE] {
        let left = holder(&world, world.operator_namespace(), name).await?;
        ensure!(left.is_empty(), "{name} is left to {left}");
    }
    world.setup.operator_args = args;
    Ok(world)
}

/// Our writes after a mark of the audit log, without those to our own Lease and without Events.
async fn writes(world: &World, mark: usize) -> Result<Vec<String>> {
    world.audited().await?;
    let entries = world.log.since(mark)?.into_iter();
    let acts = |resource: &str, name: &str| {
        !(resource == "events" || resource == "leases" && name != LEASE)
    };
    let ours = entries.filter(|e| e.user.username == world.access.user && e.is_write());
    let acts = ours.filter(|e| {
        let of = e.object_ref.clone().unwrap_or_default();
        acts(&of.resource, &of.name)
    });
    Ok(acts.map(|e| format!("{} {}", e.verb, e.uri)).collect())
}

/// The operator does nothing while the predecessor continues, and users see why.
async fn stands_by(world: &World, predecessor: &mut Predecessor, mark: usize) -> Result<()> {
    let operator = world.operator()?;
    operator
        .process
        .until_ready(LIMIT, || async {
            let said = operator.readiness().await?;
            ensure!(
                said.contains("standing by: agent-forge-operator-6b7c9d"),
                "{said}"
            );
            Ok(())
        })
        .await?;
    let reason = (event::PREDECESSOR_ACTS, true);
    let pool = ("VsphereAgentPool", POOL);
    world
        .until_told(reason, pool, "scale the predecessor to zero")
        .await?;
    predecessor.goes_on().await?;
    let said = operator.metrics().await?;
    ensure!(
        said.contains("agent_forge_barred_by_predecessor 1"),
        "{said}"
    );
    ensure!(said.contains("agent_forge_leader 0"), "{said}");
    let writes = writes(world, mark).await?;
    ensure!(writes.is_empty(), "written: {writes:?}");
    ensure!(world.vms().await?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_done_while_the_predecessor_renews_and_when_it_comes_back_it_has_it()
-> Result<()> {
    let mut world = at_rest(flags()).await?;
    let nodes = world.node_pool().await?;
    let mut predecessor = Predecessor::start(&world.client, world.operator_namespace()).await?;
    nodes.scale(1);
    let (mark, calls) = (world.log.mark()?, world.vcenter.calls().await?.by_method);
    world.start_operator().await?;
    stands_by(&world, &mut predecessor, mark).await?;
    let after = world.vcenter.calls().await?.by_method;
    ensure!(
        after == calls,
        "vCenter was called: {calls:?}, then {after:?}"
    );

    // The predecessor ends, and its Lease runs out.
    drop(predecessor);
    world.running(&nodes, 1).await?;
    let operator = world.operator.take().context("an operator")?;
    ensure!(operator.readiness().await? == "ok");
    ensure!(
        operator
            .metrics()
            .await?
            .contains("agent_forge_barred_by_predecessor 0")
    );

    // A person starts the predecessor again, and it takes the Lease without asking.
    renew(&leases(&world.client, world.operator_namespace())).await?;
    let ended = timeout(LIMIT, operator.process.ended()).await;
    let status = ended.context("it ends")??;
    ensure!(!status.success(), "{status}");
    let log = operator.log()?;
    ensure!(
        log.contains(&format!("{HOLDER} holds the lease now")),
        "{log}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_election_the_predecessor_is_waited_for_as_well() -> Result<()> {
    let mut world = at_rest(Vec::new()).await?;
    let nodes = world.node_pool().await?;
    let mut predecessor = Predecessor::start(&world.client, world.operator_namespace()).await?;
    nodes.scale(1);
    let mark = world.log.mark()?;
    world.start_operator().await?;
    stands_by(&world, &mut predecessor, mark).await?;
    drop(predecessor);
    world.running(&nodes, 1).await?;
    let left = holder(&world, world.operator_namespace(), LEASE).await?;
    ensure!(left == HOLDER, "it is looked at, not taken: {left}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_was_named_is_looked_at_or_nothing_is_done() -> Result<()> {
    let elsewhere = "agent-forge-operator-system";
    let flag = format!("--predecessor-lease-namespace={elsewhere}");
    let mut world = at_rest([flags(), vec![flag]].concat()).await?;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": elsewhere}});
    apply(&world.client, &namespace).await?;
    let nodes = world.wanted(1).await?;
    let mark = world.log.mark()?;
    world.start_operator().await?;
    let operator = world.operator()?;
    let said = "config/overlays/predecessor-lease";
    operator
        .process
        .until_ready(LIMIT, || async {
            let text = operator.readiness().await?;
            ensure!(text.contains(said) && text.contains("forbidden"), "{text}");
            Ok(())
        })
        .await?;
    let pool = ("VsphereAgentPool", POOL);
    world
        .until_told((event::PREDECESSOR_ACTS, true), pool, said)
        .await?;
    // By then we hold the predecessor's Lease in our own namespace. Nothing else is written.
    let acts = writes(&world, mark).await?.into_iter();
    let acts: Vec<_> = acts
        .filter(|w| !w.contains(world.operator_namespace()))
        .collect();
    ensure!(acts.is_empty(), "{acts:?}");

    for file in ["role.yaml", "role_binding.yaml"] {
        let path = repository()
            .join("config/overlays/predecessor-lease")
            .join(file);
        for object in documents(&fs::read_to_string(path)?)? {
            let mut object = object;
            if let Some(subject) = object.pointer_mut("/subjects/0") {
                subject["name"] = json!(world.access.service_account);
                subject["namespace"] = json!(world.access.namespace);
            }
            apply(&world.client, &object).await?;
        }
    }
    world.running(&nodes, 1).await?;
    let ours = holder(&world, elsewhere, LEASE).await?;
    ensure!(ours.starts_with("agent-forge/"), "{ours}");
    ensure!(!world.told(event::PLAN_APPLIED).await?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_beside_the_predecessor_writes_nothing_and_logs_its_plan() -> Result<()> {
    let dry_run = vec!["--dry-run".to_owned()];
    let mut world = at_rest([flags(), dry_run].concat()).await?;
    let nodes = world.node_pool().await?;
    let mut predecessor = Predecessor::start(&world.client, world.operator_namespace()).await?;
    nodes.scale(1);
    let (mark, changes) = (world.log.mark()?, Changes::mark(&world).await?);
    world.start_operator().await?;
    let logs = async |world: &World, word: &str| {
        world
            .until(&format!("{word} in the log"), async || {
                let operator = world.operator()?;
                Ok(operator.log()?.contains(word))
            })
            .await
    };
    logs(&world, "dry run: DemandDeficit").await?;
    logs(&world, "dry run: PinAgentMachine").await?;
    predecessor.goes_on().await?;
    let written = writes(&world, mark).await?;
    ensure!(written.is_empty(), "written: {written:?}");

    // The predecessor ends: the status has the plan, and still nothing else is changed.
    drop(predecessor);
    world.until_true(POOL, DRY_RUN).await?;
    changes.none(&world).await?;
    let left = holder(&world, world.operator_namespace(), LEASE).await?;
    ensure!(left == HOLDER, "it is looked at, not taken: {left}");

    // It begins again, and the status is its own again.
    let mut predecessor = Predecessor::start(&world.client, world.operator_namespace()).await?;
    logs(&world, "not acting: agent-forge-operator-6b7c9d").await?;
    predecessor.goes_on().await?;
    let mark = world.log.mark()?;
    nodes.scale(2);
    world.machines_left(&nodes, 2).await?;
    predecessor.goes_on().await?;
    let written = writes(&world, mark).await?;
    ensure!(written.is_empty(), "written: {written:?}");
    changes.none(&world).await
}
