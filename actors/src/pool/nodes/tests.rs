use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    agent::VsphereAgent,
    conditions::find_condition,
    external::agent_machine::AgentMachine,
    pool::{KubeconfigSecretRef, NodeCheckSpec},
};

use super::*;
use crate::{
    domain::node::NodeFacts,
    pool::{memory::Memory, outcome::Outcome, plan::plan, status},
    ports::cluster::SecretRead,
    testing::{
        AGE, World, agent_machine, agent_on, at, child_with_vm, claim, condition, foreign_agent,
        nodes::Hosted, obstruct, with,
    },
    vm::testing::{Bench, hub::Hub},
};

fn asks(pool: &mut agent_forge_crds::VsphereAgentPool) {
    pool.spec.node_check = Some(NodeCheckSpec {
        kubeconfig_secret_ref: KubeconfigSecretRef {
            name: "nodes".to_owned(),
            ..KubeconfigSecretRef::default()
        },
    });
}

/// A host that serves since `minutes`, with its Node.
fn serving(name: &str, minutes: i64) -> (VsphereAgent, Agent, NodeFacts) {
    let child = child_with_vm(name);
    let am: AgentMachine = agent_machine(name);
    let agent = with(agent_on(&child), |agent| {
        claim(agent, &am);
        let mut installed = condition(INSTALLED, "True", "InstallationCompleted");
        installed.last_transition_time = Some(Time(at(AGE - 60 * minutes)));
        agent
            .status
            .get_or_insert_default()
            .conditions
            .push(installed);
    });
    let node = NodeFacts {
        name: format!("node-{name}"),
        provider_id: Some(format!("agent://{}", agent.name_any())),
        system_uuid: Some(agent.name_any()),
        ..NodeFacts::default()
    };
    (child, agent, node)
}

fn missing(child: &mut VsphereAgent) {
    obstruct(child, Some(Reason::VmMissing));
}

#[test]
fn a_vm_that_is_gone_is_named_also_where_its_folder_went_with_it() {
    let named = |obstacle: Option<Reason>| {
        let (mut child, agent, node) = serving("a", 30);
        obstruct(&mut child, obstacle);
        let world = World {
            children: vec![child],
            agents: vec![agent],
            ..World::default()
        };
        judged(&world, &[node]).kinds["NodeWithoutVM"]
    };
    assert_eq!(named(Some(Reason::VmMissing)), 1);
    assert_eq!(named(Some(Reason::VmFolderDeleted)), 1);
    assert_eq!(named(Some(Reason::VmPoweredOff)), 0);
    assert_eq!(named(None), 0);
}

/// A view with the Agents of that world.
fn view(world: &World) -> Hub {
    let hub = Hub::default();
    hub.with(|o| o.agents = world.agents.clone());
    hub
}

fn judged(world: &World, nodes: &[NodeFacts]) -> Judgement {
    let s = world.observed();
    let known = known(&view(world), &s, nodes).expect("all is known");
    judge(nodes, &known, s.wall)
}

#[test]
fn the_chain_from_a_node_to_its_vm_goes_over_agent_and_serial_number() {
    let (child, agent, node) = serving("a", 30);
    let metal = with(foreign_agent("4c4c4544-0042-3510-8053-b4c04f4a4231"), |a| {
        let vendor = agent_forge_crds::external::agent::SystemVendor {
            manufacturer: Some("Dell Inc.".to_owned()),
            ..Default::default()
        };
        let status = a.status.get_or_insert_default();
        status.inventory.get_or_insert_default().system_vendor = Some(vendor);
    });
    let of_metal = NodeFacts {
        name: "metal".to_owned(),
        provider_id: Some(format!("agent://{}", metal.name_any())),
        ..NodeFacts::default()
    };
    let world = World {
        children: vec![child],
        agents: vec![agent, metal],
        ..World::default()
    };
    let found = judged(&world, &[of_metal.clone(), node.clone()]);
    assert_eq!((found.status.ours, found.status.ignored), (1, 1));
    assert_eq!(found.status.findings, []);
    let without = judged(&world, &[of_metal]);
    let kinds: Vec<&str> = without
        .status
        .findings
        .iter()
        .map(|f| f.kind.as_str())
        .collect();
    assert_eq!(kinds, ["VMWithoutNode"]);
    let young = with(world.clone(), |w| {
        let (child, agent, _) = serving("a", 19);
        (w.children, w.agents) = (vec![child], vec![agent]);
    });
    assert_eq!(judged(&young, &[]).status.findings, []);
    let leaving = with(world.clone(), |w| {
        crate::testing::delete(&mut w.children[0]);
    });
    assert_eq!(judged(&leaving, &[]).status.findings, []);
    let old = with(world.clone(), |w| {
        let status = w.children[0].status.as_mut();
        let vm = status.and_then(|s| s.vm.as_mut());
        vm.expect("a VM").hardware_version = Some(13);
    });
    let kinds = judged(&old, std::slice::from_ref(&node)).kinds;
    assert_eq!(kinds["OldHardwareVersion"], 1);
    let agentless = with(world, |w| w.agents.clear());
    let kinds = judged(&agentless, &[node]).kinds;
    assert_eq!(kinds["NodeWithoutAgent"], 1);
}

#[test]
fn what_is_not_seen_is_not_missing() {
    let (child, _, node) = serving("a", 30);
    let world = World {
        children: vec![child],
        ..World::default()
    };
    let s = world.observed();
    let hub = view(&world);
    assert!(known(&hub, &s, std::slice::from_ref(&node)).is_ok());
    let elsewhere = Observed {
        infra_env_key: crate::domain::names::ObjectKey::new("tenant", "infra"),
        ..with(world, |w| {
            w.pool.spec.infra_env_ref.namespace = Some("tenant".to_owned());
        })
        .observed()
    };
    let why = known(&hub, &elsewhere, &[node]).expect_err("no grant");
    assert!(why.contains("does not admit"), "{why}");
}

/// The status of a pool with that answer, after one that had found something.
fn shown(checked: &Checked) -> (VsphereAgentPoolStatus, PoolView) {
    let world = World::default();
    let s = world.observed();
    let outcome = Outcome {
        nodes: checked.clone(),
        ..Outcome::default()
    };
    let plan = plan(&s);
    let mut before = VsphereAgentPoolStatus::default();
    set(&mut before, &s, &Some(Ok(mismatch())));
    let status = status::render(&before, &s, &plan, &outcome);
    let view = status::view(&s, &plan, &outcome, &status);
    (status, view)
}

fn mismatch() -> Judgement {
    let (mut child, agent, node) = serving("a", 30);
    missing(&mut child);
    let world = World {
        children: vec![child],
        agents: vec![agent],
        ..World::default()
    };
    judged(&world, &[node])
}

#[test]
fn condition_status_and_metrics_say_the_same_and_ready_does_not_depend_on_them() {
    let down = ReconcileError::transient(ErrorSource::Kubernetes, Reason::HostedApiFailed, "down");
    for (so, checked, holds, counted) in [
        ("off", None, None, false),
        (
            "down",
            Some(Err(down)),
            Some(("Unknown", "HostedAPIFailed")),
            false,
        ),
        (
            "fits",
            Some(Ok(judge(&[], &Known::default(), at(0)))),
            Some(("True", "NodesMatch")),
            true,
        ),
        (
            "does not fit",
            Some(Ok(mismatch())),
            Some(("False", "NodesMismatch")),
            true,
        ),
    ] {
        let (status, view) = shown(&checked);
        let told = find_condition(&status.conditions, NODES_CONSISTENT);
        let told = told.map(|c| (c.status.as_str(), c.reason.as_str()));
        assert_eq!(told, holds, "{so}");
        assert_eq!(status.nodes.is_some(), counted, "{so}");
        assert_eq!(view.nodes.len(), if counted { 4 } else { 0 }, "{so}");
        let found: i64 = view.node_findings.values().sum();
        assert_eq!(found, i64::from(so == "does not fit"), "{so}");
        let ready = |status: &VsphereAgentPoolStatus| {
            let ready = find_condition(&status.conditions, "Ready").cloned();
            ready.map(|c| (c.status, c.reason, c.message))
        };
        assert_eq!(ready(&status), ready(&shown(&None).0), "{so}");
    }
}

#[test]
fn nothing_is_done_because_of_a_finding() {
    let (mut child, agent, _) = serving("a", 30);
    missing(&mut child);
    let mut world = World {
        children: vec![child],
        agents: vec![agent],
        ..World::waiting(&["a"])
    };
    let without = format!("{:?}", plan(&world.observed()).actions);
    asks(&mut world.pool);
    let s = world.observed();
    assert_eq!(format!("{:?}", plan(&s).actions), without);
}

/// Lets the pool's actor run one pass.
async fn pass(bench: &Bench, memory: Memory) -> Memory {
    let key = crate::domain::names::ObjectKey::new(crate::testing::NAMESPACE, crate::testing::POOL);
    let isos = Arc::new(crate::pool::traced::tests::OnTheirWay);
    let context = bench.context.clone();
    crate::pool::pass::run(context, isos, key, memory).await.0
}

#[tokio::test(start_paused = true)]
async fn a_destroyed_vm_is_named_in_the_pass_that_its_news_cause_without_another_read() {
    let mut bench = Bench::new();
    let hosted = Arc::new(Hosted::default());
    bench.context.nodes = hosted.access();
    let (child, agent, node) = serving("a", 30);
    hosted.answers(Ok(vec![node]));
    bench.hub.with(|o| {
        asks(o.pool.as_mut().expect("a pool"));
        (o.child, o.agents) = (Some(child), vec![agent]);
        let text = |t: &str| secrecy::SecretString::from(t.to_owned());
        o.secret = Some(SecretRead {
            data: [("kubeconfig".to_owned(), text("k"))].into(),
            ..SecretRead::default()
        });
    });
    let told = |bench: &Bench| {
        let pool = bench.hub.with(|o| o.pool.clone()).expect("a pool");
        let status = pool.status.expect("a status");
        let found = find_condition(&status.conditions, NODES_CONSISTENT).cloned();
        let found = found.expect("the condition");
        (found.status, found.reason, found.message)
    };
    let memory = pass(&bench, Memory::default()).await;
    assert_eq!(told(&bench).1, "NodesPending");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(hosted.woken(), 1, "the list is there");
    let memory = pass(&bench, memory).await;
    assert_eq!(told(&bench).1, "NodesMatch");
    let asked = hosted.asked().len();
    bench
        .hub
        .with(|o| missing(o.child.as_mut().expect("a child")));
    pass(&bench, memory).await;
    let (holds, reason, message) = told(&bench);
    assert_eq!(
        (holds.as_str(), reason.as_str()),
        ("False", "NodesMismatch")
    );
    assert!(
        message.contains("node-a") && message.contains("VM a"),
        "{message}"
    );
    assert_eq!(hosted.asked().len(), asked);
}
