//! Wiring: parse the flags, connect, start the actor tree, serve, and shut down in order.

use std::{future::Future, sync::Arc, time::Duration};

use agent_forge_actors::{
    context::Settings,
    domain::holds::Mode,
    migration,
    ports::{
        byoh::Installers,
        clock::Clock,
        cluster::{Cluster, View},
        effect::Gate,
        iso_source::IsoSource,
        nodes::HostedNodes,
        vcenter::Connector,
    },
    runtime::lease::Leadership,
    sessions::ledger::Ledger,
    supervisor::{Ports, Supervisor, SupervisorMsg},
};
use anyhow::Context;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt};
use ractor::{Actor, ActorRef};
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
};

use crate::{
    args::Args,
    chaos,
    clock::SystemClock,
    cluster::{
        client::{self, Clients},
        definitions,
        events::EventSink,
        lease::{self, LeaseStore},
        reviews::ApiReviews,
        scope::Scope,
        view::Caches,
        watches,
        writer::{Writer, installers::InstallerCluster},
    },
    gate::{Election, HoldGate, OpenGate},
    health::Health,
    hosted_nodes::HttpHostedNodes,
    iso_source::{self, HttpIsoSource},
    lease::{LeaderElector, Leases},
    servers::{self, Guard},
    standby,
    telemetry::{metrics::Metrics, traces},
    vsphere::{self, VsphereConnector},
    web::{self, Web, access::Access, events::Followers},
};

/// How long the actor tree may take to stop and to log out of the vCenters.
const GRACE: Duration = Duration::from_secs(15);

/// What the operator uses of the outside world. Tests replace it; everything inside stays the same.
pub struct Borders {
    /// Clients of the API server.
    pub clients: Clients,
    /// The gate that every mutating call passes. The question for holds comes first.
    pub gate: Arc<dyn Gate>,
    /// How vCenters are reached.
    pub vsphere: vsphere::Options,
    /// Where ISOs come from.
    pub iso_source: Arc<dyn IsoSource>,
    /// How the Nodes of hosted clusters are read.
    pub hosted_nodes: Arc<dyn HostedNodes>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Receives the supervisor once it runs.
    pub started: Option<oneshot::Sender<ActorRef<SupervisorMsg>>>,
}

/// Runs the operator until `stop` resolves or the supervisor gives up.
///
/// # Errors
/// Start-up failed (the message says what to correct), the supervisor gave up, or leadership was lost.
pub async fn operator(args: Args, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
    for warning in args.legacy.warnings() {
        tracing::warn!("{warning}");
    }
    let metrics = Arc::new(Metrics::new().context("registering metrics")?);
    let clients = client::connect(&args.target).await?;
    let compared = tokio::spawn(definitions::announce(clients.request.clone()));
    let borders = borders(&args, clients, metrics)?;
    let ended = between(args, borders, stop).await;
    compared.abort();
    ended
}

/// Runs the operator with the given borders, until `stop` resolves or the supervisor gives up. If the future is dropped
/// before its end, the operator ends like a killed process: at once and without cleaning up.
///
/// # Errors
/// As [`operator`].
pub async fn between(
    args: Args,
    mut borders: Borders,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let started = borders.started.take();
    let scope = Scope::of(&args.namespaces);
    let mut caches = Caches::bounded(&scope, args.scaling.bound());
    if args.installs_byoh()? {
        caches = caches.with_installers();
    }
    let caches = Arc::new(caches);
    if args.dry_run {
        tracing::warn!(
            "--dry-run: nothing is changed; the status of each pool lists what would be done"
        );
        caches.set_mode(Mode::Silent);
    }
    let (clients, metrics) = (borders.clients.clone(), borders.metrics.clone());
    // Events that are recorded before this process leads do not pass the check of the Lease.
    let unfenced = borders.gate.clone();
    let election = elect(&args, &mut borders, &caches)?;
    metrics.leads(false);
    metrics.barred(false);
    let events = standby::events(&clients, unfenced, borders.vsphere.call_timeout);
    let ports = ports(&args, borders, caches.clone());
    let exit = ports.exit.clone();
    let (supervisor, ended) = Actor::spawn(None, Supervisor, ports)
        .await
        .map_err(|e| anyhow::anyhow!("starting the supervisor: {e}"))?;
    let _tree = KillOnDrop(supervisor.clone());
    if let Some(started) = started {
        // The receiver is optional.
        let _ = started.send(supervisor.clone());
    }
    let health = Health::new();
    let web = Web {
        access: Access::Loopback,
        caches: caches.clone(),
        standing: election.standing(),
        supervisor: supervisor.clone(),
        secret_namespaces: args.secret_bound().to_vec(),
        followers: Followers::default(),
        answers: web::answers(),
    };
    let guard = Guard::new(&args, Arc::new(ApiReviews::new(clients.request.clone())));
    servers::metrics(&args, metrics.clone(), &guard).await?;
    servers::health(&args, &web, health.clone()).await?;
    servers::web(&args, &web, &guard).await?;
    servers::debug(&args, &web).await?;
    // Two sets: their tasks end with this function, however it ends.
    let (mut watching, mut becoming_ready) = (JoinSet::new(), JoinSet::new());
    let (list_anew, asked_to_list) = oneshot::channel();
    watching.spawn(watches::run(
        clients.clone(),
        caches.clone(),
        supervisor.clone(),
        asked_to_list,
    ));
    becoming_ready.spawn(health.watch(supervisor.clone()));
    if let Some(every) = args.chaos.kill_every() {
        becoming_ready.spawn(chaos::run(supervisor.clone(), every, args.chaos.chaos_seed));
    }
    becoming_ready.spawn(become_ready(
        args,
        clients.request,
        caches,
        supervisor.clone(),
        (election.standing(), events),
        (metrics, list_anew),
    ));
    let result = tokio::select! {
        biased;
        () = stop => {
            tracing::info!("stopping");
            Ok(())
        }
        _ = ended => Err(anyhow::anyhow!("the supervisor gave up; see the log above")),
        // The process does not clean up, because the new leader does that.
        why = election.lost() => return Err(why.into()),
        failed = watching_failed(&mut watching) => Err(failed),
        died = panicked(&mut becoming_ready) => Err(died),
    };
    becoming_ready.abort_all();
    let shut = exit.leave(&supervisor, GRACE).await;
    supervisor.stop(None);
    // Release the Lease only after the actor tree has stopped. Otherwise the process keeps the Lease until it runs out.
    if shut {
        election.release().await;
    }
    result
}

/// Starts the leader election, and puts the question for holds in front of the gate. In any case, watches the
/// predecessor's Lease.
fn elect(
    args: &Args,
    borders: &mut Borders,
    caches: &Arc<Caches>,
) -> anyhow::Result<LeaderElector> {
    let timing = args.lease.timing().context("--leader-elect-*")?;
    let request = borders.clients.request.clone();
    let namespace = args.lease.leader_election_namespace.clone();
    let namespace = namespace.unwrap_or_else(|| request.default_namespace().to_owned());
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "agent-forge".to_owned());
    let me = match &args.lease.pod_uid {
        Some(uid) => format!("{host}_{uid}"),
        None => format!("{host}_{}", uuid::Uuid::new_v4()),
    };
    let (standing, seen) = watch::channel(Leadership::Standby);
    let election = args.lease.leader_elect.then(|| {
        let bound = timing.call_bound().min(borders.vsphere.call_timeout);
        borders.vsphere.call_timeout = bound;
        Election {
            standing: seen,
            bound,
        }
    });
    let (inner, clock) = (borders.gate.clone(), borders.clock.clone());
    borders.gate = Arc::new(HoldGate::new(inner, election, caches.clone(), clock));
    let store = |namespace: &str, name| {
        let (gate, clock) = (borders.gate.clone(), borders.clock.clone());
        let within = timing.lease_call_bound();
        LeaseStore::new(request.clone(), (namespace, name), gate, clock, within)
    };
    let guards = args.lease.guards(&namespace, args.dry_run).into_iter();
    let leases = Leases {
        me,
        timing,
        own: args
            .lease
            .leader_elect
            .then(|| store(&namespace, lease::NAME)),
        guards: guards
            .map(|(namespace, guard)| (store(&namespace, migration::lease::LEASE), guard))
            .collect(),
    };
    Ok(LeaderElector::start(leases, &borders.clock, standing))
}

/// Kills the actor tree when its owner is dropped.
struct KillOnDrop(ActorRef<SupervisorMsg>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// Resolves when one of the tasks panics. A task that ends is fine.
async fn panicked(tasks: &mut JoinSet<()>) -> anyhow::Error {
    while let Some(ended) = tasks.join_next().await {
        if let Err(e) = ended {
            return anyhow::anyhow!("a task died: {e}");
        }
    }
    std::future::pending().await
}

async fn watching_failed(watching: &mut JoinSet<()>) -> anyhow::Error {
    match watching.join_next().await {
        None | Some(Ok(())) => anyhow::anyhow!("a watch ended and does not restart"),
        Some(Err(e)) => anyhow::anyhow!("the watches died: {e}"),
    }
}

/// The borders in production.
fn borders(args: &Args, clients: Clients, metrics: Arc<Metrics>) -> anyhow::Result<Borders> {
    let extra_ca_pem = match &args.iso_ca_file {
        Some(path) => Some(
            std::fs::read_to_string(path)
                .with_context(|| format!("reading --iso-ca-file {}", path.display()))?,
        ),
        None => None,
    };
    let source = HttpIsoSource::new(iso_source::Options {
        allow_local: args.iso_allow_local_source,
        max_bytes: args.iso_max_bytes,
        stall: args.iso_stall_timeout,
        connect_timeout: args
            .iso_stall_timeout
            .min(iso_source::Options::default().connect_timeout),
        deadline: args.iso_deadline,
        extra_ca_pem,
        ..iso_source::Options::default()
    })
    .map_err(|e| anyhow::anyhow!("setting up the ISO source: {e}"))?;
    Ok(Borders {
        clients,
        gate: Arc::new(OpenGate::new(metrics.clone())),
        vsphere: vsphere::Options {
            tasks: args.scaling.limits(),
            allow_http: args.vsphere_allow_http,
            allow_local: args.vsphere_allow_local_server,
            discreet: Some(args.server_rule()),
            observer: Some(metrics.clone()),
            ..vsphere::Options::default()
        },
        iso_source: Arc::new(source),
        hosted_nodes: Arc::new(HttpHostedNodes::new(args.server_rule(), false)),
        clock: Arc::new(SystemClock::default()),
        metrics,
        started: None,
    })
}

fn ports(args: &Args, borders: Borders, caches: Arc<Caches>) -> Ports {
    let gate = borders.gate;
    let write_within = borders.vsphere.call_timeout;
    let events = EventSink::start(
        borders.clients.request.clone(),
        gate.clone(),
        std::env::var("HOSTNAME").ok(),
        write_within,
    );
    let request = borders.clients.request;
    let writer = Arc::new(Writer::new(
        request,
        caches.scope.clone(),
        gate.clone(),
        events,
        write_within,
    ));
    let cluster: Arc<dyn Cluster> = writer.clone();
    let byoh = caches.installers.is_some().then(|| {
        let caches = caches.clone();
        let installers: Arc<dyn Installers> = Arc::new(InstallerCluster { caches, writer });
        installers
    });
    let ledger = Arc::new(Ledger::new(borders.clock.clone()));
    let vsphere = vsphere::Options {
        ledger: ledger.clone(),
        ..borders.vsphere
    };
    let connector: Arc<dyn Connector> = Arc::new(VsphereConnector::new(gate, vsphere));
    Ports {
        view: caches,
        cluster,
        byoh,
        connector,
        iso_source: borders.iso_source,
        hosted_nodes: borders.hosted_nodes,
        clock: borders.clock,
        tracer: traces::tracer(borders.metrics.phases_dropped()),
        instruments: borders.metrics,
        settings: Settings {
            discovery_timeout: args.agent_discovery_timeout,
            orphan_scan_interval: args.orphan_scan_interval,
            datastore_floor: args.scaling.min_free_bytes(),
            secret_namespaces: args.secret_bound().to_vec(),
        },
        ledger,
        server_rule: args.server_rule(),
        exit: Arc::default(),
    }
}

/// Gets the cluster's identity. Waits for the first complete lists and for leadership. Then lets the actors begin.
async fn become_ready(
    args: Args,
    client: Client,
    caches: Arc<Caches>,
    supervisor: ActorRef<SupervisorMsg>,
    (mut standing, events): (watch::Receiver<Leadership>, EventSink),
    (metrics, list_anew): (Arc<Metrics>, oneshot::Sender<oneshot::Sender<()>>),
) {
    let id = match args.cluster_id {
        Some(id) => id,
        None => {
            let own = client.default_namespace().to_owned();
            cluster_id(client, caches.scope.identity(&own)).await
        }
    };
    if let Ok(mut slot) = caches.cluster_id.write() {
        *slot = id;
    }
    until_listed(&caches).await;
    tracing::info!(
        cluster_id = caches.cluster_id(),
        "ready: all watches have listed"
    );
    if args.dry_run {
        standby::until_rehearsing(&mut standing, &caches, &metrics).await;
    }
    let barred =
        !args.dry_run && standby::until_leading(&mut standing, &caches, &events, &metrics).await;
    if args.lease.leader_elect || barred {
        // The caches may be behind the writes of the previous leader, for example because a watch hangs.
        let (begin, begun) = oneshot::channel();
        if list_anew.send(begin).is_ok() && begun.await.is_ok() {
            until_listed(&caches).await;
            tracing::info!("leading with fresh lists");
        }
    }
    caches.lead();
    metrics.leads(true);
    let _ = supervisor.send_message(SupervisorMsg::Resync);
    while args.dry_run && standing.changed().await.is_ok() {
        if standby::rehearses(&standing.borrow_and_update(), &caches, &metrics) == Some(true) {
            let _ = supervisor.send_message(SupervisorMsg::Resync);
        }
    }
}

async fn until_listed(caches: &Caches) {
    while !caches.listed() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    caches.warm();
}

/// The uid of the namespace. It repeats the request until it succeeds: the uid is part of each VM's mark, so it must
/// not be guessed.
async fn cluster_id(client: Client, namespace: &str) -> String {
    let api: Api<Namespace> = Api::all(client);
    loop {
        match api.get(namespace).await {
            Ok(namespace) => {
                if let Some(uid) = namespace.uid() {
                    return uid;
                }
            }
            Err(e) => tracing::warn!(
                "reading namespace {namespace} for the cluster id (or set --cluster-id): {e}"
            ),
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}
