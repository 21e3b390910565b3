//! `agent-forge move`: gives the host of a Machine to another pool of the group. It shows the steps, and with `--apply` takes them
//! with the rights of the person: a wish on the VsphereAgent, a mark on the Machine, one replica less of the NodePool. Cluster API
//! drains the Node and deletes the Machine, and the operator gives the host away when it is free. `--cancel` takes the steps back.
//!
//! Guarantee: the steps can be repeated after each of them. The patch that lowers the replicas notes the Machine on the NodePool, so
//! they are lowered once for each Machine.

use std::{sync::Arc, time::Duration};

use agent_forge_actors::{
    demand::buffer::Size,
    demand::lending,
    domain::{
        belonging,
        goal::{self, Recorded},
        managed_vm::ManagedVm,
        moving,
        names::ObjectKey,
        recycle,
        sizes::Sizes,
        template,
    },
    placement::request,
    ports::cluster::View as _,
    runtime::holds::{self, home_of_hosted_cluster},
};
use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool, duration,
    names::{MOVE_TO_ANNOTATION, MOVE_UNTIL_ANNOTATION, MOVED_MACHINES_ANNOTATION},
    pool::{CleanupPolicy, ReleaseSpec, ReleasedDisk},
};
use anyhow::Context as _;
use clap::{Args as ClapArgs, builder::BoolishValueParser};
use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    Asked,
    report::{self, Report, Verdict},
    sight::{self, Sight},
};
use crate::{args::Args, cluster::view::Caches};

/// Cluster API deletes a Machine with this annotation first when there are too many.
const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
/// Its value here.
const OURS: &str = "agent-forge";
/// How many Machines a NodePool remembers.
const MOST_NOTED: usize = 20;

/// What `agent-forge move` is about.
#[derive(Clone, Debug, ClapArgs)]
pub struct MoveArgs {
    /// VsphereAgent of the host.
    #[arg(value_name = "HOST")]
    pub host: String,

    /// The pool that gets the host, of the same group. Without a namespace: that of the pool that has it.
    #[arg(
        long,
        env = "AGENT_FORGE_MOVE_TO",
        value_name = "[NAMESPACE/]POOL",
        required_unless_present = "cancel"
    )]
    pub to: Option<String>,

    /// Take the steps back, as far as the Machine is not being deleted.
    #[arg(long, env = "AGENT_FORGE_MOVE_CANCEL", value_parser = BoolishValueParser::new())]
    pub cancel: bool,

    /// How long the host is kept for that pool, a Go duration. After that it is as any other.
    #[arg(long = "for", env = "AGENT_FORGE_MOVE_FOR", value_name = "DURATION", default_value = "4h", value_parser = period)]
    pub period: Duration,

    /// Take the steps. Without it, nothing is changed.
    #[arg(long, env = "AGENT_FORGE_APPLY", value_parser = BoolishValueParser::new())]
    pub apply: bool,

    /// Which objects, and how they are printed.
    #[command(flatten)]
    pub asked: Asked,
}

fn period(text: &str) -> Result<Duration, String> {
    let period = duration::parse(text).map_err(|e| format!("{e}; write it like 4h"))?;
    let long = Duration::from_secs(30 * 24 * 3600);
    if period.is_zero() || period > long {
        return Err("it must be longer than zero, and at most 720h".to_owned());
    }
    Ok(period)
}

/// The way of one host.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Move {
    host: String,
    from: String,
    /// `null`: it stays.
    to: Option<String>,
    applied: bool,
    /// Why it cannot go.
    refused: Vec<String>,
    steps: Vec<Step>,
    /// What is to be done afterwards.
    then: Option<String>,
}

/// One step.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    does: String,
    done: bool,
    #[serde(skip)]
    write: Option<Write>,
}

/// What a step writes: one object, and nothing if it has changed since.
#[derive(Debug)]
struct Write {
    resource: ApiResource,
    key: ObjectKey,
    patch: Value,
}

/// The host, who has it and who gets it. `None`: it stays.
struct Case {
    child: ManagedVm,
    from: Arc<VsphereAgentPool>,
    to: Option<Arc<VsphereAgentPool>>,
}

/// Shows the steps, and takes them with `--apply`.
///
/// # Errors
/// The cluster cannot be read or written, or there is no such host or pool.
pub async fn run(args: &Args, asked: &MoveArgs) -> anyhow::Result<Verdict> {
    let (client, args) = &sight::connect(args).await?;
    let sight = Sight::permitted(args, client, &asked.asked.place).await?;
    sight.tell_unseen();
    let case = case(&sight.caches, asked)?;
    let now = Timestamp::now();
    let mut refused = refusals(&sight.caches, &case, now, args.secret_bound());
    let until = now + jiff::SignedDuration::try_from(asked.period)?;
    let steps = match refused.is_empty() {
        true => steps(client, &sight.caches, &case, until, now).await?,
        false => Ok(Vec::new()),
    };
    let steps = steps.unwrap_or_else(|why| {
        refused.push(why);
        Vec::new()
    });
    let mut found = Move {
        host: case.child.key.to_string(),
        from: case.child.pool.to_string(),
        to: case
            .to
            .as_ref()
            .map(|to| ObjectKey::of(to.as_ref()).to_string()),
        applied: asked.apply && refused.is_empty(),
        refused,
        steps,
        then: case.to.as_deref().map(then),
    };
    if found.applied {
        for step in &mut found.steps {
            if let Some(write) = step.write.take() {
                let written = apply(client, &write).await;
                written.with_context(|| {
                    format!(
                        "{}: nothing after this step was done; run the command again",
                        step.does
                    )
                })?;
                step.done = true;
            }
        }
    }
    report::print(&found, asked.asked.output)
}

/// What a person does afterwards.
fn then(to: &VsphereAgentPool) -> String {
    if !to.has_node_pool() {
        return "it waits there for the pools of the group".to_owned();
    }
    format!(
        "raise the replicas of NodePool {} when pool {} has the host in its buffer: its AgentMachine then gets it",
        to.spec.node_pool_ref.name,
        ObjectKey::of(to)
    )
}

fn case(caches: &Caches, asked: &MoveArgs) -> anyhow::Result<Case> {
    let namespace = asked.asked.place.namespace.as_deref();
    let mut all = caches.all_children();
    all.retain(|c| c.name_any() == asked.host);
    all.retain(|c| namespace.is_none_or(|n| c.namespace().as_deref() == Some(n)));
    let child = match &all[..] {
        [one] => ManagedVm::read(one.clone()),
        [] => anyhow::bail!("there is no VsphereAgent {}", asked.host),
        _ => anyhow::bail!(
            "VsphereAgent {} exists in several namespaces; add -n NAMESPACE",
            asked.host
        ),
    };
    let pool = |key: &ObjectKey| {
        let found = caches.pool(key);
        found.with_context(|| {
            format!("there is no VsphereAgentPool {key} in sight; -A looks at all namespaces")
        })
    };
    let from = pool(&child.pool)?;
    let to = asked.to.as_deref().filter(|_| !asked.cancel).map(|to| {
        let own = (child.pool.namespace.as_str(), to);
        let (namespace, name) = to.split_once('/').unwrap_or(own);
        pool(&ObjectKey::new(namespace, name))
    });
    let to = to.transpose()?;
    Ok(Case { child, from, to })
}

/// Why the host cannot go there, by what the cluster shows.
fn refusals(
    caches: &Caches,
    case: &Case,
    now: Timestamp,
    secret_namespaces: &[String],
) -> Vec<String> {
    let Case { child, from, to } = case;
    let Some(to) = to else {
        return Vec::new();
    };
    let (there, here) = (ObjectKey::of(to.as_ref()), &child.pool);
    if there == *here {
        return vec![format!("pool {here} has the host")];
    }
    let mut found = Vec::new();
    let still = lending::still(
        caches,
        (to.as_ref(), from.as_ref()),
        child,
        secret_namespaces,
    );
    found.extend(still.map(|why| format!("pool {here} gives pool {there} nothing: {why}")));
    for (pool, key) in [(from, here), (to, &there)] {
        let stop = holds::stop(&holds::of_pool(caches, key), now);
        found.extend(stop.map(|hold| format!("pool {key} does nothing now: {}", hold.why)));
        if pool.metadata.deletion_timestamp.is_some() {
            found.push(format!("pool {key} is being deleted"));
        }
    }
    if child.deleting || child.given_up {
        found.push("the host is being removed".to_owned());
    }
    if child.adopted {
        found.push("the operator did not make this VM, and does not recycle it".to_owned());
    }
    if !child.in_buffer {
        found.extend(not_recycled(case, to));
    }
    found.extend(no_place(caches, case, to, now));
    if let Ok(Some(wish)) = moving::read(&child.object)
        && wish.to != there
        && now < wish.until
    {
        found.push(format!(
            "somebody gives the host to pool {} until {:.0}; take that back first, with --cancel",
            wish.to, wish.until
        ));
    }
    found
}

/// Why a host that serves would not come back from its Machine.
fn not_recycled(case: &Case, to: &VsphereAgentPool) -> Option<String> {
    let Case { child, from, .. } = case;
    let here = &child.pool;
    let release = from.spec.release.clone().unwrap_or_default();
    if !release.recycles() || from.spec.cleanup_policy() == CleanupPolicy::Retain {
        return Some(format!(
            "pool {here} does not recycle: the host would not come back from its Machine. Set spec.release.policy to Recycle, and \
             spec.cleanupPolicy to Delete"
        ));
    }
    let uses = child
        .vm()
        .map(recycle::generation)
        .and_then(|n| i32::try_from(n).ok());
    if uses >= release.max_uses && release.max_uses.is_some() {
        return Some(format!(
            "the VM has served as often as spec.release.maxUses of pool {here} admits: it is removed when its Machine goes"
        ));
    }
    let keeps = release.disk == Some(ReleasedDisk::Keep);
    (keeps && child.home(from) != to.control_plane()).then(|| {
        format!("pool {here} keeps the disk (spec.release.disk), and data does not go to another hosted cluster")
    })
}

/// Why the other pool could not keep the host.
fn no_place(caches: &Caches, case: &Case, to: &VsphereAgentPool, now: Timestamp) -> Vec<String> {
    let (child, there) = (&case.child, ObjectKey::of(to));
    let mut found = Vec::new();
    let sizes = Sizes::of(&Arc::new(to.clone()));
    let made = child.vm().filter(|vm| template::recorded(vm).is_some());
    let fits = |class: &Option<&str>| {
        let changes = |vm| request::template_changes(sizes.pool(*class), vm);
        made.is_some_and(|vm| changes(vm).is_empty())
    };
    match sizes.names().find(fits) {
        Some(class) => {
            let scaling = sizes.pool(class).spec.scaling.clone().unwrap_or_default();
            let recycles = to.spec.release.as_ref().is_some_and(ReleaseSpec::recycles);
            if Size::read(&scaling, recycles, now).0.most == 0 {
                found.push(format!(
                    "the buffer of pool {there} has no place for such a host: set spec.release.policy to Recycle, or bufferAgents"
                ));
            }
        }
        None => {
            let differs = made.map(|vm| template::explain(&request::template_changes(to, vm)));
            let differs = differs.unwrap_or_else(|| "its own is not on record".to_owned());
            found.push(format!(
                "pool {there} has no class with exactly the hardware of the host, and would replace it ({differs})"
            ));
        }
    }
    if !to.has_node_pool() && child.key.namespace != there.namespace {
        found.push(format!(
            "a pool of namespace {} made the host, and pool {there} has no NodePool: pools of a third namespace could not take it",
            child.key.namespace
        ));
    }
    let most = to.spec.scaling.as_ref().and_then(|scaling| scaling.max_vms);
    let own = |c: &Arc<VsphereAgent>| goal::user(c) == there || goal::maker(c) == there;
    let counted = caches.all_children().into_iter().filter(own).count();
    // One that it made and lends counts already.
    let more = usize::from(!own(&child.object));
    if most.is_some_and(|most| counted + more > usize::try_from(most).unwrap_or_default()) {
        found.push(format!(
            "pool {there} has as many VMs as spec.scaling.maxVMs admits"
        ));
    }
    found
}

/// The steps. `Err`: why they cannot be taken.
async fn steps(
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
async fn apply(client: &Client, write: &Write) -> anyhow::Result<()> {
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

impl Report for Move {
    fn text(&self) -> String {
        let (host, from) = (&self.host, &self.from);
        let mut text = match &self.to {
            Some(to) => format!("host {host} of pool {from} to pool {to}\n"),
            None => format!("host {host} stays in pool {from}\n"),
        };
        for why in &self.refused {
            text += &format!("  refused: {}\n", report::one_line(why));
        }
        for step in &self.steps {
            let state = if step.done { "done" } else { "open" };
            text += &format!("  {state}: {}\n", step.does);
        }
        if !self.refused.is_empty() {
            return text;
        }
        if let Some(then) = &self.then {
            text += &format!("  then: {then}\n");
        }
        if !self.applied && self.steps.iter().any(|step| !step.done) {
            text +=
                "nothing was changed; --apply takes the open steps (docs/how-to/move-a-host.md)\n";
        }
        text
    }

    fn verdict(&self) -> Verdict {
        match self.refused.is_empty() {
            true => Verdict::Nothing,
            false => Verdict::Findings,
        }
    }
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
