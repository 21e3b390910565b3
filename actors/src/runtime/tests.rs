//! What the operator relies on in ractor. Its version is pinned exactly, and these tests check each new version.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use ractor::{Actor, ActorProcessingErr, ActorRef, ActorStatus, SupervisionEvent};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    fn note(&self, what: &'static str) {
        self.0.lock().expect("lock").push(what);
    }
    fn has(&self, what: &'static str) -> bool {
        self.0.lock().expect("lock").contains(&what)
    }
}

enum Ask {
    Fail,
    Panic,
    Hang,
    Note,
}

struct Child(Log);

impl Actor for Child {
    type Msg = Ask;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Ask>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<Ask>,
        message: Ask,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Ask::Fail => return Err("as told".into()),
            Ask::Panic => panic!("as told"),
            Ask::Hang => tokio::time::sleep(Duration::from_secs(3600)).await,
            Ask::Note => self.0.note("handled"),
        }
        self.0.note("handler over");
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Ask>, (): &mut ()) -> Result<(), ActorProcessingErr> {
        self.0.note("post_stop");
        Ok(())
    }
}

/// Supervises children; `true`: with ractor's own reaction to their end.
struct Parent(Log, bool);

impl Actor for Parent {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<()>,
        event: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(..) => self.0.note("terminated"),
            SupervisionEvent::ActorFailed(..) => self.0.note("failed"),
            _ => return Ok(()),
        }
        if self.1 {
            myself.stop(None);
        }
        Ok(())
    }
}

struct Pair {
    log: Log,
    parent: ActorRef<()>,
    child: ActorRef<Ask>,
}

async fn pair() -> Pair {
    let log = Log::default();
    let (parent, _) = Actor::spawn(None, Parent(log.clone(), false), ())
        .await
        .expect("up");
    let cell = parent.get_cell();
    let (child, _) = Actor::spawn_linked(None, Child(log.clone()), (), cell)
        .await
        .expect("up");
    Pair { log, parent, child }
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(10)).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_or_a_panic_in_a_handler_ends_the_actor_without_post_stop() {
    for ask in [Ask::Fail, Ask::Panic] {
        let pair = pair().await;
        let _ = pair.child.send_message(ask);
        settle().await;
        assert_eq!(pair.child.get_status(), ActorStatus::Stopped);
        assert!(pair.log.has("failed") && !pair.log.has("terminated"));
        assert!(!pair.log.has("post_stop"), "clean-up is the supervisor's");
        assert_eq!(pair.parent.get_status(), ActorStatus::Running);
    }
}

#[tokio::test(start_paused = true)]
async fn a_kill_ends_a_handler_in_the_middle_and_skips_post_stop() {
    let pair = pair().await;
    let _ = pair.child.send_message(Ask::Hang);
    settle().await;
    pair.child.kill();
    settle().await;
    assert_eq!(pair.child.get_status(), ActorStatus::Stopped);
    assert!(pair.log.has("terminated"));
    assert!(!pair.log.has("handler over") && !pair.log.has("post_stop"));
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_the_handler_and_runs_post_stop_before_the_parent_hears() {
    let pair = pair().await;
    let _ = pair.child.send_message(Ask::Hang);
    settle().await;
    pair.child.stop(None);
    settle().await;
    assert!(!pair.log.has("post_stop"), "the handler still runs");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    settle().await;
    let order = pair.log.0.lock().expect("lock").clone();
    assert_eq!(order, ["handler over", "post_stop", "terminated"]);
}

#[tokio::test(start_paused = true)]
async fn messages_after_a_stop_are_not_handled() {
    let pair = pair().await;
    let _ = pair.child.send_message(Ask::Hang);
    settle().await;
    let _ = pair.child.send_message(Ask::Note);
    pair.child.stop(None);
    tokio::time::sleep(Duration::from_secs(3601)).await;
    settle().await;
    assert!(pair.log.has("post_stop") && !pair.log.has("handled"));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_parent_ends_its_children_in_the_middle() {
    let pair = pair().await;
    let _ = pair.child.send_message(Ask::Hang);
    settle().await;
    pair.parent.stop(None);
    settle().await;
    assert_eq!(pair.child.get_status(), ActorStatus::Stopped);
    assert!(!pair.log.has("handler over"), "hence the flat tree");
}
