//! The steps of a move, each with what it writes, and how they are taken.

use agent_forge_actors::{
    domain::{belonging, goal::Recorded, managed_vm::ManagedVm, moving, names::ObjectKey},
    ports::cluster::View as _,
    runtime::holds::home_of_hosted_cluster,
};
use agent_forge_crds::{
    VsphereAgent,
    names::{MOVE_TO_ANNOTATION, MOVE_UNTIL_ANNOTATION, MOVED_MACHINES_ANNOTATION},
};
use anyhow::Context as _;
use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::Case;
use crate::cluster::view::Caches;

/// Cluster API deletes a Machine with this annotation first when there are too many.
const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
/// Its value here.
const OURS: &str = "agent-forge";
/// How many Machines a NodePool remembers.
const MOST_NOTED: usize = 20;

/// One step.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Step {
    pub does: String,
    pub done: bool,
    #[serde(skip)]
    pub write: Option<Write>,
}

/// What a step writes: one object, and nothing if it has changed since.
#[derive(Debug)]
pub(super) struct Write {
    resource: ApiResource,
    key: ObjectKey,
    patch: Value,
}

/// The steps. `Err`: why they cannot be taken.
pub(super) async fn steps(
    client: &Client,
    caches: &Caches,
    case: &Case,
    until: Timestamp,
    now: Timestamp,
) -> anyhow::Result<Result<Vec<Step>, String>> {
    let Case { child, from, to } = case;
    let there = to.as_ref().map(|to| ObjectKey::of(to.as_ref()));
    let wish = wish(child, there.as_ref(), until, now);
    let machine = match child.machine.as_ref().filter(|_| !child.in_buffer) {
        Some(record) => machine(client, child.home(from), &record.name).await?,
        None => None,
    };
    // One that is being deleted goes without us.
    let machine = machine.filter(|(_, m)| {
        let recorded = child.machine.as_ref();
        m.metadata.deletion_timestamp.is_none()
            && recorded.is_some_and(|r| r.is_object(&m.metadata))
    });
    let Some(machine) = machine else {
        return Ok(Ok(vec![wish]));
    };
    if !is_of_node_pool(caches, case) {
        let name = &from.spec.node_pool_ref.name;
        return Ok(Err(format!(
            "the Machine of the host is not of NodePool {name}, which pool {} is for: nothing is lowered",
            child.pool
        )));
    }
    let found = match node_pool(client, case).await? {
        Ok(found) => found,
        Err(why) => return Ok(Err(why)),
    };
    let mark = mark(machine, to.is_some());
    let lower = match lower(&mark.1, found, to.is_some()) {
        Ok(lower) => lower,
        Err(why) => return Ok(Err(why)),
    };
    let mut steps = vec![wish, mark.0, lower];
    if to.is_none() {
        steps.reverse();
    }
    Ok(Ok(steps))
}

/// The Machine of the host is one of the NodePool whose replicas are lowered.
fn is_of_node_pool(caches: &Caches, case: &Case) -> bool {
    let Case { child, from, .. } = case;
    let home = child.home(from);
    let record = child.agent_machine.as_ref();
    let am = record.and_then(|r| caches.agent_machine(&ObjectKey::new(home, &r.name)));
    let same = |record: &Recorded| am.as_ref().is_some_and(|am| record.is_object(&am.metadata));
    home == from.control_plane()
        && record.is_some_and(same)
        && am.is_some_and(|am| belonging::belongs(from, &am))
}

type Found = (ApiResource, DynamicObject);

/// The wish on the VsphereAgent. `there`: `None` takes it off.
fn wish(child: &ManagedVm, there: Option<&ObjectKey>, until: Timestamp, now: Timestamp) -> Step {
    let annotations = match there {
        Some(there) => json!({
            MOVE_TO_ANNOTATION: there.to_string(),
            MOVE_UNTIL_ANNOTATION: format!("{until:.0}"),
        }),
        None => json!({MOVE_TO_ANNOTATION: null, MOVE_UNTIL_ANNOTATION: null}),
    };
    let done = match there {
        Some(_) => moving::to(&child.object, now).as_ref() == there,
        None => moving::over(&child.object).is_empty(),
    };
    let key = &child.key;
    Step {
        does: match there {
            Some(there) => format!(
                "annotate VsphereAgent {key}: it goes to pool {there} when it is free, until {until:.0}"
            ),
            None => format!(
                "take the annotations {MOVE_TO_ANNOTATION} and move-until off VsphereAgent {key}"
            ),
        },
        done,
        write: (!done).then(|| Write {
            resource: ApiResource::erase::<VsphereAgent>(&()),
            key: key.clone(),
            patch: json!({"metadata": {
                "resourceVersion": child.object.resource_version(), "annotations": annotations,
            }}),
        }),
    }
}

/// The mark of the Machine, and its uid.
fn mark((resource, machine): Found, goes: bool) -> (Step, String) {
    let key = ObjectKey::new(machine.namespace().unwrap_or_default(), machine.name_any());
    let value = machine.annotations().get(DELETE_MACHINE);
    let done = match goes {
        true => value.is_some(),
        // A mark of others stays.
        false => value.is_none_or(|value| value != OURS),
    };
    let step = Step {
        does: match goes {
            true => {
                format!("annotate Machine {key} with {DELETE_MACHINE}: it is the first that goes")
            }
            false => format!("take the annotation {DELETE_MACHINE} off Machine {key}"),
        },
        done,
        write: (!done).then(|| Write {
            resource,
            key,
            patch: json!({"metadata": {"annotations": {DELETE_MACHINE: goes.then_some(OURS)}}}),
        }),
    };
    (step, machine.uid().unwrap_or_default())
}

/// The replicas of the NodePool: one less for the Machine of that uid, or one more again. `Err`: why not.
fn lower(machine: &str, (resource, node_pool): Found, goes: bool) -> Result<Step, String> {
    let key = ObjectKey::new(
        node_pool.namespace().unwrap_or_default(),
        node_pool.name_any(),
    );
    let noted = node_pool.annotations().get(MOVED_MACHINES_ANNOTATION);
    let mut noted: Vec<&str> = noted.iter().flat_map(|text| text.split(',')).collect();
    noted.retain(|uid| !uid.is_empty());
    let done = noted.contains(&machine) == goes;
    let now = node_pool.data["spec"]["replicas"].as_i64();
    if done {
        let did = if goes { "lowered" } else { "not lowered" };
        return Ok(Step {
            does: format!("spec.replicas of NodePool {key} is {did} for this Machine"),
            done,
            write: None,
        });
    }
    if node_pool.data["spec"]["autoScaling"].is_object() {
        return Err(format!(
            "the autoscaler sets the replicas of NodePool {key}: lower spec.autoScaling.max, or take workload away, and give the host \
             away when it is free"
        ));
    }
    let Some(now) = now.filter(|n| *n > 0 || !goes) else {
        return Err(format!("NodePool {key} has no spec.replicas above 0"));
    };
    let next = if goes { now - 1 } else { now + 1 };
    noted.retain(|uid| *uid != machine);
    noted.extend(goes.then_some(machine));
    let noted = noted[noted.len().saturating_sub(MOST_NOTED)..].join(",");
    Ok(Step {
        does: format!("set spec.replicas of NodePool {key} from {now} to {next}"),
        done,
        write: Some(Write {
            resource,
            key,
            patch: json!({
                "metadata": {
                    "resourceVersion": node_pool.resource_version(),
                    "annotations": {MOVED_MACHINES_ANNOTATION: Some(noted).filter(|n| !n.is_empty())},
                },
                "spec": {"replicas": next},
            }),
        }),
    })
}

async fn machine(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Option<Found>> {
    let group = kube::discovery::group(client, "cluster.x-k8s.io").await;
    let group = group.context("looking for the version of Machines")?;
    let (resource, _) = group
        .recommended_kind("Machine")
        .context("no Machines are served here")?;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let found = api.get_opt(name).await;
    let found = found.with_context(|| format!("reading Machine {namespace}/{name}"))?;
    Ok(found.map(|machine| (resource, machine)))
}

/// The NodePool of the pool that has the host. `Err`: why its replicas cannot be lowered.
async fn node_pool(client: &Client, case: &Case) -> anyhow::Result<Result<Found, String>> {
    let name = &case.from.spec.node_pool_ref.name;
    let Some(namespace) = home_of_hosted_cluster(&case.from) else {
        return Ok(Err(format!(
            "spec.controlPlaneNamespace of pool {} does not tell the namespace of NodePool {name}",
            case.child.pool
        )));
    };
    let gvk = GroupVersionKind::gvk("hypershift.openshift.io", "v1beta1", "NodePool");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "nodepools");
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
    let found = api.get_opt(name).await;
    let found = found.with_context(|| format!("reading NodePool {namespace}/{name}"))?;
    Ok(match found {
        None => Err(format!("there is no NodePool {namespace}/{name}")),
        Some(found) => Ok((resource, found)),
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "a person writes, with that person's rights: the gate is for effects of the operator"
)]
pub(super) async fn apply(client: &Client, write: &Write) -> anyhow::Result<()> {
    let Write {
        resource,
        key,
        patch,
    } = write;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &key.namespace, resource);
    let patch = Patch::Merge(patch);
    api.patch(&key.name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, annotations: Value, spec: Value) -> Found {
        let gvk = GroupVersionKind::gvk("example.com", "v1", kind);
        let mut annotations = annotations;
        let all = annotations.as_object_mut().expect("annotations");
        all.retain(|_, value| !value.is_null());
        let resource = ApiResource::from_gvk(&gvk);
        let object = json!({
            "apiVersion": "example.com/v1", "kind": kind,
            "metadata": {
                "name": "w", "namespace": "demo", "uid": "u-1", "resourceVersion": "7", "annotations": annotations,
            },
            "spec": spec,
        });
        (resource, serde_json::from_value(object).expect("an object"))
    }

    fn node_pool(noted: Value, spec: Value) -> Found {
        object("NodePool", json!({MOVED_MACHINES_ANNOTATION: noted}), spec)
    }

    fn written(step: &Step) -> Option<(Value, Value)> {
        let patch = &step.write.as_ref()?.patch;
        let noted = patch["metadata"]["annotations"][MOVED_MACHINES_ANNOTATION].clone();
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        Some((patch["spec"]["replicas"].clone(), noted))
    }

    #[test]
    fn replicas_are_lowered_once_for_each_machine_and_raised_once_again() {
        let three = json!({"replicas": 3});
        let step = lower("m-1", node_pool(Value::Null, three.clone()), true).expect("a step");
        assert_eq!(written(&step), Some((json!(2), json!("m-1"))));
        // Another Machine of the same NodePool, and the same one again.
        let step = lower("m-2", node_pool(json!("m-1"), three.clone()), true).expect("a step");
        assert_eq!(written(&step), Some((json!(2), json!("m-1,m-2"))));
        let step = lower("m-1", node_pool(json!("m-1"), three.clone()), true).expect("a step");
        assert!(step.done && step.write.is_none());
        let step = lower("m-1", node_pool(json!("m-1"), three.clone()), false).expect("a step");
        assert_eq!(written(&step), Some((json!(4), Value::Null)));
        let step = lower("m-1", node_pool(json!("m-2"), three), false).expect("a step");
        assert!(step.done && step.write.is_none());
    }

    #[test]
    fn an_autoscaled_or_empty_node_pool_is_refused() {
        let scaled = json!({"replicas": 3, "autoScaling": {"min": 1, "max": 5}});
        let why = lower("m-1", node_pool(Value::Null, scaled), true).unwrap_err();
        assert!(why.contains("the autoscaler sets the replicas"), "{why}");
        let why = lower("m-1", node_pool(Value::Null, json!({"replicas": 0})), true).unwrap_err();
        assert!(why.contains("no spec.replicas above 0"), "{why}");
    }

    #[test]
    fn a_mark_of_others_stays_on_the_machine() {
        let machine = |value: Value| object("Machine", json!({DELETE_MACHINE: value}), json!({}));
        let patch = |found: Found, goes: bool| mark(found, goes).0.write.map(|w| w.patch);
        let set = patch(machine(Value::Null), true).expect("a write");
        assert_eq!(set["metadata"]["annotations"][DELETE_MACHINE], OURS);
        assert_eq!(patch(machine(json!("theirs")), true), None);
        assert_eq!(patch(machine(json!("theirs")), false), None);
        let off = patch(machine(json!(OURS)), false).expect("a write");
        assert_eq!(off["metadata"]["annotations"][DELETE_MACHINE], Value::Null);
    }
}
