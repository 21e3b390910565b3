//! The live check before an Agent is prepared and approved: the identity rule again, on the objects as the API server
//! has them.
//!
//! Guarantee: a late cache never leads to a wrong approval. The check refuses an Agent that its VsphereAgent no longer
//! wants. It also refuses an older version of the Agent, and an Agent with a rival of the same identity.
//! Assumption: a host registers under a uuid. A rival that no cache shows yet has the VM's uuid as its name, in one
//! byte order or the other. An Agent with any other name was written by hand, and the cache shows it.

use std::{collections::BTreeSet, sync::Arc};

use agent_forge_crds::external::agent::Agent;

use super::{act::ActionOutcome, observed::Observed, plan::Waiting};
use crate::{
    context::Context,
    demand::{agents_home, prepare},
    domain::{failure::ReconcileError, managed_vm::ManagedVm, names::ObjectKey},
    ports::{cluster::AgentPatch, effect::Effect},
};

/// Checks the Agent live, and prepares it.
///
/// # Errors
/// The [`ReconcileError`] of a read or of the write.
pub(super) async fn approve(
    context: &Context,
    s: &Observed,
    effect: &Effect,
    patch: &AgentPatch,
    child: &ManagedVm,
) -> Result<ActionOutcome, ReconcileError> {
    let cluster = context.cluster.as_ref();
    let live = cluster.live_child(&child.key).await?;
    let live = live.map(|live| ManagedVm::read(Arc::new(live)));
    let Some(live) = live.filter(|live| prepare::is_wanted_by(child, live)) else {
        return Ok(ActionOutcome::Held(None));
    };
    // A late cache shows old versions one after the other. The API server would refuse a write for each of them.
    let agent = cluster.live_agent(&patch.key).await?;
    let Some(agent) = agent.filter(|a| patch.is_made_from(a)) else {
        return Ok(ActionOutcome::Held(None));
    };
    let agents = with_rivals(context, s, &live, agent).await?;
    let lineup = live.lineup(&agents);
    let proven = lineup.approvable();
    if proven.is_none_or(|a| ObjectKey::of(a.as_ref()) != patch.key) {
        let held = lineup.doubt().map(|doubt| Waiting {
            subject: child.key.name.clone(),
            reason: doubt.reason,
            message: doubt.message,
        });
        return Ok(ActionOutcome::Held(held));
    }
    cluster.patch_agent(effect, patch).await?;
    Ok(ActionOutcome::It)
}

/// That Agent, and all others that may have its VM's identity. Agents with a name that such a host has are read live;
/// the rest comes from the cache.
async fn with_rivals(
    context: &Context,
    s: &Observed,
    child: &ManagedVm,
    agent: Agent,
) -> Result<Vec<Arc<Agent>>, ReconcileError> {
    let mut asked = BTreeSet::from([ObjectKey::of(&agent)]);
    let mut all = vec![Arc::new(agent)];
    for key in agents_home::own_names(Some(&s.pool), child) {
        if asked.insert(key.clone()) {
            all.extend(context.cluster.live_agent(&key).await?.map(Arc::new));
        }
    }
    let shown = s.agents_naming(child);
    all.extend(
        shown
            .filter(|a| !asked.contains(&ObjectKey::of(a.as_ref())))
            .cloned(),
    );
    Ok(all)
}
