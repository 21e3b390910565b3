//! The placement actor with datastores that fill up.

use agent_forge_crds::{
    agent::{VmStatus, VsphereAgentStatus},
    conditions::Reason,
};
use futures::FutureExt as _;
use kube::ResourceExt as _;

use super::{reservations::LAG, *};
use crate::{
    ports::{
        effect::{EffectKind, Subject},
        instruments::NoInstruments,
    },
    runtime::mailbox::Mailbox,
    testing::{self, POOL, child, intent, running, told::Told, with},
    vm::testing::{Turned, hub::Hub, vcenter::Site},
};

const GIB: u64 = 1 << 30;
/// Disk and swap file of a VM of the usual pool.
const VM: u64 = 116;

struct Desk {
    hub: Arc<Hub>,
    site: Site,
    clock: Arc<Turned>,
    actor: ActorRef<PlacementMsg>,
}

impl Desk {
    /// VsphereAgents a to e; free GiB of two datastores.
    async fn new(first: u64, second: u64) -> Self {
        let hub = Arc::new(Hub::default());
        hub.with(|o| {
            o.pool = Some(testing::pool(POOL));
            o.others = ["a", "b", "c", "d", "e"].map(child).to_vec();
        });
        let site = Site::default();
        let free = [("datastore-1", first * GIB), ("datastore-2", second * GIB)];
        site.with(|i| i.free = free.into());
        let clock = Arc::new(Turned::default());
        let actor = spawn(&hub, &clock).await;
        Self {
            hub,
            site,
            clock,
            actor,
        }
    }

    /// The datastore for the VM of that VsphereAgent.
    async fn place(&self, name: &str) -> Result<String, ReconcileError> {
        let request = request::place_request(&testing::pool(POOL))?;
        assert_eq!(request.bytes, VM * GIB);
        self.find(name, request)
            .await
            .map(|place| place.datastore.1.id)
    }

    async fn find(&self, name: &str, request: PlaceRequest) -> Result<Place, ReconcileError> {
        let desk = PlacementDesk({
            let mailbox = Mailbox::new("placement", Arc::new(NoInstruments));
            let actor = Counted::new(self.actor.clone(), mailbox);
            move || Some(actor.clone())
        });
        let effect = Effect::new(EffectKind::CreateFolder, Subject::vm(&child(name)));
        desk.place(Arc::new(self.site.clone()), effect, request)
            .await
    }

    /// Records this in its status.
    fn record(&self, name: &str, vm: impl FnOnce(&VsphereAgent) -> VmStatus) {
        self.hub.with(|o| {
            let mut all = o.others.iter_mut();
            let found = all.find(|c| c.name_any() == name).expect("it exists");
            found.status = Some(VsphereAgentStatus {
                vm: Some(vm(found)),
                ..VsphereAgentStatus::default()
            });
        });
    }
}

async fn spawn(hub: &Arc<Hub>, clock: &Arc<Turned>) -> ActorRef<PlacementMsg> {
    let args = PlacementArgs {
        clock: clock.clone(),
        view: hub.clone(),
        floor: 0,
    };
    Actor::spawn(None, Placement, args).await.expect("up").0
}

#[tokio::test]
async fn vms_that_are_placed_at_once_spread() {
    let desk = Desk::new(400, 390).await;
    let all = ["a", "b", "c", "d"].map(|name| desk.place(name));
    let placed = futures::future::join_all(all).await;
    let on_first = placed
        .iter()
        .filter(|p| p.as_deref() == Ok("datastore-1"))
        .count();
    assert_eq!(on_first, 2, "{placed:?}");
}

/// Each resource pool has turns of its own: VMs of another one do not disturb them.
#[tokio::test]
async fn hosts_of_a_cluster_without_drs_take_turns() {
    let desk = Desk::new(900, 900).await;
    desk.site
        .with(|i| i.hosts_without_drs = Some(vec!["host-1", "host-2"]));
    let request = request::place_request(&testing::pool(POOL)).expect("valid");
    let other = PlaceRequest {
        resource_pool: "other/Resources".to_owned(),
        ..request.clone()
    };
    let mut named = Vec::new();
    for (name, request) in [
        ("a", &request),
        ("b", &other),
        ("c", &request),
        ("d", &other),
    ] {
        let place = desk.find(name, request.clone()).await.expect("room");
        named.push(place.host.expect("a host").0);
    }
    assert_eq!(named, ["host-1", "host-1", "host-2", "host-2"]);
}

#[tokio::test]
async fn what_is_asked_of_vcenter_stands_in_the_span_of_who_is_placed() {
    let told = Told::default();
    let here = told.here();
    let desk = Desk::new(400, 390).await;
    for name in ["a", "b"] {
        let step = tracing::error_span!("vm.step", name);
        desk.place(name).instrument(step).await.expect("room");
    }
    drop(here);
    let steps = told.spans("vm.step");
    assert_eq!(steps.len(), 2);
    for step in steps {
        assert_eq!(step.said(), ["a place is looked for"]);
    }
}

/// A VM actor that waited too long asks again: a search for its first request would only delay the others.
#[tokio::test]
async fn whoever_has_given_up_is_passed_over() {
    let told = Told::default();
    let here = told.here();
    let desk = Desk::new(400, 390).await;
    let asks = |name: &'static str| {
        let step = tracing::error_span!("vm.step", name);
        Box::pin(desk.place(name).instrument(step))
    };
    let (mut first, mut tired) = (asks("a"), asks("b"));
    assert!((&mut first).now_or_never().is_none());
    assert!((&mut tired).now_or_never().is_none());
    drop(tired);
    first.await.expect("room");
    asks("c").await.expect("room");
    drop(here);
    let searches: Vec<_> = told
        .spans("vm.step")
        .iter()
        .map(|s| s.said().len())
        .collect();
    assert_eq!(searches.iter().sum::<usize>(), 2, "{searches:?}");
}

/// The actor lives: nobody should look for one that restarts.
#[tokio::test(start_paused = true)]
async fn who_waits_too_long_is_told_of_the_queue() {
    let desk = Desk::new(400, 390).await;
    desk.site.with(|i| i.placing_hangs = true);
    let waits = desk.place("a").await.expect_err("it is searched for");
    assert_eq!(waits.reason, Reason::PlacementQueued, "{waits}");
    assert_eq!(waits.class, Class::Transient);
    desk.actor.stop_and_wait(None, None).await.expect("an end");
    let lost = desk.place("a").await.expect_err("nobody searches");
    assert_eq!(lost.reason, Reason::PlacementActorRestarting, "{lost}");
}

#[tokio::test]
async fn a_search_that_panics_ends_the_actor_instead_of_keeping_its_vcenter_busy() {
    let mut desk = Desk::new(400, 390).await;
    desk.site.with(|i| i.placing_panics = true);
    let lost = desk.place("a").await.expect_err("nothing was found");
    assert_eq!(lost.class, Class::Transient, "{lost}");
    let dead = desk.actor.get_cell();
    dead.wait(None).await.expect("an end");
    desk.site.with(|i| i.placing_panics = false);
    desk.actor = spawn(&desk.hub, &desk.clock).await;
    desk.place("b").await.expect("room");
}

#[tokio::test]
async fn a_slow_create_holds_its_space_and_a_vm_that_is_there_gives_it_back() {
    let mut desk = Desk::new(300, 290).await;
    assert_eq!(desk.place("a").await.as_deref(), Ok("datastore-1"));
    desk.record("a", |c| intent(c, 1));
    // Its create waits for its turn, and a restarted actor knows nothing of the reservation.
    desk.clock.turn(10 * LAG);
    assert_eq!(desk.place("b").await.as_deref(), Ok("datastore-2"));
    desk.actor.stop(None);
    desk.actor = spawn(&desk.hub, &desk.clock).await;
    assert_eq!(desk.place("b").await.as_deref(), Ok("datastore-2"));
    desk.record("a", running);
    assert_eq!(desk.place("b").await.as_deref(), Ok("datastore-2"));
    // By now the datastore's figures would include the VM.
    desk.clock.turn(LAG);
    assert_eq!(desk.place("b").await.as_deref(), Ok("datastore-1"));
}

#[tokio::test]
async fn what_will_not_be_made_gives_its_space_back_at_once() {
    let desk = Desk::new(VM, 0).await;
    desk.place("a").await.expect("room");
    let full = desk.place("b").await.expect_err("no room");
    assert_eq!(full.reason, Reason::NoDiskSpace);
    desk.hub.with(|o| o.others.retain(|c| c.name_any() != "a"));
    desk.place("b").await.expect("a is gone");
}

#[tokio::test]
async fn who_is_placed_again_is_not_in_its_own_way() {
    let desk = Desk::new(VM, 0).await;
    for _ in 0..2 {
        desk.place("a").await.expect("room");
        desk.record("a", |c| intent(c, 1));
    }
    let other = with(intent(&child("a"), 2), |vm| {
        let placement = vm.placement.as_mut().expect("recorded");
        placement.datastore_ref = Some("datastore-2".to_owned());
    });
    desk.record("a", |_| other);
    desk.place("b").await.expect("it went elsewhere");
}
