//! The supervisor on virtual time: which actors live, restart or stay away.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::{task::JoinHandle, time::Instant};

use super::{routing::Change, *};
use crate::{
    domain::names::ObjectKey,
    iso::{self, msg::IsoState, of_pool},
    ports::{
        cluster::{SecretRead, SecretVersion},
        instruments::PoolGauges,
        iso_source::{Freshness, IsoDownload, IsoError, IsoRequest, Validators},
        tracer::NoTracer,
        vcenter::{Credentials, Fault, VCenter, VcErrorKind, VcResult},
    },
    sessions::{login::Login, refusals::Door},
    testing::{self, NAMESPACE, POOL, at, told::Told},
    vm::testing::{hub::Hub, vcenter::fault},
};

/// Virtual time.
struct Virtual(Instant);

impl Clock for Virtual {
    fn wall(&self) -> jiff::Timestamp {
        at(i64::try_from(self.monotonic().as_secs()).expect("short"))
    }
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

/// No vCenter ever answers, no ISO ever comes.
struct Void;

#[async_trait]
impl Connector for Void {
    async fn connect(&self, _: &Credentials) -> VcResult<Arc<dyn VCenter>> {
        std::future::pending().await
    }
    fn open(&self) -> Vec<Arc<dyn VCenter>> {
        Vec::new()
    }
}

/// A vCenter that refuses every login, and counts them.
struct Refusing(AtomicUsize, Ledger);

#[async_trait]
impl Connector for Refusing {
    async fn connect(&self, credentials: &Credentials) -> VcResult<Arc<dyn VCenter>> {
        let login = Login::of(credentials, SecretVersion::default());
        let knock = async {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(fault(VcErrorKind::Fault(Fault::InvalidLogin)))
        };
        self.1.attempt(&login, Door::Session, knock).await
    }
    fn open(&self) -> Vec<Arc<dyn VCenter>> {
        Vec::new()
    }
}

#[async_trait]
impl IsoSource for Void {
    async fn open(&self, _: &IsoRequest) -> Result<IsoDownload, IsoError> {
        std::future::pending().await
    }
    async fn freshness(&self, _: &IsoRequest, _: &Validators) -> Result<Freshness, IsoError> {
        std::future::pending().await
    }
}

/// The calls about pools in order, and the actors that restarted; also the highest number of VM actors.
#[derive(Default)]
struct Log(Mutex<Vec<String>>, AtomicI64);

impl Log {
    fn note(&self, line: String) {
        self.0.lock().expect("lock").push(line);
    }
    fn lines(&self) -> Vec<String> {
        self.0.lock().expect("lock").clone()
    }
}

impl Instruments for Log {
    fn pool(&self, pool: &ObjectKey, _: &PoolGauges) {
        self.note(format!("gauges of {pool}"));
    }
    fn drop_pool(&self, pool: &ObjectKey) {
        self.note(format!("{pool} dropped"));
    }
    fn vm_operation(&self, _: &'static str, _: bool) {}
    fn iso_operation(&self, _: &'static str, _: bool) {}
    fn actors(&self, kind: &'static str, count: i64) {
        if kind == "vm" {
            self.1.fetch_max(count, Ordering::Relaxed);
        }
    }
    fn restarted(&self, kind: &'static str) {
        self.note(format!("{kind} anew"));
    }
}

struct Tree {
    hub: Arc<Hub>,
    log: Arc<Log>,
    supervisor: ActorRef<SupervisorMsg>,
    exit: Arc<Exit>,
    ended: JoinHandle<()>,
}

const VM: &str = "vm/demo/a";

impl Tree {
    async fn start() -> Self {
        Self::before(Arc::new(Void)).await
    }

    /// The tree, connected to this vCenter.
    async fn before(connector: Arc<dyn Connector>) -> Self {
        let hub = Arc::new(Hub::default());
        hub.with(|o| {
            let mut pool = testing::pool(POOL);
            pool.spec.vsphere.credentials_secret_ref.name = "vcenter".to_owned();
            o.pool = Some(pool);
            let keys = [
                ("server", "vc.example"),
                ("username", "u"),
                ("password", "p"),
            ];
            let text = |v: &str| secrecy::SecretString::from(v.to_owned());
            o.secret = Some(SecretRead {
                pools_from: None,
                data: keys.map(|(k, v)| (k.to_owned(), text(v))).into(),
                ..SecretRead::default()
            });
            o.child = Some(testing::child("a"));
            o.agent_machines = vec![testing::agent_machine("a")];
            o.machines = vec![testing::machine("a")];
        });
        let log = Arc::new(Log::default());
        let clock = Arc::new(Virtual(Instant::now()));
        let exit = Arc::new(Exit::default());
        let ports = Ports {
            view: hub.clone(),
            cluster: hub.clone(),
            connector,
            iso_source: Arc::new(Void),
            byoh: None,
            hosted_nodes: Arc::new(testing::nodes::Hosted::default()),
            clock: clock.clone(),
            ledger: Arc::new(Ledger::new(clock)),
            instruments: log.clone(),
            tracer: Arc::new(NoTracer),
            settings: Settings {
                discovery_timeout: Duration::from_secs(1800),
                orphan_scan_interval: Duration::from_secs(600),
                datastore_floor: 0,
                secret_namespaces: vec![],
            },
            server_rule: ServerRule::default(),
            exit: exit.clone(),
        };
        let (supervisor, ended) = Actor::spawn(None, Supervisor, ports).await.expect("up");
        let tree = Self {
            hub,
            log,
            supervisor,
            exit,
            ended,
        };
        tree.after(Duration::from_millis(10)).await;
        tree
    }

    async fn after(&self, time: Duration) {
        tokio::time::sleep(time).await;
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }

    async fn all(&self) -> Vec<Described> {
        let asked = self.supervisor.call(SupervisorMsg::Describe, None).await;
        match asked.expect("alive") {
            ractor::rpc::CallResult::Success(all) => all,
            other => panic!(
                "no answer: {}",
                matches!(other, ractor::rpc::CallResult::Timeout)
            ),
        }
    }

    /// The live actors.
    async fn names(&self) -> Vec<String> {
        let all = self.all().await.into_iter();
        let alive = all.filter(|d| d.life == Life::Alive);
        alive.map(|d| d.name).collect()
    }

    async fn kill(&self, which: &str, panic: bool) -> usize {
        let ask = |reply| SupervisorMsg::Kill {
            which: which.to_owned(),
            panic,
            reply,
        };
        match self.supervisor.call(ask, None).await {
            Ok(ractor::rpc::CallResult::Success(hit)) => hit.len(),
            _ => 0,
        }
    }

    /// Secrets that the present session actor has looked at.
    async fn looks(&self) -> u64 {
        let all = self.all().await;
        let sessions = all.into_iter().find(|d| d.name == "sessions");
        sessions.and_then(|d| d.state).map_or(0, |s| s.passes)
    }

    async fn restarts(&self, name: &str) -> u64 {
        let all = self.all().await;
        all.iter()
            .find(|d| d.name == name)
            .map_or(0, |d| d.restarts)
    }
}

#[tokio::test(start_paused = true)]
async fn objects_get_their_actors_and_those_go_with_them() {
    let tree = Tree::start().await;
    let pool = "pool/demo/workers";
    assert_eq!(
        tree.names().await,
        ["sessions", "placement", "orphans", "news", pool, VM]
    );
    let mailboxes = tree.all().await.into_iter().map(|d| d.mailbox);
    assert!(
        mailboxes.into_iter().all(|m| m.is_some()),
        "each is counted"
    );
    // No event reports that it is gone: the resync finds out.
    tree.hub.with(|o| o.child = None);
    tree.after(backoff::RESYNC + Duration::from_secs(1)).await;
    assert!(!tree.names().await.contains(&VM.to_owned()));
    tree.hub.with(|o| o.child = Some(testing::child("b")));
    let change = Change::ManagedVm {
        key: ObjectKey::new(NAMESPACE, "b"),
        pools: [ObjectKey::new(NAMESPACE, POOL)].into(),
        deep: true,
    };
    let _ = tree.supervisor.send_message(SupervisorMsg::Changed(change));
    tree.after(Duration::from_millis(10)).await;
    assert!(tree.names().await.contains(&"vm/demo/b".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_dead_actor_comes_back_after_its_own_backoff_and_no_other_notices() {
    let tree = Tree::start().await;
    for (n, panic) in [(1, false), (2, true)] {
        assert_eq!(tree.kill(VM, panic).await, 1);
        let vm = ActorKey::Vm(ObjectKey::new(NAMESPACE, "a"));
        let _ = tree
            .supervisor
            .send_message(SupervisorMsg::Wake(vm, "test"));
        tree.after(Duration::from_millis(50)).await;
        assert!(!tree.names().await.contains(&VM.to_owned()), "at once");
        tree.after(Duration::from_millis(400)).await;
        assert_eq!(tree.restarts(VM).await, n);
    }
    // A VM actor always restarts, however often it dies, and never in a hot loop.
    for _ in 0..100 {
        tree.kill(VM, false).await;
        tree.after(Duration::from_secs(6)).await;
        assert!(tree.names().await.contains(&VM.to_owned()));
    }
    assert_eq!(tree.restarts("pool/demo/workers").await, 0);
    assert!(!tree.ended.is_finished());
}

#[tokio::test(start_paused = true)]
async fn the_line_about_a_dead_actor_names_its_object_uid_and_trace() {
    let told = Told::default();
    let here = told.here();
    let tree = Tree::start().await;
    for which in [VM, "pool/demo/workers"] {
        assert_eq!(tree.kill(which, false).await, 1);
        tree.after(Duration::from_millis(50)).await;
    }
    drop(here);
    let (child, pool) = tree.hub.with(|o| (o.child.clone(), o.pool.clone()));
    let child = ManagedVm::read(Arc::new(child.expect("a child")));
    let pool = pool.and_then(|p| p.uid()).expect("its uid");
    let (uid, trace) = (child.uid.clone(), child.trace().to_string());
    let lines = told.lines();
    let of = |object: &str| {
        let mut ended = lines.iter().filter(|l| {
            let said = l.get("message").unwrap_or_default();
            said.starts_with("actor ended") && l.get("object") == Some(object)
        });
        let line = ended.next().expect("a line").clone();
        ["uid", "trace_id"].map(|f| line.get(f).map(str::to_owned))
    };
    assert_eq!(of("demo/a"), [Some(uid), Some(trace)]);
    assert_eq!(of("demo/workers"), [Some(pool), None]);
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_for_its_restart_is_told_of() {
    let tree = Tree::start().await;
    // The second backoff: the first is over.
    for rest in [500, 50] {
        assert_eq!(tree.kill(VM, false).await, 1);
        tree.after(Duration::from_millis(rest)).await;
    }
    let all = tree.all().await;
    let names: Vec<_> = all.iter().map(|d| d.name.as_str()).collect();
    let pool = "pool/demo/workers";
    assert_eq!(
        names,
        ["sessions", "placement", "orphans", "news", pool, VM]
    );
    let dead = all.last().expect("the VM's");
    let Life::Restarting { in_seconds } = dead.life else {
        panic!("{dead:?}")
    };
    assert!((0.1..0.2).contains(&in_seconds), "{in_seconds} s of 0.2");
    assert_eq!((dead.restarts, dead.mailbox), (1, None));
    assert!(dead.state.is_none());
    let json = serde_json::to_value(dead).expect("JSON");
    assert_eq!(json["life"]["is"], "restarting");
    assert_eq!(json["life"]["inSeconds"], in_seconds);
    tree.after(Duration::from_millis(200)).await;
    let alive = tree.all().await.into_iter().find(|d| d.name == VM);
    let alive = alive.expect("it is back");
    assert_eq!((alive.life, alive.restarts), (Life::Alive, 2));
    let json = serde_json::to_value(alive.life).expect("JSON");
    assert_eq!(json["is"], "alive");
}

#[tokio::test(start_paused = true)]
async fn one_that_died_and_whose_object_went_stays_away() {
    let tree = Tree::start().await;
    tree.kill(VM, false).await;
    tree.hub.with(|o| o.child = None);
    tree.after(Duration::from_secs(10)).await;
    assert!(!tree.all().await.iter().any(|d| d.name == VM));
    assert!(!tree.log.lines().contains(&"vm anew".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn an_infrastructure_actor_that_keeps_dying_ends_the_tree() {
    let tree = Tree::start().await;
    for _ in 0..25 {
        assert_eq!(tree.kill("sessions", false).await, 1);
        tree.after(Duration::from_secs(2)).await;
    }
    assert!(!tree.ended.is_finished(), "25 within 50 s are borne");
    tree.kill("sessions", false).await;
    tree.after(Duration::from_secs(2)).await;
    assert!(tree.ended.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_dead_session_actor_leaves_to_the_next_what_vcenter_refused() {
    let vcenter = Arc::new(Refusing(
        AtomicUsize::default(),
        Ledger::new(Arc::new(Virtual(Instant::now()))),
    ));
    let tree = Tree::before(vcenter.clone()).await;
    tree.after(Duration::from_secs(60)).await;
    assert!(tree.looks().await > 0, "somebody asks for the session");
    for (n, panic) in [(1, false), (2, true)] {
        assert_eq!(tree.kill("sessions", panic).await, 1);
        tree.after(Duration::from_secs(60)).await;
        assert_eq!(tree.restarts("sessions").await, n);
        assert!(tree.looks().await > 0, "the new one is asked, too");
        assert_eq!(vcenter.0.load(Ordering::Relaxed), 1, "one login, refused");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pools_series_go_only_when_its_pass_is_over() {
    let tree = Tree::start().await;
    // Its pass now waits for vCenter, and would set the gauges after that.
    let running = tree
        .all()
        .await
        .into_iter()
        .find(|d| d.name == "pool/demo/workers");
    assert!(running.and_then(|d| d.state).is_some_and(|s| s.running));
    assert!(tree.log.lines().is_empty());
    tree.hub.with(|o| {
        o.pool = None;
        o.child = None;
    });
    let change = Change::Pool {
        key: ObjectKey::new(NAMESPACE, POOL),
        deep: true,
    };
    let _ = tree.supervisor.send_message(SupervisorMsg::Changed(change));
    tree.after(Duration::from_secs(120)).await;
    let lines = tree.log.lines();
    let dropped = format!("{NAMESPACE}/{POOL} dropped");
    assert_eq!(lines.last(), Some(&dropped), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn each_datastore_of_each_vcenter_has_an_iso_cache_of_its_own() {
    let tree = Tree::start().await;
    let cache = async |server: &str, datastore: &str| {
        let mut pool = testing::pool(POOL);
        pool.spec.vsphere.iso_datastore = datastore.to_owned();
        let key = of_pool::cache_key(&pool, server);
        let ask = |reply| SupervisorMsg::IsoCache(key, reply);
        match tree.supervisor.call(ask, None).await {
            Ok(ractor::rpc::CallResult::Success(cache)) => cache.actor.get_id(),
            _ => panic!("no ISO cache"),
        }
    };
    let one = cache("vc.example", "isos").await;
    assert_eq!(cache("vc.example", "isos").await, one);
    for (server, datastore) in [("vc.example", "others"), ("vc-2.example", "isos")] {
        assert_ne!(cache(server, datastore).await, one, "{server}/{datastore}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_being_deleted_lets_its_iso_go() {
    let tree = Tree::start().await;
    let (pool, infra_env) = (testing::pool(POOL), testing::infra_env());
    let key = of_pool::cache_key(&pool, "vc.example");
    let ask = |reply| SupervisorMsg::IsoCache(key, reply);
    let Ok(ractor::rpc::CallResult::Success(cache)) = tree.supervisor.call(ask, None).await else {
        panic!("no cache")
    };
    let secret = ObjectKey::new(NAMESPACE, "vcenter");
    let want = of_pool::want(&pool, &[], Some(&infra_env), &secret).expect("a want");
    let answer = iso::ensure(&cache, want).await;
    assert!(matches!(answer, Ok(IsoState::Fetching { .. })));
    let flies = async || {
        let all = tree.all().await;
        let cache = all.into_iter().find(|d| d.name.starts_with("iso_cache/"));
        cache.and_then(|d| d.state).is_some_and(|s| s.running)
    };
    tree.after(Duration::from_secs(30)).await;
    assert!(flies().await, "it waits for the login");
    tree.hub
        .with(|o| o.pool.as_mut().map(testing::delete).expect("a pool"));
    let change = Change::Pool {
        key: ObjectKey::new(NAMESPACE, POOL),
        deep: true,
    };
    let _ = tree.supervisor.send_message(SupervisorMsg::Changed(change));
    // A running pass waits for its login as long as it may.
    tree.after(Duration::from_secs(10)).await;
    assert!(!flies().await, "nobody wants it");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_stops_all_and_starts_nobody() {
    let tree = Tree::start().await;
    let within = Duration::from_secs(15);
    assert!(tree.exit.leave(&tree.supervisor, within).await);
    tree.after(Duration::from_secs(120)).await;
    assert_eq!(tree.names().await, ["sessions"]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_what_is_queued() {
    let tree = Tree::start().await;
    tree.hub.with(|o| o.others = vec![testing::child("b")]);
    let key = ObjectKey::new(NAMESPACE, "b");
    let change = Change::ManagedVm {
        pools: [ObjectKey::new(NAMESPACE, POOL)].into(),
        key,
        deep: true,
    };
    for _ in 0..1000 {
        let change = SupervisorMsg::Changed(change.clone());
        tree.supervisor.send_message(change).expect("alive");
    }
    let within = Duration::from_secs(15);
    assert!(tree.exit.leave(&tree.supervisor, within).await);
    let most = tree.log.1.load(Ordering::Relaxed);
    assert_eq!(most, 1, "the actor of what changed is not started any more");
}
