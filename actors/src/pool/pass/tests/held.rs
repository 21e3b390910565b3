//! A pool that people pause, or a dry run: its ISO, its conditions, and when it goes on.

use agent_forge_crds::{
    conditions::{DRY_RUN, ISO_READY, PAUSED, Reason},
    names::PAUSED_ANNOTATION,
};
use kube::ResourceExt as _;

use super::*;
use crate::{
    domain::{
        holds::Mode,
        upstream::{Pausable, PausableKind},
    },
    ports::{
        effect::Nature,
        slots::{Slots, turns::Limits},
    },
    testing::{agent_machine, machine, told::Told as Log},
};

struct Passes {
    bench: Bench,
    isos: Arc<Told>,
    memory: Memory,
}

impl Passes {
    /// A pool without an ISO, whose transfer is under way.
    async fn begun() -> Self {
        let bench = Bench::new();
        bench.hub.with(|o| {
            o.version = 10;
            o.child = None;
            let status = o.pool.as_mut().and_then(|p| p.status.as_mut());
            status.expect("a status").iso = None;
        });
        let fetching = IsoState::Fetching {
            done: 1,
            total: Some(2),
            rate: None,
        };
        let mut passes = Self {
            bench,
            isos: Told::new(fetching),
            memory: Memory::default(),
        };
        passes.next().await;
        assert_eq!(passes.asked(), (1, 0));
        passes
    }

    async fn next(&mut self) -> Verdict {
        let key = ObjectKey::new(NAMESPACE, POOL);
        let memory = std::mem::take(&mut self.memory);
        let (context, isos) = (self.bench.context.clone(), self.isos.clone());
        let (memory, verdict) = run(context, isos, key, memory).await;
        self.memory = memory;
        verdict
    }

    /// How often the cache was asked for the ISO, and how often a transfer was called off.
    fn asked(&self) -> (usize, usize) {
        let asked = self.isos.urls.lock().expect("lock").len();
        (asked, *self.isos.left.lock().expect("lock"))
    }

    /// Status and reason of a condition.
    fn says(&self, type_: &str) -> Option<(String, String)> {
        let pool = self.bench.hub.with(|o| o.pool.clone()).expect("a pool");
        let status = pool.status.expect("a status");
        let said = find_condition(&status.conditions, type_);
        said.map(|c| (c.status.clone(), c.reason.clone()))
    }
}

fn word(status: &str, reason: Reason) -> Option<(String, String)> {
    Some((status.to_owned(), reason.to_string()))
}

#[tokio::test]
async fn a_transfer_is_called_off_once_and_begins_again_after_the_pause() {
    let mut pool = Passes::begun().await;
    pool.bench.hub.with(|o| {
        let paused = (PAUSED_ANNOTATION.to_owned(), "true".to_owned());
        let pool = o.pool.as_mut().expect("a pool");
        pool.annotations_mut().extend([paused]);
    });
    for _ in 0..3 {
        let verdict = pool.next().await;
        assert_eq!(verdict.failure, None);
        assert_eq!(pool.asked(), (1, 1));
    }
    assert_eq!(pool.says(PAUSED), word("True", Reason::Paused));
    assert_eq!(pool.says(ISO_READY), word("False", Reason::Paused));
    pool.bench.hub.with(|o| {
        let pool = o.pool.as_mut().expect("a pool");
        pool.annotations_mut().remove(PAUSED_ANNOTATION);
    });
    pool.next().await;
    assert_eq!(pool.asked(), (2, 1));
    assert_eq!(pool.says(PAUSED), None);
}

#[tokio::test]
async fn a_pause_until_a_time_wakes_its_pool() {
    let mut pool = Passes::begun().await;
    let hour = Duration::from_secs(3600);
    let until = pool.bench.context.clock.wall().checked_add(hour);
    pool.bench.hub.with(|o| {
        let hosted = Pausable {
            key: ObjectKey::new(NAMESPACE, "demo"),
            cluster: None,
            annotated: false,
            paused: false,
            paused_until: Some(until.expect("in range").to_string()),
        };
        o.pausables.push((PausableKind::HostedCluster, hosted));
    });
    // Nothing else is due after the first pass.
    pool.next().await;
    pool.bench.turn(hour - Duration::from_secs(1));
    let verdict = pool.next().await;
    assert_eq!(pool.says(PAUSED), word("True", Reason::Paused));
    assert!(verdict.again <= Some(Duration::from_secs(1)), "{verdict:?}");
    pool.bench.turn(Duration::from_secs(1));
    pool.next().await;
    assert_eq!(pool.says(PAUSED), None);
    assert_eq!(pool.asked(), (2, 1));
}

/// Type and name of each planned action.
fn planned(pool: &Passes) -> Vec<(String, Option<String>)> {
    let pool = pool.bench.hub.with(|o| o.pool.clone()).expect("a pool");
    let rows = pool.status.expect("a status").planned_actions.into_iter();
    rows.map(|row| (row.type_, row.name)).collect()
}

/// A pool without finalizer, Secret and ISO, for which one AgentMachine waits.
async fn new_pool(mode: Mode, dry_run: bool) -> Passes {
    let mut pool = Passes::begun().await;
    pool.bench.hub.with(|o| {
        o.mode = mode;
        o.agent_machines = vec![agent_machine("a")];
        o.machines = vec![machine("a")];
        let pool = o.pool.as_mut().expect("a pool");
        pool.spec.dry_run = Some(dry_run);
        pool.metadata.finalizers = None;
        pool.status = None;
        o.effects.clear();
    });
    pool.memory = Memory::default();
    for _ in 0..3 {
        pool.next().await;
        pool.bench.turn(Duration::from_secs(30));
    }
    pool
}

#[tokio::test]
async fn a_dry_run_lists_what_it_would_do_and_does_it_afterwards() {
    for (mode, dry_run) in [(Mode::Earnest, true), (Mode::DryRun, false)] {
        let mut pool = new_pool(mode, dry_run).await;
        let row = |type_: &str, name: &str| {
            let name = Some(name.to_owned()).filter(|n| !n.is_empty());
            (type_.to_owned(), name)
        };
        let expected = [
            row("DemandDeficit", "a"),
            row("ChangeFinalizer", POOL),
            row("PinAgentMachine", "a"),
            row("UploadISO", ""),
        ];
        assert_eq!(planned(&pool), expected);
        assert_eq!(pool.says(DRY_RUN), word("True", Reason::DryRun));
        assert_eq!(pool.says(ISO_READY), word("False", Reason::DryRun));
        let effects = pool.bench.hub.with(|o| o.effects.clone());
        let status_only = effects.iter().all(|e| e.nature() == Nature::Status);
        assert!(status_only, "{effects:?}");
        let asked = pool.asked().0;
        pool.bench.hub.with(|o| {
            o.mode = Mode::Earnest;
            o.pool.as_mut().expect("a pool").spec.dry_run = None;
        });
        pool.next().await;
        let effects = pool.bench.hub.with(|o| o.effects.clone());
        for kind in [
            EffectKind::AddFinalizer,
            EffectKind::PinSelector,
            EffectKind::CreateChild,
        ] {
            assert!(effects.contains(&kind), "{kind:?} in {effects:?}");
        }
        assert_eq!(pool.asked().0, asked + 1);
    }
}

#[tokio::test]
async fn a_silent_dry_run_writes_nothing_and_logs_its_plan_once() {
    let log = Log::default();
    let pool = {
        let _here = log.here();
        new_pool(Mode::Silent, false).await
    };
    assert_eq!(pool.bench.hub.with(|o| o.effects.clone()), []);
    let lines = log.lines();
    let words = lines.iter().filter_map(|line| line.get("message"));
    let pins = words.filter(|w| w.starts_with("dry run: PinAgentMachine a: pin"));
    assert_eq!(pins.count(), 1, "{lines:?}");
}

#[tokio::test]
async fn a_deleted_pool_waits_for_the_end_of_its_dry_run() {
    let mut pool = new_pool(Mode::Earnest, true).await;
    pool.bench.hub.with(|o| {
        o.agent_machines.clear();
        let pool = o.pool.as_mut().expect("a pool");
        pool.metadata.finalizers = Some(vec![agent_forge_crds::names::POOL_FINALIZER.to_owned()]);
        crate::testing::delete(pool);
    });
    for _ in 0..3 {
        pool.next().await;
        pool.bench.turn(Duration::from_secs(30));
    }
    assert_eq!(pool.says(conditions::READY), word("False", Reason::DryRun));
    let removed = EffectKind::RemovePoolFinalizer;
    assert!(!pool.bench.hub.with(|o| o.effects.contains(&removed)));
    let rows = planned(&pool);
    assert!(
        rows.contains(&("ChangeFinalizer".to_owned(), Some(POOL.to_owned()))),
        "{rows:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pool_says_how_many_of_its_vms_wait_to_be_created_and_for_which_limit() {
    let bench = Bench::new();
    let slots = Slots::new(Limits::tasks(1));
    let busy = slots.count("d");
    let [own, other] = [POOL, "another"].map(|name| ObjectKey::new(NAMESPACE, name));
    let line = [&own, &own, &other].map(|pool| slots.ask_create(pool, "d"));
    bench.site.with(|i| i.slots = Some(slots));
    bench.hub.with(|o| o.version = 10);
    let mut memory = Memory::default();
    let mut said = async |bench: &Bench| {
        // Counts and rows wait a moment for others.
        for _ in 0..2 {
            let isos = Told::new(IsoState::Queued(other.clone()));
            let before = std::mem::take(&mut memory);
            memory = run(bench.context.clone(), isos, own.clone(), before)
                .await
                .0;
            bench.turn(QUIET_WRITES);
        }
        let status = bench.hub.with(|o| o.pool.as_ref()?.status.clone());
        let rows = status.expect("a status").waiting_on.into_iter();
        let mut rows = rows.filter(|row| row.reason == Reason::CreateQueued);
        rows.next().map(|row| row.message)
    };
    let words = said(&bench).await.expect("a row");
    assert!(
        words.starts_with("VMs that wait to be created: 2; vCenter "),
        "{words}"
    );
    assert!(
        words.contains("may run 1 creates at once (--max-concurrent-creates)"),
        "{words}"
    );
    drop((busy, line));
    assert_eq!(said(&bench).await, None);
}
