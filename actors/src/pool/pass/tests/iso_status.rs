//! What a pool writes about its ISO, when, and which files it releases.

use std::collections::BTreeSet;

use agent_forge_crds::{
    Time,
    conditions::Reason,
    pool::{IsoHistoryEntry, IsoStatus},
};

use super::*;

/// The pool of a bench, pass by pass.
struct Passes {
    bench: Bench,
    isos: Arc<Told>,
    memory: Memory,
}

impl Passes {
    fn new(bench: Bench, isos: Arc<Told>) -> Self {
        // Its writes are newer than what the cache shows.
        bench.hub.with(|o| o.version = 10);
        Self {
            bench,
            isos,
            memory: Memory::default(),
        }
    }

    async fn next(&mut self) -> Verdict {
        let key = ObjectKey::new(NAMESPACE, POOL);
        let memory = std::mem::take(&mut self.memory);
        let isos = self.isos.clone();
        let context = self.bench.context.clone();
        let (memory, verdict) = run(context, isos, key, memory).await;
        self.memory = memory;
        verdict
    }

    /// Writes of the pool's status so far.
    fn writes(&self) -> usize {
        let kinds = [EffectKind::IsoStatus, EffectKind::PoolStatus];
        self.bench.hub.with(|o| {
            let all = o.effects.iter();
            all.filter(|e| kinds.contains(e)).count()
        })
    }

    /// The ISO as the last write has it.
    fn written(&self) -> IsoStatus {
        let shown = self.bench.hub.with(|o| o.pool.clone());
        let status = shown.and_then(|pool| pool.status);
        status.and_then(|s| s.iso).expect("an ISO")
    }
}

fn coming(done: u64) -> IsoState {
    IsoState::Fetching {
        done,
        total: Some(1 << 30),
        rate: Some(1 << 20),
    }
}

#[tokio::test]
async fn how_far_an_iso_is_is_written_every_five_seconds_and_not_more_often() {
    let mut pool = Passes::new(Bench::new(), Told::new(coming(1)));
    // The other changes are written first.
    for _ in 0..10 {
        pool.next().await;
        pool.bench.turn(QUIET_WRITES);
    }
    // The cache wakes it once a second, with news each time.
    let (mut times, mut seen) = (Vec::new(), BTreeSet::new());
    for second in 0..120 {
        let before = pool.writes();
        *pool.isos.state.lock().expect("lock") = coming((second + 2) << 20);
        pool.next().await;
        assert!(pool.writes() <= before + 1, "one write in a pass");
        if pool.writes() > before {
            times.push(second);
            seen.insert(pool.written().downloaded_bytes);
        }
        pool.bench.turn(Duration::from_secs(1));
    }
    let gaps: Vec<u64> = times.windows(2).map(|t| t[1] - t[0]).collect();
    let window = QUIET_WRITES.as_secs();
    // The window begins with the first news after a write, a second later.
    let allowed = window..=window + 1;
    assert!(
        times.len() >= 15 && gaps.iter().all(|g| allowed.contains(g)),
        "{times:?}"
    );
    assert_eq!(window, 5, "as docs/explanation/iso-cache.md says");
    assert_eq!(seen.len(), times.len(), "each says something new");
}

fn version(digit: char, datastore: &str) -> (IsoFile, IsoHistoryEntry) {
    let sha256 = digit.to_string().repeat(64);
    let path = format!("p/{sha256}.iso");
    let file = IsoFile {
        sha256: sha256.clone(),
        path: DatastorePath::new(datastore, &path).expect("a path"),
        size: 7,
        uploaded_at: at(0),
        validators: Validators::default(),
        volatile: false,
    };
    let entry = IsoHistoryEntry {
        sha256,
        path,
        datastore: Some(datastore.to_owned()),
        size_bytes: Some(7),
        uploaded_at: Some(Time(at(0))),
        ..IsoHistoryEntry::default()
    };
    (file, entry)
}

/// The pool has `current` and these versions on record.
fn record(bench: &Bench, current: &IsoFile, history: Vec<IsoHistoryEntry>) {
    bench.hub.with(|o| {
        let pool = o.pool.as_mut().expect("a pool");
        let status = pool.status.get_or_insert_default();
        status.iso = Some(IsoStatus {
            sha256: Some(current.sha256.clone()),
            stored_path: Some(current.path.to_string()),
            path: Some(current.path.path.clone()),
            checked_at: Some(Time(at(0))),
            history,
            ..IsoStatus::default()
        });
    });
}

#[tokio::test]
async fn what_lies_on_datastores_that_the_pool_has_left_is_let_go_there() {
    let bench = Bench::new();
    let (current, entry) = version('d', "isos");
    let (mounted, (idle, idle_entry)) = (version('c', "old"), version('b', "older"));
    record(&bench, &current, vec![entry, mounted.1, idle_entry]);
    let mut pool = Passes::new(bench, Told::new(ready(current.clone(), false)));
    let why = "VM vm-7 has it in its CD-ROM drive".to_owned();
    // Popped from the end: `old` is asked before `older`.
    *pool.isos.news.lock().expect("lock") = vec![
        (vec![idle.path.clone()], vec![]),
        (vec![], vec![(mounted.0.path.clone(), why.clone())]),
    ];
    pool.next().await;
    let asked = std::mem::take(&mut *pool.isos.cleared.lock().expect("lock"));
    let wanted = [
        (
            "vc.example/dc1/old".to_owned(),
            vec![mounted.0.path.to_string()],
        ),
        (
            "vc.example/dc1/older".to_owned(),
            vec![idle.path.to_string()],
        ),
    ];
    assert_eq!(asked, wanted);
    let left: Vec<_> = pool
        .written()
        .history
        .into_iter()
        .map(|h| h.datastore)
        .collect();
    assert_eq!(left, [Some("isos".to_owned()), Some("old".to_owned())]);
    let told = pool.bench.hub.with(|o| {
        let failed = o
            .notices
            .iter()
            .filter(|n| n.reason == event::ISO_PRUNE_FAILED);
        failed.map(|n| n.note.clone()).collect::<Vec<_>>()
    });
    assert_eq!(told, [format!("{}: {why}", mounted.0.path)]);
    // Its drive is empty at last. Then there is nothing more to ask.
    *pool.isos.news.lock().expect("lock") = vec![(vec![mounted.0.path.clone()], vec![])];
    pool.bench.turn(Duration::from_secs(60));
    pool.next().await;
    assert_eq!(pool.written().history.len(), 1);
    pool.isos.cleared.lock().expect("lock").clear();
    pool.bench.turn(Duration::from_secs(60));
    pool.next().await;
    assert!(pool.isos.cleared.lock().expect("lock").is_empty());
}

#[tokio::test]
async fn old_versions_that_a_stuck_create_holds_back_are_told_of() {
    let bench = Bench::new();
    let versions = ['d', 'c', 'b'].map(|digit| version(digit, "isos"));
    let current = versions[0].0.clone();
    let history = versions.map(|(_, entry)| entry).to_vec();
    record(&bench, &current, history);
    bench.hub.with(|o| {
        let child = o.child.as_mut().expect("a VsphereAgent");
        let intent = crate::testing::intent(child, 1);
        child.status.get_or_insert_default().vm = Some(intent);
    });
    let mut pool = Passes::new(bench, Told::new(ready(current, false)));
    let told = |pool: &Passes| {
        let all = pool.bench.hub.with(|o| o.notices.clone());
        let of_it = all.into_iter();
        let of_it = of_it.filter(|n| n.reason == event::ISO_PRUNE_FAILED);
        of_it.map(|n| n.note).collect::<Vec<_>>()
    };
    for _ in 0..10 {
        pool.next().await;
        pool.bench.turn(Duration::from_secs(60));
    }
    assert_eq!(told(&pool), [""; 0], "VMs come one after the other");
    for _ in 0..30 {
        pool.next().await;
        pool.bench.turn(Duration::from_secs(60));
    }
    let said = told(&pool);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("VsphereAgent demo/a"), "{said:?}");
}

#[tokio::test]
async fn a_create_that_misses_a_file_has_the_iso_looked_for() {
    let bench = Bench::new();
    let (current, entry) = version('d', "isos");
    record(&bench, &current, vec![entry]);
    let mut pool = Passes::new(bench, Told::new(ready(current, false)));
    let mut asked = Vec::new();
    for waits in [None, Some(Reason::default()), Some(Reason::FileNotFound)] {
        pool.bench.hub.with(|o| {
            let child = o.child.as_mut().expect("a VsphereAgent");
            let vm = waits.as_ref().map(|_| crate::testing::intent(child, 1));
            child.status.get_or_insert_default().vm = vm;
            crate::testing::obstruct(child, waits);
        });
        pool.next().await;
        asked.push(*pool.isos.look_within.lock().expect("lock"));
    }
    let [idle, making, missing] = asked[..] else {
        panic!("{asked:?}")
    };
    assert_eq!(idle, None, "there is time for it");
    assert!(missing < making && missing.is_some(), "{asked:?}");
}

#[tokio::test]
async fn an_iso_that_is_lost_is_given_to_no_vm_and_its_return_is_told() {
    let bench = Bench::new();
    let (current, entry) = version('d', "isos");
    record(&bench, &current, vec![entry]);
    let there = ready(current.clone(), false);
    let mut pool = Passes::new(bench, Told::new(there.clone()));
    let told = |pool: &Passes| {
        let all = pool.bench.hub.with(|o| o.notices.clone());
        let uploads = all.into_iter().filter(|n| n.reason == event::ISO_UPLOADED);
        uploads.count()
    };
    let given = |pool: &Passes| {
        let shown = pool.bench.hub.with(|o| o.pool.clone()).expect("a pool");
        crate::iso::of_pool::iso_path(&shown)
    };
    pool.next().await;
    assert_eq!((told(&pool), given(&pool)), (0, Some(current.path.clone())));
    *pool.isos.state.lock().expect("lock") = IsoState::Lost(current.path.clone());
    pool.bench.turn(Duration::from_secs(60));
    let verdict = pool.next().await;
    assert_eq!(given(&pool), None, "VMs wait");
    let again = verdict.again;
    assert!(again.is_some_and(|again| again <= PROGRESS), "{again:?}");
    *pool.isos.state.lock().expect("lock") = there;
    pool.bench.turn(Duration::from_secs(60));
    pool.next().await;
    assert_eq!((told(&pool), given(&pool)), (1, Some(current.path)));
}
