//! `agent-forge move`: gives the host of a Machine to another pool of the group. It shows the steps, and with `--apply` takes them
//! with the rights of the person: a wish on the VsphereAgent, a mark on the Machine, one replica less of the NodePool. Cluster API
//! drains the Node and deletes the Machine, and the operator gives the host away when it is free. `--cancel` takes the steps back.
//!
//! Guarantee: the steps can be repeated after each of them. The patch that lowers the replicas notes the Machine on the NodePool, so
//! they are lowered once for each Machine.

mod refused;
mod steps;

use std::{sync::Arc, time::Duration};

use agent_forge_actors::{
    domain::{managed_vm::ManagedVm, names::ObjectKey},
    ports::cluster::View as _,
};
use agent_forge_crds::{VsphereAgentPool, duration};
use anyhow::Context as _;
use clap::{Args as ClapArgs, builder::BoolishValueParser};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use self::{
    refused::refusals,
    steps::{Step, apply, steps},
};
use super::{
    Asked,
    report::{self, Report, Verdict},
    sight::{self, Sight},
};
use crate::{args::Args, cluster::view::Caches};

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
            format!("there is no VsphereAgentPool {key} in sight; if you may not list all pools, name its namespace with --namespaces")
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
