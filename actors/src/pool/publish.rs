//! Writes the pool's status: the outcome of a pass, and the records that an effect needs beforehand.

use std::time::Duration;

use agent_forge_crds::{
    conditions::{
        CAPACITY_SATISFIED, Class, DRY_RUN, NODES_CONSISTENT, OVERFULL, PAUSED, POOL_CONDITIONS,
        Reason, VETOED, find_condition,
    },
    pool::VsphereAgentPoolStatus,
};

use super::{memory::Memory, observed::Observed, outcome::Outcome, plan::Plan, status};
use crate::{
    context::Context,
    domain::failure::ReconcileError,
    iso::msg::IsoState,
    ports::{
        cluster::{ClusterResult, Precondition},
        effect::{Effect, EffectKind, Subject},
    },
    runtime::{shell::Verdict, status_writer::Publish},
};

/// How long a change of counts, rows and the progress of an ISO alone waits for other changes. A change that [`urgent`]
/// names is written at once, and so is the first status of an actor: an operator that dies every few seconds would never
/// write counts.
pub(super) const QUIET_WRITES: Duration = Duration::from_secs(5);
/// Above fifty VsphereAgents the status is large, and counts change all the time: it waits longer, for each of them.
const QUIET_IN_LARGE: Duration = Duration::from_millis(100);

/// How long such a change waits in a pool with that many VsphereAgents.
pub(super) fn window(children: usize) -> Duration {
    let large = QUIET_IN_LARGE.saturating_mul(u32::try_from(children).unwrap_or(u32::MAX));
    large.clamp(QUIET_WRITES, QUIET_WRITES * 2)
}

/// Whether the change is written at once: conditions, the ISO, refused credentials, closing, a host that goes. Counts and rows wait, and so does the
/// condition about capacity, unless something stands in its way: while hosts are made, the counts show it.
pub(super) fn urgent(old: &VsphereAgentPoolStatus, new: &VsphereAgentPoolStatus) -> bool {
    let condition = |s: &VsphereAgentPoolStatus, t: &str| {
        find_condition(&s.conditions, t).map(|c| (c.status.clone(), c.reason.clone()))
    };
    // VM actors and other pools use the place of the ISO in their decisions.
    let stored = |s: &VsphereAgentPoolStatus| {
        let iso = s.iso.as_ref();
        iso.map(|i| (i.stored_path.clone(), i.history.clone()))
    };
    stored(old) != stored(new)
        // The next process must know it, even if this one dies now.
        || old.refused_credentials != new.refused_credentials
        // A VsphereAgent that goes takes with it what is not written.
        || new.past_hosts.iter().any(|row| !old.past_hosts.contains(row))
        || old.observed_generation != new.observed_generation
        || POOL_CONDITIONS
            .iter()
            .chain(&[DRY_RUN, PAUSED, VETOED, OVERFULL, NODES_CONSISTENT])
            .filter(|t| **t != CAPACITY_SATISFIED || !comes_by_itself(new))
            .any(|t| condition(old, t) != condition(new, t))
}

/// All AgentMachines have hosts, or get them without help.
fn comes_by_itself(status: &VsphereAgentPoolStatus) -> bool {
    let told = find_condition(&status.conditions, CAPACITY_SATISFIED);
    told.is_none_or(|c| Reason::from(c.reason.as_str()).about().class == Class::Progress)
}

/// Renders the status, and writes it if it is due. Returns it.
pub async fn publish(
    context: &Context,
    s: &Observed,
    plan: &Plan,
    outcome: &Outcome,
    memory: &mut Memory,
    verdict: &mut Verdict,
) -> VsphereAgentPoolStatus {
    // It contains the records that were written while acting (`closed`, `heldSecrets`).
    let old = memory.status.over(&s.pool).status.clone();
    let old = old.unwrap_or_default();
    let new = status::render(&old, s, plan, outcome);
    if s.holds.is_silent() {
        return new;
    }
    let of_iso = old.iso != new.iso;
    let first = !std::mem::replace(&mut memory.published, true);
    let window = || (!first && !urgent(&old, &new)).then(|| window(s.children.len()));
    let failed = match memory.status.next(old != new, s.now, window) {
        Publish::Unchanged => None,
        Publish::Failed(class) => Some(class),
        Publish::Later(left) => {
            verdict.again = Some(verdict.again.map_or(left, |a| a.min(left)));
            None
        }
        Publish::Now => {
            let kind = if of_iso {
                EffectKind::IsoStatus
            } else {
                EffectKind::PoolStatus
            };
            let written = write(context, kind, s, memory, new.clone()).await;
            // The ISO cache waits for what was just recorded.
            if written.is_ok() && matches!(outcome.iso, Some(IsoState::Publishing(_))) {
                verdict.again = Some(Duration::ZERO);
            }
            written.err().map(|e| e.class())
        }
    };
    verdict.failure = verdict.failure.or(failed);
    new
}

/// Writes a record into the status before the effect that needs it. Writes nothing if the status already has it.
///
/// # Errors
/// The [`ReconcileError`] of the write.
pub async fn record(
    context: &Context,
    s: &Observed,
    memory: &mut Memory,
    change: impl FnOnce(&mut VsphereAgentPoolStatus),
) -> Result<(), ReconcileError> {
    let old = memory.status.over(&s.pool).status.clone();
    let mut new = old.clone().unwrap_or_default();
    change(&mut new);
    if old.unwrap_or_default() == new {
        return Ok(());
    }
    write(context, EffectKind::PoolStatus, s, memory, new).await?;
    Ok(())
}

/// The only write of a pool's status.
async fn write(
    context: &Context,
    kind: EffectKind,
    s: &Observed,
    memory: &mut Memory,
    status: VsphereAgentPoolStatus,
) -> ClusterResult<()> {
    let pool = memory.status.over(&s.pool);
    let effect = Effect::new(kind, Subject::Pool(s.key.clone()));
    let at = Precondition::of(pool.as_ref());
    let version = context.cluster.pool_status(&effect, &at, &status).await;
    let view = context.view.as_ref();
    memory.status.record(view, &pool, status, version).map(drop)
}
