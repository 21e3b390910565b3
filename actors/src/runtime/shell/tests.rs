//! The shell on virtual time: the guarantees at the head of its module.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use ractor::{ActorCell, ActorStatus};
use tokio::sync::Notify;

use super::*;

/// Counts what passes do.
#[derive(Default)]
struct Seen {
    begun: AtomicUsize,
    ended: AtomicUsize,
    /// Passes that run at this time.
    running: AtomicUsize,
    /// The most passes that ran at once.
    most: AtomicUsize,
    /// Running passes that were dropped before their end.
    dropped: AtomicUsize,
    /// Lets a pass continue that waits for it.
    go: Notify,
}

impl Seen {
    fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }
}

/// Counts as a running pass while it lives.
struct Running(Arc<Seen>, bool);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        if !self.1 {
            self.0.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Does {
    Nothing,
    Waits,
    Panics,
    Fails(Class),
    AsksAgain(Duration),
}

struct Probe(Arc<Seen>, Does);

const DEBOUNCE: Duration = Duration::from_millis(100);

impl Worker for Probe {
    type Memory = usize;

    fn kind(&self) -> &'static str {
        "probe"
    }

    fn key(&self) -> String {
        "p".to_owned()
    }

    fn debounce(&self) -> Duration {
        DEBOUNCE
    }

    fn pass(&self, memory: usize) -> BoxFuture<'static, (usize, Verdict)> {
        let (seen, does) = (self.0.clone(), self.1);
        Box::pin(async move {
            seen.begun.fetch_add(1, Ordering::SeqCst);
            let now = seen.running.fetch_add(1, Ordering::SeqCst) + 1;
            seen.most.fetch_max(now, Ordering::SeqCst);
            let mut running = Running(seen.clone(), false);
            let mut verdict = Verdict::default();
            match does {
                Does::Nothing => {}
                Does::Waits => seen.go.notified().await,
                Does::Panics => panic!("as told"),
                Does::Fails(class) => verdict.failure = Some(class),
                Does::AsksAgain(after) => verdict.again = Some(after),
            }
            running.1 = true;
            seen.ended.fetch_add(1, Ordering::SeqCst);
            // The next pass gets the memory of this one.
            assert_eq!(memory + 1, seen.begun());
            (memory + 1, verdict)
        })
    }
}

struct Bench {
    seen: Arc<Seen>,
    actor: ActorRef<ShellMsg>,
    handle: JoinHandle<()>,
}

async fn start(does: Does) -> Bench {
    let seen = Arc::new(Seen::default());
    let probe = Probe(seen.clone(), does);
    let (actor, handle) = Actor::spawn(None, Shell::default(), probe)
        .await
        .expect("started");
    let bench = Bench {
        seen,
        actor,
        handle,
    };
    bench.after(Duration::from_millis(1)).await;
    bench
}

impl Bench {
    /// Lets virtual time pass, and runs everything that is due.
    async fn after(&self, time: Duration) {
        tokio::time::sleep(time).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    fn wake(&self) {
        let _ = self.actor.send_message(ShellMsg::Wake("test", None));
    }

    async fn describe(&self) -> Description {
        let asked = self.actor.call(ShellMsg::Describe, Some(DEBOUNCE)).await;
        match asked.expect("alive") {
            ractor::rpc::CallResult::Success(d) => d,
            other => panic!("no answer: {other:?}"),
        }
    }

    fn cell(&self) -> ActorCell {
        self.actor.get_cell()
    }
}

#[tokio::test(start_paused = true)]
async fn many_wakes_are_one_pass_and_none_is_lost() {
    let bench = start(Does::Nothing).await;
    assert_eq!(bench.seen.begun(), 1, "the first look needs no wake");
    for _ in 0..1000 {
        bench.wake();
    }
    bench.after(DEBOUNCE / 2).await;
    bench.wake();
    assert_eq!(bench.seen.begun(), 1, "it gathers");
    bench.after(DEBOUNCE).await;
    assert_eq!(bench.seen.begun(), 2);
    bench.after(Duration::from_secs(50)).await;
    assert_eq!(bench.seen.begun(), 2);
    assert_eq!(bench.describe().await.wakes, 1001);
}

#[tokio::test(start_paused = true)]
async fn a_wake_does_not_put_the_pass_off() {
    let bench = start(Does::Nothing).await;
    for _ in 0..100 {
        bench.wake();
        bench.after(DEBOUNCE / 4).await;
    }
    assert!(bench.seen.begun() > 15, "{}", bench.seen.begun());
}

#[tokio::test(start_paused = true)]
async fn without_any_wake_it_looks_again_once_a_minute_or_when_the_pass_asked() {
    let bench = start(Does::Nothing).await;
    bench.after(Duration::from_secs(59)).await;
    assert_eq!(bench.seen.begun(), 1);
    bench.after(Duration::from_secs(1)).await;
    assert_eq!(bench.seen.begun(), 2);
    let bench = start(Does::AsksAgain(Duration::from_secs(7))).await;
    bench.after(Duration::from_secs(7)).await;
    assert_eq!(bench.seen.begun(), 2);
    // A worker asks for a very long rest. The resync wakes it nevertheless.
    let bench = start(Does::AsksAgain(Duration::from_secs(3600))).await;
    bench.after(backoff::RESYNC).await;
    assert_eq!(bench.seen.begun(), 2);
}

#[tokio::test(start_paused = true)]
async fn one_pass_at_a_time_and_exactly_one_more_for_all_wakes_meanwhile() {
    let bench = start(Does::Waits).await;
    for _ in 0..100 {
        bench.wake();
        bench.after(Duration::from_secs(1)).await;
    }
    // The pass hangs for minutes, and the actor still answers.
    let about = bench.describe().await;
    assert!(about.running && about.passes == 1 && about.wakes == 100);
    bench.seen.go.notify_one();
    bench.after(DEBOUNCE * 2).await;
    assert_eq!(bench.seen.begun(), 2);
    bench.seen.go.notify_one();
    bench.after(Duration::from_secs(30)).await;
    assert_eq!(bench.seen.begun(), 2, "no third one");
    assert_eq!(bench.seen.most.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_over_only_when_nothing_of_the_pass_runs() {
    let bench = start(Does::Waits).await;
    bench
        .cell()
        .stop_and_wait(None, Some(Duration::from_secs(5)))
        .await
        .expect("stopped");
    assert_eq!(bench.seen.running.load(Ordering::SeqCst), 0);
    assert_eq!(bench.seen.dropped.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_works_on_for_a_killed_actor() {
    let bench = start(Does::Waits).await;
    bench.cell().kill();
    bench.handle.await.expect("ended");
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.seen.running.load(Ordering::SeqCst), 0);
    assert_eq!(bench.seen.ended.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_panics_ends_its_actor_and_so_does_a_handler() {
    let bench = start(Does::Panics).await;
    assert_eq!(bench.actor.get_status(), ActorStatus::Stopped);
    let bench = start(Does::Nothing).await;
    let _ = bench.actor.send_message(ShellMsg::Panic);
    bench.after(Duration::from_millis(1)).await;
    assert_eq!(bench.actor.get_status(), ActorStatus::Stopped);
}

#[tokio::test(start_paused = true)]
async fn after_a_failure_wakes_do_not_make_it_hot_and_it_tries_less_and_less_often() {
    let bench = start(Does::Fails(Class::Transient)).await;
    let failed = bench.seen.begun();
    // Its own write wakes it at once, again and again.
    for _ in 0..10 {
        bench.wake();
        bench.after(Duration::from_millis(50)).await;
    }
    assert!(bench.seen.begun() <= failed + 1, "hot");
    bench.after(Duration::from_secs(300)).await;
    let passes = bench.seen.begun();
    assert!((10..40).contains(&passes), "{passes} in five minutes");
    assert!(bench.describe().await.failures >= 10);
    let bench = start(Does::Fails(Class::Blocked)).await;
    bench.after(backoff::SLOW_PROBE - DEBOUNCE).await;
    assert_eq!(bench.seen.begun(), 1, "only a changed input helps");
}

#[tokio::test(start_paused = true)]
async fn a_tick_of_a_time_gone_by_begins_nothing() {
    let bench = start(Does::Nothing).await;
    for epoch in [0, 2, 99] {
        let _ = bench.actor.send_message(ShellMsg::Tick(epoch));
        let _ = bench.actor.send_message(ShellMsg::Ended(epoch, None));
    }
    bench.after(Duration::from_secs(1)).await;
    assert_eq!(bench.seen.begun(), 1);
    assert_eq!(bench.actor.get_status(), ActorStatus::Running);
}
