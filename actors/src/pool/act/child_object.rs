//! The VsphereAgents that a pool creates, and the patches that say whose one is.

use std::collections::BTreeMap;

use agent_forge_crds::{
    agent::{Goal, NamedUid, NextLife, PoolKey, VsphereAgent, VsphereAgentSpec},
    external::agent_machine::AgentMachine,
    names::{
        ADOPT_ANNOTATION, AGENT_FINALIZER, AGENT_MACHINE_LABEL, AGENT_MACHINE_UID_ANNOTATION,
        API_VERSION, CREATED_FOR_ADOPTED, CREATED_FOR_AGENT_MACHINE, CREATED_FOR_BUFFER,
        CREATED_FOR_LABEL, MACHINE_NAME_ANNOTATION, MACHINE_UID_ANNOTATION, OFFERED_TO_ANNOTATION,
        POOL_LABEL, RECYCLE_ANNOTATION, VM_NAME_ANNOTATION,
    },
    pool::{ObjectNameRef, VsphereAgentPool},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;

use crate::{
    domain::{
        goal::{self, Asked},
        managed_vm::ManagedVm,
        moving,
        names::ObjectKey,
        upstream::MachineFacts,
    },
    ports::cluster::OwnPatch,
};

const POOL_KIND: &str = "VsphereAgentPool";

/// What releases before the goal said by annotation. The first three are still written for them, as copies.
const BEFORE_GOALS: [&str; 5] = [
    AGENT_MACHINE_UID_ANNOTATION,
    MACHINE_NAME_ANNOTATION,
    MACHINE_UID_ANNOTATION,
    OFFERED_TO_ANNOTATION,
    RECYCLE_ANNOTATION,
];

/// The patch that sets the goal, with these copies of it. All other annotations that said it before go.
fn with_goal(goal: Goal, copies: &BTreeMap<String, String>) -> OwnPatch {
    let annotations = BEFORE_GOALS.map(|key| (key.to_owned(), copies.get(key).cloned()));
    OwnPatch {
        annotations: annotations.into(),
        goal: Some(goal),
        ..OwnPatch::default()
    }
}

fn named(am: &AgentMachine) -> NamedUid {
    NamedUid {
        name: am.name_any(),
        uid: am.uid().unwrap_or_default(),
    }
}

fn named_machine(machine: &MachineFacts) -> NamedUid {
    NamedUid {
        name: machine.key.name.clone(),
        uid: machine.uid.clone(),
    }
}

/// The patch that assigns a VsphereAgent to another AgentMachine. Without a Machine it removes the record of the old
/// one.
#[must_use]
pub fn reassignment(
    child: &ManagedVm,
    am: &AgentMachine,
    machine: Option<&MachineFacts>,
) -> OwnPatch {
    let goal = goal::of(&child.object).for_machine(named(am), machine.map(named_machine));
    OwnPatch {
        labels: BTreeMap::from([(AGENT_MACHINE_LABEL.to_owned(), Some(am.name_any()))]),
        ..with_goal(goal, &copies(am, machine))
    }
}

/// The patch that assigns a host of another pool to an AgentMachine of `pool`. In one namespace, pool reference, label and owner
/// change, so the VsphereAgent is as one that `pool` has made. In another namespace its maker stays, and the goal names its user.
#[must_use]
pub fn move_to(
    pool: &VsphereAgentPool,
    child: &ManagedVm,
    am: &AgentMachine,
    (machine, class): (&MachineFacts, Option<String>),
) -> OwnPatch {
    into_pool(pool, child, class, reassignment(child, am, Some(machine)))
}

/// The patch that takes a host of another pool into the buffer of `pool`.
#[must_use]
pub fn bring_to(pool: &VsphereAgentPool, child: &ManagedVm, class: Option<String>) -> OwnPatch {
    let waits = into_buffer(child, goal::of(&child.object).life);
    into_pool(pool, child, class, waits)
}

/// The same patch, and from then on `pool` uses the host.
fn into_pool(
    pool: &VsphereAgentPool,
    child: &ManagedVm,
    class: Option<String>,
    mut patch: OwnPatch,
) -> OwnPatch {
    patch.annotations.extend(moving::over(&child.object));
    let changes = child.class() != class.as_deref();
    patch.class = changes.then_some(class);
    let to = ObjectKey::of(pool);
    let here = to.namespace == child.key.namespace;
    if let Some(goal) = &mut patch.goal {
        goal.pool = (!here).then(|| PoolKey {
            namespace: to.namespace.clone(),
            name: to.name.clone(),
        });
    }
    if here {
        let label = (POOL_LABEL.to_owned(), Some(to.name.clone()));
        patch.labels.extend([label]);
        let owners = child.object.owner_references().iter();
        let others = owners.filter(|o| o.kind != POOL_KIND || o.api_version != API_VERSION);
        let owners = others.cloned().chain([owner(pool)]).collect();
        patch.pool = Some((to.name, owners));
    }
    patch
}

/// The patch that takes a VsphereAgent from its AgentMachine into the buffer. `life`: the life that its VM begins then.
#[must_use]
pub fn into_buffer(child: &ManagedVm, life: Option<NextLife>) -> OwnPatch {
    let made_for = (CREATED_FOR_LABEL, Some(CREATED_FOR_BUFFER.to_owned()));
    let labels = [(AGENT_MACHINE_LABEL, None), made_for];
    OwnPatch {
        labels: labels.map(|(key, value)| (key.to_owned(), value)).into(),
        ..with_goal(goal::of(&child.object).for_buffer(life), &BTreeMap::new())
    }
}

fn copies(am: &AgentMachine, machine: Option<&MachineFacts>) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([(
        AGENT_MACHINE_UID_ANNOTATION.to_owned(),
        am.uid().unwrap_or_default(),
    )]);
    if let Some(m) = machine {
        all.insert(MACHINE_NAME_ANNOTATION.to_owned(), m.key.name.clone());
        all.insert(MACHINE_UID_ANNOTATION.to_owned(), m.uid.clone());
    }
    all
}

/// The VsphereAgent for an AgentMachine, with its finalizer: one write creates both.
#[must_use]
pub fn child_object(
    pool: &VsphereAgentPool,
    am: &AgentMachine,
    machine: &MachineFacts,
    name: &str,
) -> VsphereAgent {
    let made_for = BTreeMap::from([
        (
            CREATED_FOR_LABEL.to_owned(),
            CREATED_FOR_AGENT_MACHINE.to_owned(),
        ),
        (AGENT_MACHINE_LABEL.to_owned(), am.name_any()),
    ]);
    let goal = Asked::default().for_machine(named(am), Some(named_machine(machine)));
    new_child(pool, name, goal, made_for, copies(am, Some(machine)))
}

/// The VsphereAgent that asks to adopt the VM that serves an AgentMachine. The VM keeps its name.
#[must_use]
pub fn adopted_object(
    pool: &VsphereAgentPool,
    am: &AgentMachine,
    machine: &MachineFacts,
) -> VsphereAgent {
    let mut child = child_object(pool, am, machine, &am.name_any());
    let made_for = (CREATED_FOR_LABEL.to_owned(), CREATED_FOR_ADOPTED.to_owned());
    child.labels_mut().extend([made_for]);
    let annotations = child.annotations_mut();
    annotations.remove(VM_NAME_ANNOTATION);
    annotations.insert(ADOPT_ANNOTATION.to_owned(), "true".to_owned());
    child
}

/// The VsphereAgent for a host of the buffer, with its finalizer.
#[must_use]
pub fn buffer_object(pool: &VsphereAgentPool, name: &str) -> VsphereAgent {
    let made_for = BTreeMap::from([(CREATED_FOR_LABEL.to_owned(), CREATED_FOR_BUFFER.to_owned())]);
    new_child(pool, name, Goal::default(), made_for, BTreeMap::new())
}

fn new_child(
    pool: &VsphereAgentPool,
    name: &str,
    goal: Goal,
    mut labels: BTreeMap<String, String>,
    mut annotations: BTreeMap<String, String>,
) -> VsphereAgent {
    labels.insert(POOL_LABEL.to_owned(), pool.name_any());
    annotations.insert(VM_NAME_ANNOTATION.to_owned(), name.to_owned());
    let mut child = VsphereAgent::new(
        name,
        VsphereAgentSpec {
            pool_ref: ObjectNameRef {
                name: pool.name_any(),
            },
            goal: Some(goal),
            class: None,
        },
    );
    child.metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: pool.namespace(),
        labels: Some(labels),
        annotations: Some(annotations),
        finalizers: Some(vec![AGENT_FINALIZER.to_owned()]),
        owner_references: Some(vec![owner(pool)]),
        ..ObjectMeta::default()
    };
    child
}

fn owner(pool: &VsphereAgentPool) -> OwnerReference {
    OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: POOL_KIND.to_owned(),
        name: pool.name_any(),
        uid: pool.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
