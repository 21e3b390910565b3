//! One pass of a VM actor: gather, decide, act, publish.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::{
    agent::{VsphereAgent, VsphereAgentStatus},
    conditions::{Policy, Reason},
};
use kube::ResourceExt;

use super::{
    act::StepOutcome,
    arrival::Arrival,
    decision,
    memory::Memory,
    moments,
    news::has_news,
    observed::{Observed, STUCK_GRACE},
    ownership::Ownership,
    publish::{PassEnd, publish},
    refused::Busy,
    step::{self, Change, Step},
    traced,
};
use crate::{
    context::Context,
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        managed_vm::ManagedVm,
        names::ObjectKey,
        recycle::Stage,
    },
    report::{tell, vm as report},
    runtime::{shell::Verdict, status_writer::is_newer},
};

/// Limit of steps in one pass. It is higher than any path needs, and stops a decision that makes no progress.
const MAX_STEPS: usize = 24;
/// How soon the pass asks again what people hold back by a live read, and no cache shows. The watch wakes it sooner.
const UNSEEN: Duration = Duration::from_secs(30);

/// Runs one pass.
pub async fn run(context: Context, key: ObjectKey, memory: Memory) -> (Memory, Verdict) {
    run_at_most(usize::MAX, context, key, memory).await
}

/// Runs a pass that ends after `limit` steps, as an interrupted pass does. The next pass continues. A model checker
/// uses this to change the world between any two steps.
pub async fn run_at_most(
    limit: usize,
    context: Context,
    key: ObjectKey,
    memory: Memory,
) -> (Memory, Verdict) {
    let (mut memory, verdict) = steps(limit, context, key, memory).await;
    memory.slot = None;
    (memory, verdict)
}

async fn steps(
    limit: usize,
    context: Context,
    key: ObjectKey,
    mut memory: Memory,
) -> (Memory, Verdict) {
    let view = context.view.as_ref();
    let Some(shown) = view.child(&key) else {
        return (memory, Verdict::default());
    };
    let object = begin(&context, &shown, &mut memory);
    let mut observed = Observed::gather(view, object);
    watch_for_stuck_hook(&context, &observed, &mut memory);
    keep_up(&context, &observed, &mut memory);
    let mut outcome = PassEnd::default();
    for steps in 1.. {
        let step = decide(&context, &observed, &mut memory);
        if rests(&observed, &mut memory, &mut outcome, &step) {
            memory.forget_failures(&step);
            break;
        }
        if steps > limit {
            outcome.again = Some(Duration::ZERO);
            return (memory, outcome.verdict());
        }
        if steps > MAX_STEPS {
            outcome.fail(&key, &endless(&step));
            break;
        }
        match carry_out(&context, &observed, &mut memory, &mut outcome, step).await {
            After::Decide(object) => observed = Observed::gather(view, object),
            After::Publish(object) => {
                observed = Observed::gather(view, object);
                break;
            }
            After::End => return (memory, outcome.verdict()),
        }
    }
    memory.slot = None;
    name_obstacle(&key, &memory, &mut outcome);
    let monotonic = context.clock.monotonic();
    let status = publish(&context, &observed, &mut memory, &mut outcome).await;
    let again = report(
        &context,
        &observed,
        &mut memory,
        &status,
        (outcome.held, monotonic),
    );
    outcome.again = [outcome.again, again].into_iter().flatten().min();
    (memory, outcome.verdict())
}

/// Reports what is due at the end of a pass that rendered `status` and ended with a hold (`held`) at that monotonic time. Returns
/// when more may be due.
fn report(
    context: &Context,
    observed: &Observed,
    memory: &mut Memory,
    status: &VsphereAgentStatus,
    (held, monotonic): (bool, Duration),
) -> Option<Duration> {
    let shown = context.view.child(&observed.child.key);
    let shown = shown.filter(|s| s.uid().as_ref() == Some(&observed.child.uid));
    let recorded = shown.map(|s| ManagedVm::read(memory.status.over(&s)));
    let facts = report::Facts {
        child: &observed.child,
        agent: observed.host.agent.as_deref(),
        ready: observed.ready(),
        held,
        now: context.clock.wall(),
        monotonic,
    };
    let reports = report::report(recorded.as_ref(), status, &facts, &mut memory.told);
    let again = reports.again;
    tell(context, reports);
    again
}

/// Prepares the memory for a pass. Returns the object as it is known now.
fn begin(context: &Context, shown: &Arc<VsphereAgent>, memory: &mut Memory) -> Arc<VsphereAgent> {
    memory.is_about(shown);
    memory.tried.clear();
    let now = context.clock.monotonic();
    memory.known_since.get_or_insert(now);
    memory.follow(context.view.history());
    traced::name_pass(shown);
    memory.status.begin(context.view.as_ref(), shown)
}

/// Decides the next step, and notes what the decision shows.
fn decide(context: &Context, observed: &Observed, memory: &mut Memory) -> Step {
    let identity = observed.child.identity.as_ref();
    memory.recorded = identity.map(|i| i.bios_uuid).or(memory.recorded);
    observed.remember(memory);
    moments::note(context, observed, memory);
    let step = step::next(&observed.facts(context, memory));
    let step = decision::held_back(context, observed, step);
    tracing::debug!(object = %observed.child.key, ?step, "next step");
    memory.keep_slots(&step);
    step
}

/// Whether the pass ends before `step`, because that step does nothing. A hold is noted.
fn rests(observed: &Observed, memory: &mut Memory, outcome: &mut PassEnd, step: &Step) -> bool {
    if let Step::Hold {
        reason,
        message,
        again,
    } = step
    {
        memory.rehearse(&observed.child.key, reason, message);
        memory.look_again_at(reason.has(Policy::Seen));
        outcome.hold(&observed.child.key, reason.clone(), message.clone(), *again);
        outcome.held = true;
    }
    matches!(step, Step::Hold { .. } | Step::Settled)
}

/// What follows a step, with the object as it is then.
enum After {
    Decide(Arc<VsphereAgent>),
    Publish(Arc<VsphereAgent>),
    End,
}

async fn carry_out(
    context: &Context,
    observed: &Observed,
    memory: &mut Memory,
    outcome: &mut PassEnd,
    step: Step,
) -> After {
    let (key, before) = (&observed.child.key, &observed.child.object);
    let name = step.name();
    let optional = matches!(step, Step::Tag | Step::Configure(Change::Eject));
    let object = match traced::perform(context, observed, memory, step).await {
        Ok(StepOutcome::Object(next)) => next,
        Ok(StepOutcome::Same) => before.clone(),
        Ok(StepOutcome::Gone) => return After::End,
        Ok(StepOutcome::Pause(again)) => {
            outcome.again = Some(again);
            return After::Publish(memory.status.over(before));
        }
        // A person began a pause meanwhile: that is no failure.
        Err(held) if held.reason.is_held() => {
            outcome.hold(key, held.reason, held.message, Some(UNSEEN));
            return After::Publish(memory.status.over(before));
        }
        Err(trouble) => {
            tracing::warn!(object = %key, reason = %trouble.reason, "{trouble}");
            outcome.fail(key, &trouble);
            if optional && trouble.reason.has(Policy::Optional) {
                memory.failed_steps.insert(name, trouble.to_string());
                memory.tried.insert(name);
                return After::Decide(memory.status.over(before));
            }
            // The step may have written before it failed.
            return After::Publish(memory.status.over(before));
        }
    };
    // Others may have changed the object meanwhile, for example deleted or reassigned it.
    let Some(shown) = context.view.child(key) else {
        return After::End;
    };
    if shown.uid() != object.uid() {
        outcome.again = Some(Duration::ZERO);
        return After::End;
    }
    After::Decide(if is_newer(shown.as_ref(), object.as_ref()) {
        memory.status.newest(&shown)
    } else {
        object
    })
}

/// A pass took too many steps: `step` has no effect.
fn endless(step: &Step) -> ReconcileError {
    ReconcileError {
        side: ErrorSource::Kubernetes,
        reason: Reason::InternalError,
        message: format!("{step:?} is decided again and again without effect"),
        class: Class::Defect,
    }
}

/// Names what blocks the VM if the last step does not: a refused create, or a busy VM.
fn name_obstacle(key: &ObjectKey, memory: &Memory, outcome: &mut PassEnd) {
    // It is named as long as the actor looks for another place.
    if let Some(refused) = &memory.create_refused
        && outcome.obstacle.is_none()
    {
        outcome.say(key, &refused.trouble);
    }
    // A resting call has the same reason as its failure, so that the condition does not change with each try.
    let obstacle = outcome.obstacle.as_ref();
    if let Some(trouble) = memory.busy.as_ref().map(Busy::trouble)
        && obstacle.is_some_and(|o| o.reason == trouble.reason && o.message == trouble.message)
    {
        outcome.say(key, &trouble);
    }
}

/// Starts or stops the clock of a deletion hook that waits for a dead guest. While it runs, the VM is looked at again.
fn watch_for_stuck_hook(context: &Context, observed: &Observed, memory: &mut Memory) {
    if !observed.waits_for_guest() {
        memory.stuck_since = None;
        return;
    }
    let since = *memory
        .stuck_since
        .get_or_insert_with(|| context.clock.monotonic());
    let due = context.clock.monotonic().saturating_sub(since) >= STUCK_GRACE;
    if due && !matches!(memory.seen, Ownership::Absent { .. }) {
        memory.seen = Ownership::NotAsked;
    }
}

/// Remembers whether an Agent was seen. Drops a view of a VM that is recorded as running when it gets too old.
fn keep_up(context: &Context, observed: &Observed, memory: &mut Memory) {
    memory.agent_seen |= !observed.host.possible.is_empty();
    let begun = observed
        .vm()
        .is_some_and(|vm| vm.agent_lost_since.is_some());
    memory.lost_since = observed.lost(context, memory).and_then(|_| {
        let fresh = (!begun).then(|| context.clock.monotonic());
        memory.lost_since.or(fresh)
    });
    count_tries(context, observed, memory);
    memory.look_at_busy(context.clock.monotonic());
    if has_news(context, observed.vm(), memory) {
        memory.look_again_at(true);
    }
    let running = observed
        .vm()
        .is_some_and(|vm| vm.power_state.is_some() && vm.task_id.is_none());
    // Directly before it is switched off or destroyed it is looked at live anyway.
    let goes = observed.child.deleting || observed.child.given_up;
    // Nothing but a look shows that an administrator of vCenter lets it go on.
    let marks = observed.child.marks();
    if running && !goes || marks.paused || marks.skip_delete {
        memory.refresh(context.clock.monotonic());
    } else if goes || observed.is_predecessors() {
        memory.doubt(observed.is_predecessors(), context.clock.monotonic());
    }
    // Its end is decided from a fresh look.
    if matches!(observed.arrival(context, memory), Arrival::Overdue { .. }) && !memory.looked_late {
        memory.looked_late = true;
        memory.seen = Ownership::NotAsked;
    }
}

/// Time in which people hold or keep a VM does not count on its way into another life.
fn count_tries(context: &Context, observed: &Observed, memory: &mut Memory) {
    let (now, stage) = (context.clock.monotonic(), observed.child.recycling());
    let held = stage != Stage::No && observed.is_held(context.clock.wall());
    if held {
        memory.held_at = Some(now);
    }
    let way = observed.vm().and_then(|vm| vm.recycle.as_ref());
    let way = way.filter(|_| matches!(stage, Stage::Recorded(_)));
    memory.count_tries(way, held, now);
}
