//! The closing table.

use std::time::Duration;

use anyhow::Result;

use super::{
    promises::Promises,
    stage::Stage,
    track::Track,
    view::{self, header, out, row},
};

/// Prints times, counts, promises, and where to look next.
pub(super) async fn print(
    stage: &Stage,
    track: &Track,
    promises: &Promises,
    took: Duration,
) -> Result<()> {
    view::say(&format!(
        "done after {:.0} s; seconds after the scale-up:",
        took.as_secs_f64()
    ));
    out(&format!("\n  {:<26}{}\n", "", header()));
    for (name, line) in &track.lines {
        out(&format!("  {name:<26}{}\n", row(line)));
    }
    let vms = track.lines.len().max(1);
    let calls = stage.vcenter.calls().await?;
    let writes = stage.lab.audit().writes(&stage.access.user)?;
    let images = stage.upstream.images.counters();
    out(&format!(
        "\n  vCenter requests  {:>5}  ({:.1} per VM, creation to destruction), logins {:?}\n",
        calls.total,
        calls.total as f64 / vms as f64,
        calls.logins
    ));
    out(&format!(
        "  Kubernetes writes {:>5}  ({:.1} per VM, Events included)\n",
        writes.total(),
        writes.total() as f64 / vms as f64
    ));
    out(&format!("  ISO downloads     {images:?}\n\n"));
    for (promise, held) in promises.list() {
        match held {
            Ok(()) => out(&format!("  kept    {promise}\n")),
            Err(why) => out(&format!("  BROKEN  {promise}: {why}\n")),
        }
    }
    out(&format!(
        "\n  kubectl   KUBECONFIG={} kubectl get vap,va -A -o wide\n  metrics   {}\n  actors    {}/actors\n  log       {}\n",
        stage.lab.kubeconfig_admin_path().display(),
        stage.operator.metrics_url(),
        stage.operator.debug_url(),
        stage.lab.dir().display()
    ));
    out("  (these live as long as the demo: keep it with --keep)\n\n");
    Ok(())
}
