//! `--jaeger`: each machine's trace, read from Jaeger's query API.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, bail};
use tokio::time::{Instant, sleep};

use super::stage::Stage;
use crate::{
    parts::{Jaeger, Trace},
    patience::ANSWER,
};

/// Phases of a machine that served and is gone. All but the last are those of one that serves.
pub const PHASES: [&str; 11] = [
    "machine.demand",
    "iso.wait",
    "vm.place",
    "vm.create",
    "vm.power_on",
    "agent.discovery",
    "agent.prepare",
    "agent.bind",
    "agent.install",
    "node.ready",
    "vm.destroy",
];

/// Names and trace ids of the existing machines.
pub(super) async fn ids(stage: &Stage) -> Result<BTreeMap<String, String>> {
    let seen = stage.look().await?;
    let id = |c: &agent_forge_crds::VsphereAgent| {
        let name = c.metadata.name.clone()?;
        Some((name, c.status.as_ref()?.trace_id.clone()?))
    };
    Ok(seen.children.iter().filter_map(id).collect())
}

/// What is wrong with a trace.
fn fault(trace: &Trace, gone: bool) -> Option<String> {
    let (orphans, roots) = trace.orphans_and_roots();
    if !orphans.is_empty() {
        return Some(format!("spans without their parent: {orphans:?}"));
    }
    if roots != ["machine.demand"] {
        return Some(format!("roots: {roots:?}"));
    }
    let differing = trace.differing();
    if !differing.is_empty() {
        return Some(format!(
            "spans sent twice with different content: {differing:?}"
        ));
    }
    let [up @ .., _] = &PHASES;
    for phase in if gone { &PHASES[..] } else { up } {
        if trace.named(phase) != 1 {
            return Some(format!("{} spans {phase}", trace.named(phase)));
        }
    }
    None
}

/// Waits until Jaeger has the complete trace of each machine.
pub(super) async fn check(
    stage: &Stage,
    jaeger: &Jaeger,
    all: &BTreeMap<String, String>,
) -> Result<()> {
    let still = ids(stage).await?;
    let end = Instant::now() + ANSWER;
    for (name, id) in all {
        loop {
            let trace = jaeger.trace(id).await?;
            let wrong = match &trace {
                None => Some("Jaeger does not have it".to_owned()),
                Some(trace) => fault(trace, !still.contains_key(name)),
            };
            let Some(wrong) = wrong else {
                let trace = trace.context("a trace")?;
                let (spans, raw) = (trace.spans.len(), trace.raw);
                stage.voice.say(&format!(
                    "Jaeger has one trace of {name}: {id}, {spans} spans, sent {raw} times"
                ));
                break;
            };
            if Instant::now() > end {
                bail!("trace {id} of {name}: {wrong}");
            }
            sleep(Duration::from_millis(250)).await;
        }
    }
    Ok(())
}
