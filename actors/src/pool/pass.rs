//! One pass of a pool actor: gather, decide, act, publish.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use agent_forge_crds::{
    conditions::{self, event, find_condition, reason},
    pool::VsphereAgentPool,
};
use kube::ResourceExt;

use super::{
    Memory, act, announce,
    observed::{self, Observed},
    plan::{self, Plan},
    publish, secret_finalizers,
    status::{self, Surroundings},
    traced,
};
use crate::{
    context::Context,
    domain::{
        failure::{Class, ErrorSource, ReconcileError},
        names::{DatastorePath, ObjectKey},
        upstream::{self, WaitingSign},
    },
    iso::{
        msg::{IsoKey, IsoState, IsoWant},
        of_pool::{self, IsoCaches, held::HeldBack, kept},
    },
    placement::request,
    runtime::{backoff, shell::Verdict},
    sessions::{secret_ref, users},
};

/// While an ISO is on its way, or vCenter is in trouble, the pass looks again after that.
const PROGRESS: Duration = Duration::from_secs(2);
/// A pass waits that long for a login, which itself goes on, and for a sign that vCenter is there.
pub(super) const SESSION_PATIENCE: Duration = Duration::from_secs(5);

/// Runs one pass.
pub async fn run(
    context: Context,
    isos: Arc<dyn IsoCaches>,
    key: ObjectKey,
    mut memory: Memory,
) -> (Memory, Verdict) {
    let Some(mut s) = observed::gather(
        context.view.as_ref(),
        context.clock.as_ref(),
        &key,
        &memory.waiting_since,
        &memory.spare_since,
    ) else {
        // The supervisor stops the actor.
        return (memory, Verdict::default());
    };
    traced::name_pass(&s.pool);
    s.pool = memory.status.begin(&s.pool);
    note_waiting(&mut memory, &mut s);
    memory.begun.recall(&mut s);
    let plan = plan::plan(&s);
    note_spare(&mut memory, &plan, s.now);
    let custody = secret_finalizers::tend(&context, &mut s, &plan.actions, &mut memory).await;
    // First what only the cluster is needed for: a vCenter that does not answer must not hold back a fence.
    let mut acted = act::perform_all(&context, &s, &plan.actions, &mut memory).await;
    acted.result = acted.result.and(custody);
    let mut around = surroundings(&context, isos.as_ref(), &s, &mut memory).await;
    if let Err(trouble) = &acted.result {
        // A lost race is worth neither a warning nor a condition: it is looked at again at once.
        if trouble.class == Class::Conflict {
            tracing::debug!(object = %key, reason = %trouble.reason, "{trouble}");
        } else {
            tracing::warn!(object = %key, reason = %trouble.reason, "{trouble}");
        }
        around.failed = Some(trouble.clone()).filter(|t| t.class != Class::Conflict);
    }
    around.held.clone_from(&acted.held);
    memory.vsphere_failures = match &around.vsphere {
        Some(_) => memory.vsphere_failures.saturating_add(1),
        None => 0,
    };
    let announce = announce::announce(&context, &s, &plan, &around, &acted, &mut memory);
    context.instruments.pool(&key, &status::gauges(&s, &plan));
    let mut verdict = verdict(&key, &plan, &around, &acted, memory.vsphere_failures);
    verdict.again = [verdict.again, announce].into_iter().flatten().min();
    if !acted.gone {
        publish::publish(&context, &s, &plan, &around, &mut memory, &mut verdict).await;
    }
    (memory, verdict)
}

/// Starts and stops the debounce clocks of AgentMachines.
fn note_waiting(memory: &mut Memory, s: &mut Observed) {
    let waits = |am: &&Arc<agent_forge_crds::external::agent_machine::AgentMachine>| {
        upstream::waiting_sign(am) != WaitingSign::Other
            && am.agent_ref().is_none()
            && am.has_provider_finalizer()
    };
    let uids: BTreeSet<String> = s
        .agent_machines
        .iter()
        .filter(waits)
        .filter_map(|am| am.uid())
        .collect();
    memory.waiting_since.retain(|uid, _| uids.contains(uid));
    for uid in uids {
        memory.waiting_since.entry(uid).or_insert(s.now);
    }
    s.waiting_since.clone_from(&memory.waiting_since);
}

/// Starts and stops the clocks of VMs that are on offer.
fn note_spare(memory: &mut Memory, plan: &Plan, now: Duration) {
    memory.spare_since.retain(|uid, _| plan.spare.contains(uid));
    for uid in &plan.spare {
        memory.spare_since.entry(uid.clone()).or_insert(now);
    }
}

async fn surroundings(
    context: &Context,
    isos: &dyn IsoCaches,
    s: &Observed,
    memory: &mut Memory,
) -> Surroundings {
    let status = s.pool.status.as_ref();
    let mut around = Surroundings {
        refused: status.and_then(|st| st.refused_credentials.clone()),
        ..Surroundings::default()
    };
    let deleting = s.pool.metadata.deletion_timestamp.is_some();
    let refused = s.refused_source();
    // What is under way ends as well.
    if deleting || s.may_have_lost_source() {
        isos.leave(&s.key);
    }
    let found = request::hardware(&s.pool)
        .and_then(|_| secret_ref::secret(&s.pool, &context.settings.secret_namespaces));
    let secret = match found {
        Ok(secret) => secret,
        Err(trouble) => {
            around.no_source = refused.or(of_pool::source(s.infra_env.as_deref()).err());
            around.vsphere = Some(trouble);
            return around;
        }
    };
    let others: Vec<Arc<VsphereAgentPool>> = context
        .view
        .pools()
        .into_iter()
        .filter(|p| ObjectKey::of(p.as_ref()) != s.key && s.grants.lacking_home(p).is_none())
        .collect();
    let (cluster, now) = (context.cluster.as_ref(), context.clock.monotonic());
    let env =
        of_pool::fresh::infra_env(cluster, now, s.infra_env.as_ref(), &mut memory.infra_env).await;
    let want = match of_pool::want(&s.pool, &others, env.as_deref(), &secret) {
        Ok(want) => {
            let (prunable, held_back) = prunable(context, s, &others);
            around.held_back = Some(held_back);
            Some(IsoWant {
                prunable,
                ca_pem: of_pool::ca::bundle(cluster, now, &s.pool, &mut memory.iso_ca).await,
                look_within: of_pool::look::within(&s.children),
                ..want
            })
        }
        Err(no) => {
            around.no_source = refused.or(Some(no));
            None
        }
    };
    let asked = tokio::time::timeout(
        SESSION_PATIENCE,
        context.sessions.session(&secret, &s.key.namespace),
    )
    .await;
    let session = match asked.unwrap_or_else(|_| Err(no_answer_yet(s))) {
        Ok(session) => session,
        Err(trouble) => {
            if trouble.reason == reason::INVALID_CREDENTIALS {
                let refused = context.sessions.refusal(&secret).await;
                around.refused = refused.or(around.refused);
            }
            around.vsphere = Some(trouble);
            return around;
        }
    };
    around.refused = None;
    around.insecure = session.insecure();
    let cache = of_pool::cache_key(&s.pool, session.server());
    let instruments = &context.instruments;
    instruments.pool_uses(&s.key, session.server(), &cache.to_string());
    // Nobody else may have work there: an outage is told all the same.
    let answered = tokio::time::timeout(SESSION_PATIENCE, session.reachable()).await;
    around.vsphere = match answered {
        Ok(answered) => answered.err().map(ReconcileError::from),
        Err(_) => Some(no_answer_yet(s)),
    };
    if let (Some(mut want), false) = (want, deleting) {
        if !want.prunable.is_empty() {
            want.users = users::all(context.view.as_ref(), &context.settings.secret_namespaces);
        }
        let left = of_pool::left_behind(&cache, &mut want);
        let mut state = match isos.ensure(cache, want.clone()).await {
            Ok(state) => state,
            Err(trouble) => IsoState::Failed(trouble),
        };
        memory.infra_env.told(&state);
        clear_left(isos, left, &mut state).await;
        let record = s.pool.status.as_ref().and_then(|st| st.iso.as_ref());
        around.iso_status = of_pool::status(record, &want, &state, s.wall);
        if let (IsoState::Ready { .. }, Some(status)) = (&state, &mut around.iso_status) {
            status.infra_env_ref = env.as_deref().map(of_pool::reference);
        }
        let known = want.known.as_ref().map(|file| file.path.to_string());
        around.iso_known = known.is_some() && known == record.and_then(|r| r.stored_path.clone());
        around.iso = Some(state);
    }
    around
}

/// Lets go what lies on datastores that the pool has left; what comes of it is told with the rest.
async fn clear_left(isos: &dyn IsoCaches, left: BTreeMap<IsoKey, IsoWant>, state: &mut IsoState) {
    let IsoState::Ready {
        pruned,
        prune_failures,
        ..
    } = state
    else {
        return;
    };
    for (key, left) in left {
        match isos.clear(key, left).await {
            Ok((gone, kept)) => {
                pruned.extend(gone);
                prune_failures.extend(kept);
            }
            Err(trouble) => tracing::debug!(reason = %trouble.reason, "{trouble}"),
        }
    }
}

/// What retention lets go. It goes by the pool as the view shows it, which is what VM actors take their ISO from; and
/// nothing goes while a VM of ours may be about to get an ISO into its drive that vCenter does not show there yet; where that
/// lasts, it is told.
fn prunable(
    context: &Context,
    s: &Observed,
    others: &[Arc<VsphereAgentPool>],
) -> (Vec<DatastorePath>, Option<HeldBack>) {
    let children = context.view.all_children();
    let making = children.iter().find(|c| of_pool::look::is_in_the_making(c));
    let shown = context.view.pool(&s.key);
    let all = shown.map_or_else(Vec::new, |shown| kept::prunable(&shown, others, s.wall));
    match making.filter(|_| !all.is_empty()) {
        None => (all, None),
        Some(child) => {
            let held = HeldBack {
                by: ObjectKey::of(child.as_ref()),
                files: all.len(),
            };
            (Vec::new(), Some(held))
        }
    }
}

/// The login goes on; what was known to be wrong before stays said meanwhile.
fn no_answer_yet(s: &Observed) -> ReconcileError {
    let conditions = s.pool.status.as_ref().map(|st| st.conditions.as_slice());
    let known = find_condition(conditions.unwrap_or_default(), conditions::VSPHERE_READY)
        .filter(|c| c.status == "False");
    match known {
        Some(c) => {
            ReconcileError::transient(ErrorSource::Vsphere, c.reason.clone(), c.message.clone())
        }
        None => ReconcileError::transient(
            ErrorSource::Vsphere,
            "VCenterNoAnswer",
            "vCenter has not answered yet",
        ),
    }
}

fn verdict(
    key: &ObjectKey,
    plan: &Plan,
    around: &Surroundings,
    acted: &act::Acted,
    vsphere_failures: u32,
) -> Verdict {
    let busy = matches!(
        around.iso,
        Some(
            IsoState::Fetching { .. }
                | IsoState::Queued(_)
                | IsoState::Lost(_)
                | IsoState::Publishing(_)
                | IsoState::Failed(_)
        )
    );
    let probe = |t: &ReconcileError| backoff::delay(t.class, vsphere_failures, &key.to_string());
    // What is wrong with vCenter, or what only a changed input mends, must not put off the next pass: it may be for
    // another machine. Only what the next pass can mend counts as its failure.
    let vsphere = around.vsphere.as_ref().map(probe);
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
    let troubles: Vec<&ReconcileError> = [around.vsphere.as_ref(), around.failed.as_ref()]
        .into_iter()
        .flatten()
        .collect();
    let mut waiting_on: Vec<(String, String)> = troubles
        .iter()
        .map(|t| (t.reason.clone(), t.message.clone()))
        .collect();
    waiting_on.extend(
        plan.waiting
            .iter()
            .map(|w| (w.reason.to_owned(), format!("{}: {}", w.subject, w.message))),
    );
    Verdict {
        again,
        failure: acting.filter(|_| blocked.is_none()),
        waiting_on,
    }
}

#[cfg(test)]
mod tests;
