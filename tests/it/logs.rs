//! What the log at `info` reports about a machine's life; and that a variable turns traces off.

use agent_forge_actors::domain::goal;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{
    collector::{By, Collector},
    world::{Setup, World},
};

/// A field of the line, or of the innermost of its spans that has it.
fn field<'a>(line: &'a Value, name: &str) -> Option<&'a str> {
    let spans = line["spans"].as_array().into_iter().flatten().rev();
    let places = [&line["fields"]].into_iter().chain(spans);
    places.filter_map(|p| p[name].as_str()).next()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_tells_a_machines_life() -> Result<()> {
    let collector = Collector::start().await?;
    let mut operator_env = collector.environment(By::Http)?;
    operator_env.push(("OTEL_SDK_DISABLED".to_owned(), "true".to_owned()));
    let mut world = World::start(Setup {
        operator_args: vec!["--log-format=json".to_owned()],
        operator_env,
        ..Setup::default()
    })
    .await?;
    let nodes = world.up(1).await?;
    world.settled(1).await?;
    let child = world.only_child().await?;
    let name = child.metadata.name.clone().context("its name")?;
    let uid = child.metadata.uid.clone().context("its uid")?;
    let machine = goal::wanted_by(&child).map(str::to_owned);
    let trace = child.status.and_then(|s| s.trace_id).context("its trace")?;
    nodes.scale(0);
    world.settled(0).await?;
    let log = world.operator()?;
    let log = log.process.log().to_owned();
    world.stop_operator().await?;
    let mut lines: Vec<Value> = Vec::new();
    for line in std::fs::read_to_string(&log)?.lines() {
        lines.push(serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?);
    }
    let object = format!("{}/{name}", world.namespace());
    for message in [
        "effect create",
        "effect power_on",
        "effect prepare_agent",
        "effect destroy",
        "effect delete_agent",
        "effect remove_child_finalizer",
    ] {
        // Lines of the pool name the AgentMachine. Lines of the VM's actor name the VsphereAgent.
        let line = lines.iter().find(|l| {
            let of_it = field(l, "trace_id") == Some(trace.as_str());
            l["fields"]["message"] == message && of_it
        });
        let line = line.with_context(|| format!("no line {message:?} of {object}"))?;
        let spans = line["spans"].as_array().cloned().unwrap_or_default();
        if spans.iter().any(|s| s["name"] == "vm.step") {
            ensure!(field(line, "object") == Some(object.as_str()), "{line}");
            ensure!(field(line, "uid") == Some(uid.as_str()), "{line}");
        }
        if spans.iter().any(|s| s["name"] == "pool.action") {
            ensure!(field(line, "uid") == machine.as_deref(), "{line}");
        }
    }
    for event in [
        "Placed",
        "Created",
        "PoweredOn",
        "Discovered",
        "Bound",
        "Deleting",
    ] {
        let told = lines.iter().any(|l| {
            l["fields"]["message"] == "milestone"
                && l["fields"]["event"] == event
                && l["fields"]["object"] == object.as_str()
        });
        ensure!(told, "no line of {event}");
    }
    let sent = collector.spans().len();
    ensure!(
        sent == 0,
        "{sent} spans left although OTEL_SDK_DISABLED is true"
    );
    Ok(())
}
