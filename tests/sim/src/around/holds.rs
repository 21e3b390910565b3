//! A person holds the operator back for a while: pauses and vetoes.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use agent_forge_actors::domain::names::ObjectKey;
use agent_forge_crds::{
    external::agent_machine,
    names::{AGENT_MACHINE_UID_ANNOTATION, MACHINE_UID_ANNOTATION, PAUSED_ANNOTATION},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    director::{Forbidden, Scope},
    kube::{
        ApiServer, kind,
        store::{Kind, Name, name_of, text},
    },
    plan::Fault,
    process::Surroundings,
    world::NAMESPACE,
};

/// The veto against a removal.
const DELETE_CHECK: &str = "delete.check.agent-forge.containeroo.ch/sim";
/// The veto against a power-on.
const POWER_ON_CHECK: &str = "poweron.check.agent-forge.containeroo.ch/sim";

/// What a person writes: of which kind, on which of its objects, the patch and the one that takes it back.
struct Writing {
    kind: Kind,
    objects: Vec<ObjectKey>,
    patch: Value,
    undo: Value,
}

impl Writing {
    /// An annotation on all those objects.
    fn annotation(kind: Kind, objects: Vec<ObjectKey>, key: &str) -> Self {
        let patch = |value: Value| json!({"metadata": {"annotations": {key: value}}});
        Self {
            kind,
            objects,
            patch: patch(json!("true")),
            undo: patch(Value::Null),
        }
    }

    fn write(&self, api: &ApiServer, patch: &Value) {
        for object in &self.objects {
            // It may be gone by now.
            let _ = api.merge(&self.kind, &name(object), patch);
        }
    }
}

/// Carries the fault out. `key`: the object that the effect at the point is for.
pub(super) fn hold(around: &Surroundings, fault: Fault, key: &str) {
    let api = &around.api;
    let ours = |plural| keys(api, &kind(plural), "");
    let (children, pools) = (ours("vsphereagents"), ours("vsphereagentpools"));
    let own = children.into_iter().find(|child| child.to_string() == key);
    let on_own = |annotation| match own {
        Some(child) => {
            let all = kind("vsphereagents");
            ends_with(around, &all, child.clone(), fault.lasts());
            let writing = Writing::annotation(all, vec![child.clone()], annotation);
            (writing, Scope::of_vms(vec![child]))
        }
        None => on_pools(&pools, annotation),
    };
    let ((writing, scope), what) = match fault {
        Fault::DeletionVetoed5m => (on_own(DELETE_CHECK), Forbidden::Removal),
        Fault::PowerOnVetoed5m => (on_own(POWER_ON_CHECK), Forbidden::PowerOn),
        Fault::CapiPaused5m => (in_capi(around, &pools), Forbidden::Everything),
        Fault::HoldUnseen5m => unseen(around, &pools),
        _ => (on_pools(&pools, PAUSED_ANNOTATION), Forbidden::Everything),
    };
    writing.write(api, &writing.patch);
    around.director.hold(what, scope, fault.lasts());
    let api = api.clone();
    tokio::spawn(async move {
        tokio::time::sleep(fault.lasts()).await;
        writing.write(&api, &writing.undo);
    });
}

/// An annotation goes with its object: a later one of that name is not held.
fn ends_with(around: &Surroundings, all: &Kind, child: ObjectKey, lasting: Duration) {
    let (director, api, all) = (around.director.clone(), around.api.clone(), all.clone());
    let held = uid(&api, &all, &child);
    tokio::spawn(async move {
        let end = Instant::now() + lasting;
        while uid(&api, &all, &child) == held {
            if Instant::now() >= end {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        director.let_go_of(&child);
    });
}

/// A hold on the pools or on their Cluster that only a read shows, since the watches of those kinds hang as long as it stands.
/// The plan chooses which. Only what ends a VM, or interrupts it, waits for such a hold.
fn unseen(around: &Surroundings, pools: &[ObjectKey]) -> ((Writing, Scope), Forbidden) {
    let hung = [
        "vsphereagentpools",
        "clusters",
        "nodepools",
        "hostedclusters",
    ]
    .map(kind);
    around
        .director
        .hang(hung.into(), Fault::HoldUnseen5m.lasts());
    match drawn(around) % 3 {
        0 => (on_pools(pools, DELETE_CHECK), Forbidden::Removal),
        1 => (on_pools(pools, PAUSED_ANNOTATION), Forbidden::Ends),
        _ => {
            let clusters = kind("clusters");
            let control_plane = control_plane(&around.api);
            let there = keys(&around.api, &clusters, &control_plane);
            let pools = of_cluster(&around.api, pools, &control_plane);
            (in_cluster(clusters, there, pools), Forbidden::Ends)
        }
    }
}

/// A number that the plan draws.
fn drawn(around: &Surroundings) -> u64 {
    let plan = around.director.plan();
    let mut hasher = DefaultHasher::new();
    plan.seed.hash(&mut hasher);
    for (at, _) in &plan.faults {
        // With another text each plan would draw something else.
        let code = at.call.effect().map_or("", |e| e.code());
        format!("{code}:{}#{}", at.key, at.nth).hash(&mut hasher);
    }
    hasher.finish()
}

/// `spec.paused` of the Cluster of those pools.
fn in_cluster(clusters: Kind, there: Vec<ObjectKey>, pools: Vec<ObjectKey>) -> (Writing, Scope) {
    let paused = |paused: Value| json!({"spec": {"paused": paused}});
    let writing = Writing {
        kind: clusters,
        objects: there,
        patch: paused(json!(true)),
        undo: paused(Value::Null),
    };
    (writing, Scope::of_pools(pools))
}

fn on_pools(pools: &[ObjectKey], annotation: &str) -> (Writing, Scope) {
    let all = kind("vsphereagentpools");
    let writing = Writing::annotation(all, pools.to_vec(), annotation);
    (writing, Scope::of_pools(pools.to_vec()))
}

/// A pause in Cluster API, for the hosted cluster of our pools. The plan chooses where.
fn in_capi(around: &Surroundings, pools: &[ObjectKey]) -> (Writing, Scope) {
    let api = &around.api;
    let control_plane = control_plane(api);
    let pools = of_cluster(api, pools, &control_plane);
    let (clusters, annotation) = (kind("clusters"), agent_machine::PAUSED_ANNOTATION);
    let there = keys(api, &clusters, &control_plane);
    let of_machines = |kind: Kind, recorded: &str| {
        let objects = keys(api, &kind, &control_plane);
        // A VsphereAgent has the name of its AgentMachine, which has that of its Machine.
        let vm = |machine: &ObjectKey| ObjectKey::new(NAMESPACE, &machine.name);
        let machines = objects.iter();
        let paused = machines.filter(|m| is_for(api, &vm(m), recorded, &uid(api, &kind, m)));
        let scope = Scope::of_vms(paused.map(vm).collect());
        (Writing::annotation(kind, objects, annotation), scope)
    };
    match drawn(around) % 4 {
        0 => in_cluster(clusters, there, pools),
        1 => {
            let writing = Writing::annotation(clusters, there, annotation);
            (writing, Scope::of_pools(pools))
        }
        2 => of_machines(kind("machines"), MACHINE_UID_ANNOTATION),
        _ => of_machines(kind("agentmachines"), AGENT_MACHINE_UID_ANNOTATION),
    }
}

fn name(object: &ObjectKey) -> Name {
    (object.namespace.clone(), object.name.clone())
}

fn uid(api: &ApiServer, kind: &Kind, object: &ObjectKey) -> Value {
    let found = api.get(kind, &name(object));
    found.map_or(Value::Null, |o| o["metadata"]["uid"].clone())
}

/// Whether a VsphereAgent is for the object with that uid. One of a lost hub records another uid.
fn is_for(api: &ApiServer, vm: &ObjectKey, recorded: &str, uid: &Value) -> bool {
    let child = api.get(&kind("vsphereagents"), &name(vm));
    child.is_none_or(|c| c["metadata"]["annotations"][recorded] == *uid)
}

/// The namespace of the hosted cluster of our pools.
fn control_plane(api: &ApiServer) -> String {
    let pools = api.list(&kind("vsphereagentpools"), NAMESPACE);
    let first = pools.first();
    first.map_or_else(String::new, |pool| {
        text(pool, "/spec/controlPlaneNamespace").to_owned()
    })
}

/// Those of our pools that serve the hosted cluster with that control plane.
fn of_cluster(api: &ApiServer, pools: &[ObjectKey], control_plane: &str) -> Vec<ObjectKey> {
    let serves = |pool: &&ObjectKey| {
        let found = api.get(&kind("vsphereagentpools"), &name(pool));
        found.is_some_and(|p| p["spec"]["controlPlaneNamespace"] == control_plane)
    };
    let ours = pools.iter().filter(|pool| pool.namespace == NAMESPACE);
    ours.filter(serves).cloned().collect()
}

/// The objects of a kind, of one namespace or of all.
fn keys(api: &ApiServer, kind: &Kind, namespace: &str) -> Vec<ObjectKey> {
    let key = |object: &Arc<Value>| {
        let (namespace, name) = name_of(object);
        ObjectKey::new(namespace, name)
    };
    api.list(kind, namespace).iter().map(key).collect()
}
