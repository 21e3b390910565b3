//! Writes what is known and not on record: what it needs is read live, then one status write, then it is told.

use agent_forge_crds::{
    conditions::{Reason, event},
    external::agent::Agent,
};
use kube::ResourceExt as _;

use super::{
    executor::{Done, Executor, StepOutcome, defect},
    last_look::SOON,
};
use crate::{
    domain::{
        failure::{ErrorSource, ReconcileError},
        machine_state::MachineState,
        names::ObjectKey,
        reassign::Source,
    },
    ports::effect::EffectKind,
    report::{Metric, Reports, tell},
    sessions::of_vm::Reached,
    vm::{
        boot_repair::Recorded,
        memory::Memory,
        ownership::Ownership,
        record::{self, Sources},
        step::Entry,
    },
};

impl Executor<'_> {
    pub(super) async fn record(&self, memory: &mut Memory, entry: Entry) -> Done {
        let live = self.evidence(memory, entry).await?;
        let known = Sources {
            observed: self.observed,
            memory,
            live: live.as_ref(),
            now: self.context.clock.wall(),
            patience: self.observed.patience(self.context),
        };
        let Some(vm) = record::with(entry, &known) else {
            // The watch will show why.
            return Ok(StepOutcome::Pause(SOON));
        };
        match entry {
            // This process asks no more.
            Entry::Vcenter if vm == self.vm() => return Ok(StepOutcome::Same),
            Entry::Begun(_) => memory.forget_guest(),
            Entry::Seen if self.vm().discovery_deadline.is_none() => {
                let over = self
                    .context
                    .clock
                    .monotonic()
                    .saturating_add(known.patience);
                memory.discovery = vm.discovery_deadline.clone().map(|at| (at, over));
            }
            // Noted before the write: its reply may be lost.
            Entry::Reset => {
                let at = self.context.clock.monotonic();
                let sent = |repair| Recorded {
                    repair,
                    at,
                    sent: false,
                };
                memory.reset.get_or_insert_default().recorded = vm.boot_repair.clone().map(sent);
            }
            Entry::Back => self.give_back(live.as_ref()).await?,
            _ => {}
        }
        let kind = EffectKind::RecordObservation;
        let next = self.save(kind, vm, memory).await?;
        self.tell_recorded(entry, live.as_ref());
        Ok(StepOutcome::Object(next))
    }

    /// Looks at what `entry` follows from. Returns the Agent, where that decides.
    async fn evidence(
        &self,
        memory: &mut Memory,
        entry: Entry,
    ) -> Result<Option<Agent>, ReconcileError> {
        match entry {
            Entry::Seen => {
                self.addresses_are_shown(memory).await?;
                Ok(None)
            }
            Entry::LeftBound => self.left_bound().await,
            Entry::Begun(_) | Entry::Restarted | Entry::Back => self.agent_before().await,
            Entry::Vcenter => {
                // A vCenter that does not answer is no failure: the next process asks again.
                let session = self.session().await;
                let recorded = || Reached::as_recorded(&self.vm());
                let reached = session.map_or_else(|_| recorded(), |s| Reached::by(s.as_ref()));
                memory.reached = Some(reached);
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// vCenter assigns some MAC addresses only at power-on.
    async fn addresses_are_shown(&self, memory: &mut Memory) -> Result<(), ReconcileError> {
        let shown = self.shown(memory)?;
        if !shown.macs.is_empty() {
            return Ok(());
        }
        let missing =
            |reason, message| ReconcileError::transient(ErrorSource::Vsphere, reason, message);
        let again = self.session().await?.observe(&shown.moref).await?;
        let again = again.ok_or_else(|| missing(Reason::VmMissing, "the VM vanished"))?;
        if again.macs.is_empty() {
            let message = "the VM runs, and vCenter shows no MAC address of it yet; its Agent is recognised by that";
            return Err(missing(Reason::MacPending, message));
        }
        memory.seen = Ownership::Ours(Box::new(again));
        Ok(())
    }

    /// The Agent that its Machine left bound: both are read live, the Machine first. The provider unbinds an Agent before it lets
    /// the Machine go, so a bound Agent means that it was not unbound. The record keeps this, because the Agent may be gone when
    /// it is needed.
    async fn left_bound(&self) -> Result<Option<Agent>, ReconcileError> {
        let agent = self.observed.host.agent.as_deref();
        let key = ObjectKey::of(agent.ok_or_else(|| defect("no Agent runs on the VM"))?);
        let gone = self.live_machine_state().await? == MachineState::Gone;
        let live = self.context.cluster.live_agent(&key).await?;
        let child = &self.observed.child;
        Ok(live.filter(|a| gone && child.is_bound_to(a)))
    }

    fn tell_recorded(&self, entry: Entry, live: Option<&Agent>) {
        let child = &self.observed.child;
        let name = &child.vm_name;
        match entry {
            Entry::Begun(life) => {
                let words = format!("VM {name} begins life {life}");
                self.event(false, event::VM_RECYCLED, "RecycleVM", &words);
            }
            Entry::Stamped => {
                tell(self.context, Reports::metric(Metric::Reassigned("taken")));
                let from = child.vm().and_then(|vm| vm.taken_from.as_ref());
                let from = from.map(|record| Source::recorded(record).key.to_string());
                let words = format!(
                    "host {name} of VsphereAgent {} serves here now",
                    from.unwrap_or_default()
                );
                self.event(false, event::HOST_BORROWED, "TakeHost", &words);
            }
            Entry::Back => {
                let claimed = live.filter(|a| a.is_claimed_or_bound());
                self.count_recycle(claimed.map_or("back", |_| "claimed"));
                if let Some(agent) = claimed {
                    let words = format!(
                        "Agent {} was claimed while its VM was on its way into another life: the VM runs, and serves as it is",
                        agent.name_any()
                    );
                    self.event(true, event::HOST_TROUBLE, "RecycleVM", &words);
                }
            }
            _ => {}
        }
    }
}
