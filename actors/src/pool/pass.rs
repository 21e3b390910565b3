//! One pass of a pool actor: observe, plan, execute, publish, report.
//!
//! The pass plans and executes twice. The first time is for the Secrets and the machines, and needs only the cluster.
//! The second time is for the ISO, and needs an answer of vCenter.

use std::{sync::Arc, time::Duration};

use super::{
    act,
    memory::{Memory, keep_clocks},
    nodes, observe,
    outcome::{Acted, Outcome},
    plan::{self, Plan, iso::plan_iso},
    publish, report, traced, vcenter,
};
use crate::{
    context::Context,
    domain::{
        failure::{Class, ReconcileError},
        names::ObjectKey,
    },
    iso::{msg::IsoState, of_pool::IsoCaches},
    report::tell,
    runtime::{backoff, shell::Verdict},
};

/// How soon the pass looks again while a part of what the pool depends on is unknown.
const UNKNOWN: Duration = Duration::from_secs(10);
/// How soon the pass looks again while an ISO is on its way, or vCenter fails.
const PROGRESS: Duration = Duration::from_secs(2);

/// Runs one pass.
pub async fn run(
    context: Context,
    isos: Arc<dyn IsoCaches>,
    key: ObjectKey,
    mut memory: Memory,
) -> (Memory, Verdict) {
    let (view, clock) = (context.view.as_ref(), context.clock.as_ref());
    let namespaces = &context.settings.secret_namespaces;
    let Some(s) = observe::observe(view, clock, &key, namespaces, &mut memory) else {
        // The supervisor stops the actor.
        return (memory, Verdict::default());
    };
    traced::name_pass(&s.pool);
    let plan = plan::plan(&s);
    keep_clocks(&mut memory.spare_since, &plan.spare, s.now);
    memory.stopped = s.stop().is_some();
    let acted = act::execute(&context, isos.as_ref(), &s, &plan, &mut memory).await;
    // vCenter comes second: if it does not answer, it must not hold back a fence. The plan of the ISO needs its answer.
    acted.log(&key);
    let seen = vcenter::observe_vcenter(&context, &s, &mut memory.iso).await;
    let iso_plan = plan_iso(&s, &seen);
    let iso = act::execute_iso(isos.as_ref(), &iso_plan, &mut memory).await;
    let mut outcome = Outcome::of(&s, seen, iso_plan, iso, &acted);
    outcome.nodes = nodes::check(&context, &s, &mut memory.nodes);
    memory.vsphere_failures = match &outcome.vsphere {
        Some(_) => memory.vsphere_failures.saturating_add(1),
        None => 0,
    };
    let mut verdict = verdict(&key, &plan, &outcome, &acted, memory.vsphere_failures);
    let mut status = None;
    if !acted.gone {
        let written = publish::publish(&context, &s, &plan, &outcome, &mut memory, &mut verdict);
        status = Some(written.await);
    }
    let told = &mut memory.told;
    let reports = report::report(&s, &plan, &outcome, &acted, status.as_ref(), told);
    let unknown = (!s.holds.over_bound.is_empty()).then_some(UNKNOWN);
    verdict.again = [verdict.again, reports.again, s.holds.left(s.wall), unknown]
        .into_iter()
        .flatten()
        .min();
    tell(&context, reports);
    (memory, verdict)
}

fn verdict(
    key: &ObjectKey,
    plan: &Plan,
    outcome: &Outcome,
    acted: &Acted,
    vsphere_failures: u32,
) -> Verdict {
    let busy = matches!(
        outcome.iso,
        Some(
            IsoState::Fetching { .. }
                | IsoState::Queued(_)
                | IsoState::Lost(_)
                | IsoState::Publishing(_)
                | IsoState::Failed(_)
        )
    );
    let probe = |t: &ReconcileError| backoff::delay(t.class, vsphere_failures, &key.to_string());
    // A failure of vCenter, or one that only a changed input solves, must not delay the next pass: it may be for
    // another machine. Only a failure that the next pass can solve counts as its failure.
    let vsphere = outcome.vsphere.as_ref().map(probe);
    let acting = acted.result.as_ref().err().map(|t| t.class);
    let blocked = acting.filter(|c| matches!(c, Class::Blocked | Class::Defect));
    let blocked_probe = blocked.map(|c| backoff::delay(c, 1, &key.to_string()));
    let again = [
        plan.again,
        acted.again,
        busy.then_some(PROGRESS),
        vsphere,
        blocked_probe,
    ]
    .into_iter()
    .flatten()
    .min();
    let troubles: Vec<&ReconcileError> = [outcome.vsphere.as_ref(), outcome.failed.as_ref()]
        .into_iter()
        .flatten()
        .collect();
    let mut waiting_on: Vec<_> = troubles
        .iter()
        .map(|t| (t.reason.clone(), t.message.clone()))
        .collect();
    waiting_on.extend(
        plan.waiting
            .iter()
            .map(|w| (w.reason.clone(), format!("{}: {}", w.subject, w.message))),
    );
    Verdict {
        again,
        failure: acting.filter(|_| blocked.is_none()),
        waiting_on,
    }
}

#[cfg(test)]
mod tests;
