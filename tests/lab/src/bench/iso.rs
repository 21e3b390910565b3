//! `lab bench-iso`: how fast the operator downloads, hashes and uploads an ISO, compared with `curl | sha256sum` from
//! the same image server; and how much memory that takes.
//!
//! The time begins with the first GET at the image server and ends when the pool's status reports the ISO as ready. So
//! move, checks and the status write are included. The comparisons run one after the other on the idle lab; the best of
//! three counts.
//!
//! Two promises must hold on any machine, or the command fails: one transfer, and bounded buffers. Speed is only
//! printed.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args as ClapArgs;
use tokio::process::Command;

use super::{Plan, binary::Source, mib, proc, say, world::World};
use crate::played::{ImageOptions, assisted::image_server::ImageCounters};

/// Measure one ISO transfer.
#[derive(Clone, Debug, ClapArgs)]
pub struct Args {
    /// Size of the image.
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub mib: usize,
    /// The operator's program.
    #[command(flatten)]
    pub program: Source,
    /// Use a simulated vCenter without TLS, so that the upload costs as much as the download.
    #[arg(long)]
    pub plain: bool,
}

/// Measures and prints.
///
/// # Errors
/// A part does not start, the transfer does not end, `curl` or `sha256sum` is missing, or a promise is broken.
pub async fn run(args: Args) -> Result<()> {
    let path = args.program.program().await?;
    let program = args.program.inspect(&path)?;
    let plan = Plan {
        image: ImageOptions {
            size: args.mib << 20,
            volatile: false,
        },
        tls: !args.plain,
        ..Plan::brisk(0)
    };
    let world = World::without_pool(&path, &plan).await?;
    let pid = world.operator.process.pid();
    let before = proc::own(pid)?;
    let patch = serde_json::json!({});
    let (there, most) = proc::most(pid, world.with_iso(&patch)).await;
    there?;
    let ended = Instant::now();
    let images = &world.upstream.images;
    let begun = images.first_get().context("the image was asked for")?;
    let (asked, size) = (images.counters(), images.image_size());
    let usage = proc::usage(pid)?;
    let ours = ended - begun;

    let url = images.publish("bench", "compared");
    let file = world.lab.dir().join("compared.iso");
    let shown = file.display();
    shell(&format!("curl -sf '{url}' -o '{shown}'")).await?;
    let pipe = best(&format!("curl -sf '{url}' | sha256sum")).await?;
    let hash = best(&format!("sha256sum '{shown}'")).await?;
    let copy = best(&format!("curl -sf '{url}' -o /dev/null")).await?;
    std::fs::remove_file(&file).context("remove the compared file")?;

    let rate = |time: Duration| mib(size as u64) / time.as_secs_f64();
    let slower = hash.max(copy);
    let mut text = format!(
        "program               {} ({:.1} MB)\nimage                 {} MiB, vCenter {} TLS\n",
        program.made,
        program.bytes as f64 / 1e6,
        size >> 20,
        if args.plain { "without" } else { "with" }
    );
    for (what, time) in [
        ("download-hash-upload", ours),
        ("curl | sha256sum", pipe),
        ("sha256sum", hash),
        ("curl", copy),
    ] {
        let seconds = time.as_secs_f64();
        text += &format!("{what:<21} {seconds:.2} s, {:.0} MiB/s\n", rate(time));
    }
    text += &format!(
        "ratio                 {:.2} of curl | sha256sum, {:.2} of the slower of hash and copy\n",
        pipe.as_secs_f64() / ours.as_secs_f64(),
        slower.as_secs_f64() / ours.as_secs_f64()
    );
    text += &format!(
        "memory                {:.1} MiB resident at most; of its own {:.1} MiB before, {:.1} MiB at most while it passed\n",
        mib(usage.peak_bytes),
        mib(before),
        mib(most)
    );
    text += &format!(
        "processor             {:.2} s; load average {:.1}\n",
        usage.cpu_seconds,
        proc::load()?
    );
    say(&text)?;
    let broken = broken(&asked, size as u64, most.saturating_sub(before));
    ensure!(broken.is_empty(), "{}", broken.join("; "));
    Ok(())
}

/// Most memory for the operator's buffers, for any size of the image.
const BUFFERS: u64 = 16 << 20;

/// Promises that are broken, given the image server's counters and the growth of the operator's own memory in bytes.
fn broken(asked: &ImageCounters, size: u64, grown: u64) -> Vec<String> {
    let mut broken = Vec::new();
    if (asked.gets, asked.completed, asked.bytes) != (1, 1, size) {
        broken.push(format!(
            "more or less than one transfer of {size} bytes: {asked:?}"
        ));
    }
    if grown > BUFFERS {
        broken.push(format!(
            "its own memory grew by {grown} bytes while the image passed, {BUFFERS} are promised"
        ));
    }
    broken
}

async fn best(command: &str) -> Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..3 {
        best = best.min(shell(command).await?);
    }
    Ok(best)
}

/// Runs the command and returns the time it took.
async fn shell(command: &str) -> Result<Duration> {
    let begun = Instant::now();
    let status = Command::new("sh")
        .args(["-c", command])
        .stdout(Stdio::null())
        .status()
        .await
        .context("run sh")?;
    ensure!(
        status.success(),
        "a command of the comparison failed: {status}"
    );
    Ok(begun.elapsed())
}
