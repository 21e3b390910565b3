//! The last look before a VM is switched on or off, reset, renewed or destroyed. The guard reads everything that the decision
//! depends on live, and the VM last. The actor then makes the pure decision once more from that, and sends the call.
//!
//! Guarantee: the actor holds the slot by then, and awaits nothing between the look at the VM and the call.

use std::{sync::Arc, time::Duration};

use agent_forge_crds::pool::VsphereAgentPool;

use super::executor::{Executor, StepOutcome};
use crate::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        names::MoRef,
    },
    guard::{Proof, Sight},
    ports::{
        effect::EffectKind,
        permit::Permit,
        vcenter::{VCenter, VmAt, VmObservation},
    },
    vm::{
        decision,
        memory::Memory,
        observed::Observed,
        ownership::{self, Ownership},
        step::{self, Change, Entry, Power, Step},
    },
};

/// The VM as it is now, the session that shows it, and the permit for the call.
pub(super) struct Looked {
    pub(super) session: Arc<dyn VCenter>,
    pub(super) shown: VmObservation,
    /// Its pool, as it was read with it.
    pub(super) pool: Option<Arc<VsphereAgentPool>>,
    pub(super) permit: Permit<VmAt>,
}

/// How long until the watch shows what a look showed.
pub(super) const SOON: Duration = Duration::from_secs(2);

impl Executor<'_> {
    /// The look before `step`, which calls `kind`. A power-on and a new boot order follow a create within seconds: if the VM
    /// was looked at a moment ago, that is enough.
    ///
    /// # Errors
    /// The outer result says what keeps the VM, by what was read. The inner result says what to do instead.
    pub(super) async fn last_look(
        &self,
        memory: &mut Memory,
        step: &Step,
        kind: EffectKind,
    ) -> Result<Result<Looked, StepOutcome>, ReconcileError> {
        let (case, before) = (self.case(), self.shown(memory).ok());
        let session = self.session().await?;
        let now = self.context.clock.monotonic();
        let age = memory.looked_at.map(|at| now.saturating_sub(at));
        if step.starts_vm()
            && let Some(shown) = &before
            && let Some(permit) = case.at_once(kind, shown, age)
        {
            return Ok(Ok(Looked {
                session,
                shown: shown.clone(),
                pool: self.observed.pool.clone(),
                permit,
            }));
        }
        let Some(proof) = Box::pin(case.read(kind)).await? else {
            return Ok(Err(StepOutcome::Pause(SOON)));
        };
        let vm = match &before {
            Some(shown) => shown.moref.clone(),
            None => self.reference()?,
        };
        let Some(sight) = self.look_at(memory, &proof, session.as_ref(), &vm).await? else {
            return Ok(Err(match before {
                Some(_) => StepOutcome::Same,
                // This was the first look: ours is elsewhere, or nowhere.
                None => self.lookup(memory).await?,
            }));
        };
        // From here on nothing is awaited.
        let context = proof.context();
        let observed = Observed::gather(context.view.as_ref(), proof.child().clone());
        observed.remember(memory);
        let next = step::next(&observed.facts(context, memory));
        match decision::held_back(context, &observed, next) {
            next if next == *step => {
                memory.looked_at = Some(self.context.clock.monotonic());
                Ok(Ok(Looked {
                    session,
                    permit: sight.permit()?,
                    shown: sight.shown,
                    pool: observed.pool,
                }))
            }
            // It was decided without a look, and this was the first.
            _ if before.is_none() => Ok(Err(StepOutcome::Same)),
            next => self.otherwise(memory, step, next).map(Err),
        }
    }

    /// What to do if the look before `step` leads to `next` instead.
    fn otherwise(
        &self,
        memory: &Memory,
        step: &Step,
        next: Step,
    ) -> Result<StepOutcome, ReconcileError> {
        match next {
            // The same by what the caches show, so that the VM is the reason.
            _ if step.starts_vm()
                && step::next(&self.observed.facts(self.context, memory)) != *step =>
            {
                Ok(StepOutcome::Same)
            }
            Step::Hold {
                reason, message, ..
            } => Err(ReconcileError::transient(
                ErrorSource::Upstream,
                reason,
                message,
            )),
            // Only the VM changed: it is off already, or on again.
            Step::Power(Power::Off)
            | Step::Destroy
            | Step::Configure(Change::NewLife(_))
            | Step::Record(Entry::Begun(_))
            | Step::Record(Entry::Life(_)) => Ok(StepOutcome::Same),
            // The watch will show the reason.
            _ => Ok(StepOutcome::Pause(SOON)),
        }
    }

    /// Looks at the VM behind that reference, and remembers what it shows. `None`: it is not there, or is not ours. After a
    /// vCenter was restored from a backup, a reference may lead to another VM, and the next step looks for ours.
    pub(super) async fn look_at<'a>(
        &self,
        memory: &mut Memory,
        proof: &'a Proof,
        session: &dyn VCenter,
        vm: &MoRef,
    ) -> Result<Option<Sight<'a>>, ReconcileError> {
        let sight = proof.look(session, vm).await?;
        let now = self.context.clock.monotonic();
        let found = sight.iter().map(|sight| sight.shown.clone()).collect();
        let seen = ownership::judge(found, &self.expected(), &Ownership::NotAsked, now);
        memory.looked_at = None;
        if !matches!(seen, Ownership::Ours(_)) {
            memory.seen = Ownership::NotAsked;
            return Ok(None);
        }
        memory.seen = seen;
        Ok(sight)
    }
}
