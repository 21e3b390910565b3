//! The chain of a machine: each object with its state, and the proof that two of them belong together.

use agent_forge_actors::{
    domain::{
        identity::{AgentMatch, BiosUuid, agent_runs_on},
        managed_vm::ManagedVm,
        names::ObjectKey,
        upstream,
    },
    ports::vcenter::VmObservation,
};
use agent_forge_crds::{
    agent::{TakenFrom, VmStatus},
    external::{agent::Agent, agent_machine::AgentMachine},
    names::AGENT_MACHINE_LABEL,
};
use kube::ResourceExt;
use serde::Serialize;

use super::found::{Found, Kind, hostname};

/// What vCenter shows of the VM now.
#[derive(Clone, Debug)]
pub enum Live {
    /// vCenter was not asked.
    NotAsked,
    /// It did not answer. The sentence says why.
    Failed(String),
    /// The reference leads to nothing.
    Absent,
    /// It shows this.
    Shown(Box<VmObservation>),
}

/// One object of the chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Member {
    /// Kind.
    pub kind: Kind,
    /// Namespace and name, or the name in vCenter or in the hosted cluster. `null`: it does not exist.
    pub name: Option<String>,
    /// Its state, in words.
    pub state: String,
}

/// Why two objects belong together, or why that is not proven.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// The two kinds.
    pub between: [Kind; 2],
    /// `null`: not known.
    pub holds: Option<bool>,
    /// The fact.
    pub fact: String,
}

/// The objects, in the order of the chain.
#[must_use]
pub fn members(found: &Found, live: &Live) -> Vec<Member> {
    let member = |kind, name: Option<String>, state: String| Member { kind, name, state };
    let am = found.agent_machine.as_deref();
    let child = found.child.as_ref();
    let agent = found.agent.as_deref();
    let or_none = |state: Option<String>| state.unwrap_or_else(|| "does not exist".to_owned());
    let waits = child.filter(|c| c.in_buffer);
    let nobody = waits.map(|_| "none yet: the host waits in the buffer of its pool".to_owned());
    vec![
        member(
            Kind::AgentMachine,
            am.map(key),
            or_none(am.map(demand).or(nobody)),
        ),
        member(
            Kind::Machine,
            found.machine.as_ref().map(|m| m.key.to_string()),
            or_none(found.machine.as_ref().map(|m| {
                let state = if m.deleting {
                    "being deleted"
                } else {
                    "exists"
                };
                let paused = if m.paused { ", paused" } else { "" };
                format!("{state}{paused}")
            })),
        ),
        member(
            Kind::VsphereAgent,
            child.map(|c| c.key.to_string()),
            or_none(child.map(record)),
        ),
        member(
            Kind::VM,
            child.and_then(|c| c.vm()).map(|vm| vm.name.clone()),
            or_none(child.and_then(|c| vm(c, live))),
        ),
        member(Kind::Agent, agent.map(key), or_none(agent.map(host))),
        member(
            Kind::Node,
            agent.and_then(hostname).map(str::to_owned),
            node(am, agent),
        ),
    ]
}

fn key<K: ResourceExt>(object: &K) -> String {
    ObjectKey::of(object).to_string()
}

fn demand(am: &AgentMachine) -> String {
    if am.is_deleting() {
        return "being deleted".to_owned();
    }
    if am.is_ready() {
        return "ready".to_owned();
    }
    let reason = |c: &agent_forge_crds::external::ForeignCondition| c.reason.clone();
    match (am.agent_ref(), am.reserved_condition().and_then(reason)) {
        (Some(agent), _) => format!("has Agent {}, not ready", agent.name),
        (None, Some(reason)) => format!("waits for an Agent ({reason})"),
        (None, None) => "has no condition AgentReserved".to_owned(),
    }
}

fn record(child: &ManagedVm) -> String {
    let vm = child.vm();
    let word = |text: Option<String>| text.filter(|t| !t.is_empty()).unwrap_or("?".to_owned());
    let phase = word(vm.and_then(|vm| vm.phase.as_ref()).map(ToString::to_string));
    let reason = word(
        vm.and_then(|vm| vm.reason.as_ref())
            .map(ToString::to_string),
    );
    let attempt = vm.and_then(|vm| vm.attempt).unwrap_or(1);
    let deleting = if child.deleting {
        ", being deleted"
    } else {
        ""
    };
    format!("{phase} ({reason}), attempt {attempt}{deleting}")
}

fn vm(child: &ManagedVm, live: &Live) -> Option<String> {
    let vm = child.vm()?;
    let place = vm.placement.as_ref();
    let known = [
        vm.moref.clone(),
        vm.server.clone(),
        place.and_then(|p| p.datastore.clone()),
        place.and_then(|p| p.host.clone()),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    let power = match live {
        Live::Shown(shown) => format!("{} now", shown.power.as_str()),
        Live::Absent => "vCenter does not have it".to_owned(),
        Live::Failed(_) | Live::NotAsked => {
            let recorded = vm.power_state.as_ref();
            recorded.map_or("nothing on record yet".to_owned(), |state| {
                format!("{state} on record")
            })
        }
    };
    let mut parts = vec![power];
    parts.extend(child.class().map(|class| format!("class {class}")));
    if !known.is_empty() {
        parts.push(known.join(", "));
    }
    parts.extend(runs_on_record(vm));
    if let Some(from) = &vm.taken_from {
        let stamped = from.stamped == Some(true);
        let how = if stamped { "taken" } else { "being taken" };
        parts.push(format!(
            "{how} from VsphereAgent {}/{}",
            from.namespace, from.name
        ));
    }
    Some(parts.join("; "))
}

/// Where it runs and what it uses, as it was last looked at.
fn runs_on_record(vm: &VmStatus) -> Option<String> {
    let host = vm.esxi_host.as_ref().map(|host| format!("on host {host}"));
    let used = vm.used_storage_gib.map(|gib| format!("uses {gib} GiB"));
    let version = vm.hardware_version.map(|v| format!("hardware version {v}"));
    let known: Vec<String> = [host, used, version].into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join(", "))
}

fn host(agent: &Agent) -> String {
    let state = Some(agent.state()).filter(|s| !s.is_empty()).unwrap_or("?");
    let approved = if agent.spec.approved {
        "approved"
    } else {
        "not approved"
    };
    let stage = agent
        .current_stage()
        .map(|stage| format!(", stage {stage}"));
    format!("{state}, {approved}{}", stage.unwrap_or_default())
}

/// The Node is in the hosted cluster, which is not read.
fn node(am: Option<&AgentMachine>, agent: Option<&Agent>) -> String {
    match (am, agent) {
        (Some(am), _) if am.is_ready() => "ready, by status.ready of the AgentMachine".to_owned(),
        (_, Some(agent)) if agent.is_installed() => {
            "the Agent is installed; the Node is not ready yet".to_owned()
        }
        _ => "not there yet".to_owned(),
    }
}

/// What proves that the objects belong together, or that they do not.
#[must_use]
pub fn proofs(found: &Found, live: &Live) -> Vec<Proof> {
    let mut all = Vec::new();
    let am = found.agent_machine.as_deref();
    if let (Some(am), Some(machine)) = (am, &found.machine) {
        let owner = am
            .owner_machine()
            .map(|o| o.uid.as_str())
            .unwrap_or_default();
        all.push(proof(
            (Kind::AgentMachine, Kind::Machine),
            owner == machine.uid,
            format!(
                "owner reference of the AgentMachine: uid {owner}; uid of the Machine: {}",
                machine.uid
            ),
        ));
    }
    if let (Some(am), Some(child)) = (am, &found.child) {
        all.push(made_for(am, child));
    }
    if let Some(child) = &found.child {
        all.extend(owns_vm(child, live));
    }
    if let (Some(child), Some(agent)) = (&found.child, found.agent.as_deref()) {
        all.extend(runs_on(child, agent));
    }
    if let (Some(am), Some(agent)) = (am, found.agent.as_deref()) {
        all.extend(claim(am, agent));
        all.extend(becomes_node(am, agent));
    }
    all
}

/// `holds`: `None` where that is not known.
fn proof((one, other): (Kind, Kind), holds: impl Into<Option<bool>>, fact: String) -> Proof {
    Proof {
        between: [one, other],
        holds: holds.into(),
        fact,
    }
}

fn made_for(am: &AgentMachine, child: &ManagedVm) -> Proof {
    let between = (Kind::AgentMachine, Kind::VsphereAgent);
    let uid = am.metadata.uid.as_deref().unwrap_or_default();
    match child.agent_machine.as_ref().and_then(|r| r.uid.as_deref()) {
        Some(recorded) => {
            let fact = format!(
                "the VsphereAgent is for the AgentMachine with uid {recorded}; uid of the AgentMachine: {uid}"
            );
            proof(between, recorded == uid, fact)
        }
        None => {
            let fact = format!(
                "label {AGENT_MACHINE_LABEL} of the VsphereAgent has the AgentMachine's name; no uid is recorded, as by the predecessor"
            );
            proof(between, None, fact)
        }
    }
}

fn owns_vm(child: &ManagedVm, live: &Live) -> Vec<Proof> {
    let between = (Kind::VsphereAgent, Kind::VM);
    let Some(identity) = &child.identity else {
        return Vec::new();
    };
    let mut all = vec![recorded(child, identity.bios_uuid)];
    match live {
        Live::NotAsked => {}
        Live::Failed(why) => {
            let fact = format!("the marker in vCenter could not be read: {why}");
            all.push(proof(between, None, fact));
        }
        Live::Absent => all.push(proof(
            between,
            false,
            "vCenter has no VM with the recorded reference".to_owned(),
        )),
        Live::Shown(shown) => {
            let marker = shown.marker.as_ref();
            let attempt = child.vm().and_then(|vm| vm.attempt).unwrap_or(1);
            let is_ours = marker
                .is_some_and(|m| m.uid == child.uid && i64::from(m.attempt) == i64::from(attempt));
            let text = marker.map_or("none".to_owned(), ToString::to_string);
            let mut fact = format!(
                "marker of the VM in vCenter (extraConfig agent-forge.owner): {text}; uid of the VsphereAgent: {}",
                child.uid
            );
            let lender = taken_from(child).filter(|from| from.stamped != Some(true));
            let is_lenders = lender
                .zip(marker)
                .is_some_and(|(from, m)| m.uid == from.uid);
            if is_lenders {
                fact += ". It names the VsphereAgent from which the VM is being taken";
            }
            all.push(proof(between, (!is_lenders).then_some(is_ours), fact));
        }
    }
    all
}

fn taken_from(child: &ManagedVm) -> Option<&TakenFrom> {
    child.vm()?.taken_from.as_ref()
}

/// What the recorded BIOS UUID proves.
fn recorded(child: &ManagedVm, uuid: BiosUuid) -> Proof {
    let (holds, fact) = if let Some(from) = taken_from(child) {
        let status = child.object.status.as_ref();
        let cluster = status.and_then(|s| s.cluster_id.as_deref());
        let attempt = u32::try_from(from.attempt).unwrap_or_default();
        let made = BiosUuid::derive(cluster.unwrap_or_default(), &from.uid, attempt) == uuid;
        let lender = format!("VsphereAgent {}/{}", from.namespace, from.name);
        if made {
            let fact = format!(
                "status.vm.biosUUID {uuid} follows from cluster id, uid and attempt of {lender}, from which the VM was taken"
            );
            (Some(true), fact)
        } else {
            let fact = format!(
                "status.vm.biosUUID {uuid}: the VM was taken from {lender}, which did not make it either"
            );
            (None, fact)
        }
    } else if child.reborn {
        let fact = format!(
            "status.vm.biosUUID {uuid} does not follow from the uid of the VsphereAgent: it was taken over, or restored from a backup"
        );
        (None, fact)
    } else {
        let fact = format!("status.vm.biosUUID {uuid} follows from cluster id, uid and attempt");
        (Some(true), fact)
    };
    proof((Kind::VsphereAgent, Kind::VM), holds, fact)
}

fn runs_on(child: &ManagedVm, agent: &Agent) -> Option<Proof> {
    let between = (Kind::VM, Kind::Agent);
    let vm = child.identity.as_ref()?;
    let serial = agent
        .inventory()
        .and_then(|i| i.system_vendor.as_ref()?.serial_number.as_deref())
        .unwrap_or("none");
    let macs: Vec<String> = vm.macs.iter().map(ToString::to_string).collect();
    let facts = format!(
        "serial number {serial}, name {}; BIOS UUID {}; MAC addresses of the VM: {}",
        agent.name_any(),
        vm.bios_uuid,
        if macs.is_empty() {
            "none recorded".to_owned()
        } else {
            macs.join(", ")
        }
    );
    Some(match agent_runs_on(agent, vm) {
        AgentMatch::Same => {
            let fact = format!("UUID, MAC address, InfraEnv and age fit: {facts}");
            proof(between, true, fact)
        }
        AgentMatch::Partly(misfit) => proof(between, false, format!("{misfit}: {facts}")),
        AgentMatch::Other => proof(between, false, format!("it is another machine: {facts}")),
        AgentMatch::NotYet => proof(between, None, format!("evidence is still missing: {facts}")),
    })
}

fn claim(am: &AgentMachine, agent: &Agent) -> Vec<Proof> {
    let between = (Kind::AgentMachine, Kind::Agent);
    let mut all = Vec::new();
    if let Some(name) = agent.claimed_by() {
        let namespace = agent.claimed_by_namespace().unwrap_or("not recorded");
        let fact = format!(
            "label agentMachineRef of the Agent: {name}; annotation agentMachineRefNamespace: {namespace}"
        );
        all.push(proof(between, upstream::claims(agent, am), fact));
    }
    if let Some(reference) = am.agent_ref() {
        let is_it = reference.name == agent.name_any()
            && agent.namespace().as_ref() == Some(&reference.namespace);
        let fact = format!(
            "status.agentRef of the AgentMachine: {}/{}",
            reference.namespace, reference.name
        );
        all.push(proof(between, is_it, fact));
    }
    if let (true, Some(pin)) = (all.is_empty(), agent.labels().get(AGENT_MACHINE_LABEL)) {
        let fact = format!(
            "label {AGENT_MACHINE_LABEL} of the Agent: {pin}; the provider has not claimed it yet"
        );
        all.push(proof(
            between,
            *pin == am.name_any() || Some(pin) == am.metadata.uid.as_ref(),
            fact,
        ));
    }
    all
}

fn becomes_node(am: &AgentMachine, agent: &Agent) -> Option<Proof> {
    let id = am.spec.provider_id.as_deref().filter(|id| !id.is_empty())?;
    let wanted = format!("agent://{}", agent.name_any());
    let name = hostname(agent).unwrap_or("no hostname");
    let fact = format!(
        "spec.providerID of the AgentMachine: {id}; hostname of the Agent: {name}. The Node itself is not read"
    );
    Some(proof((Kind::Agent, Kind::Node), id == wanted, fact))
}
