//! Plays thousands of plans: what two of them have in common is played once.
//!
//! Flow: [`run_all`] deals plans to worker processes (`sim work`). A worker plays the run without faults; where plans have their
//! first fault, it forks a process for each fault there, which goes on under these plans, and forks again where theirs part.
//! Guarantee: a plan gets the verdict that it gets when it is played alone (`sim replay`); a process that ends without
//! a verdict is a failure of its plans.
//!
//! Why processes: a run is made of futures, which cannot be copied. A worker has one thread and no sockets, so that its fork
//! is whole.

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
    run::{Outcome, Verdict, never_came, play, run},
    workloads,
};

/// A plan, and how long is listened after it.
pub type Planned = (Plan, Duration);

/// Plans that a worker gets at a time: the two runs without faults that it begins with are little beside them, and at the end
/// no core is idle for long.
const SHARE: usize = 150;

/// Runs plans on all cores, in processes of `worker`, which is the program `sim`; `each` hears of every verdict. The verdicts
/// come in the order of the plans.
///
/// # Errors
/// The program does not start, or a plan is there twice.
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

/// Ends the worker whatever becomes of its share.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
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
    // Who ends before it has read them gives no verdicts either.
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
        let verdict = Verdict {
            plan: plan.clone(),
            failures: vec!["O12 its process ended without a verdict".to_owned()],
            hit: 0,
            hash: 0,
            trace: Vec::new(),
        };
        each(&verdict);
        verdicts.push(verdict);
    }
    Ok(verdicts)
}

/// The worker's part: reads a line `SECONDS PLAN` for each plan of one workload, and writes a [`Verdict`] as a line of JSON for each.
///
/// # Errors
/// A line says no plan, or one of another workload.
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
    let root = Plan {
        faults: Vec::new(),
        ..first.clone()
    };
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
        // Whoever forked it does the rest.
        std::process::exit(i32::from(told.is_err()));
    }
    told
}

/// Where a process is in the tree of its plans.
struct Tree(Mutex<Node>);

struct Node {
    /// What its run is under.
    under: Plan,
    /// Those that it is to tell the verdicts on, none of whose further faults has come about.
    plans: Vec<Planned>,
    /// Another process of this program waits for it.
    forked: bool,
}

impl Node {
    /// Whether the run is one plan's own: whatever comes, it goes on alone.
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

    /// As long as any of them is to be listened after.
    fn silence(&self) -> Duration {
        let silences = self.node().plans.iter().map(|(_, s)| *s).max();
        silences.unwrap_or_default()
    }

    /// Tells the verdicts that are this process' to tell.
    fn tell(&self, outcome: &Outcome, reference: &Outcome) -> Result<()> {
        let node = self.node();
        for (plan, silence) in &node.plans {
            let further = |p: &Point| !node.under.faults.iter().any(|(q, _)| p == q);
            let mut further = plan.faults.iter().map(|(p, _)| p).filter(|p| further(p));
            // Its faults have not come about; with fewer of them, less is allowed.
            let so = further.all(|p| !outcome.effects.iter().any(|(_, q)| p == q))
                && outcome.failures.is_empty();
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
            if verdict.failures.is_empty() {
                // There are thousands.
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
                // How it ended shows in its verdicts: those that are missing are failures.
                Ok(Fork::Parent(child)) => drop(waitpid(child)),
                Err(e) => panic!("fork: {e}"),
            }
        }
        node.plans = others;
        None
    }
}
