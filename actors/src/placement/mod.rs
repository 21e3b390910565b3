//! Placement: where a new VM runs.
//!
//! Flow: vCenter shows the candidates ([`search`]). A pure function chooses among them ([`choice`]). The actor reserves the
//! space ([`reservations`]). The VM actor records the place.
//!
//! The actor searches one place at a time per vCenter. Otherwise VMs that are created together would all get the datastore
//! that was the emptiest a moment ago.
//!
//! Guarantees: the actor subtracts the space of VMs in the making from the free space, also right after its start. Each
//! request gets an answer of its own.

pub mod choice;
pub mod request;
pub mod reservations;
pub mod search;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::{agent::VsphereAgent, conditions::Reason};

use async_trait::async_trait;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::task::JoinSet;
use tracing::{Instrument as _, Span};

use self::{choice::EarlierChoices, reservations::Reservations};
use crate::{
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        goal, sizes,
    },
    ports::{
        clock::Clock,
        cluster::View,
        effect::{Effect, Subject},
        vcenter::{Place, PlaceRequest, VCenter},
    },
    runtime::{
        beside::beside,
        mailbox::{Counted, Queued},
        shell::Description,
    },
};

/// Finds places.
#[async_trait]
pub trait Placer: Send + Sync {
    /// Finds a place at `session`'s vCenter. `effect` belongs to the VsphereAgent of the VM. Its space is reserved from then
    /// on.
    ///
    /// # Errors
    /// [`ReconcileError`] names field and value that do not resolve.
    async fn place(
        &self,
        session: Arc<dyn VCenter>,
        effect: Effect,
        request: PlaceRequest,
    ) -> Result<Place, ReconcileError>;
}

/// One request.
pub struct Job {
    session: Arc<dyn VCenter>,
    effect: Effect,
    request: PlaceRequest,
    reply: RpcReplyPort<Result<Place, ReconcileError>>,
    /// Span of the asking VM actor: the calls for this request appear there in trace and log.
    around: Span,
    /// Counts the message until the actor reads it.
    queued: Option<Queued>,
}

/// Messages of the placement actor.
pub enum PlacementMsg {
    /// Find a place.
    Place(Box<Job>),
    /// A search at that server ended (internal).
    Done(String, Option<Answered>),
    /// Describe yourself.
    Describe(RpcReplyPort<Description>),
    /// Die in a handler (debug endpoint only).
    Panic,
}

/// A place that was found.
pub struct Answered {
    whose: Subject,
    datastore: String,
    bytes: u64,
    /// Resource pool, if placement named the host.
    host_named_in: Option<PoolName>,
}

/// Datacenter and resource pool, as a pool's spec names them.
type PoolName = (String, String);

/// One vCenter.
#[derive(Default)]
struct Lane {
    busy: bool,
    queue: VecDeque<Job>,
    reservations: Reservations,
    /// How many hosts placement has named, so that hosts take turns.
    hosts_named: BTreeMap<PoolName, usize>,
}

impl Lane {
    fn answered(&mut self, a: Answered, now: Duration) {
        self.reservations
            .answered(a.whose, a.datastore, a.bytes, now);
        if let Some(pool) = a.host_named_in {
            *self.hosts_named.entry(pool).or_default() += 1;
        }
    }

    fn earlier(&self, job: &Job, pool: &PoolName, floor: u64) -> EarlierChoices {
        EarlierChoices {
            reserved: self.reservations.beside(&job.effect.subject),
            hosts_named: self.hosts_named.get(pool).copied().unwrap_or(0),
            floor,
        }
    }
}

/// What the placement actor needs.
#[derive(Clone)]
pub struct PlacementArgs {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// VsphereAgents and their pools.
    pub view: Arc<dyn View>,
    /// Bytes that stay free on each datastore (`--min-free-datastore-gib`).
    pub floor: u64,
}

/// State.
pub struct PlacementState {
    args: PlacementArgs,
    lanes: BTreeMap<String, Lane>,
    running: JoinSet<()>,
    about: Description,
}

/// The placement actor.
pub struct Placement;

impl Actor for Placement {
    type Msg = PlacementMsg;
    type State = PlacementState;
    type Arguments = PlacementArgs;

    async fn pre_start(
        &self,
        _: ActorRef<PlacementMsg>,
        args: PlacementArgs,
    ) -> Result<PlacementState, ActorProcessingErr> {
        let about = Description {
            kind: "placement".to_owned(),
            ..Description::default()
        };
        Ok(PlacementState {
            args,
            lanes: BTreeMap::new(),
            running: JoinSet::new(),
            about,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<PlacementMsg>,
        message: PlacementMsg,
        state: &mut PlacementState,
    ) -> Result<(), ActorProcessingErr> {
        while state.running.try_join_next().is_some() {}
        let server = match message {
            PlacementMsg::Place(mut job) => {
                drop(job.queued.take());
                let server = job.session.server().to_owned();
                state
                    .lanes
                    .entry(server.clone())
                    .or_default()
                    .queue
                    .push_back(*job);
                server
            }
            PlacementMsg::Done(server, answered) => {
                let now = state.args.clock.monotonic();
                let lane = state.lanes.entry(server.clone()).or_default();
                lane.busy = false;
                if let Some(answered) = answered {
                    lane.answered(answered, now);
                }
                state.about.passes += 1;
                server
            }
            PlacementMsg::Describe(reply) => {
                let _ = reply.send(state.about.clone());
                return Ok(());
            }
            PlacementMsg::Panic => return Err("killed by the debug endpoint".into()),
        };
        begin(state, &myself, &server);
        Ok(())
    }
}

fn begin(state: &mut PlacementState, myself: &ActorRef<PlacementMsg>, server: &str) {
    let now = state.args.clock.monotonic();
    let (view, floor) = (state.args.view.clone(), state.args.floor);
    let Some(lane) = state.lanes.get_mut(server) else {
        return;
    };
    if lane.busy {
        return;
    }
    // A VM actor that has given up asks again: it needs no answer to its first request.
    while lane
        .queue
        .pop_front_if(|job| job.reply.is_closed())
        .is_some()
    {}
    let Some(job) = lane.queue.pop_front() else {
        return;
    };
    let children = view.all_children();
    let space = |child: &VsphereAgent| space(view.as_ref(), child);
    lane.reservations
        .look(server, children.iter().map(AsRef::as_ref), space, now);
    let pool = (
        job.request.datacenter.clone(),
        job.request.resource_pool.clone(),
    );
    let earlier = lane.earlier(&job, &pool, floor);
    lane.busy = true;
    let (server, to) = (server.to_owned(), myself.clone());
    let around = job.around.clone();
    let search = async move {
        let placed = search::find(&*job.session, &job.effect, &job.request, &earlier).await;
        let answered = placed.as_ref().ok().map(|place| Answered {
            whose: job.effect.subject,
            datastore: place.datastore.1.id.clone(),
            bytes: job.request.bytes,
            host_named_in: place.host.is_some().then_some(pool),
        });
        let _ = job.reply.send(placed.map_err(ReconcileError::from));
        let _ = to.send_message(PlacementMsg::Done(server, answered));
    };
    beside(&mut state.running, myself, search.instrument(around));
}

/// Bytes that the VM of a VsphereAgent needs, by the current spec of its pool.
fn space(view: &dyn View, child: &VsphereAgent) -> Option<u64> {
    let pool = view.pool(&goal::user(child))?;
    let made = child.status.as_ref().and_then(|s| s.vm.as_ref());
    let pool = sizes::seen_by(pool, child.spec.class.as_deref(), made);
    request::hardware(&pool).ok().map(|h| h.bytes())
}

/// The search did not end in time.
fn queued_for_long() -> ReconcileError {
    let message = format!(
        "vCenter has not named host and datastore for the VM within {} s: other VMs of the same vCenter come first, or it answers \
         slowly; trying again",
        ANSWER_WITHIN.as_secs()
    );
    ReconcileError::transient(ErrorSource::Vsphere, Reason::PlacementQueued, message)
}

/// [`Placer`] over the actor. After a restart it reaches the new actor.
pub struct PlacementDesk<F>(pub F);

/// Longest wait for an answer: the queue of one vCenter may be long.
const ANSWER_WITHIN: Duration = Duration::from_secs(300);

#[async_trait]
impl<F> Placer for PlacementDesk<F>
where
    F: Fn() -> Option<Counted<PlacementMsg>> + Send + Sync,
{
    async fn place(
        &self,
        session: Arc<dyn VCenter>,
        effect: Effect,
        request: PlaceRequest,
    ) -> Result<Place, ReconcileError> {
        let lost = || ReconcileError {
            side: ErrorSource::Vsphere,
            reason: Reason::PlacementActorRestarting,
            message: "the placement actor is being restarted; trying again".to_owned(),
            class: Class::Transient,
        };
        let desk = (self.0)().ok_or_else(lost)?;
        let (queued, around) = (Some(desk.send()), Span::current());
        let asked = desk
            .actor
            .call(
                |reply| {
                    PlacementMsg::Place(Box::new(Job {
                        session,
                        effect,
                        request,
                        reply,
                        around,
                        queued,
                    }))
                },
                Some(ANSWER_WITHIN),
            )
            .await;
        match asked {
            Ok(ractor::rpc::CallResult::Success(result)) => result,
            Ok(ractor::rpc::CallResult::Timeout) => Err(queued_for_long()),
            _ => Err(lost()),
        }
    }
}
