//! Plays thousands of plans, and plays only once what two of them have in common.
//!
//! Flow: [`run_all`] gives plans to worker processes (`sim work`). A worker plays the run without faults. Where plans
//! have their first fault, it forks one process for each fault there. That process continues under these plans, and
//! forks again where they differ.
//! Guarantee: a plan gets the same verdict as when it is played alone (`sim replay`). When a process ends without a
//! verdict, its plans count as failed. A worker shrinks a failed plan with several faults before it writes the verdict.
//!
//! Why processes: a run consists of futures, which cannot be copied. A worker has one thread and no sockets, so a fork
//! of it is complete.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use fork::{Fork, fork, waitpid};

use crate::{
    director::Branch,
    matrix,
    plan::{Fault, Plan, Point},
    promise::Oracle,
    run::{Outcome, Verdict, never_came, play, run, silence_after},
    shrink::shrink,
    workloads,
};

/// A plan, and how long the run listens after it.
pub type Planned = (Plan, Duration);

/// A plan with the time that each run of it listens.
#[must_use]
pub fn planned(plan: Plan) -> Planned {
    let silence = silence_after(&plan);
    (plan, silence)
}

/// Number of plans that a worker gets at a time. Each share costs two runs without faults, which is little beside 150
/// plans. The shares are small enough that no core is idle for long at the end.
const SHARE: usize = 150;

/// Runs plans on all cores, in processes of `worker`, which is the program `sim`. Calls `each` with every verdict. The
/// verdicts come in the order of the plans.
///
/// # Errors
/// The program does not start, or a plan occurs twice.
pub fn run_all(
    worker: &Path,
    plans: &[Planned],
    each: impl Fn(&Verdict) + Sync,
) -> Result<Vec<Verdict>> {
    let order: BTreeMap<&Plan, usize> = plans.iter().map(|(p, _)| p).zip(0..).collect();
    ensure!(order.len() == plans.len(), "a plan is there twice");
    let shares: Vec<&[Planned]> = plans
        .chunk_by(|(a, _), (b, _)| (&a.workload, a.seed) == (&b.workload, b.seed))
        .flat_map(|of_one| of_one.chunks(SHARE))
        .collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        while let Some(share) = shares.get(next.fetch_add(1, Ordering::Relaxed)) {
            let verdicts = hand_out(worker, share, &each)?;
            done.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend(verdicts);
        }
        Ok(())
    };
    let cores = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        let all: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        for one in all {
            one.join()
                .map_err(|_| anyhow::anyhow!("a share of plans ended in a panic"))??;
        }
        anyhow::Ok(())
    })?;
    let mut all = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.sort_by_key(|v: &Verdict| order.get(&v.plan));
    Ok(all)
}

/// Ends the worker process when its share is done or has failed.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn hand_out(
    worker: &Path,
    share: &[Planned],
    each: &(impl Fn(&Verdict) + Sync),
) -> Result<Vec<Verdict>> {
    let child = Command::new(worker)
        .arg("work")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = Worker(child.with_context(|| format!("start {}", worker.display()))?);
    let mut input = child.0.stdin.take().context("its input")?;
    let lines: String = share
        .iter()
        .map(|(plan, silence)| format!("{} {plan}\n", silence.as_secs()))
        .collect();
    // A worker that ends before it has read all plans gives no verdicts for them. They count as failed below.
    let _ = input.write_all(lines.as_bytes());
    drop(input);
    let mut missing: BTreeSet<&Plan> = share.iter().map(|(p, _)| p).collect();
    let mut verdicts = Vec::new();
    for line in BufReader::new(child.0.stdout.take().context("its output")?).lines() {
        let line = line?;
        let verdict: Verdict = serde_json::from_str(&line).with_context(|| line.clone())?;
        ensure!(
            missing.remove(&verdict.plan),
            "a verdict on a plan that was not asked for, or a second one: {}",
            verdict.plan
        );
        each(&verdict);
        verdicts.push(verdict);
    }
    for plan in missing {
        let lost = Oracle::ProblemsAreExplained.broken("its process ended without a verdict");
        let verdict = Verdict {
            plan: plan.clone(),
            failures: vec![lost],
            ..Verdict::default()
        };
        each(&verdict);
        verdicts.push(verdict);
    }
    Ok(verdicts)
}

/// The worker's part: reads one line `SECONDS PLAN` for each plan of one workload, and writes one [`Verdict`] as a line
/// of JSON for each.
///
/// # Errors
/// A line contains no plan, or a plan of another workload.
pub fn work(lines: impl Iterator<Item = std::io::Result<String>>) -> Result<()> {
    let mut plans: Vec<Planned> = Vec::new();
    for line in lines {
        let line = line?;
        let (seconds, plan) = line.split_once(' ').context("SECONDS PLAN")?;
        plans.push((plan.parse()?, Duration::from_secs(seconds.parse()?)));
    }
    let Some((first, _)) = plans.first() else {
        return Ok(());
    };
    let root = Plan::without_faults(&first.workload, first.seed);
    let same = |p: &Plan| (&p.workload, p.seed) == (&root.workload, root.seed);
    ensure!(
        plans.iter().all(|(p, _)| same(p)),
        "plans of several workloads"
    );
    let workload = workloads::named(&root.workload)
        .with_context(|| format!("no workload {}", root.workload))?;
    let reference = matrix::reference(workload, root.seed);
    let tree = Arc::new(Tree(Mutex::new(Node {
        under: root.clone(),
        plans,
        forked: false,
    })));
    let silence = |_: &Plan| tree.silence();
    let outcome = play(
        workload,
        &root,
        Some(&reference),
        silence,
        Some(tree.clone()),
    );
    let forked = tree.node().forked;
    let told = tree.tell(&outcome, &reference);
    if forked {
        // This is a forked process. The process that forked it writes the other verdicts.
        std::process::exit(i32::from(told.is_err()));
    }
    told
}

/// Where a process is in the tree of its plans.
struct Tree(Mutex<Node>);

struct Node {
    /// The plan that the current run is under.
    under: Plan,
    /// The plans that this process writes verdicts for. None of their remaining faults has come about yet.
    plans: Vec<Planned>,
    /// This process was forked by another one, which waits for it.
    forked: bool,
}

impl Node {
    /// Whether only one plan is left, and the run is under it. Then the run has nothing left to fork for.
    fn is_leaf(&self) -> bool {
        matches!(self.plans.as_slice(), [(plan, _)] if *plan == self.under)
    }

    fn goes_on(&mut self, plans: Vec<Planned>, at: &Point, fault: Fault) -> Plan {
        self.under.faults.push((at.clone(), fault));
        if let [(only, _)] = plans.as_slice() {
            self.under = only.clone();
        }
        self.plans = plans;
        self.under.clone()
    }
}

impl Tree {
    fn node(&self) -> MutexGuard<'_, Node> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest time that any of the plans needs to listen.
    fn silence(&self) -> Duration {
        let silences = self.node().plans.iter().map(|(_, s)| *s).max();
        silences.unwrap_or_default()
    }

    /// Writes the verdicts of the plans of this process.
    fn tell(&self, outcome: &Outcome, reference: &Outcome) -> Result<()> {
        let node = self.node();
        for (plan, silence) in &node.plans {
            let further = |p: &Point| !node.under.faults.iter().any(|(q, _)| p == q);
            let mut further = plan.faults.iter().map(|(p, _)| p).filter(|p| further(p));
            // The remaining faults of this plan did not come about, and the run kept every promise. With fewer faults
            // the limits are stricter, so any other result needs a run of its own.
            let so = further.all(|p| !outcome.came(p)) && outcome.failures.is_empty();
            let mut verdict = if so || *plan == node.under {
                let mut verdict = Verdict {
                    plan: plan.clone(),
                    ..outcome.verdict()
                };
                if *plan != outcome.plan {
                    verdict.failures.extend(never_came(plan, verdict.hit));
                }
                verdict
            } else {
                run(plan, Some(reference), *silence).verdict()
            };
            verdict = shrink(verdict, |smaller| {
                run(smaller, Some(reference), silence_after(smaller)).verdict()
            });
            if verdict.failures.is_empty() {
                // Thousands of plans pass. Their traces would only cost time.
                verdict.trace.clear();
            }
            let mut out = std::io::stdout().lock();
            writeln!(out, "{}", serde_json::to_string(&verdict)?)?;
            out.flush()?;
        }
        Ok(())
    }
}

impl Branch for Tree {
    fn at(&self, point: &Point) -> Option<Plan> {
        let mut node = self.node();
        if node.is_leaf() {
            return None;
        }
        let fault_here = |plan: &Plan| {
            let found = plan.faults.iter().find(|(p, _)| p == point);
            found.map(|(_, fault)| *fault)
        };
        let mut by_fault: BTreeMap<Fault, Vec<Planned>> = BTreeMap::new();
        let mut others = Vec::new();
        for planned in std::mem::take(&mut node.plans) {
            match fault_here(&planned.0) {
                Some(fault) => by_fault.entry(fault).or_default().push(planned),
                None => others.push(planned),
            }
        }
        while let Some((fault, plans)) = by_fault.pop_first() {
            if others.is_empty() && by_fault.is_empty() {
                return Some(node.goes_on(plans, point, fault));
            }
            match fork() {
                Ok(Fork::Child) => {
                    node.forked = true;
                    return Some(node.goes_on(plans, point, fault));
                }
                // Missing verdicts show how the child ended: they count as failures.
                Ok(Fork::Parent(child)) => drop(waitpid(child)),
                Err(e) => panic!("fork: {e}"),
            }
        }
        node.plans = others;
        None
    }
}
