//! Makes all plans with a single fault, and counts their results. Says why a fault makes no sense somewhere.

use std::{collections::BTreeSet, fmt::Write as _};

use agent_forge_actors::ports::effect::EffectKind;

use crate::{
    call::{self, Call, Read},
    plan::{Fault, FaultClass, Plan, Point},
    run::{Outcome, SILENCE, Verdict, run},
    workloads::{self, Workload},
};

/// Why a fault makes no sense at a call. `None` when it makes sense.
#[must_use]
pub fn senseless(call: Call, fault: Fault) -> Option<&'static str> {
    match call {
        Call::Effect(effect) if fault.class() == FaultClass::Between => between(effect, fault),
        Call::Effect(effect) => at_effect(effect, fault),
        Call::Read(read) => at_read(read, fault),
    }
}

/// Faults that workloads do not get, and why.
pub const RULED_OUT: [(&str, Fault, &str); 2] = [
    (
        "namespace_deletion",
        Fault::SecretMissing2m,
        "in a namespace that is being deleted nobody can put the Secret back",
    ),
    (
        "service_writes_late",
        Fault::ClockJumps10m,
        "such a service shows that a host is back by times alone, and from then on the operator's clock is ahead of the guests'",
    ),
];

fn at_effect(effect: EffectKind, fault: Fault) -> Option<&'static str> {
    use EffectKind as E;
    let task = matches!(
        effect,
        E::CreateVm
            | E::PowerOn
            | E::PowerOff
            | E::Reset
            | E::Destroy
            | E::Publish
            | E::DeleteFile
            | E::Reconfigure
            | E::EjectIso
            | E::Renew
    );
    let without_lease = matches!(
        effect,
        E::RecordTask
            | E::ReleaseSecret
            | E::RemovePoolFinalizer
            | E::ReassignChild
            | E::DeleteFile
            | E::Logout
            | E::EjectIso
            | E::SkipCleanup
            | E::Renew
            | E::Reset
            | E::HoldInstaller
            | E::CreateScripts
            | E::InstallerStatus
            | E::ReleaseInstaller
    );
    match fault {
        Fault::TaskFails | Fault::TaskHangs10m if !task => Some("the effect is no task"),
        Fault::LeaseTaken if without_lease => Some("no workload with a lease has that effect"),
        Fault::DatastoreFull2m if !matches!(effect, E::MakeDirectory | E::Upload) => {
            Some("no bytes are written then")
        }
        Fault::AnswerSlow15s | Fault::AnswerStale10s => Some("only the answer to a read decides"),
        Fault::DeletionVetoed5m | Fault::HoldUnseen5m if !goes(effect) => {
            Some("no VM is removed soon after that")
        }
        Fault::DiskEdited5m if !renews(effect) => Some("no host is made ready soon after that"),
        Fault::PowerOnVetoed5m if !comes(effect) => Some("no VM is switched on soon after that"),
        _ => None,
    }
}

/// Whether a VM is being removed then, or was observed before.
const fn goes(effect: EffectKind) -> bool {
    use EffectKind as E;
    matches!(
        effect,
        E::RecordObservation
            | E::FenceAgent
            | E::DeleteAgent
            | E::DeleteChild
            | E::RemoveChildFinalizer
            | E::PoolStatus
            | E::PowerOff
            | E::Destroy
    )
}

/// Whether a host may be on its way into another life then.
const fn renews(effect: EffectKind) -> bool {
    use EffectKind as E;
    matches!(
        effect,
        E::RecordObservation
            | E::FenceAgent
            | E::PrepareAgent
            | E::ReassignChild
            | E::PowerOff
            | E::Renew
            | E::PowerOn
            | E::Reconfigure
    )
}

/// Whether a VM is being made then.
const fn comes(effect: EffectKind) -> bool {
    use EffectKind as E;
    matches!(
        effect,
        E::CreateChild
            | E::PinSelector
            | E::AddFinalizer
            | E::RecordIdentity
            | E::RecordTask
            | E::CreateVm
            | E::AttachTags
            | E::PowerOn
            | E::Reconfigure
            | E::Upload
    )
}

fn at_read(read: Read, fault: Fault) -> Option<&'static str> {
    match fault {
        Fault::ServerError
        | Fault::PermissionDenied
        | Fault::RequestLost
        | Fault::AnswerSlow15s => None,
        Fault::Refused if read.is_of_vcenter() => None,
        Fault::Refused => Some("the API server refuses no read because of a conflict"),
        Fault::AnswerStale10s if read == Read::ReadVm => None,
        Fault::AnswerStale10s if !read.is_of_vcenter() => {
            Some("the API server answers a read without resourceVersion from a quorum")
        }
        Fault::AnswerStale10s => Some("the answer shows no power state"),
        _ => Some("it hits an effect"),
    }
}

/// What may happen between the check of an effect and the effect, so that a client can prevent the harm.
fn between(effect: EffectKind, fault: Fault) -> Option<&'static str> {
    use EffectKind as E;
    if !call::is_guarded(effect) {
        return Some("no live read guards the effect");
    }
    let power = matches!(effect, E::PowerOff | E::Destroy | E::Renew);
    let agent = matches!(effect, E::FenceAgent | E::DeleteAgent);
    match fault {
        Fault::VmSwitched if power => None,
        Fault::VmSwitched if effect == E::Reset => {
            Some("serving_vm_switched_off has a VM that somebody switches off")
        }
        Fault::VmSwitched => Some("the effect changes no VM"),
        _ if power || matches!(effect, E::Reset | E::DeleteFile) => {
            Some("vCenter takes no precondition there")
        }
        Fault::ObjectReplaced if !agent && effect != E::RemoveChildFinalizer => {
            Some("workloads with restored hubs replace the object")
        }
        Fault::AgentClaimed2m if effect == E::DeleteAgent => {
            Some("no AgentMachine can choose the Agent, which is fenced")
        }
        Fault::AgentClaimed2m if !agent && effect != E::ReassignChild => {
            Some("the effect changes no Agent")
        }
        _ => None,
    }
}

/// Number of calls for one object that faults hit, where the calls of a kind are all alike ([`is_one_of_many`]).
const ALIKE: u32 = 3;

/// Whether nobody decides by what the call leaves behind, so that one is like the next: a renewal of the Lease, an Event,
/// the view that a read opens. What hits the world there hits the same state at the next effect. The read has points of its own.
const fn is_one_of_many(effect: EffectKind) -> bool {
    use EffectKind as E;
    matches!(effect, E::Lease | E::Event | E::SessionView)
}

/// Combines every effect of the reference run, and every read that guards one, with every fault of `faults`, from the
/// moment at which the workload's own part begins.
#[must_use]
pub fn plans(reference: &Outcome, faults: &[Fault]) -> Vec<Plan> {
    let mut points = reference.points();
    points.retain(|(at, _)| (reference.begins..reference.ended).contains(at));
    let mut points: Vec<Point> = points.into_iter().map(|(_, p)| p).collect();
    let mut seen = BTreeSet::new();
    points.retain(|p| seen.insert(p.clone()));
    points.retain(|p| !p.call.effect().is_some_and(is_one_of_many) || p.nth <= ALIKE);
    let workload = reference.plan.workload.as_str();
    let ruled_out = |fault: Fault| {
        let mut all = RULED_OUT.iter();
        all.any(|(of, what, _)| *of == workload && *what == fault)
    };
    let leased = points.iter().any(|p| p.is(EffectKind::Lease));
    let fits = |point: &Point, fault: Fault| {
        senseless(point.call, fault).is_none()
            && (leased || fault != Fault::LeaseTaken)
            && !ruled_out(fault)
    };
    let all = points
        .iter()
        .flat_map(|p| faults.iter().map(move |f| (p, *f)));
    let all = all.filter(|(point, fault)| fits(point, *fault));
    let plan = |(point, fault): (&Point, Fault)| Plan {
        faults: vec![(point.clone(), fault)],
        ..Plan::without_faults(workload, reference.plan.seed)
    };
    all.map(plan).collect()
}

/// The plans with one fault at an effect, which random plans combine.
fn at_effects(reference: &Outcome) -> Vec<Plan> {
    let mut all = plans(reference, &Fault::combined());
    all.retain(|p| p.faults[0].0.call.effect().is_some());
    all
}

/// Random schedules of one to five faults at effects of the reference run. No two of them are the same.
#[must_use]
pub fn schedules(reference: &Outcome, count: usize, seed: u64) -> Vec<Plan> {
    let singles = at_effects(reference);
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut out = BTreeSet::new();
    // A workload with few points may have fewer schedules than asked for.
    for _ in 0..count * 10 {
        if out.len() == count {
            break;
        }
        let mut faults: Vec<(Point, Fault)> = (0..chance.usize(1..=5))
            .filter_map(|_| chance.choice(&singles).map(|p| p.faults[0].clone()))
            .collect();
        faults.sort();
        // Only one fault at each point: a second one would never come about.
        faults.dedup_by(|a, b| a.0 == b.0);
        out.insert(Plan {
            faults,
            ..reference.plan.clone()
        });
    }
    out.into_iter().collect()
}

/// Takes every n-th plan with a single fault (`every`), and makes `each` plans with that fault and a second one. The
/// second fault hits an effect that the reference run reaches later.
#[must_use]
pub fn doubles(reference: &Outcome, each: usize, every: usize, seed: u64) -> Vec<Plan> {
    let singles = at_effects(reference);
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut out = Vec::new();
    for (at, first) in singles.iter().enumerate().step_by(every.max(1)) {
        // Plans of the same point follow each other.
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

/// The calls that each fault hit.
#[derive(Default)]
pub struct Matrix(BTreeSet<(Call, Fault)>);

impl Matrix {
    /// Adds the faults of a plan.
    pub fn count(&mut self, plan: &Plan) {
        let cells = plan.faults.iter();
        self.0.extend(cells.map(|(at, fault)| (at.call, *fault)));
    }

    /// The pairs that no plan had although they make sense.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let all = Call::all().flat_map(|c| Fault::ALL.iter().map(move |f| (c, *f)));
        all.filter(|(c, f)| !self.0.contains(&(*c, *f)) && senseless(*c, *f).is_none())
            .map(|(c, f)| format!("{} with {}", c.name(), f.name()))
            .collect()
    }
}

/// The command that replays a plan.
#[must_use]
pub fn replay(plan: &Plan) -> String {
    format!("cargo run -p agent-forge-sim -- replay '{plan}'")
}

/// Number of effects that a [`summary`] ends with.
const LAST_EFFECTS: usize = 10;

/// Whether a line of the trace is an effect, as in `0.062 [1] add_finalizer:demo/w#1`.
fn is_effect(line: &str) -> bool {
    let mut words = line.split_whitespace().skip(1);
    let by_process = words.next().is_some_and(|w| w.starts_with('['));
    let point = words.next().and_then(|w| w.parse::<Point>().ok());
    by_process && point.is_some_and(|p| p.call.effect().is_some())
}

/// What a plan does and which promises it broke, in sentences, with the command that replays it. The last effects follow
/// if the trace is there.
#[must_use]
pub fn summary(verdict: &Verdict) -> String {
    let plan = verdict.shown();
    let mut out = match verdict.failures.len() {
        0 => "The plan keeps every promise.\n".to_owned(),
        1 => "The plan breaks a promise.\n".to_owned(),
        n => format!("The plan breaks {n} promises.\n"),
    };
    let _ = writeln!(out, "  Replay it with: {}", replay(plan));
    if verdict.shrunk.is_some() {
        let _ = writeln!(out, "  It is a part of the failed plan '{}'", verdict.plan);
    }
    if let Some(workload) = workloads::named(&plan.workload) {
        let _ = writeln!(out, "  Workload {workload}: {}.", workload.text);
    }
    for (point, fault) in &plan.faults {
        let name = point.call.name();
        let (what, of) = match point.call {
            Call::Effect(_) => ("effect", "for"),
            Call::Read(_) => ("read", "of"),
        };
        let _ = writeln!(
            out,
            "  Fault {fault} hits occurrence {} of {what} {name} {of} {}: {}.",
            point.nth,
            point.key,
            fault.text()
        );
    }
    for failure in &verdict.failures {
        let (oracle, promise) = (failure.oracle, failure.oracle.text());
        let _ = writeln!(out, "  Broken promise {oracle}, \"{promise}\":");
        let _ = writeln!(out, "    {}", failure.what);
    }
    let effects = verdict.trace.iter().rev().filter(|l| is_effect(l));
    let last: Vec<&String> = effects.take(LAST_EFFECTS).collect();
    if !verdict.failures.is_empty() && !last.is_empty() {
        let _ = writeln!(out, "  The last {} effects:", last.len());
        for line in last.iter().rev() {
            let _ = writeln!(out, "    {line}");
        }
    }
    if !verdict.failures.is_empty() {
        out.push_str("  How to read this: CONTRIBUTING.md, \"Debug a failed simulation plan\"\n");
    }
    out
}

/// The report of a run: its [`summary`] and its trace.
#[must_use]
pub fn report(verdict: &Verdict) -> String {
    let mut out = summary(verdict);
    if !verdict.trace.is_empty() {
        out.push_str("  Trace (seconds, process in brackets, what happens):\n");
    }
    for line in &verdict.trace {
        let _ = writeln!(out, "    {line}");
    }
    out
}

/// The reference run of a workload.
#[must_use]
pub fn reference(workload: &Workload, seed: u64) -> Outcome {
    run(&Plan::without_faults(workload.name, seed), None, SILENCE)
}

/// The reference runs of all workloads, one after the other.
pub fn references() -> impl Iterator<Item = Outcome> {
    workloads::ALL.iter().map(|w| reference(w, 1))
}
