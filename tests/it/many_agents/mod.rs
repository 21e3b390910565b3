//! A hundred pools share a namespace with many Agents. The test measures what one event of an Agent and one pass cost,
//! with a thousand and with ten thousand Agents. Counts have limits; times are printed
//! ([benchmarks.md](../../docs/reference/benchmarks.md)). [`memory`] measures what large objects cost.
//!
//! Each pool has five serving VMs and one waiting AgentMachine. All other Agents are other hosts: half of them are
//! free, the other half is claimed by AgentMachines that no pool serves.

mod counting;
mod hub;
mod memory;

use std::{fs, io::Write as _, time::Duration};

use agent_forge_actors::{
    domain::names::ObjectKey,
    pool::{Memory, observe, plan, status},
    ports::{clock::Clock, cluster::View},
    vm::observed::Observed,
};
use jiff::Timestamp;

use self::{
    counting::Counting,
    hub::{HOME, Hub, POOLS, VMS, changes_hands, reports},
};

struct Standing;

impl Clock for Standing {
    fn wall(&self) -> Timestamp {
        Timestamp::from_second(1_700_000_600).expect("a time")
    }
    fn monotonic(&self) -> Duration {
        Duration::from_secs(1000)
    }
}

/// Processor time of this thread.
fn used() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("the kernel tells");
    let nanos = text.split_whitespace().next().and_then(|n| n.parse().ok());
    Duration::from_nanos(nanos.expect("a number"))
}

/// Blocks with few and with many Agents alternate. The cheapest block counts, because others may have shared their
/// core.
const BLOCKS: usize = 5;

/// What is measured.
#[derive(Clone, Copy)]
enum Work {
    OwnReports,
    OtherReports,
    OtherChangesHands,
    PoolPass,
    VmPass,
}

impl Work {
    /// Repetitions in one block. The kernel's account of a thread is only exact to some milliseconds.
    const fn rounds(self) -> usize {
        match self {
            Self::PoolPass => 100,
            _ => 1000,
        }
    }
}

const ALL: [(Work, &str); 5] = [
    (Work::OwnReports, "event: a VM's Agent reports"),
    (Work::OtherReports, "event: another host reports"),
    (Work::OtherChangesHands, "event: another host changes hands"),
    (Work::PoolPass, "pass of a pool"),
    (Work::VmPass, "pass of a VM"),
];

/// The cost of one piece of work.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cost {
    time: Duration,
    /// Objects read from the view, in a whole block.
    looked_at: usize,
    /// Actors woken, in a whole block.
    woken: usize,
}

struct Stage {
    hub: Hub,
    view: Counting,
}

impl Stage {
    fn of(agents: usize) -> Self {
        Self::on(Hub::of(agents))
    }

    fn on(hub: Hub) -> Self {
        let view = Counting::of(hub.caches.clone());
        Self { hub, view }
    }

    /// Does the work and returns how many actors are woken.
    fn perform(&mut self, work: Work, n: usize) -> usize {
        let some = |all: &[ObjectKey]| all[n * 31 % all.len()].clone();
        let (own, other) = (some(&self.hub.own), some(&self.hub.others));
        let (hub, view) = (&mut self.hub, &self.view);
        match work {
            Work::OwnReports => return hub.change(view, &own, |agent| reports(agent, n)),
            Work::OtherReports => return hub.change(view, &other, |agent| reports(agent, n)),
            Work::OtherChangesHands => return hub.change(view, &other, changes_hands),
            Work::PoolPass => pool_pass(view, n),
            Work::VmPass => vm_pass(view, n),
        }
        0
    }

    fn block(&mut self, work: Work, block: usize) -> Cost {
        self.view.taken();
        let before = used();
        let each = work.rounds();
        let rounds = block * each..(block + 1) * each;
        let woken = rounds.map(|n| self.perform(work, n)).sum();
        Cost {
            time: (used() - before) / u32::try_from(each).expect("few"),
            looked_at: self.view.taken(),
            woken,
        }
    }
}

fn pool_pass(view: &dyn View, n: usize) {
    let key = ObjectKey::new(HOME, format!("p{}", n % POOLS));
    let mut memory = Memory::default();
    let s = observe::observe(view, &Standing, &key, &[], &mut memory).expect("a pool");
    let plan = plan::plan(&s);
    assert_eq!(status::gauges(&s, &plan).bound_agents, 5);
}

fn vm_pass(view: &dyn View, n: usize) {
    let name = format!("p{}-w{}", n % POOLS, n % VMS);
    let child = view.child(&ObjectKey::new(HOME, name));
    let observed = Observed::gather(view, child.expect("a VsphereAgent"));
    assert_eq!(observed.host.possible.len(), 1);
}

/// Prints past the test harness, which hides the output of passing tests. The figures are part of the result.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

#[test]
fn an_event_and_a_pass_cost_no_more_among_ten_thousand_agents() {
    let (mut few, mut many) = (Stage::of(1_000), Stage::of(10_000));
    for stage in [&mut few, &mut many] {
        // The first count of each pool's labels reads all Agents once.
        stage.block(Work::PoolPass, 0);
    }
    let mut woken = Vec::new();
    for (work, what) in ALL {
        let (mut less, mut more) = (Vec::new(), Vec::new());
        for block in 0..BLOCKS {
            less.push(few.block(work, block));
            more.push(many.block(work, block));
        }
        let cheapest = |all: &[Cost]| all.iter().map(|c| c.time).min().expect("blocks");
        let (cheap, dear) = (cheapest(&less), cheapest(&more));
        let ratio = dear.as_secs_f64() / cheap.as_secs_f64();
        let (few, many) = (less[0], more[0]);
        say(&format!(
            "{what}: {cheap:?} among 1,000, {dear:?} among 10,000: {ratio:.2} times; {} of them ask for {} and {} objects and \
             wake {} and {} actors",
            work.rounds(),
            few.looked_at,
            many.looked_at,
            few.woken,
            many.woken
        ));
        assert_eq!(few.looked_at, many.looked_at, "{what}: objects");
        woken.push((few.woken, many.woken));
    }
    // Only the VM of this Agent and its pool.
    let each = 2 * Work::OwnReports.rounds();
    assert_eq!(woken, [(each, each), (0, 0), (0, 0), (0, 0), (0, 0)]);
}

/// The most that a pass may cost more among ten times as many hosts.
const MOST_TIMES: usize = 12;

#[test]
fn a_pass_that_counts_foreign_hosts_is_cheap_among_ten_thousand() {
    let key = ObjectKey::new(HOME, "p0");
    let stages = [1_000, 10_000].map(|agents| {
        let mut stage = Stage::on(Hub::with(agents, true));
        stage.block(Work::PoolPass, 0);
        let mut memory = Memory::default();
        let s = observe::observe(&stage.view, &Standing, &key, &[], &mut memory).expect("a pool");
        let classes = s.foreign.classes.expect("known");
        assert_eq!(classes.total().all, agents - POOLS * VMS);
        // Each pool has one that waits, and there are hosts enough.
        let waits = |am: &&_| s.foreign.of(am).is_some();
        assert_eq!(
            s.agent_machines
                .iter()
                .map(AsRef::as_ref)
                .filter(waits)
                .count(),
            1
        );
        stage
    });
    let costs = stages.map(|mut stage| {
        let blocks = (1..=BLOCKS).map(|block| stage.block(Work::PoolPass, block));
        blocks.min_by_key(|cost| cost.time).expect("blocks")
    });
    let [few, many] = costs;
    let ratio = many.time.as_secs_f64() / few.time.as_secs_f64();
    say(&format!(
        "pass of a pool that counts foreign hosts: {:?} among 1,000, {:?} among 10,000: {ratio:.2} times; 100 of them ask for {} \
         and {} objects",
        few.time, many.time, few.looked_at, many.looked_at
    ));
    assert!(many.looked_at <= few.looked_at * MOST_TIMES);
}
