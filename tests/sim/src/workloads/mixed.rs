//! Workloads in an estate that others share: their hosts and Nodes, their labels, and OSAC.

use std::collections::BTreeMap;

use agent_forge_actors::domain::node::NodeFacts;
use agent_forge_crds::external::agent::{
    AGENT_MACHINE_REF_NAMESPACE_ANNOTATION, BARE_METAL_HOST_LABEL, CLUSTER_ORDER_LABEL,
    INHERITED_NODE_LABELS_ANNOTATION, RESOURCE_CLASS_LABEL,
};
use agent_forge_lab::played::{
    assisted::INFRA_ENV_LABEL, foreign, guests::identity, object::Facts as _,
};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{
    Run, children,
    controls::{buffer, has},
    marked,
};
use crate::{
    kube::{
        kind,
        store::{name_of, text},
    },
    promise::Oracle,
    rogue,
    world::{NAMESPACE, World, at_home},
};

/// Labels for Nodes: one that the pool changes, one that it takes back, one that the service passes on, one of a person.
const RACK: &str = "example.com/rack";
const ROW: &str = "example.com/row";
const TIER: &str = "example.com/tier";
const NOTE: &str = "example.com/note";
/// What the pool wants where the service passes its own value on.
const WANTED_TIER: &str = "gold";
const PLATFORM: (&str, &str) = ("node.openshift.io/platform-type", "vsphere");
/// A VM of somebody else.
const THEIR_VM: &str = "42310000-0000-4000-8000-0000000000fa";

/// From now on the API server takes each write of the operator to that Agent for a broken promise.
fn untouchable(world: &World, agent: &str) {
    let (agents, name) = (kind("agents"), at_home(agent));
    world.api.write(|s, _| s.foreign.insert((agents, name)));
}

/// A host of metal that serves the same hosted cluster, one of a BareMetalHost, a VM of somebody else, and two Nodes without
/// any Agent.
async fn others(run: &mut Run) -> Result<()> {
    let cluster = run.world.cluster.clone();
    let of_metal = json!({"kind": "metal"});
    run.world.node_pool(&cluster, "m", &of_metal).await?;
    run.world.play("m")?.scale(1);
    let owned = json!({BARE_METAL_HOST_LABEL: "host-2"});
    let world = &run.world;
    let service = world.upstream.service(NAMESPACE)?;
    for (number, labels, approved) in [(1, of_metal, true), (2, owned, false)] {
        let host = foreign::bare_metal(service, "demo", number, labels, approved).await?;
        untouchable(world, host.name());
    }
    let vm = rogue::host(
        "VMware, Inc.",
        &identity::serial(THEIR_VM),
        "00:50:56:00:00:fa",
    );
    let name = identity::swapped(THEIR_VM);
    rogue::put(&world.api, &name, json!({INFRA_ENV_LABEL: "demo"}), &vm)?;
    let text = |text: &str| Some(text.to_owned());
    world.hosted.join(NodeFacts {
        name: "of-others".to_owned(),
        provider_id: Some(format!("vsphere://{THEIR_VM}")),
        platform_type: text("vsphere"),
        instance_type: text("vsphere-vm.cpu-8.mem-16gb.os-rhel"),
        ..NodeFacts::default()
    });
    world.hosted.join(NodeFacts {
        name: "metal".to_owned(),
        provider_id: text("baremetalhost:///openshift-machine-api/metal/1"),
        ..NodeFacts::default()
    });
    run.waits("the host of metal serves", |world| world.runs("m", 1))
        .await?;
    run.quiet().await
}

/// The InfraEnv passes this value on to all its Agents.
fn pass_on(world: &World, tier: &str) -> Result<()> {
    let passed = "infraenv.agent-install.openshift.io/propagate-node-labels";
    let patch = json!({"metadata": {"labels": {TIER: tier}, "annotations": {passed: TIER}}});
    let envs = kind("infraenvs");
    world.api.merge(&envs, &at_home("demo"), &patch)?;
    Ok(())
}

/// The names of the Agents on VMs of ours.
fn agents_of_ours(world: &World) -> Vec<String> {
    let vms = world.our_vms();
    vms.iter().map(|vm| identity::swapped(&vm.uuid)).collect()
}

/// The Agents of our VMs have these labels for Nodes, and so many of them the one of the person.
fn labels(world: &World, wanted: &[(&str, &str)], noted: usize) -> bool {
    let mut notes = 0;
    let all = agents_of_ours(world).into_iter().all(|name| {
        let agent = world.api.get(&kind("agents"), &at_home(&name));
        let labels = agent.map(|agent| agent["spec"]["nodeLabels"].clone());
        let labels = labels.and_then(|labels| labels.as_object().cloned());
        let mut labels = labels.unwrap_or_default();
        notes += usize::from(labels.remove(NOTE) == Some(json!("theirs")));
        let has = |(key, value): &(&str, &str)| labels.get(*key) == Some(&json!(value));
        labels.len() == wanted.len() && wanted.iter().all(has)
    });
    all && notes == noted
}

/// The pool counts these Nodes: ours, foreign, ignored, unknown, and those with the label of vSphere. All of them fit.
fn counts(world: &World, wanted: [u64; 5]) -> bool {
    let nodes = world.of_pool("w", "/status/nodes");
    let fields = [
        "/ours",
        "/foreign",
        "/ignored",
        "/unknown",
        "/storage/byLabel",
    ];
    let is = |(field, wanted)| nodes.pointer(field).and_then(Value::as_u64) == Some(wanted);
    fields.into_iter().zip(wanted).all(is)
        && world.condition("w", "NodesConsistent")["reason"] == "NodesMatch"
}

/// The pool counts a host of metal, one of a BareMetalHost, and a VM of somebody else.
fn sees_others(world: &World) -> bool {
    let found = world.of_pool("w", "/status/foreignAgents");
    let is = |(field, wanted): (&str, u64)| found[field].as_u64() == Some(wanted);
    let fields = [
        ("total", 3),
        ("bareMetal", 1),
        ("bareMetalHosts", 1),
        ("vsphere", 1),
    ];
    fields.into_iter().all(is)
}

/// Checks `foreign_and_serving_untouched` for labels, over the whole run: the person's key stays, and so does the value that
/// the service passes on.
fn labels_stayed(world: &World) {
    let mut seen: BTreeMap<String, (bool, bool)> = BTreeMap::new();
    let mut broken = Vec::new();
    world.api.read(|s| {
        for entry in s.log.iter().filter(|e| e.kind == kind("agents")) {
            let agent: &Value = &entry.object;
            let labels = &agent["spec"]["nodeLabels"];
            let annotations = &agent["metadata"]["annotations"];
            let inherits = annotations[INHERITED_NODE_LABELS_ANNOTATION] == TIER;
            let of = seen.entry(text(agent, "/metadata/uid").to_owned());
            let (noted, inherited) = of.or_default();
            *noted |= labels[NOTE] == "theirs";
            *inherited |= inherits;
            let lost = *noted && labels[NOTE] != "theirs";
            if lost || (*inherited && labels[TIER] == WANTED_TIER) {
                broken.push(format!("labels: of {} became {labels}", name_of(agent).1));
            }
        }
    });
    for what in broken {
        let broken = Oracle::ForeignAndServingUntouched.broken(what);
        world.director.violated(broken);
    }
}

pub(super) async fn mixed_estate(run: &mut Run) -> Result<()> {
    others(run).await?;
    pass_on(&run.world, "silver")?;
    run.begins = run.world.director.now();
    let pool = json!({
        "scaling": {"bufferAgents": 1},
        "nodeCheck": run.world.hosted.grant()?,
        "agent": {"platformLabels": true, "nodeLabels": {RACK: "7", ROW: "1", TIER: WANTED_TIER}},
    });
    run.world.pool("w", &pool).await?;
    run.rest("a host waits", |world| {
        let wanted = [(RACK, "7"), (ROW, "1"), (TIER, "silver"), PLATFORM];
        has(world, 0, 1)
            && labels(world, &wanted, 0)
            && counts(world, [0, 1, 2, 0, 1])
            && sees_others(world)
    })
    .await?;
    let noted = json!({"spec": {"nodeLabels": {NOTE: "theirs"}}});
    let host = agents_of_ours(&run.world).pop().context("a host")?;
    let agents = kind("agents");
    run.world.api.merge(&agents, &at_home(&host), &noted)?;
    pass_on(&run.world, "bronze")?;
    let changed = json!({"spec": {"agent": {"nodeLabels": {RACK: "8", ROW: null}}}});
    run.world.merge_pool("w", &changed)?;
    let wanted = [(RACK, "8"), (TIER, "bronze"), PLATFORM];
    run.rest("its labels are changed", |world| {
        has(world, 0, 1) && labels(world, &wanted, 1)
    })
    .await?;
    run.world.play("w")?.scale(1);
    run.rest("it serves, and another one waits", |world| {
        has(world, 1, 1) && labels(world, &wanted, 1) && counts(world, [1, 1, 2, 0, 2])
    })
    .await?;
    run.world.hosted.set_away(true);
    run.waits("the Nodes are unknown", |world| {
        world.condition("w", "NodesConsistent")["reason"] == "HostedAPIFailed"
    })
    .await?;
    run.world.hosted.set_away(false);
    buffer(&run.world, 0)?;
    run.world.play("w")?.scale(0);
    run.rest("down", |world| {
        has(world, 0, 0) && counts(world, [0, 1, 2, 0, 1]) && sees_others(world)
    })
    .await?;
    labels_stayed(&run.world);
    Ok(())
}

const CLASS: &str = "large";

/// The Agents that OSAC could reserve now.
fn offered(world: &World) -> Vec<String> {
    let agents = world.api.list(&kind("agents"), NAMESPACE);
    let offered = agents.iter().filter(|agent| {
        let labels = &agent["metadata"]["labels"];
        labels[RESOURCE_CLASS_LABEL] == CLASS
            && labels[CLUSTER_ORDER_LABEL].is_null()
            && text(agent, "/spec/clusterDeploymentName/name").is_empty()
    });
    offered.map(|agent| name_of(agent).1).collect()
}

/// The order of OSAC takes that host, or lets it go.
fn order(world: &World, host: &str, order: Option<&str>) -> Result<()> {
    let label = json!({"metadata": {"labels": {CLUSTER_ORDER_LABEL: order}}});
    world.api.merge(&kind("agents"), &at_home(host), &label)?;
    Ok(())
}

/// Checks `foreign_and_serving_untouched`: no AgentMachine of the pool's hosted cluster ever had the reserved host.
fn was_kept(world: &World, host: &str) {
    let home = &world.cluster.control_plane_namespace;
    let given = world.api.read(|s| {
        let mut of_host = s.log.iter().filter(|e| e.kind == kind("agents"));
        of_host.any(|e| {
            let annotations = &e.object["metadata"]["annotations"];
            name_of(&e.object).1 == host
                && annotations[AGENT_MACHINE_REF_NAMESPACE_ANNOTATION] == *home
        })
    });
    if given {
        let what = format!("reserved: {host} was given to a machine of the pool");
        let broken = Oracle::ForeignAndServingUntouched.broken(what);
        world.director.violated(broken);
    }
}

/// So many machines of the pool run, one host is offered, and there are so many VMs.
fn offers(world: &World, running: usize, vms: usize) -> bool {
    world.runs("w", running)
        && world.of_pool("w", "/status/buffer/ready") == 1
        && offered(world).len() == 1
        && (marked(world), children(world)) == (vms, vms)
}

pub(super) async fn host_reserved_by_osac(run: &mut Run) -> Result<()> {
    let pool = json!({"scaling": {"bufferAgents": 1}, "agent": {"resourceClass": CLASS}});
    run.world.pool("w", &pool).await?;
    run.rest("a host is offered", |world| offers(world, 0, 1))
        .await?;
    let host = offered(&run.world).pop().context("a host")?;
    order(&run.world, &host, Some("one"))?;
    untouchable(&run.world, &host);
    run.rest("it is reserved, and another one is offered", |world| {
        offers(world, 0, 2)
    })
    .await?;
    run.world.play("w")?.scale(1);
    run.rest("the other one serves", |world| offers(world, 1, 3))
        .await?;
    let cluster = run.world.joined("order").await?;
    let chosen = json!({CLUSTER_ORDER_LABEL: "one", RESOURCE_CLASS_LABEL: CLASS});
    run.world.node_pool(&cluster, "o", &chosen).await?;
    run.world.play("o")?.scale(1);
    run.rest("the order has its host", |world| {
        world.runs("o", 1) && offers(world, 1, 3)
    })
    .await?;
    was_kept(&run.world, &host);
    let agents = (kind("agents"), at_home(&host));
    run.world.api.write(|s, _| s.foreign.remove(&agents));
    order(&run.world, &host, None)?;
    run.world.play("o")?.scale(0);
    run.rest("the order is over", |world| {
        world.runs("o", 0) && offers(world, 1, 2)
    })
    .await?;
    buffer(&run.world, 0)?;
    run.down().await
}
