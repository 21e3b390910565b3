//! Which Node runs on which VM, and what does not fit together. Pure.
//!
//! The chain: provider id `agent://<name>` -> Agent -> serial number in its inventory -> VM with that BIOS UUID. A Node that the
//! chain does not reach is judged by the rules of OpenShift ([`NodeFacts::mixed`]).
//!
//! Guarantees: only what concerns a VM of the pool is a finding, and a Node without an Agent that says itself that it is on
//! vSphere. A bare-metal Node is never one. A host that is being removed is none: its Node goes a moment later than its VM.

use std::collections::{BTreeMap, HashMap};

use agent_forge_crds::pool::{MAX_NODE_FINDINGS, NodeFinding, NodesStatus, StorageRulesStatus};
use jiff::{SignedDuration, Timestamp};

use crate::domain::{
    identity::{BiosUuid, ShownMachine},
    node::{Mixed, NodeFacts},
};

/// How long after its installation a host may have no Node.
pub const JOIN: SignedDuration = SignedDuration::from_mins(20);

/// The lowest hardware version that the vSphere CSI operator takes (`minRequiredHWVersion` in its `check_nodes.go`).
pub const LOWEST_HARDWARE_VERSION: i32 = 15;

/// Every kind of finding.
pub const KINDS: [&str; 6] = [
    NODE_WITHOUT_VM,
    NODE_WITHOUT_AGENT,
    VM_WITHOUT_NODE,
    TWO_NODES,
    UUID_MISMATCH,
    OLD_HARDWARE_VERSION,
];
const NODE_WITHOUT_VM: &str = "NodeWithoutVM";
const NODE_WITHOUT_AGENT: &str = "NodeWithoutAgent";
const VM_WITHOUT_NODE: &str = "VMWithoutNode";
const TWO_NODES: &str = "TwoNodesOnOneVM";
const UUID_MISMATCH: &str = "UUIDMismatch";
const OLD_HARDWARE_VERSION: &str = "OldHardwareVersion";

/// A VM of agent-forge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostVm {
    /// Name of its VsphereAgent.
    pub name: String,
    /// Its BIOS UUID.
    pub uuid: BiosUuid,
    /// It is of this pool, and nobody removes it. What is wrong with others is for their pools to say.
    pub judged: bool,
    /// vCenter does not have it any more.
    pub gone: bool,
    /// The Agent on its record.
    pub agent: Option<String>,
    /// Since when its Agent is installed for this hosted cluster.
    pub installed: Option<Timestamp>,
    /// Its hardware version. `None`: unknown.
    pub hardware_version: Option<i32>,
}

/// What the Nodes are compared with.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The VMs for this hosted cluster.
    pub vms: Vec<HostVm>,
    /// The Agents that Nodes name, each with the machine that it shows.
    pub agents: HashMap<String, ShownMachine>,
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// As the status has it.
    pub status: NodesStatus,
    /// How many findings there are of each kind.
    pub kinds: BTreeMap<&'static str, i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Class {
    Ours,
    Foreign,
    Ignored,
    Unknown,
}

/// What a Node runs on.
struct Resolved {
    class: Class,
    /// The VM, by whatever names it.
    vm: Option<usize>,
    /// It names an Agent that does not exist.
    agentless: bool,
}

/// The VMs by BIOS UUID, in one byte order.
type ByUuid = HashMap<BiosUuid, usize>;

/// Compares them.
#[must_use]
pub fn judge(nodes: &[NodeFacts], known: &Known, now: Timestamp) -> Judgement {
    let vms = known.vms.iter().enumerate();
    let by_uuid: ByUuid = vms.map(|(at, vm)| (vm.uuid.in_one_order(), at)).collect();
    let mut findings = Vec::new();
    let mut on_vm: Vec<Vec<&NodeFacts>> = vec![Vec::new(); known.vms.len()];
    let mut count: HashMap<Class, i32> = HashMap::new();
    for node in nodes {
        let resolved = resolve(node, known, &by_uuid);
        *count.entry(resolved.class).or_default() += 1;
        if let Some(at) = resolved.vm {
            on_vm[at].push(node);
        }
        if !node.deleting {
            findings.extend(of_node(node, &resolved, known));
        }
    }
    for (vm, nodes) in known.vms.iter().zip(&on_vm) {
        findings.extend(of_vm(vm, nodes, now));
    }
    findings.sort_by(|a, b| (&a.kind, &a.node, &a.vm).cmp(&(&b.kind, &b.node, &b.vm)));
    let mut kinds: BTreeMap<&'static str, i64> = KINDS.map(|kind| (kind, 0)).into();
    for finding in &findings {
        if let Some(count) = kinds.get_mut(finding.kind.as_str()) {
            *count += 1;
        }
    }
    let of = |class| count.get(&class).copied().unwrap_or_default();
    let finding_count = i32::try_from(findings.len()).unwrap_or(i32::MAX);
    findings.truncate(MAX_NODE_FINDINGS);
    Judgement {
        status: NodesStatus {
            ours: of(Class::Ours),
            foreign: of(Class::Foreign),
            ignored: of(Class::Ignored),
            unknown: of(Class::Unknown),
            storage: storage(nodes),
            finding_count,
            findings,
        },
        kinds,
    }
}

/// What the rules of OpenShift take the Nodes for.
fn storage(nodes: &[NodeFacts]) -> StorageRulesStatus {
    let count = |takes: &dyn Fn(&NodeFacts) -> bool| {
        let all = nodes.iter().filter(|node| takes(node));
        i32::try_from(all.count()).unwrap_or(i32::MAX)
    };
    StorageRulesStatus {
        by_label: count(&|n| n.is_checked_by_storage(true)),
        by_provider_id: count(&|n| n.is_checked_by_storage(false)),
        by_both_signs: count(&|n| n.mixed() == Mixed::Vsphere),
        by_one_sign: count(&|n| n.mixed() == Mixed::Unknown),
    }
}

fn resolve(node: &NodeFacts, known: &Known, by_uuid: &ByUuid) -> Resolved {
    let find = |uuid: BiosUuid| by_uuid.get(&uuid.in_one_order()).copied();
    let named = |text: Option<&str>| text.and_then(BiosUuid::parse).and_then(find);
    // Not proof of the VM, but enough to say that it has a Node.
    let hinted = || named(node.agent()).or_else(|| named(node.system_uuid.as_deref()));
    let is = |class, vm| Resolved {
        class,
        vm,
        agentless: false,
    };
    let Some(agent) = node.agent() else {
        return match (named(node.vsphere_vm()), node.mixed()) {
            (Some(vm), _) => is(Class::Ours, Some(vm)),
            (None, Mixed::Vsphere) => is(Class::Foreign, None),
            (None, Mixed::Unknown) => is(Class::Unknown, hinted()),
            // A provider id comes some time after the Node.
            (None, Mixed::Ignored) if node.provider_id.is_none() && hinted().is_some() => {
                is(Class::Unknown, hinted())
            }
            (None, Mixed::Ignored) => is(Class::Ignored, None),
        };
    };
    match known.agents.get(agent) {
        Some(ShownMachine::Vm(uuid)) => match find(*uuid) {
            Some(vm) => is(Class::Ours, Some(vm)),
            None => is(Class::Foreign, None),
        },
        Some(ShownMachine::Other) => is(Class::Ignored, None),
        Some(ShownMachine::Unknown) => is(Class::Unknown, hinted()),
        None => Resolved {
            class: hinted().map_or(Class::Unknown, |_| Class::Ours),
            vm: hinted(),
            agentless: true,
        },
    }
}

fn finding(kind: &str, node: Option<&str>, vm: Option<&str>, message: String) -> NodeFinding {
    NodeFinding {
        kind: kind.to_owned(),
        node: node.map(str::to_owned),
        vm: vm.map(str::to_owned),
        message,
    }
}

/// What is wrong with a Node.
fn of_node(node: &NodeFacts, resolved: &Resolved, known: &Known) -> Vec<NodeFinding> {
    let (name, agent) = (node.name.as_str(), node.agent().unwrap_or_default());
    let vm = resolved.vm.map(|at| &known.vms[at]);
    let mut found = Vec::new();
    if resolved.agentless && vm.map_or(node.says_vsphere(), |vm| vm.judged) {
        let message = format!("Node {name} is on Agent {agent}, which does not exist");
        let vm = vm.map(|vm| vm.name.as_str());
        found.push(finding(NODE_WITHOUT_AGENT, Some(name), vm, message));
    }
    // Its Agent is of one of our VMs by the record, and shows another VM.
    if resolved.class == Class::Foreign && node.agent().is_some() {
        let recorded = |vm: &&HostVm| vm.judged && vm.agent.as_deref() == Some(agent);
        if let Some(vm) = known.vms.iter().find(recorded) {
            let message = format!(
                "Node {name}: Agent {agent} is the one of VM {} by the record, and shows the serial number of another VM",
                vm.name
            );
            found.push(finding(UUID_MISMATCH, Some(name), Some(&vm.name), message));
        }
    }
    let Some(vm) = vm.filter(|vm| vm.judged && resolved.class == Class::Ours) else {
        return found;
    };
    if vm.gone {
        let message = format!(
            "Node {name} runs on VM {}, which vCenter does not have",
            vm.name
        );
        found.push(finding(
            NODE_WITHOUT_VM,
            Some(name),
            Some(&vm.name),
            message,
        ));
    }
    let old = vm.hardware_version.filter(|v| *v < LOWEST_HARDWARE_VERSION);
    if let Some(old) = old.filter(|_| !vm.gone) {
        let message = format!(
            "Node {name} runs on VM {} with hardware version {old}: the storage of vSphere needs {LOWEST_HARDWARE_VERSION}",
            vm.name
        );
        found.push(finding(
            OLD_HARDWARE_VERSION,
            Some(name),
            Some(&vm.name),
            message,
        ));
    }
    let shown = node.system_uuid.as_deref().and_then(BiosUuid::parse);
    if let Some(shown) = shown.filter(|shown| !shown.same_machine(vm.uuid)) {
        let message = format!(
            "Node {name} shows the UUID {shown}, and its Agent is on VM {} with the BIOS UUID {}",
            vm.name, vm.uuid
        );
        found.push(finding(UUID_MISMATCH, Some(name), Some(&vm.name), message));
    }
    found
}

/// What is wrong with a VM. `nodes`: all that name it.
fn of_vm(vm: &HostVm, nodes: &[&NodeFacts], now: Timestamp) -> Option<NodeFinding> {
    if !vm.judged {
        return None;
    }
    let stay: Vec<&str> = nodes
        .iter()
        .filter(|n| !n.deleting)
        .map(|n| n.name.as_str())
        .collect();
    if let [first, second, ..] = stay[..] {
        let message = format!(
            "Nodes on VM {}: {}, such as {first} and {second}",
            vm.name,
            stay.len()
        );
        return Some(finding(TWO_NODES, Some(first), Some(&vm.name), message));
    }
    let late = vm
        .installed
        .is_some_and(|at| now.duration_since(at) >= JOIN);
    (nodes.is_empty() && late && !vm.gone).then(|| {
        let message = format!(
            "VM {} was installed more than {} minutes ago, and the hosted cluster has no Node for it",
            vm.name,
            JOIN.as_mins()
        );
        finding(VM_WITHOUT_NODE, None, Some(&vm.name), message)
    })
}

#[cfg(test)]
mod tests;
