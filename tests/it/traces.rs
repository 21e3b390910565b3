//! One trace per machine, whatever happens to the operator.

use std::collections::BTreeSet;

use agent_forge_actors::domain::trace::TraceId;
use agent_forge_lab::{demo::PHASES, parts::vcenter_trouble::Rule};
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use opentelemetry_proto::tonic::trace::v1::{Span, span::Event};

use crate::{
    collector::{By, Collector, Tree, text},
    world::{POOL, Setup, World},
};

#[tokio::test(flavor = "multi_thread")]
async fn one_machine_is_one_trace_over_a_killed_operator() -> Result<()> {
    let collector = Collector::start().await?;
    let mut world = World::start(Setup {
        operator_env: collector.environment(By::Http)?,
        ..Setup::default()
    })
    .await?;
    // One call gets a useless answer: that gives a fault, a wait and a retry.
    let rule = Rule::answers("ReconfigVM_Task", 503).times(1);
    let rule = world.vcenter.add_rule(&rule).await?;
    let nodes = world.wanted(1).await?;
    let timeline = async |world: &World| -> Result<Vec<String>> {
        let child = world.all_children().await?.pop();
        let status = child.and_then(|c| c.status).unwrap_or_default();
        Ok(status.timeline.into_iter().map(|m| m.event).collect())
    };
    world
        .until("a VM that is on", async || {
            Ok(timeline(&world).await?.iter().any(|e| e == "PoweredOn"))
        })
        .await?;
    // Wait until the spans about the creation were sent, then kill the first process.
    world
        .until("the phase of the creation", async || {
            let all = collector.spans();
            let told = |name: &str| all.iter().any(|s| s.name == name);
            let retried = |s: &Span| s.name.starts_with("vm.") && event(s, "retry").is_some();
            let retried = all.iter().any(retried);
            Ok(told("vm.create") && told("machine.wait") && retried)
        })
        .await?;
    ensure!(world.vcenter.rule_hits(&rule).await? == Some(1));
    world.setup.operator_env = collector.environment(By::Grpc)?;
    world.crash().await?;
    world.running(&nodes, 1).await?;
    world.settled(1).await?;
    let machine = world.agent_machines().list(&Default::default()).await?;
    let uid = machine
        .items
        .first()
        .and_then(|am| am.uid())
        .context("an AgentMachine")?;
    let trace = TraceId::of_machine(&uid).to_string();
    let child = world.only_child().await?;
    let said = child.status.and_then(|s| s.trace_id);
    ensure!(said.as_ref() == Some(&trace), "{said:?} instead of {trace}");
    world
        .until("the last phase to a ready Node", async || {
            Ok(collector.spans().iter().any(|s| s.name == "node.ready"))
        })
        .await?;
    nodes.scale(0);
    world.settled(0).await?;
    // The end of the process sends the remaining spans.
    world.stop_operator().await?;
    let all = collector.spans();
    let tree = Tree::of(collector.told(), &trace)?;
    ensure!(tree.raw == tree.spans.len() + tree.repeated);
    two_pods_one_trace(&collector, &trace)?;

    // The phases: each once, one after the other, under one root, none abandoned.
    let mut end = 0;
    for name in PHASES {
        let [phase] = tree.named(name)[..] else {
            anyhow::bail!("{} spans named {name}", tree.named(name).len())
        };
        ensure!(
            phase.parent_span_id.is_empty() == (name == "machine.demand"),
            "{name} has the wrong parent"
        );
        ensure!(
            phase.start_time_unix_nano >= end
                && phase.end_time_unix_nano >= phase.start_time_unix_nano,
            "{name} overlaps the phase before it"
        );
        ensure!(
            phase.status.as_ref().is_none_or(|s| s.code == 0),
            "{name}: {:?}",
            phase.status
        );
        end = phase.end_time_unix_nano;
    }
    ensure!(
        tree.repeated >= 4,
        "the second process told only {} phases again",
        tree.repeated
    );
    for span in tree.spans.values() {
        ensure!(
            tree.path(span)?[0] == "machine.demand",
            "a second root: {span:?}"
        );
    }
    // The spans of calls are below their phases.
    for (call, phase) in [
        ("CreateVM_Task", "vm.create"),
        ("PowerOnVM_Task", "vm.power_on"),
        ("Destroy_Task", "vm.destroy"),
        ("create", "machine.demand"),
    ] {
        let calls = tree.named(call);
        ensure!(calls.len() == 1, "{} calls {call}", calls.len());
        let path = tree.path(calls[0])?;
        ensure!(path.iter().any(|n| n == phase), "{call} stands at {path:?}");
        ensure!(calls[0].kind == 3, "{call} is no client span");
    }
    // That also holds for calls that another actor makes for the machine: the search for a place.
    let searches = tree.spans.values().any(|s| {
        let in_vcenter = text(&s.attributes, "rpc.system").as_deref() == Some("vsphere");
        in_vcenter
            && tree
                .path(s)
                .is_ok_and(|p| p.iter().any(|n| n == "vm.place"))
    });
    ensure!(searches, "no call to vCenter stands in vm.place");
    // The reads and writes of passes are in the trace too.
    let writes: Vec<&Span> = all.iter().filter(|s| writes_its_status(s)).collect();
    let stray = writes.iter().find(|s| !tree.spans.contains_key(&s.span_id));
    ensure!(stray.is_none(), "outside the machine's trace: {stray:?}");
    let published: Vec<&Span> = writes
        .into_iter()
        .filter(|s| text(&s.attributes, "agent_forge.step").as_deref() == Some("vm.publish"))
        .collect();
    ensure!(!published.is_empty(), "no pass wrote what it found");
    for write in published {
        let path = tree.path(write)?;
        ensure!(path.len() <= 3 && path[0] == "machine.demand", "{path:?}");
    }
    // Work is linked to the pass that did it, and a pass to the wakes that led to it.
    let linked = |name: &str| all.iter().any(|s| s.name == name && !s.links.is_empty());
    ensure!(linked("vm.submit_create") && linked("vm.pass") && linked("pool.pass"));
    waits_and_faults(&tree)?;
    nothing_secret(&world, &all)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_dies_in_the_middle_of_a_step_leaves_no_orphans() -> Result<()> {
    let collector = Collector::start().await?;
    let mut world = World::start(Setup {
        operator_env: collector.environment(By::Http)?,
        ..Setup::default()
    })
    .await?;
    world.until_true(POOL, "ISOReady").await?;
    // The step does not hear that its task has ended. The span of its call has been sent by then.
    let deaf = Rule::hangs("WaitForUpdatesEx");
    let deaf = world.vcenter.add_rule(&deaf).await?;
    let nodes = world.wanted(1).await?;
    let told = |name: &str| collector.spans().into_iter().find(|s| s.name == name);
    world
        .until("the call that makes the VM", async || {
            Ok(told("CreateVM_Task").is_some())
        })
        .await?;
    world.operator.take().context("an operator")?.kill().await?;
    ensure!(told("vm.submit_create").is_none(), "the step was over");
    let call = told("CreateVM_Task").context("the call")?;
    // The present phase ends without a host.
    nodes.scale(0);
    world.vcenter.remove_rule(&deaf).await?;
    world.start_operator().await?;
    world.settled(0).await?;
    world.stop_operator().await?;
    let tree = Tree::of(collector.told(), &hex::encode(&call.trace_id))?;
    let path = tree.path(&call)?;
    ensure!(
        path == ["machine.demand", "vm.create", "CreateVM_Task"],
        "{path:?}"
    );
    let step = text(&call.attributes, "agent_forge.step");
    ensure!(step.as_deref() == Some("vm.submit_create"), "{step:?}");
    for span in tree.spans.values() {
        ensure!(
            tree.path(span)?[0] == "machine.demand",
            "an orphan: {span:?}"
        );
    }
    Ok(())
}

/// Both processes sent spans of the machine. Live spans name their process, phases do not.
fn two_pods_one_trace(collector: &Collector, trace: &str) -> Result<()> {
    let trace = hex::decode(trace)?;
    let mut pods = BTreeSet::new();
    for told in collector.told() {
        if told.span.trace_id != trace {
            continue;
        }
        let of_installation = ["service.name", "service.namespace"].map(|k| told.of_resource(k));
        ensure!(
            of_installation == [Some("agent-forge".to_owned()), Some("lab".to_owned())],
            "{told:?}"
        );
        let of_process = ["k8s.pod.name", "service.version"].map(|k| told.of_resource(k).is_some());
        let is_phase = told.scope.as_deref() == Some("agent-forge.phases");
        ensure!(of_process == [!is_phase; 2], "{told:?}");
        pods.extend(told.of_resource("k8s.pod.name"));
    }
    ensure!(pods.len() == 2, "{pods:?}");
    Ok(())
}

/// Whether the span is a write of a VsphereAgent's status.
fn writes_its_status(span: &Span) -> bool {
    let object = text(&span.attributes, "object").unwrap_or_default();
    span.name == "update status" && object.starts_with("VsphereAgent ")
}

/// An event of a span.
fn event<'a>(span: &'a Span, name: &str) -> Option<&'a Event> {
    span.events.iter().find(|e| e.name == name)
}

/// The trace shows why the machine waited, and what failed and was tried again.
fn waits_and_faults(tree: &Tree) -> Result<()> {
    // The expected fault. There may be others, for example conflicts of the pool with other writers.
    let of_vcenter = |s: &&Span| {
        let fault = event(s, "fault");
        fault.is_some_and(|f| text(&f.attributes, "side").as_deref() == Some("Vsphere"))
    };
    let failed = tree.spans.values().find(of_vcenter);
    let failed = failed.context("a step with a fault")?;
    let fault = event(failed, "fault").context("a fault")?;
    let reason = text(&fault.attributes, "reason").context("its reason")?;
    ensure!(
        text(&failed.attributes, "error.type").as_ref() == Some(&reason),
        "{failed:?}"
    );
    let again = tree.named(&failed.name);
    let again = again.iter().find_map(|s| event(s, "retry"));
    let attempt = text(&again.context("its retry")?.attributes, "attempt");
    ensure!(attempt.as_deref() == Some("2"), "{attempt:?}");
    let waits = tree.named("machine.wait");
    let wait = waits
        .iter()
        .find(|s| text(&s.attributes, "agent_forge.waiting_on").as_ref() == Some(&reason));
    let wait = wait.with_context(|| format!("a wait for {reason} among {waits:?}"))?;
    ensure!(wait.end_time_unix_nano >= wait.start_time_unix_nano);
    Ok(())
}

fn nothing_secret(world: &World, all: &[Span]) -> Result<()> {
    let account = world.process.options();
    for span in all {
        let told = format!("{span:?}");
        for secret in [
            account.username.as_str(),
            account.password.as_str(),
            "/byid/",
            "image_token",
            "api_key",
            "https://",
            "http://",
        ] {
            ensure!(!told.contains(secret), "{secret:?} stands in {told}");
        }
        ensure!(
            text(&span.attributes, "url.full").is_none(),
            "a URL stands in {}",
            span.name
        );
    }
    Ok(())
}
