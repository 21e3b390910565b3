//! The supervisor: finds or spawns the actor for a key, restarts dead ones, stops those whose object is gone.
//!
//! The tree is flat. The end of an actor kills its linked children in the middle of their work, so only the supervisor has
//! children.
//!
//! Guarantees: there is one actor per key. A dead actor restarts only after it has stopped, within its own budget
//! ([`restart`]). VM and pool actors, and the installer for BYOH, always restart. Assumption: the view was complete once before the first wake.

mod clients;
pub mod exit;
pub mod handle;
mod msg;
pub mod restart;
pub mod routing;
#[cfg(test)]
mod tests;
mod tree;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::ResourceExt as _;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::watch;

pub use self::msg::{Described, Life, SupervisorMsg};
use self::{
    exit::Exit,
    handle::Handle,
    restart::{Budget, Verdict},
    routing::{ActorKey, route},
};
use crate::{
    context::{Context, NewsOfVms, Settings, SuspectVms},
    domain::{managed_vm::ManagedVm, server::ServerRule},
    iso::{self, of_pool::IsoCaches},
    placement::{PlacementDesk, PlacementMsg},
    ports::{
        byoh::Installers,
        clock::Clock,
        cluster::{Cluster, View},
        instruments::Instruments,
        iso_source::IsoSource,
        nodes::{HostedNodes, NodeAccess},
        tracer::Tracer,
        vcenter::Connector,
    },
    runtime::{backoff, mailbox::Counted},
    sessions::{SessionMsg, client::SessionClient, ledger::Ledger},
};

/// The adapters that the whole tree works with.
#[derive(Clone)]
pub struct Ports {
    /// Cached reads.
    pub view: Arc<dyn View>,
    /// Live reads and writes.
    pub cluster: Arc<dyn Cluster>,
    /// Logs in to vCenters.
    pub connector: Arc<dyn Connector>,
    /// Downloads ISOs.
    pub iso_source: Arc<dyn IsoSource>,
    /// Objects of the installer for BYOH; `None` if that is off.
    pub byoh: Option<Arc<dyn Installers>>,
    /// Reads Nodes of hosted clusters.
    pub hosted_nodes: Arc<dyn HostedNodes>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Counters.
    pub instruments: Arc<dyn Instruments>,
    /// Machines' traces.
    pub tracer: Arc<dyn Tracer>,
    /// Settings that decisions depend on.
    pub settings: Settings,
    /// Refused passwords; shared with the connector.
    pub ledger: Arc<Ledger>,
    /// Which vCenters credentials Secrets may name.
    pub server_rule: ServerRule,
    /// The way to end the tree.
    pub exit: Arc<Exit>,
}

/// Logs that an actor ended, with the object that it was about.
fn tell_end(view: &dyn View, key: &ActorKey, why: &str, after: Duration) {
    let child = match key {
        ActorKey::Vm(key) => view.child(key).map(ManagedVm::read),
        _ => None,
    };
    let of_pool = match key {
        ActorKey::Pool(key) => view.pool(key).and_then(|pool| pool.uid()),
        _ => None,
    };
    let uid = child.as_ref().map(|c| c.uid.clone()).or(of_pool);
    tracing::warn!(
        actor = %key,
        object = key.object().map(tracing::field::display),
        uid,
        trace_id = child.map(|c| tracing::field::display(c.trace())),
        %why,
        ?after,
        "actor ended; starting it again"
    );
}

/// State.
pub struct SupervisorState {
    ports: Ports,
    context: Context,
    isos: Arc<dyn IsoCaches>,
    actors: BTreeMap<ActorKey, Handle>,
    by_id: BTreeMap<u64, ActorKey>,
    /// Dead actors, and when (monotonic) each restarts.
    pending: BTreeMap<ActorKey, Duration>,
    budgets: BTreeMap<ActorKey, Budget>,
    restarts: BTreeMap<ActorKey, u64>,
    sessions: watch::Sender<Option<Counted<SessionMsg>>>,
    placement: watch::Sender<Option<Counted<PlacementMsg>>>,
    doubts: Arc<watch::Sender<SuspectVms>>,
    news: Arc<watch::Sender<NewsOfVms>>,
    stopping: bool,
}

/// The supervisor.
pub struct Supervisor;

fn id(actor: ActorId) -> u64 {
    actor.pid()
}

/// Ends the actors whose keys begin with `which` (`*`: all), and returns their keys.
fn kill(state: &SupervisorState, which: &str, panic: bool) -> Vec<String> {
    let hit = |key: &String| which == "*" || key.starts_with(which);
    let all = state
        .actors
        .iter()
        .map(|(k, handle)| (k.to_string(), handle));
    let hit: Vec<_> = all.filter(|(key, _)| hit(key)).collect();
    for (_, handle) in &hit {
        if panic {
            handle.panic();
        } else {
            handle.cell().kill();
        }
    }
    hit.into_iter().map(|(key, _)| key).collect()
}

impl Actor for Supervisor {
    type Msg = SupervisorMsg;
    type State = SupervisorState;
    type Arguments = Ports;

    async fn pre_start(
        &self,
        myself: ActorRef<SupervisorMsg>,
        ports: Ports,
    ) -> Result<SupervisorState, ActorProcessingErr> {
        let (sessions, sessions_now) = watch::channel(None);
        let (placement, placement_now) = watch::channel(None);
        let (doubts, doubts_now) = watch::channel(SuspectVms::default());
        let (news, news_now) = watch::channel(NewsOfVms::default());
        let context = Context {
            doubts: doubts_now,
            news: news_now,
            view: ports.view.clone(),
            cluster: ports.cluster.clone(),
            sessions: Arc::new(SessionClient(move || sessions_now.borrow().clone())),
            placer: Arc::new(PlacementDesk(move || placement_now.borrow().clone())),
            nodes: NodeAccess {
                hosted: ports.hosted_nodes.clone(),
                waker: Arc::new(clients::WakeThrough(myself.clone())),
            },
            clock: ports.clock.clone(),
            instruments: ports.instruments.clone(),
            tracer: ports.tracer.clone(),
            settings: ports.settings.clone(),
        };
        let isos = Arc::new(clients::IsoDesk(myself.clone()));
        Ok(SupervisorState {
            ports,
            context,
            isos,
            actors: BTreeMap::new(),
            by_id: BTreeMap::new(),
            pending: BTreeMap::new(),
            budgets: BTreeMap::new(),
            restarts: BTreeMap::new(),
            sessions,
            placement,
            doubts: Arc::new(doubts),
            news: Arc::new(news),
            stopping: false,
        })
    }

    async fn post_start(
        &self,
        myself: ActorRef<SupervisorMsg>,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        for key in [
            ActorKey::Sessions,
            ActorKey::Placement,
            ActorKey::Orphans,
            ActorKey::News,
        ] {
            state.ensure(&myself, &key).await?;
        }
        if state.wanted(&ActorKey::Byoh) {
            state.ensure(&myself, &ActorKey::Byoh).await?;
        }
        let _ = myself.send_message(SupervisorMsg::Resync);
        myself.send_interval(backoff::RESYNC, || SupervisorMsg::Resync);
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<SupervisorMsg>,
        message: SupervisorMsg,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        if let Some(reply) = state.ports.exit.asked() {
            state.shutdown(reply);
        }
        match message {
            SupervisorMsg::Changed(change) => {
                let view = state.ports.view.clone();
                if view.ready() && !state.stopping {
                    for (key, reason) in route(&change, view.as_ref()) {
                        state.wake(&myself, &key, reason).await?;
                    }
                }
            }
            SupervisorMsg::Wake(key, reason) => state.wake(&myself, &key, reason).await?,
            SupervisorMsg::Resync => state.resync(&myself).await?,
            SupervisorMsg::Respawn(key) => {
                if !state.wanted(&key) {
                    state.stop(&key);
                } else if state.pending.remove(&key).is_some() {
                    state.ports.instruments.restarted(key.kind());
                    *state.restarts.entry(key.clone()).or_default() += 1;
                    state.ensure(&myself, &key).await?;
                }
            }
            SupervisorMsg::IsoCache(key, reply) => {
                if let Some(Handle::Iso(actor)) =
                    state.ensure(&myself, &ActorKey::IsoCache(key)).await?
                {
                    let _ = reply.send(actor);
                }
            }
            SupervisorMsg::LeaveIsoCaches(pool) => {
                for handle in state.actors.values() {
                    if let Handle::Iso(cache) = handle {
                        iso::leave(cache, &pool);
                    }
                }
            }
            SupervisorMsg::Describe(reply) => state.describe(reply),
            SupervisorMsg::Kill {
                which,
                panic,
                reply,
            } => {
                let _ = reply.send(kill(state, &which, panic));
            }
            SupervisorMsg::Shutdown => {}
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SupervisorMsg>,
        event: SupervisionEvent,
        state: &mut SupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        let (cell, why) = match event {
            SupervisionEvent::ActorTerminated(cell, _, reason) => {
                (cell, reason.unwrap_or_else(|| "stopped".to_owned()))
            }
            SupervisionEvent::ActorFailed(cell, error) => (cell, error.to_string()),
            _ => return Ok(()),
        };
        let Some(key) = state.by_id.remove(&id(cell.get_id())) else {
            return Ok(());
        };
        state.actors.remove(&key);
        state.publish(&key, None);
        state.count(key.kind());
        if state.stopping || !state.wanted(&key) {
            state.forget(&key);
            return Ok(());
        }
        let restarts_always = matches!(key, ActorKey::Pool(_) | ActorKey::Vm(_) | ActorKey::Byoh);
        let infrastructure = !restarts_always;
        let now = state.ports.clock.monotonic();
        match state
            .budgets
            .entry(key.clone())
            .or_default()
            .died(now, infrastructure)
        {
            Verdict::RestartAfter(after) => {
                tell_end(state.ports.view.as_ref(), &key, &why, after);
                state.pending.insert(key.clone(), now.saturating_add(after));
                myself.send_after(after, move || SupervisorMsg::Respawn(key));
                Ok(())
            }
            Verdict::Escalate => Err(format!(
                "{key} keeps dying ({why}); giving up so that the process is restarted"
            )
            .into()),
        }
    }
}
