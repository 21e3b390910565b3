//! Whether a VM that the operator did not make may become its own. Pure, but for one read of its Agent.
//!
//! Each proof has a sentence that says what is missing, for a condition and for `agent-forge adopt`. A person asks for it with the
//! annotation `adopt`. An administrator of vCenter allows it with a mark on the VM ([`ADOPT_KEY`]) that names the pool: so nobody
//! who may only write VsphereAgents gets a VM.

use agent_forge_crds::{
    external::{agent::Agent, agent_machine::AgentMachine},
    pool::VsphereAgentPool,
};
use kube::ResourceExt as _;

use super::Case;
use crate::{
    domain::{
        belonging,
        failure::ReconcileError,
        holds::ADOPT_KEY,
        identity::{AgentMatch, BiosUuid, ShownMachine, VmIdentity, agent_runs_on, shown_machine},
        machine_state::MachineState,
        managed_vm::ManagedVm,
        marker::{MARKER_KEY, Marker},
        names::{MoRef, ObjectKey},
        upstream,
    },
    migration::notes::Notes,
    ports::vcenter::VmObservation,
};

/// What the cluster says of a VM that is to be adopted.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The pool that is to own it.
    pub pool: &'a VsphereAgentPool,
    /// The VsphereAgent that is to record it.
    pub child: &'a ManagedVm,
    /// The AgentMachine that it serves, as the VsphereAgent names it.
    pub agent_machine: Option<&'a AgentMachine>,
    /// Whether that, and its Machine, exist.
    pub machine: &'a MachineState,
    /// The Agent that the AgentMachine names.
    pub agent: Option<&'a Agent>,
    /// Why the pool may not serve that AgentMachine: a namespace does not admit it.
    pub refused: Option<&'a str>,
}

/// A host that serves a Machine of the pool, by what the cluster says.
#[derive(Clone, Debug)]
pub struct Candidate {
    agent: Agent,
    /// BIOS UUID of the VM that it runs on.
    pub uuid: BiosUuid,
}

/// What vCenter must show of the VM.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The pool. The administrator's mark names it after the identity of the cluster.
    pub pool: &'a ObjectKey,
    /// The folder of the pool.
    pub folder: &'a MoRef,
    /// The mark that the VM is to get.
    pub marker: &'a Marker,
}

impl Case<'_> {
    /// Reads the Agent of a VM that is to be adopted, and proves what the cluster knows. `facts`: all but the Agent. The inner
    /// error: what is missing.
    ///
    /// # Errors
    /// The read failed.
    pub async fn candidate(
        &self,
        facts: Facts<'_>,
    ) -> Result<Result<Candidate, String>, ReconcileError> {
        let named = facts.agent_machine.and_then(AgentMachine::agent_ref);
        let agent = match named.map(|n| ObjectKey::new(&n.namespace, &n.name)) {
            Some(key) => self.context.cluster.live_agent(&key).await?,
            None => None,
        };
        let agent = agent.as_ref();
        Ok(Candidate::of(&Facts { agent, ..facts }))
    }
}

impl Candidate {
    /// Proves what the cluster knows.
    ///
    /// # Errors
    /// What is missing, for people.
    pub fn of(facts: &Facts<'_>) -> Result<Self, String> {
        let named = facts.child.agent_machine.as_ref();
        let named = named.map_or("", |named| named.name.as_str());
        let Some(am) = facts.agent_machine else {
            return Err(format!(
                "AgentMachine {named:?}, which the VM is to serve, does not exist"
            ));
        };
        if !belonging::belongs(facts.pool, am) {
            return Err(format!(
                "AgentMachine {named} is not of the NodePool of this pool"
            ));
        }
        if let Some(refused) = facts.refused {
            return Err(refused.to_owned());
        }
        if *facts.machine != MachineState::Alive {
            return Err(format!(
                "the Machine of AgentMachine {named} is going, gone or not known"
            ));
        }
        let Some(agent) = facts.agent.filter(|a| !a.is_deleting()) else {
            return Err(format!("AgentMachine {named} has no Agent"));
        };
        let name = ObjectKey::of(agent);
        if !upstream::claims(agent, am) || agent.spec.cluster_deployment_name.is_none() {
            return Err(format!("Agent {name} is not bound to AgentMachine {named}"));
        }
        let ShownMachine::Vm(uuid) = shown_machine(agent) else {
            return Err(format!(
                "Agent {name} shows no serial number of a VM of VMware"
            ));
        };
        let recorded = facts.child.identity.as_ref().map(|i| i.bios_uuid);
        if let Some(recorded) = recorded.filter(|r| !r.same_machine(uuid)) {
            return Err(format!(
                "the record names BIOS UUID {recorded}, and Agent {name} runs on {uuid}"
            ));
        }
        let agent = agent.clone();
        Ok(Self { agent, uuid })
    }

    /// Proves what vCenter shows. `found`: all VMs with the BIOS UUID.
    ///
    /// # Errors
    /// What is missing, for people.
    pub fn prove(
        &self,
        found: Vec<VmObservation>,
        place: &Place<'_>,
    ) -> Result<VmObservation, String> {
        let told = |vm: &VmObservation| format!("{} ({})", vm.name, vm.moref.id);
        let vm = match <[VmObservation; 1]>::try_from(found) {
            Ok([vm]) => vm,
            Err(none) if none.is_empty() => {
                return Err(format!("no VM in vCenter has BIOS UUID {}", self.uuid));
            }
            Err(several) => {
                let all: Vec<String> = several.iter().map(told).collect();
                let uuid = self.uuid;
                return Err(format!(
                    "several VMs have BIOS UUID {uuid}: {}",
                    all.join(", ")
                ));
            }
        };
        let name = told(&vm);
        if !vm.shows_config() {
            return Err(format!("vCenter shows no configuration of VM {name}"));
        }
        let other = vm.marker.as_ref().filter(|m| !m.same_owner(place.marker));
        if let Some(other) = other {
            return Err(format!(
                "VM {name} has the mark {MARKER_KEY} of VsphereAgent {}/{} (uid {}): clear it if that is gone",
                other.namespace, other.name, other.uid
            ));
        }
        if matches!(Notes::read(&vm.annotation), Notes::OfAgent(uid) if uid != place.marker.uid) {
            return Err(format!(
                "the notes of VM {name} name another VsphereAgent of the predecessor, which may remove it: clear them if that is gone"
            ));
        }
        if vm.folder.as_ref() != Some(place.folder) {
            return Err(format!(
                "VM {name} is not in the VM folder of the pool: move it there, or adopt it with another pool"
            ));
        }
        self.runs_on(&vm, &name)?;
        let wanted = format!("{}/{}", place.marker.cluster_id, place.pool);
        match vm.adopt.as_deref() {
            Some(pool) if pool == wanted => Ok(vm),
            Some(other) => Err(format!(
                "the mark {ADOPT_KEY} of VM {name} names pool {other:?}, and not {wanted}"
            )),
            None => Err(format!(
                "VM {name} lacks the mark of an administrator of vCenter that gives it to this pool: govc vm.change -vm.uuid {} -e \
                 {ADOPT_KEY}={wanted}",
                self.uuid_of(&vm)
            )),
        }
    }

    /// The rule of identity holds between Agent and VM, as for any host later.
    fn runs_on(&self, vm: &VmObservation, name: &str) -> Result<(), String> {
        let identity = VmIdentity {
            bios_uuid: self.uuid_of(vm),
            macs: vm.macs.clone(),
            infra_env: None,
            first_powered_on: None,
        };
        let why = match agent_runs_on(&self.agent, &identity) {
            AgentMatch::Same => return Ok(()),
            AgentMatch::Partly(misfit) => misfit.to_string(),
            AgentMatch::NotYet => "not all that identifies it is there yet".to_owned(),
            AgentMatch::Other => "it names another machine".to_owned(),
        };
        let agent = self.agent.name_any();
        Err(format!("Agent {agent} does not fit VM {name}: {why}"))
    }

    /// The BIOS UUID in the order in which vCenter shows it. The Agent may show the other one.
    fn uuid_of(&self, vm: &VmObservation) -> BiosUuid {
        vm.bios_uuid.unwrap_or(self.uuid)
    }
}
