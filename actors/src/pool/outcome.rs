//! What came of a plan, and what a pass found at vCenter.

use std::time::Duration;

use agent_forge_crds::{
    conditions::Reason,
    pool::{IsoStatus, RefusedCredentials},
};

use super::{
    act::perform::ActionOutcome,
    nodes::Checked,
    observed::Observed,
    plan::{Action, Waiting, iso::IsoPlan},
    vcenter::VcenterObserved,
};
use crate::{
    domain::{
        failure::{Class, ReconcileError},
        names::ObjectKey,
    },
    iso::{
        content,
        msg::IsoState,
        of_pool::{self, NoSource, held::HeldBack},
    },
    ports::effect::Hold,
    report::vm::VSPHERE,
};

/// How long until the pass looks again at what a live read held back.
pub(super) const HELD: Duration = Duration::from_secs(5);

/// The result of carrying a plan out.
pub struct Acted {
    /// VsphereAgents created.
    pub created: usize,
    /// VsphereAgents that serve another AgentMachine now.
    pub reassigned: usize,
    /// VsphereAgents released.
    pub released: usize,
    /// The pool object is released: its status is not written any more.
    pub gone: bool,
    /// Look again after that time.
    pub again: Option<Duration>,
    /// What a live read held back.
    pub held: Vec<Waiting>,
    /// The first failure. The later actions were tried all the same.
    pub result: Result<(), ReconcileError>,
}

impl Acted {
    /// Logs what failed.
    pub fn log(&self, pool: &ObjectKey) {
        match &self.result {
            // After a write conflict the next pass looks again at once: it is not worth a warning.
            Err(trouble) if trouble.class == Class::Conflict => {
                tracing::debug!(object = %pool, reason = %trouble.reason, "{trouble}");
            }
            Err(trouble) => {
                tracing::warn!(object = %pool, reason = %trouble.reason, "{trouble}");
            }
            Ok(()) => {}
        }
    }

    /// Adds the result of an action.
    pub(super) fn add(&mut self, action: &Action, result: Result<ActionOutcome, ReconcileError>) {
        match result {
            Ok(ActionOutcome::It) => {
                let is_creation = matches!(
                    action,
                    Action::CreateChild { .. } | Action::CreateForBuffer { .. }
                );
                let is_new_use = matches!(
                    action,
                    Action::Reassign { .. }
                        | Action::Take { .. }
                        | Action::Bring { .. }
                        | Action::MoveToBuffer { .. }
                        | Action::Recycle { .. }
                );
                self.created += usize::from(is_creation);
                self.reassigned += usize::from(is_new_use);
                self.released += usize::from(matches!(action, Action::Release { .. }));
            }
            Ok(ActionOutcome::Record(_)) => {}
            Ok(ActionOutcome::Gone) => self.gone = true,
            Ok(ActionOutcome::Held(why)) => {
                self.again = Some(self.again.map_or(HELD, |a| a.min(HELD)));
                self.held.extend(why);
            }
            Ok(ActionOutcome::HeldBack(why)) => {
                if !self.held.contains(&why) {
                    self.held.push(why);
                }
            }
            Err(trouble) => {
                let worse = self
                    .result
                    .as_ref()
                    .err()
                    .is_none_or(|t| t.class == Class::Conflict);
                if worse {
                    self.result = Err(trouble);
                }
            }
        }
    }
}

/// What a pass found at vCenter, and the results of its plan.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What is wrong with vCenter or its credentials.
    pub vsphere: Option<ReconcileError>,
    /// `status.refusedCredentials` as it should be.
    pub refused: Option<RefusedCredentials>,
    /// The server, if the credentials give access to it.
    pub server: Option<String>,
    /// The certificate is not checked.
    pub insecure: bool,
    /// Why no ISO is wanted.
    pub no_source: Option<NoSource>,
    /// How far the ISO is.
    pub iso: Option<IsoState>,
    /// `status.iso` as it should be.
    pub iso_status: Option<IsoStatus>,
    /// The wanted ISO is the one that the record names, and the cache only checks that it is there.
    pub iso_known: bool,
    /// Old versions of the ISO that are kept. The outer `None`: no ISO is wanted.
    pub held_back: Option<Option<HeldBack>>,
    /// The pause or dry run that keeps the ISO from being fetched, if one is wanted.
    pub iso_stopped: Option<Hold>,
    /// What failed while acting.
    pub failed: Option<ReconcileError>,
    /// What a live read held back while acting.
    pub held: Vec<Waiting>,
    /// VMs that wait for a task slot.
    pub queued: Option<Waiting>,
    /// What is known of the Nodes of the hosted cluster.
    pub nodes: Checked,
}

impl Outcome {
    /// Puts the outcome of a pass together.
    #[must_use]
    pub fn of(
        s: &Observed,
        seen: VcenterObserved,
        plan: IsoPlan,
        iso: Option<IsoState>,
        acted: &Acted,
    ) -> Self {
        let failed = acted.result.as_ref().err();
        let mut outcome = Self {
            iso_stopped: s.stop().filter(|_| plan.held_back.is_some()),
            vsphere: seen.failure,
            refused: seen.refused,
            server: seen.server,
            insecure: seen.insecure,
            no_source: plan.no_source,
            held_back: plan.held_back,
            // After a write conflict the next pass looks again at once: it is not worth a condition.
            failed: failed.filter(|t| t.class != Class::Conflict).cloned(),
            held: acted.held.clone(),
            queued: seen.queued.map(|message| Waiting {
                subject: VSPHERE.to_owned(),
                reason: Reason::CreateQueued,
                message,
            }),
            ..Self::default()
        };
        if let (Some((_, want)), Some(state)) = (plan.ensure, &iso) {
            let record = s.pool.status.as_ref().and_then(|st| st.iso.as_ref());
            outcome.iso_status = of_pool::status(record, &want, state, s.wall);
            if let (IsoState::Ready { .. }, Some(status)) = (state, &mut outcome.iso_status) {
                let facts = seen.iso.as_ref();
                let infra_env = facts.and_then(|facts| facts.infra_env.as_deref());
                status.infra_env_ref = infra_env.map(of_pool::reference);
                let before = record.and_then(|iso| iso.image.as_ref());
                let image = facts.and_then(|facts| facts.image.as_ref());
                status.image = image.and_then(|seen| content::image(before, seen, &s.macs()));
            }
            let known = want.known.as_ref().map(|file| file.path.to_string());
            outcome.iso_known =
                known.is_some() && known == record.and_then(|r| r.stored_path.clone());
        }
        outcome.iso = iso;
        outcome
    }
}
