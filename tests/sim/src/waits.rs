//! Waiting for an ISO, or for a Secret: how long it takes from the end of the cause to the next step of who waits.
//!
//! The times are those of effects at the gate, or of what the pool reports. Each case runs at several moments between two resyncs, so that a resync
//! cannot be what helped.

use std::{fmt, future::Future, pin::Pin, time::Duration};

use agent_forge_actors::ports::effect::EffectKind;
use agent_forge_crds::names::FORCE_ISO_REFRESH_ANNOTATION;
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use serde_json::{Value, json};

use crate::{
    kube::{
        kind,
        store::{list, name_of, text},
    },
    plan::Point,
    run,
    vcenter::model::File,
    world::{NAMESPACE, PASSWORD, SECRET, World, at_home},
};

/// How long a case waits for each step.
const PATIENCE: Duration = Duration::from_secs(900);
/// Everything is at rest after this time.
const SETTLED: Duration = Duration::from_secs(300);
/// Moments after [`SETTLED`] at which the cause of the wait ends.
const PHASES: &[u64] = &[0, 17, 41];
/// Seconds after the refusal at which a Secret is corrected: within the pause of the first check, and long after it.
const OF_SECRETS: &[u64] = &[0, 7, 19, 60, 301];
/// How exactly times are measured.
const GRAIN: Duration = Duration::from_millis(10);
/// Number of machines that wait in each of two pools.
const MACHINES: usize = 25;

/// Time until the last of the waiting machines continued.
type Played<'a> = Pin<Box<dyn Future<Output = Result<Duration>> + 'a>>;

/// What ends a wait.
#[derive(Clone, Copy)]
pub struct Case {
    /// What happens, in a phrase.
    pub name: &'static str,
    /// How long it may take. The limit is shorter than a resync.
    pub bound: Duration,
    phases: &'static [u64],
    play: for<'a> fn(&'a mut World, Duration) -> Played<'a>,
}

/// The result of a case.
#[derive(Clone, Copy, Debug)]
pub struct Waited {
    /// The case.
    pub name: &'static str,
    /// The longest time that it took.
    pub longest: Duration,
    /// How long it may take.
    pub bound: Duration,
}

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (longest, bound) = (self.longest.as_secs_f64(), self.bound.as_secs());
        write!(f, "{}: {longest:.1} s, {bound} s allowed", self.name)
    }
}

/// Limit where an event informs the operator.
const TOLD: Duration = Duration::from_secs(3);
/// Limit where no event comes and the operator has to poll.
const LOOKED_FOR: Duration = Duration::from_secs(30);

macro_rules! cases {
    ($($name:literal $play:ident $bound:ident $phases:ident;)*) => {
        /// All cases.
        pub const ALL: &[Case] = &[$(Case {
            name: $name,
            bound: $bound,
            phases: $phases,
            play: |world, phase| Box::pin($play(world, phase)),
        },)*];
    };
}

// What happens, the function that plays it, its limit, and the phases.
cases! {
    "the InfraEnv gets its URL" url_comes TOLD PHASES;
    "the transfer ends for 50 machines of two pools" transfer_ends TOLD PHASES;
    "the InfraEnv gets another image" image_rotates TOLD PHASES;
    "a URL that had expired is renewed" url_is_renewed TOLD PHASES;
    "force-iso-refresh is set" is_forced TOLD PHASES;
    "a VM is made from an ISO that somebody deleted" iso_is_deleted TOLD PHASES;
    "the datastore appears in vCenter" datastore_comes LOOKED_FOR PHASES;
    "a wrong password is corrected" password_is_corrected LOOKED_FOR OF_SECRETS;
    "a missing Secret is there" secret_comes LOOKED_FOR OF_SECRETS;
}

/// Plays a case at each phase.
///
/// # Errors
/// The case does not end in time, or a promise was broken.
pub fn play(case: &Case) -> Result<Waited> {
    let mut longest = Duration::ZERO;
    for phase in case.phases {
        let (took, panics) = run::in_virtual_time(async {
            let mut world = World::start("waits").await?;
            let took = (case.play)(&mut world, Duration::from_secs(*phase)).await?;
            let broken = world.director.violations();
            ensure!(broken.is_empty(), "{broken:?}");
            anyhow::Ok(took)
        });
        ensure!(panics.is_empty(), "{panics:?}");
        longest = longest.max(took.with_context(|| format!("{}, phase {phase}", case.name))?);
    }
    Ok(Waited {
        name: case.name,
        longest,
        bound: case.bound,
    })
}

/// Waits until `done`, in steps of [`GRAIN`].
async fn exactly(world: &World, what: &str, mut done: impl FnMut() -> bool) -> Result<Duration> {
    let until = world.director.now() + PATIENCE;
    while !done() {
        ensure!(
            world.director.now() < until,
            "not within {PATIENCE:?}: {what}"
        );
        tokio::time::sleep(GRAIN).await;
    }
    Ok(world.director.now())
}

/// Time from `since` to the first matching effect.
async fn until_effect(
    world: &World,
    since: Duration,
    what: &str,
    fits: impl Fn(&Point) -> bool,
) -> Result<Duration> {
    let first = || {
        let effects = world.director.effects();
        let mut later = effects.iter().filter(|(at, p)| *at >= since && fits(p));
        later.next().map(|(at, _)| *at - since)
    };
    exactly(world, what, || first().is_some()).await?;
    first().context("it was there")
}

fn transfers(world: &World) -> usize {
    world.director.times(EffectKind::Upload)
}

async fn until_upload(world: &World, since: Duration) -> Result<Duration> {
    until_effect(world, since, "an upload", |p| p.is(EffectKind::Upload)).await
}

fn infra_env(world: &World, pointer: &str) -> Value {
    let object = world.api.get(&kind("infraenvs"), &at_home("demo"));
    let found = object.and_then(|o| o.pointer(pointer).cloned());
    found.unwrap_or_default()
}

/// Reason of the pool's condition.
fn reason(world: &World, condition: &str) -> String {
    let found = world.condition("w", condition);
    text(&found, "/reason").to_owned()
}

async fn a_ready_pool(world: &mut World, phase: Duration) -> Result<()> {
    world.pool("w", &json!({})).await?;
    let there = |w: &World| w.of_pool("w", "/status/iso/storedPath").is_string();
    exactly(world, "an ISO", || there(world)).await?;
    tokio::time::sleep(SETTLED + phase).await;
    Ok(())
}

async fn url_comes(world: &mut World, phase: Duration) -> Result<Duration> {
    let service = world.upstream.service(NAMESPACE)?;
    service.withhold_image("demo", true);
    let url = |w: &World| infra_env(w, "/status/isoDownloadURL");
    let none = |w: &World| url(w).as_str().is_none_or(str::is_empty);
    exactly(world, "no URL", || none(world)).await?;
    world.pool("w", &json!({})).await?;
    tokio::time::sleep(SETTLED + phase).await;
    ensure!(reason(world, "ISOReady") == "ISOURLPending");
    let service = world.upstream.service(NAMESPACE)?;
    service.withhold_image("demo", false);
    let since = exactly(world, "a URL", || !none(world)).await? - GRAIN;
    until_upload(world, since).await
}

/// Names of the VsphereAgents that wait for the ISO.
fn waiting(world: &World) -> Vec<String> {
    let mut names = Vec::new();
    for child in world.api.list(&kind("vsphereagents"), NAMESPACE) {
        let mut rows = list(&child, "/status/waitingOn").iter();
        if rows.any(|row| row["reason"] == "IsoNotReady") {
            names.push(name_of(&child).1);
        }
    }
    names
}

async fn transfer_ends(world: &mut World, phase: Duration) -> Result<Duration> {
    world.hold.set(true);
    for pool in ["w", "x"] {
        world.pool(pool, &json!({})).await?;
        world.play(pool)?.scale(MACHINES);
    }
    let all = |w: &World| waiting(w).len() == 2 * MACHINES;
    exactly(world, "fifty that wait", || all(world)).await?;
    tokio::time::sleep(phase).await;
    let names = waiting(world);
    ensure!(names.len() == 2 * MACHINES, "{} wait", names.len());
    ensure!(transfers(world) == 1, "{} transfers", transfers(world));
    let since = world.director.now();
    world.hold.set(false);
    let mut longest = Duration::ZERO;
    for name in names {
        // The machine's next effect: it records the identity of its VM, or creates the VM.
        let key = format!("{NAMESPACE}/{name}");
        let next = |p: &Point| {
            let is_next = p.is(EffectKind::RecordIdentity) || p.is(EffectKind::CreateVm);
            p.key == key && is_next
        };
        longest = longest.max(until_effect(world, since, &key, next).await?);
    }
    ensure!(transfers(world) == 1, "{} transfers", transfers(world));
    Ok(longest)
}

async fn image_rotates(world: &mut World, phase: Duration) -> Result<Duration> {
    a_ready_pool(world, phase).await?;
    let url = |w: &World| infra_env(w, "/status/isoDownloadURL");
    let before = url(world);
    let service = world.upstream.service(NAMESPACE)?;
    service.rotate_image("demo").await?;
    let another = |w: &World| {
        let now = url(w);
        now != before && now.as_str().is_some_and(|u| !u.is_empty())
    };
    let since = exactly(world, "another URL", || another(world)).await? - GRAIN;
    until_upload(world, since).await
}

/// A person asks for the ISO anew.
fn force_refresh(world: &World) -> Result<()> {
    let patch = json!({"metadata": {"annotations": {FORCE_ISO_REFRESH_ANNOTATION: "1"}}});
    world.merge_pool("w", &patch)
}

async fn is_forced(world: &mut World, phase: Duration) -> Result<Duration> {
    a_ready_pool(world, phase).await?;
    let since = world.director.now();
    force_refresh(world)?;
    until_upload(world, since).await
}

async fn url_is_renewed(world: &mut World, phase: Duration) -> Result<Duration> {
    a_ready_pool(world, Duration::ZERO).await?;
    world.upstream.images.revoke(NAMESPACE, "demo");
    force_refresh(world)?;
    let failed = |w: &World| reason(w, "ISOReady") == "ISODownloadFailed";
    exactly(world, "that it failed", || failed(world)).await?;
    tokio::time::sleep(SETTLED + phase).await;
    let url = world.upstream.images.publish(NAMESPACE, "demo");
    let since = world.director.now();
    let service = world.upstream.service(NAMESPACE)?;
    service.set_image_url("demo", &url).await?;
    until_upload(world, since).await
}

/// Time from the create to the upload of the ISO that the VM needs.
async fn iso_is_deleted(world: &mut World, phase: Duration) -> Result<Duration> {
    a_ready_pool(world, phase).await?;
    let keep = |(_, path): &(String, String), _: &mut File| !path.ends_with(".iso");
    world.vcenter.write(|i| i.files.retain(keep));
    let since = world.director.now();
    world.play("w")?.scale(1);
    let create = |p: &Point| p.is(EffectKind::CreateVm);
    let made = until_effect(world, since, "a create", create).await?;
    let sent = until_upload(world, since).await?;
    Ok(sent.saturating_sub(made))
}

async fn datastore_comes(world: &mut World, phase: Duration) -> Result<Duration> {
    let rename = |world: &World, from: &str, to: &str| {
        world.vcenter.write(|i| {
            let stores = i.nodes.iter_mut().filter(|(r, _)| r.kind == "Datastore");
            for (_, store) in stores.filter(|(_, n)| n.name == from) {
                store.name = to.to_owned();
            }
        });
    };
    rename(world, "iso-datastore", "not-yet");
    world.pool("w", &json!({})).await?;
    tokio::time::sleep(SETTLED + phase).await;
    let why = reason(world, "ISOReady");
    ensure!(!why.is_empty() && transfers(world) == 0, "{why}");
    let since = world.director.now();
    rename(world, "not-yet", "iso-datastore");
    until_upload(world, since).await
}

/// Waits until the pool says why it does not log in, and that time. Then `mend` corrects it, and a login follows.
async fn mended(
    world: &mut World,
    phase: Duration,
    why: &str,
    mend: impl FnOnce(&World) -> Result<()>,
) -> Result<Duration> {
    world.pool("w", &json!({})).await?;
    let said = |w: &World| reason(w, "VsphereReady") == why;
    exactly(world, why, || said(world)).await?;
    tokio::time::sleep(phase).await;
    let since = world.director.now();
    mend(world)?;
    let ready = |w: &World| w.condition("w", "VsphereReady")["status"] == "True";
    Ok(exactly(world, "a login", || ready(world)).await? - since)
}

async fn password_is_corrected(world: &mut World, phase: Duration) -> Result<Duration> {
    let set = |world: &World, password: &str| {
        let encoded = base64::engine::general_purpose::STANDARD.encode(password);
        let patch = json!({"data": {"password": encoded}});
        (world.api).merge(&kind("secrets"), &at_home(SECRET.1), &patch)
    };
    set(world, "not the password")?;
    let mend = |world: &World| Ok(set(world, PASSWORD).map(drop)?);
    mended(world, phase, "InvalidCredentials", mend).await
}

async fn secret_comes(world: &mut World, phase: Duration) -> Result<Duration> {
    let (secrets, name) = (kind("secrets"), at_home(SECRET.1));
    let good = world.api.get(&secrets, &name);
    let good = good.context("the Secret")?;
    world.api.delete(&secrets, &name)?;
    let again = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET.1}, "data": good["data"],
    });
    let mend = |world: &World| Ok(world.api.create(&secrets, SECRET.0, again).map(drop)?);
    mended(world, phase, "SecretNotFound", mend).await
}
