//! The VsphereAgents that a pool creates, and the patches that say whose one is.

use std::collections::BTreeMap;

use agent_forge_crds::{
    agent::{VsphereAgent, VsphereAgentSpec},
    external::agent_machine::AgentMachine,
    names::{
        AGENT_FINALIZER, AGENT_MACHINE_LABEL, AGENT_MACHINE_UID_ANNOTATION, API_VERSION,
        CREATED_FOR_AGENT_MACHINE, CREATED_FOR_BUFFER, CREATED_FOR_LABEL, MACHINE_NAME_ANNOTATION,
        MACHINE_UID_ANNOTATION, OFFERED_TO_ANNOTATION, POOL_LABEL, TAKEN_FROM_ANNOTATION,
        VM_NAME_ANNOTATION,
    },
    pool::{ObjectNameRef, VsphereAgentPool},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;

use crate::{
    domain::{managed_vm::ManagedVm, reassign::Source, upstream::MachineFacts},
    ports::cluster::MetadataPatch,
};

/// The annotations that say whose a VsphereAgent is.
const WHOSE: [&str; 3] = [
    AGENT_MACHINE_UID_ANNOTATION,
    MACHINE_NAME_ANNOTATION,
    MACHINE_UID_ANNOTATION,
];

/// The patch that assigns a VsphereAgent to another AgentMachine. Without a Machine it removes the record of the old
/// one.
#[must_use]
pub fn reassignment(
    child: &ManagedVm,
    am: &AgentMachine,
    machine: Option<&MachineFacts>,
) -> MetadataPatch {
    let known = annotations(am, machine);
    MetadataPatch {
        labels: BTreeMap::from([(AGENT_MACHINE_LABEL.to_owned(), Some(am.name_any()))]),
        annotations: WHOSE
            .map(|k| (k.to_owned(), known.get(k).cloned()))
            .into_iter()
            .chain(offered_to(child))
            .collect(),
        finalizers: None,
    }
}

/// The note that the VM was for its AgentMachine: what the VM says of that in vCenter stays explained.
fn offered_to(child: &ManagedVm) -> Option<(String, Option<String>)> {
    let note = child.offer_to_note()?;
    Some((OFFERED_TO_ANNOTATION.to_owned(), Some(note)))
}

/// The patch that takes a VsphereAgent from its AgentMachine into the buffer.
#[must_use]
pub fn into_buffer(child: &ManagedVm) -> MetadataPatch {
    MetadataPatch {
        labels: BTreeMap::from([
            (AGENT_MACHINE_LABEL.to_owned(), None),
            (
                CREATED_FOR_LABEL.to_owned(),
                Some(CREATED_FOR_BUFFER.to_owned()),
            ),
        ]),
        annotations: WHOSE
            .map(|k| (k.to_owned(), None))
            .into_iter()
            .chain(offered_to(child))
            .collect(),
        finalizers: None,
    }
}

fn annotations(am: &AgentMachine, machine: Option<&MachineFacts>) -> BTreeMap<String, String> {
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
    new_child(pool, name, made_for, annotations(am, Some(machine)))
}

/// The VsphereAgent for an AgentMachine that takes over the host of `lender`, with its finalizer. Its guest keeps the hostname
/// that it has, as any host of a buffer.
#[must_use]
pub fn borrower_object(
    pool: &VsphereAgentPool,
    am: &AgentMachine,
    machine: &MachineFacts,
    name: &str,
    source: &Source,
) -> VsphereAgent {
    let mut child = child_object(pool, am, machine, name);
    let made_for = (CREATED_FOR_LABEL.to_owned(), CREATED_FOR_BUFFER.to_owned());
    child.labels_mut().extend([made_for]);
    let from = (TAKEN_FROM_ANNOTATION.to_owned(), source.to_string());
    child.annotations_mut().extend([from]);
    child
}

/// The VsphereAgent for a host of the buffer, with its finalizer.
#[must_use]
pub fn buffer_object(pool: &VsphereAgentPool, name: &str) -> VsphereAgent {
    let made_for = BTreeMap::from([(CREATED_FOR_LABEL.to_owned(), CREATED_FOR_BUFFER.to_owned())]);
    new_child(pool, name, made_for, BTreeMap::new())
}

fn new_child(
    pool: &VsphereAgentPool,
    name: &str,
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
        },
    );
    child.metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: pool.namespace(),
        labels: Some(labels),
        annotations: Some(annotations),
        finalizers: Some(vec![AGENT_FINALIZER.to_owned()]),
        owner_references: Some(vec![OwnerReference {
            api_version: API_VERSION.to_owned(),
            kind: "VsphereAgentPool".to_owned(),
            name: pool.name_any(),
            uid: pool.uid().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]),
        ..ObjectMeta::default()
    };
    child
}
