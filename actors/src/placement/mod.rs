//! The placement actor: resolves places one at a time per vCenter, so that VMs created in parallel do not herd onto
//! the datastore that was the emptiest a moment ago.
//!
//! Guarantees: the space of VMs in the making is subtracted from what is free ([`reservations`]), also when this actor has
//! just been started; an answer is never shared.

pub mod request;
pub mod reservations;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::agent::VsphereAgent;

use async_trait::async_trait;
use kube::ResourceExt as _;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::task::JoinSet;
use tracing::{Instrument as _, Span};

use self::reservations::Reservations;
use crate::{
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        names::ObjectKey,
    },
    ports::{
        clock::Clock,
        cluster::View,
        effect::{Effect, EffectKey},
        vcenter::{Place, PlaceRequest, VCenter},
    },
    runtime::{
        beside::beside,
        mailbox::{Counted, Queued},
        shell::Description,
    },
};

/// Resolves places.
#[async_trait]
pub trait Placer: Send + Sync {
    /// Resolves `request` at `session`'s vCenter. `effect` is of the VsphereAgent whose VM it is: its space is reserved from
    /// then on.
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
    /// Whose request it is: what is asked of vCenter for it stands there in the trace, and names that in the log.
    around: Span,
    /// Until it is read.
    queued: Option<Queued>,
}

/// Messages of the placement actor.
pub enum PlacementMsg {
    /// Resolve.
    Place(Box<Job>),
    /// A resolution at that server ended (internal).
    Done(String, Option<Answered>),
    /// Describe yourself.
    Describe(RpcReplyPort<Description>),
    /// Die in a handler (debug endpoint only).
    Panic,
}

/// A place that was answered.
pub struct Answered {
    whose: EffectKey,
    datastore: String,
    bytes: u64,
}

#[derive(Default)]
struct Lane {
    busy: bool,
    queue: VecDeque<Job>,
    reservations: Reservations,
}

/// What the placement actor needs.
#[derive(Clone)]
pub struct PlacementArgs {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// VsphereAgents and their pools.
    pub view: Arc<dyn View>,
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
                if let Some(a) = answered {
                    lane.reservations
                        .answered(a.whose, a.datastore, a.bytes, now);
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
    let view = state.args.view.clone();
    let Some(lane) = state.lanes.get_mut(server) else {
        return;
    };
    if lane.busy {
        return;
    }
    // Whoever has given up asks again, and is not served twice.
    while lane
        .queue
        .pop_front_if(|job| job.reply.is_closed())
        .is_some()
    {}
    let Some(mut job) = lane.queue.pop_front() else {
        return;
    };
    let children = view.all_children();
    let space = |child: &VsphereAgent| space(view.as_ref(), child);
    lane.reservations
        .look(server, children.iter().map(AsRef::as_ref), space, now);
    job.request.reserved = lane.reservations.beside(&job.effect.key);
    lane.busy = true;
    let (server, to) = (server.to_owned(), myself.clone());
    let around = job.around.clone();
    let search = async move {
        let placed = job.session.place(&job.effect, &job.request).await;
        let answered = placed.as_ref().ok().map(|place| Answered {
            whose: job.effect.key,
            datastore: place.datastore.1.id.clone(),
            bytes: job.request.bytes,
        });
        let _ = job.reply.send(placed.map_err(ReconcileError::from));
        let _ = to.send_message(PlacementMsg::Done(server, answered));
    };
    beside(&mut state.running, myself, search.instrument(around));
}

/// Bytes that the VM of a VsphereAgent needs, by its pool as it is now.
fn space(view: &dyn View, child: &VsphereAgent) -> Option<u64> {
    let namespace = child.namespace().unwrap_or_default();
    let pool = view.pool(&ObjectKey::new(&namespace, &child.spec.pool_ref.name))?;
    request::hardware(&pool).ok().map(|h| h.bytes())
}

/// [`Placer`] over the actor, whichever generation of it is alive.
pub struct PlacementDesk<F>(pub F);

/// How long to wait for an answer: the queue of one vCenter may be long.
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
            reason: "PlacementActorRestarting".to_owned(),
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
            _ => Err(lost()),
        }
    }
}
