//! The operator's actions, in words.

use agent_forge_actors::{
    domain::names::ObjectKey,
    lifecycle::ReleaseReason,
    pool::{
        plan::{Action, Plan},
        status::of_class,
    },
    ports::cluster::View,
    runtime::holds,
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

/// One action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// What is done to which object.
    pub does: String,
    /// Why.
    pub why: String,
    /// Who holds it back, if somebody does.
    pub held: Option<String>,
}

/// The actions of a plan, in their order.
#[must_use]
pub fn steps(view: &dyn View, plan: &Plan, pool: &ObjectKey, now: Timestamp) -> Vec<Step> {
    let step = |action: &Action| {
        let (does, why) = words(action);
        let hold = holds::ask(view, &action.effect(pool), now);
        Step {
            does,
            why,
            held: hold.map(|hold| hold.why),
        }
    };
    plan.actions.iter().map(step).collect()
}

fn words(action: &Action) -> (String, String) {
    let (does, why) = match action {
        Action::AddFinalizer => (
            "put the finalizer on the pool".to_owned(),
            "so that the pool stays until its VMs are gone".to_owned(),
        ),
        Action::Close => (
            "close the pool for new VMs".to_owned(),
            "the pool is being deleted".to_owned(),
        ),
        Action::Pin { agent_machine, pin } => (
            format!(
                "pin AgentMachine {} to Agents with the label value {pin}",
                agent_machine.name_any()
            ),
            "so that it gets the host that is made for it".to_owned(),
        ),
        Action::CreateChild {
            agent_machine,
            name,
            class,
            ..
        } => (
            format!(
                "create VsphereAgent and VM {name}{}",
                of_class(class.as_deref())
            ),
            format!(
                "AgentMachine {} waits for an Agent",
                agent_machine.name_any()
            ),
        ),
        Action::Take { host, to, .. } => (
            format!(
                "give the host of VsphereAgent {} of pool {} to AgentMachine {}",
                host.child.key,
                host.child.pool,
                to.name_any()
            ),
            "it waits for an Agent, and that pool of the group has a free host".to_owned(),
        ),
        Action::Bring { host, .. } => (
            format!(
                "take the host of VsphereAgent {} of pool {} into the buffer",
                host.child.key, host.child.pool
            ),
            "a person gives it to this pool, and it is free".to_owned(),
        ),
        Action::CreateForBuffer { name, class } => (
            format!(
                "create VsphereAgent and VM {name}{}",
                of_class(class.as_deref())
            ),
            "the buffer lacks a host".to_owned(),
        ),
        Action::MoveToBuffer { child, .. } => (
            format!(
                "record that VsphereAgent {} is in the buffer",
                child.key.name
            ),
            "no AgentMachine needs it, and the buffer has room".to_owned(),
        ),
        Action::Recycle { child, .. } => (
            format!("keep VM {} for the next AgentMachine", child.vm_name),
            "its Machine is gone, and the pool recycles".to_owned(),
        ),
        Action::Reassign {
            child,
            agent_machine,
            ..
        } => (
            format!(
                "record that VsphereAgent {} is for AgentMachine {}",
                child.key.name,
                agent_machine.name_any()
            ),
            "it needs a host, and no AgentMachine needs this VM".to_owned(),
        ),
        Action::Prepare { patch, child } => (
            format!("label, name and approve Agent {}", patch.key.name),
            format!("it runs on VM {}", child.vm_name),
        ),
        Action::Fence { patch, child } => (
            format!("fence Agent {} of VM {}", patch.key.name, child.vm_name),
            "so that nobody claims it: its Machine goes".to_owned(),
        ),
        Action::Release { child, why } => (
            format!(
                "delete VsphereAgent {}, its VM and its Agent",
                child.key.name
            ),
            match why {
                ReleaseReason::MachineGone => "Machine and AgentMachine are gone".to_owned(),
                ReleaseReason::Surplus => "no AgentMachine needs it".to_owned(),
                ReleaseReason::PoolDeleting => {
                    "the pool is being deleted, and the Agent is unbound".to_owned()
                }
            },
        ),
        Action::RemoveFinalizer => (
            "take the finalizer off the pool".to_owned(),
            "the pool is being deleted, and no VsphereAgent is left".to_owned(),
        ),
    };
    (does, why)
}
