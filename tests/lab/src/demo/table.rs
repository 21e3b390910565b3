//! The table at the end.

use std::time::Duration;

use anyhow::Result;

use super::{
    promises::Promises,
    stage::Stage,
    track::Track,
    view::{header, row},
};

/// Prints times, counts, promises, and where to look next.
pub(super) async fn print(
    stage: &Stage,
    track: &Track,
    promises: &Promises,
    took: Duration,
) -> Result<()> {
    let voice = &stage.voice;
    voice.say(&format!(
        "done after {:.0} s; seconds after the scale-up:",
        took.as_secs_f64()
    ));
    voice.out(&format!("\n  {:<26}{}\n", "", header()));
    for (name, line) in &track.lines {
        voice.out(&format!("  {name:<26}{}\n", row(line)));
    }
    let vms = track.lines.len().max(1);
    let calls = stage.vcenter.calls().await?;
    let writes = stage.lab.audit().writes(&stage.access.user)?;
    let images = stage.upstream.images.counters();
    voice.out(&format!(
        "\n  vCenter requests  {:>5}  ({:.1} per VM, creation to destruction)\n",
        calls.total,
        calls.total as f64 / vms as f64,
    ));
    voice.out(&format!(
        "  vCenter logins    {:>5}  ({} to the Automation API, {} refused)\n",
        calls.logins("vim"),
        calls.logins("rest"),
        calls.logins("refused"),
    ));
    voice.out(&format!(
        "  Kubernetes writes {:>5}  ({:.1} per VM, Events included)\n",
        writes.total(),
        writes.total() as f64 / vms as f64
    ));
    voice.out(&format!(
        "  ISO downloads     {:>5}  ({:.1} MB)\n\n",
        images.completed,
        images.bytes as f64 / 1e6
    ));
    for (promise, held) in promises.list() {
        match held {
            Ok(()) => voice.out(&format!("  kept    {promise}\n")),
            Err(why) => voice.out(&format!("  BROKEN  {promise}: {why}\n")),
        }
    }
    voice.out(&format!(
        "\n  kubectl   KUBECONFIG={} kubectl get vap,va -A -o wide\n  metrics   {}\n  page      {}\n  log       {}\n",
        stage.lab.kubeconfig_admin_path().display(),
        stage.operator.metrics_url(),
        stage.operator.web_url(),
        stage.lab.dir().display()
    ));
    voice.out("  (available as long as the demo runs: keep it running with --keep)\n\n");
    Ok(())
}
