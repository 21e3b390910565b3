//! The pool's conditions.

use agent_forge_crds::{
    conditions::{self, Reason, find_condition, is_true},
    pool::VsphereAgentPoolStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::{
    domain::{belonging, failure::ErrorSource, upstream::WaitingSign},
    iso::{msg::IsoState, of_pool::NoSource},
    pool::{
        observed::Observed,
        outcome::Outcome,
        plan::{self, Plan},
    },
    ports::{instruments::PoolGauges, iso_source::IsoUrl},
    world::classify::{DemandReason, DemandState, words},
};

/// Type of a condition, whether it holds, reason and message.
pub(super) type Row = (&'static str, bool, Reason, String);

pub(super) fn verdicts(s: &Observed, plan: &Plan, outcome: &Outcome, g: &PoolGauges) -> Vec<Row> {
    let mut rows = vec![
        demand(s, plan, g),
        infra_env(s, outcome),
        capacity(g, plan),
        vsphere(s, outcome),
    ];
    // A pool that is being deleted no longer asks for an ISO: the condition stays as it was.
    if s.pool.metadata.deletion_timestamp.is_none() {
        let before = s.pool.status.as_ref();
        let before = before.and_then(|st| find_condition(&st.conditions, conditions::ISO_READY));
        rows.push(iso(outcome, before));
    }
    rows
}

/// Why the pool may serve no AgentMachine, as reason and sentence.
fn refused(s: &Observed) -> Option<(Reason, String)> {
    let own = s.pool.metadata.namespace.as_deref().unwrap_or_default();
    let refusing = s.refusing();
    if !refusing.is_empty() {
        let message = s.grants.sentence(&refusing, own);
        return Some((Reason::NamespaceNotAllowed, message));
    }
    let sentence = belonging::refused_label(&s.pool)?;
    Some((Reason::InvalidSpec, sentence))
}

fn row(type_: &'static str, holds: bool, reason: Reason, message: impl Into<String>) -> Row {
    (type_, holds, reason, message.into())
}

fn demand(s: &Observed, plan: &Plan, g: &PoolGauges) -> Row {
    let row = |holds, reason, message| {
        row(
            conditions::AGENT_MACHINE_DEMAND_FOUND,
            holds,
            reason,
            message,
        )
    };
    if let Some((reason, message)) = refused(s) {
        return row(false, reason, message);
    }
    if let Some(group) = s.pool.spec.group().filter(|_| !s.pool.has_node_pool()) {
        let message = format!("no NodePool: it keeps hosts for the pools of group {group}");
        return row(true, Reason::Observed, message);
    }
    let lasts = plan.demands.iter().find_map(|d| match &d.state {
        DemandState::NotNow {
            why: why @ (DemandReason::PoolConflict(_) | DemandReason::SelectorUnsatisfiable(_)),
            ..
        }
        | DemandState::NotNow {
            why: why @ DemandReason::ProviderNotAccepting,
            again: None,
        } => Some((d, why)),
        _ => None,
    });
    let unconfirmed = || {
        let mut all = plan.demands.iter();
        let tried =
            |s: &DemandState| matches!(s, DemandState::HostUnconfirmed | DemandState::InFlight);
        let first = all.find(|d| d.sign == WaitingSign::NoConditions && tried(&d.state));
        first.map(|d| (d, &DemandReason::ConditionsMissing))
    };
    if let Some((demand, why)) = lasts.or_else(unconfirmed) {
        let (reason, message) = words::explain(why);
        let message = format!("AgentMachine {}: {message}", demand.name());
        return row(false, reason, message);
    }
    let message = format!(
        "agentMachines={} waitingForAgents={} unready={} withoutAgent={}",
        g.agent_machines, g.waiting_agent_machines, g.unready_agent_machines, g.without_agent
    );
    row(true, Reason::Observed, message)
}

fn infra_env(s: &Observed, outcome: &Outcome) -> Row {
    let key = &s.infra_env_key;
    let own = s.pool.metadata.namespace.as_deref().unwrap_or_default();
    let row = |holds, reason, message| row(conditions::INFRA_ENV_AVAILABLE, holds, reason, message);
    let no = |reason, message| row(false, reason, message);
    match &outcome.no_source {
        Some(NoSource::InfraEnvNotFound) => {
            let refused = s.grants.refused_homes(&s.pool);
            let skipped = if refused.is_empty() {
                String::new()
            } else {
                format!("; {}", s.grants.sentence(&refused, own))
            };
            no(
                Reason::InfraEnvNotFound,
                format!(
                    "InfraEnv {key} does not exist; check spec.infraEnvRef (name, and namespace where it is not the pool's){skipped}"
                ),
            )
        }
        Some(NoSource::NotAllowed(refused)) => {
            let message = s.grants.sentence(refused, own);
            no(Reason::NamespaceNotAllowed, message)
        }
        Some(NoSource::UrlPending) => no(
            Reason::IsoUrlPending,
            format!("InfraEnv {key} has no status.isoDownloadURL yet"),
        ),
        Some(NoSource::Invalid(t)) if t.reason == Reason::InvalidIsoUrl => {
            no(t.reason.clone(), t.message.clone())
        }
        Some(NoSource::ImageFailed(why)) => no(Reason::ImageNotCreated, why.clone()),
        _ => match s.guard() {
            Some(guard) => no(guard.reason, guard.message),
            None => {
                let url = s.infra_env.as_ref().and_then(|i| i.iso_download_url());
                let url = url.and_then(|url| IsoUrl::parse(url.expose()).ok());
                let note = if url.is_some_and(|url| url.is_plain()) {
                    "; WARNING: over plain http, so anybody on the way can change what the hosts boot"
                } else {
                    ""
                };
                let message = format!("InfraEnv {key} offers a discovery ISO{note}");
                row(true, Reason::Available, message)
            }
        },
    }
}

fn capacity(g: &PoolGauges, plan: &Plan) -> Row {
    let waiting = plan
        .demands
        .iter()
        .filter(|c| {
            matches!(
                c.state,
                DemandState::Host
                    | DemandState::HostUnconfirmed
                    | DemandState::InFlight
                    | DemandState::NotNow { .. }
            )
        })
        .count();
    let message = format!(
        "agentMachines={} waiting={waiting} matchingAgents={} boundAgents={} availableAgents={} pendingOwnedVMs={}",
        g.agent_machines,
        g.matching_agents,
        g.bound_agents,
        g.available_agents,
        g.pending_owned_vms
    );
    let capped = plan
        .waiting
        .iter()
        .find(|w| w.reason == Reason::CreateCapReached && w.subject != plan::BUFFER);
    if let Some(first) = capped {
        let message = format!(
            "AgentMachine {}: {}; {message}",
            first.subject, first.message
        );
        let reason = Reason::CreateCapReached;
        return row(conditions::CAPACITY_SATISFIED, false, reason, message);
    }
    let word = if waiting == 0 {
        Reason::Satisfied
    } else {
        Reason::DemandDeficit
    };
    row(conditions::CAPACITY_SATISFIED, waiting == 0, word, message)
}

fn vsphere(s: &Observed, outcome: &Outcome) -> Row {
    let row = |holds, reason, message| row(conditions::VSPHERE_READY, holds, reason, message);
    if let Some(t) = &outcome.vsphere {
        return row(false, t.reason.clone(), t.message.clone());
    }
    if let Some((reason, message)) = met_at_vcenter(s, outcome) {
        return row(false, reason, message);
    }
    let words = if outcome.insecure {
        "vCenter answers; WARNING: its certificate is not checked (insecure: \"true\" in the Secret)"
    } else {
        "vCenter answers and everything named in spec.vsphere was found so far"
    };
    let mut words = words.to_owned();
    // Accepted for objects of the predecessor (ADR 14). A person who sets it expects an effect, so the condition names
    // it.
    let prefix = s.pool.spec.template.name_prefix.as_deref();
    if let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) {
        words.push_str(&format!(
            "; spec.template.namePrefix {prefix:?} has no effect: a VM has the name of its AgentMachine"
        ));
    }
    row(true, Reason::Ready, words)
}

/// What failed at vCenter for the ISO or a VsphereAgent, as reason and sentence. A failure that concerns all VMs comes
/// first. Otherwise a failed tag of one VM would hide a lost privilege from the alerts.
fn met_at_vcenter(s: &Observed, outcome: &Outcome) -> Option<(Reason, String)> {
    // An ISO that cannot be stored because of vCenter is a failure of vCenter too.
    let iso = match &outcome.iso {
        Some(IsoState::Failed(t)) if t.side == ErrorSource::Vsphere => {
            let datastore = &s.pool.spec.vsphere.iso_datastore;
            let message = format!(
                "storing the ISO on spec.vsphere.isoDatastore {datastore:?}: {}",
                t.message
            );
            Some((t.reason.clone(), message))
        }
        _ => None,
    };
    let of_children = s.children.iter().filter_map(|c| {
        let rows = &c.object.status.as_ref()?.waiting_on;
        let w = rows.iter().find(|w| w.subject == "vSphere")?;
        Some((w.reason.clone(), format!("{}: {}", c.key.name, w.message)))
    });
    let of_one = |(reason, _): &(Reason, String)| !reason.concerns_whole_vcenter();
    iso.into_iter().chain(of_children).min_by_key(of_one)
}

/// The row for the ISO. `before`: what the condition says so far.
///
/// - A new try starts two seconds after a failure, and may fail only after minutes. So the reason of the last failure
///   stays until a try succeeds; otherwise people would hardly see it.
/// - A reason that kept the pool from asking at all is over once the pool asks.
/// - A file that was there counts as there until a look shows otherwise. Each start of the operator begins with such a
///   look, and otherwise the condition would flicker.
fn iso(outcome: &Outcome, before: Option<&Condition>) -> Row {
    let row = |holds, reason, message| row(conditions::ISO_READY, holds, reason, message);
    match (&outcome.iso, &outcome.no_source) {
        (Some(state), _) => of_state(outcome, state, before),
        (None, Some(NoSource::Invalid(t))) => row(false, t.reason.clone(), t.message.clone()),
        (None, Some(NoSource::ImageFailed(why))) => {
            row(false, Reason::ImageNotCreated, why.clone())
        }
        (None, Some(_)) => row(
            false,
            Reason::IsoUrlPending,
            "there is no ISO URL to fetch from yet".to_owned(),
        ),
        (None, None) if let Some(hold) = &outcome.iso_stopped => {
            row(false, hold.reason.clone(), hold.why.clone())
        }
        (None, None) => row(
            false,
            Reason::WaitingForVsphere,
            "the ISO waits for vCenter; see VsphereReady".to_owned(),
        ),
    }
}

/// The last try to get the ISO failed, and nothing has succeeded since.
fn failed(before: Option<&Condition>) -> Option<&Condition> {
    let under_way = [
        Reason::IsoUploading,
        Reason::IsoUrlPending,
        Reason::ImageNotCreated,
        Reason::InvalidSpec,
        Reason::InvalidIsoUrl,
        Reason::WaitingForVsphere,
        Reason::Paused,
        Reason::DryRun,
    ];
    before.filter(|c| c.status == "False" && !under_way.contains(&Reason::from(c.reason.as_str())))
}

/// What the ISO cache says.
fn of_state(outcome: &Outcome, state: &IsoState, before: Option<&Condition>) -> Row {
    let row = |holds, reason, message| row(conditions::ISO_READY, holds, reason, message);
    let on_its_way = |message| row(false, Reason::IsoUploading, message);
    match state {
        IsoState::Ready { file, .. } => {
            let volatile = outcome.iso_status.as_ref().and_then(|i| i.volatile) == Some(true);
            let note = if volatile {
                "; its source sends other bytes at every download, so it stays until the InfraEnv's URL or createdTime changes"
            } else {
                ""
            };
            let message = format!("{} is complete ({} bytes){note}", file.path, file.size);
            row(true, Reason::IsoReady, message)
        }
        IsoState::Fetching { .. } | IsoState::Queued(_) | IsoState::Publishing(_)
            if let Some(last) = failed(before) =>
        {
            row(false, last.reason.as_str().into(), last.message.clone())
        }
        IsoState::Fetching {
            done: 0,
            total: None,
            ..
        } if let Some(complete) = before.filter(|c| outcome.iso_known && c.status == "True") => {
            row(
                true,
                complete.reason.as_str().into(),
                complete.message.clone(),
            )
        }
        IsoState::Lost(place) => on_its_way(format!(
            "{place} does not lie there any more, whole; it is fetched again"
        )),
        IsoState::Queued(first) => on_its_way(format!(
            "the discovery ISO waits for that of pool {first}, which is on its way to the same datastore"
        )),
        IsoState::Fetching { .. } | IsoState::Publishing(_) => {
            on_its_way("the discovery ISO is on its way to the datastore".to_owned())
        }
        IsoState::Failed(t) => {
            let before = outcome.iso_status.as_ref().and_then(|i| i.path.as_ref());
            let note = if before.is_some() {
                "; new VMs are made from the ISO that status.iso names meanwhile"
            } else {
                ""
            };
            row(false, t.reason.clone(), format!("{}{note}", t.message))
        }
    }
}

/// Why the pool is not ready: its own end, a failure, or the first condition that does not hold. Capacity does not
/// count: machines in the making are normal work.
pub(super) fn overall(
    status: &VsphereAgentPoolStatus,
    s: &Observed,
    outcome: &Outcome,
) -> Option<(Reason, String)> {
    if s.pool.metadata.deletion_timestamp.is_some() {
        let left = s.hosts_left();
        if let Some(run) = s.holds.dry_run.as_ref() {
            let message = format!(
                "the pool is being deleted, and waits for the end of the dry run by {}; VsphereAgents left: {left}",
                run.source
            );
            return Some((Reason::DryRun, message));
        }
        let begin = format!("the pool is being deleted; VsphereAgents left: {left}");
        return Some(match &outcome.failed {
            Some(t) => (t.reason.clone(), format!("{begin}; {}", t.message)),
            None => (
                Reason::ChildrenRemain,
                format!("{begin} (status.waitingOn says what holds them)"),
            ),
        });
    }
    if let Some(t) = &outcome.failed {
        return Some((t.reason.clone(), t.message.clone()));
    }
    conditions::POOL_CONDITIONS
        .iter()
        .filter(|t| **t != conditions::READY && **t != conditions::CAPACITY_SATISFIED)
        .filter(|t| !is_true(&status.conditions, t))
        .find_map(|t| find_condition(&status.conditions, t))
        .map(|c| (c.reason.as_str().into(), c.message.clone()))
}

#[cfg(test)]
mod tests;
