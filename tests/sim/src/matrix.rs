//! All plans with a single fault, and what came of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use agent_forge_actors::ports::effect::EffectKind;

use crate::{
    director::LEASE,
    plan::{Fault, Plan, Point},
    run::{Outcome, SILENCE, Verdict, run},
    workloads::Workload,
};

/// Why a fault means nothing for an effect; `None` when it means something.
#[must_use]
pub fn senseless(effect: &str, fault: Fault) -> Option<&'static str> {
    let task = matches!(
        effect,
        "V02" | "V04" | "V05" | "V06" | "V09" | "V10" | "V11" | "V15"
    );
    match fault {
        Fault::TaskFails | Fault::TaskHangs if !task => Some("the effect is no task"),
        Fault::LeaseTaken if matches!(effect, "K05" | "K12" | "K17" | "V10" | "V12" | "V15") => {
            Some("no workload with a lease has that effect")
        }
        Fault::DiskFull if !matches!(effect, "V07" | "V08") => Some("no bytes are written then"),
        _ => None,
    }
}

/// Writes of the lease that are hit: the first takes it, the others renew it.
const RENEWALS: u32 = 3;

/// Every effect of the reference run, from where the workload is about something, with every fault of `faults`.
#[must_use]
pub fn plans(reference: &Outcome, faults: &[Fault]) -> Vec<Plan> {
    let within = reference
        .effects
        .iter()
        .filter(|(at, _)| (reference.begins..reference.ended).contains(at));
    let mut points: Vec<&Point> = within.map(|(_, p)| p).collect();
    let mut seen = BTreeSet::new();
    points.retain(|p| seen.insert((*p).clone()));
    // One renewal is as the other.
    points.retain(|p| p.effect != LEASE || p.nth <= RENEWALS);
    let leased = points.iter().any(|p| p.effect == LEASE);
    let of = |point: &&Point, fault: Fault| Plan {
        workload: reference.plan.workload.clone(),
        seed: reference.plan.seed,
        faults: vec![((*point).clone(), fault)],
    };
    points
        .iter()
        .flat_map(|p| {
            faults
                .iter()
                .filter(|f| senseless(p.effect, **f).is_none())
                .filter(|f| leased || **f != Fault::LeaseTaken)
                .map(move |f| of(p, *f))
        })
        .collect()
}

/// Random schedules of one to five faults at points of the reference run, no two of them the same.
#[must_use]
pub fn schedules(reference: &Outcome, count: usize, seed: u64) -> Vec<Plan> {
    let singles = plans(reference, &Fault::combined());
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut out = BTreeSet::new();
    // A workload with few points may not have so many.
    for _ in 0..count * 10 {
        if out.len() == count {
            break;
        }
        let mut faults: Vec<(Point, Fault)> = (0..chance.usize(1..=5))
            .filter_map(|_| chance.choice(&singles).map(|p| p.faults[0].clone()))
            .collect();
        faults.sort();
        // One fault at a point: a later one would never come about.
        faults.dedup_by(|a, b| a.0 == b.0);
        out.insert(Plan {
            faults,
            ..reference.plan.clone()
        });
    }
    out.into_iter().collect()
}

/// Of every n-th plan with a single fault, `each` plans with that fault and another one that the reference run would come
/// to later; `n` is `every`.
#[must_use]
pub fn doubles(reference: &Outcome, each: usize, every: usize, seed: u64) -> Vec<Plan> {
    let singles = plans(reference, &Fault::combined());
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut out = Vec::new();
    for (at, first) in singles.iter().enumerate().step_by(every.max(1)) {
        // Those of one point follow each other.
        let point = &first.faults[0].0;
        let same = singles[at..].iter().take_while(|p| p.faults[0].0 == *point);
        let later = &singles[at + same.count()..];
        let mut seconds = BTreeSet::new();
        for _ in 0..each {
            seconds.extend(chance.choice(later).map(|p| p.faults[0].clone()));
        }
        out.extend(seconds.into_iter().map(|second| Plan {
            faults: vec![first.faults[0].clone(), second],
            ..first.clone()
        }));
    }
    out
}

/// Counts of one cell.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    ran: u32,
    hit: u32,
    failed: u32,
}

/// Plans per effect and fault.
#[derive(Default)]
pub struct Matrix(BTreeMap<(&'static str, Fault), Cell>);

impl Matrix {
    /// Counts a verdict in.
    pub fn count(&mut self, verdict: &Verdict) {
        for (point, fault) in &verdict.plan.faults {
            let cell = self.0.entry((point.effect, *fault)).or_default();
            cell.ran += 1;
            cell.hit += u32::from(verdict.hit > 0);
            cell.failed += u32::from(!verdict.failures.is_empty());
        }
    }

    /// Empty cells that have no reason.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let all = EffectKind::ALL
            .iter()
            .flat_map(|e| Fault::ALL.iter().map(move |f| (e.code(), *f)));
        all.filter(|(e, f)| !self.0.contains_key(&(*e, *f)) && senseless(e, *f).is_none())
            .map(|(e, f)| format!("{e} {}", f.code()))
            .collect()
    }

    /// As a table: plans that ran, failures after a slash; a letter in brackets is the reason of an empty cell, `.` has none.
    #[must_use]
    pub fn text(&self, faults: &[Fault]) -> String {
        let mut out = String::from("effect                  ");
        for fault in faults {
            let _ = write!(out, "{:>6}", fault.code());
        }
        out.push('\n');
        let mut total = Cell::default();
        let mut reasons: Vec<&'static str> = Vec::new();
        for effect in EffectKind::ALL {
            let _ = write!(out, "{} {:<20}", effect.code(), effect.name());
            for fault in faults {
                let cell = self.0.get(&(effect.code(), *fault));
                let text = match (cell, senseless(effect.code(), *fault)) {
                    (None, None) => ".".to_owned(),
                    (None, Some(reason)) => {
                        let known = reasons.iter().position(|r| *r == reason);
                        let at = known.unwrap_or_else(|| {
                            reasons.push(reason);
                            reasons.len() - 1
                        });
                        format!("({})", letter(at))
                    }
                    (Some(cell), _) => {
                        total.ran += cell.ran;
                        total.hit += cell.hit;
                        total.failed += cell.failed;
                        if cell.failed > 0 {
                            format!("{}/{}", cell.ran, cell.failed)
                        } else {
                            cell.ran.to_string()
                        }
                    }
                };
                let _ = write!(out, "{text:>6}");
            }
            out.push('\n');
        }
        for (at, reason) in reasons.iter().enumerate() {
            let _ = writeln!(out, "({}) {reason}", letter(at));
        }
        let _ = writeln!(
            out,
            "{} plans, {} came about, {} failed",
            total.ran, total.hit, total.failed
        );
        out
    }
}

fn letter(at: usize) -> char {
    u8::try_from(at).map_or('?', |at| char::from(b'a' + at))
}

/// The line that plays a plan again.
#[must_use]
pub fn replay(plan: &Plan) -> String {
    format!("cargo run -p agent-forge-sim -- replay '{plan}'")
}

/// The report of a failed run: how to replay it, what broke, and its trace.
#[must_use]
pub fn report(verdict: &Verdict) -> String {
    let mut out = format!("replay: {}\n", replay(&verdict.plan));
    for failure in &verdict.failures {
        let _ = writeln!(out, "  {failure}");
    }
    for line in &verdict.trace {
        let _ = writeln!(out, "    {line}");
    }
    out
}

/// The reference run of a workload.
#[must_use]
pub fn reference(workload: &Workload, seed: u64) -> Outcome {
    let plan = Plan {
        workload: workload.name.to_owned(),
        seed,
        faults: Vec::new(),
    };
    run(&plan, None, SILENCE)
}
