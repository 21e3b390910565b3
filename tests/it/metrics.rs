//! What a scrape shows of one machine's life, read by Prometheus' own parser.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use agent_forge_lab::tools::promtool;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::world::{LIMIT, POOL, World};

fn judged_by_prometheus(scrape: &str) -> Result<()> {
    let mut child = Command::new(promtool()?)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("its input")?;
    input.write_all(scrape.as_bytes())?;
    drop(input);
    let output = child.wait_with_output()?;
    let told = [output.stdout, output.stderr].concat();
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&told)
    );
    Ok(())
}

/// Value of the series that starts with `series`.
pub fn value(scrape: &str, series: &str) -> Option<f64> {
    let line = scrape.lines().find(|l| l.starts_with(series))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// What a scrape shows of the two machines of this world.
pub async fn of_two_machines(world: &World) -> Result<()> {
    let operator = world.operator()?;
    let of_pool = of_pool(world);
    for until in [
        "accepted",
        "iso_ready",
        "placed",
        "created",
        "powered_on",
        "discovered",
        "bound",
        "installed",
    ] {
        let series =
            format!("agent_forge_machine_duration_seconds_count{{{of_pool},until=\"{until}\"");
        world
            .until(&format!("two machines {until}"), async || {
                Ok(value(&operator.metrics().await?, &series) == Some(2.0))
            })
            .await?;
    }
    // A scrape may come just after a message was sent.
    for kind in ["vm", "sessions", "iso_cache"] {
        let depth = format!("agent_forge_actor_mailbox_depth{{kind=\"{kind}\"}}");
        world
            .until(&format!("{depth} at rest"), async || {
                Ok(value(&operator.metrics().await?, &depth) == Some(0.0))
            })
            .await?;
    }
    let scrape = operator.metrics().await?;
    judged_by_prometheus(&scrape)?;
    for (series, expected) in [
        ("agent_forge_leader", 1.0),
        ("agent_forge_vsphere_sessions", 1.0),
        ("agent_forge_actors{kind=\"vm\"}", 2.0),
        ("agent_forge_trace_phases_dropped_total", 0.0),
    ] {
        let found = value(&scrape, series);
        ensure!(found == Some(expected), "{series}: {found:?}\n{scrape}");
    }
    // These also have the vCenter as a label.
    for (family, expected) in [
        ("agent_forge_vsphere_tasks_in_flight{server=", 0.0),
        (
            "agent_forge_vsphere_task_duration_seconds_count{server=",
            2.0,
        ),
    ] {
        let creates = "task=\"create\"}";
        let series = scrape
            .lines()
            .find(|l| l.starts_with(family) && l.contains(creates));
        let found = series.and_then(|s| value(&scrape, s));
        ensure!(found == Some(expected), "{family}: {found:?}\n{scrape}");
    }
    let actors = world.actors(LIMIT).await?;
    let of_vms = format!("vm/{}/", world.namespace());
    let is_vm = |a: &Value| a["name"].as_str().is_some_and(|n| n.starts_with(&of_vms));
    let vm = actors.iter().find(|a| is_vm(a));
    ensure!(vm.is_some_and(|a| a["mailbox"].is_number()), "{actors:?}");
    Ok(())
}

fn of_pool(world: &World) -> String {
    format!("namespace=\"{}\",pool=\"{POOL}\"", world.namespace())
}

/// Waits until a scrape shows that both are gone.
pub async fn of_their_end(world: &World) -> Result<()> {
    let operator = world.operator()?;
    let of_pool = of_pool(world);
    let destroyed =
        format!("agent_forge_machine_duration_seconds_count{{{of_pool},until=\"destroyed\"");
    world
        .until("two machines destroyed", async || {
            Ok(value(&operator.metrics().await?, &destroyed) == Some(2.0))
        })
        .await?;
    Ok(())
}

/// Waits until no scrape shows anything of the pool, which is deleted.
pub async fn forget_the_pool(world: &World) -> Result<()> {
    let operator = world.operator()?;
    let of_pool = of_pool(world);
    world
        .until("no series of the pool", async || {
            Ok(!operator.metrics().await?.contains(&of_pool))
        })
        .await?;
    // The series of its vCenter and datastore disappear too, once the operator has logged out there.
    for family in [
        "agent_forge_vsphere_requests_total{",
        "agent_forge_vsphere_request_duration_seconds_bucket{",
        "agent_forge_vsphere_task_duration_seconds_bucket{",
        "agent_forge_vsphere_tasks_in_flight{",
        "agent_forge_iso_transfer_duration_seconds_bucket{",
    ] {
        world
            .until(&format!("no series of {family}"), async || {
                Ok(!operator.metrics().await?.contains(family))
            })
            .await?;
    }
    Ok(())
}
