//! A test bench for passes of a VM actor: a cluster and a vCenter in memory, and a clock that the test moves.

pub mod hub;
pub mod vcenter;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use agent_forge_crds::{
    agent::{VmStatus, VsphereAgent, VsphereAgentStatus},
    conditions::Reason,
    pool::{CredentialsSecretRef, HeldSecret, IsoStatus},
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use self::{hub::Hub, vcenter::Site};
use super::{memory::Memory, pass};
use crate::{
    context::{Context, NewsOfVms, Settings, SuspectVms},
    domain::names::ObjectKey,
    ports::{clock::Clock, effect::EffectKind, instruments::NoInstruments, tracer::NoTracer},
    runtime::shell::Verdict,
    testing::{self, AGE, NAMESPACE, POOL, at},
};

/// A clock that the test moves. Wall and monotonic time move together.
#[derive(Default)]
pub struct Turned {
    gone: Mutex<Duration>,
    /// How far somebody set the wall clock ahead.
    ahead: Mutex<Duration>,
}

impl Clock for Turned {
    fn wall(&self) -> Timestamp {
        let gone = self.monotonic() + *self.ahead.lock().expect("lock");
        let gone = SignedDuration::try_from(gone).expect("short");
        at(AGE).checked_add(gone).expect("in range")
    }
    fn steady(&self) -> Timestamp {
        let gone = SignedDuration::try_from(self.monotonic()).expect("short");
        let steady = at(AGE).checked_add(gone).expect("in range");
        steady.min(self.wall())
    }
    fn monotonic(&self) -> Duration {
        *self.gone.lock().expect("lock")
    }
}

impl Turned {
    pub fn turn(&self, by: Duration) {
        *self.gone.lock().expect("lock") += by;
    }

    /// Sets only the wall clock ahead.
    pub fn jump(&self, by: Duration) {
        *self.ahead.lock().expect("lock") += by;
    }

    /// Sets the wall clock back by that much.
    pub fn set_back(&self, by: Duration) {
        *self.ahead.lock().expect("lock") -= by;
    }
}

/// One VsphereAgent with all that belongs to it.
pub struct Bench {
    pub hub: Arc<Hub>,
    pub site: Site,
    pub memory: Memory,
    /// The VMs that the scan suspects.
    pub doubts: Arc<tokio::sync::watch::Sender<SuspectVms>>,
    /// The changes that vCenter has told.
    pub news: Arc<tokio::sync::watch::Sender<NewsOfVms>>,
    pub clock: Arc<Turned>,
    pub context: Context,
    key: ObjectKey,
}

impl Bench {
    /// A VsphereAgent `a` for a waiting AgentMachine, its pool, and a vCenter without VMs. The ISO is ready.
    pub fn new() -> Self {
        Self::at("a", Site::default())
    }

    /// The same for a VsphereAgent of that name, in a vCenter that others may share.
    pub fn at(name: &str, site: Site) -> Self {
        let hub = Arc::new(Hub::default());
        let clock = Arc::new(Turned::default());
        let (tell_doubts, doubts) = tokio::sync::watch::channel(SuspectVms::default());
        let (tell_news, news) = tokio::sync::watch::channel(NewsOfVms::default());
        let context = Context {
            view: hub.clone(),
            cluster: hub.clone(),
            sessions: Arc::new(site.clone()),
            placer: Arc::new(site.clone()),
            nodes: Arc::new(testing::nodes::Hosted::default()).access(),
            clock: clock.clone(),
            instruments: Arc::new(NoInstruments),
            tracer: Arc::new(NoTracer),
            doubts,
            news,
            settings: Settings {
                discovery_timeout: Duration::from_secs(1800),
                orphan_scan_interval: Duration::from_secs(600),
                datastore_floor: 0,
                secret_namespaces: vec![],
            },
        };
        let pool = testing::with(testing::pool(POOL), |p| {
            p.spec.vsphere.credentials_secret_ref = CredentialsSecretRef {
                name: "vcenter".to_owned(),
                namespace: None,
            };
            p.spec.vsphere.resource_pool = "cluster/Resources".to_owned();
            p.spec.vsphere.datastore_cluster = "pod".to_owned();
            p.spec.vsphere.network = "VM Network".to_owned();
            let status = p.status.get_or_insert_default();
            status.iso = Some(IsoStatus {
                stored_path: Some("[isos] agent-forge/x.iso".to_owned()),
                ..IsoStatus::default()
            });
            status.held_secrets = vec![HeldSecret {
                name: "vcenter".to_owned(),
                namespace: NAMESPACE.to_owned(),
                held: true,
            }];
        });
        hub.with(|o| {
            o.pool = Some(pool);
            o.child = Some(testing::with(testing::child(name), |c| {
                c.metadata.creation_timestamp = Some(Time(context.clock.wall()));
            }));
            o.agent_machines = vec![testing::agent_machine(name)];
            o.machines = vec![testing::machine(name)];
        });
        Self {
            hub,
            site,
            memory: Memory::default(),
            doubts: Arc::new(tell_doubts),
            news: Arc::new(tell_news),
            clock,
            context,
            key: ObjectKey::new(NAMESPACE, name),
        }
    }

    /// One pass.
    pub async fn pass(&mut self) -> Verdict {
        let memory = std::mem::take(&mut self.memory);
        let (memory, verdict) = pass::run(self.context.clone(), self.key.clone(), memory).await;
        self.memory = memory;
        verdict
    }

    /// Runs passes until `enough`, each when the one before asked for it.
    pub async fn until(&mut self, enough: impl Fn(&Self) -> bool) {
        for _ in 0..60 {
            let verdict = self.pass().await;
            if enough(self) {
                return;
            }
            let retry = verdict
                .failure
                .map(|c| crate::runtime::backoff::delay(c, 1, "a"));
            let rest = [verdict.again, retry].into_iter().flatten().min();
            self.turn(rest.unwrap_or(crate::runtime::backoff::RESYNC));
        }
        panic!(
            "60 passes were not enough: {:?} {:?}",
            self.status(),
            self.site.with(|i| i.effects.clone())
        );
    }

    /// Moves the clock.
    pub fn turn(&self, by: Duration) {
        self.clock.turn(by);
    }

    /// The actor dies, and another one takes over.
    pub fn restart(&mut self) {
        self.memory = Memory::default();
    }

    pub fn child(&self) -> VsphereAgent {
        self.hub.with(|o| o.child.clone()).expect("it exists")
    }

    pub fn status(&self) -> VsphereAgentStatus {
        self.hub
            .with(|o| o.child.clone())
            .and_then(|c| c.status)
            .unwrap_or_default()
    }

    pub fn vm(&self) -> VmStatus {
        self.status().vm.unwrap_or_default()
    }

    /// First reason in `status.waitingOn`.
    pub fn waits_on(&self) -> Option<Reason> {
        let status = self.status();
        status.waiting_on.first().map(|w| w.reason.clone())
    }

    /// The VM runs and is recorded.
    pub fn is_on(&self) -> bool {
        self.vm().power_state.as_deref() == Some("poweredOn")
    }

    /// How often vCenter got that call.
    pub fn times(&self, kind: EffectKind) -> usize {
        let told = |i: &mut vcenter::Inventory| i.effects.iter().filter(|e| **e == kind).count();
        self.site.with(told)
    }
}
