//! Passes of the actor, with each single fault at each live read and each write.

use std::sync::Mutex;

use agent_forge_crds::{
    AgentForgeInstallerConfigStatus,
    external::byoh::ByoHostSpec,
    names::{INSTALLER_FINALIZER, LOST_HOST_ANNOTATION},
};
use async_trait::async_trait;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;

use super::{decide::tests as parts, *};
use crate::{
    domain::holds::Mode,
    ports::{byoh::ScriptsSecret, instruments::NoInstruments},
    testing::{NAMESPACE, delete, with},
    vm::testing::{Turned, hub::Hub},
};

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The API server refuses it: somebody was first.
    Conflict,
    /// The request is lost.
    Lost,
    /// It is carried out, and the answer is lost.
    Unanswered,
    /// The process dies before it.
    DiesBefore,
    /// The process dies after it.
    DiesAfter,
}

const FAULTS: [Fault; 5] = [
    Fault::Conflict,
    Fault::Lost,
    Fault::Unanswered,
    Fault::DiesBefore,
    Fault::DiesAfter,
];

#[derive(Default)]
struct Store {
    config: Option<AgentForgeInstallerConfig>,
    machine: Option<ByoMachine>,
    hosts: Vec<ByoHost>,
    secrets: Vec<Secret>,
    /// What the cache shows, if that is older.
    stale: Option<AgentForgeInstallerConfig>,
    /// The live reads and writes so far.
    calls: Vec<&'static str>,
    /// Which call goes wrong, counted from 0, and how.
    fault: Option<(usize, Fault)>,
    writes: u64,
}

#[derive(Default)]
struct Api(Mutex<Store>);

impl Api {
    fn with<T>(&self, f: impl FnOnce(&mut Store) -> T) -> T {
        f(&mut self.0.lock().expect("lock"))
    }

    /// One call. `act` is what it does.
    async fn call<T>(
        &self,
        name: &'static str,
        act: impl FnOnce(&mut Store) -> ClusterResult<T> + Send,
    ) -> ClusterResult<T> {
        let (number, fault) = self.with(|s| {
            s.calls.push(name);
            (s.calls.len() - 1, s.fault)
        });
        let fault = fault
            .filter(|(at, _)| *at == number)
            .map(|(_, fault)| fault);
        let failed = |kind| {
            Err(ClusterError {
                kind,
                operation: name,
                subject: "it".to_owned(),
                message: "as planned".to_owned(),
            })
        };
        match fault {
            None => self.with(act),
            Some(Fault::Conflict) => failed(ClusterErrorKind::Conflict),
            Some(Fault::Lost) => failed(ClusterErrorKind::Unavailable),
            Some(Fault::Unanswered) => {
                let _ = self.with(act);
                failed(ClusterErrorKind::Unavailable)
            }
            Some(Fault::DiesBefore) => std::future::pending().await,
            Some(Fault::DiesAfter) => {
                let _ = self.with(act);
                std::future::pending().await
            }
        }
    }

    async fn change(
        &self,
        name: &'static str,
        at: &Precondition,
        change: impl FnOnce(&mut AgentForgeInstallerConfig) + Send,
    ) -> ClusterResult<()> {
        self.call(name, |s| {
            let writes = s.writes + 1;
            let config = s.config.as_mut();
            let config = config.filter(|c| Precondition::of(*c) == *at);
            let Some(config) = config else {
                return Err(ClusterError {
                    kind: ClusterErrorKind::Conflict,
                    operation: name,
                    subject: at.key.to_string(),
                    message: "another version".to_owned(),
                });
            };
            change(config);
            config.metadata.resource_version = Some(format!("w{writes}"));
            s.writes = writes;
            // The last finalizer of an object in deletion.
            let gone =
                config.metadata.deletion_timestamp.is_some() && config.finalizers().is_empty();
            if gone {
                s.config = None;
            }
            Ok(())
        })
        .await
    }
}

#[async_trait]
impl Installers for Api {
    fn ready(&self) -> bool {
        true
    }
    fn configs(&self) -> Vec<Arc<AgentForgeInstallerConfig>> {
        let shown = self.with(|s| s.stale.clone().or_else(|| s.config.clone()));
        shown.into_iter().map(Arc::new).collect()
    }
    fn machine(&self, _: &ObjectKey) -> Option<Arc<ByoMachine>> {
        self.with(|s| s.machine.clone()).map(Arc::new)
    }
    fn hosts(&self) -> Vec<Arc<ByoHost>> {
        // The cache is behind.
        Vec::new()
    }
    async fn live_config(&self, _: &ObjectKey) -> ClusterResult<Option<AgentForgeInstallerConfig>> {
        self.call("config", |s| Ok(s.config.clone())).await
    }
    async fn live_hosts(&self) -> ClusterResult<Vec<ByoHost>> {
        self.call("hosts", |s| Ok(s.hosts.clone())).await
    }
    async fn scripts_secret(&self, key: &ObjectKey) -> ClusterResult<Option<ScriptsSecret>> {
        self.call("secret", |s| {
            let found = s.secrets.iter().find(|o| ObjectKey::of(*o) == *key);
            Ok(found.map(ScriptsSecret::of))
        })
        .await
    }
    async fn create_scripts(&self, effect: &Effect, secret: &Secret) -> ClusterResult<()> {
        assert_eq!(effect.kind, EffectKind::CreateScripts);
        self.call("create", |s| {
            let config = s.config.as_ref().expect("a config");
            let held = config.finalizers().iter().any(|f| f == INSTALLER_FINALIZER);
            assert!(held, "the finalizer comes first");
            if s.secrets.iter().any(|o| o.name_any() == secret.name_any()) {
                return Err(ClusterError {
                    kind: ClusterErrorKind::AlreadyExists,
                    operation: "create",
                    subject: secret.name_any(),
                    message: "it is there".to_owned(),
                });
            }
            s.secrets.push(secret.clone());
            Ok(())
        })
        .await
    }
    async fn set_finalizers(
        &self,
        effect: &Effect,
        at: &Precondition,
        finalizers: Vec<String>,
    ) -> ClusterResult<()> {
        let holds = finalizers.iter().any(|f| f == INSTALLER_FINALIZER);
        let kind = match holds {
            true => EffectKind::HoldInstaller,
            false => EffectKind::ReleaseInstaller,
        };
        assert_eq!(effect.kind, kind);
        self.change("finalizers", at, |c| *c.finalizers_mut() = finalizers)
            .await
    }
    async fn installer_status(
        &self,
        effect: &Effect,
        at: &Precondition,
        status: &AgentForgeInstallerConfigStatus,
    ) -> ClusterResult<()> {
        assert_eq!(effect.kind, EffectKind::InstallerStatus);
        let named = status
            .installation_secret
            .as_ref()
            .and_then(|r| r.name.clone());
        let there = self.with(|s| s.secrets.iter().any(|o| Some(o.name_any()) == named));
        assert!(there || !status.ready, "the Secret comes first");
        self.change("status", at, |c| c.status = Some(status.clone()))
            .await
    }
}

struct World {
    api: Arc<Api>,
    hub: Arc<Hub>,
    worker: ByohInstaller,
}

fn world(change: impl FnOnce(&mut Store)) -> World {
    let api = Arc::new(Api::default());
    let hub = Arc::new(Hub::default());
    hub.with(|o| {
        o.pausables = vec![(PausableKind::Cluster, parts::cluster(false))];
    });
    api.with(|s| {
        s.config = Some(parts::config());
        s.machine = Some(parts::machine());
        change(s);
    });
    let worker = ByohInstaller {
        view: hub.clone(),
        cluster: hub.clone(),
        installers: api.clone(),
        clock: Arc::new(Turned::default()),
        instruments: Arc::new(NoInstruments),
    };
    World { api, hub, worker }
}

impl World {
    /// One pass. If the process dies in it, the next one begins without memory.
    async fn pass(&self, memory: Memory) -> (Memory, Verdict) {
        let within = Duration::from_secs(60);
        let pass = tokio::time::timeout(within, self.worker.pass(memory));
        pass.await.unwrap_or_default()
    }

    /// Passes until nothing is written any more.
    async fn rest(&self) -> Verdict {
        let (mut memory, mut verdict) = (Memory::new(), Verdict::default());
        for _ in 0..6 {
            (memory, verdict) = self.pass(memory).await;
        }
        verdict
    }

    fn config(&self) -> Option<AgentForgeInstallerConfig> {
        self.api.with(|s| s.config.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn each_single_fault_leads_to_one_secret_with_the_same_bytes() {
    let undisturbed = world(|_| ());
    undisturbed.rest().await;
    let (calls, expected) = undisturbed
        .api
        .with(|s| (s.calls.clone(), s.secrets.clone()));
    for write in ["finalizers", "create", "status"] {
        let times = calls.iter().filter(|call| **call == write).count();
        assert_eq!(times, 1, "{calls:?}");
    }
    for (number, call) in calls.iter().enumerate() {
        for fault in FAULTS {
            let world = world(|s| s.fault = Some((number, fault)));
            let verdict = world.rest().await;
            let what = format!("{fault:?} at {number}, {call}");
            let status = world.config().and_then(|c| c.status).unwrap_or_default();
            assert!(status.ready, "{what}: {verdict:?}");
            assert_eq!(verdict.failure, None, "{what}");
            let made = world.api.with(|s| s.secrets.clone());
            assert_eq!(made, expected, "{what}");
            let named = status.installation_secret.and_then(|r| r.name);
            assert_eq!(named, expected[0].metadata.name, "{what}");
        }
    }
}

/// A config in deletion with its finalizer, and a host that names its Secret or not.
fn ending(s: &mut Store, host: bool) {
    let config = s.config.as_mut().expect("a config");
    config.finalizers_mut().push(INSTALLER_FINALIZER.to_owned());
    delete(config);
    s.machine = None;
    if host {
        let named = secret::reference(config);
        s.hosts = vec![with(ByoHost::default(), |h| {
            h.metadata.name = Some("h".to_owned());
            h.metadata.namespace = Some("elsewhere".to_owned());
            h.spec = ByoHostSpec {
                installation_secret: Some(named),
            };
        })];
    }
}

/// The cache shows no host.
#[tokio::test(start_paused = true)]
async fn each_single_fault_leaves_a_config_whose_host_needs_it_and_ends_it_later() {
    let undisturbed = world(|s| ending(s, true));
    undisturbed.pass(Memory::new()).await;
    let calls = undisturbed.api.with(|s| s.calls.clone());
    assert_eq!(calls, ["config", "hosts", "status"]);
    for number in 0..calls.len() {
        for fault in FAULTS {
            let world = world(|s| {
                ending(s, true);
                s.fault = Some((number, fault));
            });
            let verdict = world.rest().await;
            let what = format!("{fault:?} at {number}");
            let waits = verdict.waiting_on.iter().map(|(reason, _)| reason.clone());
            assert_eq!(
                waits.collect::<Vec<_>>(),
                [Reason::HostNamesSecret],
                "{what}"
            );
            let version = world.config().and_then(|c| c.resource_version());
            world.rest().await;
            let after = world.config().and_then(|c| c.resource_version());
            assert_eq!(after, version, "{what}: it was written once");
            world.api.with(|s| {
                let config = s.config.as_mut().expect("a config");
                let lost = (LOST_HOST_ANNOTATION.to_owned(), "elsewhere/h".to_owned());
                config.annotations_mut().extend([lost]);
            });
            world.rest().await;
            assert_eq!(world.config(), None, "{what}");
        }
    }
    for fault in FAULTS {
        let world = world(|s| {
            ending(s, false);
            // The config and the hosts are read, then it is released.
            s.fault = Some((2, fault));
        });
        world.rest().await;
        assert_eq!(world.config(), None, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_cache_shows_is_read_again_before_anything_is_written() {
    let asked = |api: &Api| api.with(|s| (s.writes, s.secrets.len()));
    // Somebody has paused it, deleted it or supplied it since.
    let paused = |s: &mut Store| {
        s.stale = s.config.clone();
        let config = s.config.as_mut().expect("a config");
        let pause = agent_forge_crds::external::agent_machine::PAUSED_ANNOTATION;
        config
            .annotations_mut()
            .insert(pause.to_owned(), String::new());
    };
    let gone = |s: &mut Store| s.stale = s.config.take();
    for change in [&paused as &dyn Fn(&mut Store), &gone] {
        let world = world(|s| change(s));
        world.rest().await;
        assert_eq!(asked(&world.api), (0, 0));
    }
    let world = world(|_| ());
    world.hub.with(|o| {
        o.unseen_pausables = vec![(PausableKind::Cluster, parts::cluster(true))];
    });
    let verdict = world.rest().await;
    assert_eq!(asked(&world.api), (0, 0));
    assert_eq!(verdict.waiting_on[0].0, Reason::Paused);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_or_written_of_what_is_not_known() {
    let untouched = async |change: fn(&Hub)| {
        let world = world(|_| ());
        change(&world.hub);
        let verdict = world.rest().await;
        let calls = world.api.with(|s| s.calls.clone());
        assert_eq!(calls, [""; 0], "{verdict:?}");
        verdict
    };
    let unready = untouched(|hub| hub.with(|o| o.unready = true)).await;
    assert_eq!(unready.again, Some(SOON));
    let over = untouched(|hub| hub.with(|o| o.over_bound = vec![NAMESPACE.to_owned()])).await;
    assert_eq!(over.waiting_on[0].0, Reason::NamespaceTooLarge);
    untouched(|hub| hub.with(|o| (o.mode, o.pausables) = (Mode::Earnest, Vec::new()))).await;
}
