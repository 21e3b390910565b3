//! What a pool does for one machine, as a span of that machine's trace.

use agent_forge_crds::{WaitingOn, agent::Milestone};
use kube::ResourceExt;
use tracing::Span;

use super::{
    plan::Action,
    snapshot::Snapshot,
    waits::{Wait, Watched},
};
use crate::{
    context::Context,
    model::child::Child,
    model::trace::TraceId,
    ports::tracer::Under,
    vm::timeline::{self, About},
};

fn under(child: &Child) -> Under {
    let status = child.object.status.as_ref();
    let timeline: &[Milestone] = status.map_or(&[], |s| &s.timeline);
    timeline::under(child.trace(), timeline)
}

/// The machine that an action is for, and where in its trace the action belongs; `None` where it is the pool's own.
fn whose(s: &Snapshot, action: &Action) -> Option<(&'static str, Under)> {
    let demand = |am: &agent_forge_crds::external::agent_machine::AgentMachine| {
        let trace = TraceId::of_machine(&am.uid().unwrap_or_default());
        timeline::under(trace, &[])
    };
    let on_agent = |uid: &str| {
        let runs = |c: &&Child| {
            let agent = c.agent_among(&s.agents);
            agent.is_some_and(|a| a.uid().as_deref() == Some(uid))
        };
        s.children.iter().find(runs).map(under)
    };
    match action {
        Action::Pin { agent_machine, .. } => Some(("machine.pin", demand(agent_machine))),
        Action::CreateChild { agent_machine, .. } => {
            Some(("machine.accept", demand(agent_machine)))
        }
        Action::Reassign { agent_machine, .. } => Some(("machine.reassign", demand(agent_machine))),
        Action::Prepare(patch) => Some(("agent.label", on_agent(&patch.uid)?)),
        Action::Fence(patch) => Some(("agent.fence", on_agent(&patch.uid)?)),
        Action::Release { child, .. } => Some(("machine.release", under(child))),
        Action::AddFinalizer | Action::Close | Action::RemoveFinalizer => None,
    }
}

/// Tells what AgentMachines waited for until the pool could act, under their traces' roots.
pub fn tell_waits(context: &Context, s: &Snapshot, waits: &[Wait], watched: &mut Watched) {
    let child_of = |uid: &str| {
        let is_for = |c: &&Child| {
            let am = c.agent_machine.as_ref();
            am.is_some_and(|am| am.uid.as_deref() == Some(uid))
        };
        s.children.iter().find(is_for)
    };
    let exists = |uid: &str| {
        let mut all = s.agent_machines.iter();
        all.any(|am| am.uid().as_deref() == Some(uid))
    };
    let rows = s.pool.status.as_ref().map(|st| st.waiting_on.as_slice());
    let recorded = |w: &Wait| {
        let name = w.agent_machine.name_any();
        WaitingOn::since_of(rows.unwrap_or_default(), &name, &w.reason).map(|t| t.0)
    };
    let accepted = |uid: &str| child_of(uid).is_some();
    let over = watched.over(waits, s.wall, recorded, accepted, exists);
    for wait in over {
        let Some(child) = child_of(&wait.uid) else {
            continue;
        };
        let about = About {
            trace: child.trace(),
            namespace: &child.key.namespace,
            name: &child.key.name,
            pool: &s.key.name,
        };
        let what = format!("AgentMachine/{}", child.key.name);
        let span = timeline::wait(&about, &[], (&what, &wait.reason), wait.since, wait.end);
        context.tracer.phase(span);
    }
}

/// The span that `action` is carried out in; the pass's own where it is for no machine.
pub fn span(context: &Context, s: &Snapshot, action: &Action) -> Span {
    let Some((name, under)) = whose(s, action) else {
        return Span::current();
    };
    let span = tracing::error_span!(
        "pool.action",
        otel.name = name,
        object = %s.key,
        trace_id = %under.trace,
    );
    context.tracer.place(&span, under);
    span
}
