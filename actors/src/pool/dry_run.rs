//! What a pool would do, in a dry run: the rows of `status.plannedActions` that exist only then, and the log.

use std::collections::BTreeSet;

use agent_forge_crds::{
    conditions::{Reason, action},
    pool::{PlannedAction, VsphereAgentPoolStatus},
};
use kube::ResourceExt as _;

use super::{
    observed::Observed,
    outcome::Outcome,
    plan::{Action, Plan, secrets::SecretAction},
};
use crate::{iso::msg::IsoState, sessions::secret_ref};

/// A row of `status.plannedActions`.
pub(super) fn row(type_: &str, name: Option<String>, reason: String) -> PlannedAction {
    PlannedAction {
        type_: type_.to_owned(),
        name,
        reason,
    }
}

/// What in earnest is done at once, and so is not listed then: pins, finalizers, the ISO, and the next step of each VM.
pub fn rows(s: &Observed, plan: &Plan, outcome: &Outcome) -> Vec<PlannedAction> {
    let own = |words: &str| {
        let name = Some(s.key.name.clone());
        Some(row(action::CHANGE_FINALIZER, name, words.to_owned()))
    };
    let mut rows: Vec<PlannedAction> = plan
        .actions
        .iter()
        .filter_map(|planned| match planned {
            Action::Pin { agent_machine, pin } => Some(row(
                action::PIN_AGENT_MACHINE,
                Some(agent_machine.name_any()),
                format!("pin its selector to {pin}"),
            )),
            Action::AddFinalizer => own("add the finalizer of the pool"),
            Action::RemoveFinalizer => own("remove the finalizer of the pool"),
            _ => None,
        })
        .collect();
    rows.extend(plan.secrets.iter().filter_map(|(entry, planned)| {
        let words = match planned {
            SecretAction::Keep => return None,
            SecretAction::Hold { .. } if entry.held => return None,
            SecretAction::Hold { .. } => "keep the Secret from deletion",
            SecretAction::Release => "let go of the Secret",
        };
        let name = Some(secret_ref::key(entry).to_string());
        Some(row(action::CHANGE_FINALIZER, name, words.to_owned()))
    }));
    let ready = matches!(outcome.iso, Some(IsoState::Ready { .. }));
    if outcome.iso_stopped.is_some() && !ready && s.pool.metadata.deletion_timestamp.is_none() {
        let datastore = &s.pool.spec.vsphere.iso_datastore;
        let reason = format!(
            "fetch the ISO of InfraEnv {} to datastore {datastore}",
            s.infra_env_key
        );
        rows.push(row(action::UPLOAD_ISO, None, reason));
    }
    rows.extend(s.children.iter().filter_map(|child| {
        let first = child.object.status.as_ref()?.waiting_on.first()?;
        let held = first.reason == Reason::DryRun;
        let step = || {
            row(
                action::CHANGE_VM,
                Some(child.key.name.clone()),
                first.message.clone(),
            )
        };
        held.then(step)
    }));
    rows
}

/// What the log has: each action and each wait by its kind and name.
#[derive(Debug, Default)]
pub struct Rehearsed(BTreeSet<(String, String)>);

/// The lines for the log: what would be done, and what waits for other reasons. Each one is there when it is new.
pub fn lines(s: &Observed, status: &VsphereAgentPoolStatus, told: &mut Rehearsed) -> Vec<String> {
    if s.holds.dry_run.is_none() {
        told.0.clear();
        return Vec::new();
    }
    let actions = status.planned_actions.iter().map(|planned| {
        let name = planned.name.clone().unwrap_or_default();
        (planned.type_.clone(), name, &planned.reason)
    });
    let waits = status.waiting_on.iter();
    let waits = waits.filter(|wait| wait.reason != Reason::DryRun);
    let waits = waits.map(|wait| (wait.reason.to_string(), wait.subject.clone(), &wait.message));
    let (mut now, mut new) = (BTreeSet::new(), Vec::new());
    for (kind, name, words) in actions.chain(waits) {
        let line = (kind, name);
        if !told.0.contains(&line) && !now.contains(&line) {
            let (kind, name) = &line;
            new.push(format!("{kind} {name}: {words}"));
        }
        now.insert(line);
    }
    told.0 = now;
    new
}
