//! Takes over the VM of another pool's VsphereAgent, or hands the own one over.

use std::sync::Arc;

use agent_forge_crds::{
    agent::VmStatus,
    conditions::{Reason, event},
    external::agent::Agent,
    names::{AGENT_FINALIZER, RESERVED_FOR_ANNOTATION, TAKEN_FROM_ANNOTATION, VM_NAME_ANNOTATION},
};
use kube::ResourceExt;

use super::{
    executor::{Done, Executor, StepOutcome, defect},
    look::SOON,
    release::held,
};
use crate::{
    demand::lending::{self, Taken, Verdict},
    domain::{
        disk,
        failure::ReconcileError,
        managed_vm::ManagedVm,
        names::ObjectKey,
        reassign::{self, Reservation, Source, Taking},
        recycle::{self, Says},
        upstream,
    },
    guard::{self, Pausing},
    ports::{
        cluster::{AgentPatch, OwnPatch},
        effect::EffectKind,
        vcenter::VmObservation,
    },
    report::{Metric, Reports, tell},
    runtime::holds,
    vm::{
        config,
        memory::Memory,
        ownership::{self, Ownership},
        step::{Change, Lent},
    },
    world::agents_home,
};

impl Executor<'_> {
    /// Records the VM, before its mark is changed. From then on the VsphereAgent does not let go of it without reason.
    pub(super) async fn record_taken(&self, memory: &mut Memory) -> Done {
        let source = self.source()?;
        let lender = self.context.cluster.live_child(&source.key).await?;
        let lender = lender.map(|c| ManagedVm::read(Arc::new(c)));
        let lender = lender.filter(|lender| lending::lends(lender, source));
        let reserved = match &lender {
            Some(lender) => self.is_lent(lender).await?,
            None => false,
        };
        let Some(vm) = lender.as_ref().filter(|_| reserved).and_then(ManagedVm::vm) else {
            return self.not_taken(memory).await;
        };
        let mut status = self.observed.record();
        status.cluster_id = Some(self.context.view.cluster_id());
        status.vm = Some(reassign::record(vm, source));
        memory.create_not_sent = false;
        let kind = EffectKind::RecordIdentity;
        let next = self.save_record(kind, status, memory).await?;
        memory.seen = Ownership::NotAsked;
        Ok(StepOutcome::Object(next))
    }

    /// Writes the mark of this VsphereAgent onto the VM, if the VM is as it was seen: of several that try, one succeeds.
    pub(super) async fn stamp(&self, memory: &mut Memory) -> Done {
        let Ownership::Lenders(before) = memory.seen.clone() else {
            return Ok(StepOutcome::Same);
        };
        let moref = before.moref.clone();
        let session = self.session().await?;
        if let Some(otherwise) = self.keep_reservation(&before, memory).await? {
            return Ok(otherwise);
        }
        if !reassign::may_have_asked(self.observed.vm()) {
            return self.record_begin(memory).await;
        }
        let proof = Box::pin(self.case().read_or_fail(EffectKind::Reconfigure)).await?;
        let sight = proof.look(session.as_ref(), &moref).await?;
        let now = self.context.clock.monotonic();
        let found = sight.iter().map(|sight| sight.shown.clone()).collect();
        let seen = ownership::judge(found, &self.expected(), &Ownership::NotAsked, now);
        let (Some(sight), Ownership::Lenders(shown)) = (sight, seen) else {
            memory.seen = Ownership::NotAsked;
            return Ok(StepOutcome::Same);
        };
        let compared = |vm: &VmObservation| (vm.marks, vm.may_serve.clone(), vm.life(), vm.disk);
        if compared(&shown) != compared(&before) {
            memory.seen = Ownership::Lenders(shown);
            return Ok(StepOutcome::Same);
        }
        let change = config::wanted(
            &Change::TakeMark,
            self.observed,
            self.marker(),
            None,
            &shown,
        )?;
        let change = change.unwrap_or_default();
        self.send(memory, session.as_ref(), &sight.permit()?, &change, *shown)
            .await
    }

    /// Records that it begins to change the mark. From then on it does not let go of a VM with the lender's mark.
    async fn record_begin(&self, memory: &mut Memory) -> Done {
        let mut vm = self.vm();
        let record = vm.taken_from.as_mut();
        record
            .ok_or_else(|| defect("no VsphereAgent is recorded to take from"))?
            .stamped = None;
        let next = self.save(EffectKind::RecordIdentity, vm, memory).await?;
        Ok(StepOutcome::Object(next))
    }

    /// The VM is another one's, or is gone: an own one is made.
    pub(super) async fn not_taken(&self, memory: &mut Memory) -> Done {
        let child = &self.observed.child;
        if child.taking() == Taking::Asked {
            return self.forget_source().await;
        }
        let own_name = child.object.annotations().get(VM_NAME_ANNOTATION).cloned();
        let mut status = self.observed.record();
        status.vm = Some(VmStatus {
            name: own_name.unwrap_or_else(|| child.object.name_any()),
            attempt: Some(1),
            ..VmStatus::default()
        });
        let next = self
            .save_record(EffectKind::RecordIdentity, status, memory)
            .await?;
        memory.forget_vm();
        tell(self.context, Reports::metric(Metric::Reassigned("lost")));
        Ok(StepOutcome::Object(next))
    }

    /// Nothing is on record of the VM that it was to take over. Unless the record was taken away, no request was sent.
    async fn forget_source(&self) -> Done {
        if self.is_marked().await? {
            return Err(held(
                Reason::RecordLost,
                "a VM with our mark stands in vCenter and status.vm is gone: restore it, or remove the VM by hand and delete \
                 the VsphereAgent"
                    .to_owned(),
            ));
        }
        let patch = OwnPatch {
            annotations: [(TAKEN_FROM_ANNOTATION.to_owned(), None)].into(),
            ..OwnPatch::default()
        };
        let proof = Box::pin(self.case().read_or_fail(EffectKind::ReassignChild)).await?;
        let permit = proof.permit_at(self.observed.child.object.as_ref())?;
        self.context.cluster.patch_child(&permit, &patch).await?;
        tell(self.context, Reports::metric(Metric::Reassigned("lost")));
        // The watch shows the object without it.
        Ok(StepOutcome::Pause(SOON))
    }

    /// Another VsphereAgent has the VM: this one goes, and touches neither VM nor Agent.
    pub(super) async fn hand_over(&self) -> Done {
        let child = &self.observed.child;
        let Lent::Over(to) = &self.observed.lent else {
            return Ok(StepOutcome::Same);
        };
        let taker = self.context.cluster.live_child(to).await?;
        let taker = taker.map(|c| ManagedVm::read(Arc::new(c)));
        let vm = |c: &ManagedVm| c.identity.as_ref().map(|i| i.bios_uuid);
        let source = taker
            .filter(|taker| taker.taking() == Taking::Done && vm(taker) == vm(child))
            .and_then(|taker| taker.taken_from);
        if source.is_none_or(|s| s.key != child.key || s.attempt != self.attempt()) {
            return Ok(StepOutcome::Pause(SOON));
        }
        let kind = if child.deleting {
            EffectKind::RemoveChildFinalizer
        } else {
            EffectKind::DeleteChild
        };
        let proof = Box::pin(self.case().read_or_fail(kind)).await?;
        let permit = proof.permit_at(child.object.as_ref())?;
        if !child.deleting {
            self.context.cluster.delete_child(&permit).await?;
            tell(self.context, Reports::metric(Metric::Reassigned("lent")));
            self.event(
                false,
                event::HOST_LENT,
                "LendHost",
                &format!("host {} went to VsphereAgent {to}", child.vm_name),
            );
            // The watch shows that it is being deleted.
            return Ok(StepOutcome::Pause(SOON));
        }
        let finalizers = child.object.finalizers().iter();
        let finalizers = finalizers.filter(|f| *f != AGENT_FINALIZER);
        let patch = OwnPatch {
            finalizers: Some(finalizers.cloned().collect()),
            ..OwnPatch::default()
        };
        self.context.cluster.patch_child(&permit, &patch).await?;
        Ok(StepOutcome::Gone)
    }

    fn source(&self) -> Result<&Source, ReconcileError> {
        let source = self.observed.child.taken_from.as_ref();
        source.ok_or_else(|| defect("no VsphereAgent is named to take from"))
    }

    /// What reserves an Agent for this VsphereAgent.
    fn reservation(&self) -> Result<Reservation, ReconcileError> {
        Ok(Reservation {
            pool: self.pool()?.uid().unwrap_or_default(),
            name: self.observed.child.key.name.clone(),
        })
    }

    /// Live: why the disks of that VsphereAgent's VM are not for the pool. `shown`: the VM, once the actor has looked at it.
    async fn disk_refusal(
        &self,
        lender: &ManagedVm,
        shown: Option<&VmObservation>,
    ) -> Result<Option<String>, ReconcileError> {
        let cluster = &self.context.cluster;
        let own = ObjectKey::of(self.pool()?.as_ref());
        let Some(own) = cluster.live_pool(&own).await? else {
            return Ok(Some("the pool is gone".to_owned()));
        };
        let theirs = ObjectKey::new(&lender.key.namespace, &lender.object.spec.pool_ref.name);
        let theirs = cluster.live_pool(&theirs).await?;
        let differs = |shown: &VmObservation| {
            let as_shown = |vm| disk::is_as_shown(vm, shown.life(), shown.disk_now());
            !lender.vm().is_some_and(as_shown)
        };
        if shown.is_some_and(differs) {
            let why = "the VM is in another life than its record says, or has other disks";
            return Ok(Some(why.to_owned()));
        }
        let refusal = lending::disk_refusal(&own, theirs.as_ref(), lender);
        Ok(refusal.map(|refusal| refusal.to_string()))
    }

    /// Live: the pool of that VsphereAgent lends to this one, its Agent is free, and is reserved for this one.
    async fn is_lent(&self, lender: &ManagedVm) -> Result<bool, ReconcileError> {
        let (own, cluster) = (self.reservation()?, &self.context.cluster);
        let pool = self.pool()?;
        let theirs = ObjectKey::new(&lender.key.namespace, &lender.object.spec.pool_ref.name);
        let theirs = cluster.live_pool(&theirs).await?;
        let (view, settings) = (self.context.view.as_ref(), &self.context.settings);
        let refused = theirs.is_none_or(|theirs| {
            theirs.metadata.deletion_timestamp.is_some()
                || lending::consents(view, (pool, &theirs), &settings.secret_namespaces).is_some()
        });
        let disk = self.disk_refusal(lender, None).await?;
        if refused || disk.is_some() || lender.skips_delete() {
            return Ok(false);
        }
        for key in agents_home::own_names(Some(pool), lender) {
            let agent = cluster.live_agent(&key).await?;
            let own = |a: &Agent| lending::reservation(a).as_ref() == Some(&own);
            let free = |a: &Agent| recycle::says(Some(a), false) == Says::Free;
            if agent.is_some_and(|a| own(&a) && free(&a)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes sure that the lender still lends, and that the Agent is free and reserved for this VsphereAgent. `shown`: the
    /// VM. `Some`: what to do instead of going on.
    async fn keep_reservation(
        &self,
        shown: &VmObservation,
        memory: &mut Memory,
    ) -> Result<Option<StepOutcome>, ReconcileError> {
        let (child, cluster) = (&self.observed.child, &self.context.cluster);
        let source = self.source()?;
        let lender = cluster.live_child(&source.key).await?;
        let lender = lender.map(|c| ManagedVm::read(Arc::new(c)));
        let (hold, disk) = match &lender {
            Some(lender) => (
                self.lender_hold(lender).await?,
                self.disk_refusal(lender, Some(shown)).await?,
            ),
            None => (None, None),
        };
        let agent = self.observed.host.agent.as_deref();
        let key = agent.map(ObjectKey::of);
        let key = key.or_else(|| child.agent.clone());
        let live = match &key {
            Some(key) => cluster.live_agent(key).await?,
            None => None,
        };
        let am = self.observed.agent_machine.as_deref();
        let own = self.reservation()?;
        let (view, namespace) = (self.context.view.as_ref(), &child.key.namespace);
        let verdict = lending::verdict(&Taken {
            lender: lender.as_ref(),
            source,
            granted: lending::is_granted(view, namespace, &source.key.namespace),
            held: hold,
            marks: shown.marks,
            disk,
            agent: live.as_ref(),
            own: &own,
            is_own_claim: live
                .as_ref()
                .zip(am)
                .is_some_and(|(agent, am)| upstream::claims(agent, am)),
        });
        match (verdict, live) {
            (Verdict::Take, Some(live)) if lending::reservation(&live).is_none() => {
                // A person took the reservation off.
                let reserved = (RESERVED_FOR_ANNOTATION.to_owned(), Some(own.to_string()));
                let patch = AgentPatch {
                    annotations: [reserved].into(),
                    ..AgentPatch::of(&live)
                };
                let effect = self.effect(EffectKind::ReserveAgent);
                let permit = guard::harmless(effect, patch)?;
                cluster.patch_agent(&permit).await?;
                Ok(Some(StepOutcome::Pause(SOON)))
            }
            (Verdict::Take, _) => Ok(None),
            (Verdict::LetGo(why), _) if !reassign::may_have_asked(self.observed.vm()) => {
                tracing::info!(object = %child.key, "lets go of the host of {source}: {why}");
                Ok(Some(self.not_taken(memory).await?))
            }
            (Verdict::Wait(why) | Verdict::LetGo(why), _) => {
                let message = format!("{why}: the VM is not taken over now");
                Err(held(Reason::TakingHost, message))
            }
        }
    }

    /// Live: what people hold back of the VsphereAgent that the VM is taken from. A host under a veto is not lent either.
    async fn lender_hold(&self, lender: &ManagedVm) -> Result<Option<String>, ReconcileError> {
        let (view, cluster) = (&self.context.view, self.context.cluster.as_ref());
        let pool = ObjectKey::new(&lender.key.namespace, &lender.object.spec.pool_ref.name);
        let home = lender.control_plane.as_deref();
        let pausing = Pausing::read(view.as_ref(), cluster, &pool, home).await?;
        let holds = holds::of_vm(pausing.over(view.clone()).as_ref(), lender);
        let now = self.context.clock.wall();
        let kinds = [EffectKind::DeleteChild, EffectKind::PowerOn];
        let mut all = kinds
            .into_iter()
            .filter_map(|kind| holds::who_holds(kind, &holds, now));
        Ok(all.next().map(|hold| hold.why))
    }

    /// A VM in vCenter has the mark of this VsphereAgent.
    async fn is_marked(&self) -> Result<bool, ReconcileError> {
        let (survey, own) = (self.session().await?.survey().await?, self.marker());
        Ok(survey.marked.iter().any(|vm| vm.marker.same_owner(&own)))
    }
}
