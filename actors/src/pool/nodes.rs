//! The Nodes of the pool's hosted cluster beside its VMs: what the status, its condition and the metrics say of them.
//!
//! The last list stays in the memory, and each pass judges it again. So a VM that is destroyed is named in the pass that the
//! news of vCenter cause. No action depends on it.

use std::collections::{BTreeSet, HashMap};

use agent_forge_crds::{
    conditions::{
        ConditionStatus, ConditionUpdate, NODES_CONSISTENT, Reason, remove_condition, set_condition,
    },
    external::agent::{Agent, INSTALLED},
    pool::VsphereAgentPoolStatus,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::observed::Observed;
use crate::{
    context::Context,
    domain::{
        failure::{ErrorSource, ReconcileError},
        identity::{ShownMachine, shown_machine},
        index_keys::{IndexKey, IndexKeys},
        managed_vm::ManagedVm,
        node::NodeFacts,
    },
    nodes::{
        follow::{Follower, Source},
        judge::{HostVm, Judgement, Known, judge},
    },
    ports::{cluster::View, instruments::PoolView},
    world::agents_home,
};

/// What is known of the Nodes. `None`: the pool does not ask.
pub type Checked = Option<Result<Judgement, ReconcileError>>;

/// Compares the Nodes that were read last with the VMs.
pub(super) fn check(context: &Context, s: &Observed, follower: &mut Follower) -> Checked {
    let going = s.pool.metadata.deletion_timestamp.is_some();
    let source = match going {
        true => Ok(None),
        false => Source::of(&s.pool, &s.secret_namespaces),
    };
    let wanted = source.as_ref().ok().and_then(Option::as_ref);
    let read = follower.follow(&context.nodes, &context.cluster, wanted);
    let judged = match (source, read) {
        (Ok(None), _) => return None,
        (Err(refused), _) | (Ok(Some(_)), Some(Err(refused))) => Err(refused),
        (Ok(Some(_)), None) => Err(pending("the Nodes have not been read yet")),
        (Ok(Some(_)), Some(Ok(nodes))) => compare(context.view.as_ref(), s, &nodes),
    };
    Some(judged)
}

/// Compares these Nodes with the VMs.
///
/// # Errors
/// Some VMs or Agents are unknown.
pub fn compare(
    view: &dyn View,
    s: &Observed,
    nodes: &[NodeFacts],
) -> Result<Judgement, ReconcileError> {
    let known = known(view, s, nodes).map_err(pending)?;
    Ok(judge(nodes, &known, s.wall))
}

fn pending(why: &str) -> ReconcileError {
    ReconcileError::transient(ErrorSource::Kubernetes, Reason::NodesPending, why)
}

/// The VMs and Agents that the Nodes are compared with.
///
/// # Errors
/// Some of them are unknown. What does not exist and what is not seen look the same then.
fn known(view: &dyn View, s: &Observed, nodes: &[NodeFacts]) -> Result<Known, &'static str> {
    let homes = agents_home::namespaces(Some(&s.pool), &s.children);
    let (seen, hidden): (Vec<_>, Vec<_>) = homes
        .into_iter()
        .partition(|home| s.grants.admit(home, &s.pool));
    if hidden.contains(&s.infra_env_key.namespace) {
        return Err("the namespace of the Agents does not admit the pool");
    }
    let unknown = |home: &String| view.over_bound(home).is_some();
    if view.is_in_doubt() || seen.iter().any(unknown) || unknown(&s.key.namespace) {
        return Err("a part of the Agents or VMs is unknown for now");
    }
    let names: BTreeSet<&str> = nodes.iter().filter_map(NodeFacts::agent).collect();
    let keys: IndexKeys = names.iter().map(|name| IndexKey::named(name)).collect();
    let mut agents: HashMap<String, ShownMachine> = HashMap::new();
    for agent in seen.iter().flat_map(|home| view.agents_with(home, &keys)) {
        let (name, shows) = (agent.name_any(), shown_machine(&agent));
        // A key is a hint: another Agent may have it.
        if names.contains(name.as_str()) {
            let same = |before: &mut ShownMachine| {
                if *before != shows {
                    *before = ShownMachine::Unknown;
                }
            };
            agents.entry(name).and_modify(same).or_insert(shows);
        }
    }
    Ok(Known {
        agents,
        vms: vms(view, s),
    })
}

fn vms(view: &dyn View, s: &Observed) -> Vec<HostVm> {
    let own = s.children.iter().filter_map(|child| {
        let host = s.host(child);
        let home = s.pool.control_plane();
        let here = child.home(&s.pool) == home && host.serves_elsewhere(home).is_none();
        let agent = host.own.as_deref().filter(|_| here);
        let judged = here && !child.deleting && !child.given_up;
        Some(HostVm {
            installed: agent.and_then(installed),
            ..host_vm(child, judged)?
        })
    });
    let others = view.all_children().into_iter().map(ManagedVm::read);
    let home = Some(s.pool.control_plane());
    let others = others.filter(|c| c.pool != s.key && c.control_plane.as_deref() == home);
    let others = others.filter_map(|c| host_vm(&c, false));
    own.chain(others).collect()
}

fn host_vm(child: &ManagedVm, judged: bool) -> Option<HostVm> {
    Some(HostVm {
        name: child.key.name.clone(),
        uuid: child.identity.as_ref()?.bios_uuid,
        judged,
        // Its own actor says that vCenter does not have the VM any more, or that its folder went with it.
        gone: matches!(
            child.obstacle(),
            Some(Reason::VmMissing | Reason::VmFolderDeleted)
        ),
        agent: child.agent.as_ref().map(|key| key.name.clone()),
        installed: None,
        hardware_version: child.vm().and_then(|vm| vm.hardware_version),
    })
}

/// Since when it is installed and serves.
fn installed(agent: &Agent) -> Option<Timestamp> {
    let serves = agent.is_installed() && agent.is_claimed_or_bound();
    let since = agent.condition(INSTALLED).filter(|_| serves)?;
    since.last_transition_time.as_ref().map(|t| t.0)
}

/// What the metrics show of it: Nodes by class, and findings by kind.
pub(super) fn measure(checked: &Checked, view: &mut PoolView) {
    let Some(Ok(judged)) = checked else {
        return;
    };
    let n = &judged.status;
    let classes = [
        ("ours", n.ours),
        ("foreign", n.foreign),
        ("ignored", n.ignored),
        ("unknown", n.unknown),
    ];
    view.nodes = classes
        .map(|(class, n)| (class.to_owned(), n.into()))
        .into();
    let kinds = judged.kinds.iter();
    view.node_findings = kinds.map(|(kind, n)| ((*kind).to_owned(), *n)).collect();
}

/// Puts it into the status.
pub(super) fn set(status: &mut VsphereAgentPoolStatus, s: &Observed, checked: &Checked) {
    let (holds, reason, message) = match checked {
        None => {
            status.nodes = None;
            remove_condition(&mut status.conditions, NODES_CONSISTENT);
            return;
        }
        Some(Err(failed)) => {
            status.nodes = None;
            let reason = failed.reason.clone();
            (ConditionStatus::Unknown, reason, failed.message.clone())
        }
        Some(Ok(judged)) => {
            status.nodes = Some(judged.status.clone());
            told(judged)
        }
    };
    let update = ConditionUpdate {
        type_: NODES_CONSISTENT,
        status: holds,
        reason: &reason,
        message: &message,
        observed_generation: s.pool.metadata.generation,
    };
    set_condition(&mut status.conditions, &update, &Time(s.wall));
}

/// Whether all fits, with reason and sentence.
#[must_use]
pub fn told(judged: &Judgement) -> (ConditionStatus, Reason, String) {
    let nodes = &judged.status;
    let Some(first) = nodes.findings.first() else {
        let message = format!(
            "ours={} foreign={} ignored={} unknown={}",
            nodes.ours, nodes.foreign, nodes.ignored, nodes.unknown
        );
        return (ConditionStatus::True, Reason::NodesMatch, message);
    };
    let message = match nodes.finding_count - 1 {
        0 => first.message.clone(),
        more => format!("{}; and {more} more", first.message),
    };
    (ConditionStatus::False, Reason::NodesMismatch, message)
}

#[cfg(test)]
mod tests;
