//! `agent-forge move`: gives the host of a Machine to another pool of the group. It shows the steps, and with `--apply` takes them
//! with the rights of the person: a wish on the VsphereAgent, a mark on the Machine, one replica less of the NodePool. Cluster API
//! drains the Node and deletes the Machine, and the operator gives the host away when it is free.
//!
//! Guarantee: the steps can be repeated after each of them. The wish has the replicas that the NodePool had, so they are lowered once.

use std::{sync::Arc, time::Duration};

use agent_forge_actors::{
    demand::lending,
    domain::{managed_vm::ManagedVm, moving, names::ObjectKey, sizes::Sizes, template},
    placement::request,
    ports::cluster::View as _,
    runtime::holds::home_of_hosted_cluster,
};
use agent_forge_crds::{
    VsphereAgent, VsphereAgentPool, duration,
    names::{MOVE_REPLICAS_ANNOTATION, MOVE_TO_ANNOTATION, MOVE_UNTIL_ANNOTATION},
    pool::{CleanupPolicy, ReleasedDisk},
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

/// What `agent-forge move` is about.
#[derive(Clone, Debug, ClapArgs)]
pub struct MoveArgs {
    /// VsphereAgent of the host.
    #[arg(value_name = "HOST")]
    pub host: String,

    /// The pool that gets the host, of the same group. Without a namespace: that of the pool that has it.
    #[arg(long, env = "AGENT_FORGE_MOVE_TO", value_name = "[NAMESPACE/]POOL")]
    pub to: String,

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
    to: String,
    until: Timestamp,
    applied: bool,
    /// Why it cannot go.
    refused: Vec<String>,
    steps: Vec<Step>,
    /// What is to be done afterwards.
    then: Vec<String>,
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

/// The host, who has it and who gets it.
struct Case {
    child: ManagedVm,
    from: Arc<VsphereAgentPool>,
    to: Arc<VsphereAgentPool>,
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
    let steps = match steps(client, &case, until, now).await? {
        Ok(steps) => steps,
        Err(why) => {
            refused.push(why);
            Vec::new()
        }
    };
    let then = match case.to.has_node_pool() {
        true => format!(
            "Raise the replicas of NodePool {} when pool {} has the host in its buffer, or before: its AgentMachine then gets it",
            case.to.spec.node_pool_ref.name,
            ObjectKey::of(case.to.as_ref())
        ),
        false => "It waits there for the pools of the group".to_owned(),
    };
    let mut found = Move {
        host: case.child.key.to_string(),
        from: case.child.pool.to_string(),
        to: ObjectKey::of(case.to.as_ref()).to_string(),
        until,
        applied: asked.apply && refused.is_empty(),
        refused,
        steps,
        then: vec![then],
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
    let (namespace, name) = match asked.to.split_once('/') {
        Some(both) => both,
        None => (child.pool.namespace.as_str(), asked.to.as_str()),
    };
    let to = pool(&ObjectKey::new(namespace, name))?;
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
    let (there, here) = (ObjectKey::of(to.as_ref()), &child.pool);
    let mut found = Vec::new();
    if there == *here {
        found.push(format!("pool {here} has the host"));
        return found;
    }
    let still = lending::still(
        caches,
        (to.as_ref(), from.as_ref()),
        child,
        secret_namespaces,
    );
    found.extend(still.map(|refusal| format!("pool {here} gives pool {there} nothing: {refusal}")));
    if child.deleting || child.given_up {
        found.push("the host is being removed".to_owned());
    }
    if child.adopted {
        found.push("the operator did not make this VM, and does not recycle it".to_owned());
    }
    let release = from.spec.release.clone().unwrap_or_default();
    let retains = from.spec.cleanup_policy() == CleanupPolicy::Retain;
    if !child.in_buffer && (!release.recycles() || retains) {
        found.push(format!(
            "pool {here} does not recycle: the host would be removed when its Machine goes. Set spec.release.policy to Recycle, and \
             spec.cleanupPolicy to Delete"
        ));
    }
    let keeps = release.disk == Some(ReleasedDisk::Keep);
    if !child.in_buffer && keeps && child.home(from) != to.control_plane() {
        found.push(format!(
            "pool {here} keeps the disk (spec.release.disk), and data does not go to another hosted cluster"
        ));
    }
    found.extend(misfit(case));
    if let Ok(Some(wish)) = moving::read(&child.object)
        && wish.to != there
        && now < wish.until
    {
        found.push(format!(
            "somebody gives the host to pool {} until {}; remove the annotation {MOVE_TO_ANNOTATION} first",
            wish.to, wish.until
        ));
    }
    found
}

/// Why no class of the pool is as the host was made.
fn misfit(case: &Case) -> Option<String> {
    let there = ObjectKey::of(case.to.as_ref());
    let made = case
        .child
        .vm()
        .filter(|vm| template::recorded(vm).is_some());
    let Some(vm) = made else {
        return Some("it is not on record with which hardware the host was made".to_owned());
    };
    let sizes = Sizes::of(&case.to);
    let fits = |class| request::template_changes(sizes.pool(class), vm).is_empty();
    if sizes.names().any(fits) {
        return None;
    }
    let differs = template::explain(&request::template_changes(&case.to, vm));
    Some(format!(
        "pool {there} has no class with exactly the hardware of the host, and would replace it ({differs})"
    ))
}

/// The steps. `Err`: why they cannot be taken.
async fn steps(
    client: &Client,
    case: &Case,
    until: Timestamp,
    now: Timestamp,
) -> anyhow::Result<Result<Vec<Step>, String>> {
    let (child, there) = (&case.child, ObjectKey::of(case.to.as_ref()));
    let machine = match child.machine.as_ref().filter(|_| !child.in_buffer) {
        Some(record) => machine(client, child.home(&case.from), &record.name).await?,
        None => None,
    };
    // One that is being deleted goes without us.
    let machine = machine.filter(|(_, m)| {
        m.metadata.deletion_timestamp.is_none()
            && child
                .machine
                .as_ref()
                .is_some_and(|r| r.is_object(&m.metadata))
    });
    let node_pool = match &machine {
        Some(_) => match node_pool(client, case).await? {
            Ok(found) => Some(found),
            Err(why) => return Ok(Err(why)),
        },
        None => None,
    };
    Ok(listed(child, &there, (until, now), machine, node_pool))
}

type Found = (ApiResource, DynamicObject);

/// The steps for that Machine and NodePool, if the host serves.
fn listed(
    child: &ManagedVm,
    there: &ObjectKey,
    (until, now): (Timestamp, Timestamp),
    machine: Option<Found>,
    node_pool: Option<Found>,
) -> Result<Vec<Step>, String> {
    let replicas = |found: &Found| found.1.data["spec"]["replicas"].as_i64();
    let before = node_pool.as_ref().and_then(replicas);
    let begun = moving::to(&child.object, now).as_ref() == Some(there);
    let recorded = child.object.annotations().get(MOVE_REPLICAS_ANNOTATION);
    let recorded: Option<i64> = recorded.filter(|_| begun).and_then(|n| n.parse().ok());
    let mut steps = vec![wish(child, there, until, before.filter(|_| !begun), begun)];
    let Some((kind, machine)) = machine else {
        return Ok(steps);
    };
    let key = ObjectKey::new(machine.namespace().unwrap_or_default(), machine.name_any());
    let marked = machine.annotations().contains_key(DELETE_MACHINE);
    steps.push(Step {
        does: format!("annotate Machine {key} with {DELETE_MACHINE}: it is the first that goes"),
        done: marked,
        write: (!marked).then(|| Write {
            resource: kind,
            key,
            patch: json!({"metadata": {"annotations": {DELETE_MACHINE: "agent-forge"}}}),
        }),
    });
    let Some((kind, node_pool)) = node_pool else {
        return Ok(steps);
    };
    let key = ObjectKey::new(
        node_pool.namespace().unwrap_or_default(),
        node_pool.name_any(),
    );
    let Some(now) = before.filter(|n| *n > 0) else {
        return Err(format!("NodePool {key} has no spec.replicas above 0"));
    };
    let from = recorded.unwrap_or(now);
    if now != from && now != from - 1 {
        return Err(format!(
            "spec.replicas of NodePool {key} was {from} and is {now}: somebody else changed it. Lower it by hand if Machine of the \
             host is to go, or remove the annotation {MOVE_TO_ANNOTATION}"
        ));
    }
    steps.push(Step {
        does: format!(
            "lower spec.replicas of NodePool {key} from {from} to {}",
            from - 1
        ),
        done: now == from - 1,
        write: (now == from).then(|| Write {
            resource: kind,
            key,
            patch: json!({
                "metadata": {"resourceVersion": node_pool.resource_version()},
                "spec": {"replicas": from - 1},
            }),
        }),
    });
    Ok(steps)
}

/// The wish on the VsphereAgent.
fn wish(
    child: &ManagedVm,
    there: &ObjectKey,
    until: Timestamp,
    replicas: Option<i64>,
    begun: bool,
) -> Step {
    Step {
        does: format!(
            "annotate VsphereAgent {}: it goes to pool {there} when it is free, until {until:.0}",
            child.key
        ),
        done: begun,
        write: (!begun).then(|| Write {
            resource: ApiResource::erase::<VsphereAgent>(&()),
            key: child.key.clone(),
            patch: json!({"metadata": {
                "resourceVersion": child.object.resource_version(),
                "annotations": {
                    MOVE_TO_ANNOTATION: there.to_string(),
                    MOVE_UNTIL_ANNOTATION: format!("{until:.0}"),
                    MOVE_REPLICAS_ANNOTATION: replicas.map(|n| n.to_string()),
                },
            }}),
        }),
    }
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
        Some(found) if found.data["spec"]["autoScaling"].is_object() => Err(format!(
            "the autoscaler sets the replicas of NodePool {namespace}/{name}: lower spec.autoScaling or scale the workload down, and \
             give the host away afterwards"
        )),
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
        let mut text = format!(
            "host {} of pool {} to pool {}\n",
            self.host, self.from, self.to
        );
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
        for then in &self.then {
            text += &format!("  then: {then}\n");
        }
        if !self.applied {
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
