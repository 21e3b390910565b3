//! The placement actor: resolves places one at a time per vCenter, so that VMs created in parallel do not herd onto
//! the datastore that was the emptiest a moment ago.
//!
//! Guarantees: what was promised in the last [`REMEMBERED`] is subtracted from what is free; an answer is never shared.
//! Assumption: after that time the datastore's own figures show the space as used.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::task::JoinSet;

use crate::{
    actor::{
        mailbox::{Counted, Queued},
        shell::Description,
    },
    effect::Effect,
    error::{Class, Side, Trouble},
    ports::{
        clock::Clock,
        vcenter::{Place, PlaceRequest, VCenter},
    },
};

/// How long a promise counts.
pub const REMEMBERED: Duration = Duration::from_secs(120);

/// Resolves places.
#[async_trait]
pub trait Placer: Send + Sync {
    /// Resolves `request` at `session`'s vCenter.
    ///
    /// # Errors
    /// [`Trouble`] names field and value that do not resolve.
    async fn place(
        &self,
        session: Arc<dyn VCenter>,
        effect: Effect,
        request: PlaceRequest,
    ) -> Result<Place, Trouble>;
}

/// One request.
pub struct Job {
    session: Arc<dyn VCenter>,
    effect: Effect,
    request: PlaceRequest,
    reply: RpcReplyPort<Result<Place, Trouble>>,
    /// Until it is read.
    queued: Option<Queued>,
}

/// Messages of the placement actor.
pub enum PlacementMsg {
    /// Resolve.
    Place(Box<Job>),
    /// A resolution at that server ended; with the datastore and bytes promised (internal).
    Done(String, Option<(String, u64)>),
    /// Describe yourself.
    Describe(RpcReplyPort<Description>),
    /// Die in a handler (debug endpoint only).
    Panic,
}

#[derive(Default)]
struct Lane {
    busy: bool,
    queue: VecDeque<Job>,
    promised: Vec<(Duration, String, u64)>,
}

/// State.
pub struct PlacementState {
    clock: Arc<dyn Clock>,
    lanes: BTreeMap<String, Lane>,
    running: JoinSet<()>,
    about: Description,
}

/// The placement actor.
pub struct Placement;

impl Actor for Placement {
    type Msg = PlacementMsg;
    type State = PlacementState;
    type Arguments = Arc<dyn Clock>;

    async fn pre_start(
        &self,
        _: ActorRef<PlacementMsg>,
        clock: Arc<dyn Clock>,
    ) -> Result<PlacementState, ActorProcessingErr> {
        let about = Description {
            kind: "placement".to_owned(),
            ..Description::default()
        };
        Ok(PlacementState {
            clock,
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
            PlacementMsg::Done(server, promised) => {
                let now = state.clock.monotonic();
                let lane = state.lanes.entry(server.clone()).or_default();
                lane.busy = false;
                lane.promised
                    .extend(promised.map(|(datastore, bytes)| (now, datastore, bytes)));
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
    let now = state.clock.monotonic();
    let Some(lane) = state.lanes.get_mut(server) else {
        return;
    };
    if lane.busy {
        return;
    }
    let Some(mut job) = lane.queue.pop_front() else {
        return;
    };
    lane.promised
        .retain(|(at, ..)| now.saturating_sub(*at) < REMEMBERED);
    for (_, datastore, bytes) in &lane.promised {
        *job.request.reserved.entry(datastore.clone()).or_default() += bytes;
    }
    lane.busy = true;
    let (server, to) = (server.to_owned(), myself.clone());
    state.running.spawn(async move {
        let bytes = job.request.bytes;
        let placed = job.session.place(&job.effect, &job.request).await;
        let promised = placed
            .as_ref()
            .ok()
            .map(|p| (p.datastore.1.id.clone(), bytes));
        let _ = job.reply.send(placed.map_err(Trouble::from));
        let _ = to.send_message(PlacementMsg::Done(server, promised));
    });
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
    ) -> Result<Place, Trouble> {
        let lost = || Trouble {
            side: Side::Vsphere,
            reason: "PlacementActorRestarting".to_owned(),
            message: "the placement actor is being restarted; trying again".to_owned(),
            class: Class::Transient,
        };
        let desk = (self.0)().ok_or_else(lost)?;
        let queued = Some(desk.send());
        let asked = desk
            .actor
            .call(
                |reply| {
                    PlacementMsg::Place(Box::new(Job {
                        session,
                        effect,
                        request,
                        reply,
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
