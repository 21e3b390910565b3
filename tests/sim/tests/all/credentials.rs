//! The operator tries a corrected Secret within half a minute of virtual time, without a restart, whenever the
//! correction comes between two checks. Trust in certificates is not simulated here: tests/it/trust.rs tests it.

use std::time::Duration;

use agent_forge_sim::{
    kube::{
        kind,
        store::{Kind, Name, Store},
    },
    plan::Plan,
    run,
    world::{PASSWORD, SECRET, World},
};
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use serde_json::{Value, json};

/// The promised limit for a changed Secret.
const BOUND: Duration = Duration::from_secs(30);
/// How exactly the time is measured.
const GRAIN: Duration = Duration::from_millis(10);
/// The longest time that the test waits.
const PATIENCE: Duration = Duration::from_secs(900);
/// Seconds after the refusal at which the Secret is corrected: within the pause of the first check, and long after it.
const PHASES: [u64; 5] = [0, 7, 19, 60, 301];

/// What is wrong with the Secret at first.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Password,
    Missing,
}

impl Wrong {
    const fn reason(self) -> &'static str {
        match self {
            Self::Password => "InvalidCredentials",
            Self::Missing => "SecretNotFound",
        }
    }
}

/// Status and reason of the pool's `VsphereReady`.
fn told(world: &World) -> (String, String) {
    let all = world.of_pool("w", "/status/conditions");
    let mut all = all.as_array().into_iter().flatten();
    let found = all.find(|c| c["type"] == "VsphereReady");
    let text = |key: &str| found.and_then(|c| c[key].as_str()).unwrap_or_default();
    (text("status").to_owned(), text("reason").to_owned())
}

/// Waits until `done`, and returns the time that it took.
async fn until(world: &World, what: &str, mut done: impl FnMut() -> bool) -> Result<Duration> {
    let since = world.director.now();
    while !done() {
        ensure!(
            world.director.now() < since + PATIENCE,
            "not within {PATIENCE:?}: {what}, but {:?}",
            told(world)
        );
        tokio::time::sleep(GRAIN).await;
    }
    Ok(world.director.now().saturating_sub(since))
}

fn encoded(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Makes the Secret wrong, and returns its former content.
fn spoil(world: &World, wrong: Wrong) -> Result<Value> {
    let (secrets, name) = secret();
    let good = world.api.read(|s| s.get(&secrets, &name));
    let good = good.context("the Secret")?;
    let spoilt = match wrong {
        Wrong::Password => {
            let patch = json!({"data": {"password": encoded("not the password")}});
            world.api.merge(&secrets, &name, &patch).map(drop)
        }
        Wrong::Missing => world
            .api
            .write(|s, now| s.delete(&secrets, &name, &json!({}), now))
            .map(drop),
    };
    spoilt.map_err(|r| anyhow::anyhow!("{r:?}"))?;
    Ok(good["data"].clone())
}

fn mend(world: &World, wrong: Wrong, data: &Value) -> Result<()> {
    let (secrets, name) = secret();
    let mended = match wrong {
        Wrong::Password => {
            let patch = json!({"data": {"password": encoded(PASSWORD)}});
            world.api.merge(&secrets, &name, &patch).map(drop)
        }
        Wrong::Missing => {
            let again = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET.1}, "data": data,
            });
            let create = |s: &mut Store, now| s.create(&secrets, SECRET.0, again, now);
            world.api.write(create).map(drop)
        }
    };
    mended.map_err(|r| anyhow::anyhow!("{r:?}"))
}

fn secret() -> (Kind, Name) {
    let name = (SECRET.0.to_owned(), SECRET.1.to_owned());
    (kind("", "secrets"), name)
}

/// Time from the corrected Secret until the pool reports it.
async fn play(wrong: Wrong, phase: u64) -> Result<Duration> {
    let plan = Plan {
        workload: "credentials".to_owned(),
        seed: 1,
        faults: Vec::new(),
    };
    let mut world = World::start(&plan, 1).await?;
    let good = spoil(&world, wrong)?;
    world.pool("w", &json!({})).await?;
    let refused = ("False".to_owned(), wrong.reason().to_owned());
    until(&world, "a refusal", || told(&world) == refused).await?;
    tokio::time::sleep(Duration::from_secs(phase)).await;
    mend(&world, wrong, &good)?;
    let took = until(&world, "a login", || told(&world).0 == "True").await?;
    let broken = world.director.violations();
    ensure!(broken.is_empty(), "{broken:?}");
    Ok(took)
}

#[test]
fn a_changed_secret_is_tried_within_half_a_minute() {
    for wrong in [Wrong::Password, Wrong::Missing] {
        for phase in PHASES {
            let (took, panics) = run::in_virtual_time(play(wrong, phase));
            assert!(panics.is_empty(), "{panics:?}");
            let took = took.unwrap_or_else(|e| panic!("{wrong:?} after {phase} s: {e:#}"));
            assert!(took <= BOUND, "{wrong:?} after {phase} s: {took:?}");
        }
    }
}
