//! What happens to the operator in a run, besides faults.

use std::time::Duration;

use agent_forge_actors::ports::vcenter::error::AWAY;
use anyhow::Result;
use futures::future::BoxFuture;
use serde_json::json;

use crate::{oracles, world::World};

mod away;
mod disaster;
mod guests;
mod moves;
mod predecessor;
mod rogues;
mod site;
mod tenants;

/// A workload.
#[derive(Clone, Copy)]
pub struct Workload {
    /// Name in plans, after the design's S1-S16.
    pub name: &'static str,
    /// What it does, in a phrase.
    pub text: &'static str,
    /// Faults do not change how many VMs it takes: nothing in it races.
    pub exact: bool,
    /// Instances of the operator; of two, the one with the lease acts.
    pub instances: usize,
    /// Does it.
    pub run: for<'a> fn(&'a mut Run) -> BoxFuture<'a, Result<()>>,
}

/// A run of a workload.
pub struct Run {
    /// Its world.
    pub world: World,
    /// The pictures at rest, in order.
    pub rests: Vec<Rest>,
    /// How long each rest may take beyond the causes of faults.
    pub patience: Duration,
    /// Since when what happens is this workload's own: faults come after that.
    pub begins: Duration,
}

/// A moment when nothing moves any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// What was waited for.
    pub name: &'static str,
    /// The state.
    pub picture: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// No effect for that long is rest.
const QUIET: Duration = Duration::from_secs(130);
/// What comes before a fault may wait for it: none lasts longer.
const ANY_OUTAGE: Duration = Duration::from_secs(7200);
/// How long a rest may take (O9): ten minutes after the last cause of trouble.
const PATIENCE: Duration = Duration::from_secs(600);

impl Run {
    /// A run in that world.
    #[must_use]
    pub fn new(world: World) -> Self {
        Self {
            world,
            rests: Vec::new(),
            patience: PATIENCE,
            begins: Duration::ZERO,
        }
    }

    /// Waits for `done`, then for quiet, and takes a picture.
    ///
    /// # Errors
    /// It does not come about in time.
    pub async fn rest(&mut self, name: &'static str, done: impl Fn(&World) -> bool) -> Result<()> {
        let began = self.world.director.now();
        let world = &self.world;
        world.patiently(name, self.patience, || done(world)).await?;
        let took = world.director.now().saturating_sub(began);
        self.quiet().await?;
        let broken = oracles::at_rest(&self.world);
        for what in broken {
            self.world
                .director
                .violated(format!("at rest {name:?}: {what}"));
        }
        let picture = oracles::picture(&self.world);
        self.world.director.line(|| format!("REST {name}"));
        self.rests.push(Rest {
            name,
            picture,
            took,
        });
        Ok(())
    }

    async fn quiet(&self) -> Result<()> {
        let director = &self.world.director;
        let began = director.now();
        let undisturbed = || {
            director.is_mended()
                && director.api_away_until().is_none()
                && !director.vcenter_is_away()
                && !uploads(&self.world)
                && !self
                    .world
                    .vcenter
                    .read(|i| i.vms.values().any(|vm| vm.busy))
        };
        loop {
            // What ends in the meantime is still to be noticed.
            let (before, calm) = (director.deeds(), undisturbed());
            tokio::time::sleep(QUIET).await;
            if calm && undisturbed() && director.deeds() == before {
                return Ok(());
            }
            anyhow::ensure!(
                director.now() < began + self.patience + director.causes() + QUIET,
                "effects do not end: {:?}",
                director.effects().last()
            );
        }
    }

    /// Waits until all NodePools have as many running Machines as replicas, and nothing else is left.
    ///
    /// # Errors
    /// It does not come about in time.
    pub async fn rest_with(&mut self, name: &'static str, counts: &[(&str, usize)]) -> Result<()> {
        let counts: Vec<(String, usize)> =
            counts.iter().map(|(p, n)| ((*p).to_owned(), *n)).collect();
        self.rest(name, move |world| {
            let total: usize = counts.iter().map(|(_, n)| n).sum();
            let fits = counts.iter().all(|(pool, count)| {
                world
                    .play(pool)
                    .is_ok_and(|p| p.machines().len() == *count && p.running().len() == *count)
            });
            fits && marked(world) == total && children(world) == total
        })
        .await
        .map_err(|e| {
            let machine_state: Vec<_> = self
                .world
                .node_pools
                .iter()
                .map(|(_, p)| p.describe())
                .collect();
            let picture = oracles::picture(&self.world);
            e.context(format!("{machine_state:?}\n{picture:#?}"))
        })
    }
}

/// Marked VMs.
#[must_use]
pub fn marked(world: &World) -> usize {
    world.vcenter.read(|i| {
        i.vms
            .values()
            .filter(|v| oracles::marker(v).is_some())
            .count()
    })
}

/// VsphereAgents.
#[must_use]
pub fn children(world: &World) -> usize {
    world.api.read(|s| {
        s.list(&crate::kube::kind(oracles::OURS, "vsphereagents"), "")
            .len()
    })
}

/// Some pool says that its ISO is on its way, or still why that had been in vain: a vCenter that is there again is not said
/// to be away for ever. An upload that hangs has no effects for longer than rest lasts.
fn uploads(world: &World) -> bool {
    let pools = crate::kube::kind(oracles::OURS, "vsphereagentpools");
    let says = |pool: &std::sync::Arc<serde_json::Value>| {
        let conditions = pool.pointer("/status/conditions");
        let conditions = conditions.and_then(serde_json::Value::as_array);
        let mut conditions = conditions.into_iter().flatten();
        let uploads = |reason: &str| reason == "ISOUploading" || AWAY.contains(&reason);
        conditions.any(|c| c["type"] == "ISOReady" && c["reason"].as_str().is_some_and(uploads))
    };
    world.api.read(|s| s.list(&pools, "").iter().any(says))
}

/// All workloads that are enumerated.
pub const ALL: &[Workload] = &[
    Workload {
        name: "S1",
        text: "one machine up, then down",
        exact: true,
        instances: 1,
        run: s1,
    },
    Workload {
        name: "S2",
        text: "two pools with one folder: three machines up",
        exact: true,
        instances: 1,
        run: s2,
    },
    Workload {
        name: "S3",
        text: "two machines up, one down, one up again",
        exact: true,
        instances: 1,
        run: s3,
    },
    Workload {
        name: "S4",
        text: "a Machine deleted when its Agent has registered, and another one wanted a second later",
        exact: false,
        instances: 1,
        run: site::s4,
    },
    Workload {
        name: "S5",
        text: "one machine up, its NodePool and then its pool deleted",
        exact: true,
        instances: 1,
        run: s5,
    },
    Workload {
        name: "S6",
        text: "a guest that never registers, replaced after its deadline",
        exact: false,
        instances: 1,
        run: site::s6,
    },
    Workload {
        name: "S6s",
        text: "a guest that registers and falls silent, replaced when that has lasted as long",
        exact: false,
        instances: 1,
        run: site::s6s,
    },
    Workload {
        name: "S7",
        text: "another discovery image, and the old one pruned",
        exact: true,
        instances: 1,
        run: site::s7,
    },
    Workload {
        name: "S8",
        text: "a serving VM renamed, then destroyed by somebody, its Machine replaced by a health check",
        exact: true,
        instances: 1,
        run: site::s8,
    },
    Workload {
        name: "S9",
        text: "a pool whose network does not exist, mended by an edit",
        exact: true,
        instances: 1,
        run: site::s9,
    },
    Workload {
        name: "S10",
        text: "the password changed, in vCenter first",
        exact: true,
        instances: 1,
        run: site::s10,
    },
    Workload {
        name: "S11",
        text: "a Machine deleted while its VM is made",
        exact: false,
        instances: 1,
        run: s11,
    },
    Workload {
        name: "S12",
        text: "take-over of two machines from the predecessor, one of which cannot be proven at first; then both go",
        exact: true,
        instances: 1,
        run: predecessor::take_over,
    },
    Workload {
        name: "S13",
        text: "S1 with two instances of the operator and a lease",
        exact: true,
        instances: 2,
        run: s1,
    },
    Workload {
        name: "S14",
        text: "the namespace deleted while a machine goes down",
        exact: true,
        instances: 1,
        run: site::s14,
    },
    Workload {
        name: "S15s",
        text: "a hub restored without status",
        exact: true,
        instances: 1,
        run: disaster::status_lost,
    },
    Workload {
        name: "S15u",
        text: "a hub restored with new uids and without status; then a person gives the machine up",
        exact: true,
        instances: 1,
        run: disaster::new_uids,
    },
    Workload {
        name: "S15r",
        text: "a hub restored with new uids and its status; then the machine goes down",
        exact: true,
        instances: 1,
        run: disaster::reborn,
    },
    Workload {
        name: "S15e",
        text: "etcd rolled back to when one of two machines was being made; then a person gives it up",
        exact: true,
        instances: 1,
        run: disaster::rolled_back,
    },
    Workload {
        name: "S15d",
        text: "etcd rolled back to before a machine went down; then a person gives it up",
        exact: true,
        instances: 1,
        run: disaster::undeleted,
    },
    Workload {
        name: "S15h",
        text: "two hubs on one vCenter: one restored from the other's backup, and given up by force",
        exact: true,
        instances: 1,
        run: disaster::two_hubs,
    },
    Workload {
        name: "S15p",
        text: "a paused AgentMachine deleted and its Agent removed, as where a cluster moves to another hub; then a person lets the VM go",
        exact: true,
        instances: 1,
        run: disaster::moved_away,
    },
    Workload {
        name: "S15f",
        text: "Machines restored with new uids, their VsphereAgents and Agents deleted; then the machine goes down",
        exact: true,
        instances: 1,
        run: disaster::forgotten,
    },
    Workload {
        name: "S16",
        text: "a Machine replaced by a health check, then a rolling upgrade with maxSurge 1",
        exact: true,
        instances: 1,
        run: s16,
    },
    Workload {
        name: "S17",
        text: "installed hosts give their ISO back, one with a locked tray; another image, and the old one pruned",
        exact: true,
        instances: 1,
        run: site::s17,
    },
    Workload {
        name: "S18",
        text: "another ISO datastore: what a VM has in its drive stays on the old one until that VM goes",
        exact: true,
        instances: 1,
        run: site::s18,
    },
    Workload {
        name: "S19",
        text: "S1 beside a pool of another tenant that names this one's NodePool, control plane and InfraEnv",
        exact: true,
        instances: 1,
        run: tenants::s19,
    },
    Workload {
        name: "S20",
        text: "a host registers with all that our VM is known by, and goes again; then the machine goes down",
        exact: true,
        instances: 1,
        run: rogues::rival,
    },
    Workload {
        name: "S21",
        text: "S1 beside hosts that register with what our VM is known by, each but for one thing",
        exact: true,
        instances: 1,
        run: rogues::beside,
    },
    Workload {
        name: "S22",
        text: "a machine goes down whose VM vCenter cannot show for a while, as when its datastore is away",
        exact: true,
        instances: 1,
        run: away::hidden,
    },
    Workload {
        name: "S23",
        text: "the VM folder deleted with a serving VM in it, its Machine replaced by a health check",
        exact: true,
        instances: 1,
        run: away::folder_deleted,
    },
    Workload {
        name: "S24",
        text: "the InfraEnv deleted when its ISO lies ready, a machine wanted, and an InfraEnv of that name made anew",
        exact: true,
        instances: 1,
        run: away::infra_env_replaced,
    },
    Workload {
        name: "S25",
        text: "an Agent claimed for another control plane before it serves: its AgentMachine gets another host; then it comes back",
        exact: true,
        instances: 1,
        run: moves::elsewhere,
    },
    Workload {
        name: "S26",
        text: "an Agent deleted before it serves: its VM is replaced when that has lasted",
        exact: false,
        instances: 1,
        run: guests::agent_deleted,
    },
    Workload {
        name: "S26a",
        text: "a person asks for another VM before it serves, and once more when it does",
        exact: true,
        instances: 1,
        run: guests::asked,
    },
    Workload {
        name: "S27",
        text: "a network card replaced before and after its VM serves; then the machine goes down",
        exact: true,
        instances: 1,
        run: guests::card_replaced,
    },
    Workload {
        name: "S28",
        text: "the label with the AgentMachine's name taken off before and after its VM serves; then the machine goes down",
        exact: true,
        instances: 1,
        run: moves::unlabelled,
    },
    Workload {
        name: "S29",
        text: "a NodePool goes from one pool to another while its VM is made; then the machine goes down",
        exact: false,
        instances: 1,
        run: moves::node_pool_moved,
    },
    Workload {
        name: "S30",
        text: "a VM that its pool keeps, and the pool deleted: nobody takes notice of it any more",
        exact: true,
        instances: 1,
        run: moves::retained,
    },
    Workload {
        name: "S31",
        text: "other tags wanted while a VM waits for approval, and others when it serves; then the machine goes down",
        exact: true,
        instances: 1,
        run: guests::tags_changed,
    },
    Workload {
        name: "S32",
        text: "a VM suspended before and after it serves; the machine goes down, and vCenter does not switch it off while it is",
        exact: true,
        instances: 1,
        run: guests::suspended,
    },
];

/// The workload of that name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Workload> {
    ALL.iter().find(|w| w.name == name)
}

fn s1(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.world.pool("w", &json!({})).await?;
        run.world.play("w")?.scale(1);
        run.rest_with("one up", &[("w", 1)]).await?;
        run.world.play("w")?.scale(0);
        run.rest_with("down", &[("w", 0)]).await
    })
}

fn s2(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.world.pool("w", &json!({})).await?;
        run.world.pool("x", &json!({})).await?;
        run.world.play("w")?.scale(2);
        run.world.play("x")?.scale(1);
        run.rest_with("three up", &[("w", 2), ("x", 1)]).await
    })
}

fn s3(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.world.pool("w", &json!({})).await?;
        for (name, replicas) in [("two up", 2), ("one down", 1), ("up again", 2)] {
            run.world.play("w")?.scale(replicas);
            run.rest_with(name, &[("w", replicas)]).await?;
        }
        Ok(())
    })
}

fn s5(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.world.pool("w", &json!({})).await?;
        run.world.play("w")?.scale(1);
        run.rest_with("one up", &[("w", 1)]).await?;
        run.world.play("w")?.delete_node_pool().await?;
        run.world.delete_pool("w")?;
        run.rest("all gone", |world| {
            let pools = crate::kube::kind(oracles::OURS, "vsphereagentpools");
            let left = world.api.read(|s| s.list(&pools, "").len());
            left + children(world) + marked(world) == 0
        })
        .await
    })
}

fn s11(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.world.pool("w", &json!({})).await?;
        run.world.play("w")?.scale(1);
        let (director, patience) = (run.world.director.clone(), run.patience + ANY_OUTAGE);
        let asked = || director.effects().iter().any(|(_, p)| p.effect == "V02");
        run.world
            .patiently("a VM is asked for", patience, asked)
            .await?;
        run.world.play("w")?.scale(0);
        run.rest_with("down", &[("w", 0)]).await
    })
}

fn s16(run: &mut Run) -> BoxFuture<'_, Result<()>> {
    Box::pin(async move {
        run.world.pool("w", &json!({})).await?;
        run.world.play("w")?.scale(1);
        run.rest_with("one up", &[("w", 1)]).await?;
        let play = run.world.play("w")?;
        let sick = play.running().pop().unwrap_or_default();
        play.remediate(&sick).await?;
        run.rest("replaced", move |world| {
            let running = world.play("w").map(|p| p.running()).unwrap_or_default();
            running.len() == 1 && running[0] != sick && marked(world) == 1 && children(world) == 1
        })
        .await?;
        let play = run.world.play("w")?;
        let old = play.running().pop().unwrap_or_default();
        play.rolling_upgrade(1)?;
        run.rest("upgraded", move |world| {
            let running = world.play("w").map(|p| p.running()).unwrap_or_default();
            running.len() == 1 && running[0] != old && marked(world) == 1 && children(world) == 1
        })
        .await
    })
}
