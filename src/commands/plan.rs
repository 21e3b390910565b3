//! `agent-forge plan`: what the operator would do for a pool now, or with a changed pool before it is applied.
//!
//! The decision is the operator's own ([`decide`]). Nothing is sent.

mod actions;
mod cost;
mod diff;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::Arc};

use agent_forge_actors::{
    domain::names::ObjectKey,
    pool::{observed::Observed, plan::Plan},
    ports::cluster::View as _,
};
use agent_forge_crds::{
    VsphereAgentPool,
    conditions::{CAPACITY_SATISFIED, POOL_CONDITIONS, READY, Reason, find_condition},
};
use clap::Args as ClapArgs;
use jiff::Timestamp;
use serde::Serialize;

use self::{actions::Step, cost::Costs, diff::Change};
use super::{
    Asked,
    manifest_file::{self, Document},
    report::{self, Report, Verdict},
    sight::{self, Sight},
    validate,
};
use crate::{
    args::Args,
    cluster::{lists, view::Caches},
    machines::{
        decide,
        waits::{Wait, by_people, failed_steps, invalid_pause, next_effects_of_pool},
    },
};

/// What `agent-forge plan` is about.
#[derive(Clone, Debug, ClapArgs)]
pub struct PlanArgs {
    /// The pool. With --file: the pool of the file, if it has only one.
    #[arg(value_name = "POOL", required_unless_present = "file")]
    pub pool: Option<String>,

    /// A file with the pool as it would be applied. `-` is standard input.
    #[arg(long, short, env = "AGENT_FORGE_FILE", value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Which objects, and how they are printed.
    #[command(flatten)]
    pub asked: Asked,
}

/// What would happen.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Planned {
    /// Namespace and name.
    pool: String,
    /// Whether the pool exists already.
    exists: bool,
    /// What the file changes.
    changes: Vec<Change>,
    /// What the operator would do, in this order.
    actions: Vec<Step>,
    /// What it would not do, and why.
    waits: Vec<Wait>,
    /// What the VMs need.
    costs: Costs,
    /// When this was seen.
    seen: Timestamp,
}

/// Plans.
///
/// # Errors
/// The cluster or the file cannot be read, the file is not valid, or there is no such pool.
pub async fn run(args: &Args, asked: &PlanArgs) -> anyhow::Result<Verdict> {
    let file = match &asked.file {
        Some(path) => Some(the_pool(&manifest_file::read(path)?, asked)?),
        None => None,
    };
    let (client, args) = &sight::connect(args).await?;
    let sight = Sight::permitted(args, client, &asked.asked.place).await?;
    sight.tell_unseen();
    let key = find(&sight.caches, file.as_ref(), asked)?;
    let planned = plan(
        &sight.caches,
        &key,
        file.as_ref(),
        args.secret_bound(),
        Timestamp::now(),
    )?;
    report::print(&planned, asked.asked.output)
}

/// What the operator would do for a pool of the cluster.
///
/// # Errors
/// There is no such pool.
pub fn of_pool(
    caches: &Caches,
    key: &ObjectKey,
    secret_namespaces: &[String],
    now: Timestamp,
) -> anyhow::Result<Planned> {
    plan(caches, key, None, secret_namespaces, now)
}

/// The pool in a file, valid.
fn the_pool(documents: &[Document], asked: &PlanArgs) -> anyhow::Result<Document> {
    let mut pools = documents.iter().filter(|d| {
        let named = asked.pool.as_ref().is_none_or(|name| d.name == *name);
        d.kind == "VsphereAgentPool" && named
    });
    let (Some(pool), None) = (pools.next(), pools.next()) else {
        anyhow::bail!(
            "the file must have exactly one VsphereAgentPool of that name; name it: agent-forge plan POOL -f FILE"
        );
    };
    let found = validate::validate(std::slice::from_ref(pool));
    anyhow::ensure!(
        found.verdict() == Verdict::Nothing,
        "the file is not valid:\n{}",
        found.text()
    );
    Ok(pool.clone())
}

fn find(caches: &Caches, file: Option<&Document>, asked: &PlanArgs) -> anyhow::Result<ObjectKey> {
    let namespace = asked.asked.place.namespace.as_ref();
    if let Some(file) = file {
        let namespace = file.namespace.as_ref().or(namespace);
        let Some(namespace) = namespace else {
            anyhow::bail!("the file names no namespace; add -n NAMESPACE");
        };
        return Ok(ObjectKey::new(namespace, &file.name));
    }
    let name = asked.pool.as_deref().unwrap_or_default();
    sight::pool(caches, namespace.map(String::as_str), name)
}

/// What would happen, with the pool of the cluster or of the file.
fn plan(
    caches: &Caches,
    key: &ObjectKey,
    file: Option<&Document>,
    secret_namespaces: &[String],
    now: Timestamp,
) -> anyhow::Result<Planned> {
    let present = caches.pool(key);
    let mut changes = Vec::new();
    if let Some(file) = file {
        let pool = diff::applied(key, file, present.as_deref())?;
        changes = diff::changes(present.as_deref(), &pool)?;
        let mut all: Vec<VsphereAgentPool> =
            caches.pools().iter().map(|p| p.as_ref().clone()).collect();
        all.retain(|p| ObjectKey::of(p) != *key);
        all.push(pool);
        lists::show(&caches.pools, &None, all, ObjectKey::of);
    }
    let decided = decide::decide(caches, key, secret_namespaces, now);
    let Some((observed, plan)) = decided else {
        anyhow::bail!("there is no VsphereAgentPool {key}");
    };
    let actions = actions::steps(caches, &plan, key, now);
    Ok(Planned {
        pool: key.to_string(),
        exists: present.is_some(),
        changes,
        waits: waits(present.as_ref(), &observed, &plan, now),
        costs: cost::costs(&observed, &plan, present.as_deref()),
        actions,
        seen: now,
    })
}

/// Everything that would not happen.
fn waits(
    present: Option<&Arc<VsphereAgentPool>>,
    observed: &Observed,
    plan: &Plan,
    now: Timestamp,
) -> Vec<Wait> {
    let held = &observed.holds;
    let mut all = by_people(held, &next_effects_of_pool(observed, plan), now);
    all.dedup();
    all.extend(invalid_pause(held));
    all.extend(
        observed
            .children
            .iter()
            .filter_map(|c| failed_steps(&c.object)),
    );
    let row = |w: &agent_forge_actors::pool::plan::Waiting| {
        Wait::of(&w.subject, &w.reason, &w.message, None)
    };
    all.extend(plan.waiting.iter().map(row));
    let refused = observed.refused_source();
    if refused.is_some() {
        let message = "the namespace of the InfraEnv does not admit this pool";
        all.push(Wait::of(
            "InfraEnv",
            &Reason::NamespaceNotAllowed,
            message,
            None,
        ));
    } else if observed.infra_env.is_none() {
        let message = format!("InfraEnv {} does not exist", observed.infra_env_key);
        all.push(Wait::of(
            "InfraEnv",
            &Reason::InfraEnvNotFound,
            message,
            None,
        ));
    }
    let status = present.and_then(|p| p.status.as_ref());
    let conditions = status.map(|s| s.conditions.as_slice()).unwrap_or_default();
    for type_ in POOL_CONDITIONS
        .iter()
        .filter(|t| ![READY, CAPACITY_SATISFIED].contains(t))
    {
        if let Some(c) = find_condition(conditions, type_).filter(|c| c.status == "False") {
            let reason = Reason::from(c.reason.as_str());
            let since = Some(c.last_transition_time.0);
            all.push(Wait::of(
                format!("pool: {type_}"),
                &reason,
                &c.message,
                since,
            ));
        }
    }
    all
}

impl Report for Planned {
    fn text(&self) -> String {
        let exists = if self.exists {
            ""
        } else {
            " (does not exist yet)"
        };
        let mut text = format!("VsphereAgentPool {}{exists}\n", self.pool);
        if !self.changes.is_empty() {
            text += "\nThe file changes\n";
            let rows = self.changes.iter().map(|c| {
                let word = |value: &Option<serde_json::Value>| {
                    value.as_ref().map_or("-".to_owned(), ToString::to_string)
                };
                vec![
                    format!("  {}", c.field),
                    word(&c.before),
                    word(&c.after),
                    c.effect.to_owned(),
                ]
            });
            text += &report::table(&["  FIELD", "CLUSTER", "FILE", "EFFECT"], rows);
        }
        text += "\nThe operator would now\n";
        if self.actions.is_empty() {
            text += "  do nothing\n";
        }
        for step in &self.actions {
            text += &format!("  {}: {}\n", step.does, step.why);
            if let Some(held) = &step.held {
                text += &format!("      but it is held back: {}\n", report::one_line(held));
            }
        }
        if !self.waits.is_empty() {
            text += "\nIt would not go on with\n";
        }
        for wait in &self.waits {
            let since = wait
                .since
                .map(|since| format!(", for {}", report::age(self.seen, since)));
            text += &format!(
                "  {} ({}{})\n      {}\n      Who can end it: {}. See {}\n",
                wait.reason,
                wait.subject,
                since.unwrap_or_default(),
                report::one_line(&wait.message),
                wait.who.words(),
                wait.page
            );
        }
        text += "\nWhat the VMs need\n";
        text += &self.costs.table();
        text
    }

    fn verdict(&self) -> Verdict {
        if self.actions.is_empty() && self.waits.is_empty() && self.changes.is_empty() {
            Verdict::Nothing
        } else {
            Verdict::Findings
        }
    }
}
