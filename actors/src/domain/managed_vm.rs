//! A VsphereAgent, parsed once: which AgentMachine it is for, which VM it records, which Agent runs on it.

use std::sync::Arc;

use agent_forge_crds::{
    agent::{Milestone, NextLife, VmStatus, VsphereAgent},
    conditions::{READY, Reason, find_condition},
    external::{agent::Agent, agent_machine::AgentMachine},
    names::{
        AGENT_FINALIZER, FORCE_DELETE_ANNOTATION, REPLACE_ANNOTATION, TAKEN_FROM_ANNOTATION,
        VM_NAME_ANNOTATION,
    },
    pool::VsphereAgentPool,
};
use kube::ResourceExt;

use super::{
    disk::{self, Disk},
    goal::{self, Recorded},
    holds::{self, VmMarks},
    identity::VmIdentity,
    marker::MayServe,
    names::ObjectKey,
    reassign::{self, Source, Taking},
    recorded_vm::{self, Custody},
    recycle::{self, Stage},
    trace::TraceId,
};

/// A VsphereAgent, parsed once.
#[derive(Clone, Debug)]
pub struct ManagedVm {
    /// The object.
    pub object: Arc<VsphereAgent>,
    /// Namespace and name.
    pub key: ObjectKey,
    /// uid.
    pub uid: String,
    /// The pool that uses it ([`goal::user`]).
    pub pool: ObjectKey,
    /// Name of its VM.
    pub vm_name: String,
    /// The AgentMachine it is for.
    pub agent_machine: Option<Recorded>,
    /// The Machine behind that AgentMachine.
    pub machine: Option<Recorded>,
    /// Namespace in which AgentMachine and Machine were when they were recorded.
    pub control_plane: Option<String>,
    /// Recorded VM identity.
    pub identity: Option<VmIdentity>,
    /// Where an Agent of its VM was last seen.
    pub agent: Option<ObjectKey>,
    /// uid of that Agent, if it is on record.
    pub agent_uid: Option<String>,
    /// The recorded identity does not come from this object's uid. Either the record was taken over from the predecessor, or
    /// the object was restored from a backup with a new uid.
    pub reborn: bool,
    /// The operator never touches its VM: it did not make it, and has not adopted it.
    pub adopted: bool,
    /// A person asks to adopt that VM, and it is not proven yet.
    pub adopting: bool,
    /// It has adopted the VM, and keeps it when its Machine goes.
    pub retained: bool,
    /// It was made for the buffer of its pool, or came there, and no AgentMachine got it since.
    pub in_buffer: bool,
    /// The life that its VM is to begin, as its pool has asked. It has no meaning while an AgentMachine has the VM.
    pub next_life: Option<NextLife>,
    /// uids of the AgentMachines that it was for before.
    pub before: Vec<String>,
    /// The VsphereAgent of another pool whose VM it takes over, or took over.
    pub taken_from: Option<Source>,
    /// It has a deletionTimestamp.
    pub deleting: bool,
    /// It carries our finalizer.
    pub has_finalizer: bool,
    /// It is being deleted, and a user has allowed that although its Agent is bound. The annotation alone means nothing.
    pub forced: bool,
    /// The operator gave its VM up before the Agent registered. It does not prepare an Agent that registers from this VM
    /// later.
    pub given_up: bool,
}

fn annotation(object: &VsphereAgent, key: &str) -> Option<String> {
    let value = object.annotations().get(key);
    value.filter(|v| !v.is_empty()).cloned()
}

impl ManagedVm {
    /// Trace of the machine that the VM is for.
    #[must_use]
    pub fn trace(&self) -> TraceId {
        let machine = self.agent_machine.as_ref().and_then(|r| r.uid.as_deref());
        TraceId::of_machine(machine.unwrap_or(&self.uid))
    }

    /// Reads the object.
    #[must_use]
    pub fn read(object: Arc<VsphereAgent>) -> Self {
        let vm = object.status.as_ref().and_then(|s| s.vm.as_ref());
        let annotation = |k: &str| annotation(&object, k);
        let in_buffer = goal::is_in_buffer(&object);
        let asked = goal::of(&object);
        let (agent_machine, machine) = (asked.agent_machine, asked.machine);
        let mut identity = vm.and_then(recorded_vm::identity);
        let reborn = recorded_vm::is_reborn(&object, identity.as_ref());
        // uids of a lost hub mean nothing on this hub.
        let source = identity.as_mut().and_then(|i| i.infra_env.as_mut());
        if let Some(source) = source.filter(|_| reborn) {
            source.uid = None;
        }
        let failure = object.status.as_ref().and_then(|s| s.last_failure.as_ref());
        let deleting = object.metadata.deletion_timestamp.is_some();
        // A VM keeps its name in another pool.
        let taken = vm.filter(|vm| vm.taken_from.is_some());
        let taken_name = taken.map(|vm| vm.name.clone()).filter(|n| !n.is_empty());
        let custody = recorded_vm::custody(&object);
        let agent_uid = vm
            .and_then(|v| v.agent_ref.as_ref()?.uid.clone())
            .filter(|u| !u.is_empty() && !reborn);
        Self {
            key: ObjectKey::of(object.as_ref()),
            pool: goal::user(&object),
            uid: object.uid().unwrap_or_default(),
            vm_name: taken_name
                .or_else(|| annotation(VM_NAME_ANNOTATION))
                .or_else(|| vm.map(|v| v.name.clone()).filter(|n| !n.is_empty()))
                .unwrap_or_else(|| object.name_any()),
            control_plane: vm.and_then(|vm| {
                recorded_vm::control_plane(vm, agent_machine.as_ref(), machine.as_ref())
            }),
            agent_machine,
            machine,
            identity,
            agent: vm.and_then(recorded_vm::agent),
            agent_uid,
            reborn,
            adopted: custody == Custody::LeftAlone || custody == Custody::Asked,
            adopting: custody == Custody::Asked && !deleting,
            retained: custody == Custody::Retained,
            in_buffer,
            next_life: asked.life.filter(|_| in_buffer),
            before: asked.before,
            taken_from: match taken.and_then(|vm| vm.taken_from.as_ref()) {
                Some(record) => Some(Source::recorded(record)),
                None => annotation(TAKEN_FROM_ANNOTATION).and_then(|t| Source::parse(&t)),
            },
            deleting,
            has_finalizer: object.finalizers().iter().any(|f| f == AGENT_FINALIZER),
            forced: deleting && annotation(FORCE_DELETE_ANNOTATION).is_some_and(|v| v == "true"),
            given_up: vm.is_some_and(|vm| recorded_vm::is_given_up(vm, failure)),
            object,
        }
    }

    /// Whether the Agent of the present VM was once bound or installed, by the record or by `told`, the entries beyond it.
    /// The phase cannot answer this: it is `Released` for each VM whose Machine is gone.
    #[must_use]
    pub fn has_served(&self, told: &[Milestone]) -> bool {
        let Some(status) = self.object.status.as_ref() else {
            return false;
        };
        let Some(vm) = status.vm.as_ref().filter(|vm| vm.bios_uuid.is_some()) else {
            return false;
        };
        if vm.served == Some(true) {
            return true;
        }
        // Entries that an earlier release left, and entries that are not written yet.
        let attempt = vm.attempt.unwrap_or(1).max(1);
        let bound = |e: &Milestone| e.event == Milestone::BOUND && e.attempt == attempt;
        let served = |all: &[Milestone]| {
            let earlier = |e: &Milestone| e.event == Milestone::RECYCLED && e.attempt == attempt;
            let begin = all.iter().rposition(earlier).map_or(0, |at| at + 1);
            all[begin..].iter().any(bound)
        };
        // An entry of `told` that says that another life began counts for the recorded ones as well.
        let told_all = told.starts_with(&status.timeline);
        vm.iso_ejected == Some(true) || served(told) || !told_all && served(&status.timeline)
    }

    /// What the VM says of its guest in vCenter, as it was last seen there.
    #[must_use]
    pub fn may_serve(&self) -> Option<MayServe> {
        MayServe::parse(self.vm()?.may_serve.as_deref()?)
    }

    /// The pool that made it, or to which it moved since ([`goal::maker`]).
    #[must_use]
    pub fn maker(&self) -> ObjectKey {
        goal::maker(&self.object)
    }

    /// The class of the pool that uses it. `None`: that of `spec.template`.
    #[must_use]
    pub fn class(&self) -> Option<&str> {
        self.object.spec.class.as_deref()
    }

    /// It was made for this AgentMachine.
    #[must_use]
    pub fn is_for(&self, am: &AgentMachine) -> bool {
        let record = self.agent_machine.as_ref();
        record.is_some_and(|r| r.is_object(&am.metadata))
    }

    /// The name for its AgentMachine in [`MayServe`].
    #[must_use]
    pub fn offered_to(&self) -> Option<&str> {
        let record = self.agent_machine.as_ref()?;
        Some(record.uid.as_deref().unwrap_or(&record.name))
    }

    /// The number of the VM that the record is about. The first is 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        let attempt = self.vm().and_then(|vm| vm.attempt);
        attempt.and_then(|a| u32::try_from(a).ok()).unwrap_or(1)
    }

    /// The VM says in vCenter that it may serve an AgentMachine that this record does not know of: the record is older than
    /// that, as after a restore of the hub.
    #[must_use]
    pub fn forgets(&self, mark: &MayServe) -> bool {
        let known = |uid: &str| match uid {
            // The record may have seen another binding. That it has this very mark is written after the mark.
            MayServe::BOUND => self.has_served(&[]) && self.may_serve().as_ref() == Some(mark),
            _ => self.is_own(mark) || self.before.iter().any(|before| before == uid),
        };
        let unknown = mark.machine.as_deref().is_some_and(|uid| !known(uid));
        // Until it has the VM, the mark is that of the lender.
        unknown && !self.is_taking()
    }

    /// As [`Self::forgets`], by what was last seen in vCenter.
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        let life = self.vm().map_or(1, recycle::generation);
        let mark = self.may_serve();
        mark.is_some_and(|mark| mark.life >= life && self.forgets(&mark))
    }

    /// That mark names what the VM may serve by this record: its AgentMachine, or in the buffer what has bound its Agent.
    #[must_use]
    pub fn is_own(&self, mark: &MayServe) -> bool {
        let named = mark.machine.as_deref();
        match &self.agent_machine {
            // A record of the predecessor may have the name alone until its uid is found.
            Some(own) => {
                named.is_some_and(|named| own.uid.as_deref() == Some(named) || own.name == named)
            }
            None => named == Some(MayServe::BOUND),
        }
    }

    /// What was last seen in vCenter of its present life. `None`: the VM says nothing of that.
    #[must_use]
    pub fn may_serve_now(&self) -> Option<MayServe> {
        let life = self.vm().map_or(1, recycle::generation);
        self.may_serve().filter(|mark| mark.life == life)
    }

    /// The VM says in vCenter that it may serve its AgentMachine in its present life, so that its Agent may be prepared for that.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        let mark = self.may_serve_now();
        mark.is_some_and(|mark| self.is_own(&mark))
    }

    /// Its disks have, or may have, the data of a life before.
    #[must_use]
    pub fn has_old_data(&self) -> bool {
        self.vm().is_some_and(|vm| disk::of(vm) != Disk::New)
    }

    /// The way of the VM into another life, by the record.
    #[must_use]
    pub fn recycling(&self) -> Stage {
        if self.given_up {
            return Stage::No;
        }
        self.vm()
            .map_or(Stage::No, |vm| recycle::stage(vm, self.next_life))
    }

    /// How far it is with the VM that it takes over from another pool.
    #[must_use]
    pub fn taking(&self) -> Taking {
        reassign::taking(self.vm(), self.taken_from.as_ref())
    }

    /// It takes a VM over, and that is not its own yet.
    #[must_use]
    pub fn is_taking(&self) -> bool {
        matches!(self.taking(), Taking::Asked | Taking::Recorded)
    }

    /// The namespace of its AgentMachine and Machine: the recorded one, else the one of the `pool`.
    #[must_use]
    pub fn home<'a>(&'a self, pool: &'a VsphereAgentPool) -> &'a str {
        let recorded = self.control_plane.as_deref();
        recorded.unwrap_or(pool.control_plane())
    }

    /// The recorded VM.
    #[must_use]
    pub fn vm(&self) -> Option<&VmStatus> {
        self.object.status.as_ref()?.vm.as_ref()
    }

    /// What keeps its VM from going on, by its own actor: the reason of its condition `Ready`. `None`: nothing does. Rows of
    /// `status.waitingOn` are for people; decisions of other actors read this.
    #[must_use]
    pub fn obstacle(&self) -> Option<Reason> {
        let status = self.object.status.as_ref()?;
        let ready = find_condition(&status.conditions, READY)?;
        let waits = ready.status != "True" && ready.reason != Reason::VmCreatePending.as_str();
        waits.then(|| Reason::from(ready.reason.as_str()))
    }

    /// What an administrator of vCenter has marked the VM with, by the record.
    #[must_use]
    pub fn marks(&self) -> VmMarks {
        self.vm().map(VmMarks::recorded).unwrap_or_default()
    }

    /// The VM stays when its VsphereAgent goes: a person or an administrator of vCenter has marked it so.
    #[must_use]
    pub fn skips_delete(&self) -> bool {
        self.marks().skip_delete || holds::skips_delete(self.object.annotations())
    }

    /// Neither the operator nor the predecessor made its VM.
    #[must_use]
    pub fn is_adoption(&self) -> bool {
        recorded_vm::custody(&self.object) != Custody::Made
    }

    /// The attempt whose replacement a person asks for, in whatever life of the VM that was written.
    #[must_use]
    pub fn replace_annotation(&self) -> Option<i32> {
        let asked = self.object.annotations().get(REPLACE_ANNOTATION)?;
        asked.trim().parse().ok()
    }

    /// Whether its name is of the buffer's kind: its guest keeps a hostname of its own when an AgentMachine gets it.
    #[must_use]
    pub fn is_of_buffer(&self) -> bool {
        goal::is_of_buffer(&self.object)
    }

    /// Whether, by the record, its guest may be a node whose Agent is missing.
    #[must_use]
    pub fn guest_may_be_node(&self) -> bool {
        self.vm()
            .is_some_and(|vm| vm.guest_may_be_node == Some(true))
    }

    /// Whether that Agent serves the AgentMachine that this VM was made for.
    #[must_use]
    pub fn is_bound_to(&self, agent: &Agent) -> bool {
        let wanted = self.agent_machine.as_ref().map(|r| r.name.as_str());
        let namespace = agent.claimed_by_namespace();
        let at_home = |own: &String| namespace.is_none_or(|n| n == own);
        wanted.is_some()
            && agent.claimed_by() == wanted
            && self.control_plane.as_ref().is_none_or(at_home)
    }

    /// Whether that Agent is on record as this VM's, and serves or served. Its proof stays valid.
    #[must_use]
    pub fn was_bound_to(&self, agent: &Agent) -> bool {
        let uid = self.agent_uid.as_ref();
        self.agent.as_ref() == Some(&ObjectKey::of(agent))
            && uid.is_none_or(|uid| agent.metadata.uid.as_ref() == Some(uid))
            && (agent.is_claimed_or_bound() || self.has_served(&[]))
    }
}

#[cfg(test)]
mod tests;
